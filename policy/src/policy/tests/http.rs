//! Destinations, methods, paths, precedence.

use super::*;

pub(super) const TEXT: &str = r#"
[[service]]
id = "github-api"
kind = "http"
host = "api.github.com"
allow = ["GET /repos/me/**", "POST /repos/me/*/issues"]
deny = ["* /repos/me/private/**"]
credential = "github"
why = "reading our own repositories"

[[service]]
id = "site"
kind = "http"
host = "github.com"
allow = ["GET /**"]

[[service]]
id = "wide"
kind = "http"
host = "*.example.org"
allow = ["GET /open/**"]

[[service]]
id = "narrow"
kind = "http"
host = "a.example.org"
allow = ["GET /narrow/**"]
ca_file = "/etc/ca.pem"

[[service]]
id = "no-admin"
kind = "http"
host = "*.example.org"
deny = ["* /open/admin/**"]

[[service]]
id = "plain"
kind = "http"
host = "plain.example.net"
scheme = "http"
allow = ["GET /"]
"#;

/// Attack: CRD-07, DST-01, DST-02, DST-04, DST-07, DST-17, DST-19
#[test]
fn destinations() {
    let policy = policy(TEXT);
    let cases: &[(&str, &str, Option<Code>)] = &[
        ("control", "https://api.github.com/repos/me/x", None),
        ("DST-01", "https://API.GitHub.COM/repos/me/x", None),
        ("DST-02", "https://api.github.com./repos/me/x", None),
        (
            "port spelt out",
            "https://api.github.com:443/repos/me/x",
            None,
        ),
        (
            "DST-04 prefix",
            "https://evilgithub.com/",
            Some(Code::DestinationNotListed),
        ),
        (
            "DST-04 suffix",
            "https://github.com.evil.example/",
            Some(Code::DestinationNotListed),
        ),
        (
            "DST-04 both",
            "https://api.github.com.evil/",
            Some(Code::DestinationNotListed),
        ),
        (
            "DST-04 label",
            "https://xapi.github.com/",
            Some(Code::DestinationNotListed),
        ),
        (
            "DST-07 punycode",
            "https://xn--gthub-2ya.com/",
            Some(Code::DestinationNotListed),
        ),
        (
            "DST-17",
            "https://140.82.121.4/",
            Some(Code::DestinationNotListed),
        ),
        (
            "DST-17 v6",
            "https://[2606:50c0:8000::153]/",
            Some(Code::DestinationNotListed),
        ),
        (
            "DST-19 ssh",
            "https://github.com:22/",
            Some(Code::PortNotListed),
        ),
        (
            "DST-19 smtp",
            "https://github.com:25/",
            Some(Code::PortNotListed),
        ),
        (
            "DST-19 other",
            "https://github.com:8443/",
            Some(Code::PortNotListed),
        ),
        (
            "DST-19 redis",
            "https://github.com:6379/",
            Some(Code::PortNotListed),
        ),
        (
            "CRD-07 plain http",
            "http://api.github.com:443/repos/me/x",
            Some(Code::SchemeNotListed),
        ),
        (
            "CRD-07 plain http, port 80",
            "http://github.com/",
            Some(Code::PortNotListed),
        ),
        ("http control", "http://plain.example.net/", None),
        (
            "http only",
            "https://plain.example.net:80/",
            Some(Code::SchemeNotListed),
        ),
        ("wild control", "https://b.example.org/open/x", None),
        ("wild, two labels", "https://c.b.example.org/open/x", None),
        (
            "wild, apex",
            "https://example.org/open/x",
            Some(Code::DestinationNotListed),
        ),
        (
            "wild, look-alike",
            "https://evilexample.org/open/x",
            Some(Code::DestinationNotListed),
        ),
    ];
    for (id, url, want) in cases {
        assert_eq!(ask(&policy, "GET", url).code(), *want, "{id}");
    }
}

/// Attack: CRD-11, PTH-01, PTH-02, PTH-03, PTH-06, PTH-08, PTH-09, PTH-15, PTH-19, PTH-20
#[test]
fn methods_and_paths() {
    let policy = policy(TEXT);
    let cases: &[(&str, &str, &str, Option<Code>)] = &[
        ("control", "GET", "/repos/me/ok", None),
        ("control: post", "POST", "/repos/me/ok/issues", None),
        (
            "method",
            "DELETE",
            "/repos/me/ok",
            Some(Code::MethodNotAllowed),
        ),
        (
            "HEAD is not GET",
            "HEAD",
            "/repos/me/ok",
            Some(Code::MethodNotAllowed),
        ),
        ("path", "GET", "/user", Some(Code::PathNotAllowed)),
        (
            "PTH-01",
            "GET",
            "/repos/me/ok/../../other/x",
            Some(Code::AmbiguousPath),
        ),
        (
            "PTH-02",
            "GET",
            "/repos/me/%2e%2e/other",
            Some(Code::AmbiguousPath),
        ),
        ("PTH-03", "GET", "/repos/me%2fok", Some(Code::AmbiguousPath)),
        (
            "PTH-06",
            "GET",
            "/repos/me/ok;x=/../secret",
            Some(Code::AmbiguousPath),
        ),
        ("PTH-08", "GET", "/%72epos/me/ok", None),
        (
            "PTH-08 refused alike",
            "GET",
            "/%75ser",
            Some(Code::PathNotAllowed),
        ),
        ("PTH-09", "GET", "/repos/me/a\\b", Some(Code::AmbiguousPath)),
        (
            "PTH-09 nul",
            "GET",
            "/repos/me/a%00",
            Some(Code::AmbiguousPath),
        ),
        (
            "PTH-20",
            "GET",
            "/repos/me/%c0%ae%c0%ae",
            Some(Code::AmbiguousPath),
        ),
        (
            "PTH-19 lower",
            "get",
            "/repos/me/ok",
            Some(Code::MethodRefused),
        ),
        (
            "PTH-19 unknown",
            "FOO",
            "/repos/me/ok",
            Some(Code::MethodRefused),
        ),
        (
            "PTH-19 webdav",
            "PROPFIND",
            "/repos/me/ok",
            Some(Code::MethodRefused),
        ),
        (
            "PTH-19 space",
            "GET ",
            "/repos/me/ok",
            Some(Code::MethodRefused),
        ),
        ("CRD-11", "TRACE", "/repos/me/ok", Some(Code::MethodRefused)),
        (
            "CONNECT inside",
            "CONNECT",
            "/repos/me/ok",
            Some(Code::MethodRefused),
        ),
        (
            "PTH-15 by id",
            "GET",
            "/repositories/1",
            Some(Code::PathNotAllowed),
        ),
        (
            "PTH-15 graphql",
            "POST",
            "/graphql",
            Some(Code::PathNotAllowed),
        ),
        (
            "PTH-22 deny",
            "GET",
            "/repos/me/private/x",
            Some(Code::DeniedByRule),
        ),
        (
            "PTH-22 deny itself",
            "GET",
            "/repos/me/private",
            Some(Code::DeniedByRule),
        ),
        (
            "PTH-22 deny, case",
            "GET",
            "/repos/me/Private/x",
            Some(Code::DeniedByRule),
        ),
        (
            "PTH-22 deny, slashes",
            "GET",
            "/repos/me//private/x",
            Some(Code::DeniedByRule),
        ),
        (
            "PTH-22 deny, parameter",
            "GET",
            "/repos/me/private;a/x",
            Some(Code::DeniedByRule),
        ),
        (
            "PTH-22 deny, encoded",
            "GET",
            "/repos/me/%70rivate/x",
            Some(Code::DeniedByRule),
        ),
        ("PTH-22 control", "GET", "/repos/me/privateer/x", None),
    ];
    for (id, method, path, want) in cases {
        let url = format!("https://api.github.com{path}");
        assert_eq!(ask(&policy, method, &url).code(), *want, "{id}");
    }
}

/// Attack: PTH-22
#[test]
fn pth_22_every_rule_of_an_authority_counts_and_deny_wins() {
    let policy = policy(TEXT);
    assert!(ask(&policy, "GET", "https://a.example.org/narrow/x").permits());
    assert!(ask(&policy, "GET", "https://a.example.org/open/x").permits());
    assert!(!ask(&policy, "GET", "https://b.example.org/narrow/x").permits());
    for host in ["a", "b", "c.d"] {
        let outcome = ask(
            &policy,
            "GET",
            &format!("https://{host}.example.org/open/admin"),
        );
        assert_eq!(outcome.code(), Some(Code::DeniedByRule), "{host}");
    }
    // The narrowest service that opens the host says how it is reached.
    let route = |host: &str| match policy.route(
        Scheme::Https,
        &Authority::parse(&format!("{host}.example.org:443")).unwrap(),
    ) {
        Routing::Route(route) => route,
        Routing::Refuse(refusal) => panic!("{refusal}"),
    };
    assert_eq!(route("a").tls().ca_file.as_deref(), Some("/etc/ca.pem"));
    assert_eq!(route("b").tls().ca_file, None);
}

#[test]
fn two_credentials_for_one_request_cancel_each_other() {
    let policy = policy(
        r#"
        [[service]]
        id = "b"
        kind = "http"
        host = "api.example.com"
        allow = ["GET /v1/**"]
        credential = "one"

        [[service]]
        id = "a"
        kind = "http"
        host = "api.example.com"
        allow = ["GET /*/items"]
        credential = "two"

        [[service]]
        id = "0"
        kind = "http"
        host = "api.example.com"
        allow = ["GET /**"]
        "#,
    );
    let both = ask(&policy, "GET", "https://api.example.com/v1/items");
    assert_eq!(both.code(), Some(Code::AmbiguousCredential));
    let permit = |rule: &str, credential: Option<&str>| Outcome::Permit {
        rule: rule.to_owned(),
        credential: credential.map(str::to_owned),
        run_token: false,
    };
    // The rule that injects is the one that is reported, though `0` allows as well.
    assert_eq!(
        ask(&policy, "GET", "https://api.example.com/v1/x"),
        permit("b", Some("one"))
    );
    assert_eq!(
        ask(&policy, "GET", "https://api.example.com/v2/items"),
        permit("a", Some("two"))
    );
    assert_eq!(
        ask(&policy, "GET", "https://api.example.com/v2/x"),
        permit("0", None)
    );
}

#[test]
fn judging_looks_at_one_hosts_rules_only() {
    let mut text = String::new();
    for n in 0..2_000 {
        text.push_str(&format!(
            "[[service]]\nkind = \"http\"\nhost = \"h{n}.example.com\"\nallow = [\"GET /{n}\"]\n"
        ));
    }
    let policy = policy(&text);
    let authority = Authority::parse("h7.example.com:443").unwrap();
    assert_eq!(policy.listed(Scheme::Https, &authority).count(), 1);
    assert!(ask(&policy, "GET", "https://h7.example.com/7").permits());
    assert!(!ask(&policy, "GET", "https://h7.example.com/8").permits());
}

#[test]
fn the_method_that_is_judged_is_the_one_that_is_meant() {
    let policy = policy(
        "[[service]]\nkind = \"http\"\nhost = \"api.example.com\"\nallow = [\"POST /x\", \"GET /x\"]\n",
    );
    let ask = |method: &str, query: &str| {
        ask(
            &policy,
            method,
            &format!("https://api.example.com/x?{query}"),
        )
    };
    for query in [
        "_method=DELETE",
        "a=b&_METHOD=delete",
        "%5fmethod=DELETE",
        "a;_method=DELETE",
        "$httpMethod=PUT",
        "X-HTTP-Method-Override=PUT",
        "x_http_method_override=PUT",
        "_method",
    ] {
        for method in ["POST", "GET"] {
            let code = ask(method, query).code();
            assert_eq!(code, Some(Code::MethodRefused), "{method} {query}");
        }
    }
    for query in ["method=DELETE", "a=_method", "my_method=x", "%zz=1", ""] {
        assert!(ask("POST", query).permits(), "control: {query}");
    }
}

#[test]
fn features_are_shut_unless_a_service_that_allows_in_the_same_name_opens_them() {
    let text = r#"
[[service]]
id = "a"
kind = "http"
host = "api.example.com"
allow = ["GET /**"]
[[service]]
id = "b"
kind = "http"
host = "api.example.com"
allow = ["GET /socket"]
upgrade = ["websocket"]
[[service]]
id = "c"
kind = "http"
host = "api.example.com"
allow = ["GET,POST /rpc/**"]
trailers = true
credential = "rpc"
[[service]]
id = "d"
kind = "http"
host = "other.example.com"
allow = ["GET /**"]
"#;
    let plain = policy(text);
    let again = policy(&plain.expanded());
    for policy in [plain, again] {
        let features = |method: &str, host: &str, target: &str| {
            let authority = Authority::with_default_port(host, 443).unwrap();
            let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
                panic!("{host}")
            };
            let request = Request {
                scheme: Scheme::Https,
                authority: &authority,
                method,
                target,
            };
            let Decision::Permit(permit) = policy.decide(&route, &request, &Facts::None) else {
                panic!("{host}{target}")
            };
            (
                permit.opens_websocket(),
                permit.opens_trailers(),
                policy.opens_websocket(&route),
            )
        };
        let api = "api.example.com";
        assert_eq!(features("GET", api, "/x"), (false, false, true));
        assert_eq!(features("GET", api, "/socket"), (true, false, true));
        assert_eq!(features("POST", api, "/rpc/x"), (false, true, true));
        // The injecting rule is the one that counts, not the bare one beside it.
        assert_eq!(features("GET", api, "/rpc/x"), (false, true, true));
        assert_eq!(
            features("GET", "other.example.com", "/socket"),
            (false, false, false)
        );
    }
}

#[test]
fn a_name_is_listed_on_the_ports_of_the_services_that_open_it() {
    let policy = policy(TEXT);
    let ports = |host: &str| policy.ports(&crate::authority::Host::parse(host).unwrap());
    assert_eq!(ports("api.github.com"), [443]);
    assert_eq!(ports("API.github.com."), [443]);
    assert_eq!(ports("plain.example.net"), [80]);
    assert_eq!(ports("deep.down.example.org"), [443], "wildcard");
    for unlisted in [
        "example.org",
        "evilgithub.com",
        "github.com.evil.example",
        "127.0.0.1",
    ] {
        assert_eq!(ports(unlisted), [0_u16; 0], "{unlisted}");
    }
}

/// A bound of any service that allows a request counts for it; one beside it does not.
#[test]
fn bounds_are_those_of_every_service_that_allows_the_request() {
    let text = r#"
[[service]]
id = "a"
kind = "http"
host = "api.example.com"
allow = ["* /v1/**"]
max_request_bytes = 1_000
max_seconds = 30

[[service]]
id = "b"
kind = "http"
host = "api.example.com"
allow = ["POST /v1/**"]
credential = "b"
max_request_bytes = 2000
max_response_bytes = 1125899906842624

[[service]]
id = "c"
kind = "http"
host = "api.example.com"
allow = ["* /free/**"]
"#;
    let expanded = policy(text).expanded();
    for text in [text, &expanded] {
        let policy = policy(text);
        let authority = Authority::parse("api.example.com:443").unwrap();
        let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
            panic!("it is listed")
        };
        let caps = |method, target| {
            let request = Request {
                scheme: Scheme::Https,
                authority: &authority,
                method,
                target,
            };
            match policy.decide(&route, &request, &Facts::None) {
                Decision::Permit(permit) => permit.caps(),
                other @ (Decision::Refuse(_) | Decision::Hold(_) | Decision::Inspect(_)) => {
                    panic!("{other:?}")
                }
            }
        };
        let a = Caps {
            request_bytes: Some(1000),
            response_bytes: None,
            seconds: Some(30),
        };
        assert_eq!(caps("GET", "/v1/x"), a);
        let both = Caps {
            response_bytes: Some(1 << 50),
            ..a
        };
        assert_eq!(caps("POST", "/v1/x"), both);
        assert_eq!(caps("POST", "/free/x"), Caps::default());
    }
    for line in [
        "max_request_bytes = 1000",
        "max_response_bytes = 1125899906842624",
        "max_seconds = 30",
    ] {
        assert!(expanded.lines().any(|shown| shown == line), "{expanded}");
    }
}
