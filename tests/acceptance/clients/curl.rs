//! curl over both versions of HTTP, up and down.

use tests::matrix::Row;

use super::{plain_web, url};

#[test]
fn curl_works_and_is_told() {
    let clients = plain_web();
    let version = clients.version("curl", &["--version"]);
    let curl = |args: &[&str]| {
        let fixed = ["--silent", "--show-error", "--fail-with-body"];
        clients.agent("curl").args(fixed).args(args).run()
    };
    let row = |way| Row {
        client: "curl",
        way,
        version: version.clone(),
    };
    clients.judge(
        &row("HTTP/1.1"),
        curl(&["--http1.1", &url("/version")]),
        "HTTP/",
        curl(&["--http1.1", &url("/closed/x")]),
    );
    clients.judge(
        &row("HTTP/1.1, body"),
        curl(&["--http1.1", "--data", "a=b", &url("/echo")]),
        "a=b",
        curl(&["--http1.1", "--data", "a=b", &url("/closed/echo")]),
    );
}
