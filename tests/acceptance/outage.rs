//! Gate down, policy broken, disk full, boundary gone: nothing leaves, and work resumes after.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::binaries;
use tests::command::Program;
use tests::gate::{Boundary, Gate};
use tests::host;
use tests::probe::Report;
use tests::wait;
use tests::world::{EVIL_ADDRESS, WEB, WEB_ADDRESS, World};

/// A policy with a misspelt key in line 5.
const BROKEN: &str = "version = 1
[[service]]
kind = \"http\"
host = \"web.portcullis.test\"
alow = [\"GET /**\"]
";

#[test]
fn a_gate_killed_in_mid_stream_lets_nothing_leave_and_work_resumes() {
    kill_loop(3);
}

/// Kills the gate in mid-stream `rounds` times; between death and return nothing may leave.
pub(crate) fn kill_loop(rounds: usize) {
    let mut world = World::walled();
    let probe = binaries::path("portcullis-probe").display().to_string();
    for round in 0..rounds {
        let path = format!("/drip/{}", 600 + round);
        let mut stream = world
            .agent("curl")
            .args(["-sS", &format!("https://{WEB}{path}")])
            .spawn();
        wait::until_true("the stream reaches the upstream", || {
            world.web.received().contains(&path)
        });
        world.gate.kill();
        let status = wait::until("the client sees the end", || stream.try_wait().unwrap());
        assert!(!status.success());

        let before = (
            world.web.connections().len(),
            world.evil.connections().len(),
        );
        let refused = world.curl(&[&format!("https://{WEB}/meanwhile")]).refused();
        assert!(
            refused.stderr.contains("to connect"),
            "fails at once: {}",
            refused.shown()
        );
        for target in [WEB_ADDRESS, EVIL_ADDRESS] {
            let direct = world
                .unproxied(&probe)
                .args(["tcp", &format!("{target}:443")])
                .run();
            let report: Report = serde_json::from_str(&direct.stdout).unwrap();
            assert!(!report.escaped, "{report:?}");
        }
        let direct = world
            .unproxied("curl")
            .args(["-sSk", &format!("https://{WEB}/direct")])
            .run();
        direct.refused();
        assert_eq!(
            before,
            (
                world.web.connections().len(),
                world.evil.connections().len()
            )
        );

        world.start();
        let after = format!("https://{WEB}/after-{round}");
        let resumed = world.curl(&[&after]).ok();
        assert!(resumed.stdout.ends_with("\n200"), "{}", resumed.shown());
    }
    assert!(!world.web.received().contains("/meanwhile"));
    assert!(!world.web.received().contains("/direct"));
}

#[test]
fn a_clone_cut_by_a_dead_gate_succeeds_when_it_is_tried_again() {
    let mut world = World::walled();
    world.gate.kill();
    world
        .git(".", &["clone", "--quiet", &world.repository(), "work"])
        .refused();
    assert!(world.git.requests().is_empty());
    world.start();
    world
        .git(".", &["clone", "--quiet", &world.repository(), "work"])
        .ok();
}

#[test]
fn a_broken_policy_stops_the_start_and_names_file_line_key_problem_and_remedy() {
    let mut world = World::prepared(None, Boundary::External);
    let good = std::fs::read_to_string(world.gate.policy()).unwrap();
    world.gate.write_policy(BROKEN);
    let log = world.gate.try_start(&world.netns).unwrap_err();
    explains(&log, &world.gate);
    let check = check(&world);
    assert_eq!(check.code(), 1, "{}", check.shown());
    explains(&check.output(), &world.gate);

    world.gate.write_policy(&good);
    assert_eq!(self::check(&world).code(), 0);
    world.start();
    assert!(
        world
            .curl(&[&format!("https://{WEB}/x")])
            .ok()
            .stdout
            .ends_with("\n200")
    );
}

#[test]
fn a_broken_policy_at_reload_keeps_the_old_one_and_says_so() {
    let world = World::new();
    let good = std::fs::read_to_string(world.gate.policy()).unwrap();
    let url = format!("https://{WEB}/x");
    world.gate.write_policy(BROKEN);
    let answer = world.control().call("POST", "/v1/reload", None);
    assert_eq!(answer.status, 422, "{}", answer.body);
    explains(
        &answer.body.replace("\\n", "\n").replace("\\\"", "\""),
        &world.gate,
    );
    let status = world.control().status().to_string();
    assert!(status.contains("\"stale\":"), "{status}");
    assert!(
        !status.contains("\"stale\":null") && !status.contains("\"stale\":false"),
        "{status}"
    );
    assert!(
        world.curl(&[&url]).ok().stdout.ends_with("\n200"),
        "the old policy serves on"
    );

    // A good one takes its place, also when it permits less.
    world.gate.write_policy(&good.replace("\"GET /**\", ", ""));
    world.control().call("POST", "/v1/reload", None).ok();
    assert!(world.curl(&[&url]).ok().stdout.ends_with("\n403"));
}

#[test]
fn an_empty_policy_permits_nothing() {
    let world = World::with_policy("version = 1\n");
    assert!(
        world
            .curl(&[&format!("https://{WEB}/x")])
            .ok()
            .stdout
            .ends_with("\n403")
    );
    assert!(world.web.connections().is_empty());
}

#[test]
fn a_full_audit_disk_stops_everything_until_there_is_room() {
    let mut world = World::prepared(None, Boundary::External);
    let disk = Disk::mount(&world.gate.dir.join("audit"), "size=64k");
    host::directory(&world.gate.dir.join("audit"), world.gate.uid, 0o700);
    world.start();
    let url = format!("https://{WEB}/x");
    assert!(world.curl(&[&url]).ok().stdout.ends_with("\n200"));

    disk.fill();
    let full = wait::until("the gate notices", || {
        let answer = world.curl(&["--include", &url]).ok();
        answer
            .stdout
            .contains("audit_unavailable")
            .then_some(answer)
    });
    assert!(full.stdout.ends_with("\n503"), "{}", full.shown());
    let before = world.web.received().len();
    for _ in 0..3 {
        assert!(world.curl(&[&url]).ok().stdout.ends_with("\n503"));
    }
    assert_eq!(world.web.received().len(), before, "no record, no action");

    disk.empty();
    wait::until_true("the gate recovers by itself", || {
        world.curl(&[&url]).ok().stdout.ends_with("\n200")
    });
    assert!(world.web.received().len() > before);
    assert!(
        !world.gate.audit().is_empty(),
        "every line of the log can be read"
    );
    world.gate.stop();
}

#[test]
fn without_a_fresh_boundary_nothing_is_served() {
    let mut world = World::prepared(None, Boundary::Kernel);
    let url = format!("https://{WEB}/x");
    // Never raised: the gate does not start, or starts and refuses.
    if world.gate.try_start(&world.netns).is_ok() {
        let authority = std::fs::read_to_string(world.gate.ca()).unwrap();
        host::file(&world.trust(), &authority, 0, 0o644);
        let refused = world.curl(&["--include", &url]);
        assert!(
            refused.stdout.contains("boundary_not_proven"),
            "{}",
            refused.shown()
        );
        world.gate.kill();
    }
    assert!(world.web.connections().is_empty());

    world.raise_wall();
    world.start();
    wait::until_true("the gate serves", || {
        world.curl(&[&url]).stdout.ends_with("\n200")
    });

    // The watcher dies: the status grows stale, the gate shuts; it opens when the watcher is back.
    world.wall.as_mut().unwrap().abandon();
    let refused = wait::until("the gate shuts", || {
        let answer = world.curl(&["--include", &url]);
        answer
            .stdout
            .contains("boundary_not_proven")
            .then_some(answer)
    });
    assert!(refused.stdout.ends_with("\n503"), "{}", refused.shown());
    let before = world.web.received().len();
    assert!(world.curl(&[&url]).stdout.ends_with("\n503"));
    assert_eq!(world.web.received().len(), before);
    let netns = &world.netns;
    world.wall.as_mut().unwrap().watch(netns);
    wait::until_true("the gate opens", || {
        world.curl(&[&url]).stdout.ends_with("\n200")
    });
}

#[test]
fn the_gate_refuses_to_start_as_root() {
    let mut world = World::prepared(None, Boundary::External);
    let uid = std::mem::replace(&mut world.gate.uid, 0);
    let log = world.gate.try_start(&world.netns).unwrap_err();
    assert!(log.contains("root"), "{log}");
    world.gate.uid = uid;
    world.start();
}

#[test]
fn a_termination_ends_the_gate_in_order() {
    let mut world = World::new();
    assert!(
        world
            .curl(&[&format!("https://{WEB}/x")])
            .ok()
            .stdout
            .ends_with("\n200")
    );
    assert_eq!(world.gate.stop(), Some(0), "{}", world.gate.log());
}

fn check(world: &World) -> tests::command::Finished {
    Program::new(binaries::path("portcullis-proxy"))
        .args(["policy", "check"])
        .arg(world.gate.policy())
        .as_uid(world.gate.operator)
        .run()
}

#[track_caller]
fn explains(text: &str, gate: &Gate) {
    let place = format!("{}:5", gate.policy().display());
    for expected in [place.as_str(), "alow", "hint:", "`allow`"] {
        assert!(text.contains(expected), "`{expected}` is not in: {text}");
    }
}

/// A small file system of a test's own, unmounted when dropped.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn mount(path: &Path, options: &str) -> Self {
        Program::new("mount")
            .args(["-t", "tmpfs", "-o", options, "portcullis-test"])
            .arg(path)
            .run()
            .ok();
        Self {
            path: path.to_path_buf(),
        }
    }

    /// Takes every block that is left.
    fn fill(&self) {
        let command =
            "head -c 1M /dev/zero > filler; for n in $(seq 64); do echo x >> filler || break; done";
        Program::new("sh")
            .in_directory(&self.path)
            .args(["-c", command])
            .run();
    }

    fn empty(&self) {
        std::fs::remove_file(self.path.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The gate may be ending still; a lazy unmount leaves nothing behind once it has.
        std::thread::sleep(Duration::from_millis(50));
        Program::new("umount").arg("--lazy").arg(&self.path).run();
    }
}
