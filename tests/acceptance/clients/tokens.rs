//! Clients of an agent on another machine, told of the gate by a proxy's URL with the token of its run
//! in it.

use tests::clients::{Clients, closed, credential, open};
use tests::command::Finished;
use tests::matrix::{self, Row};

use super::{WEB, plain_server, url};

const WAY: &str = "run token";
const GIT: &str = "git.portcullis.test";

fn world() -> Clients {
    let credential = credential("git", "github-token", GIT);
    let policy = format!(
        "{}[[service]]\nid = \"forge\"\nkind = \"github\"\nhost = \"{GIT}\"\nrepos = [\"acme/*\"]\n\
         git = \"push\"\nrefs = [\"refs/heads/agent/*\"]\ncredential = \"git\"\nca_file = \"{{ca}}\"\n{}",
        open(WEB, &["GET,HEAD /**", "POST,PUT /**"]),
        closed(&[WEB, GIT])
    );
    let words = [
        "git",
        "--repo",
        "acme/web",
        "--user",
        "x-access-token",
        "--root",
        "{dir}/root",
        "--log",
        "{dir}/requests.jsonl",
        "--password",
        &credential.canary.secret,
    ];
    let git = tests::clients::Upstream::new(&[GIT], &words);
    Clients::beyond(&[plain_server(), git], &policy, &[credential])
}

#[test]
fn clients_that_are_asked_for_the_token_and_those_that_show_it_at_once_work_and_are_told() {
    let clients = world();
    let row = |client, version| Row {
        client,
        way: WAY,
        version,
    };
    let script = |name: &str| matrix::directory().join("src").join(name);

    let curl = |path: &str| {
        // Not the variable: what is given by hand, and shown only when it is asked for.
        let curl = clients.agent("curl").args(["-sS", "--fail-with-body"]);
        let login = format!("run:{}", clients.token());
        let proxy = format!("http://{}", tests::clients::BEYOND);
        let curl = curl.args(["--proxy", &proxy, "--proxy-anyauth", "--proxy-user", &login]);
        curl.args(["-d", "told", &url(path)]).run()
    };
    let version = clients.version("curl", &["--version"]);
    clients.judge(
        &row("curl", version),
        curl("/echo"),
        "told",
        curl("/closed/echo"),
    );

    let python = |path: &str| {
        let python = clients.agent("python3").arg(script("python/fetch.py"));
        python.args(["requests", "POST", &url(path), "told"]).run()
    };
    let print = "import requests; print(requests.__version__)";
    let version = clients.version("python3", &["-c", print]);
    clients.judge(
        &row("requests", version),
        python("/echo"),
        "told",
        python("/closed/echo"),
    );

    let node = |path: &str| {
        let node = clients.agent("node24").arg(script("node/fetch.js"));
        node.args(["fetch", "POST", &url(path), "told"]).run()
    };
    let version = clients.version("node24", &["--version"]);
    clients.judge(
        &row("node 24", version),
        node("/echo"),
        "told",
        node("/closed/echo"),
    );

    let go = |path: &str| {
        let go = clients.agent("go-client");
        go.args(["POST", &url(path), "told"]).run()
    };
    let version = clients.version("go", &["version"]);
    clients.judge(&row("go", version), go("/echo"), "told", go("/closed/echo"));

    for class in ["Modern", "Classic"] {
        let java = |path: &str| {
            let java = clients.agent("java").arg("-cp");
            let java = java.arg(matrix::directory().join("java"));
            java.args([class, &url(path)]).run()
        };
        let version = clients.version("java", &["--version"]);
        clients.judge(
            &row("java", version),
            java("/version"),
            "HTTP",
            java("/closed/version"),
        );
    }
    let asked_in_vain = |clients: &Clients| {
        let mut records = clients.gate.audit();
        records.retain(|record| record["code"] == "token_missing");
        records.len()
    };
    // Java shows it on a connection of its own, each time; no other client leaves the one that asked.
    assert_eq!(asked_in_vain(&clients), 4);
    git_asks_and_shows(&clients);
    assert_eq!(asked_in_vain(&clients), 4);
    let records = clients.gate.audit();
    let by_token = |record: &&serde_json::Value| record["entrance"] == "token";
    assert!(records.iter().filter(by_token).count() > 12, "{records:?}");
}

/// git tries without a login first, and shows it on the same connection.
fn git_asks_and_shows(clients: &Clients) {
    let git = |args: &[&str]| -> Finished {
        let login = format!(
            "http.proxy=http://run:{}@{}",
            clients.token(),
            tests::clients::BEYOND
        );
        let mut git = clients.agent("git").args(["-c", &login]);
        // The configuration's, not the variable's.
        for name in [
            "http_proxy",
            "https_proxy",
            "HTTPS_PROXY",
            "all_proxy",
            "ALL_PROXY",
        ] {
            git = git.env(name, "");
        }
        git.args(args).run()
    };
    let version = clients.version("git", &["--version"]);
    let row = Row {
        client: "git",
        way: WAY,
        version,
    };
    let web = format!("https://{GIT}/acme/web.git");
    git(&["clone", &web, "work"]).ok();
    clients.write("work/more", "more\n");
    git(&["-C", "work", "add", "more"]).ok();
    git(&["-C", "work", "commit", "-qm", "More"]).ok();
    let pushed = git(&["-C", "work", "push", "origin", "HEAD:refs/heads/agent/more"]);
    let refused = git(&["clone", &format!("https://{GIT}/closed/web.git"), "closed"]);
    clients.judge(&row, pushed, "new branch", refused);
}
