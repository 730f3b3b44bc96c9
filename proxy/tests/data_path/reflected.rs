//! Upstreams that repeat the injected secret: in the fields, in the body in every form and over every
//! border, packed, behind the body, on a WebSocket. Beside each, what is only like it, and the same
//! where nothing was injected.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::modern::{Client, Modern, full};
use super::stand::{CANARY, Stand, ask, until};
use super::upstream::Upstream;
use super::{BARE, HOST, features};

const HTTP1: &[&str] = &["http/1.1"];
const HTTP2: &[&str] = &["h2", "http/1.1"];

/// A gate before an upstream that repeats, where `HOST` has a credential and `BARE` none.
async fn repeating(protocols: &[&str]) -> (Modern, Stand) {
    let upstream = Modern::start(HOST, protocols).await;
    let bare = format!(
        "trailers = true\n[[service]]\nid = \"bare\"\nkind = \"http\"\nhost = \"{BARE}\"\naddress = \"{}\"\n\
         pin = \"{}\"\nallow = [\"* /v1/**\"]\n",
        upstream.address, upstream.pin
    );
    let stand = upstream.stand(&upstream.policy(HOST, &bare));
    (upstream, stand)
}

/// What came of an answer.
#[derive(Debug)]
struct Got {
    status: StatusCode,
    code: String,
    body: Vec<u8>,
    whole: bool,
    behind: bool,
}

async fn post(
    stand: &Stand,
    protocols: &[&str],
    host: &str,
    chunk: usize,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Got {
    let mut client = Client::open(stand, 1500, host, protocols).await;
    let mut request = client.request("POST", host, &format!("/v1/echo/{chunk}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(full(body.to_vec())).unwrap();
    let answer = match client.send(request).await {
        Ok(answer) => answer,
        // Cut before its head was on the wire.
        Err(_) => {
            return Got {
                status: StatusCode::OK,
                code: String::new(),
                body: Vec::new(),
                whole: false,
                behind: false,
            };
        }
    };
    let code = answer.headers().get("x-portcullis-code");
    let mut got = Got {
        status: answer.status(),
        code: code.map_or(String::new(), |code| code.to_str().unwrap().to_owned()),
        body: Vec::new(),
        whole: true,
        behind: false,
    };
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => got.body.extend_from_slice(&data),
            Ok(Err(frame)) => got.behind = frame.is_trailers(),
            Err(_) => got.whole = false,
        }
        if !got.whole {
            break;
        }
    }
    got
}

type Form<'a> = &'a dyn Fn(&str) -> String;

/// Every form of the secret, and of something as long that is not it.
fn forms() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let other = CANARY.replace("9a1c", "9a1d");
    let escape =
        |text: &str, each: &dyn Fn(u8) -> String| text.bytes().map(each).collect::<String>();
    let percent = |byte: u8| format!("%{byte:02x}");
    let json = |byte: u8| format!("\\u{:04x}", u32::from(byte));
    let hex = |byte: u8| format!("{byte:02X}");
    let each: [(&str, Form<'_>); 6] = [
        ("raw", &|text| text.to_owned()),
        ("base64", &|text| STANDARD.encode(text)),
        ("base64 of more", &|text| {
            STANDARD.encode(format!("x:{text}..."))
        }),
        ("percent", &|text| escape(text, &percent)),
        ("json", &|text| escape(text, &json)),
        ("hex", &|text| escape(text, &hex)),
    ];
    let around = |text: String| [b"<before>", text.as_bytes(), b"<after>"].concat();
    each.iter()
        .map(|(name, form)| (*name, around(form(CANARY)), around(form(&other))))
        .collect()
}

fn alarms(stand: &Stand) -> Vec<String> {
    let lines = stand.audit();
    let alarm = |line: &serde_json::Value| {
        let text = line["reason"].as_str()?;
        let is = line["kind"] == "event" && text.starts_with("credential api: repeated by");
        is.then(|| text.to_owned())
    };
    lines.iter().filter_map(alarm).collect()
}

async fn bodies(protocols: &[&str]) {
    let (_upstream, stand) = repeating(protocols).await;
    let mut cuts = 0;
    for (name, secret, other) in forms() {
        for chunk in [7, 100_000] {
            let got = post(&stand, protocols, HOST, chunk, &[], &secret).await;
            assert!(!got.whole, "{name} by {chunk}: {got:?}");
            assert!(
                got.body.len() <= b"<before>x:a".len() + 3,
                "{name} by {chunk}: {got:?}"
            );
            let got = post(&stand, protocols, HOST, chunk, &[], &other).await;
            assert!(
                got.whole && got.body == other,
                "control: {name} by {chunk}: {got:?}"
            );
            cuts += 1;
        }
        let got = post(&stand, protocols, BARE, 7, &[], &secret).await;
        assert!(
            got.whole && got.body == secret,
            "nothing was injected: {got:?}"
        );
    }
    until("each raised an alarm", || alarms(&stand).len() == cuts).await;
    let coded = |line: &serde_json::Value| {
        line["kind"] == "response" && line["code"] == "credential_reflected"
    };
    until("each record says it", || {
        stand.audit().iter().filter(|line| coded(line)).count() == cuts
    })
    .await;
    let log = format!("{:?}", stand.audit());
    assert!(!log.contains(CANARY) && log.contains(&format!("repeated by {HOST}:443 in its body")));
}

/// Attack: CRD-12
#[tokio::test]
async fn a_body_that_repeats_the_secret_is_cut_on_http1() {
    bodies(HTTP1).await;
}

/// Attack: CRD-12
#[tokio::test]
async fn a_body_that_repeats_the_secret_is_cut_on_http2() {
    bodies(HTTP2).await;
}

fn packed(encoding: &str, text: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            packer.write_all(text).unwrap();
            packer.finish().unwrap()
        }
        "deflate" => {
            let level = flate2::Compression::best();
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), level);
            packer.write_all(text).unwrap();
            packer.finish().unwrap()
        }
        "br" => {
            let mut out = Vec::new();
            let mut packer = brotli::CompressorWriter::new(&mut out, 4096, 9, 20);
            packer.write_all(text).unwrap();
            drop(packer);
            out
        }
        _ => zstd::stream::encode_all(text, 3).unwrap(),
    }
}

/// Attack: CRD-12
#[tokio::test]
async fn packed_bodies_are_looked_into_and_what_cannot_be_is_refused() {
    let (upstream, stand) = repeating(HTTP1).await;
    for encoding in ["gzip", "br", "zstd"] {
        for (name, secret, other) in forms() {
            let fields = [
                ("x-encoded", encoding),
                ("accept-encoding", "gzip, dcz, br"),
            ];
            let (dirty, clean) = (packed(encoding, &secret), packed(encoding, &other));
            let got = post(&stand, HTTP1, HOST, 20, &fields, &dirty).await;
            assert!(
                !got.whole && got.body.len() < dirty.len(),
                "{encoding} {name}: {got:?}"
            );
            let got = post(&stand, HTTP1, HOST, 20, &fields, &clean).await;
            assert!(
                got.whole && got.body == clean,
                "control: {encoding} {name}: {got:?}"
            );
        }
    }
    let seen = upstream.seen();
    assert!(
        seen.iter()
            .all(|seen| seen.headers["accept-encoding"] == "gzip, br")
    );
    let unknown = [("x-encoded", "compress")];
    let got = post(&stand, HTTP1, HOST, 9, &unknown, b"packed somehow").await;
    assert_eq!(got.code, "could_not_inspect", "{got:?}");
    let got = post(&stand, HTTP1, BARE, 9, &unknown, b"packed somehow").await;
    assert!(
        got.whole && got.body == b"packed somehow",
        "nothing was injected: {got:?}"
    );
    let lie = [("x-encoded", "gzip")];
    let got = post(&stand, HTTP1, HOST, 9, &lie, b"this is no gzip").await;
    assert!(!got.whole, "{got:?}");
}

/// Attack: RES-14
#[tokio::test]
async fn an_answer_that_unpacks_a_thousandfold_is_cut_where_it_is_searched() {
    let bomb = vec![b' '; 8 << 20];
    let honest: String = (0..200_000).map(|line| format!("{line}: ok\n")).collect();
    for protocols in [HTTP1, HTTP2] {
        let (_upstream, stand) = repeating(protocols).await;
        let all = ["gzip", "deflate", "br", "zstd"];
        for (cut, encoding) in all.into_iter().enumerate() {
            let fields = [("x-encoded", encoding)];
            let packed_bomb = packed(encoding, &bomb);
            assert!(
                packed_bomb.len() < 9000,
                "{encoding}: {}",
                packed_bomb.len()
            );
            let got = post(&stand, protocols, HOST, 1000, &fields, &packed_bomb).await;
            assert!(!got.whole, "{encoding}: {} bytes", got.body.len());
            assert!(got.body.len() < packed_bomb.len(), "{encoding}");
            until("it is on record", || {
                let log = stand.audit();
                let told = |line: &&serde_json::Value| {
                    line["kind"] == "response" && line["code"] == "could_not_inspect"
                };
                log.iter().filter(told).count() == cut + 1
            })
            .await;
            let got = post(&stand, protocols, BARE, 1000, &fields, &packed_bomb).await;
            assert!(
                got.whole && got.body == packed_bomb,
                "nothing was injected: {encoding}"
            );
            let packed_honest = packed(encoding, honest.as_bytes());
            assert!(packed_honest.len() * 4 < honest.len(), "{encoding}");
            let got = post(&stand, protocols, HOST, 10_000, &fields, &packed_honest).await;
            assert!(
                got.whole && got.body == packed_honest,
                "control: {encoding}"
            );
        }
        assert!(alarms(&stand).is_empty(), "nothing was repeated");
    }
}

/// Attack: CRD-12
#[tokio::test]
async fn fields_that_repeat_the_secret_are_refused_before_and_cut_behind_the_body() {
    for protocols in [HTTP1, HTTP2] {
        let (_upstream, stand) = repeating(protocols).await;
        let packed = STANDARD.encode(format!("x:{CANARY}"));
        let near = &CANARY[..CANARY.len() - 1];
        for said in [CANARY, &packed] {
            let got = post(&stand, protocols, HOST, 9, &[("x-say", said)], b"body").await;
            assert_eq!(got.status, StatusCode::BAD_GATEWAY);
            assert_eq!(got.code, "credential_reflected");
            let got = post(&stand, protocols, BARE, 9, &[("x-say", said)], b"body").await;
            assert!(
                got.whole && got.body == b"body",
                "nothing was injected: {got:?}"
            );
        }
        let got = post(&stand, protocols, HOST, 9, &[("x-say", near)], b"body").await;
        assert!(
            got.status == StatusCode::OK && got.body == b"body",
            "control: {got:?}"
        );
        if protocols == HTTP2 {
            let behind = |said| [("te", "trailers"), ("x-say-behind", said)];
            let got = post(&stand, protocols, HOST, 9, &behind(CANARY), b"body").await;
            assert!(!got.whole && !got.behind, "{got:?}");
            // What was held back comes before them.
            let body = [b"body", &CANARY.as_bytes()[..9]].concat();
            let got = post(&stand, protocols, HOST, 9, &behind(near), &body).await;
            assert!(
                got.whole && got.behind && got.body == body,
                "control: {got:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_event_is_not_held_and_what_was_held_comes_at_the_end() {
    let (_upstream, stand) = repeating(HTTP1).await;
    let start = &CANARY[..CANARY.len() - 1];
    for body in [
        start.to_owned(),
        format!("{start}{start}"),
        format!("{start}X"),
    ] {
        for chunk in [1, 5, 1000] {
            let got = post(&stand, HTTP1, HOST, chunk, &[], body.as_bytes()).await;
            assert!(
                got.whole && got.body == body.as_bytes(),
                "{body} by {chunk}: {got:?}"
            );
        }
    }
    let (sender, body) = super::modern::sent();
    let mut client = Client::open(&stand, 1500, HOST, HTTP1).await;
    let request = client.request("POST", HOST, "/v1/bidi").body(body).unwrap();
    let answer = client.send(request).await.unwrap();
    let mut answer = answer.into_body();
    assert_eq!(
        answer.frame().await.unwrap().unwrap().into_data().unwrap(),
        "first"
    );
    for event in [
        format!("data: {start}\n\n"),
        "ends as it begins: can".to_owned(),
    ] {
        let data = hyper::body::Frame::data(bytes::Bytes::from(event.clone()));
        sender.send(data).await.unwrap();
        let echo = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(echo, event, "before the next is sent");
    }
}

/// Attack: CRD-12
#[tokio::test]
async fn a_websocket_that_repeats_the_secret_is_cut() {
    let upstream = Upstream::start(HOST).await;
    let stand = Stand::new(&upstream, &features::socket_policy(&upstream));
    for (said, passes) in [
        (CANARY.replace("9a1c", "9a1d"), true),
        (CANARY.to_owned(), false),
    ] {
        let mut tls = stand.tunnel(HOST).await;
        let answer = ask(&mut tls, &features::opening(HOST)).await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        tls.write_all(said.as_bytes()).await.unwrap();
        if passes {
            let mut got = vec![0; said.len()];
            tls.read_exact(&mut got).await.unwrap();
            assert_eq!(got, said.as_bytes());
        } else {
            let mut got = Vec::new();
            // How it breaks off is not what is asked here.
            let _ = tls.read_to_end(&mut got).await;
            assert!(got.len() < 4, "{got:?}");
            until("an alarm", || !alarms(&stand).is_empty()).await;
            assert!(alarms(&stand)[0].contains("WebSocket"));
        }
    }
}
