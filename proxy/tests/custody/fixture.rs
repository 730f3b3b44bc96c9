//! One gate in a directory of its own, under a uid of its own.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) const PROXY: &str = env!("CARGO_BIN_EXE_portcullis-proxy");
/// Patience for what takes milliseconds.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// The service user of every gate here: one that each Debian has and that nothing else uses.
pub(crate) const USER: &str = "games";

pub(crate) const POLICY: &str = "version = 1\n\n[[service]]\nkind = \"http\"\n\
     host = \"api.example.com\"\nallow = [\"GET /v1/**\"]\ncredential = \"example\"\n";

pub(crate) struct Fixture {
    directory: tempfile::TempDir,
    child: Option<Child>,
}

impl Fixture {
    /// Files for a gate; nothing runs yet.
    pub(crate) fn new() -> Self {
        Self::with(|text| text)
    }

    /// The same with a changed configuration.
    pub(crate) fn with(change: impl FnOnce(String) -> String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fixture = Self {
            directory,
            child: None,
        };
        set_mode(fixture.root(), 0o755);
        for name in ["run", "lib", "secret"] {
            std::fs::create_dir(fixture.path(name)).unwrap();
        }
        std::fs::write(fixture.path("default.toml"), POLICY).unwrap();
        std::fs::write(fixture.path("secret/example"), "canary-3f1c").unwrap();
        set_mode(&fixture.path("secret/example"), 0o600);
        let root = fixture.root().display();
        let text = format!(
            r#"
[control]
socket = "{root}/run/control.sock"
[[control.peer]]
user = 0
profiles = ["default"]
inline = true
admin = true
[[control.peer]]
user = "daemon"
profiles = []
[runs]
directory = "{root}/run/runs"
[ca]
directory = "{root}/lib/ca"
[audit]
directory = "{root}/lib/audit"
[boundary]
external = "a test"
[profile.default]
policy = "{root}/default.toml"
[credential.example]
kind = "bearer"
file = "{root}/secret/example"
hosts = ["api.example.com"]
"#
        );
        std::fs::write(fixture.config(), change(text)).unwrap();
        let made = fixture.tool(&["ca", "init", "--user", USER]);
        assert!(made.status.success(), "{made:?}");
        for name in ["run", "lib", "secret", "secret/example"] {
            chown(fixture.path(name), Some(uid_of(USER)), Some(uid_of(USER))).unwrap();
        }
        fixture
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("proxy.toml")
    }

    /// Runs a subcommand to its end.
    pub(crate) fn tool(&self, args: &[&str]) -> Output {
        Command::new(PROXY)
            .args(args)
            .arg("--config")
            .arg(self.config())
            .output()
            .unwrap()
    }

    /// Starts the gate and waits until it says that it listens.
    pub(crate) fn start(&mut self) {
        self.start_by(&[]);
    }

    /// The same by a program that runs it with something changed.
    pub(crate) fn start_by(&mut self, starter: &[&str]) {
        let ready = self.path("run/ready");
        // From an earlier start.
        let _ = std::fs::remove_file(&ready);
        let command = [starter, &[PROXY, "run", "--user", USER, "--config"]].concat();
        let mut child = Command::new(command[0])
            .args(&command[1..])
            .arg(self.config())
            .arg("--ready-file")
            .arg(&ready)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let until = Instant::now() + DEADLINE;
        while !ready.exists() {
            if let Some(status) = child.try_wait().unwrap() {
                let mut said = String::new();
                child
                    .stderr
                    .take()
                    .unwrap()
                    .read_to_string(&mut said)
                    .unwrap();
                panic!("the gate ended with {status}:\n{said}");
            }
            assert!(Instant::now() < until, "the gate is not ready");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child = Some(child);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    /// Waits for an end that is no stop.
    pub(crate) fn ended(&mut self) -> std::process::ExitStatus {
        self.child.take().unwrap().wait().unwrap()
    }

    /// Stops the gate; what it said on stderr.
    pub(crate) fn stop(&mut self) -> String {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// One request on the control socket, as root: status and body.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.ask_as(None, method, path, body)
    }

    /// The same under another uid.
    pub(crate) fn ask_as(
        &self,
        uid: Option<u32>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, Value) {
        let mut command = match uid {
            None => Command::new("curl"),
            Some(uid) => {
                let mut command = Command::new("setpriv");
                command
                    .arg(format!("--reuid={uid}"))
                    .arg(format!("--regid={uid}"));
                command.args(["--clear-groups", "curl"]);
                command
            }
        };
        let output = command
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "20",
                "--request",
                method,
            ])
            .args([
                "--write-out",
                "\n%{http_code}",
                "--data-binary",
                &body.to_string(),
            ])
            .arg("--unix-socket")
            .arg(self.path("run/control.sock"))
            .arg(format!("http://gate{path}"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        let value = serde_json::from_str(body).unwrap_or(Value::String(body.to_owned()));
        (status.parse().unwrap(), value)
    }

    pub(crate) fn status(&self) -> Value {
        let (code, status) = self.ask("GET", "/v1/status", &Value::Null);
        assert_eq!(code, 200, "{status}");
        status
    }

    /// The log's lines.
    pub(crate) fn log(&self) -> Vec<Value> {
        std::fs::read_to_string(self.path("lib/audit/audit.jsonl"))
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Only when a test has failed: it may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn uid_of(user: &str) -> u32 {
    nix::unistd::User::from_name(user)
        .unwrap()
        .unwrap()
        .uid
        .as_raw()
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
