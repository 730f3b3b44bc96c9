//! The token entrance: agents on another machine, known by the token of their run. Nothing of them is
//! served before they have shown it, and it is worth nothing anywhere else.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tests::binaries;
use tests::command::{Finished, Program};
use tests::gate::Boundary;
use tests::host;
use tests::wait;
use tests::world::{EVIL, GIT, WEB, World};

/// The entrance, in the gate's namespace.
const AT: &str = "10.20.0.1:3128";

/// A world whose gate has a token entrance, a user who is known there by uid, and one by token.
struct Beyond {
    world: World,
    /// A uid that the gate's configuration does not know.
    outsider: u32,
    /// Of an agent in the configuration.
    known: (String, String),
    script: PathBuf,
}

/// A fresh token and its digest, as the product makes them.
fn token() -> (String, String) {
    let made = Program::new(binaries::path("portcullis-proxy"))
        .args(["token", "--json"])
        .run()
        .ok();
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (text("token"), text("token_sha256"))
}

const PLAIN: &str = "
[[service]]
id = \"plain\"
kind = \"http\"
scheme = \"http\"
host = \"plain.portcullis.test\"
allow = [\"GET /open/**\"]
address = \"93.184.215.20:80\"
";

impl Beyond {
    fn new() -> Self {
        let policy = format!("{}{PLAIN}", World::policy());
        let mut world = World::prepared(Some(&policy), Boundary::External);
        for address in ["10.20.0.1", "fd20::1"] {
            world.netns.add_address(address.parse().unwrap());
        }
        let known = token();
        let config = fs::read_to_string(world.gate.config()).unwrap();
        let tcp = "tcp = \"127.0.0.1:3128\"\n";
        assert!(config.contains(tcp), "{config}");
        let entrances = format!("{tcp}token = [\"{AT}\", \"[fd20::1]:3128\"]\n");
        let narrow = world.path().join("narrow.toml");
        let text = World::policy().replace("{ca}", &world.pki.ca().display().to_string());
        let text = text.replace("\"GET /**\", \"POST /echo\"", "\"GET /narrow/**\"");
        host::file(&narrow, &text, 0, 0o644);
        let identity = format!(
            "[[listen.identity]]\ntoken_sha256 = \"{}\"\nagent = \"sidecar\"\ncompany = \"acme\"\n\
             profile = \"narrow\"\n",
            known.1
        );
        let config = config.replace(tcp, &entrances).replacen(
            "[[listen.identity]]",
            &format!("{identity}[[listen.identity]]"),
            1,
        );
        let config = format!(
            "{config}[profile.narrow]\npolicy = \"{}\"\n[limits]\nhead_timeout_seconds = 2\n",
            narrow.display()
        );
        host::file(&world.gate.config(), &config, 0, 0o644);
        world.start();
        let script = world.path().join("client.py");
        host::file(&script, CLIENT, 0, 0o644);
        Self {
            world,
            outsider: host::uid(),
            known,
            script,
        }
    }

    /// Opens a run with a token of its own, which is returned.
    fn open(&self, run: &str, epoch: u64) -> String {
        let (token, digest) = token();
        self.put(run, epoch, &digest);
        token
    }

    fn put(&self, run: &str, epoch: u64, digest: &str) {
        let answer = self.put_answer(run, epoch, digest);
        assert_eq!(answer.0, 200, "{}", answer.1);
    }

    fn put_answer(&self, run: &str, epoch: u64, digest: &str) -> (u16, String) {
        let body = json!({
            "grant": { "company": "acme", "agent": "coder", "run": run, "profile": "default" },
            "epoch": epoch, "lease_seconds": 600, "token_sha256": digest,
        });
        let path = format!("/v1/runs/{run}");
        let answer = self.world.control().call("PUT", &path, Some(&body));
        (answer.status, answer.body)
    }

    /// `curl` on the token entrance with this proxy URL: the body, then the status of the answer and
    /// of the CONNECT.
    fn curl_as(&self, uid: u32, proxy: &str, args: &[&str]) -> Finished {
        Program::new("curl")
            .args(["-sS", "--max-time", "60", "--cacert"])
            .arg(self.world.trust())
            .args(["-w", "\n%{http_code} %{http_connect}", "-x", proxy])
            .args(args)
            .as_uid(uid)
            .in_netns(&self.world.netns)
            .run()
    }

    fn curl(&self, login: &str, args: &[&str]) -> Finished {
        self.curl_as(self.outsider, &format!("http://{login}{AT}"), args)
    }

    /// The scripted client as somebody whom nobody knows; what it printed.
    fn talk(&self, words: &[&str]) -> String {
        let done = Program::new("python3")
            .arg(&self.script)
            .arg(self.world.trust())
            .args(words)
            .as_uid(self.outsider)
            .in_netns(&self.world.netns)
            .run();
        done.ok().stdout
    }

    fn records(&self, key: &str, value: &str) -> Vec<Value> {
        let mut records = self.world.gate.audit();
        records.retain(|record| record[key] == value);
        records
    }
}

/// Speaks on one connection what it is told, word by word, and prints what it was answered.
const CLIENT: &str = r#"
import base64, socket, ssl, sys
trust, host, port, *steps = sys.argv[1:]
wire = socket.create_connection((host, int(port)), 60)
wire.settimeout(60)
version = "1.1"
def fields(login):
    if login == "-": return ""
    if login.startswith("bearer:"): return f"Proxy-Authorization: Bearer {login[7:]}\r\n"
    if login.startswith("raw:"): return login[4:].replace("|", "\r\n") + "\r\n"
    return "Proxy-Authorization: Basic " + base64.b64encode(login.encode()).decode() + "\r\n"
def answer(wire, head=False):
    seen = b""
    while b"\r\n\r\n" not in seen:
        more = wire.recv(1)
        if not more: return "closed" if not seen else "cut " + repr(seen)
        seen += more
    text = seen.decode()
    low = text.lower()
    length = 0
    for line in low.split("\r\n"):
        if line.startswith("content-length:"): length = int(line.split(":")[1])
    body = b""
    while not head and len(body) < length:
        more = wire.recv(length - len(body))
        if not more: break
        body += more
    return " ".join([text.split()[1],
        "challenge" if "\r\nproxy-authenticate: basic realm=" in low else "-",
        "close" if "\r\nconnection: close" in low else "keep",
        next((l.split(":")[1].strip() for l in low.split("\r\n") if l.startswith("x-portcullis-code")), "-"),
        body.decode().replace("\n", " ").strip()[:400]])
for step in steps:
    what, target, login = step.split(" ", 2)
    try:
        if what == "old":
            wire.sendall(f"CONNECT {target} HTTP/1.0\r\n{fields(login)}\r\n".encode())
            print(answer(wire))
        elif what == "connect":
            wire.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{fields(login)}\r\n".encode())
            print(answer(wire))
        elif what == "split":
            head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{fields(login)}\r\n".encode()
            for at in range(len(head)): wire.sendall(head[at:at + 1])
            print(answer(wire))
        elif what == "tls":
            wire = ssl.create_default_context(cafile=trust).wrap_socket(wire, server_hostname=target)
        elif what == "inside":
            host, path = target.split("/", 1)
            wire.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n{fields(login)}\r\n".encode())
            print(answer(wire))
        elif what in ("GET", "HEAD", "POST"):
            host = target.split("/")[2]
            body = "abc" if what == "POST" else ""
            length = f"Content-Length: {len(body)}\r\n" if body else ""
            wire.sendall(f"{what} {target} HTTP/1.1\r\nHost: {host}\r\n{length}{fields(login)}\r\n{body}".encode())
            print(answer(wire, what == "HEAD"))
        elif what == "raw":
            wire.sendall(login.encode().decode("unicode_escape").encode("latin1"))
            print(answer(wire))
        elif what == "end":
            print("closed" if not wire.recv(1) else "open")
    except OSError as error:
        print("error", type(error).__name__)
"#;

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn who_shows_nothing_is_asked_on_a_connection_that_stays_and_is_served_when_it_shows_its_token() {
    let beyond = Beyond::new();
    let token = beyond.open("run-a", 1);
    let target = format!("{WEB}:443");
    let login = format!("run:{token}");
    for (at, (host, how)) in [
        ("10.20.0.1", "connect"),
        ("fd20::1", "connect"),
        ("10.20.0.1", "split"),
    ]
    .iter()
    .enumerate()
    {
        let said = beyond.talk(&[
            host,
            "3128",
            &format!("{how} {target} -"),
            &format!("{how} {target} -"),
            &format!("HEAD http://{WEB}/head -"),
            &format!("{how} {target} {login}"),
            &format!("tls {WEB} -"),
            &format!("inside {WEB}/asked-{at} {login}"),
        ]);
        let said = lines(&said);
        for asked in &said[..2] {
            assert!(
                asked.starts_with("407 challenge keep token_missing Portcullis: "),
                "{said:?}"
            );
            assert!(asked.contains("http://run:TOKEN@"), "the remedy: {said:?}");
        }
        assert_eq!(said[2], "407 challenge keep token_missing ", "{said:?}");
        assert!(said[3].starts_with("200 - keep -"), "{said:?}");
        assert_eq!(said[4], "200 - keep - recorded", "{said:?}");
    }
    let received = beyond.world.web.received();
    assert!(received.contains("/asked-0 ") && received.contains("/asked-2 "));
    assert!(!received.contains("/head"), "{received}");
    assert!(
        received.contains(&beyond.world.web_secret.secret),
        "injected"
    );
    let served = &beyond.records("path", "/asked-1")[0];
    assert_eq!(served["entrance"], "token");
    assert_eq!(
        (&served["run"], &served["agent"]),
        (&json!("run-a"), &json!("coder"))
    );
    assert_eq!(served.get("peer_uid"), None);
    // Being asked is no refusal when an answer follows, and is one when none does.
    assert!(beyond.records("code", "token_missing").is_empty());
    let said = beyond.talk(&["10.20.0.1", "3128", &format!("connect {target} -")]);
    assert!(said.starts_with("407 "), "{said}");
    wait::until_true("it is on record", || {
        beyond.records("code", "token_missing").len() == 1
    });
    // A connection on which a body follows, or which is for one request, is not kept.
    let said = beyond.talk(&[
        "10.20.0.1",
        "3128",
        &format!("POST http://{WEB}/x -"),
        "end - -",
    ]);
    let said = lines(&said);
    assert!(said[0].starts_with("407 challenge close "), "{said:?}");
    assert_eq!(said[1], "closed");
    let said = beyond.talk(&["10.20.0.1", "3128", &format!("old {target} -"), "end - -"]);
    assert!(said.starts_with("407 challenge close "), "{said}");
    let said = beyond.talk(&[
        "10.20.0.1",
        "3128",
        &format!("old {target} bearer:{token}"),
        &format!("tls {WEB} -"),
        &format!("inside {WEB}/old -"),
    ]);
    assert_eq!(lines(&said)[1], "200 - keep - recorded", "{said}");
    // Whoever says nothing at all does not stay.
    let silent = beyond.talk(&["10.20.0.1", "3128", "end - -"]);
    assert!(
        lines(&silent)[0].starts_with("open") || silent == "closed\n",
        "{silent}"
    );
    wait::until_true("it is on record", || {
        beyond.records("code", "client_timeout").len() == 1
    });
}

#[test]
fn a_wrong_token_is_refused_at_once_and_many_are_held_back_without_shutting_out_the_right_one() {
    let beyond = Beyond::new();
    let token = beyond.open("run-b", 1);
    let (foreign, _) = self::token();
    let url = format!("https://{WEB}/wrong");
    let target = format!("{WEB}:443");
    let twice =
        format!("raw:Proxy-Authorization: Bearer {token}|Proxy-Authorization: Bearer {token}");
    let mut wrong = vec![
        format!("run:{foreign}"),
        format!("bearer:{foreign}"),
        format!("admin:{token}"),
        format!("run:{}", &token[..token.len() - 1]),
        format!("run:{token}x"),
        format!("run:{}", token.to_uppercase()),
        "run:".to_owned(),
        format!("raw:Proxy-Authorization: Digest {token}"),
        "raw:Proxy-Authorization: Basic ****".to_owned(),
        "raw:Proxy-Authorization:".to_owned(),
        twice,
    ];
    for login in &wrong {
        let said = beyond.talk(&[
            "10.20.0.1",
            "3128",
            &format!("connect {target} {login}"),
            "end - -",
        ]);
        let said = lines(&said);
        assert!(
            said[0].starts_with("403 - close token_unknown Portcullis: "),
            "{login}: {said:?}"
        );
        assert_eq!(said[1], "closed", "{login}");
    }
    wrong.truncate(1);
    let last = (0..30)
        .map(|_| {
            beyond
                .curl(&format!("run:{foreign}@"), &["-D", "-", &url])
                .stdout
        })
        .find(|said| said.contains("limit_reached"));
    let last = last.expect("many are answered otherwise");
    assert!(
        last.contains("429") && last.to_lowercase().contains("retry-after"),
        "{last}"
    );
    let right = beyond.curl(&format!("run:{token}@"), &[&url]);
    assert_eq!(right.stdout, "recorded\n\n200 200", "{}", right.shown());
    let received = beyond.world.web.received();
    assert_eq!(received.matches("/wrong").count(), 1, "{received}");
    assert!(!beyond.records("code", "token_unknown").is_empty());
}

#[test]
fn a_token_ends_with_its_run_and_never_leaves_the_gate() {
    let beyond = Beyond::new();
    let (token, digest) = self::token();
    beyond.put("run-c", 1, &digest);
    let login = format!("run:{token}@");
    let url = format!("https://{WEB}/drip/2000");
    let mut stream = Program::new("curl")
        .args(["-sS", "-o", "/dev/null", "--cacert"])
        .arg(beyond.world.trust())
        .args(["-x", &format!("http://{login}{AT}"), &url])
        .as_uid(beyond.outsider)
        .in_netns(&beyond.world.netns)
        .spawn();
    wait::until_true("the stream flows", || {
        beyond.world.web.received().contains("/drip/2000")
    });
    // Nobody else may take the token, and its digest is nothing to show.
    let (status, body) = beyond.put_answer("thief", 1, &digest);
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("token_taken"), "{body}");
    let shown = beyond.curl(&format!("run:{digest}@"), &[&url]);
    assert!(shown.stdout.ends_with("000 403"), "{}", shown.shown());
    let control = beyond.world.control();
    let listed = control.call("GET", "/v1/runs", None).body;
    assert!(listed.contains("\"token\":true"), "{listed}");
    assert!(
        !listed.contains(&token) && !listed.contains(&digest),
        "{listed}"
    );

    control.call("DELETE", "/v1/runs/run-c?epoch=1", None).ok();
    let status = wait::until("the stream is cut", || stream.try_wait().unwrap());
    assert!(!status.success());
    let late = beyond.curl(&login, &[&format!("https://{WEB}/late")]);
    assert!(late.stdout.ends_with("000 403"), "{}", late.shown());
    let (status, body) = beyond.put_answer("run-c", 1, &digest);
    assert_eq!(status, 409, "an ended epoch: {body}");
    beyond.put("run-c", 2, &digest);
    let again = beyond.curl(&login, &[&format!("https://{WEB}/again")]);
    assert_eq!(again.stdout, "recorded\n\n200 200", "{}", again.shown());
    let nobody = json!({
        "grant": { "company": "acme", "agent": "coder", "run": "nobody", "profile": "default" },
        "epoch": 1, "lease_seconds": 600,
    });
    let nobody = control.call("PUT", "/v1/runs/nobody", Some(&nobody));
    assert_eq!(nobody.status, 400, "{}", nobody.body);

    // In no request, record or line of the log: neither the token nor what clients make of it.
    let pair = Program::new("base64")
        .args(["-w0"])
        .input(&format!("run:{token}"))
        .run()
        .ok()
        .stdout;
    let kept = [
        beyond.world.web.received(),
        fs::read_to_string(beyond.world.gate.audit_file()).unwrap(),
        beyond.world.gate.log(),
    ];
    for text in kept {
        assert!(!text.is_empty());
        for form in [&token, &pair, &digest] {
            assert!(!text.contains(form.as_str()), "{form} is in {text}");
        }
    }
    assert!(!beyond.world.web.received().contains("/late"));
}

#[test]
fn a_token_makes_nobody_else_of_whom_the_kernel_vouches_for() {
    let beyond = Beyond::new();
    let wide = beyond.open("run-d", 1);
    let narrow = &beyond.known.0;
    let at = |login: &str| format!("http://{login}127.0.0.1:3128");
    let url = |path: &str| format!("https://{WEB}/{path}");

    // Control: each token is judged by the policy of its own profile.
    let served = beyond.curl(&format!("run:{wide}@"), &[&url("wide")]);
    assert_eq!(served.stdout, "recorded\n\n200 200", "{}", served.shown());
    let served = beyond.curl(&format!("run:{narrow}@"), &[&url("narrow/x")]);
    assert_eq!(served.stdout, "recorded\n\n200 200", "{}", served.shown());
    let refused = beyond.curl(&format!("run:{narrow}@"), &[&url("wide-for-narrow")]);
    assert!(
        refused.stdout.contains("path_not_allowed"),
        "{}",
        refused.shown()
    );
    let unlisted = beyond.curl(&format!("run:{wide}@"), &[&format!("https://{EVIL}/x")]);
    assert!(
        unlisted.stdout.contains("destination_not_listed"),
        "{}",
        unlisted.shown()
    );

    // On the entrance for users it is taken off and means nothing: a known user stays who it is, a
    // stranger stays one.
    let agent = beyond.world.agent;
    let served = beyond.curl_as(agent, &at(&format!("run:{narrow}@")), &[&url("as-user")]);
    assert_eq!(served.stdout, "recorded\n\n200 200", "{}", served.shown());
    let record = &beyond.records("path", "/as-user")[0];
    assert_eq!(
        (&record["entrance"], &record["peer_uid"]),
        (&json!("uid"), &json!(agent))
    );
    let stranger = beyond.curl_as(
        beyond.outsider,
        &at(&format!("run:{wide}@")),
        &[&url("stranger")],
    );
    assert!(stranger.stdout.ends_with("000 403"), "{}", stranger.shown());
    // And a known user is not let in by a token.
    let other = beyond.curl_as(agent, &format!("http://run:{wide}@{AT}"), &[&url("climb")]);
    assert!(other.stdout.ends_with("000 403"), "{}", other.shown());
    let unknown = beyond.records("code", "identity_unknown");
    assert_eq!(unknown.len(), 2, "{unknown:?}");
    assert_eq!(unknown[1]["entrance"], "token");
    let received = beyond.world.web.received();
    for path in ["/stranger", "/climb", "/wide-for-narrow"] {
        assert!(!received.contains(path), "{received}");
    }
    assert!(!beyond.world.names.questions().contains(&EVIL.to_owned()));
}

#[test]
fn each_request_of_a_connection_shows_the_same_token() {
    let beyond = Beyond::new();
    let one = beyond.open("run-e", 1);
    let other = beyond.open("run-f", 1);
    let bind = || std::net::TcpListener::bind(("93.184.215.20", 80)).unwrap();
    let listener = beyond.world.netns.run(bind).join().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain";
                while client.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                    let _gone = client.write_all(answer);
                }
            });
        }
    });
    let plain = "http://plain.portcullis.test/open";
    let said = beyond.talk(&[
        "10.20.0.1",
        "3128",
        &format!("GET {plain}/1 run:{one}"),
        &format!("GET {plain}/2 bearer:{one}"),
        &format!("GET {plain}/3 -"),
        &format!("GET {plain}/4 run:{one}"),
        &format!("GET {plain}/5 run:{other}"),
        "end - -",
    ]);
    let said = lines(&said);
    assert_eq!(said[0], "200 - keep - plain", "{said:?}");
    assert_eq!(said[1], "200 - keep - plain", "{said:?}");
    assert!(
        said[2].starts_with("407 challenge keep token_missing"),
        "{said:?}"
    );
    assert_eq!(said[3], "200 - keep - plain", "{said:?}");
    assert!(said[4].starts_with("403 - close token_unknown"), "{said:?}");
    assert_eq!(said[5], "closed");
    let of = |path: &str| beyond.records("path", path).len();
    assert_eq!((of("/open/1"), of("/open/5")), (2, 0));

    // What cannot be read is refused on this side of the door as on the other.
    for (head, code) in [
        (
            format!("GET {plain}/x HTTP/1.1\\nHost: plain.portcullis.test\\n\\n"),
            "malformed_request",
        ),
        (
            "\\x16\\x03\\x01\\x00\\x05hello\\r\\n\\r\\n".to_owned(),
            "malformed_request",
        ),
        (
            format!(
                "GET {plain}/x HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
            ),
            "malformed_request",
        ),
        (
            format!(
                "GET {plain}/x HTTP/1.1\\r\\nX: {}\\r\\n\\r\\n",
                "a".repeat(100_000)
            ),
            "head_too_large",
        ),
    ] {
        let said = beyond.talk(&["10.20.0.1", "3128", &format!("raw - {head}")]);
        assert!(said.contains(code), "{}: {said}", &head[..40]);
    }
    // A tunnel is as everywhere: it leads where it says, and nowhere else.
    let target = format!("{WEB}:443");
    let said = beyond.talk(&[
        "10.20.0.1",
        "3128",
        &format!("connect {target} run:{one}"),
        &format!("tls {WEB} -"),
        &format!("inside {GIT}/x -"),
    ]);
    assert!(lines(&said)[1].contains("authority_mismatch"), "{said}");
}
