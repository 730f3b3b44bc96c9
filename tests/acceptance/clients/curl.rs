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
    for (flag, number, way, with_body) in [
        ("--http1.1", "1.1", "HTTP/1.1", "HTTP/1.1, body"),
        ("--http2", "2", "HTTP/2", "HTTP/2, body"),
    ] {
        let print = ["--write-out", "\nby %{http_version}"];
        let spoken = format!("by {number}");
        let [allowed, refused] = ["/version", "/closed/version"]
            .map(|path| curl(&[&[flag][..], &print, &[&url(path)]].concat()));
        assert!(refused.output().contains(&spoken), "{}", refused.shown());
        clients.judge(&row(way), allowed, &spoken, refused);
        clients.judge(
            &row(with_body),
            curl(&[flag, "--data", "a=b", &url("/echo")]),
            "a=b",
            curl(&[flag, "--data", "a=b", &url("/closed/echo")]),
        );
    }
}
