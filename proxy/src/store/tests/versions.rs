//! What was written before stays, with git and without.

use super::*;

fn round_of_versions(lab: &Lab) {
    let store = lab.open();
    let entry = name("agents/token");
    store
        .put(&entry, b"one", "Put")
        .unwrap_or_else(|e| panic!("{e}"));
    store
        .put(&entry, b"two", "Put")
        .unwrap_or_else(|e| panic!("{e}"));
    // The store is emptied behind our back, as it was once.
    lab.encrypt("agents/token", b"", &lab.fingerprint);
    assert!(matches!(
        store.read(&entry, false),
        Err(StoreError::Void { .. })
    ));
    store
        .put(&entry, b"three", "Put")
        .unwrap_or_else(|e| panic!("{e}"));
    let versions = store.history(&entry).unwrap_or_else(|e| panic!("{e}"));
    let texts: Vec<Vec<u8>> = versions
        .iter()
        .map(|version| store.version(&entry, &version.id).unwrap().to_vec())
        .collect();
    for wanted in [b"one".as_slice(), b"two", b""] {
        assert!(texts.iter().any(|text| text == wanted), "{texts:?}");
    }
    assert!(matches!(
        store.version(&entry, "nonsense"),
        Err(StoreError::NoVersion { .. })
    ));
    assert!(matches!(
        store.version(&entry, ""),
        Err(StoreError::NoVersion { .. })
    ));
}

#[test]
fn every_put_keeps_the_former_version_without_git() {
    let lab = Lab::new();
    round_of_versions(&lab);
    let listed = lab.run("pass", &["ls"], b"");
    assert!(!String::from_utf8_lossy(&listed).contains("history"));
}

#[test]
fn every_put_is_a_commit_and_nothing_of_the_checkout_runs() {
    let lab = Lab::new();
    lab.run("pass", &["git", "init"], b"");
    let (store, git) = (lab.store(), lab.store().join(".git"));
    // A checkout that would run a command at every turn.
    let trap = lab.folder.path().join("trap");
    let sprung = lab.folder.path().join("sprung");
    let script = format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", sprung.display());
    std::fs::write(&trap, script).unwrap();
    std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o755)).unwrap();
    for hook in [
        "pre-commit",
        "commit-msg",
        "post-commit",
        "prepare-commit-msg",
        "reference-transaction",
        "post-index-change",
        "pre-auto-gc",
        "post-rewrite",
    ] {
        std::fs::copy(&trap, git.join("hooks").join(hook)).unwrap();
    }
    let mut config = std::fs::read_to_string(git.join("config")).unwrap();
    let trap = trap.display();
    config.push_str(&format!(
        "[core]\n\tfsmonitor = {trap}\n\tsshCommand = {trap}\n\tpager = {trap}\n\teditor = {trap}\n\
         [filter \"f\"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired = true\n\
         [diff \"gpg\"]\n\ttextconv = {trap}\n\tcommand = {trap}\n[commit]\n\tgpgSign = true\n\
         [gpg]\n\tprogram = {trap}\n[log]\n\tshowSignature = true\n"
    ));
    std::fs::write(git.join("config"), config).unwrap();
    std::fs::write(store.join(".gitattributes"), "*.gpg filter=f diff=gpg\n").unwrap();
    std::fs::write(store.join("staged"), "not ours").unwrap();
    round_of_versions(&lab);
    let sprung = std::fs::read_to_string(&sprung).unwrap_or_default();
    assert_eq!(sprung, "", "nothing may run");

    // The control: git itself does run them.
    let status = Command::new("git")
        .arg("-C")
        .arg(&store)
        .args(["add", "staged", "agents"])
        .status();
    assert!(status.is_ok());
    let told = std::fs::read_to_string(lab.folder.path().join("sprung")).unwrap_or_default();
    assert_ne!(told, "", "the traps are armed");

    let commits = Command::new("git")
        .args(["-c", "core.fsmonitor=false", "-C"])
        .arg(&store)
        .args(["log", "--no-show-signature", "--name-only", "--format=%s"])
        .output()
        .unwrap();
    let commits = String::from_utf8_lossy(&commits.stdout);
    assert!(
        commits.contains("Keep agents/token as it was found"),
        "{commits}"
    );
    assert!(
        !commits.contains("staged"),
        "nothing else is committed: {commits}"
    );
}

#[test]
fn a_linked_repository_is_not_written_to() {
    let lab = Lab::new();
    std::fs::write(lab.store().join(".git"), "gitdir: /tmp/elsewhere\n").unwrap();
    let store = lab.open();
    store
        .put(&name("fresh"), b"x", "Put")
        .map(drop)
        .unwrap_err();
    std::fs::remove_file(lab.store().join(".git")).unwrap();
    store.put(&name("other"), b"x", "Put").unwrap();
}
