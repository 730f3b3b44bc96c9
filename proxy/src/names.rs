//! Which names a client may look up: those that its policy lists, and nothing is resolved for it.
//!
//! Two askers come here: the relay of a run, over the run's own socket
//! (`GET http://gate.portcullis.internal/v1/name?host=NAME`), and the [resolver](crate::resolver)
//! for clients that share the gate's network namespace. The answer is the ports on which the name
//! is listed. It says no more than a refused request would, so that an agent which asks by itself
//! gains nothing; every look-up is recorded, and a name that is asked for again within
//! [`REMEMBERED`] others is recorded once.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use lru::LruCache;
use policy::authority::{Authority, Host, Scheme};
use policy::record::{RecordKind, Verdict};
use policy::{Code, Refusal, Routing};

use crate::entrance::client::Client;
use crate::exchange::body::ResponseBody;
use crate::gate::Gate;
use crate::refusal::{self, Shape};

/// The name that the gate itself answers to, on its entrances and nowhere else.
pub const HOST: &str = "gate.portcullis.internal";
/// What records call a look-up, where a request has its method.
pub const METHOD: &str = "NAME";
/// Names of all askers together whose look-up is on record already.
pub const REMEMBERED: usize = 8192;
/// New names of one asker are counted for this long.
const WINDOW: Duration = Duration::from_secs(10);
/// Askers told apart at once; further ones share one count.
const MOST_ASKERS: usize = 4096;

/// A refused look-up and the id it is recorded under.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Box<Refusal>,
    /// Joins what the client is told and the record.
    pub id: String,
}

/// What has been asked for lately, by whom.
#[derive(Debug)]
pub struct Names {
    memory: Mutex<Memory>,
    most_new: u64,
}

#[derive(Debug)]
struct Memory {
    known: LruCache<(Arc<str>, Host, Arc<str>), ()>,
    paces: HashMap<Arc<str>, Pace>,
}

#[derive(Debug)]
struct Pace {
    since: Instant,
    new: u64,
}

/// How a look-up of a listed name is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It is on record already.
    Before,
    /// It is not.
    New,
    /// The asker has asked for too many new names.
    TooMany,
}

impl Names {
    /// `most_new`: names that one asker may ask for anew within ten seconds.
    #[must_use]
    pub fn new(most_new: usize) -> Self {
        let bound = NonZeroUsize::new(REMEMBERED).unwrap_or(NonZeroUsize::MIN);
        Self {
            memory: Mutex::new(Memory {
                known: LruCache::sparse(bound),
                paces: HashMap::new(),
            }),
            most_new: u64::try_from(most_new).unwrap_or(u64::MAX),
        }
    }

    /// The policy is part of it: after a reload each name is on record anew.
    fn see(&self, asker: &Arc<str>, host: &Host, policy: &Arc<str>, now: Instant) -> Seen {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::clone(asker), host.clone(), Arc::clone(policy));
        if memory.known.get(&key).is_some() {
            return Seen::Before;
        }
        if memory.paces.len() >= MOST_ASKERS {
            memory
                .paces
                .retain(|_, pace| now.duration_since(pace.since) < WINDOW);
        }
        let crowded = memory.paces.len() >= MOST_ASKERS && !memory.paces.contains_key(asker);
        let who = if crowded {
            Arc::from("")
        } else {
            Arc::clone(asker)
        };
        let pace = memory
            .paces
            .entry(who)
            .or_insert(Pace { since: now, new: 0 });
        if now.duration_since(pace.since) >= WINDOW {
            *pace = Pace { since: now, new: 0 };
        }
        if pace.new >= self.most_new {
            return Seen::TooMany;
        }
        pace.new += 1;
        memory.known.put(key, ());
        Seen::New
    }
}

/// The ports on which `name` is listed for this client, lowest first and never none.
///
/// # Errors
/// The refusal, which is on record.
pub fn look_up(gate: &Gate, client: &Client, name: &str) -> Result<Vec<u16>, Refused> {
    judge(gate, client, name).map_err(|refusal| {
        let id = gate.new_id();
        let mut record = client.record(RecordKind::Refusal, &id);
        record.method = Some(METHOD.to_owned());
        record.authority = Host::parse(name).ok().map(|host| host.to_string());
        record.verdict = Some(Verdict::Refuse);
        record.code = Some(refusal.code);
        record.rule.clone_from(&refusal.rule);
        record.reason = Some(refusal.text.clone());
        gate.refused(record);
        let refusal = Box::new(refusal);
        Refused { refusal, id }
    })
}

fn judge(gate: &Gate, client: &Client, name: &str) -> Result<Vec<u16>, Refusal> {
    let host = Host::parse(name).map_err(|error| {
        Refusal::new(
            Code::MalformedAuthority,
            &error.to_string(),
            "look up a host name",
        )
    })?;
    let policy = client.policy(gate)?;
    gate.boundary.check().map_err(|problem| {
        Refusal::new(
            Code::BoundaryNotProven,
            &format!("the kernel boundary is not proven: {problem}"),
            "the operator must start portcullis-boundary; `portcullis status` says what is missing",
        )
    })?;
    let ports = policy.policy.ports(&host);
    if ports.is_empty() || host.as_name().is_none() {
        return Err(unlisted(&policy.policy, &host));
    }
    let hash: Arc<str> = policy.hash.as_str().into();
    match gate.names.see(client.owner(), &host, &hash, Instant::now()) {
        Seen::Before => return Ok(ports),
        Seen::New => {}
        Seen::TooMany => {
            return Err(Refusal::new(
                Code::LimitReached,
                "too many new names were looked up within a short time",
                "wait a moment; names that were looked up before are still answered",
            ));
        }
    }
    let mut line = client.record(RecordKind::Event, &gate.new_id());
    line.method = Some(METHOD.to_owned());
    line.authority = Some(host.to_string());
    line.verdict = Some(Verdict::Allow);
    line.policy_hash = Some(policy.hash.clone());
    line.reason = Some("the name is listed".to_owned());
    gate.audit.append(&mut line).map_err(|error| {
        tracing::error!(%error, "a look-up could not be recorded, so it is not answered");
        Refusal::new(
            Code::AuditUnavailable,
            "the audit log cannot be written, so nothing leaves",
            "the operator must make room for the audit log; the gate recovers by itself",
        )
    })?;
    Ok(ports)
}

/// The policy's own words about a host that it does not list.
fn unlisted(policy: &policy::Policy, host: &Host) -> Refusal {
    let https = Authority::new(host.clone(), Scheme::Https.default_port()).ok();
    match https.map(|authority| policy.route(Scheme::Https, &authority)) {
        Some(Routing::Refuse(refusal)) => refusal,
        Some(Routing::Route(_)) | None => Refusal::new(
            Code::DestinationNotListed,
            &format!("{host} is not listed"),
            "the operator may list it in the policy",
        ),
    }
}

/// Whether a plain request is for the gate itself.
#[must_use]
pub fn is_own(authority: &Authority) -> bool {
    authority.host().as_name() == Some(HOST) && authority.port() == Scheme::Http.default_port()
}

/// Answers a request to [`HOST`]: the ports, one a line, or a refusal.
pub fn answer(gate: &Gate, client: &Client, parts: &Parts) -> Response<ResponseBody> {
    let asked = parts.uri.path() == "/v1/name" && parts.method == Method::GET;
    let name = parts
        .uri
        .query()
        .and_then(|query| query.strip_prefix("host="));
    let result = match name.filter(|_| asked) {
        Some(name) => look_up(gate, client, name),
        None => Err(Refused {
            refusal: Box::new(Refusal::new(
                Code::PathNotAllowed,
                "the gate answers GET /v1/name?host=NAME and nothing else",
                "ask for the host that is meant",
            )),
            id: gate.new_id(),
        }),
    };
    match result {
        Ok(ports) => {
            let lines: String = ports.iter().map(|port| format!("{port}\n")).collect();
            let mut response = Response::new(ResponseBody::own(Bytes::from(lines)));
            *response.status_mut() = StatusCode::OK;
            let plain = http::HeaderValue::from_static("text/plain");
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, plain);
            response
        }
        Err(Refused { refusal, id }) => refusal::answer(&refusal, &id, Shape::of(&parts.headers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn new_names_are_counted_and_known_ones_are_not() {
        let names = Names::new(3);
        let (one, two, policy) = (Arc::from("run:1"), Arc::from("run:2"), Arc::from("p"));
        let now = Instant::now();
        for at in 0..3 {
            let name = host(&format!("h{at}.example"));
            assert_eq!(names.see(&one, &name, &policy, now), Seen::New);
            assert_eq!(names.see(&one, &name, &policy, now), Seen::Before);
        }
        let more = host("data-0123456789.example");
        assert_eq!(names.see(&one, &more, &policy, now), Seen::TooMany);
        assert_eq!(
            names.see(&one, &host("h0.example"), &policy, now),
            Seen::Before,
            "control: known ones are answered"
        );
        assert_eq!(
            names.see(&two, &more, &policy, now),
            Seen::New,
            "control: somebody else's"
        );
        assert_eq!(names.see(&one, &more, &policy, now + WINDOW), Seen::New);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let names = Names::new(usize::MAX);
        let now = Instant::now();
        for at in 0..REMEMBERED + 100 {
            let asker: Arc<str> = format!("run:{at}").into();
            names.see(&asker, &host("a.example"), &Arc::from("p"), now);
        }
        let memory = names.memory.lock().unwrap();
        assert_eq!(memory.known.len(), REMEMBERED);
        assert!(memory.paces.len() <= MOST_ASKERS + 1);
    }

    #[test]
    fn the_gates_own_name_is_plain_http_on_its_own_port() {
        let own = |text| is_own(&Authority::parse(text).unwrap());
        assert!(own("gate.portcullis.internal:80"));
        for other in ["gate.portcullis.internal:443", "portcullis.internal:80"] {
            assert!(!own(other), "{other}");
        }
    }
}
