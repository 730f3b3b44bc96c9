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

/// Attack: LIF-01
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

        // What the client has read of has its record, which is one without an end.
        let begun = world
            .gate
            .audit_lines()
            .into_iter()
            .find(|record| record["kind"] == "request" && record["path"] == path.as_str())
            .unwrap_or_else(|| panic!("{path} left without a record"));
        world.start();
        let report = verified(&world);
        assert_eq!(report["intact"], true, "{report}");
        let open: Vec<_> = report["open"].as_array().unwrap().iter().collect();
        assert!(open.contains(&&begun["id"]), "{report}");
        let after = format!("https://{WEB}/after-{round}");
        let resumed = world.curl(&[&after]).ok();
        assert!(resumed.stdout.ends_with("\n200"), "{}", resumed.shown());
    }
    let ends = |report: &serde_json::Value| report["open"].as_array().unwrap().len();
    let report = verified(&world);
    assert_eq!(
        ends(&report),
        rounds,
        "exactly the requests that were cut: {report}"
    );
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

/// Attack: LIF-03
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

/// Attack: LIF-04
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

/// Attack: LIF-08
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

/// Attack: LIF-18
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

/// What `audit verify` says of the gate's log.
fn verified(world: &World) -> serde_json::Value {
    let told = Program::new(binaries::path("portcullis-proxy"))
        .args(["audit", "verify", "--json", "--config"])
        .arg(world.gate.config())
        .run();
    serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {}", told.shown()))
}

/// Kills the gate `rounds` times at random moments while many clients ask at once. No byte of an
/// answer may have been read without the record of its request, also where the rest of the answer was cut;
/// and the chain must hold and name exactly the requests that were.
pub(crate) fn kill_under_load(rounds: usize) {
    let mut world = World::new();
    let (mut read, mut open) = (0, 0);
    let mut moment = u64::from(std::process::id());
    for round in 0..rounds {
        let answers = world.path().join(format!("answers-{round}"));
        let script = format!(
            "for c in 1 2 3 4; do (for n in $(seq 400); do \
             code=$(curl -sS --max-time 60 -o /dev/null -w '%{{http_code}}' \
             https://{WEB}/k-{round}-$c-$n 2>/dev/null); ended=$?; \
             echo /k-{round}-$c-$n $code; [ $ended = 0 ] || exit 0; done) & done; wait"
        );
        let mut clients = world
            .agent("sh")
            .args(["-c", &script])
            .spawn_logging(&answers);
        wait::until_true("the first answer is read", || {
            std::fs::read_to_string(&answers).is_ok_and(|told| told.contains(" 200"))
        });
        // Anything but a pattern.
        moment = moment
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis((moment >> 33) % 250));
        world.gate.kill();
        let status = wait::until("the clients see the end", || clients.try_wait().unwrap());
        assert!(status.success());
        let recorded: std::collections::HashSet<String> = world
            .gate
            .audit_lines()
            .into_iter()
            .filter(|record| record["kind"] == "request" && record["credential"] == "web")
            .filter_map(|record| Some(record["path"].as_str()?.to_owned()))
            .collect();
        for line in std::fs::read_to_string(&answers).unwrap().lines() {
            let Some((path, "200")) = line.split_once(' ') else {
                continue;
            };
            read += 1;
            assert!(
                recorded.contains(path),
                "{path} was answered without a record"
            );
        }
        world.start();
        let report = verified(&world);
        assert_eq!(report["intact"], true, "{report}");
        let ids = |kind: &str| -> std::collections::BTreeSet<String> {
            let lines = world.gate.audit_lines();
            let of_kind = lines.iter().filter(|record| record["kind"] == kind);
            of_kind
                .map(|record| record["id"].as_str().unwrap().to_owned())
                .collect()
        };
        let (begun, ended) = (ids("request"), ids("response"));
        let named = report["open"].as_array().unwrap().iter();
        let named: std::collections::BTreeSet<String> =
            named.map(|id| id.as_str().unwrap().to_owned()).collect();
        let cut: std::collections::BTreeSet<String> = begun.difference(&ended).cloned().collect();
        assert_eq!(named, cut, "{report}");
        open = cut.len();
    }
    // Control: answers were read, and not only refusals; and requests were cut.
    assert!(read > 0, "nobody read an answer");
    assert!(open > 0 || rounds < 20, "no request was cut");
}

#[test]
fn kills_under_load_lose_no_record_of_what_was_answered() {
    kill_under_load(20);
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
