//! What is not plain request and answer: WebSocket and gRPC, where a service opens them.

use tests::clients::{Clients, Upstream, closed};
use tests::matrix::{self, Row};

const SOCKET: &str = "socket.portcullis.test";
const CALLS: &str = "calls.portcullis.test";

#[test]
fn websocket_clients_work_and_are_told() {
    let policy = format!(
        "[[service]]\nkind = \"http\"\nhost = \"{SOCKET}\"\nallow = [\"GET /**\"]\n\
         upgrade = [\"websocket\"]\nca_file = \"{{ca}}\"\n{}",
        closed(&[SOCKET])
    );
    let clients = Clients::new(&[Upstream::new(&[SOCKET], &["websocket"])], &policy, &[]);
    let script = matrix::directory().join("src/node/ws.js");
    for (client, program, how, way) in [
        ("node 20", "node20", "ws", "WebSocket (ws)"),
        ("node 24", "node24", "ws", "WebSocket (ws)"),
        ("node 24", "node24", "global", "WebSocket (built in)"),
    ] {
        let say = |path: &str| {
            let node = clients.agent(program).arg(&script).arg(how);
            node.args([&format!("wss://{SOCKET}{path}"), "told"]).run()
        };
        let row = Row {
            client,
            way,
            version: clients.version(program, &["--version"]),
        };
        clients.judge(&row, say("/echo"), "told", say("/closed/echo"));
    }
}

#[test]
fn grpc_works_in_every_streaming_kind_and_is_told() {
    let policy = format!(
        "[[service]]\nkind = \"http\"\nhost = \"{CALLS}\"\nallow = [\"POST /**\"]\n\
         trailers = true\nca_file = \"{{ca}}\"\n{}",
        closed(&[CALLS])
    );
    let clients = Clients::new(&[Upstream::new(&[CALLS], &["grpc"])], &policy, &[]);
    let script = matrix::directory().join("src/python/grpc_echo.py");
    let call = |method: &str| {
        let python = clients.agent("python3").arg(&script);
        python.args([&format!("{CALLS}:443"), method]).run()
    };
    let allowed = call("/echo.Echo/Unary").ok();
    for line in [
        "one",
        "['more', 'more', 'more']",
        "3",
        "['x', 'y']",
        "NOT_FOUND not found, as asked",
    ] {
        assert!(
            allowed.stdout.lines().any(|found| found == line),
            "{}",
            allowed.shown()
        );
    }
    let print = "import grpc; print(grpc.__version__)";
    let row = Row {
        client: "grpcio",
        way: "all streaming kinds",
        version: clients.version("python3", &["-c", print]),
    };
    clients.judge(&row, allowed, "one", call("/closed/Unary"));
    let probe = tests::binaries::path("portcullis-probe")
        .display()
        .to_string();
    let call = |method: &str| {
        let tonic = clients
            .agent(&probe)
            .args(["grpc", "--gate", tests::gate::ADDRESS]);
        let tonic = tonic.arg("--roots").arg(clients.trust("bundle.pem"));
        tonic.args([CALLS, method]).run()
    };
    let allowed = call("/echo.Echo/Unary").ok();
    assert_eq!(
        allowed.stdout,
        "one\nstream more\nstream more\nstream more\ncount 2\nboth x\nboth y\n"
    );
    let lock = std::fs::read_to_string(tests::binaries::repository().join("Cargo.lock")).unwrap();
    let (_, entry) = lock.split_once("name = \"tonic\"\nversion = \"").unwrap();
    let row = Row {
        client: "tonic",
        way: "all streaming kinds",
        version: entry.split('"').next().unwrap().to_owned(),
    };
    clients.judge(&row, allowed, "one", call("/closed/Unary"));
}
