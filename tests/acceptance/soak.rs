//! The loops that `./tests/run soak` lengthens. One round each in the ordinary run.

use tests::world::{WEB, World};

/// How often each loop goes round.
fn rounds() -> usize {
    #[allow(
        clippy::disallowed_methods,
        reason = "the length of a test, not a setting of ours"
    )]
    let rounds = std::env::var("PORTCULLIS_SOAK_ROUNDS");
    rounds.ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn kills() {
    crate::outage::kill_loop(rounds());
}

/// Two hundred with twenty rounds.
#[test]
fn kills_under_load() {
    let rounds = rounds();
    crate::outage::kill_under_load(if rounds > 1 { 10 * rounds } else { 1 });
}

#[test]
fn idle_tunnels_and_distinct_names_cost_what_is_stated() {
    if rounds() > 1 {
        crate::clients::crowds::bounded(5_000, 10_000);
    } else {
        crate::clients::crowds::bounded(500, 1_000);
    }
}

#[test]
fn requests_leave_no_descriptors_behind() {
    let world = World::new();
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", world.gate.pid()))
            .unwrap()
            .count()
    };
    let urls: Vec<_> = (0..50)
        .map(|number| format!("https://{WEB}/r-{number}"))
        .collect();
    let batch = |world: &World| {
        for url in &urls {
            assert!(world.curl(&[url]).ok().stdout.ends_with("\n200"));
        }
    };
    batch(&world);
    let before = descriptors();
    for _ in 0..rounds() {
        batch(&world);
    }
    // Idle upstream connections may be kept, within a bound; one per request may not.
    assert!(
        descriptors() < before + 20,
        "{before} descriptors became {}",
        descriptors()
    );
}

#[test]
fn no_reboot_opens_a_sidecar() {
    crate::sidecar::reboot::reboots(rounds());
}

/// Forty megabytes where the shipped profile was built, as `./tests/run soak` does.
#[test]
fn the_sidecar_image_is_small() {
    crate::sidecar::image::is_small();
}
