//! The gate's keys, from wherever a container may have them: an OpenPGP store that it may only read, whose key is a secret of
//! the engine's; files on a volume; and changed while it runs, by a signal.

use std::fs;

use tests::command::{Finished, Program};
use tests::{host, wait};

use super::lab::Project;

const COUNT: &str = "https://api.anthropic.com/v1/messages/count_tokens";
const COUNTED: &str = "\"input_tokens\":5";
/// Well formed, and nobody's.
const STALE: &str = "sk-ant-api03-0000000000000000000000000000000000000000";
const GATE: u32 = 1900;

/// A person's gpg, and the store that it fills.
struct Store<'a> {
    project: &'a Project,
    home: tempfile::TempDir,
}

impl<'a> Store<'a> {
    fn make(project: &'a Project) -> Self {
        let store = Self {
            project,
            home: host::scratch(),
        };
        host::own(store.home.path(), 0, 0o700);
        let name = "agents@example.com";
        store
            .gpg(&[
                "--quick-generate-key",
                name,
                "future-default",
                "default",
                "never",
            ])
            .ok();
        // The store is for agents' keys, and only the gate's user may look into it.
        for folder in ["store", "store/agents"] {
            host::directory(&project.path(folder), GATE, 0o700);
        }
        host::file(
            &project.path("store/.gpg-id"),
            &format!("{name}\n"),
            GATE,
            0o600,
        );
        let key = store.gpg(&["--armor", "--export-secret-keys", name]).ok();
        host::file(&project.path("secrets/store.key"), &key.stdout, GATE, 0o400);
        store
    }

    fn gpg(&self, words: &[&str]) -> Finished {
        let gpg = Program::new("gpg").env("GNUPGHOME", self.home.path());
        let gpg = gpg.args(["--batch", "--yes", "--quiet", "--passphrase", ""]);
        gpg.args(["--pinentry-mode", "loopback", "--trust-model", "always"])
            .args(words)
            .run()
    }

    /// As `pass insert` does.
    fn put(&self, value: &str) {
        let plain = self.home.path().join("plain");
        host::file(&plain, &format!("{value}\n"), 0, 0o600);
        let entry = self.project.path("store/agents/anthropic.gpg");
        let (plain, out) = (plain.display().to_string(), entry.display().to_string());
        self.gpg(&[
            "--encrypt",
            "--recipient",
            "agents@example.com",
            "--output",
            &out,
            &plain,
        ])
        .ok();
        host::own(&entry, GATE, 0o600);
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        let agent = ["--kill", "gpg-agent"];
        Program::new("gpgconf")
            .env("GNUPGHOME", self.home.path())
            .args(agent)
            .run();
    }
}

fn asked(project: &Project) -> String {
    let script = format!(". /portcullis/env.sh; curl --silent --data '{{}}' {COUNT}");
    project.exec("agent", &["sh", "-c", &script]).run().output()
}

fn hang_up(project: &Project) {
    let gate = project.container("gate");
    project
        .docker(&["kill", "--signal", "HUP", &gate])
        .run()
        .ok();
}

/// What the gate says in its log of `what`, so often.
fn said(project: &Project, what: &str) -> usize {
    let gate = project.container("gate");
    project
        .docker(&["logs", &gate])
        .run()
        .stderr
        .matches(what)
        .count()
}

#[test]
fn a_store_that_may_only_be_read_serves_and_its_changed_entry_too() {
    let project = Project::new(&["compose.yaml", "compose.store.yaml"]);
    let store = Store::make(&project);
    store.put(STALE);
    project.up();
    let refused = asked(&project);
    assert!(refused.contains("credential_refused"), "{refused}");
    // Nothing but the store has the key: what stands in the place of the file is empty.
    let secret = &project.lab.credential.secret;
    store.put(secret);
    hang_up(&project);
    wait::until_true("the entry as it is now", || {
        asked(&project).contains(COUNTED)
    });
    // Root finds the value in no file that the gate or an agent sees; it is only in the store, encrypted.
    let everything = project
        .docker(&["export", &project.container("gate")])
        .run();
    project
        .lab
        .credential
        .absent_from("the gate's files", everything.output());
    let key = fs::read_to_string(project.path("secrets/store.key")).unwrap();
    let look =
        "cat /portcullis/* /run/secrets/* /var/lib/portcullis-store/.gpg-id 2>/dev/null; env";
    let seen = project.exec("agent", &["sh", "-c", look]).run().output();
    assert!(
        !seen.contains("PRIVATE KEY")
            && !seen.contains(&key)
            && !seen.contains("agents@example.com")
    );
    // It cannot be written from the gate's container either, though the gate's user owns it.
    let put = [
        "portcullis",
        "secret",
        "put",
        "agents/other",
        "--config",
        "/etc/portcullis/proxy.toml",
    ];
    let container = project.container("gate");
    let put = project
        .docker(&["exec", "-i", &container])
        .args(put)
        .input("value\n")
        .run();
    assert_ne!(put.code(), 0, "{}", put.shown());
    assert!(!project.path("store/agents/other.gpg").exists());

    // A key that others may read is none: the gate does not come up with it, and says why.
    host::own(&project.path("secrets/store.key"), GATE, 0o444);
    project.docker(&["restart", "--time=1", &container]).run();
    wait::until_true("the gate refuses its key", || {
        said(&project, "/run/secrets/store-key") > 0
    });
    assert!(!asked(&project).contains(COUNTED));
    host::own(&project.path("secrets/store.key"), GATE, 0o400);
    project.until_healthy("gate");
    wait::until_true("served again", || asked(&project).contains(COUNTED));
}

#[test]
fn a_secret_of_the_engine_is_a_file_that_a_signal_reads_anew() {
    let project = Project::new(&["compose.yaml"]);
    let secret = project.path("secrets/anthropic");
    let write = |value: &str| fs::write(&secret, format!("{value}\n")).unwrap();
    write(STALE);
    project.up();
    assert!(asked(&project).contains("credential_refused"));
    write(&project.lab.credential.secret);
    hang_up(&project);
    wait::until_true("the value as it is now", || {
        asked(&project).contains(COUNTED)
    });
    // What is no key changes nothing, and is told.
    write("");
    hang_up(&project);
    wait::until_true("the empty value is told", || {
        let status = project
            .exec("gate", &["portcullis", "gate", "status"])
            .run();
        status.output().contains("empty")
    });
    assert!(asked(&project).contains(COUNTED), "the former value stays");
    // Nor is one that everybody may read taken.
    write(&project.lab.credential.secret);
    host::own(&secret, GATE, 0o444);
    hang_up(&project);
    wait::until_true("the mode is told", || {
        let status = project
            .exec("gate", &["portcullis", "gate", "status"])
            .run();
        status.output().contains("mode")
    });
    host::own(&secret, GATE, 0o400);
    hang_up(&project);
    wait::until_true("all is well again", || {
        let status = project
            .exec("gate", &["portcullis", "gate", "status"])
            .run();
        status.code() == 0 && !status.output().contains("mode")
    });
    assert!(asked(&project).contains(COUNTED));
}
