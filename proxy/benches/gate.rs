//! What a request costs inside the gate, in this process and without a network: judging it,
//! stripping and injecting, its two lines, leaves, and a policy of 100,000 rules.
//!
//! `cargo bench -p proxy` prints one line per figure: the median of some batches. Times on a busy
//! machine are upper bounds.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement prints its figures and has nobody to recover for"
)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use policy::authority::{Authority, Host, Scheme};
use policy::grant::{Grant, RunId};
use policy::record::{Record, RecordKind, Verdict, redact_target};
use policy::{Decision, Facts, Permit, Policy, Request, Route, Routing};
use proxy::audit::Audit;
use proxy::ca::Minter;
use proxy::config::Config;
use proxy::credential::Vault;
use proxy::inject::Injection;
use proxy::strip;

const BATCHES: usize = 21;
const RULES: usize = 100_000;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let stand = Stand::new(directory.path());
    println!("{:<58}{:>12}", "", "median");
    stand.request();
    stand.audit();
    stand.leaves();
    rules();
}

/// Times `step` in batches of `each` and prints the median time of one.
fn measure(what: &str, each: u32, mut step: impl FnMut()) {
    let mut times: Vec<Duration> = (0..BATCHES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..each {
                step();
            }
            begun.elapsed() / each
        })
        .collect();
    times.sort_unstable();
    println!("{what:<58}{:>12.2?}", times[BATCHES / 2]);
}

struct Stand {
    audit: Audit,
    minter: Minter,
    vault: Vault,
    policy: Policy,
    grant: Grant,
    authority: Authority,
}

impl Stand {
    fn new(directory: &Path) -> Self {
        let path = |name: &str| directory.join(name).display().to_string();
        let mode = |name: &str, mode| {
            std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        std::fs::write(path("secret"), "not-a-secret-but-as-long-as-one").unwrap();
        mode("secret", 0o600);
        std::fs::create_dir(path("ca")).unwrap();
        mode("ca", 0o700);
        let text = r#"
            [[service]]
            id = "api"
            kind = "http"
            host = "api.example.com"
            credential = "api"
            allow = ["GET,POST /v1/**", "GET /search"]
            deny = ["* /v1/admin/**"]
        "#;
        std::fs::write(path("policy.toml"), text).unwrap();
        let config = format!(
            "[control]\nsocket = \"{0}/control.sock\"\n[[control.peer]]\nuser = \"0\"\n\
             profiles = [\"default\"]\n[runs]\ndirectory = \"{0}/runs\"\n[ca]\ndirectory = \"{0}/ca\"\n\
             [audit]\ndirectory = \"{0}/audit\"\n[boundary]\nexternal = \"a measurement\"\n\
             [profile.default]\npolicy = \"{0}/policy.toml\"\n[credential.api]\nkind = \"bearer\"\n\
             file = \"{0}/secret\"\nhosts = [\"api.example.com\"]\n",
            directory.display()
        );
        let config = Config::parse(&config, Path::new("proxy.toml")).unwrap();
        proxy::ca::create(&config.ca_directory, None).unwrap();
        let run = RunId::parse("0195f1f0-7d3a-7c3e-9b1a-6f1d2c3b4a59").unwrap();
        Self {
            audit: Audit::open(&config.audit_directory).unwrap(),
            minter: Minter::load(&config.ca_directory, 4096).unwrap(),
            vault: Vault::load(&config, None).unwrap(),
            policy: Policy::parse(text, "policy.toml").unwrap(),
            grant: Grant::new("acme", "coder", Some("T-1"), run, "default").unwrap(),
            authority: Authority::parse("api.example.com:443").unwrap(),
        }
    }

    fn judge(&self) -> Permit {
        let route = route(&self.policy, &self.authority);
        decide(&self.policy, &route, &self.authority, "/v1/items/7?page=2")
    }

    fn line(&self, permit: &Permit) -> Record {
        let now = proxy::audit::now();
        let mut line = Record::new(RecordKind::Request, "r5f3-9", &now).of(&self.grant);
        line.scheme = Some(Scheme::Https.as_str().to_owned());
        line.authority = Some(self.authority.to_string());
        line.method = Some("GET".to_owned());
        line.path = Some(redact_target("/v1/items/7?page=2"));
        line.verdict = Some(Verdict::Allow);
        line.rule = Some(permit.rule().clone());
        line.credential = permit.credential().cloned();
        line.policy_hash =
            Some("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned());
        line
    }

    fn forward(&self, permit: &Permit) {
        let mut headers = client_headers();
        strip::request(&mut headers);
        let injection = Injection::find(permit, &self.vault, None).unwrap();
        let mut uri = http::Uri::from_static("/v1/items/7?page=2");
        let set = injection.set(&self.vault, permit, None, &mut headers, &mut uri);
        black_box(set.is_ok());
    }

    fn request(&self) {
        measure("route and decide", 2000, || {
            let _permit = black_box(self.judge());
        });
        let permit = self.judge();
        measure(
            "strip and inject, with building the client's fields",
            2000,
            || {
                self.forward(&permit);
            },
        );
        measure("the request's line and its end, written", 500, || {
            let mut line = self.line(&permit);
            self.audit.append(&mut line).unwrap();
            line.kind = RecordKind::Response;
            line.time = proxy::audit::now();
            self.audit.append_end(line).unwrap();
        });
        measure("all of it", 500, || {
            let permit = self.judge();
            let mut line = self.line(&permit);
            self.audit.append(&mut line).unwrap();
            self.forward(&permit);
            line.kind = RecordKind::Response;
            line.time = proxy::audit::now();
            self.audit.append_end(line).unwrap();
        });
    }

    fn audit(&self) {
        let permit = self.judge();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        measure("a line on the disk, alone", 5, || {
            runtime
                .block_on(self.audit.append_durable(self.line(&permit)))
                .unwrap();
        });
        for company in [16_u32, 64] {
            measure(
                &format!("{company} lines on the disk at once, all of them"),
                5,
                || {
                    runtime.block_on(async {
                        let lines =
                            (0..company).map(|_| self.audit.append_durable(self.line(&permit)));
                        let mut waiting: Vec<_> = lines.map(Box::pin).collect();
                        std::future::poll_fn(|context| {
                            waiting.retain_mut(|one| one.as_mut().poll(context).is_pending());
                            if waiting.is_empty() {
                                std::task::Poll::Ready(())
                            } else {
                                std::task::Poll::Pending
                            }
                        })
                        .await;
                    });
                },
            );
        }
    }

    fn leaves(&self) {
        let known = Host::parse("api.example.com").unwrap();
        self.minter.leaf(&known).unwrap();
        measure("a leaf for a host seen before", 2000, || {
            black_box(self.minter.leaf(&known).unwrap());
        });
        let mut next = 0_u32;
        measure("a leaf for a new host", 20, || {
            next += 1;
            let host = Host::parse(&format!("h{next}.example.com")).unwrap();
            black_box(self.minter.leaf(&host).unwrap());
        });
    }
}

/// What curl and an SDK would send, and some that must not pass.
fn client_headers() -> HeaderMap {
    let fields = [
        ("host", "api.example.com"),
        ("user-agent", "sdk/1.0"),
        ("accept", "application/json"),
        ("accept-encoding", "gzip"),
        ("authorization", "Bearer placeholder"),
        ("connection", "keep-alive"),
    ];
    fields
        .into_iter()
        .map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        })
        .collect()
}

fn route(policy: &Policy, authority: &Authority) -> Route {
    match policy.route(Scheme::Https, authority) {
        Routing::Route(route) => route,
        Routing::Refuse(refusal) => panic!("{}", refusal.text),
    }
}

fn decide(policy: &Policy, route: &Route, authority: &Authority, target: &str) -> Permit {
    let request = Request {
        scheme: Scheme::Https,
        authority,
        method: "GET",
        target,
    };
    match policy.decide(route, &request, &Facts::None) {
        Decision::Permit(permit) => permit,
        Decision::Refuse(refusal) => panic!("{}", refusal.text),
        Decision::Inspect(_) => panic!("nothing here is inspected"),
        Decision::Hold(_) => panic!("nothing here is held"),
    }
}

/// A policy of many rules over many hosts: reading it, and judging by it.
fn rules() {
    let mut text = String::new();
    for at in 0..RULES {
        let _ = write!(
            text,
            "[[service]]\nid = \"s{at}\"\nkind = \"http\"\nhost = \"h{at}.example.com\"\nallow = [\"GET /v1/**\"]\n"
        );
    }
    let begun = Instant::now();
    let policy = Arc::new(Policy::parse(&text, "many.toml").unwrap());
    println!(
        "{:<58}{:>12.2?}",
        format!("reading a policy of {RULES} rules, once"),
        begun.elapsed()
    );
    let authority = Authority::parse("h77777.example.com:443").unwrap();
    measure("route and decide by it", 2000, || {
        let route = route(&policy, &authority);
        let _permit = black_box(decide(&policy, &route, &authority, "/v1/items/7"));
    });
}
