//! What the entrypoint refuses, each beside the same container without that one thing.

use std::os::unix::net::UnixListener;

use tests::command::{Finished, Program};
use tests::host;

use super::lab::Project;

/// A container as the shipped file has it, by `docker run`.
const GOOD: [&str; 8] = [
    "--user=1000:1000",
    "--cap-drop=ALL",
    "--network=none",
    "--dns=127.0.0.1",
    "--security-opt=no-new-privileges",
    "--entrypoint=/portcullis/portcullis-relay",
    "--env=A=b",
    "--rm",
];

struct Case<'a> {
    /// Words that stand in the place of those of [`GOOD`] with the same beginning, or beside them.
    words: &'a [&'a str],
    problem: &'a str,
    remedy: &'a str,
}

#[test]
fn whatever_would_make_the_gate_worthless_is_refused_with_its_remedy() {
    let project = Project::new(&["compose.yaml"]);
    project.up();
    let check = |words: &[&str]| run(&project, words, &["sidecar", "--check"]);
    check(&[]).ok();

    let outside = host::scratch();
    let at = |name: &str| outside.path().join(name);
    for folder in ["run", "control"] {
        host::directory(&at(folder), 0, 0o755);
    }
    let _sockets = ["run/docker.sock", "control/control.sock", "plain.sock"]
        .map(|name| UnixListener::bind(at(name)).unwrap());
    host::file(&at("ca.key"), "key", 0, 0o644);
    let volume = |from: &str, to: &str| format!("--volume={}:{to}", at(from).display());
    let gate = format!("--pid=container:{}", project.container("gate"));
    let writable = format!("--volume={}:/portcullis", project.volume("portcullis"));
    let (engine, renamed) = (
        volume("run/docker.sock", "/run/docker.sock"),
        volume("run/docker.sock", "/tmp/x"),
    );
    let (deep, control) = (volume("", "/host"), volume("control", "/srv/c"));
    let (key, plain) = (
        volume("ca.key", "/srv/key"),
        volume("plain.sock", "/srv/plain.sock"),
    );

    let engines = "container engine's socket";
    let cases = [
        Case {
            words: &["--user=0:0"],
            problem: "it runs as root",
            remedy: "user: \"1000:1000\"",
        },
        Case {
            words: &["--user=1000:0"],
            problem: "root's group",
            remedy: "user: \"1000:1000\"",
        },
        Case {
            words: &["--user=1900:1900"],
            problem: "the gate's own",
            remedy: "user of its own",
        },
        Case {
            words: &["--cap-add=NET_ADMIN"],
            problem: "NET_ADMIN",
            remedy: "cap_drop: [ALL]",
        },
        Case {
            words: &["--cap-add=SETUID"],
            problem: "SETUID",
            remedy: "cap_drop: [ALL]",
        },
        Case {
            words: &["--cap-drop=CHOWN"],
            problem: "bounding: ",
            remedy: "cap_drop: [ALL]",
        },
        Case {
            words: &["--privileged"],
            problem: "SYS_ADMIN",
            remedy: "not privileged",
        },
        Case {
            words: &["--network=host"],
            problem: "it has a network",
            remedy: "network_mode: none",
        },
        Case {
            words: &["--network=bridge"],
            problem: "it has a network (eth0)",
            remedy: "network_mode: none",
        },
        Case {
            words: &[&gate],
            problem: "the gate's processes",
            remedy: "pid:",
        },
        Case {
            words: &["--pid=host"],
            problem: "the gate's processes",
            remedy: "pid:",
        },
        Case {
            words: &[&engine],
            problem: engines,
            remedy: "take that volume away",
        },
        Case {
            words: &[&renamed],
            problem: engines,
            remedy: "take that volume away",
        },
        Case {
            words: &[&deep],
            problem: engines,
            remedy: "take that volume away",
        },
        Case {
            words: &[&control],
            problem: "control socket",
            remedy: "[control] socket",
        },
        Case {
            words: &[&key],
            problem: "certificate authority",
            remedy: "[ca] directory",
        },
        Case {
            words: &[&writable],
            problem: "can be written",
            remedy: ":ro",
        },
    ];
    for case in cases {
        let refused = check(case.words);
        assert_eq!(refused.code(), 125, "{:?}: {}", case.words, refused.shown());
        for part in [case.problem, case.remedy, "this agent is not started"] {
            assert!(
                refused.stderr.contains(part),
                "{:?}: {part}: {}",
                case.words,
                refused.shown()
            );
        }
        // It is refused before the command, not beside it.
        let command = run(&project, case.words, &["sidecar", "--", "echo", "started"]);
        assert_eq!(
            (command.code(), command.stdout.as_str()),
            (125, ""),
            "{:?}",
            case.words
        );
    }
    // Controls: another socket is nobody's business, and a command starts.
    check(&[&plain]).ok();
    let command = run(
        &project,
        &[],
        &["sidecar", "--", "sh", "-c", "echo $HTTPS_PROXY; exit 7"],
    );
    assert_eq!(command.code(), 7, "{}", command.shown());
    assert_eq!(command.stdout, "http://127.0.0.1:3128\n");

    // The engine's own namespace is not the machine's first one; this process's is.
    let relay = tests::binaries::path("portcullis-relay");
    let here = Program::new(relay)
        .args(["sidecar", "--check"])
        .as_uid(host::uid());
    let here = here.run();
    assert_eq!(here.code(), 125, "{}", here.shown());
    assert!(
        here.stderr.contains("network_mode: host"),
        "{}",
        here.shown()
    );

    // An unproven boundary: one that is not there, and one of another namespace.
    let unproven = run(
        &project,
        &[],
        &["sidecar", "--boundary", "/nowhere/status.json", "--check"],
    );
    assert_eq!(unproven.code(), 125, "{}", unproven.shown());
    assert!(
        unproven.stderr.contains("the boundary is not proven"),
        "{}",
        unproven.shown()
    );

    // Without a gate: the volume is another, empty one.
    let empty = run(
        &project,
        &["--volume=/nonexistent-empty:/elsewhere:ro"],
        &["sidecar", "--share", "/elsewhere", "--check"],
    );
    assert_eq!(empty.code(), 125, "{}", empty.shown());
    assert!(
        empty.stderr.contains("there is no gate"),
        "{}",
        empty.shown()
    );
}

/// The good container with `words` in the place of its own.
fn run(project: &Project, words: &[&str], command: &[&str]) -> Finished {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let replaced = |word: &&&str| words.iter().any(|other| name(other) == name(word));
    let own = format!("--volume={}:/portcullis:ro", project.volume("portcullis"));
    let mut line = vec!["run".to_owned()];
    line.extend(
        GOOD.iter()
            .filter(|word| !replaced(word) || word.starts_with("--security-opt"))
            .map(|it| (*it).to_owned()),
    );
    line.extend(words.iter().map(|word| (*word).to_owned()));
    if !words.iter().any(|word| word.ends_with(":/portcullis")) {
        line.push(own);
    }
    line.push("agent".to_owned());
    project.docker(&[]).args(line).args(command).run()
}
