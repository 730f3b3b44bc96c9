//! The protocols as curl speaks them: a gate in this process behind a port, and the real program.

use std::sync::Arc;

use policy::grant::{Grant, RunId};
use proxy::entrance::client::Client;
use tokio::net::TcpListener;
use tokio::process::Command;

use super::HOST;
use super::modern::Modern;
use super::stand::{Stand, until};

/// Serves everybody who comes to a port of this machine as one agent, and gives the port.
pub(crate) async fn port(stand: &Stand) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let gate = Arc::clone(&stand.gate);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let run = RunId::parse("uid-1500").unwrap();
            let grant = Grant::new("acme", "coder", None, run, "default").unwrap();
            let client = Arc::new(Client::of_uid(grant, 1500));
            tokio::spawn(proxy::tunnel::serve(Arc::clone(&gate), client, stream));
        }
    });
    port
}

/// What curl printed, then the version it spoke and the status. A failure has `000`.
pub(crate) async fn curl(stand: &Stand, port: u16, args: &[&str]) -> String {
    let ca = stand.gate.config.ca_directory.join("ca.pem");
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "60", "--noproxy", ""])
        .args(["--write-out", " %{http_version} %{http_code}", "--proxy"])
        .arg(format!("http://127.0.0.1:{port}"))
        .arg("--cacert")
        .arg(&ca)
        .args(args)
        .env_clear()
        .output()
        .await
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn curl_speaks_what_its_upstream_speaks() {
    let (old, new, both): (&[&str], &[&str], &[&str]) =
        (&["http/1.1"], &["h2"], &["h2", "http/1.1"]);
    let url = format!("https://{HOST}/v1/x");
    for (flag, served, version) in [
        ("--http1.1", old, "1.1"),
        ("--http1.1", new, "1.1"),
        ("--http1.1", both, "1.1"),
        ("--http2", old, "1.1"),
        ("--http2", new, "2"),
        ("--http2", both, "2"),
    ] {
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, ""));
        let port = port(&stand).await;
        let case = format!("{flag} to {served:?}");
        let got = curl(&stand, port, &[flag, &url]).await;
        assert_eq!(got, format!("received 0 {version} 200"), "{case}");
        // Large enough for Expect: 100-continue.
        let file = stand.upstream_ca().with_file_name("large");
        std::fs::write(&file, vec![b'x'; 3 << 20]).unwrap();
        let data = format!("@{}", file.display());
        let got = curl(&stand, port, &[flag, "--data-binary", &data, &url]).await;
        assert_eq!(got, format!("received {} {version} 200", 3 << 20), "{case}");
        let refused = format!("https://{HOST}/v2/x");
        let got = curl(&stand, port, &[flag, "--include", &refused]).await;
        assert!(got.contains("path_not_allowed"), "{case}: {got}");
        assert!(got.ends_with(&format!(" {version} 403")), "{case}: {got}");
        assert_eq!(upstream.seen().len(), 2, "{case}");
    }
}

#[tokio::test]
async fn http_2_without_tls_is_not_spoken() {
    let upstream = Modern::start(HOST, &["h2"]).await;
    let stand = upstream.stand(&upstream.policy(HOST, ""));
    let port = port(&stand).await;
    let plain = format!("http://{HOST}/v1/x");
    let knowing = ["--http2-prior-knowledge", "--proxytunnel", &plain];
    let got = curl(&stand, port, &knowing).await;
    assert!(!got.ends_with(" 200"), "{got}");
    until("it is on record", || {
        stand
            .refusals()
            .iter()
            .any(|code| code == "malformed_request")
    })
    .await;
    let got = curl(&stand, port, &["--http2", "--include", &plain]).await;
    assert!(
        got.contains("port_not_listed"),
        "the offer of h2c is no more than that: {got}"
    );
    assert!(upstream.seen().is_empty());
    let control = curl(&stand, port, &["--http2", &format!("https://{HOST}/v1/x")]).await;
    assert_eq!(control, "received 0 2 200");
}
