//! Targets of requests.

use policy::path::{Slashes, Target};

/// What is taken can be read in one way only, once decoded and even when decoded again.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    opened(text);
    let Ok(target) = Target::parse(text) else {
        return;
    };
    assert!(!target.has_encoded_slash());
    let path = target.path();
    assert!(path.starts_with('/') && !path.contains('\\') && !path.chars().any(char::is_control));
    let segments: Vec<&str> = target.segments().collect();
    assert_eq!(format!("/{}", segments.join("/")), path);
    for segment in segments {
        let bare = segment.split(';').next().unwrap_or(segment);
        assert!(!matches!(bare, "." | ".."), "a dot segment");
    }
    for escape in path.as_bytes().windows(3) {
        let [mark, high, low] = escape else { continue };
        let digits = high.is_ascii_hexdigit() && low.is_ascii_hexdigit();
        assert!(*mark != b'%' || !digits, "an escape is left in {path:?}");
    }
    let raw_path = text.split('?').next().unwrap_or(text);
    if !raw_path.contains('%') {
        assert_eq!(path, raw_path);
    }
    // Written again as any client writes it, it is the same path.
    let mut written = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b';' => {
                written.push(char::from(byte));
            }
            byte => written.push_str(&format!("%{byte:02X}")),
        }
    }
    if written.len() <= 16_384 {
        let again = Target::parse(&written).map(|again| again.path().to_owned());
        assert_eq!(again.as_deref(), Ok(path));
    }
    if let Some(query) = target.query() {
        assert!(text.ends_with(&format!("?{query}")));
        assert!(query.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    let shown = policy::record::redact_target(text);
    assert!(shown.len() <= 2048 + 16 && shown.bytes().all(|byte| byte.is_ascii_graphic()));
}

/// With encoded slashes opened, nothing else is: whoever takes them for slashes resolves nothing,
/// and what has none is read as ever.
fn opened(text: &str) {
    let opened = Target::parse_with(text, Slashes::Segment);
    let raw_path = text.split('?').next().unwrap_or(text).to_ascii_lowercase();
    let Ok(target) = opened.as_ref() else {
        assert!(Target::parse(text).is_err());
        return;
    };
    assert_eq!(target.has_encoded_slash(), raw_path.contains("%2f"));
    if !target.has_encoded_slash() {
        assert_eq!(Target::parse(text), opened);
        return;
    }
    assert!(Target::parse(text).is_err());
    assert_eq!(target.segments().count(), raw_path.matches('/').count());
    for segment in target.segments().filter(|segment| segment.contains('\0')) {
        for part in segment.split('\0') {
            let bare = part.split(';').next().unwrap_or(part);
            assert!(
                !part.is_empty() && !matches!(bare, "." | ".."),
                "{segment:?}"
            );
        }
    }
}
