//! Parts of a body: asked for, given and refused by the upstream alone, on either protocol, with a
//! credential and without.

use super::modern::{Client, Modern, full, whole};
use super::{BARE, HOST};

#[tokio::test]
async fn a_part_is_asked_for_and_given_unchanged_in_any_pairing() {
    let (one, two) = (&["http/1.1"][..], &["h2"][..]);
    for (offered, served) in [(one, one), (one, two), (two, one), (two, two)] {
        let upstream = Modern::start(HOST, served).await;
        let bare = format!(
            "[[service]]\nid = \"bare\"\nkind = \"http\"\nhost = \"{BARE}\"\naddress = \"{}\"\npin = \"{}\"\n\
             allow = [\"* /v1/**\"]\n",
            upstream.address, upstream.pin
        );
        let stand = upstream.stand(&upstream.policy(HOST, &bare));
        for host in [HOST, BARE] {
            let mut client = Client::open(&stand, 1500, host, offered).await;
            for (method, range, tag, expected) in [
                (
                    "GET",
                    Some("bytes=2-4"),
                    None,
                    (206, Some("bytes 2-4/10"), "234"),
                ),
                (
                    "GET",
                    Some("bytes=-1"),
                    None,
                    (206, Some("bytes 9-9/10"), "9"),
                ),
                (
                    "GET",
                    Some("bytes=2-4"),
                    Some("\"first\""),
                    (206, Some("bytes 2-4/10"), "234"),
                ),
                (
                    "GET",
                    Some("bytes=2-4"),
                    Some("\"other\""),
                    (200, None, "0123456789"),
                ),
                (
                    "GET",
                    Some("bytes=20-"),
                    None,
                    (416, Some("bytes */10"), ""),
                ),
                ("GET", None, None, (200, None, "0123456789")),
            ] {
                let case = format!("{offered:?} to {served:?}, {host}: {range:?} {tag:?}");
                let mut request = client.request(method, host, "/v1/part");
                request = request.header("accept-encoding", "gzip");
                for (name, value) in [("range", range), ("if-range", tag)] {
                    if let Some(value) = value {
                        request = request.header(name, value);
                    }
                }
                let request = request.body(full(Vec::new())).unwrap();
                let (status, fields, text) = whole(client.send(request).await.unwrap()).await;
                let field = |name: &str| fields.get(name).map(|value| value.to_str().unwrap());
                let got = (status.as_u16(), field("content-range"), text.as_str());
                assert_eq!(got, expected, "{case}");
                assert_eq!(field("etag"), Some("\"first\""), "{case}");
                assert_eq!(field("accept-ranges"), Some("bytes"), "{case}");
                let seen = upstream.seen().pop().unwrap();
                let sent = |name: &str| seen.headers.get(name).map(|it| it.to_str().unwrap());
                assert_eq!((sent("range"), sent("if-range")), (range, tag), "{case}");
                // A part of a packed body could not be searched for the secret.
                let whole_only = host == HOST && range.is_some();
                let encoding = if whole_only { "identity" } else { "gzip" };
                assert_eq!(sent("accept-encoding"), Some(encoding), "{case}");
                assert_eq!(sent("authorization").is_some(), host == HOST, "{case}");
            }
        }
    }
}
