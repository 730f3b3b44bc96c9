//! `force = "deny"`: real git against a real `git http-backend`. What moves forward passes, by the bytes that git
//! sent; what rewrites, or cannot be proven, does not leave, and git says which ref it was.

use tests::host;
use tests::world::{GIT, World};

fn world(more: &str) -> World {
    World::with_policy(&format!(
        "version = 1\n[[service]]\nid = \"forge\"\nkind = \"github\"\nhost = \"{GIT}\"\nrepos = [\"acme/web\"]\ngit = \"push\"\n\
         refs = [\"refs/heads/*\", \"refs/tags/*\"]\nforce = \"deny\"\ncredential = \"git\"\nca_file = \"{{ca}}\"\n{more}"
    ))
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
