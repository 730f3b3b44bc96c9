//! git over https, and every remote over ssh rewritten to it.

use tests::clients::{Clients, Upstream, closed, credential};
use tests::command::Finished;
use tests::matrix::Row;

const GIT: &str = "git.portcullis.test";

fn world() -> Clients {
    let credential = credential("git", "github-token", GIT);
    let policy = format!(
        "[[service]]\nid = \"forge\"\nkind = \"github\"\nhost = \"{GIT}\"\nrepos = [\"acme/*\"]\n\
         git = \"push\"\nrefs = [\"refs/heads/agent/*\", \"refs/tags/agent-*\"]\n\
         credential = \"git\"\nca_file = \"{{ca}}\"\n\
         [[service]]\nkind = \"http\"\nhost = \"{GIT}\"\ncredential = \"git\"\nca_file = \"{{ca}}\"\n\
         allow = [\"POST /acme/web.git/info/lfs/objects/batch\", \"GET,PUT /lfs/*\", \
         \"POST /acme/web.git/info/lfs/locks/verify\"]\n{}",
        closed(&[GIT])
    );
    let words = [
        "git",
        "--repo",
        "acme/web",
        "--repo",
        "acme/part",
        "--user",
        "x-access-token",
        "--root",
        "{dir}/root",
        "--log",
        "{dir}/requests.jsonl",
        "--password",
        &credential.canary.secret,
    ];
    Clients::new(&[Upstream::new(&[GIT], &words)], &policy, &[credential])
}

fn git(clients: &Clients, directory: &str, args: &[&str]) -> Finished {
    let at = clients.home().join(directory);
    clients.agent("git").in_directory(&at).args(args).run()
}

/// Commits `size` bytes that do not compress.
fn commit(clients: &Clients, directory: &str, size: usize) {
    let at = clients.home().join(directory);
    let mut bytes = vec![0; size];
    let mut random = std::fs::File::open("/dev/urandom").unwrap();
    std::io::Read::read_exact(&mut random, &mut bytes).unwrap();
    let file = at.join("data");
    std::fs::write(&file, bytes).unwrap();
    std::os::unix::fs::chown(&file, Some(clients.agent), Some(clients.agent)).unwrap();
    git(clients, directory, &["add", "data"]).ok();
    git(clients, directory, &["commit", "--quiet", "-m", "Grow"]).ok();
}

#[test]
fn git_works_and_is_told() {
    let clients = world();
    let version = clients.version("git", &["--version"]);
    let row = |way| Row {
        client: "git",
        way,
        version: version.clone(),
    };
    let web = format!("https://{GIT}/acme/web.git");
    clients.judge(
        &row("clone"),
        git(&clients, "", &["clone", &web, "work"]),
        "Cloning",
        git(
            &clients,
            "",
            &["clone", &format!("https://{GIT}/closed/web.git")],
        ),
    );
    for (way, args) in [
        ("fetch", &["fetch", "--verbose", "origin"][..]),
        ("shallow", &["clone", "--depth=1", &web, "../shallow"]),
        (
            "ssh:// remote",
            &["ls-remote", &format!("ssh://git@{GIT}/acme/web.git")],
        ),
        (
            "git@ remote",
            &["ls-remote", &format!("git@{GIT}:acme/web.git")],
        ),
    ] {
        git(&clients, "work", args).ok();
        clients.works(&row(way));
    }
    let unlisted = git(
        &clients,
        "work",
        &["ls-remote", "git@other.portcullis.test:a/b"],
    )
    .refused();
    for part in ["Portcullis", "destination_not_listed", "use https://"] {
        assert!(unlisted.output().contains(part), "{}", unlisted.shown());
    }
    // Who leads ssh through the proxy by hand reads the same.
    let tunnel = clients.agent("curl").args(["-sv", "--proxytunnel"]);
    let tunnel = tunnel.arg(format!("http://{GIT}:22/")).run().refused();
    for part in ["403 Portcullis", "is ssh", &format!("use https://{GIT}/")] {
        assert!(tunnel.output().contains(part), "{part}: {}", tunnel.shown());
    }
}

#[test]
fn pushes_of_every_size_work_and_are_told() {
    let clients = world();
    let version = clients.version("git", &["--version"]);
    let row = |way| Row {
        client: "git",
        way,
        version: version.clone(),
    };
    let url = format!("https://{GIT}/acme/web.git");
    git(&clients, "", &["clone", "--quiet", &url, "work"]).ok();
    git(&clients, "work", &["config", "core.compression", "0"]).ok();
    for (way, size) in [
        ("push of 1 KiB", 1 << 10),
        ("push of 3 MiB", 3 << 20),
        ("push of 200 MiB", 200 << 20),
    ] {
        commit(&clients, "work", size);
        let to = format!("HEAD:refs/heads/agent/of-{size}");
        let pushed = git(&clients, "work", &["push", "origin", &to]);
        let refused = git(&clients, "work", &["push", "origin", "HEAD:main"]);
        // Which refs may be pushed is another rule than the one that closes paths.
        assert!(
            refused.output().contains("refs/heads/agent/*"),
            "{}",
            refused.shown()
        );
        clients.judge_by(&row(way), "forge", "push to", pushed, "new branch", refused);
        let here = git(&clients, "work", &["rev-parse", "HEAD"]).ok().stdout;
        let there = git(&clients, "work", &["ls-remote", "origin", &to[5..]])
            .ok()
            .stdout;
        assert!(there.starts_with(here.trim()), "{there} is not {here}");
    }
    git(&clients, "work", &["tag", "agent-1"]).ok();
    git(&clients, "work", &["tag", "release-1"]).ok();
    let pushed = git(&clients, "work", &["push", "origin", "agent-1"]);
    let refused = git(&clients, "work", &["push", "origin", "release-1"]);
    clients.judge_by(
        &row("push of a tag"),
        "forge",
        "push to",
        pushed,
        "new tag",
        refused,
    );
}

#[test]
fn submodules_and_large_files_work_and_are_told() {
    let clients = world();
    let url = format!("https://{GIT}/acme/web.git");
    git(&clients, "", &["clone", "--quiet", &url, "work"]).ok();
    git(
        &clients,
        "work",
        &["checkout", "--quiet", "-b", "agent/parts"],
    )
    .ok();
    // Other people write their submodules' remotes as they like.
    let part = format!("git@{GIT}:acme/part.git");
    git(&clients, "work", &["submodule", "add", &part, "part"]).ok();
    git(&clients, "work", &["lfs", "install"]).ok();
    git(&clients, "work", &["lfs", "track", "data"]).ok();
    git(&clients, "work", &["add", "."]).ok();
    commit(&clients, "work", 1 << 20);
    let pushed = git(
        &clients,
        "work",
        &["push", "origin", "HEAD:refs/heads/agent/parts"],
    )
    .ok();
    let object = git(&clients, "work", &["cat-file", "blob", "HEAD:data"]).ok();
    assert!(
        object.stdout.starts_with("version https://git-lfs"),
        "{}",
        object.shown()
    );

    let words = [
        "clone",
        "--recurse-submodules",
        "--branch",
        "agent/parts",
        &url,
        "copy",
    ];
    let cloned = git(&clients, "", &words);
    assert!(clients.home().join("copy/part/README.md").exists());
    let [here, there] = ["work", "copy"]
        .map(|place| std::fs::read(clients.home().join(place).join("data")).unwrap());
    assert!(
        here == there,
        "{} bytes are not {}",
        here.len(),
        there.len()
    );
    let closed = format!("https://{GIT}/closed/part.git");
    let refused = git(&clients, "work", &["submodule", "add", &closed, "closed"]);
    let row = Row {
        client: "git",
        way: "submodules",
        version: clients.version("git", &["--version"]),
    };
    clients.judge(&row, cloned, "Submodule path 'part'", refused);
    let elsewhere = format!("lfs.url=https://{GIT}/closed/web.git/info/lfs");
    let refused = git(
        &clients,
        "work",
        &["-c", &elsewhere, "lfs", "push", "--all", "origin"],
    );
    let row = Row {
        client: "git-lfs",
        way: "upload and download",
        version: clients.version("git-lfs", &["version"]),
    };
    clients.judge(&row, pushed, "", refused);
}
