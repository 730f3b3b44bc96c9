//! Audit record, schema version 1: one JSON object per line.
//!
//! A request is two lines with one `id`: kind `request` before it leaves, kind `response` at its
//! end. A refusal is one line, kind `refusal`. Credentials appear by name only, and query values
//! never ([`redact_target`]). Each line carries the hash of the one before (`prev`) and its own
//! (`hash`), both set by the writer.
//!
//! ```json
//! {"v":1,"seq":7,"time":"2026-11-30T08:00:00Z","kind":"request","id":"r-7","run":"4b1e","agent":"coder",
//!  "company":"acme","profile":"default","entrance":"run_socket","peer_uid":231072,"scheme":"https",
//!  "authority":"github.com:443","method":"POST","path":"/acme/web.git/git-receive-pack","verdict":"allow",
//!  "rule":"github-github.com-1","credential":"github","facts":{"push":[{"ref":"refs/heads/agent/x","op":"create"}]},
//!  "policy_hash":"9f..."}
//! ```

mod clip;
mod facts;
mod line;
mod log;

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::credential::CredentialName;
use crate::grant::{Grant, RunId};
use crate::permit::RuleId;
use crate::refusal::Code;

pub use facts::{BodyFact, PushFact, RecordFacts, RefOp};
pub use log::{Checkpoint, LogFact};

/// The schema version that this module writes.
pub const VERSION: u32 = 1;

/// One line of the audit log. Absent fields are left out of the JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Schema version, always 1.
    pub v: u32,
    /// Position in the log; the writer sets it.
    pub seq: u64,
    /// RFC 3339 time; the writer's caller gives it, since this room has no clock.
    pub time: String,
    /// What kind of line this is.
    pub kind: RecordKind,
    /// Joins the lines of one request, and is what a refusal shows to the agent.
    pub id: String,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The company.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub company: Option<String>,
    /// The policy profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How the client came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrance: Option<Entrance>,
    /// The client's uid as the kernel told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_uid: Option<u32>,
    /// `https` or `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Canonical `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// The method as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The target with query values redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The judgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The refusal's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleId>,
    /// SHA-256 of the policy text in force, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_hash: Option<String>,
    /// The injected credential, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialName>,
    /// What inspection found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<RecordFacts>,
    /// The address that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The status that the client received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Body bytes from the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Body bytes to the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Milliseconds from the request's head to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// Milliseconds from the request's head to the head of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms_head: Option<u64>,
    /// Tokens that a model read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_in: Option<u64>,
    /// Tokens that a model wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_out: Option<u64>,
    /// What it cost, in millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_microusd: Option<u64>,
    /// The hold that the request waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// Who decided the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decider: Option<String>,
    /// A sentence: the refusal's text, why a stream was cut, what an event is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What happened to the log itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogFact>,
    /// What a checkpoint commits to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// The `hash` of the line before; the writer sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<String>,
    /// SHA-256 of this line's bytes before this member; the writer sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// What kind of line a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A permitted request, written before it leaves.
    Request,
    /// The end of a permitted request.
    Response,
    /// A refused request.
    Refusal,
    /// Something that happened to the gate: start, reload, run opened, run closed.
    Event,
    /// What the log commits to up to here, signed where the gate has a key for it.
    Checkpoint,
}

/// How a client came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entrance {
    /// A run's own unix socket; the peer's uid was checked against the run's range.
    RunSocket,
    /// Loopback TCP; the uid was asked from the kernel at accept.
    Uid,
    /// A connection of the client's own that the boundary led to the gate; the uid as above.
    Redirected,
    /// A look-up of a name; the uid that owns the socket was asked from the kernel.
    Resolver,
    /// The token entrance; the client showed the token of a run.
    Token,
    /// The same entrance; the client is at an address that the configuration knows.
    Address,
}

/// The judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Permitted.
    Allow,
    /// Refused.
    Refuse,
}

impl Record {
    /// An empty record of this kind; `seq` is 0 until the writer sets it.
    #[must_use]
    pub fn new(kind: RecordKind, id: &str, time: &str) -> Self {
        Self {
            v: VERSION,
            seq: 0,
            time: time.to_owned(),
            kind,
            id: id.to_owned(),
            run: None,
            ticket: None,
            agent: None,
            company: None,
            profile: None,
            entrance: None,
            peer_uid: None,
            scheme: None,
            authority: None,
            method: None,
            path: None,
            verdict: None,
            code: None,
            rule: None,
            policy_hash: None,
            credential: None,
            facts: None,
            address: None,
            status: None,
            bytes_in: None,
            bytes_out: None,
            ms: None,
            ms_head: None,
            tokens_in: None,
            tokens_out: None,
            cost_microusd: None,
            hold: None,
            decider: None,
            reason: None,
            log: None,
            checkpoint: None,
            prev: None,
            hash: None,
        }
    }

    /// Says whose request it was.
    #[must_use]
    pub fn of(mut self, grant: &Grant) -> Self {
        self.run = Some(grant.run.clone());
        self.ticket.clone_from(&grant.ticket);
        self.agent = Some(grant.agent.clone());
        self.company = Some(grant.company.clone());
        self.profile = Some(grant.profile.clone());
        self
    }
}

/// The target as the log keeps it: the value of every query parameter becomes `...`, a query
/// without `=` becomes `...` whole, user information becomes `...`, and everything outside printable ASCII is percent-escaped.
/// At most 2,048 bytes are kept.
#[must_use]
pub fn redact_target(target: &str) -> String {
    const MOST: usize = 2048;
    let target = target.split('#').next().unwrap_or(target);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let mut out = String::with_capacity(target.len());
    escape_into(&mut out, &without_user(path));
    if let Some(query) = query {
        out.push('?');
        for (at, part) in query.split('&').enumerate() {
            if at > 0 {
                out.push('&');
            }
            match part.split_once('=') {
                Some((name, _)) => {
                    escape_into(&mut out, name);
                    out.push_str("=...");
                }
                None if part.is_empty() => {}
                None => out.push_str("..."),
            }
        }
    }
    if out.len() > MOST {
        out.truncate(MOST);
        out.push_str("...");
    }
    out
}

/// The target without what stands before an `@` of its authority, which may be a name and password;
/// origin form has no authority.
fn without_user(target: &str) -> Cow<'_, str> {
    if target.starts_with('/') {
        return Cow::Borrowed(target);
    }
    let start = target.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = target.split_at(start);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => Cow::Owned(format!("{scheme}...@{host}{path}")),
        None => Cow::Borrowed(target),
    }
}

fn escape_into(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_graphic() {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests;
