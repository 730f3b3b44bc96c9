//! Fields of requests and responses, of which none may carry a client's credential on.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::strip;

/// The lines of an input are fields. What is left of them is a part of them, has no credential under
/// any spelling, and loses nothing more when stripped again.
pub(crate) fn check(bytes: &[u8]) {
    let mut given = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(64) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            given.append(name, value);
        }
    }
    let mut left = given.clone();
    strip::request(&mut left);
    is_part(&left, &given);
    for name in left.keys() {
        let plain = name
            .as_str()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let bad = [
            "authorization",
            "cookie",
            "api-key",
            "host",
            "connection",
            "transfer-encoding",
        ];
        let bad = bad.contains(&plain.as_str())
            && (plain != "transfer-encoding" || name.as_str() != plain);
        assert!(!bad && !plain.starts_with("proxy-"), "{name} is left");
    }
    let mut again = left.clone();
    strip::request(&mut again);
    assert_eq!(again, left);

    let injected = HeaderValue::from_static("Bearer s3cret");
    let mut left = given.clone();
    strip::response(&mut left, Some(&injected));
    is_part(&left, &given);
    for (name, value) in &left {
        let shown = value.as_bytes().windows(6).any(|six| six == b"s3cret");
        assert!(!shown, "{name} shows what was injected");
        assert!(name.as_str() != "set-cookie" && name.as_str() != "alt-svc");
    }
}

fn is_part(left: &HeaderMap, given: &HeaderMap) {
    for name in left.keys() {
        assert!(
            left.get_all(name).iter().eq(given.get_all(name).iter()),
            "{name} has changed"
        );
    }
}
