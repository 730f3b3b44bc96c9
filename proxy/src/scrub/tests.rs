use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use super::*;

const SECRET: &[u8] = b"s3cret/with\"odd+chars~0123456789";

fn encoded(encoding: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !encoding.is_empty() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    headers
}

fn scrubber(encoding: &'static str) -> Scrubber {
    let value = [b"Bearer ", SECRET].concat();
    let mut scrubber = Scrubber::new(SECRET, &value).unwrap();
    scrubber.expect_body(&encoded(encoding)).unwrap();
    scrubber
}

/// What leaves of `body` in chunks of `size`, and how it ended.
fn stream(encoding: &'static str, body: &[u8], size: usize) -> (Vec<u8>, Result<(), Reflected>) {
    let mut scrubber = scrubber(encoding);
    let mut left = Vec::new();
    for chunk in body.chunks(size) {
        match scrubber.push(&Bytes::copy_from_slice(chunk)) {
            Ok(bytes) => left.extend_from_slice(&bytes),
            Err(found) => return (left, Err(found)),
        }
    }
    left.extend_from_slice(&scrubber.finish());
    (left, Ok(()))
}

fn forms() -> Vec<Vec<u8>> {
    let text = String::from_utf8(SECRET.to_vec()).unwrap();
    let each =
        |form: &dyn Fn(u8) -> String| SECRET.iter().map(|byte| form(*byte)).collect::<String>();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'~';
    let mut forms = vec![
        SECRET.to_vec(),
        each(&|byte| format!("%{byte:02x}")).into_bytes(),
        each(&|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .into_bytes(),
        each(&|byte| format!("\\u{:04x}", u32::from(byte))).into_bytes(),
        each(&|byte| format!("{byte:02X}")).into_bytes(),
        serde_json::to_vec(&text).unwrap(),
        text.replace('"', "\\\"").replace('/', "\\/").into_bytes(),
    ];
    for before in ["", "a", "ab", "x-access-token:"] {
        let all = [before.as_bytes(), SECRET, b"tail"].concat();
        forms.push(STANDARD.encode(&all).into_bytes());
        forms.push(
            base64::engine::general_purpose::URL_SAFE
                .encode(&all)
                .into_bytes(),
        );
    }
    forms
}

#[test]
fn every_form_is_found_at_every_border_and_nothing_of_it_leaves() {
    for form in forms() {
        let body = [b"<<before>>".as_slice(), &form, b"<<after>>"].concat();
        for size in [1, 3, 7, 31, 1000] {
            let (left, ended) = stream("", &body, size);
            let shown = String::from_utf8_lossy(&form);
            assert!(
                matches!(ended, Err(Reflected::Found(_))),
                "{shown} by {size}"
            );
            assert!(
                left.len() <= b"<<before>>".len() + 24 + 3,
                "{shown} by {size}: {}",
                left.len()
            );
        }
    }
}

#[test]
fn what_is_only_like_it_passes_unchanged_and_at_once() {
    let near = [&SECRET[..SECRET.len() - 1], b"X and more", &SECRET[..10]].concat();
    for size in [1, 5, 1000] {
        let (left, ended) = stream("", &near, size);
        assert_eq!((left, ended), (near.clone(), Ok(())), "{size}");
    }
    let mut scrubber = scrubber("");
    let event = Bytes::from_static(b"data: hello\n\n");
    assert_eq!(
        scrubber.push(&event).unwrap(),
        event,
        "an event is not delayed"
    );
}

fn packed(encoding: &str, text: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            packer.write_all(text).unwrap();
            packer.finish().unwrap()
        }
        "deflate" => {
            let mut packer =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
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

#[test]
fn a_packed_answer_is_looked_into_and_passed_on_as_it_is() {
    let clean: Vec<u8> = (0..2_000_u32)
        .flat_map(|n| format!("{} ", n * 7919).into_bytes())
        .collect();
    let dirty = [&clean[..], SECRET, &clean[..]].concat();
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        for size in [1, 100, 5000] {
            let body = packed(encoding, &clean);
            let (left, ended) = stream(encoding, &body, size);
            assert_eq!(ended, Ok(()), "{encoding} by {size}");
            assert!(left == body, "{encoding} by {size}");
            let body = packed(encoding, &dirty);
            let (left, ended) = stream(encoding, &body, size);
            assert!(
                matches!(ended, Err(Reflected::Found(_))),
                "{encoding} by {size}: {ended:?}"
            );
            assert!(left.len() < body.len());
        }
    }
}

#[test]
fn what_cannot_be_looked_into_does_not_pass() {
    let opaque = |encoding: &'static str| {
        let mut scrubber = Scrubber::new(SECRET, SECRET).unwrap();
        scrubber.expect_body(&encoded(encoding))
    };
    assert_eq!(opaque("compress"), Err(Reflected::Opaque));
    assert_eq!(opaque("gzip, br"), Err(Reflected::Opaque));
    assert_eq!(opaque("identity"), Ok(()));
    let (_, ended) = stream("gzip", b"this is no gzip at all", 5);
    assert_eq!(ended, Err(Reflected::Opaque));
}

#[test]
fn fields_are_looked_through_by_name_and_value() {
    let scrubber = scrubber("");
    let field = |name: &str, value: &[u8]| {
        let mut headers = encoded("");
        headers.insert(
            http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
        scrubber.fields(&headers)
    };
    let value = STANDARD.encode([b"x-access-token:", SECRET].concat());
    let hex: String = SECRET.iter().map(|byte| format!("{byte:02x}")).collect();
    let found = |ended| matches!(ended, Err(Reflected::Found(_)));
    assert!(found(field("x-echo", value.as_bytes())));
    assert!(found(field("x-echo", &[b"<", SECRET].concat())));
    assert!(found(field(&hex, b"1")));
    assert_eq!(field("x-echo", &SECRET[..20]), Ok(()), "control");
    assert!(Scrubber::new(b"short", b"Bearer short").is_none());
}

#[test]
fn only_what_can_be_looked_into_is_asked_for() {
    let asked = |accept: &'static str, range: bool| {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accept));
        }
        if range {
            headers.insert(RANGE, HeaderValue::from_static("bytes=0-9"));
        }
        limit_encodings(&mut headers);
        let left = headers.get(ACCEPT_ENCODING);
        left.map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(asked("", false), None);
    let all = "deflate, GZIP;q=0.5, br, zstd";
    assert_eq!(asked(all, false).unwrap(), all);
    assert_eq!(
        asked("gzip, dcb, compress;q=1, *;q=0.1", false).unwrap(),
        "gzip"
    );
    assert_eq!(asked("dcz", false).unwrap(), "identity");
    assert_eq!(asked("gzip", true).unwrap(), "identity");
}
