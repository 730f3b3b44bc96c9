//! The world of the client matrix: hosts of every kind, a walled-in agent, and the clients as the
//! product configures them.
//!
//! The variables and files come from `portcullis-orchestrator environment`, never from a test: what
//! is tested is that the product's own table makes each client work.

use std::cell::RefCell;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::canary::Canary;
use crate::command::{Finished, Program};
use crate::control::Control;
use crate::gate::{self, Boundary, Credential, Gate};
use crate::matrix::{self, Row, Shown};
use crate::names::Names;
use crate::netns::Netns;
use crate::pki::Pki;
use crate::upstream::Stand;
use crate::wall::Wall;
use crate::{binaries, host};

/// Seconds a client may take before it counts as hanging.
const PATIENCE: u32 = 300;

/// A host that a test wants to be there.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Names it speaks for, all at one address.
    pub names: &'static [&'static str],
    /// Where it listens.
    pub port: u16,
    /// Words of `portcullis-stand-in`; `{dir}` is a folder of its own.
    pub words: Vec<String>,
}

impl Upstream {
    /// A host on port 443.
    pub fn new(names: &'static [&'static str], words: &[&str]) -> Self {
        Self {
            names,
            port: 443,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    /// The same on another port.
    pub fn on_port(self, port: u16) -> Self {
        Self { port, ..self }
    }
}

/// Where an agent on another machine finds the gate.
pub const BEYOND: &str = "10.20.0.1:3128";

/// How an agent comes to the gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// It is told of a proxy.
    Told,
    /// Its own connections are led there.
    Led,
    /// It is on another machine and has a token.
    Token,
}

/// The parts; dropped in this order.
#[derive(Debug)]
pub struct Clients {
    /// The gate under test.
    pub gate: Gate,
    /// The kernel boundary.
    pub wall: Wall,
    stands: Vec<Stand>,
    /// The resolver.
    pub names: Names,
    /// The namespace all of it lives in.
    pub netns: Netns,
    /// The upstreams' authority.
    pub pki: Pki,
    /// The agent's uid.
    pub agent: u32,
    /// The namespace of an agent on another machine, and its token.
    beyond: Option<(Netns, String)>,
    environment: Vec<(String, String)>,
    differences: RefCell<Vec<String>>,
    scratch: tempfile::TempDir,
}

impl Clients {
    /// Starts `upstreams`, a gate with `policy` (`{ca}` becomes the upstreams' authority) that holds
    /// `credentials`, and a boundary around the agent.
    ///
    /// `{pin}` in the policy becomes the pin of the upstreams' key.
    pub fn new(upstreams: &[Upstream], policy: &str, credentials: &[Credential]) -> Self {
        Self::build(upstreams, policy, credentials, "", Way::Told)
    }

    /// The same, and the agent's own connections and look-ups are led to the gate, for programs that
    /// ignore proxy variables.
    pub fn led(upstreams: &[Upstream], policy: &str) -> Self {
        Self::build(upstreams, policy, &[], "", Way::Led)
    }

    /// The same for an agent on another machine, of whose wires one leads to the gate and none
    /// elsewhere, and which is known by the token of its run.
    pub fn beyond(upstreams: &[Upstream], policy: &str, credentials: &[Credential]) -> Self {
        Self::build(upstreams, policy, credentials, "", Way::Token)
    }

    /// The same with more lines at the end of the gate's configuration.
    pub fn with_limits(
        upstreams: &[Upstream],
        policy: &str,
        credentials: &[Credential],
        limits: &str,
    ) -> Self {
        Self::build(upstreams, policy, credentials, limits, Way::Told)
    }

    fn build(
        upstreams: &[Upstream],
        policy: &str,
        credentials: &[Credential],
        limits: &str,
        way: Way,
    ) -> Self {
        let scratch = host::scratch();
        let dir = |name: &str| scratch.path().join(name);
        let netns = Netns::new();
        let names = Names::serve(&netns);
        let hosts: Vec<_> = upstreams
            .iter()
            .flat_map(|upstream| upstream.names)
            .map(|&name| name.to_owned())
            .collect();
        let (pki, _) = Pki::make(&dir("pki"), &hosts).expect("a scratch folder");
        let mut stands = Vec::new();
        for (number, upstream) in (10_u8..).zip(upstreams) {
            let address = Ipv4Addr::new(93, 184, 215, number);
            netns.add_address(address.into());
            for name in upstream.names {
                names.set(name, address);
            }
            let place = dir(upstream.names[0]);
            let at = SocketAddr::new(address.into(), upstream.port);
            stands.push(Stand::start(&netns, &place, &pki, at, &upstream.words));
        }
        let agent = host::uid();
        host::directory(&dir("agent"), agent, 0o700);
        let outside = (way == Way::Token).then(|| {
            let outside = Netns::new();
            netns.wire(&outside);
            outside
        });
        let home = outside.as_ref().unwrap_or(&netns);
        home.set_account(agent, "agent", &dir("agent"));
        // Who lives elsewhere is nobody here.
        let here = if outside.is_some() {
            host::uid()
        } else {
            agent
        };
        let policy = policy
            .replace("{ca}", &pki.ca().display().to_string())
            .replace("{pin}", &pin(&pki.leaf()));
        let mut gate = Gate::prepare(
            &dir("gate"),
            &[here],
            &policy,
            credentials,
            Boundary::Kernel,
        );
        let config = fs::read_to_string(gate.config()).expect("it was written") + limits;
        let entrance = format!("tcp = \"{}\"\n", gate::ADDRESS);
        let (entrances, more) = match way {
            Way::Told => (String::new(), ""),
            Way::Led => (
                "redirected = [\"127.0.0.1:3129\", \"[::1]:3129\"]\n\
                 resolver = [\"127.0.0.1:3153\", \"[::1]:3153\"]\n"
                    .to_owned(),
                "[redirect]\nport = 3129\n[resolver]\nport = 3153\n",
            ),
            Way::Token => (format!("token = [\"{BEYOND}\", \"[fd20::1]:3128\"]\n"), ""),
        };
        let config = config.replace(&entrance, &(entrance.clone() + &entrances));
        host::file(&gate.config(), &config, 0, 0o644);
        let wall = Wall::raise_with(
            &netns,
            &dir("wall"),
            gate.uid,
            &[here],
            &gate.boundary_status(),
            more,
        );
        gate.start(&netns);
        let beyond = outside.map(|outside| {
            let token = run_with_token(&gate, &netns);
            (outside, token)
        });
        let at = match &beyond {
            Some((_, token)) => format!("http://run:{token}@{BEYOND}"),
            None => format!("http://{}", gate::ADDRESS),
        };
        let environment = environment(&dir("trust"), &gate, &at, upstreams);
        Self {
            gate,
            wall,
            stands,
            names,
            netns,
            pki,
            agent,
            beyond,
            environment,
            differences: RefCell::default(),
            scratch,
        }
    }

    /// `program` as the agent, in its home, with the product's environment.
    ///
    /// A name without a slash is looked for among the installed clients first.
    pub fn agent(&self, program: &str) -> Program {
        let installed = [
            matrix::directory().join("bin").join(program),
            matrix::directory().join("python/bin").join(program),
        ];
        let found = installed.iter().find(|path| path.exists());
        let program = found.map_or_else(|| program.into(), |path| path.display().to_string());
        let mut agent = Program::new(program)
            .env("HOME", self.home())
            .env("USER", "agent")
            .env("LANG", "C.UTF-8")
            .limit(PATIENCE)
            .in_directory(&self.home());
        for (name, value) in &self.environment {
            agent = agent.env(name, value);
        }
        let home = self.beyond.as_ref().map_or(&self.netns, |(home, _)| home);
        agent.as_uid(self.agent).in_netns(home)
    }

    /// The token of the run of an agent on another machine.
    pub fn token(&self) -> &str {
        let (_, token) = self.beyond.as_ref().expect("the agent is beyond a wire");
        token
    }

    /// A file of the product's for clients: `maven-settings.xml`, ...
    pub fn trust(&self, name: &str) -> PathBuf {
        self.scratch.path().join("trust").join(name)
    }

    /// The agent's home.
    pub fn home(&self) -> PathBuf {
        self.scratch.path().join("agent")
    }

    /// Writes a file of the agent's, below its home.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.home().join(name);
        let home = self.home();
        let parents: Vec<_> = path
            .ancestors()
            .skip(1)
            .take_while(|it| **it != *home)
            .collect();
        for parent in parents.into_iter().rev() {
            host::directory(parent, self.agent, 0o755);
        }
        host::file(&path, text, self.agent, 0o644);
    }

    /// The folder of the upstream whose first name is `name`.
    pub fn place(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Processes of the upstreams.
    pub fn stands(&self) -> &[Stand] {
        &self.stands
    }

    /// The version that `program ARGS` tells.
    pub fn version(&self, program: &str, args: &[&str]) -> String {
        matrix::version(&self.agent(program).args(args).run().ok())
    }

    /// Judges one client over one way: `allowed` must succeed and show `wanted`; `refused` must
    /// fail; what it shows of the refusal becomes the row.
    #[track_caller]
    pub fn judge(&self, row: &Row, allowed: Finished, wanted: &str, refused: Finished) -> Shown {
        self.judge_by(row, RULE, REMEDY, allowed, wanted, refused)
    }

    /// [`Clients::judge`] for a refusal by another rule with another remedy.
    #[track_caller]
    pub fn judge_by(
        &self,
        row: &Row,
        rule: &str,
        remedy: &str,
        allowed: Finished,
        wanted: &str,
        refused: Finished,
    ) -> Shown {
        let allowed = allowed.ok();
        assert!(
            allowed.output().contains(wanted),
            "`{wanted}` is missing: {}",
            allowed.shown()
        );
        let refused = refused.refused();
        assert_ne!(refused.code(), 124, "it hung: {}", refused.shown());
        let shown = Shown::in_output(&refused.output(), rule, remedy);
        if shown != Shown::Reason {
            show(&format!(
                "{} over {}: {}",
                row.client,
                row.way,
                refused.shown()
            ));
        }
        self.record(row, Some(shown));
        shown
    }

    /// The client works; how it shows a refusal is told by another row.
    pub fn works(&self, row: &Row) {
        self.record(row, None);
    }

    /// Keeps a row; what `docs/clients.md` says otherwise is told when the test ends.
    pub fn record(&self, row: &Row, shown: Option<Shown>) {
        if let Err(difference) = row.keep(shown) {
            self.differences.borrow_mut().push(difference);
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let differences = self.differences.borrow();
        if !differences.is_empty() && !std::thread::panicking() {
            panic!(
                "docs/clients.md differs from what was measured:\n{}\nhint: tests/clients/table",
                differences.join("\n")
            );
        }
    }
}

/// The rule that every policy here closes `/closed/` with; a refusal must name it.
pub const RULE: &str = "closed-area";
/// A part of that refusal's remedy.
pub const REMEDY: &str = "deny always wins";

/// A service that closes `/closed/` of `hosts`, each as the policy writes it.
pub fn closed(hosts: &[&str]) -> String {
    format!(
        "[[service]]\nid = \"{RULE}\"\nkind = \"http\"\nhosts = {hosts:?}\n\
         deny = [\"* /closed/**\"]\n"
    )
}

/// A service of kind http that allows `entries` of `host`.
pub fn open(host: &str, entries: &[&str]) -> String {
    format!(
        "[[service]]\nkind = \"http\"\nhost = \"{host}\"\nallow = {entries:?}\nca_file = \"{{ca}}\"\n"
    )
}

/// Opens a run that is known by a token, which is returned.
fn run_with_token(gate: &Gate, netns: &Netns) -> String {
    let made = Program::new(binaries::path("portcullis-proxy"))
        .args(["token", "--json"])
        .run()
        .ok();
    let made: Value = serde_json::from_str(&made.stdout).expect("an object");
    let control = Control {
        socket: gate.control_socket(),
        uid: gate.operator,
        netns,
    };
    let body = json!({
        "grant": { "company": "acme", "agent": "coder", "run": "beyond", "profile": "default" },
        "epoch": 1, "lease_seconds": 3600, "token_sha256": made["token_sha256"],
    });
    control.call("PUT", "/v1/runs/beyond", Some(&body)).ok();
    made["token"].as_str().expect("a string").to_owned()
}

/// The product's variables; the files they point at are written into `trust` before.
fn environment(
    trust: &Path,
    gate: &Gate,
    at: &str,
    upstreams: &[Upstream],
) -> Vec<(String, String)> {
    host::directory(trust, 0, 0o755);
    let authority = fs::read_to_string(gate.ca()).expect("the gate made its authority");
    let system = fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    host::file(&trust.join("ca.pem"), &authority, 0, 0o644);
    let bundle = format!("{system}\n{authority}");
    host::file(&trust.join("bundle.pem"), &bundle, 0, 0o644);
    let store = trust.join("truststore.p12");
    Program::new("keytool")
        .args(["-importcert", "-noprompt", "-alias", "portcullis", "-file"])
        .arg(trust.join("ca.pem"))
        .args([
            "-storetype",
            "PKCS12",
            "-storepass",
            "changeit",
            "-keystore",
        ])
        .arg(&store)
        .run()
        .ok();
    let mut print = Program::new(binaries::path("portcullis-orchestrator"))
        .args(["environment", "--write", "--json", "--gate"])
        .arg(at)
        .arg("--trust")
        .arg(trust);
    for upstream in upstreams.iter().filter(|it| it.words[0] == "git") {
        print = print.args(["--git-host", upstream.names[0]]);
    }
    let printed = print.run().ok().stdout;
    let object: Value = serde_json::from_str(&printed).expect("an object");
    let object = object.as_object().expect("an object");
    object
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// `sha256/…` of a certificate's key.
fn pin(certificate: &Path) -> String {
    let script = "openssl x509 -in \"$0\" -noout -pubkey | openssl pkey -pubin -outform der |
        openssl dgst -sha256 -binary | openssl base64 -A";
    let made = Program::new("sh").args(["-c", script]).arg(certificate);
    format!("sha256/{}", made.run().ok().stdout.trim())
}

/// A credential bound to `host`.
pub fn credential(name: &'static str, kind: &'static str, host: &'static str) -> Credential {
    let mut canary = match kind {
        "github-token" => Canary::github(),
        _ => Canary::plain(),
    };
    if kind == "proxmox-token" {
        let hex: String = canary
            .secret
            .bytes()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        canary.secret = format!(
            "agent@pve!agent={}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        );
    }
    Credential {
        name,
        kind,
        host,
        canary,
    }
}

#[allow(clippy::print_stdout, reason = "what a client shows is the finding")]
fn show(text: &str) {
    println!("{text}");
}
