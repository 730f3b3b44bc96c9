//! The certificate authority as clients see it: what they trust, who may read its key, and how it
//! is replaced while they work.

use std::fs;

use tests::binaries;
use tests::command::{Finished, Program};
use tests::host;
use tests::wait;
use tests::world::{WEB, World};

/// `portcullis-proxy ca …` as the gate's own user.
fn ca(world: &World, words: &[&str]) -> Finished {
    Program::new(binaries::path("portcullis-proxy"))
        .arg("ca")
        .args(words)
        .arg("--config")
        .arg(world.gate.config())
        .as_uid(world.gate.uid)
        .run()
}

fn trust(world: &World, name: &str) -> String {
    let path = world.path().join(name);
    host::file(&path, &ca(world, &["export"]).ok().stdout, 0, 0o644);
    path.display().to_string()
}

/// What curl and Python make of the gate's leaf when they trust this bundle.
fn served(world: &World, bundle: &str) -> (bool, bool) {
    let url = format!("https://{WEB}/x");
    let curl = world
        .agent("curl")
        .args(["-sS", "--cacert", bundle, &url])
        .run();
    let script = "import os, urllib.request; print(urllib.request.urlopen(os.environ['URL'], timeout=60).read())";
    let python = world
        .agent("python3")
        .env("SSL_CERT_FILE", bundle)
        .env("URL", &url)
        .args(["-c", script])
        .run();
    (
        curl.stdout.contains("recorded"),
        python.stdout.contains("recorded"),
    )
}

#[test]
fn the_authority_is_replaced_while_clients_work_and_each_step_is_on_record() {
    let world = World::new();
    let old = trust(&world, "old.pem");
    assert_eq!(served(&world, &old), (true, true));
    let early = ca(&world, &["rotate", "--finish"]);
    assert_eq!(early.code(), 1, "{}", early.shown());
    assert!(
        early.stderr.contains("no rotation is under way"),
        "{}",
        early.shown()
    );

    ca(&world, &["rotate", "--overlap", "7d"]).ok();
    let both = trust(&world, "both.pem");
    assert_eq!(
        fs::read_to_string(&both)
            .unwrap()
            .matches("BEGIN CERTIFICATE")
            .count(),
        2
    );
    assert_eq!(
        served(&world, &old),
        (true, true),
        "the old one still signs"
    );
    assert_eq!(served(&world, &both), (true, true));
    let again = ca(&world, &["rotate"]);
    assert!(
        again.stderr.contains("a rotation is under way"),
        "{}",
        again.shown()
    );
    let status = world.control().status();
    let next = status["ca"]["next"]["name"].as_str().unwrap().to_owned();
    assert_ne!(status["ca"]["current"]["name"], next.as_str());
    assert!(
        status["ca"]["next"]["from"].is_string() && status["ca"]["current"]["expires"].is_string()
    );

    ca(&world, &["rotate", "--finish"]).ok();
    let signs = format!("{next} signs from now on");
    wait::until_true("the running gate takes it up", || {
        world
            .gate
            .audit()
            .iter()
            .any(|record| record["reason"] == signs.as_str())
    });
    let new = trust(&world, "new.pem");
    assert_eq!(
        served(&world, &both),
        (true, true),
        "clients of the overlap notice nothing"
    );
    assert_eq!(served(&world, &new), (true, true));
    assert_eq!(
        served(&world, &old),
        (false, false),
        "control: the old one signs no more"
    );
    let status = world.control().status();
    assert_eq!(status["ca"]["current"]["name"], next.as_str());
    assert!(status["ca"]["next"].is_null());
}

#[test]
fn a_successor_takes_over_at_its_time_without_a_hand() {
    let world = World::new();
    ca(&world, &["rotate", "--overlap", "1s"]).ok();
    let next = fs::read_to_string(world.gate.dir.join("ca/next.pem"));
    let bundle = trust(&world, "bundle.pem");
    wait::until_true("it signs", || {
        let records = world.gate.audit();
        let mut reasons = records
            .iter()
            .filter_map(|record| record["reason"].as_str());
        reasons.any(|reason| reason.ends_with("signs from now on"))
    });
    let current = fs::read_to_string(world.gate.ca()).unwrap();
    assert!(next.is_err() || next.unwrap() == current);
    assert!(!world.gate.dir.join("ca/next.key").exists());
    assert_eq!(served(&world, &bundle), (true, true));
}

/// Clients that hold certificates to the letter of RFC 5280 (Python since 3.13 among them) take the
/// gate's leaves, for names and for addresses.
#[test]
fn a_strict_client_verifies_leaves_for_names_and_for_addresses() {
    let world = World::new();
    let shown = |target: &str, wanted: &[&str]| {
        let openssl = world.agent("openssl").args(["s_client", "-brief"]);
        let openssl = openssl.args(["-proxy", tests::gate::ADDRESS, "-connect", target]);
        let openssl = openssl.args(["-x509_strict", "-verify_return_error", "-CAfile"]);
        openssl.arg(world.trust()).args(wanted).run()
    };
    // An unlisted destination too has a leaf, in which it is refused.
    let name = format!("{WEB}:443");
    let cases: [(&str, [&str; 4], [&str; 4]); 3] = [
        (
            &name,
            ["-servername", WEB, "-verify_hostname", WEB],
            ["-servername", WEB, "-verify_hostname", "other.example"],
        ),
        (
            "203.0.113.9:443",
            ["-noservername", "-no_ign_eof", "-verify_ip", "203.0.113.9"],
            ["-noservername", "-no_ign_eof", "-verify_ip", "203.0.113.8"],
        ),
        (
            "[2001:db8::9]:443",
            ["-noservername", "-no_ign_eof", "-verify_ip", "2001:db8::9"],
            ["-noservername", "-no_ign_eof", "-verify_ip", "2001:db8::8"],
        ),
    ];
    for (target, right, wrong) in cases {
        let taken = shown(target, &right);
        assert!(
            taken.output().contains("Verification: OK"),
            "{target}: {}",
            taken.shown()
        );
        let other = shown(target, &wrong);
        assert!(
            other.output().contains("mismatch") && !other.output().contains("Verification: OK"),
            "control: {target}: {}",
            other.shown()
        );
    }
}

/// TLS-16
/// Attack: TLS-16
#[test]
fn nobody_but_the_gate_reads_the_authoritys_key() {
    let world = World::new();
    ca(&world, &["rotate"]).ok();
    for (name, readable) in [("ca.key", false), ("next.key", false), ("ca.pem", false)] {
        let path = world.gate.dir.join("ca").join(name);
        let tried = world.unproxied("cat").arg(&path).run();
        assert_eq!(
            tried.status.success(),
            readable,
            "{name}: {}",
            tried.shown()
        );
        let control = Program::new("cat").arg(&path).as_uid(world.gate.uid).run();
        assert!(control.status.success(), "control: {}", control.shown());
    }
    let exported = ca(&world, &["export"]).ok().stdout;
    assert!(!exported.contains("PRIVATE KEY") && exported.contains("CERTIFICATE"));
    assert!(!world.gate.log().contains("PRIVATE KEY"));
}
