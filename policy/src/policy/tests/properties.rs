//! Properties over random policies and requests from a small world, so that rules collide often.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::pattern::{HostPattern, RefGlob};
use crate::request::History;
use crate::request::RefUpdate;

const HOSTS: &[&str] = &[
    "a.example.com",
    "a.example.com",
    "b.example.com",
    "*.example.com",
    "*.b.example.com",
];
const ALLOW: &[&str] = &[
    "GET /**",
    "* /x/**",
    "POST /x/*",
    "GET,PUT /x",
    "GET /x/y",
    "POST /o/**",
    "DELETE /**/y",
    "GET /x?q=1",
    "GET /*",
];
const DENY: &[&str] = &["* /x/y", "GET /x/**", "POST /**", "* /o/r.git/**"];
const REFS: &[&str] = &["refs/heads/a/*", "refs/heads/b", "refs/tags/*"];
const METHODS: &[&str] = &[
    "GET", "GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD", "get", "TRACE",
];
const ASKED: &[&str] = &[
    "a.example.com",
    "b.example.com",
    "c.b.example.com",
    "example.com",
    "github.com",
];
const TARGETS: &[&str] = &[
    "/",
    "/x",
    "/x?q=1",
    "/x/y",
    "/x/Y",
    "/x//y",
    "/x/y/",
    "/x/z",
    "/%78/y",
    "/x%2Fy",
    "/x/a%2fy",
    "/o%2fr.git/git-receive-pack",
    "/x/../y",
    "/y",
    "/o/r.git/info/refs?service=git-upload-pack",
    "/o/r/info/refs?service=git-receive-pack",
    "/o/r.git/git-receive-pack",
    "/O/R/git-receive-pack",
    "/o/s/git-upload-pack",
    "/o/r.git/info/lfs/objects/batch",
    "/api/x",
];
const ZERO: &str = "0000000000000000000000000000000000000000";
const SOME: &str = "1234567890123456789012345678901234567890";

const WHEN: &[&str] = &[
    "",
    "[[service.when]]\nallow = [\"POST /api/**\", \"GET /a/b\"]\nquery = { x = \"1\" }\n",
    "max_inspected_bytes = 99\n[[service.when]]\nallow = [\"* /api/x\"]\njson = { \"/a/0\" = [1, \"b\", true] }\nheaders = { x-a = \"*\" }\n",
    "[[service.when]]\nallow = [\"POST /api/x\"]\ngraphql = [\"query\", \"mutation:a\"]\n[[service.when]]\nallow = [\"POST /api/x\"]\nform = { f = \"1\" }\n",
];

fn list(key: &str, members: &[&str]) -> String {
    if members.is_empty() {
        return String::new();
    }
    format!("{key} = {members:?}\n")
}

fn http_service() -> impl Strategy<Value = String> {
    (
        select(HOSTS),
        subsequence(ALLOW, 0..4),
        subsequence(DENY, 0..2),
        select(vec!["", "", "credential = \"one\"\n", "credential = \"two\"\n"]),
        any::<bool>(),
        select(vec!["", "port = 8443\n"]),
        select(vec!["", "encoded_slash = \"segment\"\n"]),
        select(WHEN),
    )
        .prop_filter_map("inactive", |(host, allow, deny, credential, push, port, slash, when)| {
            if allow.is_empty() && !push && when.is_empty() && (deny.is_empty() || !(credential.is_empty() && slash.is_empty())) {
                return None;
            }
            let push = if push {
                "push = [\"POST /o/r/git-receive-pack\"]\nrefs = [\"refs/heads/a/*\"]\n"
            } else {
                ""
            };
            let (allow, deny) = (list("allow", &allow), list("deny", &deny));
            Some(format!(
                "[[service]]\nkind = \"http\"\nhost = \"{host}\"\n{port}{slash}{credential}{allow}{deny}{push}{when}"
            ))
        })
}

fn github_service() -> impl Strategy<Value = String> {
    (
        select(vec!["github.com", "a.example.com"]),
        subsequence(vec!["o/r", "o/*", "O/s"], 1..3),
        select(vec!["", "credential = \"one\"\n", "credential = \"three\"\n"]),
        subsequence(REFS, 0..3),
        subsequence(DENY, 0..2),
    )
        .prop_map(|(host, repos, credential, refs, deny)| {
            let git = if refs.is_empty() { "fetch" } else { "push" };
            let (repos, refs, deny) = (list("repos", &repos), list("refs", &refs), list("deny", &deny));
            format!(
                "[[service]]\nkind = \"github\"\nhost = \"{host}\"\ngit = \"{git}\"\n{credential}{repos}{refs}{deny}"
            )
        })
}

fn service() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => http_service(),
        2 => github_service(),
        1 => Just(String::from(
            "[[service]]\nkind = \"board\"\nhost = \"a.example.com\"\nallow = [\"GET /api/**\"]\n"
        )),
    ]
}

fn facts() -> impl Strategy<Value = Facts> {
    let update = (
        select(vec![
            "refs/heads/a/x",
            "refs/heads/b",
            "refs/heads/main",
            "refs/tags/v1",
            "bad",
        ]),
        select(vec![(ZERO, SOME), (SOME, SOME), (SOME, ZERO)]),
    )
        .prop_map(|(name, (old, new))| RefUpdate {
            old: old.to_owned(),
            new: new.to_owned(),
            name: name.to_owned(),
            history: History::NotAsked,
        });
    prop_oneof![
        Just(Facts::None),
        Just(Facts::Unreadable(String::from("cut short"))),
        proptest::collection::vec(update, 0..3).prop_map(Facts::Push),
    ]
}

type Ask = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Facts,
);

fn request() -> impl Strategy<Value = Ask> {
    (
        select(METHODS),
        select(vec!["https", "https", "https", "http"]),
        select(ASKED),
        select(TARGETS),
        facts(),
    )
}

fn put(policy: &Policy, (method, scheme, host, target, facts): &Ask) -> Outcome {
    ask_with(policy, method, &format!("{scheme}://{host}{target}"), facts)
}

/// A policy that loads, with the texts of its services.
fn world(most: usize) -> impl Strategy<Value = (Vec<String>, Policy)> {
    proptest::collection::vec(service(), 1..most).prop_filter_map("does not load", |services| {
        let policy = Policy::parse(&services.concat(), "random.toml").ok()?;
        Some((services, policy))
    })
}

/// A glob read by brute force, as a second opinion on the compiled one.
fn glob(pattern: &[&str], path: &[&str], fold: bool) -> bool {
    fn piece(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| piece(rest, &text[skip..])),
            Some((want, rest)) => text
                .split_first()
                .is_some_and(|(have, tail)| want == have && piece(rest, tail)),
        }
    }
    let case = |text: &str| {
        if fold {
            text.to_lowercase()
        } else {
            text.to_owned()
        }
    };
    match pattern.split_first() {
        None => path.is_empty(),
        Some((&"**", rest)) => (0..=path.len()).any(|skip| glob(rest, &path[skip..], fold)),
        Some((first, rest)) => path.split_first().is_some_and(|(have, tail)| {
            piece(case(first).as_bytes(), case(have).as_bytes()) && glob(rest, tail, fold)
        }),
    }
}

/// [`covers`] for a line that allows: an encoded slash is a character where the service opens it,
/// and a reason to refuse elsewhere and in a push.
fn allows(service: &ServiceView, lines: &[String], method: &str, target: &str) -> bool {
    let fold = service.kind == "github";
    let slash = target.to_lowercase().contains("%2f");
    let reads = !slash || (service.encoded_slash.is_some() && lines != service.push);
    reads
        && lines
            .iter()
            .any(|line| covers(line, method, &encoded(target, "\u{1}"), fold))
}

/// [`covers`] for a line that denies: an encoded slash is a character, and a slash.
fn denies(line: &str, method: &str, target: &str) -> bool {
    ["\u{1}", "/"]
        .iter()
        .any(|slash| covers(line, method, &encoded(target, slash), true))
}

fn encoded(target: &str, slash: &str) -> String {
    target.replace("%2f", slash).replace("%2F", slash)
}

/// Whether a line covers a request, read by brute force from the line's text.
fn covers(line: &str, method: &str, target: &str, fold: bool) -> bool {
    let (methods, pattern) = line.split_once(' ').unwrap();
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(p, q)| (p, Some(q)));
    let (pattern, wanted) = pattern
        .split_once('?')
        .map_or((pattern, None), |(p, q)| (p, Some(q)));
    // The only escape in this world.
    let path = path.replace("%78", "x");
    let pattern: Vec<&str> = pattern[1..].split('/').collect();
    let path: Vec<&str> = path[1..].split('/').collect();
    (methods == "*" || methods.split(',').any(|known| known == method))
        && (wanted.is_none() || wanted == query)
        && glob(&pattern, &path, fold)
}

fn leads_to(service: &ServiceView, scheme: &str, host: &str) -> bool {
    let host = crate::authority::Host::parse(host).unwrap();
    let port = if scheme == "https" { 443 } else { 80 };
    service
        .destinations
        .iter()
        .any(|to| to.scheme.as_str() == scheme && to.port == port && to.host.matches(&host))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Attack: PTH-22
    #[test]
    fn order_never_matters(
        (services, policy) in world(6),
        seed in any::<u64>(),
        requests in proptest::collection::vec(request(), 12),
    ) {
        let mut shuffled = services.clone();
        let mut state = seed;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let other = usize::try_from((state >> 33) % (at as u64 + 1)).unwrap();
            shuffled.swap(at, other);
        }
        let other = super::policy(&shuffled.concat());
        for request in &requests {
            prop_assert_eq!(put(&policy, request), put(&other, request), "{:?}", request);
        }
    }

    #[test]
    fn the_expansion_decides_the_same(
        (_, policy) in world(6),
        requests in proptest::collection::vec(request(), 12),
    ) {
        let text = policy.expanded();
        let again = Policy::parse(&text, "expanded.toml").map_err(|problems| {
            TestCaseError::fail(format!("{problems}\n{text}"))
        })?;
        for request in &requests {
            prop_assert_eq!(put(&policy, request).bare(), put(&again, request).bare(), "{:?}\n{}", request, text);
        }
        prop_assert_eq!(again.expanded(), text);
    }

    /// CRD-31: whatever is permitted, and whatever is injected, an allow rule says so and no deny
    /// matches, read by brute force from the lines that people see.
    /// Attack: CRD-31
    #[test]
    fn enforcement_contains_injection(
        (_, policy) in world(9),
        requests in proptest::collection::vec(request(), 80),
    ) {
        for request in &requests {
            let (method, scheme, host, target, facts) = request;
            let Outcome::Permit { rule, credential, run_token } = put(&policy, request) else {
                continue;
            };
            let here: Vec<&ServiceView> =
                policy.services().iter().filter(|service| leads_to(service, scheme, host)).collect();
            let service = here.iter().find(|service| service.id.as_str() == rule).unwrap();
            let allowed = allows(service, &service.allow, method, target);
            let judged = allows(service, &service.push, method, target);
            prop_assert!(allowed || judged, "{:?}", request);
            if judged {
                let Facts::Push(updates) = facts else { panic!("permitted without facts") };
                for update in updates {
                    prop_assert!(update.new != ZERO);
                    let listed = service
                        .refs
                        .iter()
                        .any(|text| RefGlob::parse(text).unwrap().matches(&update.name));
                    prop_assert!(listed, "{}", update.name);
                }
            }
            prop_assert_eq!(service.credential.as_ref().map(ToString::to_string), credential.clone());
            prop_assert_eq!(service.kind == "board", run_token);
            // Only one credential could have been meant.
            for other in here.iter().filter(|other| other.credential.is_some() && !judged) {
                if allows(other, &other.allow, method, target) {
                    prop_assert_eq!(other.credential.as_ref().map(ToString::to_string), credential.clone());
                }
            }
            for service in here {
                for line in &service.deny {
                    prop_assert!(!denies(line, method, target), "{line} {:?}", request);
                }
            }
            // The iterator that the gate checks its bindings with knows of this injection.
            if let Some(name) = credential {
                let host = crate::authority::Host::parse(host).unwrap();
                let known = policy.credentials().any(|(known, to)| {
                    known.as_str() == name && to.host.matches(&host) && to.scheme == Scheme::Https
                });
                prop_assert!(known);
            }
        }
    }

    /// PTH-22: a deny that is added takes effect, whatever stands beside it, and opens nothing.
    /// Attack: PTH-22
    #[test]
    fn deny_is_never_lost(
        (services, before) in world(5),
        deny in select(DENY),
        requests in proptest::collection::vec(request(), 12),
    ) {
        let text = format!(
            "{}[[service]]\nid = \"zz\"\nkind = \"http\"\nhosts = [\"*.example.com\", \"github.com\"]\ndeny = [\"{deny}\"]\n",
            services.concat(),
        );
        let after = super::policy(&text);
        for request in &requests {
            let (method, scheme, host, target, _) = request;
            let outcome = put(&after, request);
            if outcome.permits() {
                prop_assert!(put(&before, request).permits());
                let hit = *scheme == "https" && *host != "example.com" && denies(deny, method, target);
                prop_assert!(!hit, "{:?}", request);
            }
        }
    }

    /// Taking a service that denies nothing away never permits more, except where it named a
    /// second credential or judged a push, which are refusals of their own.
    #[test]
    fn nothing_is_permitted_by_absence((services, _) in world(4), request in request()) {
        let none = Policy::empty();
        prop_assert!(!put(&none, &request).permits());
        let denying: String = services
            .iter()
            .filter(|text| !text.contains("allow") && !text.contains("repos") && !text.contains("push"))
            .cloned()
            .collect();
        prop_assert!(!put(&super::policy(&denying), &request).permits());
    }

    #[test]
    fn wide_patterns_cover_what_narrow_ones_match(
        wide in select(HOSTS), narrow in select(HOSTS), host in select(ASKED),
    ) {
        let (wide, narrow) = (HostPattern::parse(wide).unwrap(), HostPattern::parse(narrow).unwrap());
        let host = crate::authority::Host::parse(host).unwrap();
        if wide.covers(&narrow) && narrow.matches(&host) {
            prop_assert!(wide.matches(&host));
        }
    }
}
