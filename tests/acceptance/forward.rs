//! `force = "deny"`: real git against a real `git http-backend`. What moves forward passes, by the bytes that git
//! sent; what rewrites, or cannot be proven, does not leave, and git says which ref it was.

mod hosts;

use std::fs;

use serde_json::Value;
use tests::gate::Boundary;
use tests::host;
use tests::world::{GIT, World};

fn policy(more: &str) -> String {
    format!(
        "version = 1\n[[service]]\nid = \"forge\"\nkind = \"github\"\nhost = \"{GIT}\"\nrepos = [\"acme/*\"]\ngit = \"push\"\n\
         refs = [\"refs/heads/*\", \"refs/tags/*\"]\nforce = \"deny\"\ncredential = \"git\"\nca_file = \"{{ca}}\"\n{more}"
    )
}

fn world(more: &str) -> World {
    World::with_policy(&policy(more))
}

fn git(world: &World, words: &[&str]) {
    world.git("work", words).ok();
}

fn commit(world: &World, name: &str, text: &str) {
    host::file(
        &world.home().join("work").join(name),
        text,
        world.agent,
        0o644,
    );
    git(world, &["add", name]);
    git(world, &["commit", "--quiet", "-m", name]);
}

fn posts(world: &World) -> usize {
    let pushes = world.git.requests();
    let pushes = pushes
        .iter()
        .filter(|it| it.method == "POST" && it.path.ends_with("/git-receive-pack"));
    pushes.count()
}

#[track_caller]
fn passes(world: &World, words: &[&str]) {
    let before = posts(world);
    git(world, &[&["push", "origin"], words].concat());
    assert!(posts(world) > before, "{words:?}");
}

#[track_caller]
fn refused(world: &World, words: &[&str], said: &[&str]) {
    let before = posts(world);
    let finished = world
        .git("work", &[&["push", "origin"], words].concat())
        .refused();
    for part in said {
        assert!(
            finished.output().contains(part),
            "{words:?} {part}: {}",
            finished.shown()
        );
    }
    assert_eq!(posts(world), before, "{words:?}: nothing may be sent");
}

const NO: &str = "(Portcullis: force_not_allowed)";

#[test]
fn refs_move_forward_and_in_no_other_way() {
    let world = world("");
    world
        .git(".", &["clone", "--quiet", &world.repository(), "work"])
        .ok();
    commit(&world, "a", "1");
    passes(&world, &["HEAD:refs/heads/agent/x"]);
    commit(&world, "b", "1");
    commit(&world, "c", "1");
    passes(&world, &["HEAD:refs/heads/agent/x"]);
    // What the forge has already needs no pack, and its history is fetched.
    passes(&world, &["HEAD:refs/heads/main"]);
    // Merging what was made apart moves both forward.
    git(&world, &["checkout", "--quiet", "-b", "side", "HEAD~2"]);
    commit(&world, "d", "1");
    passes(&world, &["HEAD:refs/heads/side"]);
    git(&world, &["merge", "--quiet", "--no-edit", "origin/agent/x"]);
    passes(&world, &["HEAD:refs/heads/side", "HEAD:refs/heads/agent/x"]);
    // Rewriting, alone and among others, and going back.
    let kept = world.git.reference("refs/heads/agent/x");
    git(&world, &["checkout", "--quiet", "-b", "other", "HEAD~1"]);
    commit(&world, "e", "1");
    let said = [
        NO,
        "[remote rejected]",
        "it rewrites what is there",
        "hint: ",
    ];
    refused(&world, &["--force", "HEAD:refs/heads/agent/x"], &said);
    refused(&world, &["--force", "side~1:refs/heads/agent/x"], &[NO]);
    let hidden = ["HEAD:refs/heads/new", "+HEAD:refs/heads/agent/x"];
    let said = [
        "new (Portcullis: another ref of this push is refused)",
        "agent/x (Portcullis: force_not_allowed)",
    ];
    refused(&world, &hidden, &said);
    assert_eq!(world.git.reference("refs/heads/new"), None);
    git(&world, &["commit", "--quiet", "--amend", "-m", "amended"]);
    refused(&world, &["--force", "HEAD:refs/heads/side"], &[NO]);
    git(&world, &["checkout", "--quiet", "--orphan", "apart"]);
    commit(&world, "f", "1");
    refused(&world, &["--force", "HEAD:refs/heads/agent/x"], &[NO]);
    passes(&world, &["HEAD:refs/heads/apart"]);
    assert_eq!(world.git.reference("refs/heads/agent/x"), kept);
    // Tags are made and not moved, wherever to.
    git(&world, &["checkout", "--quiet", "side"]);
    git(&world, &["tag", "v1"]);
    git(&world, &["tag", "--annotate", "-m", "two", "v2"]);
    passes(&world, &["v1", "v2"]);
    commit(&world, "g", "1");
    git(&world, &["tag", "--force", "v1"]);
    refused(&world, &["--force", "v1"], &[NO, "a tag is not moved"]);
    passes(&world, &["HEAD:refs/heads/side"]);
    // What a shallow clone pushes builds on what the forge has.
    let shallow = [
        "clone",
        "--quiet",
        "--depth",
        "1",
        "--branch",
        "side",
        &world.repository(),
        "shallow",
    ];
    world.git(".", &shallow).ok();
    host::file(&world.home().join("shallow/h"), "1", world.agent, 0o644);
    world.git("shallow", &["add", "h"]).ok();
    world.git("shallow", &["commit", "--quiet", "-m", "h"]).ok();
    world
        .git("shallow", &["push", "origin", "HEAD:refs/heads/side"])
        .ok();
    world
        .git("shallow", &["commit", "--quiet", "--amend", "-m", "i"])
        .ok();
    let rewritten = world
        .git(
            "shallow",
            &["push", "--force", "origin", "HEAD:refs/heads/side"],
        )
        .refused();
    assert!(rewritten.output().contains(NO), "{}", rewritten.shown());
}

#[test]
fn two_pushes_at_once_are_both_proven() {
    let world = world("");
    for name in ["work", "other"] {
        world
            .git(".", &["clone", "--quiet", &world.repository(), name])
            .ok();
        world
            .git(
                name,
                &["push", "origin", &format!("HEAD:refs/heads/{name}")],
            )
            .ok();
        world
            .git(name, &["commit", "--quiet", "--allow-empty", "-m", name])
            .ok();
    }
    std::thread::scope(|scope| {
        for name in ["work", "other"] {
            let world = &world;
            let words = [
                "push".to_owned(),
                "origin".to_owned(),
                format!("HEAD:refs/heads/{name}"),
            ];
            scope.spawn(move || {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                world.git(name, &words).ok();
            });
        }
    });
    let main = world.git.reference("refs/heads/main");
    for name in ["work", "other"] {
        let moved = world.git.reference(&format!("refs/heads/{name}"));
        assert!(moved.is_some() && moved != main, "{name}");
    }
}

/// Requests by which history is fetched; `git push` makes none.
fn fetches(world: &World) -> usize {
    let requests = world.git.requests();
    let fetches = requests
        .iter()
        .filter(|it| it.method == "POST" && it.path.ends_with("/git-upload-pack"));
    fetches.count()
}

#[test]
fn what_the_gate_fetches_is_recorded_and_kept() {
    let mut world = World::prepared(Some(&policy("")), Boundary::External);
    let kept = world.gate.dir.join("history");
    host::directory(&kept, world.gate.uid, 0o700);
    world.start();
    let noise: String = (0_u32..60_000)
        .map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761)))
        .collect();
    world
        .git
        .run(
            "acme/web.git",
            &["config", "uploadpack.allowFilter", "true"],
        )
        .ok();
    world
        .git(".", &["clone", "--quiet", &world.repository(), "work"])
        .ok();
    commit(&world, "large", &noise);
    commit(&world, "a", "1");
    passes(&world, &["HEAD:refs/heads/x"]);
    let before = fetches(&world);
    git(&world, &["commit", "--quiet", "--amend", "-m", "other"]);
    refused(&world, &["--force", "HEAD:refs/heads/x"], &[NO]);
    let after = fetches(&world);
    assert!(after > before, "what is not known is asked for");
    // The gate's own requests stand in the log as an agent's do, and say what they are.
    let records = world.gate.audit();
    let own = |record: &&Value| {
        record["reason"]
            .as_str()
            .is_some_and(|text| text.contains("the gate's own request"))
    };
    let own: Vec<&Value> = records.iter().filter(own).collect();
    assert!(own.len() >= 2, "{own:?}");
    for record in &own {
        assert_eq!(record["verdict"], "allow", "{record}");
        assert_eq!(record["credential"], "git", "{record}");
        assert_eq!(record["rule"], "forge", "{record}");
        let path = record["path"].as_str().unwrap();
        assert!(path.starts_with("/acme/web.git/"), "{record}");
        let end = records
            .iter()
            .find(|end| end["id"] == record["id"] && end["kind"] == "response");
        let end = end.unwrap_or_else(|| panic!("no end of {record}"));
        assert_eq!(end["status"], 200, "{end}");
        // Commits alone: the file is no part of it.
        let bytes = end["bytes_out"].as_u64().unwrap();
        assert!(bytes > 0 && bytes < 20_000, "{end}");
    }
    // What is known is the gate's alone, and outlasts it.
    let files: Vec<_> = fs::read_dir(&kept).unwrap().flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let known = fs::read_to_string(files[0].path()).unwrap();
    assert!(known.contains(&world.git.reference("refs/heads/main").unwrap()));
    assert_eq!(world.gate.stop(), Some(0));
    world.start();
    refused(&world, &["--force", "HEAD:refs/heads/x"], &[NO]);
    assert_eq!(fetches(&world), after, "it is known already");
    git(&world, &["reset", "--quiet", "--hard", "origin/x"]);
    commit(&world, "b", "1");
    passes(&world, &["HEAD:refs/heads/x"]);
}

#[test]
fn objects_may_be_named_by_either_hash_and_pushes_have_options() {
    let world = world("");
    for (name, format) in [("short", "sha1"), ("long", "sha256")] {
        let (bare, format) = (
            format!("acme/{name}.git"),
            format!("--object-format={format}"),
        );
        world
            .git
            .run(&bare, &["init", "--quiet", "--bare", &format])
            .ok();
        world
            .git
            .run(&bare, &["config", "receive.advertisePushOptions", "true"])
            .ok();
        world.git(".", &["init", "--quiet", &format, name]).ok();
        let git = |words: &[&str]| world.git(name, words);
        let commit = |text: &str| git(&["commit", "--quiet", "--allow-empty", "-m", text]).ok();
        let at = || {
            world
                .git
                .run(&bare, &["rev-parse", "refs/heads/x"])
                .ok()
                .stdout
        };
        git(&["remote", "add", "origin", &format!("https://{GIT}/{bare}")]).ok();
        commit("one");
        git(&["push", "origin", "HEAD:refs/heads/x"]).ok();
        commit("two");
        git(&[
            "push",
            "-o",
            "some=option",
            "-o",
            "PACK",
            "origin",
            "HEAD:refs/heads/x",
        ])
        .ok();
        let moved = at();
        git(&[
            "commit",
            "--quiet",
            "--amend",
            "--allow-empty",
            "-m",
            "three",
        ])
        .ok();
        for options in [&[][..], &["-o", "some=option"]] {
            let words = [
                &["push", "--force"],
                options,
                &["origin", "HEAD:refs/heads/x"],
            ]
            .concat();
            let finished = git(&words).refused();
            assert!(finished.output().contains(NO), "{}", finished.shown());
            assert!(
                finished.output().contains("it rewrites"),
                "{}",
                finished.shown()
            );
        }
        assert_eq!(at(), moved, "{name}");
    }
}

#[test]
fn what_cannot_be_proven_does_not_leave() {
    let bound = world("max_inspected_bytes = 200_000\n");
    bound
        .git(".", &["clone", "--quiet", &bound.repository(), "work"])
        .ok();
    passes(&bound, &["HEAD:refs/heads/agent/x"]);
    let noise: String = (0_u32..60_000)
        .map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761)))
        .collect();
    commit(&bound, "large", &noise);
    refused(
        &bound,
        &["HEAD:refs/heads/agent/x"],
        &[NO, "longer than the 200000 bytes"],
    );
    passes(&bound, &["HEAD:refs/heads/agent/y"]);
    git(&bound, &["reset", "--quiet", "--hard", "HEAD~1"]);
    commit(&bound, "small", "1");
    passes(&bound, &["HEAD:refs/heads/agent/x"]);
    // Without a way to fetch, only what a push brings is known.
    let blind = World::with_policy(&format!(
        "version = 1\n[[service]]\nid = \"forge\"\nkind = \"http\"\nhost = \"{GIT}\"\ncredential = \"git\"\nca_file = \"{{ca}}\"\n\
         allow = [\"GET /acme/web.git/info/refs?service=git-receive-pack\"]\npush = [\"POST /acme/web.git/git-receive-pack\"]\n\
         refs = [\"refs/heads/*\"]\nforce = \"deny\"\n"
    ));
    blind.git(".", &["init", "--quiet", "work"]).ok();
    git(&blind, &["remote", "add", "origin", &blind.repository()]);
    commit(&blind, "a", "1");
    passes(&blind, &["HEAD:refs/heads/x"]);
    commit(&blind, "b", "1");
    passes(&blind, &["HEAD:refs/heads/y"]);
    refused(
        &blind,
        &["HEAD:refs/heads/x"],
        &[NO, "no rule permits fetching"],
    );
    commit(&blind, "c", "1");
    passes(&blind, &["HEAD:refs/heads/y"]);
}
