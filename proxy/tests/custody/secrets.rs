//! The OpenPGP store on the real program: starting with it, the commands, rotation, and what is
//! refused. Keys and foreign entries are made by the real gpg.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::fixture::{Fixture, PROXY, USER, eventually, set_mode, stderr, uid_of};

/// A gate whose credential lies in a store of the service user, and gpg's home beside it.
struct Lab {
    fixture: Fixture,
    key: String,
    operator: String,
}

impl Lab {
    fn new() -> Self {
        let fixture = Fixture::with(|text| {
            let root = text.split('"').nth(1).unwrap();
            let root = root.strip_suffix("/run/control.sock").unwrap().to_owned();
            let text = text.replace(
                &format!("file = \"{root}/secret/example\""),
                "entry = \"agents/example\"",
            );
            format!(
                "{text}\n[store]\ndirectory = \"{root}/store\"\nkey = \"{root}/secret/store.key\"\n\
                 operator_entries = \"{root}/operator\"\n"
            )
        });
        let mut lab = Self {
            fixture,
            key: String::new(),
            operator: String::new(),
        };
        for name in ["gnupg", "store", "operator"] {
            std::fs::create_dir(lab.fixture.path(name)).unwrap();
            set_mode(&lab.fixture.path(name), 0o700);
        }
        lab.key = lab.generate("agents@example.com");
        lab.operator = lab.generate("operator@example.com");
        let key = lab.gpg(&["--export-secret-keys", &lab.key], b"");
        lab.owned("secret/store.key", &key, 0o600);
        lab.owned("store/.gpg-id", format!("{}\n", lab.key).as_bytes(), 0o600);
        let uid = uid_of(USER);
        chown(lab.fixture.path("store"), Some(uid), Some(uid)).unwrap();
        let foreign = lab.gpg(
            &["--encrypt", "--recipient", &lab.operator],
            b"not for agents",
        );
        std::fs::write(lab.fixture.path("operator/bank.gpg"), foreign).unwrap();
        lab
    }

    fn owned(&self, name: &str, bytes: &[u8], mode: u32) {
        let (path, uid) = (self.fixture.path(name), uid_of(USER));
        std::fs::write(&path, bytes).unwrap();
        set_mode(&path, mode);
        chown(&path, Some(uid), Some(uid)).unwrap();
    }

    fn gpg(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut command = Command::new("gpg");
        command
            .args(["--batch", "--quiet", "--trust-model", "always"])
            .args(arguments)
            .env("GNUPGHOME", self.fixture.path("gnupg"));
        let output = fed(command, input);
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    fn generate(&self, user: &str) -> String {
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

    fn secret(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(PROXY);
        command
            .arg("secret")
            .args(arguments)
            .arg("--config")
            .arg(self.fixture.config());
        fed(command, input)
    }

    fn put(&self, value: &str) {
        let output = self.secret(&["put", "agents/example"], value.as_bytes());
        assert!(output.status.success(), "{output:?}");
    }

    /// The entry, decrypted by gpg.
    fn by_gpg(&self) -> Vec<u8> {
        let file = self.fixture.path("store/agents/example.gpg");
        self.gpg(&["--decrypt", file.to_str().unwrap()], b"")
    }

    /// As if another program had overwritten it.
    fn overwrite(&self, text: &[u8]) {
        let sealed = self.gpg(&["--encrypt", "--recipient", &self.key], text);
        self.owned("store/agents/example.gpg", &sealed, 0o600);
    }

    /// What keeps the gate from starting.
    fn refused(&self) -> String {
        let output = self.fixture.tool(&["run", "--user", USER]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!said.contains("canary"), "{said}");
        said
    }

    fn credential(&self) -> Value {
        self.fixture.status()["credentials"][0].clone()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The agent that gpg started for this home; when it is gone already there is none to end.
        let _ = Command::new("gpgconf")
            .args(["--kill", "all"])
            .env("GNUPGHOME", self.fixture.path("gnupg"))
            .status();
    }
}

fn fed(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may not read what it refuses.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn shown(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// LIF-12: a key that is missing, open to others or another one: at start the gate refuses, at
/// reload the former value stays and status says so.
/// Attack: LIF-12
#[test]
fn lif_12_a_store_key_that_is_missing_open_or_wrong() {
    let mut lab = Lab::new();
    lab.put("canary-one");
    let key = lab.fixture.path("secret/store.key");
    let good = std::fs::read(&key).unwrap();
    let wrong = lab.gpg(&["--export-secret-keys", &lab.operator], b"");

    std::fs::rename(&key, key.with_extension("away")).unwrap();
    assert!(lab.refused().contains("store.key does not exist"));
    lab.owned("secret/store.key", &good, 0o644);
    assert!(lab.refused().contains("has mode 0644"));
    chown(&key, Some(65_533), None).unwrap();
    set_mode(&key, 0o600);
    assert!(lab.refused().contains("store.key cannot be opened"));
    lab.owned("secret/store.key", &wrong, 0o600);
    let said = lab.refused();
    assert!(
        said.contains("scope proof failed") && said.contains("operator/bank.gpg"),
        "{said}"
    );

    lab.owned("secret/store.key", &good, 0o600);
    lab.fixture.start();
    assert_eq!(lab.credential()["ok"], true);
    for (bytes, mode) in [(&good, 0o640), (&wrong, 0o600)] {
        lab.owned("secret/store.key", bytes, mode);
        lab.fixture.signal(Signal::SIGHUP);
        eventually("status says so", || !lab.credential()["problem"].is_null());
        assert_eq!(lab.credential()["ok"], true, "the former value is in use");
        assert_eq!(lab.fixture.status()["ready"], false);
        lab.owned("secret/store.key", &good, 0o600);
        lab.fixture.signal(Signal::SIGHUP);
        eventually("it is well again", || lab.credential()["problem"].is_null());
    }
    assert!(!lab.fixture.stop().contains("canary"));
}

#[test]
fn the_gate_does_not_start_when_the_key_reads_the_operator_s_entries_or_nobody_can_tell() {
    let mut lab = Lab::new();
    lab.put("canary-one");
    let both = lab.gpg(
        &[
            "--encrypt",
            "--recipient",
            &lab.operator,
            "--recipient",
            &lab.key,
        ],
        b"shared",
    );
    let shared = lab.fixture.path("operator/shared.gpg");
    std::fs::write(&shared, both).unwrap();
    let said = lab.refused();
    assert!(
        said.contains("operator/shared.gpg can be decrypted"),
        "{said}"
    );
    let checked = lab.secret(&["check"], b"");
    assert_eq!(checked.status.code(), Some(1), "a definite no: {checked:?}");
    std::fs::remove_file(&shared).unwrap();

    let bank = lab.fixture.path("operator/bank.gpg");
    let kept = std::fs::read(&bank).unwrap();
    std::fs::remove_file(&bank).unwrap();
    assert!(lab.refused().contains("there is no entry in"));
    // The control: with an entry that cannot be read it starts.
    std::fs::write(&bank, kept).unwrap();
    let checked = lab.secret(&["check"], b"");
    assert!(checked.status.success(), "{checked:?}");
    assert!(shown(&checked).contains("none of 1 foreign entries"));
    lab.fixture.start();
    lab.fixture.stop();
}

/// CRD-27, CRD-25, CRD-26: nothing that is no value is written, or loaded.
/// Attack: CRD-25, CRD-26, CRD-27
#[test]
fn crd_27_nothing_without_a_value_is_written_or_loaded() {
    let lab = Lab::new();
    lab.put("canary-one");
    let attachment = b"\nContent-Disposition: attachment\nContent-Transfer-Encoding: Base64\n\n";
    let hollow = b"-----BEGIN PGP MESSAGE-----\n\n=twTO\n-----END PGP MESSAGE-----\n";
    let empty: [&[u8]; 8] = [
        b"",
        b"\n",
        b" \t\n",
        b"\0",
        b"\xef\xbb\xbf",
        b"null",
        attachment,
        hollow,
    ];
    for text in empty {
        for verb in ["put", "rotate"] {
            let refused = lab.secret(&[verb, "agents/example"], text);
            assert_eq!(
                refused.status.code(),
                Some(2),
                "{verb} {text:?}: {refused:?}"
            );
            assert!(stderr(&refused).contains("agents/example"), "{refused:?}");
        }
    }
    let refused = lab.secret(&["put", "agents/example"], b"two words");
    assert!(
        stderr(&refused).contains("holds a blank inside"),
        "{refused:?}"
    );
    assert_eq!(lab.by_gpg(), b"canary-one", "nothing was written");
    for text in [b"".as_slice(), b"\n", attachment, hollow] {
        lab.overwrite(text);
        let said = lab.refused();
        assert!(said.contains("the entry agents/example "), "{said}");
        assert!(
            said.contains("portcullis secret restore agents/example"),
            "{said}"
        );
    }
}

#[test]
fn entries_are_written_shown_by_shape_lost_and_brought_back() {
    let lab = Lab::new();
    let secret = "ghp_canary0123456789";
    lab.put(secret);
    assert_eq!(lab.by_gpg(), secret.as_bytes());
    let file = lab.fixture.path("store/agents/example.gpg");
    let owner = std::fs::metadata(&file).unwrap();
    assert_eq!(owner.permissions().mode() & 0o777, 0o600);
    let list = lab.secret(&["list"], b"");
    assert!(shown(&list).contains("agents/example  used by credential example (bearer)"));
    let shape = shown(&lab.secret(&["show-shape", "example"], b""));
    assert!(shape.contains("form   first line") && shape.contains("a classic GitHub token"));
    assert!(
        !shape.contains("canary") && !shape.contains("20"),
        "{shape}"
    );

    lab.overwrite(b"\n");
    let check = lab.secret(&["check"], b"");
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert!(shown(&check).contains("shrank to nothing"), "{check:?}");
    let history = shown(&lab.secret(&["history", "agents/example"], b""));
    assert!(history.contains("a classic GitHub token"), "{history}");
    let restored = lab.secret(&["restore", "agents/example"], b"");
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(lab.by_gpg(), secret.as_bytes());
    // What was found there is kept too.
    let history = shown(&lab.secret(&["history", "agents/example"], b""));
    assert!(history.contains("EMPTY"), "{history}");

    lab.put("sk-proj-canary");
    let check = lab.secret(&["check"], b"");
    assert!(check.status.success(), "{check:?}");
    assert!(
        shown(&check).contains("it was a classic GitHub token, it is an OpenAI project key"),
        "{check:?}"
    );
    for missing in ["show-shape", "history", "restore", "rotate"] {
        let output = lab.secret(&[missing, "agents/none"], b"x");
        let wanted = if missing == "history" {
            Some(0)
        } else {
            Some(1)
        };
        assert_eq!(output.status.code(), wanted, "{missing}: {output:?}");
    }
    assert_eq!(
        lab.secret(&["put", "../../etc/x"], b"x").status.code(),
        Some(2)
    );
}

#[test]
fn secrets_are_imported_from_files_and_fields_and_read_from_descriptors() {
    let lab = Lab::new();
    let plain = lab.fixture.path("github");
    std::fs::write(&plain, "ghp_plain\n").unwrap();
    let json = lab.fixture.path("login.json");
    std::fs::write(&json, r#"{"oauth":{"refreshToken":"canary-refresh"}}"#).unwrap();
    let import = |path: &Path, more: &[&str]| {
        let mut arguments = vec!["import", "--into", "agents"];
        arguments.extend(more);
        arguments.push(path.to_str().unwrap());
        lab.secret(&arguments, b"")
    };
    set_mode(&plain, 0o644);
    assert_eq!(
        import(&plain, &[]).status.code(),
        Some(2),
        "others can read it"
    );
    set_mode(&plain, 0o600);
    set_mode(&json, 0o600);
    assert!(import(&plain, &[]).status.success());
    assert_eq!(
        import(&json, &["--pointer", "/oauth/none"]).status.code(),
        Some(2)
    );
    assert!(
        import(&json, &["--pointer", "/oauth/refreshToken"])
            .status
            .success()
    );
    let decrypted = |name: &str| {
        let file = lab.fixture.path(name);
        lab.gpg(&["--decrypt", file.to_str().unwrap()], b"")
    };
    assert_eq!(decrypted("store/agents/github.gpg"), b"ghp_plain\n");
    assert_eq!(decrypted("store/agents/login.json.gpg"), b"canary-refresh");

    let script = format!(
        "exec 7<<<canary-seven; {PROXY} secret put agents/seven --descriptor 7 --config {}",
        lab.fixture.config().display()
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]);
    let output = fed(bash, b"");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(decrypted("store/agents/seven.gpg"), b"canary-seven\n");
}

#[test]
fn a_rotated_entry_is_in_use_at_once_and_a_broken_one_leaves_the_former() {
    let mut lab = Lab::new();
    lab.put("canary-one");
    lab.fixture.start();
    let loaded = || lab.credential()["loaded_at"].as_str().map(str::to_owned);
    let first = loaded();
    let rotated = lab.secret(&["rotate", "example"], b"canary-two\n");
    assert!(rotated.status.success(), "{rotated:?}");
    assert!(
        shown(&rotated).contains("the gate uses it from now on"),
        "{rotated:?}"
    );
    let second = loaded();
    assert_ne!(first, second);
    // Another program's change is taken up without a word from anybody.
    lab.overwrite(b"canary-three\n");
    eventually("the gate takes it up", || loaded() != second);
    let third = loaded();
    lab.overwrite(b"\n");
    eventually("the loss is told", || {
        !lab.credential()["problem"].is_null()
    });
    let credential = lab.credential();
    assert_eq!(
        (credential["ok"].clone(), loaded()),
        (Value::Bool(true), third)
    );
    assert_eq!(lab.fixture.status()["ready"], false);
    assert!(lab.secret(&["restore", "example"], b"").status.success());
    eventually("it is well again", || lab.credential()["problem"].is_null());
    let log = std::fs::read_to_string(lab.fixture.path("lib/audit/audit.jsonl")).unwrap();
    assert!(
        log.contains("credential example: a new value is in use"),
        "{log}"
    );
    assert!(!log.contains("canary") && !lab.fixture.stop().contains("canary"));
}

/// Other people of the machine read the arguments of every process: no command takes a value there.
#[test]
fn a_value_is_read_from_stdin_or_a_descriptor_and_is_no_argument() {
    let lab = Lab::new();
    lab.put("canary-one");
    for verb in ["put", "rotate", "import"] {
        for more in [
            &["canary-two"][..],
            &["--value", "canary-two"],
            &["--value=canary-two"],
            &["--descriptor", "canary-two"],
        ] {
            let arguments = [&[verb, "agents/example"][..], more].concat();
            let refused = lab.secret(&arguments, b"canary-three");
            assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {refused:?}");
            assert_eq!(
                lab.by_gpg(),
                b"canary-one",
                "{arguments:?}: nothing is written"
            );
        }
        let help = shown(&lab.secret(&[verb, "--help"], b""));
        let usage = help
            .lines()
            .find(|line| line.starts_with("Usage:"))
            .unwrap();
        assert!(!usage.to_lowercase().contains("value"), "{usage}");
    }
    // The control.
    assert!(
        lab.secret(&["put", "agents/example"], b"canary-three")
            .status
            .success()
    );
    assert_eq!(lab.by_gpg(), b"canary-three");
}

/// The store's key is a file: neither gpg nor its agent is there, and nothing of the surroundings counts.
#[test]
fn the_store_is_read_and_written_without_gpg_or_its_agent() {
    let lab = Lab::new();
    let alone = |program: &str, arguments: &[&str], input: &[u8]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/nonexistent")
            .env("HOME", "/nonexistent")
            .env("GNUPGHOME", lab.fixture.path("operator"))
            .env("GPG_AGENT_INFO", "/nonexistent:1:1");
        fed(command, input)
    };
    let config = lab.fixture.config();
    let config = config.to_str().unwrap();
    let secret = |words: &[&str], input: &[u8]| {
        alone(
            PROXY,
            &[&["secret"][..], words, &["--config", config]].concat(),
            input,
        )
    };
    for value in ["canary-one", "canary-two"] {
        let put = secret(&["put", "agents/example"], value.as_bytes());
        assert!(put.status.success(), "{put:?}");
        assert_eq!(lab.by_gpg(), value.as_bytes());
    }
    assert!(secret(&["check"], b"").status.success());
    assert!(secret(&["restore", "agents/example"], b"").status.success());
    assert_eq!(lab.by_gpg(), b"canary-one");
    // The control: gpg itself reads nothing there.
    let file = lab.fixture.path("store/agents/example.gpg");
    let words = [
        "--batch",
        "--no-autostart",
        "--decrypt",
        file.to_str().unwrap(),
    ];
    let gpg = alone("/usr/bin/gpg", &words, b"");
    assert!(!gpg.status.success() && gpg.stdout.is_empty(), "{gpg:?}");
}

/// CRD-20: a crash leaves no core, whatever the system would like.
/// Attack: CRD-20
#[test]
fn crd_20_a_crash_leaves_no_core() {
    use std::os::unix::process::ExitStatusExt;
    // Not SIGQUIT: a shell has what runs in its background ignore it.
    for signal in [Signal::SIGABRT, Signal::SIGTRAP] {
        let mut fixture = Fixture::new();
        fixture.start();
        fixture.signal(signal);
        let status = fixture.ended();
        assert!(status.signal().is_some(), "{status}");
        assert!(!status.core_dumped(), "{status}");
    }
}
