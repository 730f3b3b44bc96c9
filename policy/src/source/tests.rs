//! Broken policies: every problem in one pass, with line, key, problem and remedy.

use proptest::prelude::*;

use crate::Policy;

fn problems(text: &str) -> Vec<(usize, String, String, String)> {
    let diagnostics = Policy::parse(text, "p.toml").expect_err("the policy is broken");
    diagnostics
        .problems
        .into_iter()
        .map(|p| (p.line, p.key, p.problem, p.remedy))
        .collect()
}

/// One service of kind http with these lines in place of its own (the first is line 1).
fn one(lines: &str) -> (usize, String, String, String) {
    let mut found = problems(lines);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn all_problems_are_told_in_one_pass_with_their_places() {
    let text = r#"versoin = 1

[[service]]
kind = "http"
host = "api.example.com"
alow = ["GET /v1/**"]
allow = ["get /v1/**", "GET /ok", "GET /a/../b"]

[[service]]
kind = "githib"
repos = ["acme/web"]

[[service]]
kind = "http"
hosts = ["*.com", "good.example.com"]
allow = ["GET /"]
pin = "sha256/short"
"#;
    let diagnostics = Policy::parse(text, "policies/p.toml").unwrap_err();
    assert_eq!(
        diagnostics.to_string(),
        "policies/p.toml:1: versoin: `versoin` is not a key of a policy\n  \
           hint: did you mean `version`?\n\
         policies/p.toml:6: service[1].alow: `alow` is not a key of kind http\n  \
           hint: did you mean `allow`?\n\
         policies/p.toml:7: service[1].allow[1]: `get` is not a method the gate lets through\n  \
           hint: write `GET`\n\
         policies/p.toml:7: service[1].allow[3]: `/a/../b`: the path has a `.` or `..` segment\n  \
           hint: write `METHOD /path` or `METHOD,METHOD /path`, such as `GET /v1/**`\n\
         policies/p.toml:10: service[2].kind: `githib` is not a kind of service\n  \
           hint: did you mean `github`?\n\
         policies/p.toml:15: service[3].hosts[1]: `*.com` covers names that belong to strangers: \
           anybody can have one below `com`\n  \
           hint: list hosts one by one, or `*.your-domain.example` for a domain of your own\n\
         policies/p.toml:17: service[3].pin: `sha256/short` is not a pin\n  \
           hint: write \"sha256/\" and the base64 of the key's SHA-256 (44 characters)"
    );
}

#[test]
fn every_mistake_has_its_own_answer() {
    let http = |line: &str| {
        format!(
            "[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\nallow = [\"GET /\"]\n{line}\n"
        )
    };
    let github = |line: &str| format!("[[service]]\nkind = \"github\"\n{line}\n");
    let cases: Vec<(String, usize, &str, &str, &str)> = vec![
        // text, line, key, part of the problem, part of the remedy
        (http("id = \"a b\""), 5, "service[1].id", "`a b`", "leave it out"),
        (http("why = \"\""), 5, "service[1].why", "one line", "sentence"),
        (http("port = 0"), 5, "service[1].port", "the number 0", "1 to 65535"),
        (http("port = \"443\""), 5, "service[1].port", "\"443\"", "1 to 65535"),
        (http("port = 70000"), 5, "service[1].port", "70000", "1 to 65535"),
        (http("scheme = \"ftp\""), 5, "service[1].scheme", "not a scheme", "http"),
        (http("scheme = \"http\"\ncredential = \"x\""), 6, "service[1].credential", "in the clear", "https"),
        (http("scheme = \"http\"\nca_file = \"/x\""), 6, "service[1].ca_file", "no certificate", "remove"),
        (http("credential = \"Bearer abc\""), 5, "service[1].credential", "a credential's name", "never the secret"),
        (http("address = \"10.0.0.5\""), 5, "service[1].address", "not an address and a port", "10.0.0.5:8006"),
        (http("address = \"169.254.169.254:80\""), 5, "service[1].address", "never dialled", "itself"),
        (http("ca_file = \"ca.pem\""), 5, "service[1].ca_file", "absolute", "/etc"),
        (http("pin = \"sha1/AAAA\""), 5, "service[1].pin", "not a pin", "44 characters"),
        (http("refs = [\"refs/heads/x\"]"), 5, "service[1].refs", "no effect", "push"),
        (http("repos = [\"a/b\"]"), 5, "service[1].repos", "not a key of kind http", "kind github"),
        (http("deny = []"), 5, "service[1].deny", "empty list", "remove"),
        (http("deny = [\"GET /x?y=1\"]"), 5, "service[1].deny[1]", "denies by query", "path"),
        (http("push = [\"POST /x\"]"), 1, "service[1].push", "without `refs`", "refs/heads"),
        (http("hosts = [\"b.example.com\"]"), 3, "service[1].host", "both", "keep `hosts`"),
        (http("zzz = 1"), 5, "service[1].zzz", "not a key", "one of: id"),
        (http("ignore_case = 1"), 5, "service[1].ignore_case", "the number 1", "true or false"),
        (http("trailers = \"yes\""), 5, "service[1].trailers", "\"yes\"", "true or false"),
        (http("trailer = true"), 5, "service[1].trailer", "not a key", "`trailers`"),
        (http("upgrade = true"), 5, "service[1].upgrade", "type boolean", "a list"),
        (http("upgrade = []"), 5, "service[1].upgrade", "empty list", "websocket"),
        (http("upgrade = [\"websockets\"]"), 5, "service[1].upgrade[1]", "not a protocol", "`websocket`"),
        (http("upgrade = [\"h2c\"]"), 5, "service[1].upgrade[1]", "not a protocol", "websocket"),
        (github("repos = [\"a/b\"]\ntrailers = true"), 4, "service[1].trailers", "not a key of kind github", "kind http"),
        ("[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\ndeny = [\"GET /\"]\ntrailers = true".into(), 1, "service[1]", "only denies", "trailers"),
        (github(""), 1, "service[1].repos", "names no repository", "owner/name"),
        (github("repos = []"), 3, "service[1].repos", "empty list", "remove"),
        (github("repos = [\"web\"]"), 3, "service[1].repos[1]", "not a repository", "owner/name"),
        (github("repos = [\"a/b/c\"]"), 3, "service[1].repos[1]", "not a repository", "owner/name"),
        (github("repos = [\"a/..\"]"), 3, "service[1].repos[1]", "not a repository", "owner/name"),
        (github("repos = [\"a/web.git\"]"), 3, "service[1].repos[1]", "ends in .git", "\"a/web\""),
        (github("repos = [\"a/b\"]\nrefs = [\"refs/heads/x\"]"), 4, "service[1].refs", "no effect", "git = \"push\""),
        (github("repos = [\"a/b\"]\ngit = \"push\""), 1, "service[1].refs", "no push without", "refs/heads"),
        (github("repos = [\"a/b\"]\ngit = \"psh\""), 4, "service[1].git", "not a way", "`push`"),
        (github("repos = [\"a/b\"]\ngit = \"none\""), 1, "service[1]", "permits nothing", "remove"),
        (github("repos = [\"*/b\"]\ngit = \"push\"\nrefs = [\"refs/heads/x\"]"), 3, "service[1].repos[1]", "anybody", "owner"),
        (github("repos = [\"a/b\"]\ngit = \"push\"\nrefs = [\"main\"]"), 5, "service[1].refs[1]", "full ref name", "refs/heads/main"),
        (github("repos = [\"a/b\"]\ngit = \"push\"\nrefs = [\"refs/*\"]"), 5, "service[1].refs[1]", "everything else", "separately"),
        (github("repos = [\"a/b\"]\nallow = [\"GET /\"]"), 4, "service[1].allow", "not a key of kind github", "http, proxmox"),
        ("[[service]]\nkind = \"http\"\nallow = [\"GET /\"]".into(), 1, "service[1].host", "where it leads", "host ="),
        ("[[service]]\nhost = \"a.example.com\"".into(), 1, "service[1].kind", "no kind", "http"),
        ("[[service]]\nkind = \"http\"\nhost = \"a.example.com\"".into(), 1, "service[1]", "permits nothing", "remove"),
        ("[[service]]\nkind = \"http\"\nhosts = []\nallow = [\"GET /\"]".into(), 3, "service[1].hosts", "leads nowhere", "list a host"),
        ("[[service]]\nkind = \"http\"\nhost = \"https://a.example.com\"\nallow = [\"GET /\"]".into(), 3, "service[1].host", "", "no scheme"),
        ("[[service]]\nkind = \"http\"\nhost = \"a.example.com:8443\"\nallow = [\"GET /\"]".into(), 3, "service[1].host", "", "under `port`"),
        ("[[service]]\nkind = \"http\"\nhost = \"10.0.0.5\"\nallow = [\"GET /\"]".into(), 3, "service[1].host", "not a public address", "address = \"10.0.0.5:443\""),
        ("[[service]]\nkind = \"http\"\nhost = \"localhost\"\nport = 8080\nallow = [\"GET /\"]".into(), 3, "service[1].host", "this machine", "127.0.0.1:8080"),
        ("[[service]]\nkind = \"http\"\nhost = \"169.254.169.254\"\nallow = [\"GET /\"]".into(), 3, "service[1].host", "never reached", "remove"),
        ("[[service]]\nkind = \"http\"\nhost = \"metadata.google.internal\"\nallow = [\"GET /\"]".into(), 3, "service[1].host", "never reached", "remove"),
        ("[[service]]\nkind = \"http\"\nhost = \"*.example.com\"\naddress = \"10.0.0.5:443\"\nallow = [\"GET /\"]".into(), 4, "service[1].address", "one address", "name the hosts"),
        ("[[service]]\nkind = \"http\"\nhost = \"10.0.0.5\"\naddress = \"10.0.0.6:443\"\nallow = [\"GET /\"]".into(), 4, "service[1].address", "another one", "twice"),
        ("[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\ndeny = [\"GET /\"]\ncredential = \"x\"".into(), 5, "service[1].credential", "injects nothing", "remove"),
        ("[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\ndeny = [\"GET /\"]\naddress = \"10.0.0.1:1\"".into(), 1, "service[1]", "dials nothing", "remove"),
        ("[[service]]\nkind = \"proxmox\"\nhost = \"pve.example.com\"".into(), 1, "service[1].allow", "allows nothing", "/api2/json"),
        ("[[service]]\nkind = \"proxmox\"\nhost = \"pve.example.com\"\nallow = [\"GET /**\"]".into(), 4, "service[1].allow[1]", "not below", "/api2/json/"),
        ("[[service]]\nkind = \"board\"\ncredential = \"x\"".into(), 3, "service[1].credential", "not a key of kind board", "http, github, proxmox"),
        ("service = 1".into(), 1, "service", "not a list of tables", "two brackets"),
        ("[service]\nkind = \"http\"".into(), 1, "service", "not a list of tables", "two brackets"),
        ("version = 2".into(), 1, "version", "version 1", "version = 1"),
        ("version = 1\n[[servce]]\nkind = \"board\"".into(), 2, "servce", "not a key of a policy", "`service`"),
        ("version = 1\n\nkind = = 3".into(), 3, "(syntax)", "", "toml.io"),
    ];
    for (text, line, key, problem, remedy) in cases {
        let got = one(&text);
        assert_eq!((got.0, got.1.as_str()), (line, key), "{text}\n{got:?}");
        assert!(got.2.contains(problem), "{text}\n{got:?}");
        assert!(got.3.contains(remedy), "{text}\n{got:?}");
    }
}

#[test]
fn what_only_the_whole_shows() {
    let service = |more: &str| {
        format!(
            "[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\nallow = [\"GET,POST /x\"]\n{more}\n"
        )
    };
    let two = |a: &str, b: &str| one(&format!("{}{}", service(a), service(b)));
    let got = two("id = \"same\"", "id = \"same\"");
    assert_eq!((got.0, got.1.as_str()), (6, "service[2].id"));
    assert!(got.2.contains("line 1"), "{got:?}");
    let got = two("credential = \"one\"", "credential = \"two\"");
    assert_eq!((got.0, got.1.as_str()), (6, "service[2]"));
    assert!(got.2.contains("another credential"), "{got:?}");
    let got = two("ca_file = \"/a\"", "ca_file = \"/b\"");
    assert!(got.2.contains("in different ways"), "{got:?}");
    // Controls: the same twice is redundant and harmless.
    let same = service("credential = \"one\"\nca_file = \"/a\"");
    assert!(Policy::parse(&format!("{same}{same}"), "p.toml").is_ok());
}

#[test]
fn a_credential_never_shows_in_a_problem() {
    let text = "[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\nallow = [\"GET /\"]\ncredential = \"ghp_S3CRET0123456789\"\n";
    let shown = Policy::parse(text, "p.toml").unwrap_err().to_string();
    assert!(!shown.contains("S3CRET"), "{shown}");
}

#[test]
fn controls_in_a_file_do_not_reach_the_terminal() {
    let text = "\"\\u001b[31m\" = 1\n[[service]]\nkind = \"\\u001b[0m\"\n";
    let shown = Policy::parse(text, "p.toml").unwrap_err().to_string();
    assert!(
        !shown.contains('\u{1b}') && shown.contains("\\u{1b}[31m"),
        "{shown}"
    );
}

#[test]
fn derived_ids_follow_from_what_services_say() {
    let a = "[[service]]\nkind = \"http\"\nhost = \"x.example.com\"\nallow = [\"GET /a\"]\n";
    let b = "[[service]]\nkind = \"http\"\nhost = \"x.example.com\"\nallow = [\"GET /b\"]\n";
    let c = "[[service]]\nid = \"http-x.example.com-1\"\nkind = \"board\"\n";
    let ids = |text: &str| {
        let policy = Policy::parse(text, "p.toml").unwrap();
        policy
            .services()
            .iter()
            .map(|s| (s.id.to_string(), s.allow.join(" ")))
            .collect::<Vec<_>>()
    };
    let want = [
        (
            String::from("http-x.example.com-1"),
            String::from("* /api/**"),
        ),
        (String::from("http-x.example.com-2"), String::from("GET /a")),
        (String::from("http-x.example.com-3"), String::from("GET /b")),
    ];
    assert_eq!(ids(&format!("{a}{b}{c}")), want);
    assert_eq!(ids(&format!("{c}{b}{a}")), want);
}

#[test]
fn every_key_is_documented() {
    let docs = include_str!("../../../docs/policy.md");
    for kind in crate::service::Kind::ALL {
        for key in super::kinds::keys(kind) {
            assert!(
                docs.contains(&format!("| `{key}` |")),
                "{key} of kind {}",
                kind.as_str()
            );
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = Policy::parse(&text, "p.toml");
    }

    /// Damage anywhere in a good policy ends in an answer, never in a panic, and a problem always
    /// stands in a line that exists.
    #[test]
    fn damage_is_answered(at in 0usize..700, cut in 0usize..20, put in "[\"\\[\\]=\\n a-z0-9*/.]{0,4}") {
        let mut text = String::from(include_str!("../../examples/coder.toml"));
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        text.replace_range(at..end, &put);
        if let Err(diagnostics) = Policy::parse(&text, "p.toml") {
            prop_assert!(!diagnostics.problems.is_empty());
            for problem in &diagnostics.problems {
                prop_assert!(problem.line >= 1 && problem.line <= text.lines().count() + 1);
                prop_assert!(!problem.remedy.is_empty() && !problem.key.is_empty());
            }
        }
    }
}

/// Every problem has a key to show, however odd the key of the file is.
#[test]
fn odd_keys_are_shown_as_they_are_written() {
    for (text, key) in [
        ("[\"\"]\n", "\"\""),
        ("\"a b\" = 1\n", "\"a b\""),
        ("a-b_1 = 1\n", "a-b_1"),
        (
            "[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\nallow = [\"GET /\"]\n\"\" = 1\n",
            "service[1].\"\"",
        ),
    ] {
        let found = problems(text);
        assert!(
            found.iter().any(|problem| problem.1 == key),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn a_misspelt_kind_is_named_beside_the_missing_one() {
    let found = problems("version = 1\n[[service]]\nkidn = \"http\"\nhost = \"a.example.com\"\n");
    let told: Vec<_> = found
        .iter()
        .map(|(line, key, ..)| (*line, key.as_str()))
        .collect();
    assert_eq!(told, [(2, "service[1].kind"), (3, "service[1].kidn")]);
    assert!(found[1].3.contains("`kind`"), "{found:?}");
}

#[test]
fn a_push_is_never_written_under_allow() {
    let service = |allow: &str| {
        format!("[[service]]\nkind = \"http\"\nhost = \"a.example.com\"\nallow = [\"{allow}\"]\n")
    };
    for allow in ["POST /o/r/git-receive-pack", "* /**/Git-Receive-Pack"] {
        let found = one(&service(allow));
        assert_eq!((found.0, found.1.as_str()), (4, "service[1].allow[1]"));
        assert!(found.3.contains("`push`"), "{found:?}");
    }
    assert!(
        Policy::parse(&service("POST /o/r/git-upload-pack"), "p").is_ok(),
        "control"
    );
}

#[test]
fn bounds_are_whole_numbers_of_a_known_range_that_bound_something() {
    let service = |kind: &str, rest: &str| format!("[[service]]\nkind = \"{kind}\"\n{rest}");
    let http = |line: &str| {
        let rest = format!("host = \"a.example\"\nallow = [\"GET /\"]\n{line}\n");
        service("http", &rest)
    };
    for line in [
        "max_request_bytes = 0",
        "max_request_bytes = -1",
        "max_request_bytes = 1125899906842625",
        "max_response_bytes = 0x10",
        "max_response_bytes = 1.5",
        "max_response_bytes = \"10 MB\"",
        "max_seconds = 0",
        "max_seconds = 2592001",
        "max_seconds = 99999999999999999999999999",
    ] {
        let key = line.split(' ').next().unwrap_or_default();
        let (at, path, problem, remedy) = one(&http(line));
        assert_eq!((at, path), (5, format!("service[1].{key}")), "{line}");
        assert!(problem.contains("a number from 1 to "), "{line}: {problem}");
        assert!(remedy.starts_with("write a number"), "{line}: {remedy}");
    }
    for line in [
        "max_request_bytes = 1",
        "max_request_bytes = 1_125_899_906_842_624",
        "max_response_bytes = 1",
        "max_seconds = 2592000",
    ] {
        assert!(Policy::parse(&http(line), "p").is_ok(), "control: {line}");
    }
    for (kind, rest) in [
        ("github", "repos = [\"a/b\"]\n"),
        (
            "proxmox",
            "host = \"pve.example\"\nallow = [\"GET /api2/json/version\"]\n",
        ),
        ("board", ""),
    ] {
        let text = service(kind, &format!("{rest}max_seconds = 5\n"));
        let policy = Policy::parse(&text, "p").unwrap();
        assert_eq!(policy.services()[0].max_seconds, Some(5), "{kind}");
    }
    let idle = service(
        "http",
        "host = \"a.example\"\ndeny = [\"GET /\"]\nmax_seconds = 5\n",
    );
    let (_, path, problem, _) = one(&idle);
    assert_eq!(path, "service[1].max_seconds");
    assert!(problem.contains("only denies"), "{problem}");
}
