use super::*;
use crate::authority::Host;
use crate::path::Target;

fn entry(text: &str) -> Entry {
    Entry::parse(text).unwrap_or_else(|(problem, _)| panic!("{problem}"))
}

fn covers(text: &str, target: &str) -> bool {
    entry(text).covers_target(&Target::parse(target).unwrap(), Case::Exact)
}

#[test]
fn stars_stay_within_their_segment_and_double_stars_span() {
    for (pattern, target, want) in [
        ("GET /", "/", true),
        ("GET /", "/a", false),
        ("GET /*", "/a", true),
        ("GET /*", "/a/b", false),
        ("GET /**", "/", true),
        ("GET /**", "/a/b/c", true),
        ("GET /v1/**", "/v1", true),
        ("GET /v1/**", "/v1/", true),
        ("GET /v1/**", "/v1/a/b", true),
        ("GET /v1/**", "/v10", false),
        ("GET /v1/**", "/v2/a", false),
        ("GET /a/**/z", "/a/z", true),
        ("GET /a/**/z", "/a/b/c/z", true),
        ("GET /a/**/z", "/a/b/c", false),
        ("GET /a/**/m/**/z", "/a/m/m/z/z", true),
        ("GET /a/x*y", "/a/xy", true),
        ("GET /a/x*y", "/a/x-1-y", true),
        ("GET /a/x*y", "/a/x/y", false),
        ("GET /a/*b*c", "/a/bbcbc", true),
        ("GET /a", "/a/", false),
        ("GET /a", "//a", false),
        ("GET /a", "/A", false),
        ("GET /a", "/a?x=1", true),
        ("GET /a?x=1", "/a?x=1", true),
        ("GET /a?x=1", "/a?x=1&y=2", false),
        ("GET /a?x=1", "/a", false),
        ("GET /a%41", "/aA", true),
    ] {
        assert_eq!(covers(pattern, target), want, "{pattern} on {target}");
    }
}

#[test]
fn denying_reads_paths_widely() {
    let deny = entry("* /admin/**").loosened();
    for target in [
        "/admin",
        "/admin/",
        "//admin/x",
        "/ADMIN/x",
        "/admin;x/y",
        "/%61dmin/y",
    ] {
        assert!(
            deny.denies(Method::Get, &Target::parse(target).unwrap()),
            "{target}"
        );
    }
    for target in ["/administrator", "/x/admin", "/"] {
        assert!(
            !deny.denies(Method::Get, &Target::parse(target).unwrap()),
            "{target}"
        );
    }
}

#[test]
fn many_stars_cost_no_more_than_the_product() {
    let pattern = format!("GET /{}z", "*a".repeat(60));
    assert!(!covers(&pattern, &format!("/{}", "a".repeat(8_000))));
    let pattern = format!("GET {}/z", "/**/a".repeat(40));
    assert!(!covers(&pattern, &"/a".repeat(4_000)));
}

/// Attack: PTH-19
#[test]
fn pth_19_odd_methods_are_unknown() {
    for text in [
        "get", "FOO", "PROPFIND", "GET ", " GET", "TRACE", "TRACK", "CONNECT", "", "*",
    ] {
        assert_eq!(Method::parse(text), None, "{text:?}");
    }
    assert_eq!(Method::names().filter_map(Method::parse).count(), 7);
}

#[test]
fn bad_entries_say_why() {
    for (text, part) in [
        ("/v1", "names no method"),
        ("get /v1", "`get` is not a method"),
        ("TRACE /v1", "`TRACE` is not a method"),
        ("GET,FOO /v1", "`FOO`"),
        ("GET v1", "does not start with"),
        ("GET /a/../b", "segment"),
        ("GET /a**", "beside other characters"),
        ("GET  /a", "more than one space"),
        ("GET", "not a method and a path"),
        ("GET /%2A", "encoded `*`"),
    ] {
        let (problem, remedy) = Entry::parse(text).unwrap_err();
        assert!(problem.contains(part), "{text}: {problem}");
        assert!(!remedy.is_empty());
    }
}

/// Attack: DST-06
#[test]
fn dst_06_wide_host_patterns_are_refused() {
    for text in [
        "*",
        "*.com",
        "*.",
        "*.github.io",
        "*.co.uk",
        "a.*.com",
        "*a.example.com",
        "**.example.com",
        "*.*.example.com",
        "*.127.0.0.1",
        "*.internal",
        "*.amazonaws.com",
        "",
    ] {
        assert!(HostPattern::parse(text).is_err(), "{text}");
    }
    let pattern = HostPattern::parse("*.Example.COM.").unwrap();
    assert_eq!(pattern.to_string(), "*.example.com");
    for (host, want) in [
        ("a.example.com", true),
        ("a.b.example.com", true),
        ("example.com", false),
        ("evilexample.com", false),
        ("example.com.evil.test", false),
    ] {
        assert_eq!(pattern.matches(&Host::parse(host).unwrap()), want, "{host}");
    }
}

#[test]
fn wider_patterns_cover_narrower_ones() {
    let parse = |text| HostPattern::parse(text).unwrap();
    assert!(parse("*.example.com").covers(&parse("*.a.example.com")));
    assert!(parse("*.example.com").covers(&parse("*.example.com")));
    assert!(parse("*.example.com").covers(&parse("a.example.com")));
    assert!(!parse("*.example.com").covers(&parse("example.com")));
    assert!(!parse("*.a.example.com").covers(&parse("*.example.com")));
    assert!(!parse("a.example.com").covers(&parse("*.a.example.com")));
}

#[test]
fn ref_globs_follow_git() {
    let glob = |text| RefGlob::parse(text).unwrap();
    assert!(glob("refs/heads/agent/*").matches("refs/heads/agent/a"));
    assert!(glob("refs/heads/agent/*").matches("refs/heads/agent/a/b"));
    assert!(!glob("refs/heads/agent/*").matches("refs/heads/agent/"));
    assert!(!glob("refs/heads/agent/*").matches("refs/heads/agent"));
    assert!(!glob("refs/heads/agent/*").matches("refs/heads/main"));
    assert!(glob("refs/heads/*-wip").matches("refs/heads/x-wip"));
    assert!(glob("refs/heads/main").matches("refs/heads/main"));
    assert!(!glob("refs/heads/main").matches("refs/heads/Main"));
    for text in [
        "main",
        "refs/*",
        "refs/heads",
        "refs/heads/*/x/*",
        "refs/heads/a..b",
        "refs/heads/",
        "*",
        "refs/h*/x",
        "heads/main",
        "refs/heads/a b",
    ] {
        assert!(RefGlob::parse(text).is_err(), "{text}");
    }
}
