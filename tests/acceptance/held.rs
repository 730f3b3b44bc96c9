//! Requests that wait for a person, with the real commands and real clients.

use tests::binaries;
use tests::command::{Finished, Program};
use tests::wait;
use tests::world::{GIT, WEB, World};

/// The usual policy, with two things that wait: a post, and every push.
fn world() -> World {
    let policy =
        World::policy().to_owned() + "hold = [\"POST /echo\"]\nwhy = \"people say when\"\n";
    let policy = policy.replace(
        "why = \"agents work on branches",
        "hold = [\"POST /acme/*/git-receive-pack\"]\nhold_seconds = 60\nwhy = \"agents work on branches",
    );
    World::with_policy(&policy)
}

/// `portcullis-proxy hold`, as somebody.
fn hold(world: &World, uid: u32, words: &[&str]) -> Finished {
    Program::new(binaries::path("portcullis-proxy"))
        .arg("hold")
        .args(words)
        .arg("--socket")
        .arg(world.gate.control_socket())
        .as_uid(uid)
        .run()
}

/// The only hold, once it is there.
fn waiting(world: &World) -> String {
    wait::until("a request waits", || {
        let listed = hold(world, world.gate.operator, &["list"]);
        let id = listed.stdout.split_whitespace().next()?.to_owned();
        listed.status.success().then_some(id)
    })
}

#[test]
fn curl_waits_for_a_yes_and_is_told_a_no() {
    let world = world();
    let post = |body: &str| world.curl(&["-d", body, &format!("https://{WEB}/echo")]);
    let operator = world.gate.operator;
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| post("release 1"));
        let id = waiting(&world);
        let shown = hold(&world, operator, &["show", &id]).ok();
        for part in [
            "POST /echo",
            "release 1",
            "people say when",
            "body sha256 ",
            "credential web",
        ] {
            assert!(shown.stdout.contains(part), "{part}: {}", shown.shown());
        }
        // Whoever is not listed reads nothing of it, the agent least of all.
        for words in [&["list"][..], &["approve", &id]] {
            let stranger = hold(&world, world.agent, words);
            let told = stranger.output().contains("release 1");
            assert!(!stranger.status.success() && !told, "{}", stranger.shown());
        }
        assert!(!world.web.received().contains("POST"), "nothing has left");
        hold(&world, operator, &["approve", &id]).ok();
        let answer = asking.join().unwrap().ok();
        assert!(answer.stdout.contains("release 1"), "{}", answer.shown());
        assert_eq!(world.web.received().matches("POST /echo").count(), 1);
        let gone = hold(&world, operator, &["approve", &id]);
        assert_eq!(gone.status.code(), Some(1), "{}", gone.shown());

        let asking = scope.spawn(|| post("release 2"));
        let id = waiting(&world);
        hold(
            &world,
            operator,
            &["deny", &id, "--reason", "not on a Friday"],
        )
        .ok();
        let refused = asking.join().unwrap();
        for part in ["hold_denied", "not on a Friday", "403"] {
            assert!(refused.stdout.contains(part), "{part}: {}", refused.shown());
        }
    });
    assert!(!world.web.received().contains("release 2"));
    let none = hold(&world, operator, &["list"]);
    assert_eq!(none.status.code(), Some(1), "{}", none.shown());
}

#[test]
fn a_push_waits_by_its_commands_and_its_pack_is_not_read_meanwhile() {
    let world = world();
    let operator = world.gate.operator;
    world.git(".", &["clone", &world.repository(), "work"]).ok();
    world
        .git("work", &["checkout", "-q", "-b", "agent/one"])
        .ok();
    world
        .git("work", &["commit", "-q", "--allow-empty", "-m", "one"])
        .ok();
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| world.git("work", &["push", "origin", "agent/one"]));
        let id = waiting(&world);
        let shown = hold(&world, operator, &["show", &id]).ok();
        assert!(
            shown.stdout.contains("refs/heads/agent/one"),
            "{}",
            shown.shown()
        );
        assert!(
            world.git.reference("refs/heads/agent/one").is_none(),
            "{GIT} has nothing yet"
        );
        hold(&world, operator, &["approve", &id]).ok();
        pushing.join().unwrap().ok();
    });
    assert!(world.git.reference("refs/heads/agent/one").is_some());
}
