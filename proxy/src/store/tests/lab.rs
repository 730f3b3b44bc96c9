//! A store and a key of its own, with the real programs beside it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::*;

/// A gpg home with one key, the key's file, and a store for it.
pub(super) struct Lab {
    pub(super) folder: tempfile::TempDir,
    pub(super) fingerprint: String,
}

impl Lab {
    pub(super) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("pc").tempdir().unwrap();
        for name in ["gnupg", "store"] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let mut lab = Self {
            folder,
            fingerprint: String::new(),
        };
        lab.fingerprint = lab.generate("agents@example.com");
        let key = lab.gpg(&["--export-secret-keys", &lab.fingerprint], b"");
        std::fs::write(lab.key(), key).unwrap();
        std::fs::set_permissions(lab.key(), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(
            lab.store().join(".gpg-id"),
            format!("{}\n", lab.fingerprint),
        )
        .unwrap();
        lab
    }

    pub(super) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.folder.path().join("store.key")
    }

    pub(super) fn open(&self) -> Store {
        Store::open(&self.store(), &self.key()).unwrap_or_else(|problem| panic!("{problem}"))
    }

    pub(super) fn run(&self, program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut child = Command::new(program)
            .args(arguments)
            .env("GNUPGHOME", self.folder.path().join("gnupg"))
            .env("PASSWORD_STORE_DIR", self.store())
            .env("HOME", self.folder.path())
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@b")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@b")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|problem| panic!("{program}: {problem}"));
        child.stdin.take().unwrap().write_all(input).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(
            ended.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
        ended.stdout
    }

    pub(super) fn gpg(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut all = vec!["--batch", "--quiet", "--trust-model", "always"];
        all.extend(arguments);
        self.run("gpg", &all, input)
    }

    pub(super) fn generate(&self, user: &str) -> String {
        self.gpg(
            &[
                "--passphrase",
                "",
                "--quick-generate-key",
                user,
                "future-default",
                "default",
                "never",
            ],
            b"",
        );
        let listed = self.gpg(&["--with-colons", "--list-keys", user], b"");
        let listed = String::from_utf8(listed).unwrap();
        let line = listed
            .lines()
            .find(|line| line.starts_with("fpr:"))
            .unwrap();
        line.split(':').nth(9).unwrap().to_owned()
    }

    pub(super) fn encrypt(&self, name: &str, text: &[u8], to: &str) {
        let path = self.store().join(format!("{name}.gpg"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, self.gpg(&["--encrypt", "--recipient", to], text)).unwrap();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The agent that gpg started for this home; when it is gone already there is none to end.
        let _ = Command::new("gpgconf")
            .args(["--kill", "all"])
            .env("GNUPGHOME", self.folder.path().join("gnupg"))
            .status();
    }
}
