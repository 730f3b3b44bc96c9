//! Programs that know nothing of proxies, inside a run container: listed names have addresses of
//! their own, what is dialled there reaches the gate under its name, and no other name exists.
//!
//! A real gate and its upstreams in one namespace, real containers whose only way out is the run's
//! socket, and clients without a proxy variable. Beside each served client stands the same client
//! refused.

mod clients;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tests::command::{Finished, Program};
use tests::upstream::WebHost;
use tests::world::{EVIL, WEB, WEB_ADDRESS, World};

use super::{Bench, SLICE};

/// What is listed beside the usual: another port, plain HTTP, and a whole suffix.
const MORE: &str = "
[[service]]
id = \"panel\"
kind = \"http\"
host = \"web.portcullis.test\"
port = 8443
allow = [\"GET /panel/**\"]
ca_file = \"{ca}\"

[[service]]
id = \"plain\"
kind = \"http\"
scheme = \"http\"
host = \"plain.portcullis.test\"
allow = [\"GET /open/**\"]
address = \"93.184.215.20:80\"

[[service]]
id = \"wide\"
kind = \"http\"
host = \"*.wide.portcullis.test\"
allow = [\"GET /**\"]
ca_file = \"{ca}\"
";

/// Takes away whatever would tell a client about the gate, and keeps what it trusts.
const UNTOLD: &str = "unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY no_proxy NO_PROXY \
     NODE_USE_ENV_PROXY JAVA_TOOL_OPTIONS; ";

struct Place {
    bench: Bench,
    world: World,
    socket: PathBuf,
    trust: PathBuf,
    _panel: WebHost,
    plain: Arc<Mutex<Vec<String>>>,
}

impl Place {
    fn new() -> Self {
        Self::with("")
    }

    /// With more services.
    fn with(more: &str) -> Self {
        let policy = format!("{}{MORE}{more}", World::policy());
        let world = World::with_policy(&policy);
        let at = SocketAddr::new(WEB_ADDRESS.into(), 8443);
        let panel = WebHost::start(&world.netns, &world.path().join("panel"), &world.pki, at);
        let plain = plain_host(&world);
        let bench = Bench::new();
        let body = json!({
            "grant": { "company": "acme", "agent": "coder", "ticket": null, "run": "direct", "profile": "default" },
            "epoch": 1,
            "peer_uids": { "first": bench.ids, "count": SLICE },
            "lease_seconds": 600,
        });
        let opened = world
            .control()
            .call("PUT", "/v1/runs/direct", Some(&body))
            .ok();
        let socket = PathBuf::from(opened["socket_dir"].as_str().unwrap());
        let trust = bench.path("trust");
        tests::host::directory(&trust, 0, 0o755);
        let ca = fs::read_to_string(world.gate.ca()).unwrap();
        for name in ["ca.pem", "bundle.pem"] {
            tests::host::file(&trust.join(name), &ca, 0, 0o644);
        }
        Self {
            bench,
            world,
            socket,
            trust,
            _panel: panel,
            plain,
        }
    }

    /// Runs `script` in the run's container, by clients that are told nothing.
    fn run(&self, script: &str) -> Finished {
        let (gate, trust) = (self.socket.display(), self.trust.display());
        let options = [
            "--gate",
            &gate.to_string(),
            "--trust",
            &trust.to_string(),
            "--memory",
            "1500",
            "--pids",
            "400",
        ];
        self.bench.run(&options, &format!("{UNTOLD}{script}"))
    }

    fn look_ups(&self) -> Vec<Value> {
        let mut records = self.world.gate.audit();
        records.retain(|record| record["method"] == "NAME");
        records
    }
}

/// A key store for Java at `store`, with the gate's certificate alone.
fn java_store(ca: PathBuf, store: &Path) {
    Program::new("keytool")
        .args(["-importcert", "-noprompt", "-alias", "gate"])
        .args(["-storetype", "PKCS12", "-storepass", "changeit", "-file"])
        .arg(ca)
        .arg("-keystore")
        .arg(store)
        .run()
        .ok();
    tests::host::own(store, 0, 0o644);
}

/// A web server without TLS on port 80 of the listed address, and the heads it was sent.
fn plain_host(world: &World) -> Arc<Mutex<Vec<String>>> {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let bind = || TcpListener::bind((WEB_ADDRESS, 80)).unwrap();
    let listener = world.netns.run(bind).join().unwrap();
    let kept = Arc::clone(&heads);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            kept.lock()
                .unwrap()
                .push(String::from_utf8_lossy(&head).into_owned());
            let answer =
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nplain\n";
            let _gone = client.write_all(answer);
        }
    });
    heads
}

const JAVA: &str = r#"
import java.net.*;
public class Direct {
    public static void main(String[] urls) throws Exception {
        for (String url : urls) {
            try {
                var connection = (HttpURLConnection) new URL(url).openConnection();
                var stream = connection.getResponseCode() < 400 ? connection.getInputStream() : connection.getErrorStream();
                System.out.println(connection.getResponseCode() + " " + new String(stream.readAllBytes()).strip());
            } catch (Exception error) {
                System.out.println(error.getClass().getSimpleName());
            }
        }
    }
}
"#;

const PYTHON: &str = r#"
import http.client, ssl, sys
for host, path in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        connection = http.client.HTTPSConnection(host, context=ssl.create_default_context(), timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        print(answer.status, answer.read().decode().strip())
    except OSError as error:
        print(type(error).__name__)
"#;

const NODE: &str = r#"
(async () => {
  for (const url of process.argv.slice(1)) {
    try {
      const answer = await fetch(url);
      console.log(answer.status, (await answer.text()).trim());
    } catch (error) { console.log(error.cause ? error.cause.code : error.message); }
  }
})();
"#;

#[test]
fn clients_that_ignore_proxy_variables_are_served_by_name_and_refused_in_words() {
    let place = Place::new();
    let work = place.trust.join("clients");
    tests::host::directory(&work, 0, 0o755);
    for (name, text) in [
        ("Direct.java", JAVA),
        ("direct.py", PYTHON),
        ("direct.js", NODE),
    ] {
        tests::host::file(&work.join(name), text, 0, 0o644);
    }
    java_store(place.world.gate.ca(), &work.join("store.p12"));
    let clients = "/opt/portcullis/trust/clients";
    let three = |path: &str| {
        format!("https://{WEB}/{path} https://{WEB}/secret/{path} https://{EVIL}/{path}")
    };
    let cases = [
        (
            "curl",
            format!(
                "curl --version | head -1; for u in {}; do curl -sS --noproxy '*' -w ' %{{http_code}}\\n' $u 2>&1; done",
                three("curl")
            ),
            "Could not resolve host",
        ),
        (
            "python",
            format!(
                "python3 --version; python3 {clients}/direct.py {WEB} /python {WEB} /secret/python {EVIL} /python"
            ),
            "gaierror",
        ),
        (
            "node",
            format!(
                "node --version; node -e \"$(cat {clients}/direct.js)\" {}",
                three("node")
            ),
            "ENOTFOUND",
        ),
        (
            "java",
            format!(
                "java -version 2>&1 | head -1; java -Xmx256m -XX:+UseSerialGC -Djavax.net.ssl.trustStore={clients}/store.p12 \
                 -Djavax.net.ssl.trustStorePassword=changeit {clients}/Direct.java {}",
                three("java")
            ),
            "UnknownHostException",
        ),
    ];
    for (client, script, unresolved) in cases {
        let done = place.run(&script);
        let shown = done.shown();
        assert!(done.stdout.contains("recorded"), "{client}: {shown}");
        assert!(done.stdout.contains("denied_by_rule"), "{client}: {shown}");
        assert!(done.stdout.contains(unresolved), "{client}: {shown}");
        assert!(
            !done.stdout.contains("destination_not_listed"),
            "{client}: {shown}"
        );
        let version = done.stdout.lines().next().unwrap_or_default().to_owned();
        println!("{client}: {version}");
        let received = place.world.web.received();
        assert!(received.contains(&format!("GET /{client} ")), "{received}");
        assert!(
            received.contains(&place.world.web_secret.secret),
            "injected"
        );
        assert!(!received.contains("/secret/"), "{received}");
    }
    assert!(place.world.evil.connections().is_empty());
    let questions = place.world.names.questions();
    assert!(
        !questions.contains(&EVIL.to_owned()),
        "nothing was resolved for it"
    );
    let look_ups = place.look_ups();
    let of = |host: &str, verdict: &str| {
        let same = |record: &&Value| record["authority"] == host && record["verdict"] == verdict;
        look_ups.iter().filter(same).count()
    };
    assert_eq!(of(WEB, "allow"), 1, "on record once: {look_ups:?}");
    assert!(of(EVIL, "refuse") >= 4, "{look_ups:?}");
    let refused = look_ups
        .iter()
        .find(|record| record["verdict"] == "refuse")
        .unwrap();
    assert_eq!(refused["code"], "destination_not_listed");
    assert_eq!(refused["run"], "direct");
}

#[test]
fn other_ports_and_plain_http_are_carried_where_a_service_names_them() {
    let place = Place::new();
    let fetch = |url: &str| {
        let script = format!("curl -sS --noproxy '*' -w ' %{{http_code}}\\n' {url} 2>&1");
        place.run(&script).stdout
    };
    let plain = fetch("http://plain.portcullis.test/open/x");
    assert_eq!(plain, "plain\n 200\n");
    let head = place.plain.lock().unwrap().join("");
    assert!(head.starts_with("GET /open/x HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("host: plain.portcullis.test\r\n"), "{head}");
    let closed = fetch("http://plain.portcullis.test/shut");
    assert!(closed.contains("path_not_allowed"), "{closed}");
    // A name of which only TLS is listed answers plain HTTP with a refusal, never with a hang.
    let plain = fetch(&format!("http://{WEB}/x"));
    assert!(plain.contains("port_not_listed"), "{plain}");

    let panel = fetch(&format!("https://{WEB}:8443/panel/x"));
    assert!(panel.contains("recorded"), "{panel}");
    let unlisted = fetch(&format!("https://{WEB}:9443/panel/x"));
    assert!(
        unlisted.contains("Failed to connect") || unlisted.contains("Couldn't connect"),
        "{unlisted}"
    );
    let upload = place.run(&format!(
        "head -c 3000000 /dev/zero | curl -sS --noproxy '*' -H 'Expect:' --data-binary @- https://{WEB}/echo | wc -c"
    ));
    assert_eq!(upload.stdout.trim(), "3000000", "{}", upload.shown());
}

const HOSTILE: &str = r#"
import os, socket, struct, sys
def query(name, kind=1, ident=7, raw=None):
    labels = raw if raw is not None else b"".join(bytes([len(l)]) + l for l in name.encode().split(b".")) + b"\0"
    return struct.pack(">HHHHHH", ident, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)
def udp(packet, address=("127.0.0.1", 53)):
    s = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.sendto(packet, address)
    try: return s.recv(4096)
    except socket.timeout: return b""
def tcp(*packets):
    s = socket.create_connection(("127.0.0.1", 53), 10)
    answers = []
    for packet in packets:
        s.sendall(struct.pack(">H", len(packet)) + packet)
        length = struct.unpack(">H", s.recv(2, socket.MSG_WAITALL))[0]
        answers.append(s.recv(length, socket.MSG_WAITALL))
    return answers
def code(answer): return answer[3] & 15 if answer else None
def count(answer): return struct.unpack(">H", answer[6:8])[0]
def address(answer): return socket.inet_ntoa(answer[-4:])
WEB, EVIL = sys.argv[1], sys.argv[2]
good = udp(query(WEB))
print("a", code(good), count(good), address(good))
print("same", address(udp(query(WEB))) == address(good), address(udp(query("plain.portcullis.test"))) != address(good))
print("v6", code(udp(query(WEB), ("::1", 53))))
for kind in (28, 65, 64, 16, 15, 255):
    answer = udp(query(WEB, kind)); print("kind", kind, code(answer), count(answer))
mixed = query("wEb.PortCullis.TEST")
answer = udp(mixed); print("0x20", code(answer), answer[12:12 + len(mixed) - 12] == mixed[12:])
one, two = tcp(query(WEB), query(EVIL)); print("tcp", code(one), address(one) == address(good), code(two))
print("long", code(udp(query(".".join(["a" * 63] * 3 + ["b" * 61])))))
print("odd", code(udp(query("", raw=b"\x05a b\r\n\0"))))
print("label", code(udp(query("", raw=b"\x40abc\0"))))
print("loop", code(udp(query("", raw=b"\xc0\x0c"))))
print("update", code(udp(b"\0\1\x28\0\0\1\0\0\0\0\0\0" + query(WEB)[12:])))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for at in range(3000):
    s.sendto(os.urandom(at % 600), ("127.0.0.1", 53))
    s.sendto(query("%04x" % at + ".tunnel.example", ident=at), ("127.0.0.1", 53))
held = [socket.create_connection(("127.0.0.1", 53), 10) for _ in range(40)]
alive = None
for _ in range(30):
    if code(udp(query(WEB))) == 0: alive = True; break
print("alive", alive)
print("wide", [code(udp(query("x%d-deadbeef.wide.portcullis.test" % at))) for at in range(260)][-1])
print("known", code(udp(query(WEB))))
"#;

#[test]
fn the_resolver_of_a_run_answers_what_is_listed_and_survives_the_rest() {
    let place = Place::new();
    let script = place.trust.join("hostile.py");
    tests::host::file(&script, HOSTILE, 0, 0o644);
    let done = place.run(&format!(
        "python3 /opt/portcullis/trust/hostile.py {WEB} {EVIL}; cat /etc/resolv.conf"
    ));
    let says = |line: &str| {
        let found = done.stdout.lines().any(|other| other == line);
        assert!(found, "{line}: {}", done.shown());
    };
    says("a 0 1 127.64.0.1");
    says("same True True");
    says("v6 0");
    for kind in [28, 65, 64, 16, 15, 255] {
        says(&format!("kind {kind} 0 0"));
    }
    says("0x20 0 True");
    says("tcp 0 True 3");
    says("long 3");
    says("odd 3");
    says("label 1");
    says("loop 1");
    says("update 4");
    says("alive True");
    says("wide 2");
    says("known 0");
    // Names that carry data are refused, and neither they nor the listed ones flood the log.
    let look_ups = place.look_ups();
    assert!(look_ups.len() < 1000, "{}", look_ups.len());
    let codes = |code: &str| look_ups.iter().filter(|it| it["code"] == code).count();
    assert!(codes("destination_not_listed") > 0 && codes("limit_reached") > 0);
    let questions = place.world.names.questions();
    assert!(
        questions.is_empty(),
        "nothing is resolved for a look-up: {questions:?}"
    );
}

#[test]
fn an_agent_that_asks_the_gate_itself_learns_no_more_than_a_look_up_says() {
    let place = Place::new();
    let own = "curl -sS --noproxy '' -x http://127.0.0.1:3128 -w ' %{http_code}\\n' \
               'http://gate.portcullis.internal";
    let ask = |rest: &str| place.run(&format!("{own}{rest}'")).stdout;
    assert_eq!(ask(&format!("/v1/name?host={WEB}")), "443\n8443\n 200\n");
    let unlisted = ask(&format!("/v1/name?host={EVIL}"));
    assert!(unlisted.contains("destination_not_listed"), "{unlisted}");
    for elsewhere in ["/", "/v1/status", "/v1/runs", "/v1/name?host=*&x="] {
        let answer = ask(elsewhere);
        assert!(!answer.contains(" 200"), "{elsewhere}: {answer}");
    }
    // Its own name does not resolve, and what is dialled by address means nothing.
    let others = place.run(
        "getent hosts gate.portcullis.internal; echo $?; \
         curl -sS --noproxy '*' -m 20 https://127.0.0.1/ 2>&1; curl -sS --noproxy '*' -m 20 http://127.64.9.9/ 2>&1; \
         exec 3<>/dev/tcp/127.0.0.1/443 && echo open && head -c1 <&3 | wc -c",
    );
    assert!(others.stdout.starts_with("2\n"), "{}", others.shown());
    assert!(!others.stdout.contains("HTTP/"), "{}", others.shown());
    assert!(
        others.stdout.ends_with("open\n0\n"),
        "closed at once: {}",
        others.shown()
    );
}
