//! The judgement by promise; properties over random policies live in `tests/properties.rs`.

use super::*;

mod git;
mod github;
mod http;
mod kinds;
mod models;
mod properties;
mod proxmox;
mod refusals;
mod slashes;
mod when;

/// What was decided, in a form that can be compared and printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Permit {
        rule: String,
        credential: Option<String>,
        run_token: bool,
    },
    Refuse {
        code: Code,
        rule: Option<String>,
        remedy: String,
        text: String,
    },
    Inspect,
}

impl Outcome {
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Self::Refuse { code, .. } => Some(*code),
            Self::Permit { .. } | Self::Inspect => None,
        }
    }

    pub(super) fn permits(&self) -> bool {
        matches!(self, Self::Permit { .. })
    }

    /// Without the sentences, which may speak of the kind a rule was written as.
    pub(super) fn bare(mut self) -> Self {
        if let Self::Refuse { remedy, text, .. } = &mut self {
            remedy.clear();
            text.clear();
        }
        self
    }
}

pub(super) fn policy(text: &str) -> Policy {
    Policy::parse(text, "test.toml").unwrap_or_else(|problems| panic!("{problems}"))
}

/// Routes and decides in one go. `url` is `scheme://authority/target`, with the port optional.
pub(super) fn ask(policy: &Policy, method: &str, url: &str) -> Outcome {
    ask_with(policy, method, url, &Facts::None)
}

pub(super) fn ask_with(policy: &Policy, method: &str, url: &str, facts: &Facts) -> Outcome {
    let (scheme, rest) = match url.split_once("://").unwrap() {
        ("https", rest) => (Scheme::Https, rest),
        ("http", rest) => (Scheme::Http, rest),
        (other, _) => panic!("{other}"),
    };
    let (authority, target) = rest.split_at(rest.find('/').unwrap());
    let authority = Authority::with_default_port(authority, scheme.default_port()).unwrap();
    let route = match policy.route(scheme, &authority) {
        Routing::Route(route) => route,
        Routing::Refuse(refusal) => return refused(refusal),
    };
    let request = Request {
        scheme,
        authority: &authority,
        method,
        target,
    };
    match policy.decide(&route, &request, facts) {
        Decision::Permit(permit) => {
            assert_eq!(permit.authority(), &authority);
            Outcome::Permit {
                rule: permit.rule().to_string(),
                credential: permit.credential().map(ToString::to_string),
                run_token: permit.injects_run_token(),
            }
        }
        Decision::Refuse(refusal) => refused(refusal),
        Decision::Inspect(
            Inspection::ReceivePack | Inspection::History(_) | Inspection::Content(_),
        ) => Outcome::Inspect,
        Decision::Hold(held) => panic!("{held:?}"),
    }
}

/// Every refusal, wherever it comes from, keeps the promises of a refusal.
fn refused(refusal: Refusal) -> Outcome {
    assert!(refusal.text.starts_with("portcullis: "), "{refusal:?}");
    assert!(!refusal.remedy.is_empty(), "{refusal:?}");
    assert!(
        !refusal
            .text
            .chars()
            .chain(refusal.remedy.chars())
            .any(char::is_control)
    );
    assert!(
        refusal.text.len() + refusal.remedy.len() < 4_000,
        "{refusal:?}"
    );
    Outcome::Refuse {
        code: refusal.code,
        rule: refusal.rule.map(|rule| rule.to_string()),
        remedy: refusal.remedy,
        text: refusal.text,
    }
}

/// Attack: LIF-04
#[test]
fn the_empty_policy_permits_nothing() {
    for policy in [
        Policy::empty(),
        policy(""),
        policy("version = 1\n"),
        policy("# a comment\n"),
    ] {
        for url in ["https://github.com/", "http://127.0.0.1/", "https://[::1]/"] {
            assert_eq!(
                ask(&policy, "GET", url).code(),
                Some(Code::DestinationNotListed)
            );
        }
        assert!(policy.services().is_empty());
        assert_eq!(policy.credentials().count(), 0);
    }
}

#[test]
fn shipped_examples_parse_and_mean_what_they_say() {
    let read = |name: &str| {
        let path = format!("{}/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        policy(&std::fs::read_to_string(path).unwrap())
    };
    let coder = read("coder");
    assert!(ask(&coder, "GET", "https://api.example.com/v1/items").permits());
    assert_eq!(
        ask(
            &coder,
            "POST",
            "https://github.com/acme/web.git/git-receive-pack"
        ),
        Outcome::Inspect
    );
    assert!(
        ask(
            &coder,
            "PATCH",
            "http://board.portcullis.internal/api/issues/1"
        )
        .permits()
    );
    let proxmox = read("proxmox");
    assert!(
        ask(
            &proxmox,
            "GET",
            "https://pve.lan.example:8006/api2/json/nodes"
        )
        .permits()
    );
    assert!(
        !ask(
            &proxmox,
            "GET",
            "https://pve.lan.example:8006/api2/extjs/nodes"
        )
        .permits()
    );
    assert!(read("closed").services().is_empty());
    assert!(ask(&read("packages"), "GET", "https://pypi.org/simple/").permits());
    // Whoever adds an example adds it here.
    let shipped = std::fs::read_dir(format!("{}/examples", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert_eq!(shipped.count(), 4);
}

/// Attack: DST-22
#[test]
fn siblings_of_a_listed_host_are_not_listed_and_examples_say_why_for_each() {
    let folder = format!("{}/examples", env!("CARGO_MANIFEST_DIR"));
    let coder = policy(&std::fs::read_to_string(format!("{folder}/coder.toml")).unwrap());
    for sibling in [
        "api.github.com",
        "gist.github.com",
        "raw.githubusercontent.com",
        "objects.githubusercontent.com",
        "avatars.githubusercontent.com",
        "uploads.github.com",
        "codeload.github.com",
        "acme.github.io",
        "acme-8080.app.github.dev",
        "ghcr.io",
        "www.github.com",
    ] {
        let asked = ask(&coder, "GET", &format!("https://{sibling}/acme/web"));
        assert_eq!(asked.code(), Some(Code::DestinationNotListed), "{sibling}");
    }
    let fetch = "https://github.com/acme/web.git/info/refs?service=git-upload-pack";
    assert!(ask(&coder, "GET", fetch).permits(), "control");
    let mut services = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for service in text.split("[[service]]").skip(1) {
            services += 1;
            assert!(service.contains("\nwhy = "), "{service}");
            let hosts = service.lines().filter(|line| line.starts_with("host"));
            assert!(hosts.clone().all(|line| !line.contains('*')), "{service}");
        }
    }
    assert!(services > 5, "{services}");
}

#[test]
fn a_route_is_good_for_its_own_authority_alone() {
    let policy = policy(
        r#"
        [[service]]
        kind = "http"
        hosts = ["a.example.com", "b.example.com"]
        allow = ["GET /**"]
        "#,
    );
    let a = Authority::parse("a.example.com:443").unwrap();
    let b = Authority::parse("b.example.com:443").unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &a) else {
        panic!()
    };
    let ask = |scheme, authority| {
        let request = Request {
            scheme,
            authority,
            method: "GET",
            target: "/",
        };
        policy.decide(&route, &request, &Facts::None)
    };
    assert!(matches!(ask(Scheme::Https, &a), Decision::Permit(_)));
    for (scheme, authority) in [(Scheme::Https, &b), (Scheme::Http, &a)] {
        let Decision::Refuse(refusal) = ask(scheme, authority) else {
            panic!()
        };
        assert_eq!(refusal.code, Code::AuthorityMismatch);
        assert_eq!(refusal.status(), 421);
    }
    // A route from before a reload opens nothing that the policy in force does not list.
    let request = Request {
        scheme: Scheme::Https,
        authority: &a,
        method: "GET",
        target: "/",
    };
    let after = Policy::empty().decide(&route, &request, &Facts::None);
    assert!(
        matches!(after, Decision::Refuse(refusal) if refusal.code == Code::DestinationNotListed)
    );
}
