//! What crosses as it came: targets, packed bodies, fields, and the length of what is not sent.

use std::collections::BTreeSet;
use std::io::Write as _;

use http::StatusCode;
use http_body_util::BodyExt;

use super::HOST;
use super::modern::{Client, Modern, full};

const NEW: &[&str] = &["h2"];
const OLD: &[&str] = &["http/1.1"];
const PAIRS: [(&[&str], &[&str]); 4] = [(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)];

/// A path is decoded to be judged, and sent as it was written.
#[tokio::test]
async fn the_target_is_sent_as_it_was_written() {
    for (offered, served) in PAIRS {
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, ""));
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let written = "/v1/%78/a%20b;c=d/~%7E?q=%41&r=a+b%2Fc&&s";
        let (status, _, _) = client.get(HOST, written).await;
        assert_eq!(status, StatusCode::OK, "{offered:?}");
        let (status, _, _) = client.get(HOST, "/%762/x").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "judged as /v2/x");
        let seen = upstream.seen();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].uri.ends_with(written), "{}", seen[0].uri);
    }
}

/// Git packs what it asks for; whoever unpacked or packed it anew would break it.
#[tokio::test]
async fn a_packed_body_of_a_request_is_not_touched() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer
        .write_all(&b"0032want 0123456789abcdef\n".repeat(400))
        .unwrap();
    let mut packed = packer.finish().unwrap();
    // Not even what stands behind the end of what is packed.
    packed.extend_from_slice(b"and more");
    for (offered, served) in PAIRS {
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, ""));
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let request = client
            .request("POST", HOST, "/v1/echo/100")
            .header("content-encoding", "gzip")
            .header("git-protocol", "version=2")
            .body(full(packed.clone()));
        let answer = client.send(request.unwrap()).await.unwrap();
        let echo = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(echo == packed, "{offered:?} to {served:?}");
        let fields = &upstream.seen()[0].headers;
        assert_eq!(fields["content-encoding"], "gzip");
        assert_eq!(fields["git-protocol"], "version=2");
    }
}

/// Signatures over fields break by one more of them.
#[tokio::test]
async fn nothing_is_added_but_the_credential() {
    for (offered, served) in PAIRS {
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, ""));
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let request = client
            .request("GET", HOST, "/v1/x")
            .header("accept", "*/*")
            .header("x-amz-date", "20260101T000000Z")
            .body(full(Vec::new()));
        let answer = client.send(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let seen = upstream.seen();
        let names = seen[0].headers.keys().map(|name| name.as_str());
        let names: BTreeSet<&str> = names.filter(|name| *name != "host").collect();
        let expected = ["accept", "authorization", "x-amz-date"];
        assert_eq!(names, BTreeSet::from(expected), "{offered:?} to {served:?}");
    }
}

#[tokio::test]
async fn the_length_of_an_answer_to_head_is_kept() {
    for (offered, served) in PAIRS {
        let upstream = Modern::start(HOST, served).await;
        let stand = upstream.stand(&upstream.policy(HOST, "max_response_bytes = 5"));
        let mut client = Client::open(&stand, 1500, HOST, offered).await;
        let request = client.request("HEAD", HOST, "/v1/x").body(full(Vec::new()));
        let answer = client.send(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "nothing is too long of it");
        assert_eq!(answer.headers()["content-length"], "10");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(body.is_empty());
    }
}
