//! Groups SSR and LIF of the attack list against a server of names that answers as each case wants.

#![allow(clippy::disallowed_methods, reason = "a resolver is a datagram server")]

use std::sync::{Arc, Mutex};

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use policy::authority::{Authority, Scheme};
use policy::{Code, Policy, Routing};

use super::*;

const A: u16 = 1;
const AAAA: u16 = 28;
const NOT_THERE: u8 = 3;
const FAILED: u8 = 2;

#[derive(Clone)]
enum Says {
    /// These addresses, each under its own type, without a time to live.
    Addresses(&'static [&'static str]),
    Code(u8),
    Truncated,
    Nothing,
    Nonsense,
}

/// The types that were asked for.
type Asked = Arc<Mutex<Vec<u16>>>;

/// A resolver whose one server answers the n-th question of each type with the n-th of these, or
/// the last.
async fn resolver(says: Vec<Says>) -> (Resolver, Asked) {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = socket.local_addr().unwrap();
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut packet = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut packet).await {
            let mut end = 12;
            while packet[end] != 0 {
                end += usize::from(packet[end]) + 1;
            }
            let kind = u16::from_be_bytes([packet[end + 1], packet[end + 2]]);
            let turn = {
                let mut log = log.lock().unwrap();
                log.push(kind);
                log.iter().filter(|it| **it == kind).count() - 1
            };
            let says = &says[turn.min(says.len() - 1)];
            if let Some(reply) = reply(&packet[..length.min(end + 5)], kind, says) {
                socket.send_to(&reply, peer).await.unwrap();
            }
        }
    });
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = server.port();
    }
    let one = NameServerConfig::new(server.ip(), true, connections.to_vec());
    let config = ResolverConfig::from_parts(None, vec![], vec![one]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    set(builder.options_mut(), 8);
    builder.options_mut().timeout = Duration::from_millis(300);
    let inner = Some(builder.build().unwrap());
    (Resolver { inner }, asked)
}

fn reply(question: &[u8], kind: u16, says: &Says) -> Option<Vec<u8>> {
    let mut reply = question.to_vec();
    reply[2..4].copy_from_slice(&[0x84, 0]);
    reply[6..12].fill(0);
    match says {
        Says::Addresses(all) => {
            for address in *all {
                let (own, bytes) = match address.parse().unwrap() {
                    IpAddr::V4(v4) => (A, v4.octets().to_vec()),
                    IpAddr::V6(v6) => (AAAA, v6.octets().to_vec()),
                };
                if own == kind {
                    reply[7] += 1;
                    reply.extend([0xc0, 12, 0]);
                    reply.push(u8::try_from(kind).unwrap());
                    reply.extend([0, 1, 0, 0, 0, 0, 0]);
                    reply.push(u8::try_from(bytes.len()).unwrap());
                    reply.extend(bytes);
                }
            }
        }
        Says::Code(code) => reply[3] = *code,
        Says::Truncated => reply[2] |= 2,
        Says::Nothing => return None,
        Says::Nonsense => reply.truncate(11),
    }
    Some(reply)
}

#[tokio::test]
async fn a_look_up_ends_at_the_deadline_of_its_caller() {
    let host = Host::parse("api.example.com").unwrap();
    let (resolver, asked) = resolver(vec![Says::Nothing]).await;
    let soon = Instant::now() + Duration::from_millis(100);
    let error = resolver.addresses(&host, 443, soon).await.unwrap_err();
    assert!(matches!(error, UpstreamError::ResolveTimeout), "{error:?}");
    assert_eq!(code(&error), Code::UpstreamDns);
    assert!(!asked.lock().unwrap().is_empty(), "control: it asked");
    let error = looked_up(&resolver).await.unwrap_err();
    assert!(
        matches!(error, UpstreamError::Resolve(_)),
        "control: {error:?}"
    );
}

async fn looked_up(resolver: &Resolver) -> Result<Vec<SocketAddr>, UpstreamError> {
    let host = Host::parse("api.example.com").unwrap();
    let asking = resolver.addresses(&host, 443, Instant::now() + Duration::from_secs(60));
    let patience = Duration::from_secs(20);
    tokio::time::timeout(patience, asking)
        .await
        .expect("an end")
}

/// What the agent reads.
fn code(error: &UpstreamError) -> Code {
    let text = "version = 1\n[[service]]\nkind = \"http\"\nhost = \"api.example.com\"\nallow = [\"GET /**\"]\n";
    let authority = Authority::parse("api.example.com:443").unwrap();
    let policy = Policy::parse(text, "p.toml").unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
        panic!("it is listed")
    };
    error.refusal(&route).code
}

/// Attack: SSR-02
#[test]
fn one_private_answer_spoils_the_lookup() {
    let public: IpAddr = "140.82.121.4".parse().unwrap();
    let private: IpAddr = "10.0.0.5".parse().unwrap();
    assert_eq!(
        judged(vec![public], 443).unwrap(),
        ["140.82.121.4:443".parse().unwrap()]
    );
    assert!(matches!(
        judged(vec![public, private], 443),
        Err(UpstreamError::NotPublic(address)) if address == private
    ));
    assert!(matches!(judged(vec![], 443), Err(UpstreamError::NoAddress)));
}

/// Attack: SSR-01, SSR-02, SSR-05, SSR-06, SSR-07, SSR-09, SSR-15
#[tokio::test]
async fn a_name_leads_to_public_addresses_or_nowhere() {
    let cases: &[(&str, &'static [&'static str])] = &[
        ("SSR-01 loopback", &["127.0.0.1"]),
        ("SSR-01 class A", &["10.0.0.5"]),
        ("SSR-01 class B", &["172.20.0.1"]),
        ("SSR-01 class C", &["192.168.1.1"]),
        ("SSR-02", &["140.82.121.4", "10.0.0.5"]),
        ("SSR-02 reversed", &["10.0.0.5", "140.82.121.4"]),
        ("SSR-02 the other family", &["140.82.121.4", "fc00::1"]),
        (
            "SSR-02 the other family, v6",
            &["2606:50c0:8000::153", "10.0.0.5"],
        ),
        ("SSR-05", &["169.254.169.254"]),
        ("SSR-05 v6", &["fd00:ec2::254"]),
        ("SSR-05 another cloud", &["100.100.100.200"]),
        ("SSR-06", &["0.0.0.0"]),
        ("SSR-06 v6", &["::"]),
        ("SSR-07 shared", &["100.64.0.1"]),
        ("SSR-07 benchmark", &["198.18.0.1"]),
        ("SSR-07 protocols", &["192.0.0.8"]),
        ("SSR-09 the gate's own", &["127.0.0.1", "::1"]),
        ("SSR-15 unique local", &["fc00::1"]),
        ("SSR-15 link", &["fe80::1"]),
        ("SSR-15 site", &["fec0::1"]),
        ("SSR-15 loopback", &["::1"]),
        ("SSR-15 mapped", &["::ffff:10.0.0.5"]),
        ("SSR-15 translated", &["64:ff9b::a00:5"]),
    ];
    for &(id, addresses) in cases {
        let (resolver, _) = resolver(vec![Says::Addresses(addresses)]).await;
        let refused = looked_up(&resolver).await.expect_err(id);
        assert_eq!(code(&refused), Code::UpstreamPrivate, "{id}: {refused}");
    }
    let both = &["2606:50c0:8000::153", "140.82.121.4"];
    let (resolver, _) = resolver(vec![Says::Addresses(both)]).await;
    let found = looked_up(&resolver).await.expect("control");
    let shown: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
    assert_eq!(shown, ["140.82.121.4:443", "[2606:50c0:8000::153]:443"]);
}

/// Attack: SSR-03, SSR-17
#[tokio::test]
async fn what_was_judged_is_what_is_dialled_and_nothing_is_asked_twice() {
    let first = Says::Addresses(&["140.82.121.4"]);
    let next = Says::Addresses(&["10.0.0.5"]);
    let (resolver, asked) = resolver(vec![first, next]).await;
    let found = looked_up(&resolver).await.unwrap();
    assert_eq!(found, ["140.82.121.4:443".parse().unwrap()]);
    let mut kinds = asked.lock().unwrap().clone();
    kinds.sort_unstable();
    // SSR-17: nor is a record asked for that could lead to another host or port.
    assert_eq!(kinds, [A, AAAA], "SSR-03: one look-up");
    let again = looked_up(&resolver).await.expect_err("control");
    assert!(
        matches!(again, UpstreamError::NotPublic(_)),
        "the next look-up is judged by its own answer: {again}"
    );
}

/// Attack: LIF-15
#[tokio::test]
async fn a_resolver_that_is_down_or_lies_is_no_policy_decision() {
    for (id, says) in [
        ("LIF-15 silence", Says::Nothing),
        ("LIF-15 SERVFAIL", Says::Code(FAILED)),
        ("LIF-15 NXDOMAIN", Says::Code(NOT_THERE)),
        ("LIF-15 no data", Says::Addresses(&[])),
        ("LIF-15 truncated", Says::Truncated),
        ("LIF-15 nonsense", Says::Nonsense),
    ] {
        let (resolver, _) = resolver(vec![says]).await;
        let failed = looked_up(&resolver).await.expect_err(id);
        assert_eq!(code(&failed), Code::UpstreamDns, "{id}: {failed}");
        assert_eq!(code(&failed).status(), 502, "{id}");
    }
    let none = Resolver { inner: None };
    let failed = looked_up(&none).await.expect_err("no configuration");
    assert_eq!(code(&failed), Code::UpstreamDns);
    let (resolver, _) = resolver(vec![Says::Addresses(&["140.82.121.4"])]).await;
    assert!(looked_up(&resolver).await.is_ok(), "control");
}
