//! A gate with a token entrance, and those who ask there.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tests::binaries;
use tests::command::{Finished, Program};
use tests::gate::Boundary;
use tests::host;
use tests::world::World;

/// The entrance, in the gate's namespace.
pub(super) const AT: &str = "10.20.0.1:3128";

/// A world whose gate has a token entrance, a user who is known there by uid, and one by token.
pub(super) struct Beyond {
    pub(super) world: World,
    /// A uid that the gate's configuration does not know.
    pub(super) outsider: u32,
    /// Of an agent in the configuration.
    pub(super) known: (String, String),
    script: PathBuf,
}

/// A fresh token and its digest, as the product makes them.
pub(super) fn token() -> (String, String) {
    let made = Program::new(binaries::path("portcullis-proxy"))
        .args(["token", "--json"])
        .run()
        .ok();
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (text("token"), text("token_sha256"))
}

const PLAIN: &str = "
[[service]]
id = \"plain\"
kind = \"http\"
scheme = \"http\"
host = \"plain.portcullis.test\"
allow = [\"GET /open/**\"]
address = \"93.184.215.20:80\"
";

impl Beyond {
    pub(super) fn new() -> Self {
        let policy = format!("{}{PLAIN}", World::policy());
        let mut world = World::prepared(Some(&policy), Boundary::External);
        for address in ["10.20.0.1", "fd20::1"] {
            world.netns.add_address(address.parse().unwrap());
        }
        let known = token();
        let config = fs::read_to_string(world.gate.config()).unwrap();
        let tcp = "tcp = \"127.0.0.1:3128\"\n";
        assert!(config.contains(tcp), "{config}");
        let entrances = format!("{tcp}token = [\"{AT}\", \"[fd20::1]:3128\"]\n");
        let narrow = world.path().join("narrow.toml");
        let text = World::policy().replace("{ca}", &world.pki.ca().display().to_string());
        let text = text.replace("\"GET /**\", \"POST /echo\"", "\"GET /narrow/**\"");
        host::file(&narrow, &text, 0, 0o644);
        let identity = format!(
            "[[listen.identity]]\ntoken_sha256 = \"{}\"\nagent = \"sidecar\"\ncompany = \"acme\"\n\
             profile = \"narrow\"\n",
            known.1
        );
        let config = config.replace(tcp, &entrances).replacen(
            "[[listen.identity]]",
            &format!("{identity}[[listen.identity]]"),
            1,
        );
        let config = format!(
            "{config}[profile.narrow]\npolicy = \"{}\"\n[limits]\nhead_timeout_seconds = 2\n",
            narrow.display()
        );
        host::file(&world.gate.config(), &config, 0, 0o644);
        world.start();
        let script = world.path().join("client.py");
        host::file(&script, CLIENT, 0, 0o644);
        Self {
            world,
            outsider: host::uid(),
            known,
            script,
        }
    }

    /// Opens a run with a token of its own, which is returned.
    pub(super) fn open(&self, run: &str, epoch: u64) -> String {
        let (token, digest) = token();
        self.put(run, epoch, &digest);
        token
    }

    pub(super) fn put(&self, run: &str, epoch: u64, digest: &str) {
        let answer = self.put_answer(run, epoch, digest);
        assert_eq!(answer.0, 200, "{}", answer.1);
    }

    pub(super) fn put_answer(&self, run: &str, epoch: u64, digest: &str) -> (u16, String) {
        let body = json!({
            "grant": { "company": "acme", "agent": "coder", "run": run, "profile": "default" },
            "epoch": epoch, "lease_seconds": 600, "token_sha256": digest,
        });
        let path = format!("/v1/runs/{run}");
        let answer = self.world.control().call("PUT", &path, Some(&body));
        (answer.status, answer.body)
    }

    /// `curl` on the token entrance with this proxy URL: the body, then the status of the answer and
    /// of the CONNECT.
    pub(super) fn curl_as(&self, uid: u32, proxy: &str, args: &[&str]) -> Finished {
        Program::new("curl")
            .args(["-sS", "--max-time", "60", "--cacert"])
            .arg(self.world.trust())
            .args(["-w", "\n%{http_code} %{http_connect}", "-x", proxy])
            .args(args)
            .as_uid(uid)
            .in_netns(&self.world.netns)
            .run()
    }

    pub(super) fn curl(&self, login: &str, args: &[&str]) -> Finished {
        self.curl_as(self.outsider, &format!("http://{login}{AT}"), args)
    }

    /// The scripted client as somebody whom nobody knows; what it printed.
    pub(super) fn talk(&self, words: &[&str]) -> String {
        let done = Program::new("python3")
            .arg(&self.script)
            .arg(self.world.trust())
            .args(words)
            .as_uid(self.outsider)
            .in_netns(&self.world.netns)
            .run();
        done.ok().stdout
    }

    pub(super) fn records(&self, key: &str, value: &str) -> Vec<Value> {
        let mut records = self.world.gate.audit();
        records.retain(|record| record[key] == value);
        records
    }
}

/// Speaks on one connection what it is told, word by word, and prints what it was answered.
const CLIENT: &str = include_str!("client.py");

pub(super) fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}
