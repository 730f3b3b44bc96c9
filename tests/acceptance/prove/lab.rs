//! A host of its own for `portcullis prove`: a namespace, a boundary, and the command.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tests::command::{Finished, Program};
use tests::netns::Netns;
use tests::{binaries, host};

pub(super) const TABLE: &str = "portcullis-prove";
/// Seconds for a whole list. Each of its attempts has a limit of its own, with a reason.
const LIMIT: u32 = 600;

pub(super) struct Lab {
    pub(super) netns: Netns,
    /// First of the lab's own 100 uids: the agents are the first fifty, the gate is the last. What runs as another lab's
    /// is nothing to this one.
    first: u32,
    dir: tempfile::TempDir,
    /// A copy that every user can execute.
    portcullis: PathBuf,
}

/// A run of `portcullis prove` with its JSON report.
pub(super) struct Proven {
    pub(super) code: i32,
    pub(super) report: Value,
    finished: Finished,
}

impl Proven {
    #[track_caller]
    fn of(finished: Finished) -> Self {
        Self {
            code: finished.code(),
            report: serde_json::from_str(&finished.stdout)
                .unwrap_or_else(|error| panic!("{error}: {}", finished.shown())),
            finished,
        }
    }

    /// The status of one proof.
    #[track_caller]
    pub(super) fn status(&self, id: &str) -> &str {
        let proofs = self.report["proofs"].as_array().unwrap();
        let proof = proofs.iter().find(|proof| proof["id"] == id);
        let proof = proof.unwrap_or_else(|| panic!("no proof {id}: {}", self.shown()));
        proof["status"].as_str().unwrap()
    }

    /// What was seen of one proof.
    #[track_caller]
    pub(super) fn saw(&self, id: &str) -> &str {
        let proofs = self.report["proofs"].as_array().unwrap();
        let proof = proofs.iter().find(|proof| proof["id"] == id);
        let proof = proof.unwrap_or_else(|| panic!("no proof {id}: {}", self.shown()));
        proof["saw"].as_str().unwrap()
    }

    /// Of what must fail, all that holds.
    pub(super) fn held_refusals(&self) -> Vec<&str> {
        let proofs = self.report["proofs"].as_array().unwrap();
        proofs
            .iter()
            .filter(|proof| proof["status"] == "holds" && proof["must"] == "fail")
            .map(|proof| proof["id"].as_str().unwrap())
            .collect()
    }

    pub(super) fn count(&self, status: &str) -> u64 {
        self.report["counts"][status].as_u64().unwrap()
    }

    /// All that does not hold.
    pub(super) fn shown(&self) -> String {
        let proofs = self.report["proofs"].as_array().unwrap();
        let odd = proofs
            .iter()
            .filter(|proof| proof["status"] != "holds" && proof["status"] != "not-applicable");
        let lines: Vec<String> = odd
            .map(|proof| format!("{} {}: {}", proof["status"], proof["id"], proof["saw"]))
            .collect();
        format!(
            "exit {}\n{}\n{}",
            self.code,
            lines.join("\n"),
            self.finished.stderr
        )
    }
}

impl Lab {
    /// A host in this scope, boundary not yet loaded, with no interface but loopback.
    pub(super) fn new(scope: &str) -> Self {
        Self::with(scope, "")
    }

    /// The same with more in its `boundary.toml`.
    pub(super) fn with(scope: &str, more: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let process = 1_500_000_000 + std::process::id() % 30_000 * 10_000;
        let first = process + NEXT.fetch_add(1, Ordering::SeqCst) * 100;
        let gate = first + 99;
        let dir = host::scratch();
        let portcullis = dir.path().join("portcullis");
        std::fs::copy(binaries::path("portcullis"), &portcullis).unwrap();
        let agents = if scope == "agents" {
            format!("agents = [\"{first}-{}\"]", first + 49)
        } else {
            String::new()
        };
        let text = format!(
            "scope = \"{scope}\"\ntable = \"{TABLE}\"\ngate_port = 3128\nproxy = {gate}\n{agents}\nstatus = \"{}\"\n{more}",
            dir.path().join("status.json").display()
        );
        host::file(&dir.path().join("boundary.toml"), &text, 0, 0o644);
        Self {
            netns: Netns::new(),
            first,
            dir,
            portcullis,
        }
    }

    /// The uid of an agent.
    pub(super) fn agent(&self) -> u32 {
        self.first + 7
    }

    /// The uid of the gate.
    pub(super) fn gate(&self) -> u32 {
        self.first + 99
    }

    /// The program, which is this lab's own copy.
    pub(super) fn program(&self) -> &Path {
        &self.portcullis
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `portcullis-boundary VERB` here.
    pub(super) fn boundary(&self, verb: &str) -> Finished {
        Program::new(binaries::path("portcullis-boundary"))
            .arg("--config")
            .arg(self.path("boundary.toml"))
            .arg(verb)
            .in_netns(&self.netns)
            .run()
    }

    #[track_caller]
    pub(super) fn shut(&self) {
        self.boundary("apply").ok();
    }

    #[track_caller]
    pub(super) fn open(&self) {
        self.boundary("remove").ok();
    }

    /// Loads here what this lab's configuration would be in the other scope.
    pub(super) fn apply_as(&self, scope: &str) {
        let text = std::fs::read_to_string(self.path("boundary.toml")).unwrap();
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| !line.starts_with("scope") && !line.starts_with("agents"))
            .map(str::to_owned)
            .collect();
        if scope == "agents" {
            lines.insert(
                0,
                format!("agents = [\"{}-{}\"]", self.first, self.first + 49),
            );
        }
        lines.insert(0, format!("scope = \"{scope}\""));
        let other = self.path("other.toml");
        std::fs::write(&other, lines.join("\n")).unwrap();
        self.load(&other);
    }

    /// Loads this lab's rules on another lab's host.
    pub(super) fn apply_in(&self, other: &Self) {
        other.load(&self.path("boundary.toml"));
    }

    #[track_caller]
    fn load(&self, config: &Path) {
        Program::new(binaries::path("portcullis-boundary"))
            .arg("--config")
            .arg(config)
            .arg("apply")
            .in_netns(&self.netns)
            .run()
            .ok();
    }

    /// An interface with a default route, as a container on somebody's bridge has it.
    pub(super) fn wire(&self) {
        for words in [
            &["link", "add", "wire", "type", "veth", "peer", "name", "end"][..],
            &["link", "set", "end", "up"],
            &["address", "add", "10.9.8.7/24", "dev", "wire"],
            &["link", "set", "wire", "up"],
            &["route", "add", "default", "via", "10.9.8.1"],
        ] {
            self.netns.ip(words);
        }
    }

    /// What `ip` lists.
    pub(super) fn links(&self) -> String {
        self.netns.ip(&["-o", "link"]) + &self.netns.ip(&["route", "show", "table", "all"])
    }

    /// `portcullis prove` by root.
    pub(super) fn run(&self, more: &[&str]) -> Finished {
        let boundary = self.path("boundary.toml").display().to_string();
        let agent = self.agent().to_string();
        let mut words = vec!["prove", "--boundary", &boundary, "--agent", &agent];
        words.extend(more);
        self.run_words(&words)
    }

    pub(super) fn run_words(&self, words: &[&str]) -> Finished {
        Program::new(&self.portcullis)
            .args(words)
            .in_netns(&self.netns)
            .limit(LIMIT)
            .run()
    }

    /// The same with its JSON report.
    #[track_caller]
    pub(super) fn prove(&self, more: &[&str]) -> Proven {
        let mut words = vec!["--format", "json"];
        words.extend(more);
        Proven::of(self.run(&words))
    }

    /// The proofs of the built-in list with these ids, on a machine that a shell prepares in a mount namespace of its own.
    #[track_caller]
    pub(super) fn prove_only(&self, ids: &[&str], prepare: &str) -> Proven {
        let of = format!("--boundary {}", self.path("boundary.toml").display());
        self.prove_prepared(&of, ids, prepare)
    }

    /// The same of an instance at that prefix.
    #[track_caller]
    pub(super) fn prove_instance(&self, prefix: &Path, ids: &[&str], prepare: &str) -> Proven {
        self.prove_prepared(&format!("--prefix {}", prefix.display()), ids, prepare)
    }

    #[track_caller]
    fn prove_prepared(&self, of: &str, ids: &[&str], prepare: &str) -> Proven {
        let list = self.path("only.toml");
        std::fs::write(&list, only(ids)).unwrap();
        let script = format!(
            "set -e\n{prepare}\nset +e\n{} prove --format json {of} --agent {} --proofs {}\n\
             code=$?\n[ -z \"$!\" ] || kill $!\nexit $code",
            self.portcullis.display(),
            self.agent(),
            list.display()
        );
        Proven::of(
            Program::new("sh")
                .args(["-c", &script])
                .in_netns(&self.netns)
                .limit(LIMIT)
                .run(),
        )
    }

    /// The proofs with these ids, as if somebody else were the agent.
    #[track_caller]
    pub(super) fn prove_as(&self, uid: u32, ids: &[&str]) -> Proven {
        let list = self.path("only.toml");
        std::fs::write(&list, only(ids)).unwrap();
        let boundary = self.path("boundary.toml").display().to_string();
        let (uid, list) = (uid.to_string(), list.display().to_string());
        Proven::of(self.run_words(&[
            "prove",
            "--format",
            "json",
            "--boundary",
            &boundary,
            "--agent",
            &uid,
            "--proofs",
            &list,
        ]))
    }

    /// By an agent, who has no more than itself, and can gain nothing.
    #[track_caller]
    pub(super) fn alone(&self, uid: u32) -> Proven {
        self.alone_with(uid, &[])
    }

    /// The same with more options.
    #[track_caller]
    pub(super) fn alone_with(&self, uid: u32, more: &[&str]) -> Proven {
        let id = uid.to_string();
        let program = Program::new("setpriv")
            .args([
                "--reuid",
                &id,
                "--regid",
                &id,
                "--clear-groups",
                "--no-new-privs",
            ])
            .arg(&self.portcullis)
            .args(["prove", "--format", "json"])
            .args(more)
            .in_netns(&self.netns)
            .limit(LIMIT);
        Proven::of(program.run())
    }

    pub(super) fn nft(&self, words: &[&str]) -> Finished {
        Program::new("nft")
            .args(words)
            .in_netns(&self.netns)
            .run()
            .ok()
    }
}

/// A list with these proofs of the built-in one.
pub(super) fn only(ids: &[&str]) -> String {
    let path = binaries::repository().join("provisioning/proofs.toml");
    let mut list: toml::Table = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    list.remove("redundant");
    let proofs = list.get_mut("proof").unwrap().as_array_mut().unwrap();
    proofs.retain(|proof| ids.contains(&proof["id"].as_str().unwrap()));
    assert_eq!(proofs.len(), ids.len(), "{ids:?}");
    toml::to_string(&list).unwrap()
}
