//! `portcullis exec`: any command behind the gate, and nothing left behind that the host would run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::command::{Finished, Program};
use tests::instance::Instance;

struct Bench {
    instance: Instance,
    project: PathBuf,
    policy: PathBuf,
}

impl Bench {
    /// An instance with its demo upstream, and a clone of the demo repository made on the host.
    fn new() -> Self {
        let instance = Instance::up();
        let policy = fs::read_dir(instance.path("etc/portcullis/policies"))
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|ext| ext == "toml"))
            .expect("a demo policy");
        let project = instance.path("srv/project");
        fs::create_dir_all(&project).unwrap();
        let bench = Self {
            instance,
            project,
            policy,
        };
        bench.git(&["init", "--quiet", "--initial-branch=main"]);
        fs::write(bench.project.join("README.md"), "a project\n").unwrap();
        bench.git(&["add", "."]);
        bench.git(&["commit", "--quiet", "-m", "Begin"]);
        bench
    }

    /// git on the host, as the person who owns the project.
    fn git(&self, arguments: &[&str]) -> String {
        self.host_git(arguments).ok().stdout
    }

    fn host_git(&self, arguments: &[&str]) -> Finished {
        Program::new("git")
            .in_directory(&self.project)
            .env("HOME", "/root")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .args([
                "-c",
                "user.name=Person",
                "-c",
                "user.email=person@portcullis.test",
            ])
            .args(["-c", "safe.directory=*"])
            .args(arguments)
            .run()
    }

    fn exec(&self, options: &[&str], command: &[&str]) -> Finished {
        self.instance
            .portcullis()
            .in_directory(&self.project)
            .arg("exec")
            .arg("--policy")
            .arg(&self.policy)
            .args(options)
            .arg("--")
            .args(command)
            .run()
    }
}

#[test]
fn the_exit_code_and_the_output_are_the_commands_own() {
    let bench = Bench::new();
    for code in [0, 1, 7, 42] {
        let line = format!("echo out; echo err >&2; exit {code}");
        let finished = bench.exec(&[], &["/bin/sh", "-c", &line]);
        assert_eq!(finished.code(), code, "{}", finished.shown());
        assert!(finished.stdout.contains("out\n"), "{}", finished.shown());
        assert!(finished.stderr.contains("err\n"), "{}", finished.shown());
    }
}

#[test]
fn curl_reads_why_it_was_refused_and_the_summary_counts_it() {
    let bench = Bench::new();
    let refused = bench.exec(&[], &["curl", "-sS", "https://unlisted.portcullis.test/x"]);
    assert!(
        refused.output().contains("destination_not_listed"),
        "{}",
        refused.shown()
    );
    assert!(
        refused.stderr.contains("unlisted.portcullis.test"),
        "{}",
        refused.shown()
    );

    let summary = bench.exec(
        &["--json"],
        &["curl", "-sS", "https://unlisted.portcullis.test/x"],
    );
    // stdout is the command's own; the summary is talk.
    let json = summary
        .stderr
        .lines()
        .find_map(|line| serde_json::from_str::<Value>(line).ok());
    let json = json.unwrap_or_else(|| panic!("no JSON summary: {}", summary.shown()));
    assert_eq!(
        json["refused"][0]["code"], "destination_not_listed",
        "{json}"
    );
    assert_eq!(json["exit"], 0, "{json}");
}

#[test]
fn git_pushes_with_a_credential_it_never_holds() {
    let bench = Bench::new();
    let host = "git.portcullis.test";
    let root = find_repository(&bench.instance.path("var")).expect("the stand-in's repository");
    let name = root
        .strip_prefix(root.parent().unwrap().parent().unwrap())
        .unwrap();
    let url = format!("https://{host}/{}", name.display());
    bench.git(&["remote", "add", "origin", &url]);
    let pushed = bench.exec(
        &[],
        &["git", "push", "origin", "HEAD:refs/heads/agent/exec"],
    );
    assert_eq!(pushed.code(), 0, "{}", pushed.shown());
    let head = bench.git(&["rev-parse", "HEAD"]);
    let arrived = Program::new("git")
        .args(["-c", "safe.directory=*", "--git-dir"])
        .arg(&root)
        .args(["rev-parse", "refs/heads/agent/exec"])
        .run()
        .ok();
    assert_eq!(arrived.stdout, head);

    let refused = bench.exec(&[], &["git", "push", "origin", "+HEAD:refs/heads/main"]);
    assert_ne!(refused.code(), 0);
    assert!(
        refused.output().contains("ref_not_allowed"),
        "{}",
        refused.shown()
    );
}

#[test]
fn nothing_is_planted_that_a_tool_of_the_host_would_run() {
    let bench = Bench::new();
    let marker = bench.instance.path("srv/executed");
    let plant = format!(
        "mkdir -p .git/hooks
         printf '#!/bin/sh\\ntouch {marker}\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout
         printf '#!/bin/sh\\ntouch {marker}\\n' > evil.sh; chmod +x evil.sh
         git config core.fsmonitor ./evil.sh
         git config filter.evil.smudge ./evil.sh
         printf '[core]\\n\\tfsmonitor = ./evil.sh\\n' >> .git/config
         printf '* filter=evil\\n' > .gitattributes
         echo 'touch {marker}' > .envrc
         echo work > work.txt
         true",
        marker = marker.display()
    );
    // The control: the same script on the host plants what git then runs.
    let control = bench.instance.path("srv/control");
    Program::new("cp")
        .arg("-a")
        .arg(&bench.project)
        .arg(&control)
        .run()
        .ok();
    let sh = |folder: &Path, line: &str| {
        Program::new("sh")
            .env("HOME", "/root")
            .in_directory(folder)
            .args(["-c", line])
            .run()
    };
    sh(&control, &plant).ok();
    sh(&control, "git checkout --quiet -b other; git status");
    assert!(
        marker.exists(),
        "the plants work where nothing hinders them"
    );
    fs::remove_file(&marker).unwrap();

    let before = fs::read_to_string(bench.project.join(".git/config")).unwrap();
    let finished = bench.exec(&[], &["/bin/sh", "-c", &plant]);
    assert_eq!(finished.code(), 0, "{}", finished.shown());
    assert_eq!(
        before,
        fs::read_to_string(bench.project.join(".git/config")).unwrap()
    );
    assert!(!bench.project.join(".git/hooks/post-checkout").exists());
    sh(&bench.project, "git status; git checkout --quiet -b other");
    assert!(
        !marker.exists(),
        "git on the host ran what the container left"
    );
    // What did change and a tool of the host would read is said.
    for named in [".gitattributes", "evil.sh"] {
        assert!(
            finished.stderr.contains(named),
            "{named}: {}",
            finished.shown()
        );
    }
}

#[test]
fn nothing_else_of_the_host_can_be_written_and_no_foreign_file_read() {
    let bench = Bench::new();
    let private = bench.instance.path("srv/private");
    fs::write(&private, "private\n").unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    for line in [
        format!("cat {}", private.display()),
        "touch /usr/bin/x".to_owned(),
        "touch /etc/x".to_owned(),
        "cat /etc/shadow".to_owned(),
        "mount -t tmpfs none /mnt".to_owned(),
        "unshare --user true".to_owned(),
        "exec 3<>/dev/tcp/93.184.215.14/80".to_owned(),
    ] {
        let refused = bench.exec(&[], &["/bin/bash", "-c", &line]);
        assert_ne!(refused.code(), 0, "{line}: {}", refused.shown());
    }
    let allowed = bench.exec(
        &[],
        &[
            "/bin/bash",
            "-c",
            "cat README.md && touch \"$HOME/x\" new.txt",
        ],
    );
    assert_eq!(allowed.code(), 0, "{}", allowed.shown());
}

#[test]
fn a_broken_policy_is_named_and_nothing_runs() {
    let bench = Bench::new();
    let broken = bench.instance.path("srv/broken.toml");
    fs::write(
        &broken,
        "version = 1\n[[service]]\nkind = \"http\"\nhost = \"x.test\"\nalow = []\n",
    )
    .unwrap();
    let refused = bench
        .instance
        .portcullis()
        .in_directory(&bench.project)
        .arg("exec")
        .arg("--policy")
        .arg(&broken)
        .args(["--", "/bin/sh", "-c", "echo ran"])
        .run();
    assert_eq!(refused.code(), 2, "{}", refused.shown());
    assert!(!refused.stdout.contains("ran"));
    for expected in ["broken.toml:5", "alow", "hint:"] {
        assert!(
            refused.stderr.contains(expected),
            "{expected}: {}",
            refused.shown()
        );
    }
}

/// The bare repository of the demo upstream.
fn find_repository(root: &Path) -> Option<PathBuf> {
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|ext| ext == "git") && path.join("HEAD").exists() {
                return Some(path);
            }
            if path.is_dir() && !path.is_symlink() && entry.file_name() != "rootfs" {
                open.push(path);
            }
        }
    }
    None
}
