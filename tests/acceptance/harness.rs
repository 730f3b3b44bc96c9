//! The harness sees what it claims to see: the positive controls of every "nothing left".

use std::fs;
use std::net::IpAddr;

use tests::binaries;
use tests::canary::Canary;
use tests::command::Program;
use tests::gate::Boundary;
use tests::host;
use tests::probe::{Outcome, Report};
use tests::wait;
use tests::world::{EVIL, EVIL_ADDRESS, World};

#[test]
fn a_direct_request_is_seen_by_resolver_upstream_and_counter() {
    let world = World::prepared(None, Boundary::External);
    let dials = world.netns.count_dials(world.agent);
    assert_eq!((world.names.questions(), dials.count()), (Vec::new(), 0));

    let url = format!("https://{EVIL}/hello");
    let ca = world.pki.ca();
    let seen = world
        .unproxied("curl")
        .arg("-sS")
        .arg("--cacert")
        .arg(&ca)
        .arg(&url)
        .run()
        .ok();
    assert_eq!(seen.stdout, "recorded\n");
    assert!(world.names.questions().contains(&EVIL.to_owned()));
    assert_eq!(dials.count(), 1);
    assert!(world.evil.received().starts_with("GET /hello HTTP/1.1\r\n"));
    assert!(world.web.connections().is_empty());
}

#[test]
fn the_probe_reports_what_it_reaches() {
    let world = World::prepared(None, Boundary::External);
    let probe = binaries::path("portcullis-probe").display().to_string();
    let target = format!("{EVIL_ADDRESS}:443");
    let open = world.unproxied(&probe).args(["tcp", &target]).run();
    let report: Report = serde_json::from_str(&open.stdout).unwrap();
    // The TLS server answers the probe's line with an alert.
    assert_eq!((report.outcome, open.code()), (Outcome::Replied, 1));
    wait::until_true("the accept is recorded", || {
        world.evil.connections().len() == 1
    });

    let shut = world
        .unproxied(&probe)
        .args(["tcp", "93.184.215.66:444"])
        .run();
    let report: Report = serde_json::from_str(&shut.stdout).unwrap();
    assert_eq!((report.outcome, shut.code()), (Outcome::Failed, 0));
    assert_eq!(report.errno.as_deref(), Some("ECONNREFUSED"));

    // Root may open raw and packet sockets, and reaches an answering address.
    let address: IpAddr = EVIL_ADDRESS.into();
    let raw = Program::new(&probe)
        .args(["raw", &address.to_string()])
        .in_netns(&world.netns)
        .run();
    assert_eq!(raw.code(), 1, "{}", raw.shown());
    let packet = Program::new(&probe)
        .arg("packet")
        .in_netns(&world.netns)
        .run();
    assert_eq!(packet.code(), 1, "{}", packet.shown());
}

#[test]
fn a_planted_canary_is_seen_in_a_file_and_in_an_environment_and_a_hidden_one_is_not() {
    let world = World::prepared(None, Boundary::External);
    assert!(world.agent_sees(&world.git_secret).is_empty());

    let canary = Canary::github();
    let kept = world.path().join("gate/private");
    host::file(&kept, &canary.secret, world.gate.uid, 0o600);
    assert!(world.agent_sees(&canary).is_empty());

    host::file(
        &world.home().join("note"),
        &canary.secret,
        world.agent,
        0o600,
    );
    let mut sleeper = world
        .unproxied("sleep")
        .env("TOKEN", &canary.secret)
        .arg("60")
        .spawn();
    let environment = format!("/proc/{}/environ", sleeper.id());
    wait::until_true("the sleeper runs", || {
        fs::read(&environment).is_ok_and(|bytes| !canary.find("", &bytes).is_empty())
    });
    let seen = world.agent_sees(&canary);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(
        seen.iter()
            .any(|sighting| sighting.place.ends_with("agent/note")),
        "{seen:?}"
    );
    assert!(
        seen.iter().any(|sighting| sighting.place == environment),
        "{seen:?}"
    );
}
