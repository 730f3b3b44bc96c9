//! `gh` against GitHub's names: api, pull requests, clone, release upload.

use tests::clients::{Clients, REMEDY, RULE, Upstream, credential};
use tests::command::Finished;
use tests::control::Control;
use tests::matrix::Row;

const API: &str = "api.github.com";
const UPLOADS: &str = "uploads.github.com";
const GIT: &str = "github.com";

/// Denies what the later half of the test asks for again.
const NARROWED: &str = "narrowed";

fn world() -> (Clients, String) {
    let api = credential("api", "github-token", API);
    let uploads = credential("uploads", "github-token", UPLOADS);
    let git = credential("git", "github-token", GIT);
    let policy = format!(
        "[[service]]\nkind = \"http\"\nhost = \"{API}\"\ncredential = \"api\"\nca_file = \"{{ca}}\"\n\
         allow = [\"GET /user\", \"GET /repos/acme/web\", \"GET /repos/acme/web/**\", \"POST /graphql\"]\n\
         [[service]]\nkind = \"http\"\nhost = \"{UPLOADS}\"\ncredential = \"uploads\"\nca_file = \"{{ca}}\"\n\
         allow = [\"POST /repos/acme/web/releases/*/assets\"]\n\
         [[service]]\nkind = \"github\"\nrepos = [\"acme/web\"]\ncredential = \"git\"\nca_file = \"{{ca}}\"\n\
         [[service]]\nid = \"{RULE}\"\nkind = \"http\"\nhosts = [\"{API}\", \"{UPLOADS}\"]\n\
         deny = [\"* /repos/acme/closed/**\", \"* /closed/**\"]\n"
    );
    let upstreams = [
        Upstream::new(
            &[API],
            &["github", "--http2", "--credential", &api.canary.secret],
        ),
        Upstream::new(
            &[UPLOADS],
            &["github", "--http2", "--credential", &uploads.canary.secret],
        ),
        Upstream::new(
            &[GIT],
            &[
                "git",
                "--repo",
                "acme/web",
                "--user",
                "x-access-token",
                "--root",
                "{dir}/root",
                "--password",
                &git.canary.secret,
            ],
        ),
    ];
    let clients = Clients::new(&upstreams, &policy, &[api, uploads, git]);
    (clients, policy)
}

/// Loads the policy with one more service, which denies these.
fn narrow(clients: &Clients, policy: &str, deny: &[&str]) {
    let more = format!(
        "[[service]]\nid = \"{NARROWED}\"\nkind = \"http\"\nhosts = [\"{API}\", \"{UPLOADS}\", \"{GIT}\"]\n\
         deny = {deny:?}\n"
    );
    let policy = policy.replace("{ca}", &clients.pki.ca().display().to_string());
    clients.gate.write_policy(&(policy + &more));
    let control = Control {
        socket: clients.gate.control_socket(),
        uid: clients.gate.operator,
        netns: &clients.netns,
    };
    control.call("POST", "/v1/reload", None).ok();
}

#[test]
fn gh_works_and_is_told() {
    let (clients, policy) = world();
    let gh = |args: &[&str]| -> Finished { clients.agent("gh").args(args).run() };
    let row = |way| Row {
        client: "gh",
        way,
        version: clients.version("gh", &["--version"]),
    };
    clients.judge(
        &row("api"),
        gh(&["api", "user"]),
        "octocat",
        gh(&["api", "closed/user"]),
    );
    clients.write("asset", "an asset");
    // By way: the command, what shows that it worked, and what is denied to it afterwards.
    let create = "pr create --repo acme/web --head agent/new --base main --title New --body Asked";
    let ways = [
        (
            "pr list",
            "pr list --repo acme/web",
            "Mend the fence",
            "POST /graphql",
        ),
        ("pr create", create, "/pull/7", "POST /graphql"),
        (
            "repo clone",
            "repo clone acme/web",
            "",
            "* /acme/web.git/**",
        ),
        (
            "release upload",
            "release upload v1 asset --clobber --repo acme/web",
            "",
            "POST /repos/*/*/releases/*/assets",
        ),
    ];
    let words = |command: &'static str| command.split(' ').collect::<Vec<_>>();
    let allowed = ways.map(|(_, command, _, _)| gh(&words(command)));
    assert!(clients.home().join("web/README.md").exists());
    std::fs::remove_dir_all(clients.home().join("web")).unwrap();
    for ((way, command, wanted, deny), allowed) in ways.into_iter().zip(allowed) {
        narrow(&clients, &policy, &[deny]);
        let refused = gh(&words(command));
        clients.judge_by(&row(way), NARROWED, REMEDY, allowed, wanted, refused);
    }
}
