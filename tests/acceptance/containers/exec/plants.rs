//! Ways of leaving something behind that acts on the host, or of reaching it from the directory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tests::command::{Finished, Program};
use tests::wait;

use super::Project;

/// A repository with hooks of its own in the tree, a worktree elsewhere and a submodule.
fn project() -> Project {
    let project = Project::new();
    let around = project.bench.directory.path();
    fs::set_permissions(around, fs::Permissions::from_mode(0o777)).unwrap();
    project.person(
        "mkdir -p tools/git/hooks && echo x > tools/git/hooks/readme && git add . && git commit -qm Tools
         git config core.hooksPath tools/git/hooks
         git worktree add -q ../worktree
         git init -q ../part && git -C ../part commit -q --allow-empty -m Part
         git -c protocol.file.allow=always submodule --quiet add ../part part && git commit -qm Submodule",
    );
    project
}

/// Each makes git, run in some place (relative to the project), run `../evil` as the host does;
/// with what is put aside.
const WAYS: [(&str, &str, &str, &str); 7] = [
    (
        "a hooks directory in the tree, written",
        "cp $EVIL tools/git/hooks/post-checkout",
        ".",
        "",
    ),
    (
        "a hooks directory in the tree, with its parents renamed away",
        "mv tools old; mkdir -p tools/git/hooks; cp $EVIL tools/git/hooks/post-checkout",
        ".",
        "",
    ),
    (
        "the worktree's pointer to the common directory",
        "mkdir .git/evil; cp -r .git/objects .git/refs .git/config .git/HEAD .git/evil/
         echo \"[core] fsmonitor = $EVIL\" >> .git/evil/config; echo ../../evil > .git/worktrees/worktree/commondir",
        "../worktree",
        "",
    ),
    (
        "the worktree's git directory renamed away",
        "cp -r .git/worktrees .git/w2; mv .git/worktrees .git/w3; mv .git/w2 .git/worktrees; mkdir .git/evil; cp -r .git/objects .git/refs .git/config .git/HEAD .git/evil/
         echo \"[core] fsmonitor = $EVIL\" >> .git/evil/config; echo ../../evil > .git/worktrees/worktree/commondir",
        "../worktree",
        "",
    ),
    (
        "a new common directory for the submodule",
        "mkdir -p .git/evil; cp -r .git/modules/part/. .git/evil/; rm -f .git/evil/commondir
         echo \"[core] fsmonitor = $EVIL\" >> .git/evil/config; echo ../../evil > .git/modules/part/commondir",
        "part",
        ".git/modules/part/commondir",
    ),
    (
        "the submodule's configuration",
        "echo \"[core] fsmonitor = $EVIL\" >> .git/modules/part/config",
        "part",
        "",
    ),
    (
        "a git directory in place of the old",
        "cp -r .git new; echo \"[core] fsmonitor = $EVIL\" >> new/config; mv .git old && mv new .git",
        ".",
        "",
    ),
];

fn summary(finished: &Finished) -> serde_json::Value {
    let last = finished.stderr.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{}", finished.shown()))
}

#[test]
fn no_place_that_git_takes_commands_from_can_be_changed_or_replaced() {
    let project = project();
    let original = project.bench.path("original");
    let copy = |from: &Path, to: &Path| {
        Program::new("rm").arg("-rf").arg(to).run().ok();
        Program::new("cp").arg("-a").arg(from).arg(to).run().ok();
    };
    copy(&project.directory, &original);
    let marker = project.bench.path("ran");
    let evil = project.bench.path("evil");
    fs::write(&evil, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).unwrap();
    let look = "git status --short; git checkout -q -b other$$";
    let host_looks = |place: &str| {
        let place = project.directory.join(place);
        project.on_host(&place, look).run();
        let ran = marker.exists();
        let _absent = fs::remove_file(&marker);
        ran
    };
    for (name, way, place, aside) in WAYS {
        let plant = way.replace("$EVIL", &evil.display().to_string());
        copy(&original, &project.directory);
        assert!(!host_looks(place), "{name}: nothing runs before");
        project.on_host(&project.directory, &plant).run();
        assert!(host_looks(place), "{name}: runs where nothing hinders it");

        copy(&original, &project.directory);
        // The script is not in the container, and need not be.
        let inside = plant.replace(
            &format!("cp {}", evil.display()),
            "install -m 755 /dev/stdin",
        );
        let inside = inside.replace(
            "install -m 755 /dev/stdin",
            &format!(
                "printf '#!/bin/sh\\ntouch {}\\n' | install -m 755 /dev/stdin",
                marker.display()
            ),
        );
        let finished = project.exec(&["--json"], &format!("{inside}\ntrue"));
        let summary = summary(&finished);
        assert!(
            !finished.stderr.contains("cannot be mapped"),
            "{}",
            finished.shown()
        );
        assert!(!host_looks(place), "{name}: {}", finished.shown());
        let moved: Vec<&str> = summary["put_aside"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|path| path.as_str())
            .collect();
        assert_eq!(moved.join(" "), aside, "{name}");
    }
}

#[test]
fn a_place_that_configuration_names_and_that_appears_is_put_aside() {
    let project = Project::new();
    project.person("git config core.hooksPath .husky/_");
    let finished = project.exec(
        &["--json"],
        "mkdir -p .husky/_ && cp /bin/true .husky/_/pre-commit",
    );
    assert_eq!(
        summary(&finished)["put_aside"],
        serde_json::json!([".husky"])
    );
    assert!(!project.directory.join(".husky").exists());
    // The control: a directory that is named nowhere stays.
    project.person("git config --unset core.hooksPath");
    let finished = project.exec(
        &["--json"],
        "mkdir -p .husky/_ && cp /bin/true .husky/_/pre-commit",
    );
    assert_eq!(summary(&finished)["put_aside"], serde_json::json!([]));
    assert!(project.directory.join(".husky/_/pre-commit").exists());
}

#[test]
fn what_listens_in_the_directory_is_out_of_reach() {
    let project = Project::new();
    let directory = project.directory.join("deep/er");
    project.person("mkdir -p deep/er");
    let socket = directory.join("daemon.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    chown(&socket, Some(project.owner), Some(project.owner)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let call = "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); \
                print connect(S,pack_sockaddr_un(\"deep/er/daemon.sock\")) ? \"reached\" : \"refused\"'";
    // Renaming does not uncover it.
    let script = format!(
        "{call}; mv deep/er/daemon.sock x 2>/dev/null; {call}; mv deep d2; ln -s d2 deep; {call}"
    );
    let finished = project.exec(&["--quiet"], &script);
    assert_eq!(
        finished.stdout,
        "refusedrefusedrefused",
        "{}",
        finished.shown()
    );
    assert!(listener.accept().is_err());
    project.person("rm deep; mv d2 deep");
    assert_eq!(project.person(call).stdout, "reached");
    assert!(listener.accept().is_ok());
}

#[test]
fn what_a_killed_exec_could_not_put_aside_the_next_one_does() {
    let project = Project::new();
    let script = "echo x > .envrc; echo ../other > .git/commondir; echo ready; sleep 600";
    let mut running = project.line(&["--quiet"], script).spawn();
    let mut output = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    running.kill().unwrap();
    running.wait().unwrap();
    let planted = project.directory.join(".envrc");
    assert!(planted.exists(), "the control: it was there");
    let next = wait::until("the killed exec's container to be gone", || {
        let next = project.exec(&["--json"], "true");
        (!planted.exists()).then_some(next)
    });
    assert!(!project.directory.join(".git/commondir").exists());
    for name in [
        "moved out of the way: .envrc",
        "moved out of the way: .git/commondir",
    ] {
        assert!(next.stderr.contains(name), "{}", next.shown());
    }
    let staging = project.bench.path("exec/staging");
    let left: Vec<PathBuf> = fs::read_dir(staging)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn directories_that_are_no_project_are_refused() {
    let project = Project::new();
    for directory in ["/etc", "/", "/tmp", ".git", ".git/hooks"] {
        let line = project
            .line(&[], "echo ran")
            .in_directory(&project.directory.join(directory));
        let finished = line.run();
        assert_eq!(
            (finished.code(), finished.stdout.as_str()),
            (2, ""),
            "{directory}"
        );
        assert!(finished.stderr.contains("hint:"), "{}", finished.shown());
    }
    assert_eq!(project.exec(&[], "echo ran").stdout, "ran\n");
}
