//! Agents in a shared namespace whose programs know nothing of proxies: their own connections are
//! led to the gate, which serves them by the name they say, and their look-ups are answered from
//! the policy alone.
//!
//! The rules that lead them are written here by hand, so that what is tested is the gate; the
//! boundary's own are tested with the boundary, and both together by an installation.

mod installed;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::Value;
use tests::command::{Finished, Program};
use tests::gate::Boundary;
use tests::host;
use tests::wait;
use tests::world::{EVIL, EVIL_ADDRESS, WEB, WEB_ADDRESS, World};

const PLAIN: &str = "
[[service]]
id = \"plain\"
kind = \"http\"
scheme = \"http\"
host = \"plain.portcullis.test\"
allow = [\"GET /open/**\"]
address = \"93.184.215.20:80\"
";

/// curl for whom nothing but the way there is made: the body, then the status.
const CURL: [&str; 7] = [
    "-sS",
    "--max-time",
    "60",
    "--noproxy",
    "*",
    "-w",
    "\n%{http_code}",
];

/// A world whose agent is led to the gate, and a uid that is led there and known to nobody.
struct Led {
    world: World,
    stranger: u32,
}

impl Led {
    fn new() -> Self {
        let policy = format!("{}{PLAIN}", World::policy());
        let mut world = World::prepared(Some(&policy), Boundary::External);
        let config = fs::read_to_string(world.gate.config()).unwrap();
        let led = "tcp = \"127.0.0.1:3128\"\n\
                   redirected = [\"127.0.0.1:3129\", \"[::1]:3129\"]\n\
                   resolver = [\"127.0.0.1:3153\", \"[::1]:3153\"]\n";
        let config = config.replace("tcp = \"127.0.0.1:3128\"\n", led);
        let config = format!("{config}[limits]\nhandshake_timeout_seconds = 2\n");
        host::file(&world.gate.config(), &config, 0, 0o644);
        let stranger = host::uid();
        for family in ["-4", "-6"] {
            world
                .netns
                .ip(&[family, "route", "add", "default", "dev", "lo"]);
        }
        world.netns.nft(&format!(
            "table inet lead {{
                chain out {{
                    type nat hook output priority -100; policy accept;
                    meta skuid != {{ {agent}, {stranger} }} return
                    meta l4proto {{ tcp, udp }} th dport 53 redirect to :3153
                    meta l4proto != tcp return
                    fib daddr type local tcp dport {{ 3128, 3129 }} return
                    meta l4proto tcp redirect to :3129
                }}
            }}",
            agent = world.agent,
        ));
        world.start();
        Self { world, stranger }
    }

    fn as_agent(&self, program: &str) -> Program {
        self.world
            .unproxied(program)
            .env("SSL_CERT_FILE", self.world.trust())
    }

    /// `curl` as the agent: the body, then the status.
    fn curl(&self, args: &[&str]) -> Finished {
        self.as_agent("curl").args(CURL).args(args).run()
    }

    fn python(&self, uid: u32, script: &str) -> Finished {
        let trust = self.world.trust().display().to_string();
        Program::new("python3")
            .args(["-c", script, WEB, EVIL, &trust])
            .as_uid(uid)
            .in_netns(&self.world.netns)
            .run()
    }

    fn records(&self, key: &str, value: &str) -> Vec<Value> {
        let mut records = self.world.gate.audit();
        records.retain(|record| record[key] == value);
        records
    }
}

fn url(host: &str, path: &str) -> String {
    format!("https://{host}/{path}")
}

#[test]
fn a_client_that_dials_directly_is_served_by_the_name_it_says() {
    let led = Led::new();
    let world = &led.world;
    let served = led.curl(&[&url(WEB, "direct")]).ok();
    assert_eq!(served.stdout, "recorded\n\n200");
    let received = world.web.received();
    assert!(received.contains("GET /direct "), "{received}");
    assert!(received.contains(&world.web_secret.secret), "injected");
    let denied = led.curl(&[&url(WEB, "secret/x")]);
    assert!(
        denied.stdout.contains("denied_by_rule"),
        "{}",
        denied.shown()
    );
    let request = &led.records("path", "/direct")[0];
    assert_eq!(request["entrance"], "redirected");
    assert_eq!(request["peer_uid"], world.agent);
    assert_eq!(request["authority"], format!("{WEB}:443"));

    // An address says nothing: neither somebody else's, nor one that nobody has, nor IPv6.
    for address in [
        EVIL_ADDRESS.to_string().as_str(),
        "203.0.113.9",
        "[2001:db8::5]",
    ] {
        let resolve = format!("{WEB}:443:{address}");
        let path = format!("at-{}", address.len());
        let served = led.curl(&["--resolve", &resolve, &url(WEB, &path)]).ok();
        assert_eq!(served.stdout, "recorded\n\n200", "{address}");
        let resolve = format!("{EVIL}:443:{address}");
        let refused = led.curl(&["-k", "--resolve", &resolve, &url(EVIL, &path)]);
        assert!(
            refused.stdout.contains("destination_not_listed"),
            "{}",
            refused.shown()
        );
    }
    let mismatch = led.curl(&["-H", &format!("Host: {EVIL}"), &url(WEB, "other")]);
    assert!(
        mismatch.stdout.contains("authority_mismatch"),
        "{}",
        mismatch.shown()
    );
    let port = led.curl(&[
        "--resolve",
        &format!("{WEB}:9443:203.0.113.9"),
        &format!("https://{WEB}:9443/x"),
    ]);
    assert!(port.stdout.contains("port_not_listed"), "{}", port.shown());
    assert!(world.evil.connections().is_empty());
    assert!(!world.names.questions().contains(&EVIL.to_owned()));
}

#[test]
fn plain_http_is_served_by_its_host_where_a_rule_says_so() {
    let led = Led::new();
    let bind = || TcpListener::bind((WEB_ADDRESS, 80)).unwrap();
    let listener = led.world.netns.run(bind).join().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _some = client.read(&mut [0; 4096]);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nplain";
            let _gone = client.write_all(answer);
        }
    });
    let served = led.curl(&["http://plain.portcullis.test/open/x"]);
    assert_eq!(served.stdout, "plain\n200", "{}", served.shown());
    let cases: [(&[&str], &str); 4] = [
        (&["http://plain.portcullis.test/shut"], "path_not_allowed"),
        (
            &[
                "-H",
                "Host: evil.portcullis.test",
                "http://plain.portcullis.test/open/x",
            ],
            "destination_not_listed",
        ),
        (
            &[
                "-H",
                "Host: plain.portcullis.test:81",
                "http://plain.portcullis.test/open/x",
            ],
            "authority_mismatch",
        ),
        (
            &["-H", "Host:", "http://plain.portcullis.test/open/x"],
            "name_missing",
        ),
    ];
    for (args, code) in cases {
        let refused = led.curl(args);
        assert!(refused.stdout.contains(code), "{code}: {}", refused.shown());
    }
}

/// What comes of TLS with this server name, then of other beginnings.
const NAMELESS: &str = r#"
import socket, ssl, sys
WEB, EVIL, TRUST = sys.argv[1:4]
def tls(name, family=socket.AF_INET, address="203.0.113.9"):
    context = ssl.create_default_context(cafile=TRUST); context.check_hostname = False
    raw = socket.socket(family, socket.SOCK_STREAM); raw.settimeout(30); raw.connect((address, 443))
    try:
        with context.wrap_socket(raw, server_hostname=name) as stream:
            stream.sendall(("GET /tls HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % WEB).encode())
            return stream.recv(4096).split(b"\r\n")[0].decode()
    except ssl.SSLError as error: return error.reason
    except OSError as error: return type(error).__name__
def raw(data):
    s = socket.create_connection(("203.0.113.9", 443), 30)
    s.sendall(data)
    got = b""
    try:
        while True:
            more = s.recv(4096)
            if not more: break
            got += more
    except OSError: pass
    return got[:12]
print("named", tls(WEB))
print("none", tls(None))
print("v6", tls(WEB, socket.AF_INET6, "2001:db8::9"))
print("v6none", tls(None, socket.AF_INET6, "2001:db8::9"))
print("ssh", raw(b"SSH-2.0-OpenSSH_9.2\r\n")[:4] == b"SSH-")
print("junk", raw(b"\x00\x01\x02\x03"))
print("record", raw(b"\x16\x03\x01\xff\xff" + b"x" * 100)[:1])
print("silent", raw(b""))
"#;

#[test]
fn a_client_that_names_no_host_is_refused_with_an_alert_and_a_record() {
    let led = Led::new();
    let done = led.python(led.world.agent, NAMELESS);
    let says = |line: &str| {
        let found = done.stdout.lines().any(|other| other == line);
        assert!(found, "{line}: {}", done.shown());
    };
    says("named HTTP/1.1 200 OK");
    says("v6 HTTP/1.1 200 OK");
    for line in ["none", "v6none"] {
        let found = done
            .stdout
            .lines()
            .find(|other| other.starts_with(&format!("{line} ")));
        let found = found.unwrap();
        assert!(
            found.contains("MISSING_EXTENSION") || found.contains("ALERT"),
            "{found}"
        );
    }
    says("ssh False");
    assert_eq!(led.records("code", "name_missing").len(), 2);
    assert!(led.records("code", "malformed_request").len() >= 2);
    assert_eq!(
        led.records("code", "client_timeout").len(),
        2,
        "SSH waits, and so does silence"
    );
    assert_eq!(
        led.world.web.connections().len(),
        1,
        "one connection to the host, kept"
    );
}

#[test]
fn who_dials_the_port_itself_and_who_is_not_known_is_refused() {
    let led = Led::new();
    for port in ["127.0.0.1:3129", "[::1]:3129"] {
        let direct = led.curl(&["-H", &format!("Host: {WEB}"), &format!("http://{port}/x")]);
        assert!(
            direct.stdout.contains("identity_unknown"),
            "{}",
            direct.shown()
        );
        let told = format!("http://{port}");
        let proxied = led.curl(&[
            "--noproxy",
            "",
            "-x",
            &told,
            "http://plain.portcullis.test/open/x",
        ]);
        assert!(
            proxied.stdout.contains("identity_unknown"),
            "{}",
            proxied.shown()
        );
    }
    let served = led.curl(&[&url(WEB, "control")]);
    assert_eq!(
        served.stdout,
        "recorded\n\n200",
        "control: {}",
        served.shown()
    );
    let stranger = Program::new("curl")
        .args(["-sSk", "--max-time", "60", "-H", &format!("Host: {WEB}")])
        .args([
            "--resolve",
            &format!("{WEB}:80:203.0.113.9"),
            &format!("http://{WEB}/x"),
        ])
        .as_uid(led.stranger)
        .in_netns(&led.world.netns)
        .run();
    assert!(
        stranger.stdout.contains("identity_unknown"),
        "{}",
        stranger.shown()
    );
    let unknown = led.records("code", "identity_unknown");
    assert!(
        unknown.iter().any(|it| it["peer_uid"] == led.stranger),
        "{unknown:?}"
    );
    assert!(
        unknown.iter().all(|it| it["entrance"] == "redirected"),
        "{unknown:?}"
    );
}

const LOOK_UPS: &str = r#"
import socket, struct, sys
WEB, EVIL = sys.argv[1:3]
def query(name, kind=1):
    labels = b"".join(bytes([len(l)]) + l for l in name.encode().split(b".")) + b"\0"
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)
def udp(packet, to="127.0.0.1", connected=False):
    s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(10)
    try:
        if connected: s.connect((to, 53)); s.send(packet)
        else: s.sendto(packet, (to, 53))
        return s.recv(4096)
    except OSError: return b""
def tcp(packet, to="127.0.0.1"):
    s = socket.create_connection((to, 53), 10)
    s.sendall(struct.pack(">H", len(packet)) + packet)
    length = struct.unpack(">H", s.recv(2, socket.MSG_WAITALL))[0]
    return s.recv(length, socket.MSG_WAITALL)
def code(answer): return answer[3] & 15 if answer else None
def count(answer): return struct.unpack(">H", answer[6:8])[0] if answer else None
def address(answer): return socket.inet_ntoa(answer[-4:]) if answer else None
first = udp(query(WEB))
print("web", code(first), count(first), address(first))
print("connected", code(udp(query(WEB), connected=True)), code(udp(query(WEB), "192.0.2.53", True)))
print("elsewhere", code(udp(query(WEB), "192.0.2.53")), code(udp(query(WEB), "2001:db8::53")))
print("v6", code(udp(query(WEB), "::1")), code(udp(query(WEB), "::1", True)))
print("other", address(udp(query("plain.portcullis.test"))) not in (address(first), None))
print("evil", code(udp(query(EVIL))), code(udp(query(EVIL, 28))))
for kind in (28, 65, 64, 16): print("kind", kind, code(udp(query(WEB, kind))), count(udp(query(WEB, kind))))
print("tcp", code(tcp(query(WEB))), code(tcp(query(EVIL))), code(tcp(query(WEB), "192.0.2.53")))
print("odd", code(udp(query(WEB)[:-3])), udp(b"x") == b"")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for at in range(2000): s.sendto(query("%d-data.evil.example" % at), ("127.0.0.1", 53))
import time
for _ in range(20):
    last = code(udp(query(WEB)))
    if last == 0: break
print("after", last)
"#;

#[test]
fn the_resolver_answers_each_agent_what_its_policy_lists_and_asks_nobody() {
    let led = Led::new();
    let done = led.python(led.world.agent, LOOK_UPS);
    let says = |line: &str| {
        let found = done.stdout.lines().any(|other| other == line);
        assert!(found, "{line}: {}", done.shown());
    };
    says("web 0 1 198.18.0.1");
    says("connected 0 0");
    says("elsewhere 0 0");
    says("v6 0 0");
    says("other True");
    says("evil 3 3");
    for kind in [28, 65, 64, 16] {
        says(&format!("kind {kind} 0 0"));
    }
    says("tcp 0 3 0");
    says("odd 1 True");
    says("after 0");
    assert!(led.world.names.questions().is_empty(), "nobody was asked");
    let asked = led.records("method", "NAME");
    assert!(asked.len() < 300, "{}", asked.len());
    let of_evil = asked
        .iter()
        .find(|record| record["authority"] == EVIL)
        .unwrap();
    assert_eq!(of_evil["code"], "destination_not_listed");
    assert_eq!(of_evil["entrance"], "resolver");
    assert_eq!(of_evil["peer_uid"], led.world.agent);

    let stranger = led.python(led.stranger, LOOK_UPS);
    let shown = stranger.shown();
    assert!(stranger.stdout.contains("connected 5 5"), "{shown}");
    assert!(stranger.stdout.contains("tcp 5 5 5"), "{shown}");
    wait::until_true("the stranger is on record", || {
        let unknown = led.records("code", "identity_unknown");
        unknown
            .iter()
            .any(|record| record["peer_uid"] == led.stranger)
    });
}
