//! Real git against a real `git http-backend`: what a push does to each ref is permitted or refused
//! before anything of it leaves, and git says which ref it was.

use tests::host;
use tests::world::{GIT, World};

/// Agents create, move and delete their own branches, and create tags of their own.
fn world() -> World {
    World::with_policy(&format!(
        "version = 1\n[[service]]\nid = \"forge\"\nkind = \"github\"\nhost = \"{GIT}\"\nrepos = [\"acme/web\"]\n\
         git = \"push\"\nrefs = [\"refs/heads/agent/*\"]\ncreate_refs = [\"refs/heads/kept/*\"]\n\
         delete_refs = [\"refs/heads/agent/*\"]\ntags = [\"agent-*\"]\ncredential = \"git\"\nca_file = \"{{ca}}\"\n"
    ))
}

fn commit(world: &World, text: &str) {
    let file = world.home().join("work/note");
    host::file(&file, text, world.agent, 0o644);
    world.git("work", &["add", "note"]).ok();
    world.git("work", &["commit", "--quiet", "-m", text]).ok();
}

/// How many pushes have reached the forge.
fn posts(world: &World) -> usize {
    let requests = world.git.requests();
    let pushes = requests
        .iter()
        .filter(|it| it.method == "POST" && it.path.ends_with("/git-receive-pack"));
    pushes.count()
}

/// A push that passes.
fn passes(world: &World, words: &[&str]) {
    let before = posts(world);
    let words = [&["push", "origin"], words].concat();
    world.git("work", &words).ok();
    assert!(posts(world) > before, "{words:?}");
}

/// A push that is refused: nothing of it reaches the forge, and git says these words.
fn refused(world: &World, words: &[&str], said: &[&str]) {
    let before = posts(world);
    let words = [&["push", "origin"], words].concat();
    let finished = world.git("work", &words).refused();
    for part in said {
        assert!(
            finished.output().contains(part),
            "{words:?} {part}: {}",
            finished.shown()
        );
    }
    assert_eq!(posts(world), before, "{words:?}: nothing may be sent");
}

#[test]
fn every_kind_of_push_is_judged_by_its_refs() {
    let world = world();
    world
        .git(".", &["clone", "--quiet", &world.repository(), "work"])
        .ok();
    let main = world.git.reference("refs/heads/main").unwrap();
    commit(&world, "one");
    let no_ref = "Portcullis: ref_not_allowed";
    // Create, update, rewrite, delete.
    passes(&world, &["HEAD:refs/heads/agent/x"]);
    passes(&world, &["HEAD:refs/heads/kept/x"]);
    refused(
        &world,
        &["HEAD:refs/heads/main"],
        &[no_ref, "[remote rejected]", "hint: "],
    );
    refused(&world, &["HEAD:refs/heads/other"], &[no_ref]);
    commit(&world, "two");
    passes(&world, &["HEAD:refs/heads/agent/x"]);
    refused(
        &world,
        &["HEAD:refs/heads/kept/x"],
        &[no_ref, "not to move it"],
    );
    world
        .git("work", &["reset", "--quiet", "--hard", "HEAD~1"])
        .ok();
    commit(&world, "other");
    passes(&world, &["--force", "HEAD:refs/heads/agent/x"]);
    refused(&world, &["--force", "HEAD:refs/heads/kept/x"], &[no_ref]);
    refused(&world, &["--force", "HEAD:refs/heads/main"], &[no_ref]);
    refused(
        &world,
        &[":refs/heads/kept/x"],
        &["Portcullis: delete_not_allowed"],
    );
    refused(
        &world,
        &[":refs/heads/main"],
        &["Portcullis: delete_not_allowed"],
    );
    // Tags are created, and neither moved nor deleted.
    for tag in ["agent-1", "v1"] {
        world.git("work", &["tag", tag]).ok();
    }
    passes(&world, &["agent-1"]);
    refused(&world, &["v1"], &[no_ref]);
    // What the forge has already, git does not send again.
    refused(&world, &["--tags"], &[no_ref]);
    commit(&world, "three");
    world.git("work", &["tag", "--force", "agent-1"]).ok();
    refused(&world, &["--force", "agent-1"], &[no_ref]);
    refused(
        &world,
        &[":refs/tags/agent-1"],
        &["Portcullis: delete_not_allowed"],
    );
    // Several at once: one that is refused takes the others along, and git says which it was.
    let both = ["HEAD:refs/heads/agent/y", "HEAD:refs/heads/main"];
    let said = [
        "agent/y (Portcullis: another ref of this push is refused)",
        "main (Portcullis: ref_not_allowed)",
    ];
    refused(&world, &both, &said);
    assert_eq!(world.git.reference("refs/heads/agent/y"), None);
    refused(&world, &["--atomic", both[0], both[1]], &[no_ref]);
    passes(&world, &["--atomic", both[0], "HEAD:refs/heads/agent/z"]);
    refused(&world, &["--mirror"], &["Portcullis: "]);
    let many: Vec<String> = (0..500)
        .map(|n| format!("HEAD:refs/heads/agent/many/{n}"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    passes(&world, &many);
    let bad = [&many[..], &["HEAD:refs/heads/main"]].concat();
    refused(&world, &bad, &[no_ref]);
    passes(&world, &[":refs/heads/agent/x"]);
    assert_eq!(world.git.reference("refs/heads/agent/x"), None);
    assert_eq!(world.git.reference("refs/heads/main"), Some(main));
    assert!(world.git.reference("refs/heads/agent/many/499").is_some());
}
