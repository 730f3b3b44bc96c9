//! The control socket: who may use it, runs and their leases, reload.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::fixture::{Fixture, POLICY, eventually, inode, stderr, uid_of};

/// No user has this uid.
const FOREIGN: u32 = 65_533;

fn open(epoch: u64, lease: u32) -> Value {
    json!({
        "grant": {"company": "acme", "agent": "coder", "ticket": "T-1", "run": "run-1",
                  "profile": "default"},
        "epoch": epoch, "peer_uids": {"first": 200_000, "count": 1024},
        "lease_seconds": lease, "board_token": "board-canary",
    })
}

#[test]
fn a_uid_that_is_not_listed_is_refused() {
    let mut fixture = Fixture::new();
    fixture.start();
    for (method, path) in [
        ("GET", "/v1/status"),
        ("GET", "/v1/runs"),
        ("GET", "/v1/events"),
        ("POST", "/v1/reload"),
        ("POST", "/v1/canaries"),
        ("PUT", "/v1/runs/run-1"),
    ] {
        let (code, answer) = fixture.ask_as(Some(FOREIGN), method, path, &open(1, 60));
        assert_eq!(
            (code, &answer["code"]),
            (403, &json!("peer_unknown")),
            "{method} {path}"
        );
    }
    // The control: the same program under a listed uid, and as root.
    let daemon = Some(uid_of("daemon"));
    assert_eq!(
        fixture.ask_as(daemon, "GET", "/v1/status", &Value::Null).0,
        200
    );
    assert_eq!(
        fixture.ask("GET", "/v1/runs", &Value::Null),
        (200, json!([]))
    );
    fixture.stop();
}

#[test]
fn a_peer_may_do_what_it_is_listed_for() {
    let mut fixture = Fixture::new();
    fixture.start();
    let daemon = Some(uid_of("daemon"));
    let code = |answer: (u16, Value)| (answer.0, answer.1["code"].as_str().map(str::to_owned));
    let refused = |code: &str| (403, Some(code.to_owned()));
    let answer = fixture.ask_as(daemon, "PUT", "/v1/runs/run-1", &open(1, 60));
    assert_eq!(code(answer), refused("profile_not_allowed"));
    let mut inline = open(1, 60);
    inline["policy"] = json!(POLICY);
    let answer = fixture.ask_as(daemon, "PUT", "/v1/runs/run-1", &inline);
    assert_eq!(code(answer), refused("inline_not_allowed"));
    for path in ["/v1/reload", "/v1/canaries"] {
        let answer = fixture.ask_as(daemon, "POST", path, &Value::Null);
        assert_eq!(code(answer), refused("admin_required"), "{path}");
        let (status, answer) = fixture.ask("POST", path, &Value::Null);
        assert_eq!(status, 200, "control: {path}: {answer}");
    }

    assert_eq!(
        fixture.ask("PUT", "/v1/runs/run-1", &inline).0,
        200,
        "control"
    );
    let answer = fixture.ask_as(daemon, "DELETE", "/v1/runs/run-1?epoch=1", &Value::Null);
    assert_eq!(code(answer), refused("not_yours"));

    // An inline policy is held to the same credential bindings.
    let mut evil = open(2, 60);
    evil["policy"] = json!(POLICY.replace("api.example.com", "evil.example.com"));
    let (status, answer) = fixture.ask("PUT", "/v1/runs/run-1", &evil);
    assert_eq!((status, &answer["code"]), (422, &json!("policy_invalid")));
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("binds it elsewhere"),
        "{answer}"
    );
    fixture.stop();
}

#[test]
fn a_run_is_opened_extended_and_closed_any_number_of_times() {
    let mut fixture = Fixture::new();
    fixture.start();
    let (status, opened) = fixture.ask("PUT", "/v1/runs/run-1", &open(1, 60));
    assert_eq!(status, 200, "{opened}");
    let socket = opened["socket"].as_str().unwrap();
    let directory = opened["socket_dir"].as_str().unwrap();
    let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(directory), mode(socket)), (0o711, 0o666));
    assert!(UnixStream::connect(socket).is_ok());

    assert_eq!(
        fixture.ask("PUT", "/v1/runs/run-1", &open(1, 60)),
        (200, opened.clone())
    );
    let (status, view) = fixture.ask("POST", "/v1/runs/run-1/extend", &json!({"epoch": 1}));
    assert_eq!((status, &view["grant"]["agent"]), (200, &json!("coder")));
    let (_, runs) = fixture.ask("GET", "/v1/runs", &Value::Null);
    assert_eq!(runs.as_array().unwrap().len(), 1);
    assert!(!runs.to_string().contains("board-canary"));

    let (status, answer) = fixture.ask("POST", "/v1/runs/run-1/extend", &json!({"epoch": 2}));
    assert_eq!((status, &answer["code"]), (409, &json!("run_ended")));
    let close = |epoch: u64| {
        fixture.ask(
            "DELETE",
            &format!("/v1/runs/run-1?epoch={epoch}"),
            &Value::Null,
        )
    };
    assert_eq!(close(1), (200, json!({"closed": true})));
    assert_eq!(close(1), (200, json!({"closed": false})));
    assert!(UnixStream::connect(socket).is_err());
    let (status, answer) = fixture.ask("PUT", "/v1/runs/run-1", &open(1, 60));
    assert_eq!((status, &answer["code"]), (409, &json!("run_ended")));
    assert_eq!(fixture.ask("PUT", "/v1/runs/run-1", &open(2, 60)).0, 200);
    let said = fixture.stop();
    assert!(!said.contains("board-canary"), "{said}");
    assert!(!format!("{:?}", fixture.log()).contains("board-canary"));
}

#[test]
fn a_lease_that_nobody_extends_ends_the_run() {
    let mut fixture = Fixture::new();
    fixture.start();
    let (_, opened) = fixture.ask("PUT", "/v1/runs/run-1", &open(1, 1));
    let socket = opened["socket"].as_str().unwrap().to_owned();
    eventually("the lease ends", || {
        fixture.ask("GET", "/v1/runs", &Value::Null) == (200, json!([]))
    });
    assert!(UnixStream::connect(&socket).is_err());
    assert_eq!(fixture.ask("PUT", "/v1/runs/run-1", &open(1, 60)).0, 409);
    fixture.stop();
}

#[test]
fn a_restart_forgets_grants_keeps_directories_and_ended_epochs() {
    let mut fixture = Fixture::new();
    fixture.start();
    let (_, opened) = fixture.ask("PUT", "/v1/runs/run-1", &open(2, 60));
    let directory = Path::new(opened["socket_dir"].as_str().unwrap()).to_owned();
    let before = inode(&directory);
    fixture.signal(Signal::SIGKILL);
    eventually("the gate is gone", || {
        UnixStream::connect(fixture.path("run/control.sock")).is_err()
    });
    fixture.start();
    assert_eq!(
        fixture.ask("GET", "/v1/runs", &Value::Null),
        (200, json!([]))
    );
    assert!(UnixStream::connect(directory.join("gate.sock")).is_err());
    let again = fixture.ask("PUT", "/v1/runs/run-1", &open(2, 60));
    assert_eq!(again, (200, opened));
    assert_eq!(inode(&directory), before, "the directory is the same one");
    assert!(UnixStream::connect(directory.join("gate.sock")).is_ok());

    assert_eq!(
        fixture
            .ask("DELETE", "/v1/runs/run-1?epoch=2", &Value::Null)
            .0,
        200
    );
    fixture.stop();
    fixture.start();
    assert_eq!(fixture.ask("PUT", "/v1/runs/run-1", &open(2, 60)).0, 409);
    assert_eq!(
        fixture.ask("PUT", "/v1/runs/run-1", &open(3, 60)).0,
        200,
        "control"
    );
    fixture.stop();
    let seqs: Vec<u64> = fixture
        .log()
        .iter()
        .map(|line| line["seq"].as_u64().unwrap())
        .collect();
    assert!(
        seqs.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{seqs:?}"
    );
}

/// Attack: LIF-03, LIF-21
#[test]
fn a_reload_with_a_broken_policy_keeps_the_old_one_and_says_so() {
    let mut fixture = Fixture::new();
    fixture.start();
    let hash = |status: &Value| status["policies"]["default"]["hash"].clone();
    let before = fixture.status();
    assert_eq!(before["ready"], true);
    let file = fixture.path("default.toml");
    std::fs::write(&file, POLICY.replace("allow", "alow")).unwrap();
    let output = fixture.tool(&["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains(&format!("{}:6: service[1].alow", file.display())),
        "{said}"
    );
    assert!(said.contains("keeps its old policy"), "{said}");

    let stale = fixture.status();
    assert_eq!(hash(&stale), hash(&before));
    assert_eq!(stale["ready"], false);
    assert!(stale["policies"]["default"]["stale"]["since"].is_string());
    let shown = fixture.tool(&["status"]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("STALE since"));
    let (code, answer) = fixture.ask("POST", "/v1/reload", &Value::Null);
    assert_eq!(code, 422);
    assert!(answer["error"].as_str().unwrap().contains("alow"));

    // A good file, and this time by signal.
    std::fs::write(&file, "version = 1\n").unwrap();
    fixture.signal(Signal::SIGHUP);
    eventually("the new policy is in force", || {
        hash(&fixture.status()) != hash(&before)
    });
    assert_eq!(fixture.status()["ready"], true);
    let output = fixture.tool(&["reload"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    fixture.stop();
}

#[test]
fn bodies_are_bounded_and_nonsense_is_named() {
    let mut fixture =
        Fixture::with(|text| format!("{text}\n[limits]\ncontrol_body_bytes = 2048\n"));
    fixture.start();
    let mut large = open(1, 60);
    large["policy"] = json!("#".repeat(4096));
    let (status, answer) = fixture.ask("PUT", "/v1/runs/run-1", &large);
    assert_eq!((status, &answer["code"]), (413, &json!("too_large")));
    for (method, path, body, wanted) in [
        ("PUT", "/v1/runs/run-1", json!({"epoch": 1}), 400),
        ("PUT", "/v1/runs/other", open(1, 60), 400),
        ("PUT", "/v1/runs/..%2fx", open(1, 60), 400),
        ("GET", "/nothing", Value::Null, 404),
        ("POST", "/v1/status", Value::Null, 405),
        ("POST", "/v1/runs/run-9/extend", json!({"epoch": 1}), 404),
    ] {
        let (status, answer) = fixture.ask(method, path, &body);
        assert_eq!(status, wanted, "{method} {path}: {answer}");
        assert!(answer["error"].is_string() && answer["code"].is_string());
    }
    assert_eq!(
        fixture.ask("PUT", "/v1/runs/run-1", &open(1, 60)).0,
        200,
        "control"
    );
    fixture.stop();
}

/// Opens `count` connections to the control socket under a uid and keeps them until it is dropped.
struct Holder(std::process::Child);

impl Holder {
    fn new(fixture: &Fixture, uid: u32, count: usize) -> Self {
        use std::io::Read;
        const HOLD: &str = "use Socket; $| = 1; my @held; for (1..$ARGV[1]) { socket(my $s, PF_UNIX, SOCK_STREAM, 0); \
            connect($s, pack_sockaddr_un($ARGV[0])) or die; push @held, $s } print \"held\"; <STDIN>";
        let mut child = std::process::Command::new("setpriv")
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={uid}"))
            .args(["--clear-groups", "perl", "-e", HOLD])
            .arg(fixture.path("run/control.sock"))
            .arg(count.to_string())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 4];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn strangers_cannot_take_the_places_of_those_who_are_listed() {
    let mut fixture = Fixture::with(|text| format!("{text}\n[limits]\ncontrol_connections = 4\n"));
    fixture.start();
    let holder = Holder::new(&fixture, FOREIGN, 100);
    for _ in 0..8 {
        assert_eq!(fixture.ask("GET", "/v1/runs", &Value::Null).0, 200);
    }
    drop(holder);
    // The control: the same number of connections of a listed uid do take its places.
    let holder = Holder::new(&fixture, uid_of("daemon"), 20);
    eventually("the places are taken, and that is said", || {
        let (status, answer) = fixture.ask("GET", "/v1/runs", &Value::Null);
        let text = answer["error"].as_str().unwrap_or_default();
        status == 429 && answer["code"] == "limit_reached" && text.contains("control_connections")
    });
    // More than are told so at once, which ask nothing: it is said again, to whoever still asks.
    let more = Holder::new(&fixture, uid_of("daemon"), 200);
    eventually("it is said again", || {
        let told = std::process::Command::new("curl")
            .args(["--silent", "--unix-socket"])
            .arg(fixture.path("run/control.sock"))
            .arg("http://gate/v1/runs")
            .output()
            .unwrap();
        String::from_utf8_lossy(&told.stdout).contains("limit_reached")
    });
    drop(more);
    drop(holder);
    eventually("they are given back", || {
        fixture.ask("GET", "/v1/runs", &Value::Null).0 == 200
    });
    fixture.stop();
}

#[test]
fn an_inline_policy_and_a_reload_need_the_ca_files_that_they_name() {
    let mut fixture = Fixture::new();
    fixture.start();
    let missing = fixture.path("none.pem").display().to_string();
    let with_ca = POLICY.replace("allow", &format!("ca_file = \"{missing}\"\nallow"));
    let mut inline = open(1, 60);
    inline["policy"] = json!(with_ca);
    let (status, answer) = fixture.ask("PUT", "/v1/runs/run-1", &inline);
    assert_eq!((status, &answer["code"]), (422, &json!("policy_invalid")));
    assert!(
        answer["error"].as_str().unwrap().contains(&missing),
        "{answer}"
    );
    std::fs::write(fixture.path("default.toml"), &with_ca).unwrap();
    let (status, answer) = fixture.ask("POST", "/v1/reload", &Value::Null);
    assert_eq!(status, 422, "{answer}");
    assert!(
        answer["error"].as_str().unwrap().contains(&missing),
        "{answer}"
    );
    // The control: once the file is there.
    std::fs::copy(fixture.path("lib/ca/ca.pem"), &missing).unwrap();
    std::fs::set_permissions(&missing, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(fixture.ask("PUT", "/v1/runs/run-1", &inline).0, 200);
    assert_eq!(fixture.ask("POST", "/v1/reload", &Value::Null).0, 200);
    fixture.stop();
}
