//! `gh` against GitHub's names: api, pull requests, clone, release upload.

use tests::clients::{Clients, RULE, Upstream, credential};
use tests::command::Finished;
use tests::matrix::Row;

const API: &str = "api.github.com";
const UPLOADS: &str = "uploads.github.com";
const GIT: &str = "github.com";

fn world() -> Clients {
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
    Clients::new(&upstreams, &policy, &[api, uploads, git])
}

#[test]
fn gh_works_and_is_told() {
    let clients = world();
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
    let listed = gh(&["pr", "list", "--repo", "acme/web"]).ok();
    assert!(
        listed.output().contains("Mend the fence"),
        "{}",
        listed.shown()
    );
    clients.works(&row("pr list"));
    let created = gh(&[
        "pr",
        "create",
        "--repo",
        "acme/web",
        "--head",
        "agent/new",
        "--base",
        "main",
        "--title",
        "New",
        "--body",
        "As asked",
    ])
    .ok();
    assert!(created.output().contains("/pull/7"), "{}", created.shown());
    clients.works(&row("pr create"));
    gh(&["repo", "clone", "acme/web"]).ok();
    assert!(clients.home().join("web/README.md").exists());
    clients.works(&row("repo clone"));
    clients.write("asset", "an asset");
    gh(&["release", "upload", "v1", "asset", "--repo", "acme/web"]).ok();
    clients.works(&row("release upload"));
}
