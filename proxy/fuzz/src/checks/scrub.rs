//! Answers that repeat what was injected, in any form, packing and slicing.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, HeaderValue};

use crate::scrub::{Reflected, Scrubber};

const SECRET: &[u8] = b"s3cret/with\"odd+chars~0123456789";
const PACKINGS: [&str; 6] = ["", "gzip", "deflate", "deflate", "br", "zstd"];

/// The first bytes choose the packing, the form, its place and the slices; the rest is the text. An
/// answer with the secret in it is cut before a form has left whole, one without it passes as it is,
/// and so does one that only claims to be packed, or it is refused.
pub(crate) fn check(bytes: &[u8]) {
    let [packing, form, place, slice, text @ ..] = bytes else {
        return;
    };
    let packing = usize::from(*packing);
    let kind = packing % PACKINGS.len();
    let slice = usize::from(*slice) + 1;
    if packing >= 128 {
        let (left, ended) = streamed(kind, text, slice);
        if ended.is_ok() {
            assert_eq!(left, text, "it is not what was sent");
        }
        return;
    }
    let forms = forms(text);
    let body = packed(kind, text);
    // What is packed is searched too: without its repetitions a text may be a form.
    let stands = |form: &Vec<u8>| stands_in(form, text) || stands_in(form, &body);
    let clean = !forms.iter().any(stands);
    let (left, ended) = streamed(kind, &body, slice);
    match ended {
        Ok(()) => assert_eq!(left, body, "it is not what was sent"),
        Err(how) => assert!(!clean, "{how} without cause"),
    }
    let form = &forms[usize::from(*form) % forms.len()];
    let at = usize::from(*place) * text.len() / 256;
    let body = packed(kind, &[&text[..at], form, &text[at..]].concat());
    let (left, ended) = streamed(kind, &body, slice);
    assert!(
        matches!(ended, Err(Reflected::Found(_))),
        "{} is let through: {ended:?}",
        String::from_utf8_lossy(form)
    );
    assert!(!stands_in(form, &unpacked(kind, &left)), "it has left");
}

fn streamed(kind: usize, body: &[u8], slice: usize) -> (Vec<u8>, Result<(), Reflected>) {
    let value = [b"Bearer ", SECRET].concat();
    let mut scrubber = Scrubber::new(SECRET, &value).unwrap_or_else(|| panic!("it is long"));
    let mut fields = HeaderMap::new();
    if kind > 0 {
        let packing = HeaderValue::from_static(PACKINGS[kind]);
        fields.insert(CONTENT_ENCODING, packing);
    }
    assert_eq!(scrubber.expect_body(&fields), Ok(()));
    let mut left = Vec::new();
    for chunk in body.chunks(slice) {
        match scrubber.push(&Bytes::copy_from_slice(chunk)) {
            Ok(bytes) => left.extend_from_slice(&bytes),
            Err(how) => return (left, Err(how)),
        }
    }
    left.extend_from_slice(&scrubber.finish());
    (left, Ok(()))
}

/// The secret in every form that is listed; of base64 with a few bytes of the text before it.
fn forms(text: &[u8]) -> Vec<Vec<u8>> {
    let each = |form: &dyn Fn(u8) -> String| {
        let all: String = SECRET.iter().map(|byte| form(*byte)).collect();
        all.into_bytes()
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let some = |byte: u8, upper: bool| match (plain(byte), upper) {
        (true, _) => char::from(byte).to_string(),
        (false, true) => format!("%{byte:02X}"),
        (false, false) => format!("%{byte:02x}"),
    };
    let json = |byte: u8, slash: bool| match byte {
        b'"' => "\\\"".to_owned(),
        b'/' if slash => "\\/".to_owned(),
        byte => char::from(byte).to_string(),
    };
    let mut forms = vec![
        SECRET.to_vec(),
        each(&|byte| some(byte, true)),
        each(&|byte| some(byte, false)),
        each(&|byte| format!("%{byte:02X}")),
        each(&|byte| format!("%{byte:02x}")),
        each(&|byte| format!("{byte:02X}")),
        each(&|byte| format!("{byte:02x}")),
        each(&|byte| format!("\\u{:04X}", u32::from(byte))),
        each(&|byte| format!("\\u{:04x}", u32::from(byte))),
        each(&|byte| json(byte, false)),
        each(&|byte| json(byte, true)),
    ];
    for before in 0..3 {
        let before = text.get(..before).unwrap_or_default();
        let all = [before, SECRET, b"!"].concat();
        for encoded in [STANDARD.encode(&all), URL_SAFE.encode(&all)] {
            // What depends on the bytes around it is no part of the form.
            let front = [0, 2, 3][before.len()];
            let back = (before.len() + SECRET.len()) * 4 / 3;
            forms.push(encoded.as_bytes()[front..back].to_vec());
        }
    }
    forms
}

fn stands_in(form: &[u8], text: &[u8]) -> bool {
    text.windows(form.len()).any(|window| window == form)
}

fn packed(kind: usize, text: &[u8]) -> Vec<u8> {
    let fast = flate2::Compression::fast();
    let packed = match kind {
        0 => Ok(text.to_vec()),
        1 => {
            let mut to = flate2::write::GzEncoder::new(Vec::new(), fast);
            to.write_all(text).and_then(|()| to.finish())
        }
        2 => {
            let mut to = flate2::write::ZlibEncoder::new(Vec::new(), fast);
            to.write_all(text).and_then(|()| to.finish())
        }
        3 => {
            let mut to = flate2::write::DeflateEncoder::new(Vec::new(), fast);
            to.write_all(text).and_then(|()| to.finish())
        }
        4 => {
            let mut to = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 18);
            to.write_all(text).map(|()| to.into_inner())
        }
        _ => zstd::stream::encode_all(text, 1),
    };
    packed.unwrap_or_else(|problem| panic!("{problem}"))
}

/// As much of a packed beginning as a client can read.
fn unpacked(kind: usize, beginning: &[u8]) -> Vec<u8> {
    use std::io::Read as _;
    let mut source: Box<dyn std::io::Read + '_> = match kind {
        0 => Box::new(beginning),
        1 => Box::new(flate2::read::MultiGzDecoder::new(beginning)),
        2 => Box::new(flate2::read::ZlibDecoder::new(beginning)),
        3 => Box::new(flate2::read::DeflateDecoder::new(beginning)),
        4 => Box::new(brotli::Decompressor::new(beginning, 4096)),
        _ => match zstd::stream::read::Decoder::new(beginning) {
            Ok(decoder) => Box::new(decoder),
            Err(problem) => panic!("{problem}"),
        },
    };
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    // Where it breaks off is the end of what can be read.
    while let Ok(read) = source.read(&mut buffer) {
        if read == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..read]);
    }
    text
}
