//! `exec` on a person's repository, with a control socket that says yes to everything.

mod plants;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use tests::command::{Finished, Program};
use tests::{binaries, host};

use super::Bench;

struct Project {
    bench: Bench,
    owner: u32,
    directory: PathBuf,
}

impl Project {
    /// A repository of an ordinary person's, with one commit.
    fn new() -> Self {
        let bench = Bench::new();
        control(&bench.path("gate"));
        let owner = host::uid();
        let directory = bench.path("project");
        host::directory(&directory, owner, 0o755);
        let project = Self {
            bench,
            owner,
            directory,
        };
        project.person("git init -q -b main && echo one > file && git add . && git commit -qm One");
        project
    }

    /// A script that the person runs in the project, on the host.
    fn person(&self, script: &str) -> Finished {
        self.on_host(&self.directory, script).run().ok()
    }

    fn on_host(&self, directory: &Path, script: &str) -> Program {
        Program::new("sh")
            .in_directory(directory)
            .env("HOME", "/nonexistent")
            .env("GIT_AUTHOR_NAME", "P")
            .env("GIT_AUTHOR_EMAIL", "p@portcullis.test")
            .env("GIT_COMMITTER_NAME", "P")
            .env("GIT_COMMITTER_EMAIL", "p@portcullis.test")
            .args(["-c", script])
            .as_uid(self.owner)
    }

    fn exec(&self, options: &[&str], script: &str) -> Finished {
        self.line(options, script).run()
    }

    fn line(&self, options: &[&str], script: &str) -> Program {
        let gate = self.bench.path("gate");
        let state = self.bench.path("exec");
        Program::new(binaries::path("portcullis-orchestrator"))
            .in_directory(&self.directory)
            .args(["exec", "--account", &self.bench.account])
            .arg("--state")
            .arg(state)
            .arg("--control")
            .arg(gate.join("control.sock"))
            .arg("--trust")
            .arg(&gate)
            .args(options)
            .args(["--", "/bin/bash", "-c", script])
    }
}

/// Opens every run, in a directory that holds no socket.
fn control(directory: &Path) {
    let listener = UnixListener::bind(directory.join("control.sock")).unwrap();
    let runs = directory.join("runs");
    host::directory(&runs, 0, 0o711);
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            answer(client, &runs);
        }
    });
}

fn answer(mut client: UnixStream, runs: &Path) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut request = String::new();
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        if request.is_empty() {
            request.clone_from(&line);
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let body = if request.starts_with("PUT") {
        let directory = runs.display();
        format!(
            r#"{{"socket_dir":"{directory}","socket":"{directory}/gate.sock","epoch":1,"lease_seconds":60}}"#
        )
    } else if request.starts_with("GET") {
        String::from(
            r#"{"kind":"refusal","verdict":"refuse","authority":"evil.example:443","code":"destination_not_listed"}"#,
        )
    } else {
        "{}".to_owned()
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    client.write_all((head + &body).as_bytes()).unwrap();
}

/// Leaves behind whatever makes git or direnv of the host run `touch MARKER`.
fn plants(marker: &Path) -> String {
    format!(
        "printf '#!/bin/sh\\ntouch {0}\\n' > evil.sh; chmod 755 evil.sh
         printf '#!/bin/sh\\ntouch {0}\\n' > .git/hooks/post-checkout; chmod 755 .git/hooks/post-checkout
         printf '[core]\\n\\tfsmonitor = {1}/evil.sh\\n[filter \"evil\"]\\n\\tclean = {1}/evil.sh\\n' >> .git/config
         rm -rf .git/hooks; mv .git .gone && cp -r .gone .git && cat .gone/config evil.sh >> .git/config
         echo ../other > .git/commondir.new; mv .git/commondir.new .git/commondir
         mkdir -p other; printf '[core]\\n\\tfsmonitor = {1}/evil.sh\\n' > other/config
         echo '* filter=evil' > .gitattributes; echo 'touch {0}' > .envrc; echo two > file; true",
        marker.display(),
        "$PWD",
    )
    .replace("$PWD", "'\"$PWD\"'")
}

#[test]
fn what_a_run_plants_is_not_run_by_the_git_of_the_host() {
    let project = Project::new();
    let marker = project.bench.path("markers/ran");
    host::directory(marker.parent().unwrap(), 0, 0o777);
    fs::set_permissions(marker.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    let look = "git status --short; git diff --stat; git checkout -q -b other";

    // The control: the simplest of these plants, made without a container, runs.
    let control = project.bench.path("control");
    Program::new("cp")
        .arg("-a")
        .arg(&project.directory)
        .arg(&control)
        .run()
        .ok();
    let simple = format!(
        "printf '#!/bin/sh\\ntouch {}\\n' > evil.sh; chmod 755 evil.sh; \
         git config core.fsmonitor \"$PWD/evil.sh\"",
        marker.display()
    );
    project.on_host(&control, &simple).run().ok();
    project.on_host(&control, look).run();
    assert!(marker.exists(), "the plant works where nothing hinders it");
    fs::remove_file(&marker).unwrap();

    let config = fs::read_to_string(project.directory.join(".git/config")).unwrap();
    let finished = project.exec(&["--json"], &plants(&marker));
    assert_eq!(finished.code(), 0, "{}", finished.shown());
    project.on_host(&project.directory, look).run().ok();
    assert!(!marker.exists(), "{}", finished.shown());
    let after = fs::read_to_string(project.directory.join(".git/config")).unwrap();
    assert_eq!(after, config);

    let last = finished.stderr.lines().last().unwrap();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(
        summary["put_aside"],
        serde_json::json!([".git/commondir", ".envrc"])
    );
    let changed = summary["changed"].to_string();
    for name in ["evil.sh", ".gitattributes"] {
        assert!(changed.contains(name), "{name}: {changed}");
    }
    assert_eq!(summary["refused"][0]["code"], "destination_not_listed");
    // What the run wrote belongs to the person, not to a container's id.
    let file = project.directory.join("file");
    assert_eq!(file.metadata().unwrap().uid(), project.owner);
    assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
}

#[test]
fn the_callers_uid_is_not_mapped_in_and_nothing_can_become_setuid() {
    let project = Project::new();
    let finished = project.exec(
        &["--quiet"],
        "cut -c1-32 /proc/self/uid_map | tr -s ' '; stat -c '%u %U' file; cp /bin/true t; chmod 4755 t; stat -c %a t",
    );
    let expected = format!(" 0 {} 1024\n1000 agent\n755\n", project.bench.ids);
    assert_eq!(finished.stdout, expected, "{}", finished.shown());
}

#[test]
fn a_clone_is_handed_back_as_a_branch_and_its_configuration_is_never_read() {
    let project = Project::new();
    let marker = project.bench.path("state/ran");
    project.person("echo uncommitted > draft");
    let work = format!(
        "test ! -e draft && echo two > file && git commit -qam Two && \
         git config core.fsmonitor 'touch {0}' && git config uploadpack.packObjectsHook 'touch {0}' && \
         mkdir -p .git/hooks && printf '#!/bin/sh\\ntouch {0}\\n' > .git/hooks/reference-transaction && \
         chmod 755 .git/hooks/reference-transaction",
        marker.display()
    );
    let finished = project.exec(&["--clone", "--json"], &work);
    assert_eq!(finished.code(), 0, "{}", finished.shown());
    let last = finished.stderr.lines().last().unwrap();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    let branch = summary["branch"].as_str().unwrap();
    assert!(branch.starts_with("portcullis/"), "{branch}");
    let log = project.person(&format!("git log --format=%s {branch}; cat file draft"));
    assert_eq!(log.stdout, "Two\nOne\none\nuncommitted\n");
    assert!(!marker.exists());

    let nothing = project.exec(&["--clone", "--json"], "true");
    let last = nothing.stderr.lines().last().unwrap();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    assert!(summary.get("branch").is_none(), "{last}");
}

#[test]
fn signals_reach_the_command_and_its_code_is_passed_on() {
    let project = Project::new();
    assert_eq!(project.exec(&[], "exit 41").code(), 41);

    let script = "trap 'echo told; exit 9' TERM; echo ready; while :; do sleep 0.1; done";
    let mut running = project.line(&["--quiet"], script).spawn();
    let mut output = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = running.id().to_string();
    Program::new("kill").args(["-TERM", &pid]).run().ok();
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(
        (line.as_str(), running.wait().unwrap().code()),
        ("told\n", Some(9))
    );

    let policy = project.bench.path("broken.toml");
    fs::write(&policy, "version = 1\n[[service]]\nkidn = \"http\"\n").unwrap();
    let broken = project.exec(&["--policy", policy.to_str().unwrap()], "echo ran");
    assert_eq!(
        (broken.code(), broken.stdout.as_str()),
        (2, ""),
        "{}",
        broken.shown()
    );
    assert!(broken.stderr.contains("broken.toml:"), "{}", broken.shown());
}
