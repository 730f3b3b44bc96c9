//! The path cases by id, each with its positive control.

use proptest::prelude::*;

use super::*;

/// Attack: PTH-01, PTH-02, PTH-03, PTH-06, PTH-08, PTH-09, PTH-20
#[test]
fn path_cases() {
    use PathError::*;
    let ok = |path: &'static str| Ok(path);
    let cases: &[(&str, &str, Result<&str, PathError>)] = &[
        ("PTH-01", "/repos/me/ok/../../other/secret", Err(DotSegment)),
        ("PTH-01 single", "/repos/./me", Err(DotSegment)),
        ("PTH-01 trailing", "/repos/..", Err(DotSegment)),
        ("PTH-01 trailing single", "/repos/.", Err(DotSegment)),
        (
            "PTH-01 control: dots in a name",
            "/repos/.../a..b/.git",
            ok("/repos/.../a..b/.git"),
        ),
        ("PTH-01 control: dots in a query", "/a?x=/../b", ok("/a")),
        ("PTH-02", "/a/%2e%2e/b", Err(DotSegment)),
        ("PTH-02 upper", "/a/%2E./b", Err(DotSegment)),
        ("PTH-02 mixed", "/a/.%2e/b", Err(DotSegment)),
        ("PTH-02 single", "/a/%2e/b", Err(DotSegment)),
        ("PTH-02 control", "/a/%2ehidden", ok("/a/.hidden")),
        ("PTH-03", "/a%2fb", Err(Slash)),
        ("PTH-03 upper", "/a%2Fb", Err(Slash)),
        ("PTH-03 backslash", "/a%5cb", Err(Backslash)),
        ("PTH-03 control: in a query", "/a?b=%2f%5c", ok("/a")),
        ("PTH-06", "/repos/me/ok;x=/../secret", Err(DotSegment)),
        (
            "PTH-06 dots with a parameter",
            "/repos/me/..;/secret",
            Err(DotSegment),
        ),
        (
            "PTH-06 encoded",
            "/repos/me/%2e%2e%3b/secret",
            Err(DotSegment),
        ),
        (
            "PTH-06 control: kept literally",
            "/repos/me/ok;x=1",
            ok("/repos/me/ok;x=1"),
        ),
        ("PTH-08", "/%72epos/me/secret", ok("/repos/me/secret")),
        ("PTH-08 twice", "/%2572epos/me/secret", Err(DoubleEncoding)),
        ("PTH-08 twice, dots", "/%252e%252e/x", Err(DoubleEncoding)),
        (
            "PTH-08 twice, each byte escaped",
            "/%25%32%65%25%32%65/x",
            Err(DoubleEncoding),
        ),
        ("PTH-08 control: a percent sign", "/100%25", ok("/100%")),
        ("PTH-09", "/a\\..\\b", Err(Backslash)),
        ("PTH-09 nul", "/a%00b", Err(Control)),
        ("PTH-09 crlf", "/a%0d%0ab", Err(Control)),
        ("PTH-09 raw control", "/a\x01b", Err(Control)),
        ("PTH-09 raw delete", "/a\x7fb", Err(Control)),
        ("PTH-09 space", "/a b", Err(Control)),
        ("PTH-09 raw utf-8", "/caf\u{e9}", Err(NotUtf8)),
        ("PTH-09 raw utf-8 in the query", "/a?\u{e9}", Err(Control)),
        (
            "PTH-09 control: encoded utf-8",
            "/caf%C3%A9",
            ok("/caf\u{e9}"),
        ),
        ("PTH-20", "/%c0%ae%c0%ae/x", Err(NotUtf8)),
        ("PTH-20 %u", "/%u002e%u002e/x", Err(BadEscape)),
        ("PTH-20 latin-1", "/caf%e9", Err(NotUtf8)),
        ("PTH-20 c1 control", "/a%c2%80b", Err(Control)),
        ("PTH-20 surrogate", "/%ed%a0%80", Err(NotUtf8)),
        ("PTH-20 short", "/a%2", Err(BadEscape)),
        ("PTH-20 sign", "/a%+1", Err(BadEscape)),
        ("PTH-20 control", "/%E2%82%AC", ok("/\u{20ac}")),
        ("double slash is literal", "//a//b", ok("//a//b")),
        ("fragment", "/a#b", Err(Fragment)),
        ("fragment in the query", "/a?b#c", Err(Fragment)),
        ("asterisk form", "*", Err(NotOriginForm)),
        ("absolute form", "http://a/b", Err(NotOriginForm)),
        ("empty", "", Err(NotOriginForm)),
        ("root", "/", ok("/")),
    ];
    for (id, raw, want) in cases {
        let got = Target::parse(raw);
        assert_eq!(
            got.as_ref().map(Target::path).map_err(|error| *error),
            *want,
            "{id}"
        );
    }
}

#[test]
fn long_targets_are_refused() {
    assert_eq!(Target::parse(&"/a".repeat(8_193)), Err(PathError::TooLong));
    assert!(Target::parse(&"/a".repeat(8_192)).is_ok());
}

#[test]
fn loose_reading_merges_slashes_and_drops_parameters() {
    let target = Target::parse("//a;x=1///b%3Bc/").unwrap();
    assert_eq!(
        target.segments().collect::<Vec<_>>(),
        ["", "a;x=1", "", "", "b;c", ""]
    );
    assert_eq!(target.loose, ["a", "b"]);
}

proptest! {
    /// Encoding any ordinary character changes nothing about how a path is read.
    #[test]
    fn encoding_is_neutral(path in "(/[a-z0-9_~-]{1,8}){1,4}", at in 0usize..40) {
        let ordinary: Vec<usize> = path.match_indices(|c| c != '/').map(|(at, _)| at).collect();
        let at = ordinary[at % ordinary.len()];
        let byte = path.as_bytes()[at];
        let encoded = format!("{}%{byte:02x}{}", &path[..at], &path[at + 1..]);
        let target = Target::parse(&encoded).unwrap();
        prop_assert_eq!(target.path(), path);
    }

    #[test]
    fn accepted_paths_never_climb(raw in "/[a-z./%2eEfF5cC;]{0,24}") {
        if let Ok(target) = Target::parse(&raw) {
            let climbs = |piece: &str| piece == ".." || piece == ".";
            prop_assert!(!target.segments().any(climbs));
            prop_assert!(!target.loose.iter().any(|piece| climbs(piece)));
            prop_assert!(!target.path().contains('\\'));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(raw in "\\PC*") {
        let _ = Target::parse(&raw);
        let _ = Target::parse(&format!("/{raw}"));
    }
}
