//! A wall clock that jumps.

use super::*;

/// Adds the seconds in a file to the wall clock of whoever loads it.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int told = real(which, at);
    if (which == CLOCK_REALTIME) {
        long long by = 0;
        FILE *file = fopen(PLACE, "r");
        if (file) { if (fscanf(file, "%lld", &by) != 1) by = 0; fclose(file); }
        at->tv_sec += by;
    }
    return told;
}
"#;

/// LIF-11: the wall clock jumps by a day, back, and to 1970.
#[test]
fn lif_11_a_clock_that_jumps_is_told_and_the_chain_holds() {
    let mut world = World::prepared(None, Boundary::External);
    let place = world.path().join("offset");
    let set = |seconds: i64| host::file(&place, &seconds.to_string(), 0, 0o644);
    set(0);
    let (source, shim) = (world.path().join("clock.c"), world.path().join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    Program::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&shim)
        .arg(format!("-DPLACE=\"{}\"", place.display()))
        .arg(&source)
        .arg("-ldl")
        .run()
        .ok();
    fs::set_permissions(&shim, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world
        .gate
        .start_with(&world.netns, &[("LD_PRELOAD", shim.to_str().unwrap())]);
    let authority = fs::read_to_string(world.gate.ca()).unwrap();
    host::file(&world.trust(), &authority, 0, 0o644);

    let url = format!("https://{WEB}/x");
    let serves = || world.curl(&[&url]).ok().stdout.ends_with("\n200");
    let said = |way: &str| {
        let records = world.gate.audit();
        let told = records.iter().filter(|it| {
            let reason = it["reason"].as_str().unwrap_or_default();
            it["kind"] == "event" && reason.contains(&format!("clock was set {way}"))
        });
        told.count()
    };
    assert!(serves());
    assert_eq!(said("forward") + said("back"), 0, "control");
    const DAY: i64 = 24 * 3600;
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let epoch = 100 - i64::try_from(now).unwrap();
    let (mut forward, mut back) = (0, 0);
    for (offset, ahead) in [
        (DAY, true),
        (0, false),
        (-DAY, false),
        (0, true),
        (epoch, false),
        (0, true),
    ] {
        set(offset);
        *(if ahead { &mut forward } else { &mut back }) += 1;
        wait::until_true("the jump is told", || {
            (said("forward"), said("back")) == (forward, back)
        });
        // What the agent's own clock says of certificates is right again whenever both agree.
        if offset == 0 {
            assert!(serves());
        }
    }
    let times: Vec<String> = world
        .gate
        .audit()
        .iter()
        .map(|it| it["time"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        times.iter().any(|time| time.starts_with("1970-")),
        "{times:?}"
    );
    let report = verified(&world);
    assert_eq!(report["intact"], true, "{report}");
    assert_eq!(world.gate.stop(), Some(0));
    let report = verified(&world);
    assert_eq!(report["intact"], true, "{report}");
}
