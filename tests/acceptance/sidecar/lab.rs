//! An engine, a model's API beyond it, and projects made of the shipped files.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use tests::canary::Canary;
use tests::command::{Finished, Program};
use tests::engine::{Engine, RESOLVER};
use tests::names::Names;
use tests::pki::Pki;
use tests::upstream::Stand;
use tests::{binaries, host, wait};

/// The one host that the shipped policy opens.
pub(super) const MODEL: &str = "api.anthropic.com";
/// A host that records who sends it anything.
pub(super) const PEER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// The same host.
pub(super) const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

/// What all projects of a test run share.
pub(super) struct Lab {
    pub(super) engine: Engine,
    pub(super) names: Names,
    pub(super) pki: Pki,
    pub(super) credential: Canary,
    _model: Stand,
}

impl Lab {
    /// Made once, kept as long as this process lives.
    pub(super) fn shared() -> &'static Self {
        static LAB: OnceLock<Lab> = OnceLock::new();
        LAB.get_or_init(Self::make)
    }

    /// One of a test's own, which stops its engine. It goes when this process ends, too.
    pub(super) fn own() -> &'static Self {
        Box::leak(Box::new(Self::make()))
    }

    fn make() -> Self {
        let engine = Engine::start();
        let directory = engine.directory();
        let resolver: Ipv4Addr = RESOLVER.parse().unwrap();
        let model = Ipv4Addr::new(93, 184, 215, 10);
        for address in [resolver, model, PEER] {
            engine.netns.add_address(address.into());
        }
        engine.netns.add_address(PEER6.into());
        let names = Names::serve_at(&engine.netns, resolver);
        names.set(MODEL, model);
        let (pki, _) = Pki::make(&directory.join("pki"), &[MODEL.to_owned()]).unwrap();
        // The gate knows how this provider's keys begin.
        let mut credential = Canary::plain();
        credential.secret = format!("sk-ant-api03-{}", credential.secret);
        let words = ["model", "--http2", "--credential", &credential.secret].map(String::from);
        let at = SocketAddr::new(model.into(), 443);
        let place = directory.join("model");
        let model = Stand::start(&engine.netns, &place, &pki, at, &words);
        Self {
            engine,
            names,
            pki,
            credential,
            _model: model,
        }
    }

    /// Packets to [`PEER`] and [`PEER6`] so far, of any protocol, that the machine at the other end of the bridge took in: what
    /// only crosses another bridge of its is for others. Counts from the first call on.
    pub(super) fn packets_to_peer(&self) -> u64 {
        let peers = [PEER.to_string(), PEER6.to_string()];
        peers.iter().map(|peer| self.packets_to(peer)).sum()
    }

    /// To one of the two.
    pub(super) fn packets_to(&self, peer: &str) -> u64 {
        let counter = if peer.contains(':') { "six" } else { "four" };
        let list = || {
            Program::new("nft")
                .args(["-j", "list", "counter", "inet", "peer", counter])
                .in_netns(&self.engine.netns)
                .run()
        };
        if !list().status.success() {
            self.engine.netns.nft(&format!(
                "table inet peer {{
                    counter four {{ }}
                    counter six {{ }}
                    chain in {{
                        type filter hook input priority -300; policy accept;
                        iifname != \"lo\" ip daddr {PEER} counter name four
                        iifname != \"lo\" ip6 daddr {PEER6} counter name six
                    }}
                }}"
            ));
        }
        let listed: serde_json::Value = serde_json::from_str(&list().ok().stdout).unwrap();
        let objects = listed["nftables"].as_array().unwrap();
        objects
            .iter()
            .find_map(|object| object["counter"]["packets"].as_u64())
            .unwrap()
    }
}

/// A person's directory with the shipped files, and what runs by them.
pub(super) struct Project {
    pub(super) lab: &'static Lab,
    name: String,
    files: &'static [&'static str],
    directory: tempfile::TempDir,
}

impl Project {
    /// Nothing runs yet.
    pub(super) fn new(files: &'static [&'static str]) -> Self {
        Self::of(Lab::shared(), files)
    }

    /// The same on this engine.
    pub(super) fn of(lab: &'static Lab, files: &'static [&'static str]) -> Self {
        let directory = host::scratch();
        let shipped = binaries::repository().join("provisioning/sidecar");
        for found in fs::read_dir(shipped).unwrap().map(Result::unwrap) {
            if found.file_type().unwrap().is_file() {
                fs::copy(found.path(), directory.path().join(found.file_name())).unwrap();
            }
        }
        host::directory(&directory.path().join("secrets"), 0, 0o755);
        host::directory(&directory.path().join("policies"), 0, 0o755);
        let ca = fs::read_to_string(lab.pki.ca()).unwrap();
        host::file(&directory.path().join("policies/ca.pem"), &ca, 0, 0o644);
        let secret = format!("{}\n", lab.credential.secret);
        host::file(
            &directory.path().join("secrets/anthropic"),
            &secret,
            1900,
            0o400,
        );
        let name = directory.path().file_name().unwrap().to_string_lossy();
        let name = name.to_lowercase().replace(['.', '-'], "");
        let project = Self {
            lab,
            name,
            files,
            directory,
        };
        project.write_policy("");
        project
    }

    /// The shipped policy, with the stand-in's authority and `more`.
    pub(super) fn write_policy(&self, more: &str) {
        let shipped = binaries::repository().join("provisioning/sidecar/policies/default.toml");
        let policy = fs::read_to_string(shipped).unwrap();
        let allow = "allow = [\"* /**\"]";
        assert!(policy.contains(allow), "{policy}");
        let ours = format!("{allow}\nca_file = \"/etc/portcullis/policies/ca.pem\"");
        let policy = policy.replace(allow, &ours) + more;
        host::file(&self.path("policies/default.toml"), &policy, 0, 0o644);
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn compose(&self, words: &[&str]) -> Program {
        let mut base = vec!["--project-name", &self.name];
        base.extend(self.files.iter().flat_map(|file| ["--file", file]));
        let compose = self.lab.engine.compose(self.directory.path(), base);
        compose.env("AGENT_IMAGE", "agent").args(words)
    }

    /// Starts everything and waits until the gate is healthy.
    pub(super) fn up(&self) {
        let up = self.compose(&["up", "--detach"]).run();
        if !up.status.success() {
            let logs = self.compose(&["logs", "--no-color"]).run();
            panic!("{}\n{}", up.shown(), logs.stdout);
        }
        self.until_healthy("gate");
    }

    pub(super) fn until_healthy(&self, service: &str) {
        self.until_health(service, "healthy");
    }

    /// Until the engine says so of its health. What the last check printed.
    pub(super) fn until_health(&self, service: &str, wanted: &str) -> String {
        wait::until_within(Duration::from_secs(90), wanted, || {
            let health = self.inspect(service, "{{.State.Health.Status}}");
            (health == wanted).then_some(())
        });
        let log = "{{range .State.Health.Log}}{{.Output}}{{end}}";
        let said = self.inspect(service, log);
        said.lines().next_back().unwrap_or_default().to_owned()
    }

    /// A container's name.
    pub(super) fn container(&self, service: &str) -> String {
        format!("{}_{service}_1", self.name)
    }

    /// A volume's name.
    pub(super) fn volume(&self, volume: &str) -> String {
        format!("{}_{volume}", self.name)
    }

    /// The gate's volume, as agents mount it.
    pub(super) fn share(&self) -> String {
        format!("--volume={}:/portcullis:ro", self.volume("portcullis"))
    }

    pub(super) fn inspect(&self, service: &str, format: &str) -> String {
        let inspected = self.lab.engine.inspect(&self.container(service), format);
        inspected.stdout.trim().to_owned()
    }

    /// A command in a new container of the agent's service, by its entrypoint.
    pub(super) fn agent(&self, words: &[&str]) -> Finished {
        self.agent_with(&[], words)
    }

    /// The same with more options of `docker-compose run`. What it said is asked of the engine: compose may come too late for
    /// a command that ends at once.
    pub(super) fn agent_with(&self, options: &[&str], words: &[&str]) -> Finished {
        let name = format!("{}_once", self.name);
        let run = self.compose(&["run", "-T", "--name", &name]).args(options);
        let ran = run.arg("agent").args(words).run();
        let said = self.docker(&["logs", &name]).run();
        self.docker(&["rm", "--force", &name]).run();
        Finished {
            status: ran.status,
            stdout: said.stdout,
            stderr: said.stderr,
        }
    }

    /// A command in a container that runs.
    pub(super) fn exec(&self, service: &str, words: &[&str]) -> Program {
        let container = self.container(service);
        self.lab.engine.docker(["exec", &container]).args(words)
    }

    pub(super) fn docker(&self, words: &[&str]) -> Program {
        self.lab.engine.docker(words)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(
                &self
                    .compose(&["logs", "--no-color", "--tail", "40"])
                    .run()
                    .stdout,
            );
        }
        self.compose(&["down", "--volumes", "--timeout", "1"]).run();
    }
}

#[allow(
    clippy::print_stderr,
    reason = "a failing test shows what the containers had to say"
)]
fn show(logs: &str) {
    eprintln!("--- the containers' logs ---\n{logs}");
}
