//! Python: requests, httpx and urllib.

use tests::matrix::{self, Row};

use super::{plain_web, url};

#[test]
fn the_libraries_of_python_work_and_are_told() {
    let clients = plain_web();
    let script = matrix::directory().join("src/python/fetch.py");
    let fetch = |library: &str, words: &[&str]| {
        let python = clients.agent("python3").arg(&script).arg(library);
        python.args(words).run()
    };
    for (client, library, way) in [
        ("requests", "requests", "HTTP/1.1"),
        ("httpx", "httpx", "HTTP/1.1"),
        ("httpx", "httpx2", "HTTP/2"),
        ("urllib", "urllib", "HTTP/1.1"),
    ] {
        let version = match client {
            "urllib" => clients.version("python3", &["--version"]),
            _ => {
                let print = format!("import {client}; print({client}.__version__)");
                clients.version("python3", &["-c", &print])
            }
        };
        let row = Row {
            client,
            way,
            version,
        };
        clients.judge(
            &row,
            fetch(library, &["POST", &url("/echo"), "told"]),
            if way == "HTTP/2" {
                "HTTP/2\ntold"
            } else {
                "told"
            },
            fetch(library, &["POST", &url("/closed/echo"), "told"]),
        );
    }
}
