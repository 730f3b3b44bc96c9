//! Clients of other languages' own libraries: node, Go, Java.

use tests::matrix::{self, Row};

use super::{led_web, plain_web, url};

#[test]
fn node_works_and_is_told() {
    let script = matrix::directory().join("src/node/fetch.js");
    // node 20 reads no proxy variable: its own connections are led to the gate.
    for (client, program, clients) in [
        ("node 20", "node20", led_web()),
        ("node 24", "node24", plain_web()),
    ] {
        for how in ["fetch", "https"] {
            let node = |path: &str| {
                let node = clients.agent(program).arg(&script).arg(how);
                node.args(["POST", &url(path), "told"]).run()
            };
            let row = Row {
                client,
                way: if how == "fetch" {
                    "fetch"
                } else {
                    "https module"
                },
                version: clients.version(program, &["--version"]),
            };
            clients.judge(&row, node("/echo"), "told", node("/closed/echo"));
        }
    }
}

#[test]
fn go_works_and_is_told() {
    let clients = plain_web();
    let go = |path: &str| {
        let go = clients.agent("go-client");
        go.args(["POST", &url(path), "told"]).run()
    };
    let row = Row {
        client: "go",
        way: "net/http",
        version: clients.version("go", &["version"]),
    };
    clients.judge(&row, go("/echo"), "told", go("/closed/echo"));
}

#[test]
fn java_works_and_is_told() {
    let clients = plain_web();
    for (class, way) in [("Modern", "HttpClient"), ("Classic", "URLConnection")] {
        let java = |path: &str| {
            let java = clients.agent("java").arg("-cp");
            let java = java.arg(matrix::directory().join("java"));
            java.args([class, &url(path)]).run()
        };
        let row = Row {
            client: "java",
            way,
            version: clients.version("java", &["--version"]),
        };
        clients.judge(&row, java("/version"), "HTTP", java("/closed/version"));
    }
}
