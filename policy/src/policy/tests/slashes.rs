//! Encoded slashes: refused, unless a service opens them as characters of a segment.

use proptest::prelude::*;

use super::*;

const HOST: &str = "packages.example.com";

fn service(keys: &str) -> Policy {
    policy(&format!(
        "[[service]]\nid = \"npm\"\nkind = \"http\"\nhost = \"{HOST}\"\n{keys}\n"
    ))
}

fn get(policy: &Policy, target: &str) -> Outcome {
    ask(policy, "GET", &format!("https://{HOST}{target}"))
}

/// Attack: PTH-03
#[test]
fn an_encoded_slash_is_a_character_of_its_segment_where_a_service_opens_it() {
    let open = |allow: &str| service(&format!("encoded_slash = \"segment\"\nallow = [{allow}]"));
    let names = open("\"GET /*\", \"GET /projects/*/files/src%2F*\"");
    let shut = service("allow = [\"GET /*\", \"GET /projects/*/files/*\"]");
    for target in [
        "/@a%2fb",
        "/@a%2Fb",
        "/%40a%2fb",
        "/projects/group%2fproject/files/src%2fmain.rs",
        "/projects/a%2Fb%2Fc/files/src%2fx%2fy",
    ] {
        assert!(get(&names, target).permits(), "{target}");
        let refused = get(&shut, target);
        assert_eq!(refused.code(), Some(Code::AmbiguousPath), "{target}");
        let Outcome::Refuse { remedy, .. } = refused else {
            panic!("{refused:?}")
        };
        assert!(remedy.contains("encoded_slash = \"segment\""), "{remedy}");
    }
    assert!(get(&shut, "/left").permits(), "control");

    // It is never the slash of a glob, nor is a slash ever it.
    for (target, code) in [
        ("/a/b", Code::PathNotAllowed),
        ("/projects%2fa/files/src%2fx", Code::PathNotAllowed),
        ("/projects/a/files%2fsrc%2fx", Code::PathNotAllowed),
        ("/projects/a/files/src/x", Code::PathNotAllowed),
        ("/projects/a/files/srcx", Code::PathNotAllowed),
        ("/projects/a/files/src%252fx", Code::AmbiguousPath),
    ] {
        assert_eq!(get(&names, target).code(), Some(code), "{target}");
    }
    let deep = open("\"GET /v1/**\"");
    assert!(get(&deep, "/v1/a%2fb/c").permits());
    assert_eq!(get(&deep, "/v1%2fa").code(), Some(Code::PathNotAllowed));
}

/// Attack: PTH-01, PTH-02, PTH-03, PTH-06, PTH-08
#[test]
fn what_an_upstream_could_resolve_is_refused_round_an_open_slash_too() {
    let policy = service("encoded_slash = \"segment\"\nallow = [\"GET /**\"]");
    for target in [
        "/..%2f",
        "/..%2fa",
        "/a%2f..",
        "/a%2f..%2fb",
        "/a%2f.%2fb",
        "/%2e%2e%2fa",
        "/%2e%2e%2f",
        "/a%2f%2e%2e%2fb",
        "/a%2f..;x=1%2fb",
        "/a%2F..%2Fb",
        "/a%252fb",
        "/a%252f..%252fb",
        "/a%25%32%66b",
        "/a%2f%252e%252e",
        "/%2fa",
        "/a%2f",
        "/a%2f/b",
        "/a/%2fb",
        "/a%2f%2fb",
        "/%2f",
        "/a%5cb",
        "/a%2f..%5cb",
        "/a%2f%00b",
        "/a%00b",
        "/a%2f%0ab",
        "/a%c0%afb",
    ] {
        assert_eq!(
            get(&policy, target).code(),
            Some(Code::AmbiguousPath),
            "{target}"
        );
    }
    for target in [
        "/a%2fb",
        "/a%2f..b",
        "/a..%2fb",
        "/a%2f...",
        "/a%2f.b",
        "/a?b=%2f..%2f",
    ] {
        assert!(get(&policy, target).permits(), "control: {target}");
    }
}

/// Attack: PTH-03, PTH-22
#[test]
fn deny_reads_an_encoded_slash_both_ways_and_no_push_has_one() {
    let policy = service(
        "encoded_slash = \"segment\"\nallow = [\"GET,POST /**\"]\n\
         deny = [\"* /admin/**\", \"* /@evil*\", \"* /groups/a%2Fsecret\"]\n\
         push = [\"POST /*/*/git-receive-pack\", \"POST /*/git-receive-pack\"]\n\
         refs = [\"refs/heads/agent/*\"]",
    );
    for target in [
        "/admin%2fusers",
        "/ADMIN%2Fusers",
        "//admin%2fusers",
        "/admin;x%2fusers",
        "/@evil%2fpackage",
        "//@evil%2fpackage",
        "/groups/a%2fsecret",
        "/groups/a/secret",
        "/groups%2fa%2fsecret",
    ] {
        assert_eq!(
            get(&policy, target).code(),
            Some(Code::DeniedByRule),
            "{target}"
        );
    }
    for target in [
        "/administration%2fusers",
        "/@good%2fpackage",
        "/groups/a%2fopen",
    ] {
        assert!(get(&policy, target).permits(), "control: {target}");
    }
    let push = |target: &str| ask(&policy, "POST", &format!("https://{HOST}{target}"));
    for target in [
        "/a%2fb/git-receive-pack",
        "/a/b%2fgit-receive-pack",
        "/a%2fb%2fgit-receive-pack",
        "/a%2fb%2fc%2fgit-receive-pack",
    ] {
        let code = push(target).code();
        assert!(
            matches!(code, Some(Code::AmbiguousPath | Code::PushNotAllowed)),
            "{target}: {code:?}"
        );
    }
    assert_eq!(push("/a/b/git-receive-pack"), Outcome::Inspect, "control");
    assert!(push("/a%2fb/notes").permits(), "control");
}

/// Attack: PTH-03
#[test]
fn only_the_service_that_opens_it_allows_it() {
    let text = format!(
        "[[service]]\nid = \"open\"\nkind = \"http\"\nhost = \"{HOST}\"\n\
         encoded_slash = \"segment\"\nallow = [\"GET /names/*\"]\ncredential = \"names\"\n\
         [[service]]\nid = \"shut\"\nkind = \"http\"\nhost = \"{HOST}\"\n\
         allow = [\"GET /**\"]\n",
    );
    let policy = policy(&text);
    let by = |target: &str| match get(&policy, target) {
        Outcome::Permit { rule, .. } => rule,
        other @ (Outcome::Refuse { .. } | Outcome::Inspect) => panic!("{target}: {other:?}"),
    };
    assert_eq!(by("/names/a%2fb"), "open");
    assert_eq!(by("/other/a"), "shut");
    let refused = get(&policy, "/other/a%2fb");
    assert_eq!(refused.code(), Some(Code::PathNotAllowed));
    let Outcome::Refuse { rule, remedy, .. } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(rule.as_deref(), Some("open"), "{remedy}");
    // The expansion says the same.
    let again = super::policy(&policy.expanded());
    assert!(get(&again, "/names/a%2fb").permits());
    assert_eq!(
        get(&again, "/other/a%2fb").code(),
        Some(Code::PathNotAllowed)
    );
}

#[test]
fn what_would_have_no_effect_does_not_load() {
    let problem = |keys: &str| {
        let text = format!("[[service]]\nkind = \"http\"\nhost = \"{HOST}\"\n{keys}\n");
        Policy::parse(&text, "test.toml").unwrap_err().to_string()
    };
    let open = "encoded_slash = \"segment\"\n";
    for (keys, wanted) in [
        (
            "allow = [\"GET /a%2fb\"]".to_owned(),
            "add `encoded_slash = \"segment\"`",
        ),
        (
            format!("{open}allow = [\"GET /a%2f..%2fb\"]"),
            "`..` segment",
        ),
        (
            format!("{open}allow = [\"GET /a%2f\"]"),
            "does not stand between",
        ),
        (
            format!("{open}deny = [\"GET /a\"]"),
            "opens no encoded slash",
        ),
        (
            format!("{open}push = [\"POST /a%2fb/git-receive-pack\"]\nrefs = [\"refs/heads/a\"]"),
            "git sends no encoded ones",
        ),
        (
            "encoded_slash = \"segments\"\nallow = [\"GET /a\"]".to_owned(),
            "did you mean `segment`?",
        ),
        (
            "encoded_slash = true\nallow = [\"GET /a\"]".to_owned(),
            "text in quotes",
        ),
    ] {
        let told = problem(&keys);
        assert!(told.contains(wanted), "{keys}\n{told}");
        assert_eq!(told.matches("hint:").count(), 1, "{told}");
    }
    let told = Policy::parse(
        "[[service]]\nkind = \"github\"\nrepos = [\"a/b\"]\nencoded_slash = \"segment\"\n",
        "test.toml",
    );
    assert!(
        told.unwrap_err()
            .to_string()
            .contains("it belongs to kind http, proxmox")
    );
    let pve = policy(
        "[[service]]\nkind = \"proxmox\"\nhost = \"pve.example.com\"\nencoded_slash = \"segment\"\n\
         allow = [\"GET /api2/json/nodes/*/storage/local/content/*\"]\n",
    );
    let ask = |target: &str| {
        let url = format!("https://pve.example.com:8006/api2/json/nodes/pve/storage{target}");
        super::ask(&pve, "GET", &url)
    };
    assert!(ask("/local/content/local:iso%2Fa.iso").permits());
    assert!(!ask("/local%2fcontent/local:iso").permits());
}

/// Whether a path that decodes encoded slashes and resolves dots leaves what the rule is about.
fn resolved(target: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let text = target.to_ascii_lowercase();
    let text = text
        .replace("%2f", "/")
        .replace("%2e", ".")
        .replace("%5c", "\\");
    for piece in text.split(['/', '\\']) {
        match piece.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => {
                out.pop();
            }
            piece => out.push(piece.to_owned()),
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever is allowed below a prefix stays there even for an upstream that decodes slashes,
    /// and a rule for one segment never opens two.
    /// Attack: PTH-03
    #[test]
    fn an_open_slash_never_leaves_its_segment(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("%2f"), Just("%2F"), Just("/"), Just(".."), Just("."), Just("%2e"),
                Just("%2E%2e"), Just("%252f"), Just("%5c"), Just(";"), Just("a"), Just("admin"),
                Just("%61"), Just("%00"),
            ],
            0..8,
        ),
    ) {
        let target = format!("/v1/{}", parts.concat());
        let below = service("encoded_slash = \"segment\"\nallow = [\"GET /v1/**\"]\ndeny = [\"* /v1/admin/**\"]");
        if get(&below, &target).permits() {
            let resolved = resolved(&target.replace("%61", "a"));
            prop_assert_eq!(resolved.first().map(String::as_str), Some("v1"), "{}", target);
            prop_assert!(resolved.get(1).map(String::as_str) != Some("admin"), "{}", target);
        }
        let one = service("encoded_slash = \"segment\"\nallow = [\"GET /v1/*\"]");
        if get(&one, &target).permits() {
            prop_assert_eq!(target.matches('/').count(), 2, "{}", target);
        }
        // Without the key nothing that has one passes; without one the key changes nothing.
        let shut = service("allow = [\"GET /v1/**\"]\ndeny = [\"* /v1/admin/**\"]");
        let has = target.to_ascii_lowercase().contains("%2f");
        prop_assert!(!has || !get(&shut, &target).permits(), "{}", target);
        prop_assert!(has || get(&shut, &target) == get(&below, &target), "{}", target);
    }
}
