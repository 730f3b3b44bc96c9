//! What the host makes of a repository: other versions of the protocol, objects that another repository keeps, refs
//! that stand for others; and what clients make of a push by it.

use super::*;

/// A world with a clone, `work`, of which `base` is the commit that `main` names.
fn cloned() -> World {
    let world = world("delete_refs = [\"refs/heads/*\"]\n");
    world
        .git(".", &["clone", "--quiet", &world.repository(), "work"])
        .ok();
    git(&world, &["tag", "base"]);
    world
}

fn push(world: &World, words: &[&str]) {
    git(world, &[&["push", "origin"], words].concat());
}

/// Before version 2 of the protocol only what refs name can be asked for.
#[test]
fn a_host_of_the_first_version_is_asked_as_well() {
    let world = cloned();
    host::file(&world.git.root.join("speaks-version-0"), "", 0, 0o644);
    for name in ["a", "b", "c"] {
        commit(&world, name, "1");
    }
    passes(&world, &["HEAD:refs/heads/x", "HEAD~1:refs/heads/y"]);
    // Neither brings anything: what is between is what the host has, by a ref or below one.
    passes(&world, &["HEAD:refs/heads/y"]);
    passes(&world, &["HEAD~2:refs/heads/main"]);
    let said = [NO, "it rewrites what is there"];
    refused(&world, &["--force", "HEAD~1:refs/heads/x"], &said);
    git(&world, &["checkout", "--quiet", "--orphan", "apart"]);
    commit(&world, "f", "1");
    refused(&world, &["--force", "HEAD:refs/heads/x"], &said);
    let own = world.gate.audit();
    let fetched = own.iter().any(|record| {
        record["kind"] == "response"
            && record["status"] == 200
            && record["path"] == "/acme/web.git/git-upload-pack"
    });
    assert!(fetched, "history was asked for");
}

/// A fork has its objects from another repository: a push brings nothing of what it has by that.
#[test]
fn what_a_fork_has_from_elsewhere_is_known_by_the_fork() {
    let world = cloned();
    let fork = "acme/fork.git";
    let bare = world.git.root.join("acme/web.git");
    world
        .git
        .run(
            fork,
            &["init", "--quiet", "--bare", "--initial-branch=main"],
        )
        .ok();
    let objects = format!("{}\n", bare.join("objects").display());
    let place = world.git.root.join(fork).join("objects/info/alternates");
    host::file(&place, &objects, 0, 0o644);
    let remote = format!("https://{GIT}/{fork}");
    git(&world, &["remote", "add", "fork", &remote]);
    git(&world, &["push", "fork", "base:refs/heads/main"]);
    for name in ["a", "b"] {
        commit(&world, name, "1");
    }
    // The other repository has it; the fork has no ref that leads to it.
    passes(&world, &["HEAD:refs/heads/x"]);
    git(&world, &["push", "fork", "HEAD:refs/heads/main"]);
    let at = |name: &str| world.git.run(fork, &["rev-parse", name]).ok().stdout;
    let moved = at("refs/heads/main");
    git(&world, &["commit", "--quiet", "--amend", "-m", "other"]);
    let words = ["push", "--force", "fork", "HEAD:refs/heads/main"];
    let no = world.git("work", &words).refused();
    assert!(no.output().contains(NO), "{}", no.shown());
    assert_eq!(at("refs/heads/main"), moved);
}

#[test]
fn each_of_many_refs_is_judged_and_all_together() {
    let world = cloned();
    commit(&world, "a", "1");
    let to = |from: &str| -> Vec<String> {
        (0..120)
            .map(|n| format!("{from}:refs/heads/n/{n}"))
            .collect()
    };
    let words = |all: &[String]| all.to_vec();
    let all = words(&to("base"));
    passes(&world, &all.iter().map(String::as_str).collect::<Vec<_>>());
    // Forward all of them but one, which is behind what it has.
    push(&world, &["HEAD:refs/heads/n/77"]);
    let mut mixed = to("HEAD");
    mixed[77] = "+base:refs/heads/n/77".to_owned();
    for atomic in [&["--atomic"][..], &[]] {
        let words: Vec<&str> = mixed.iter().map(String::as_str).collect();
        let said = [
            "n/77 (Portcullis: force_not_allowed)",
            "n/0 (Portcullis: another ref of this push is refused)",
        ];
        refused(&world, &[atomic, &words].concat(), &said);
    }
    let base = world.git.reference("refs/heads/n/77^");
    assert_eq!(world.git.reference("refs/heads/n/0"), base);
    let all = to("HEAD");
    let words: Vec<&str> = all.iter().map(String::as_str).collect();
    passes(&world, &[&["--atomic"][..], &words].concat());
    // Among refs that are made and deleted.
    let mixed = [
        "HEAD:refs/heads/made",
        ":refs/heads/n/1",
        "+base:refs/heads/n/2",
    ];
    refused(&world, &mixed, &["n/2 (Portcullis: force_not_allowed)"]);
    passes(&world, &mixed[..2]);
    assert_eq!(world.git.reference("refs/heads/n/1"), None);
}

/// A ref that stands for another, a ref that names a tag, the last branch, and what is no ref of the rule.
#[test]
fn refs_are_judged_by_what_they_have() {
    let world = cloned();
    let bare = "acme/web.git";
    let alias = ["symbolic-ref", "refs/heads/alias", "refs/heads/main"];
    world.git.run(bare, &alias).ok();
    commit(&world, "a", "1");
    passes(&world, &["HEAD:refs/heads/alias"]);
    assert_eq!(
        world.git.reference("refs/heads/main"),
        world.git.reference("refs/heads/alias")
    );
    let said = [NO, "it rewrites what is there"];
    refused(&world, &["--force", "base:refs/heads/alias"], &said);
    refused(&world, &["--force", "base:refs/heads/main"], &said);
    // A tag that names a commit in front of the branch is no commit.
    commit(&world, "b", "1");
    git(&world, &["tag", "--annotate", "-m", "two", "v2"]);
    passes(&world, &["v2"]);
    refused(&world, &["v2:refs/heads/main"], &[NO]);
    passes(&world, &["v2^{commit}:refs/heads/main"]);
    git(
        &world,
        &["tag", "--force", "--annotate", "-m", "three", "v2"],
    );
    refused(&world, &["--force", "v2"], &[NO, "a tag is not moved"]);
    // A branch may be deleted where a rule says so, the last one as well, whatever it had.
    world
        .git
        .run(bare, &["config", "receive.denyDeleteCurrent", "ignore"])
        .ok();
    world
        .git
        .run(bare, &["symbolic-ref", "--delete", "refs/heads/alias"])
        .ok();
    passes(&world, &[":refs/heads/main"]);
    let left = world.git.run(bare, &["for-each-ref", "refs/heads"]).ok();
    assert!(left.stdout.is_empty(), "{}", left.shown());
    passes(&world, &["base:refs/heads/main"]);
}

/// Commits that a client keeps as deltas of others it may send as they are, against one that the host has.
#[test]
fn commits_that_come_as_deltas_of_others_are_read() {
    let world = cloned();
    let text: String = (0..200)
        .map(|n| format!("line {} of a message\n", n * n))
        .collect();
    let long = |n: usize| {
        let message = format!("{text}{n}");
        git(
            &world,
            &["commit", "--quiet", "--allow-empty", "-m", &message],
        );
    };
    (0..6).for_each(long);
    git(
        &world,
        &[
            "repack",
            "-a",
            "-d",
            "-f",
            "-q",
            "--depth=50",
            "--window=50",
        ],
    );
    git(
        &world,
        &[
            "-c",
            "repack.writeBitmaps=true",
            "repack",
            "-a",
            "-d",
            "-b",
            "-q",
        ],
    );
    let from = |n: usize| format!("HEAD~{n}:refs/heads/x");
    for n in [5, 4, 2, 0] {
        passes(&world, &[&from(n)]);
    }
    refused(
        &world,
        &["--force", &from(3)],
        &[NO, "it rewrites what is there"],
    );
}
