//! One small world: a namespace with names, three hosts, a gate and an agent.
//!
//! | name | address | what it is |
//! |---|---|---|
//! | `git.portcullis.test` | 93.184.215.10 | git host, wants the credential `git` |
//! | `web.portcullis.test` | 93.184.215.20 | recording web server, given the credential `web` |
//! | `evil.portcullis.test` | 93.184.215.66 | recording web server that no policy lists |
//!
//! All on port 443 of the namespace's own loopback, so that no packet meets a wire.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::canary::{Canary, Sighting};
use crate::command::{Finished, Program};
use crate::control::Control;
use crate::gate::{self, Boundary, Credential, Gate};
use crate::names::Names;
use crate::netns::Netns;
use crate::pki::Pki;
use crate::upstream::{GitHost, WebHost};
use crate::wall::Wall;
use crate::{binaries, host};

/// The git host's name.
pub const GIT: &str = "git.portcullis.test";
/// The listed web server's name.
pub const WEB: &str = "web.portcullis.test";
/// The web server that no policy lists.
pub const EVIL: &str = "evil.portcullis.test";
/// The git host's address.
pub const GIT_ADDRESS: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 10);
/// The listed web server's address.
pub const WEB_ADDRESS: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 20);
/// The unlisted web server's address.
pub const EVIL_ADDRESS: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 66);

/// The parts; dropped in this order.
#[derive(Debug)]
pub struct World {
    /// The gate under test.
    pub gate: Gate,
    /// The kernel boundary, once raised.
    pub wall: Option<Wall>,
    /// The git host.
    pub git: GitHost,
    /// The listed web server.
    pub web: WebHost,
    /// The unlisted web server.
    pub evil: WebHost,
    /// The resolver.
    pub names: Names,
    /// The namespace all of it lives in.
    pub netns: Netns,
    /// The upstreams' certificate authority.
    pub pki: Pki,
    /// The agent's uid; its home is [`World::home`].
    pub agent: u32,
    /// The secret that the gate injects for git.
    pub git_secret: Canary,
    /// The secret that the gate injects for the web server.
    pub web_secret: Canary,
    scratch: tempfile::TempDir,
}

impl World {
    /// Everything, with [`World::policy`] and the gate started.
    pub fn new() -> Self {
        let mut world = Self::prepared(None, Boundary::External);
        world.start();
        world
    }

    /// Everything, with another policy; `{ca}` in it becomes the upstreams' authority.
    pub fn with_policy(policy: &str) -> Self {
        let mut world = Self::prepared(Some(policy), Boundary::External);
        world.start();
        world
    }

    /// Everything with a real boundary around the agent, and the gate started behind it.
    pub fn walled() -> Self {
        let mut world = Self::prepared(None, Boundary::Kernel);
        world.raise_wall();
        world.start();
        world
    }

    /// Everything but a started gate.
    pub fn prepared(policy: Option<&str>, boundary: Boundary) -> Self {
        let scratch = host::scratch();
        let netns = Netns::new();
        let names = Names::serve(&netns);
        for (name, address) in [(GIT, GIT_ADDRESS), (WEB, WEB_ADDRESS), (EVIL, EVIL_ADDRESS)] {
            netns.add_address(address.into());
            names.set(name, address);
        }
        let hosts = [GIT, WEB, EVIL].map(str::to_owned);
        let (pki, _) = Pki::make(&scratch.path().join("pki"), &hosts).expect("a scratch folder");
        let at = |address: Ipv4Addr| SocketAddr::new(address.into(), 443);
        let dir = |name: &str| scratch.path().join(name);
        let (git_secret, web_secret) = (Canary::github(), Canary::plain());
        let git = GitHost::start(
            &netns,
            &dir("git"),
            &pki,
            at(GIT_ADDRESS),
            &git_secret.secret,
        );
        let web = WebHost::start(&netns, &dir("web"), &pki, at(WEB_ADDRESS));
        let evil = WebHost::start(&netns, &dir("evil"), &pki, at(EVIL_ADDRESS));
        let agent = host::uid();
        host::directory(&dir("agent"), agent, 0o700);
        let credentials = [
            Credential {
                name: "git",
                kind: "github-token",
                host: GIT,
                canary: git_secret.clone(),
            },
            Credential {
                name: "web",
                kind: "bearer",
                host: WEB,
                canary: web_secret.clone(),
            },
        ];
        let policy = policy.unwrap_or(Self::policy());
        let policy = policy.replace("{ca}", &pki.ca().display().to_string());
        let gate = Gate::prepare(&dir("gate"), &[agent], &policy, &credentials, boundary);
        Self {
            gate,
            wall: None,
            git,
            web,
            evil,
            names,
            netns,
            pki,
            agent,
            git_secret,
            web_secret,
            scratch,
        }
    }

    /// Push to `acme/web` on `agent/*`; read the web server and post to its echo.
    pub fn policy() -> &'static str {
        "version = 1

[[service]]
id = \"forge\"
kind = \"github\"
host = \"git.portcullis.test\"
repos = [\"acme/web\"]
git = \"push\"
refs = [\"refs/heads/agent/*\"]
credential = \"git\"
ca_file = \"{ca}\"
why = \"agents work on branches of their own\"

[[service]]
id = \"web\"
kind = \"http\"
host = \"web.portcullis.test\"
allow = [\"GET /**\", \"POST /echo\"]
deny = [\"GET /secret/**\"]
credential = \"web\"
ca_file = \"{ca}\"
"
    }

    /// Applies a boundary that shuts the agent in, and watches it.
    pub fn raise_wall(&mut self) {
        let status = self.gate.boundary_status();
        let dir = self.scratch.path().join("wall");
        self.wall = Some(Wall::raise(
            &self.netns,
            &dir,
            self.gate.uid,
            &[self.agent],
            &status,
        ));
    }

    /// Starts the gate and publishes its authority to agents.
    pub fn start(&mut self) {
        self.gate.start(&self.netns);
        let authority = fs::read_to_string(self.gate.ca()).expect("the gate made its authority");
        host::file(&self.trust(), &authority, 0, 0o644);
    }

    /// `program` as the agent, behind the gate: proxy variables, trust, a home, nothing else.
    pub fn agent(&self, program: &str) -> Program {
        let (proxy, trust) = (format!("http://{}", gate::ADDRESS), self.trust());
        let mut agent = self.unproxied(program).in_directory(&self.home());
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            agent = agent.env(name, &proxy);
        }
        for name in [
            "CURL_CA_BUNDLE",
            "SSL_CERT_FILE",
            "GIT_SSL_CAINFO",
            "REQUESTS_CA_BUNDLE",
        ] {
            agent = agent.env(name, &trust);
        }
        agent
    }

    /// `program` as the agent, without a word about the gate.
    pub fn unproxied(&self, program: &str) -> Program {
        Program::new(program)
            .env("HOME", self.home())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "Agent")
            .env("GIT_AUTHOR_EMAIL", "agent@portcullis.test")
            .env("GIT_COMMITTER_NAME", "Agent")
            .env("GIT_COMMITTER_EMAIL", "agent@portcullis.test")
            .as_uid(self.agent)
            .in_netns(&self.netns)
    }

    /// `curl` as the agent: the body on standard output, then a line with the status.
    pub fn curl(&self, args: &[&str]) -> Finished {
        let fixed = [
            "--silent",
            "--show-error",
            "--max-time",
            "60",
            "--write-out",
            "\n%{http_code}",
        ];
        self.agent("curl").args(fixed).args(args).run()
    }

    /// `git` as the agent, in `directory` below its home.
    pub fn git(&self, directory: &str, args: &[&str]) -> Finished {
        self.agent("git")
            .in_directory(&self.home().join(directory))
            .args(args)
            .run()
    }

    /// URL of the one repository.
    pub fn repository(&self) -> String {
        format!("https://{GIT}/acme/web.git")
    }

    /// The control socket, as the operator.
    pub fn control(&self) -> Control<'_> {
        Control {
            socket: self.gate.control_socket(),
            uid: self.gate.operator,
            netns: &self.netns,
        }
    }

    /// The agent's home.
    pub fn home(&self) -> PathBuf {
        self.scratch.path().join("agent")
    }

    /// The certificate agents trust.
    pub fn trust(&self) -> PathBuf {
        self.scratch.path().join("trust.pem")
    }

    /// A folder only root may list, below which all of this world lies.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().to_path_buf()
    }

    /// Looks for `canary` as the agent: in every process, in this world's files, in its home.
    pub fn agent_sees(&self, canary: &Canary) -> Vec<Sighting> {
        let mut search = self
            .unproxied(&binaries::path("portcullis-probe").display().to_string())
            .args(["search", "--processes", "--root"])
            .arg(self.scratch.path());
        for name in ["agent", "gate", "git", "web", "evil", "pki", "trust.pem"] {
            search = search.arg("--root").arg(self.scratch.path().join(name));
        }
        let found = search.input(&canary.forms_in_hex()).run();
        assert!(found.code() < 2, "{}", found.shown());
        found
            .stdout
            .lines()
            .map(|line| {
                let (form, place) = line.split_once('\t').expect("form, tab, place");
                Sighting {
                    place: place.to_owned(),
                    form: form.to_owned(),
                }
            })
            .collect()
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}
