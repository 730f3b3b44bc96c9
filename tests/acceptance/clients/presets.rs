//! `gh` under the presets of kind `github`: what people do every day works under `contribute`, and only
//! reading does under `read`; what is shut is refused with rule and remedy.

use tests::clients::{Clients, Upstream, credential};
use tests::command::Finished;
use tests::control::Control;
use tests::matrix::{Row, Shown};

const HOSTS: &str = "github.com api.github.com uploads.github.com";
const API: &str = "api.github.com";
const GIT: &str = "github.com";
/// The rule of the API, and what its remedies name.
const RULE: &str = "forge-api";
const REMEDY: &str = "service `forge";

fn world() -> Clients {
    let forge = credential("forge", "github-token", HOSTS);
    let secret = forge.canary.secret.as_str();
    let git = [
        "git",
        "--repo",
        "acme/web",
        "--user",
        "x-access-token",
        "--root",
        "{dir}/root",
        "--password",
        secret,
    ];
    let upstreams = [
        Upstream::new(&[API], &["github", "--http2", "--credential", secret]),
        Upstream::new(&[GIT], &git),
    ];
    Clients::new(&upstreams, &preset("contribute"), &[forge])
}

/// One service of kind `github`.
fn preset(api: &str) -> String {
    format!(
        "[[service]]\nid = \"forge\"\nkind = \"github\"\nrepos = [\"acme/web\"]\ngit = \"push\"\n\
         refs = [\"refs/heads/agent/*\"]\napi = \"{api}\"\ncredential = \"forge\"\nca_file = \"{{ca}}\"\n"
    )
}

/// The whole API, by path.
fn everything() -> String {
    format!(
        "[[service]]\nkind = \"http\"\nhost = \"{API}\"\nallow = [\"* /**\"]\ncredential = \"forge\"\n\
         ca_file = \"{{ca}}\"\n"
    )
}

fn load(clients: &Clients, policy: &str) {
    let policy = policy.replace("{ca}", &clients.pki.ca().display().to_string());
    clients.gate.write_policy(&policy);
    let control = Control {
        socket: clients.gate.control_socket(),
        uid: clients.gate.operator,
        netns: &clients.netns,
    };
    control.call("POST", "/v1/reload", None).ok();
}

/// Verbs that only read, and a part of what they print.
const READING: [(&str, &str); 10] = [
    ("issue list --repo acme/web", "The fence is open"),
    ("issue view 3 --repo acme/web", "Since Monday"),
    ("pr list --repo acme/web", "Mend the fence"),
    ("pr view 7 --repo acme/web", "As asked"),
    ("pr diff 7 --repo acme/web", "+shut"),
    ("pr checks 7 --repo acme/web", "build"),
    ("repo view acme/web", "The web"),
    ("release list --repo acme/web", "v1"),
    ("release view v1 --repo acme/web", "v1"),
    ("run list --repo acme/web", "Mend the fence"),
];

/// Verbs of contributing, which `read` shuts.
const CONTRIBUTING: [(&str, &str); 6] = [
    (
        "issue create --repo acme/web --title New --body Asked",
        "/issues/3",
    ),
    ("issue comment 3 --repo acme/web --body Seen", "#comment"),
    ("issue close 3 --repo acme/web", ""),
    (
        "pr create --repo acme/web --head agent/new --base main --title New --body Asked",
        "/pull/7",
    ),
    ("pr review 7 --repo acme/web --comment --body Seen", ""),
    ("pr comment 7 --repo acme/web --body Seen", "#comment"),
];

/// Verbs that `contribute` shuts.
const SHUT: [(&str, &str); 7] = [
    ("pr merge 7 --merge --repo acme/web", ""),
    ("repo edit acme/web --description New", ""),
    ("repo delete acme/web --yes", ""),
    ("secret set TOKEN --body x --repo acme/web", ""),
    (
        "release create v2 --repo acme/web --title New --notes New --target main",
        "",
    ),
    ("workflow run build.yml --ref main --repo acme/web", ""),
    (
        "api -X PUT repos/acme/web/contents/.github/workflows/x.yml -f message=m -f content=eA==",
        "content",
    ),
];

fn gh(clients: &Clients, command: &str) -> Finished {
    clients.agent("gh").args(command.split(' ')).run()
}

#[track_caller]
fn told(clients: &Clients, command: &str) {
    let refused = gh(clients, command).refused();
    let shown = Shown::in_output(&refused.output(), RULE, REMEDY);
    assert_eq!(shown, Shown::Reason, "{command}: {}", refused.shown());
}

#[track_caller]
fn works(clients: &Clients, command: &str, wanted: &str) {
    let done = gh(clients, command).ok();
    assert!(
        done.output().contains(wanted),
        "{command}: {}",
        done.shown()
    );
}

#[test]
fn gh_does_its_everyday_verbs_under_contribute_and_is_told_of_the_rest() {
    let clients = world();
    let version = clients.version("gh", &["--version"]);
    for (command, wanted) in READING.into_iter().chain(CONTRIBUTING) {
        works(&clients, command, wanted);
    }
    for (command, _) in SHUT {
        told(&clients, command);
    }
    // A branch of the agent's own, pushed by git and checked out by gh.
    works(&clients, "repo clone acme/web", "");
    let web = clients.home().join("web");
    let git = |words: &[&str]| {
        let words = ["-C", "web"].iter().chain(words).copied();
        clients.agent("git").args(words).run().ok()
    };
    git(&["push", "-q", "origin", "HEAD:refs/heads/agent/fence"]);
    let checkout = clients.agent("gh").args(["pr", "checkout", "7"]);
    checkout.in_directory(&web).run().ok();
    let at = git(&["rev-parse", "--abbrev-ref", "HEAD"]);
    assert_eq!(at.stdout.trim(), "agent/fence");

    load(&clients, &preset("read"));
    for (command, wanted) in READING {
        works(&clients, command, wanted);
    }
    for (command, _) in CONTRIBUTING {
        told(&clients, command);
    }

    // The control: where everything is open, what is shut otherwise works, so that it was the gate.
    load(&clients, &everything());
    for (command, wanted) in SHUT {
        works(&clients, command, wanted);
    }
    for way in ["everyday verbs, contribute", "everyday verbs, read"] {
        let version = version.clone();
        let row = Row {
            client: "gh",
            way,
            version,
        };
        clients.record(&row, Some(Shown::Reason));
    }
}
