//! The agent never holds, sees or logs a secret; the upstream gets it all the same.

use std::fs;

use tests::gate::Boundary;
use tests::host;
use tests::wait;
use tests::world::{GIT, WEB, World};

/// Clones, commits `file` on `branch`; the push is the test's own business.
fn commit(world: &World, branch: &str, file: &str) {
    world
        .git(".", &["clone", "--quiet", &world.repository(), "work"])
        .ok();
    world
        .git("work", &["checkout", "--quiet", "-b", branch])
        .ok();
    host::file(
        &world.home().join("work").join(file),
        "written by an agent\n",
        world.agent,
        0o644,
    );
    world.git("work", &["add", "."]).ok();
    world.git("work", &["commit", "--quiet", "-m", "Work"]).ok();
}

/// Attack: CRD-34
#[test]
fn a_push_arrives_with_a_credential_that_is_nowhere_the_agent_can_look() {
    let world = World::new();
    commit(&world, "agent/one", "note");
    let pushed = world
        .agent("git")
        .in_directory(&world.home().join("work"))
        .env("GIT_TRACE_CURL", "1")
        .env("GIT_TRACE_REDACT", "0")
        .args(["push", "origin", "agent/one"])
        .run()
        .ok();

    let head = world
        .git("work", &["rev-parse", "HEAD"])
        .ok()
        .stdout
        .trim()
        .to_owned();
    assert_eq!(
        world.git.reference("refs/heads/agent/one").as_deref(),
        Some(head.as_str())
    );
    let requests = world.git.requests();
    assert!(
        requests
            .iter()
            .any(|request| request.path.ends_with("/git-receive-pack"))
    );
    for request in &requests {
        assert_eq!(request.credential, "right", "{request:?}");
        let count = request
            .headers
            .iter()
            .filter(|name| *name == "authorization")
            .count();
        assert_eq!(count, 1, "{request:?}");
    }

    // An error text, too, is a place to look.
    let refused = world
        .git("work", &["push", "origin", "HEAD:refs/heads/main"])
        .refused();
    let body = world.curl(&[
        "--include",
        &format!("https://{GIT}/other/repo.git/info/refs"),
    ]);
    for (place, text) in [
        ("the trace", pushed.output()),
        ("a refused push", refused.output()),
        ("an error body", body.output()),
        ("the gate's log", world.gate.log()),
        (
            "the audit log",
            fs::read_to_string(world.gate.audit_file()).unwrap(),
        ),
    ] {
        assert!(!text.is_empty(), "{place} is empty: nothing was searched");
        world.git_secret.absent_from(place, text);
    }
    assert_eq!(world.agent_sees(&world.git_secret), []);
    assert_eq!(world.git_secret.search(&world.home()), []);

    // The control: root finds it, in the gate's own file and in the stand-in's, and nowhere else.
    let found = world.git_secret.search(&world.path());
    let places: Vec<_> = found
        .iter()
        .filter(|it| it.form == "raw")
        .map(|it| &it.place)
        .collect();
    assert_eq!(places.len(), 2, "{places:?}");
    assert!(
        places
            .iter()
            .any(|place| place.ends_with("gate/credentials/git")),
        "{places:?}"
    );
    assert!(
        places.iter().any(|place| place.ends_with("git/password")),
        "{places:?}"
    );
}

#[test]
fn a_large_push_streams_through() {
    let world = World::new();
    commit(&world, "agent/large", "note");
    let make =
        "head -c 5000000 /dev/urandom > large && git add large && git commit --quiet -m Large";
    world
        .agent("sh")
        .in_directory(&world.home().join("work"))
        .args(["-c", make])
        .run()
        .ok();
    world
        .git("work", &["push", "--quiet", "origin", "agent/large"])
        .ok();
    let head = world
        .git("work", &["rev-parse", "HEAD"])
        .ok()
        .stdout
        .trim()
        .to_owned();
    assert_eq!(
        world.git.reference("refs/heads/agent/large").as_deref(),
        Some(head.as_str())
    );

    world
        .git(
            ".",
            &[
                "clone",
                "--quiet",
                "-b",
                "agent/large",
                &world.repository(),
                "again",
            ],
        )
        .ok();
    let same = ["-s", "work/large", "again/large"];
    world.agent("cmp").args(same).run().ok();
}

/// Attack: PTH-11
#[test]
fn a_push_to_another_branch_and_a_deletion_are_refused_before_they_reach_the_forge() {
    let world = World::new();
    commit(&world, "agent/two", "note");
    let main = world.git.reference("refs/heads/main");
    let posts = |world: &World| {
        let requests = world.git.requests();
        requests
            .iter()
            .filter(|it| it.method == "POST" && it.path.ends_with("/git-receive-pack"))
            .count()
    };

    let refused = world
        .git("work", &["push", "origin", "HEAD:refs/heads/main"])
        .refused();
    assert!(
        refused.output().contains("ref_not_allowed"),
        "{}",
        refused.shown()
    );
    assert!(
        refused.output().contains("Portcullis"),
        "{}",
        refused.shown()
    );
    // A permitted ref beside a forbidden one does not carry it along.
    let both = [
        "push",
        "origin",
        "HEAD:refs/heads/agent/two",
        "HEAD:refs/heads/main",
    ];
    world.git("work", &both).refused();
    assert_eq!(posts(&world), 0, "nothing of a refused push may be sent");
    assert_eq!(world.git.reference("refs/heads/main"), main);
    assert_eq!(world.git.reference("refs/heads/agent/two"), None);

    world
        .git(
            "work",
            &["push", "--quiet", "origin", "HEAD:refs/heads/agent/two"],
        )
        .ok();
    assert!(world.git.reference("refs/heads/agent/two").is_some());
    let sent = posts(&world);
    let deleted = world
        .git("work", &["push", "origin", ":refs/heads/agent/two"])
        .refused();
    assert!(
        deleted.output().contains("delete_not_allowed"),
        "{}",
        deleted.shown()
    );
    assert_eq!(posts(&world), sent);
    assert!(world.git.reference("refs/heads/agent/two").is_some());
}

/// Attack: CRD-01, CRD-03, CRD-04
#[test]
fn what_the_client_sends_as_a_credential_never_leaves() {
    let world = World::new();
    let fields = [
        "Authorization: Basic Y2xpZW50OnNlY3JldA==",
        "authorization: Bearer client-secret-value",
        "Proxy-Authorization: Basic client-secret-value",
        "Cookie: session=client-secret-value",
        "PRIVATE-TOKEN: client-secret-value",
        "X-Api-Key: client-secret-value",
        "PVEAuthCookie: client-secret-value",
        "CSRFPreventionToken: client-secret-value",
    ];
    let url = format!("https://{WEB}/names");
    for field in fields {
        let sent = world
            .curl(&["--header", field, "--header", "X-Plain: kept", &url])
            .ok();
        assert!(sent.stdout.ends_with("\n200"), "{field}: {}", sent.shown());
        assert!(sent.stdout.contains("x-plain"), "{field}: {}", sent.shown());
    }
    let received = world.web.received();
    assert!(!received.contains("client-secret-value"), "{received}");
    assert!(!received.contains("Y2xpZW50OnNlY3JldA"), "{received}");
    let injected = format!("Bearer {}", world.web_secret.secret);
    assert_eq!(received.matches(&injected).count(), fields.len());
    let count = received
        .to_ascii_lowercase()
        .matches("authorization:")
        .count();
    assert_eq!(count, fields.len(), "{received}");
    assert_eq!(world.agent_sees(&world.web_secret), []);
}

#[test]
fn a_credential_the_upstream_rejects_is_reported_and_never_asks_the_agent() {
    let mut world = World::prepared(None, Boundary::External);
    let wrong = format!("ghp_{}\n", "A".repeat(36));
    let file = world.gate.dir.join("credentials/git");
    host::file(&file, &wrong, world.gate.uid, 0o600);
    world.start();
    // git asks this program for a user name whenever it would ask a person.
    let marker = world.home().join("asked");
    let ask = world.home().join("ask");
    let script = format!(
        "#!/bin/sh\necho \"$1\" >> {}\necho nobody\n",
        marker.display()
    );
    host::file(&ask, &script, world.agent, 0o755);
    let clone = |world: &World| {
        let url = world.repository();
        let _absent = fs::remove_dir_all(world.home().join("work"));
        world
            .agent("git")
            .env("GIT_ASKPASS", &ask)
            .args(["clone", &url, "work"])
            .run()
    };
    let refused = clone(&world).refused();
    assert!(
        world
            .git
            .requests()
            .iter()
            .any(|request| request.credential == "wrong")
    );
    assert!(
        !marker.exists(),
        "git asked for a credential: {}",
        refused.shown()
    );
    assert!(
        !refused.output().contains("terminal prompts disabled"),
        "{}",
        refused.shown()
    );

    // With the right secret the same command passes.
    host::file(
        &file,
        &format!("{}\n", world.git_secret.secret),
        world.gate.uid,
        0o600,
    );
    world.gate.stop();
    world.start();
    clone(&world).ok();
    assert!(!marker.exists());
}

#[test]
fn a_credential_never_goes_to_a_host_it_is_not_bound_to() {
    // The policy would send the forge's credential to the web server; the binding forbids it.
    let policy = World::policy().replace("credential = \"web\"", "credential = \"git\"");
    let mut world = World::prepared(Some(&policy), Boundary::External);
    let log = world.gate.try_start(&world.netns).unwrap_err();
    assert!(
        log.contains("web.portcullis.test") && log.contains("git"),
        "{log}"
    );

    world
        .gate
        .write_policy(&World::policy().replace("{ca}", &world.pki.ca().display().to_string()));
    world.start();
    let allowed = world.curl(&[&format!("https://{WEB}/x")]).ok();
    assert!(allowed.stdout.ends_with("\n200"));
    assert_eq!(
        world
            .git_secret
            .find("web", world.web.received().as_bytes()),
        []
    );
}

/// Attack: TLS-05
#[test]
fn an_upstream_with_an_unknown_certificate_gets_nothing() {
    let policy = World::policy().replace("ca_file = \"{ca}\"\n", "");
    let world = World::with_policy(&policy);
    let refused = world.curl(&["--include", &format!("https://{WEB}/x")]).ok();
    assert!(refused.stdout.ends_with("\n502"), "{}", refused.shown());
    assert!(
        refused.stdout.contains("upstream_tls"),
        "{}",
        refused.shown()
    );
    assert_eq!(world.web.received(), "");

    world
        .gate
        .write_policy(&World::policy().replace("{ca}", &world.pki.ca().display().to_string()));
    world.control().call("POST", "/v1/reload", None).ok();
    let allowed = world.curl(&[&format!("https://{WEB}/x")]).ok();
    assert!(allowed.stdout.ends_with("\n200"), "{}", allowed.shown());
    wait::until_true("the request is recorded", || {
        world.web.received().contains("GET /x")
    });
}
