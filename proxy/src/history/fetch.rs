//! Fetching commits of a repository, for the gate's own knowledge: protocol version 2 of git, commits alone where
//! the server can leave out the rest. Each request is judged by the policy in force and recorded, as an agent's is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Limited};
use policy::record::{RecordKind, Verdict, redact_target};
use policy::{Decision, Facts, Route};
use tokio::time::timeout;

use super::graph::Id;
use super::pack::Format;
use crate::exchange::Channel;
use crate::exchange::body::RequestBody;
use crate::inject::Injection;
use crate::policies::LoadedPolicy;
use crate::upstream::{Interim, Wish};

/// The most bytes of one answer.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// From the first byte to the last.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a server advertises is short.
const LINES_MAX: usize = 256;

/// Who asks, and where.
pub(super) struct Fetch<'f> {
    pub(super) channel: &'f Channel,
    pub(super) policy: &'f LoadedPolicy,
    pub(super) route: &'f Route,
    /// The repository's path, which `/git-upload-pack` follows.
    pub(super) repository: &'f str,
    pub(super) format: Format,
}

impl Fetch<'_> {
    /// The pack of everything that `wants` descend from and `haves` do not.
    pub(super) async fn pack(&self, wants: &[Id], haves: &[Id]) -> Result<Vec<u8>, String> {
        let target = format!("{}/info/refs?service=git-upload-pack", self.repository);
        let offered = self.ask(Method::GET, &target, Bytes::new()).await?;
        let filters = capabilities(&offered)?;
        let mut body = Vec::new();
        line(&mut body, "command=fetch\n");
        if self.format == Format::Sha256 {
            line(&mut body, "object-format=sha256\n");
        }
        body.extend_from_slice(b"0001");
        line(&mut body, "no-progress\n");
        line(&mut body, "ofs-delta\n");
        if filters {
            line(&mut body, "filter tree:0\n");
        }
        for want in wants {
            line(&mut body, &format!("want {want}\n"));
        }
        for have in haves {
            line(&mut body, &format!("have {have}\n"));
        }
        line(&mut body, "done\n");
        body.extend_from_slice(b"0000");
        let target = format!("{}/git-upload-pack", self.repository);
        let answer = self.ask(Method::POST, &target, body.into()).await?;
        packfile(&answer)
    }

    /// Sends one request and reads its answer, which must be a good one.
    async fn ask(&self, method: Method, target: &str, body: Bytes) -> Result<Bytes, String> {
        let gate = &self.channel.gate;
        gate.boundary
            .holds()
            .map_err(|_| "the boundary is not proven".to_owned())?;
        let request = policy::Request {
            scheme: self.channel.scheme,
            authority: &self.channel.authority,
            method: method.as_str(),
            target,
        };
        let permit = match self
            .policy
            .policy
            .decide(self.route, &request, &Facts::None)
        {
            Decision::Permit(permit) => permit,
            Decision::Refuse(_) | Decision::Hold(_) | Decision::Inspect(_) => {
                return Err(
                    "no rule permits fetching the repository, so nothing is known of it".to_owned(),
                );
            }
        };
        let refused = |_| "the gate has no credential to fetch the repository with".to_owned();
        let injection =
            Injection::find(&permit, &gate.vault, self.channel.client.run()).map_err(refused)?;
        let mut record = self
            .channel
            .client
            .record(RecordKind::Request, &gate.new_id());
        record.scheme = Some(self.channel.scheme.as_str().to_owned());
        record.authority = Some(self.channel.authority.to_string());
        record.method = Some(method.to_string());
        record.path = Some(redact_target(target));
        record.verdict = Some(Verdict::Allow);
        record.rule = Some(permit.rule().clone());
        record.credential = permit.credential().cloned();
        record.policy_hash = Some(self.policy.hash.clone());
        record.reason = Some("the gate's own request, to prove where a push leads".to_owned());
        let unwritten = |_| "the audit log cannot be written".to_owned();
        let begun = gate.audit.begin_durable(&mut record).map_err(unwritten)?;
        begun.written().await.map_err(unwritten)?;
        record.kind = RecordKind::Response;
        record.reason = None;
        record.bytes_in = u64::try_from(body.len()).ok();
        let mut ending = Ending {
            channel: self.channel,
            record: Some(Box::new(record)),
        };
        let sending = self.send(method, target, body, permit, &injection, &mut ending);
        let answer = timeout(PATIENCE, sending).await;
        let answer =
            answer.unwrap_or_else(|_| Err("the repository did not answer in time".to_owned()));
        ending.end(answer.as_ref().err().cloned());
        answer
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        body: Bytes,
        permit: policy::Permit,
        injection: &Injection,
        ending: &mut Ending<'_>,
    ) -> Result<Bytes, String> {
        let gate = &self.channel.gate;
        let odd = || "the repository's name is none that can be sent".to_owned();
        let token = injection
            .token(gate)
            .await
            .map_err(|refusal| refusal.text)?;
        let mut uri = target.parse().map_err(|_| odd())?;
        let mut request = Request::new(RequestBody::whole(body));
        *request.method_mut() = method;
        let host = self.channel.authority.host_header(self.channel.scheme);
        let fields = request.headers_mut();
        fields.insert(
            header::HOST,
            HeaderValue::from_str(&host).map_err(|_| odd())?,
        );
        let agent =
            HeaderValue::from_static(concat!("git/2.40 portcullis/", env!("CARGO_PKG_VERSION")));
        fields.insert(header::USER_AGENT, agent);
        let kind = HeaderValue::from_static("application/x-git-upload-pack-request");
        fields.insert(header::CONTENT_TYPE, kind);
        let protocol = HeaderName::from_static("git-protocol");
        fields.insert(protocol, HeaderValue::from_static("version=2"));
        let set = injection.set(&gate.vault, &permit, token, fields, &mut uri);
        set.map_err(|refusal| refusal.text)?;
        *request.uri_mut() = uri;
        // Not the asker's: what is known of a repository is the gate's.
        let owner: Arc<str> = Arc::from("gate");
        let sent = gate
            .upstream
            .send(
                self.route,
                permit,
                &owner,
                Wish::Http1,
                request,
                &Arc::new(Interim::new(false)),
            )
            .await;
        let answer = sent.map_err(|error| {
            let refusal = error.refusal(self.route);
            ending.note(|record| record.code = Some(refusal.code));
            format!("the repository could not be asked: {}", refusal.text)
        })?;
        let (head, body) = answer.response.into_parts();
        ending.note(|record| {
            record.status = Some(head.status.as_u16());
            record.address = answer.lease.address().map(|address| address.to_string());
        });
        if !head.status.is_success() {
            return Err(format!("the repository answered {}", head.status.as_u16()));
        }
        let read = Limited::new(body, ANSWER_BYTES).collect().await;
        let read =
            read.map_err(|_| "what the repository answers is too long, or broke off".to_owned())?;
        let bytes = read.to_bytes();
        ending.note(|record| record.bytes_out = u64::try_from(bytes.len()).ok());
        // The connection is not kept: what was injected goes with it.
        drop(answer.lease);
        Ok(bytes)
    }
}

/// The second line of the record, to be written at the end; dropping it is an end too.
struct Ending<'e> {
    channel: &'e Channel,
    record: Option<Box<policy::record::Record>>,
}

impl Ending<'_> {
    fn note(&mut self, note: impl FnOnce(&mut policy::record::Record)) {
        if let Some(record) = &mut self.record {
            note(record);
        }
    }

    fn end(&mut self, problem: Option<String>) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        record.time = crate::audit::now();
        record.reason = problem;
        if let Err(error) = self.channel.gate.audit.append_end(*record) {
            tracing::error!(%error, "the end of the gate's own request could not be recorded");
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.end(Some("it was broken off".to_owned()));
    }
}

fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("{:04x}{text}", text.len() + 4).as_bytes());
}

/// One pkt-line.
#[derive(Debug, PartialEq, Eq)]
enum Line<'l> {
    /// `0000`, `0001` or `0002`.
    Mark,
    Data(&'l [u8]),
}

/// The next line, and the rest.
fn next(bytes: &[u8]) -> Option<(Line<'_>, &[u8])> {
    let digits = std::str::from_utf8(bytes.get(..4)?).ok()?;
    let length = usize::from_str_radix(digits, 16).ok()?;
    match length {
        0..=2 => Some((Line::Mark, bytes.get(4..)?)),
        3 => None,
        length => Some((Line::Data(bytes.get(4..length)?), bytes.get(length..)?)),
    }
}

/// Whether a server that speaks version 2 can leave out what is not asked for.
fn capabilities(mut bytes: &[u8]) -> Result<bool, String> {
    let (mut second, mut filters) = (false, false);
    for _ in 0..LINES_MAX {
        let Some((line, rest)) = next(bytes) else {
            break;
        };
        bytes = rest;
        let Line::Data(data) = line else {
            continue;
        };
        let text = std::str::from_utf8(data).unwrap_or_default().trim_end();
        second |= text == "version 2";
        if let Some(words) = text.strip_prefix("fetch=") {
            filters |= words.split(' ').any(|word| word == "filter");
        }
    }
    if second {
        Ok(filters)
    } else {
        Err("the repository does not speak version 2 of git's protocol".to_owned())
    }
}

/// The pack in an answer to `fetch`.
fn packfile(mut bytes: &[u8]) -> Result<Vec<u8>, String> {
    let broken = || "what the repository answers is no pack".to_owned();
    let mut within = false;
    let mut pack = Vec::new();
    while !bytes.is_empty() {
        let (line, rest) = next(bytes).ok_or_else(broken)?;
        bytes = rest;
        match line {
            Line::Mark if within => return Ok(pack),
            Line::Mark => {}
            Line::Data(b"packfile\n") if !within => within = true,
            Line::Data(data) if data.starts_with(b"ERR ") => {
                return Err("the repository does not have what the push builds on".to_owned());
            }
            Line::Data(data) if within => match data.split_first() {
                Some((1, more)) => pack.extend_from_slice(more),
                Some((2, _)) => {}
                Some((3, _)) => return Err("the repository broke off its answer".to_owned()),
                Some(_) | None => return Err(broken()),
            },
            Line::Data(_) => {}
        }
    }
    Err(broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            out.extend_from_slice(format!("{:04x}", line.len() + 4).as_bytes());
            out.extend_from_slice(line);
        }
        out
    }

    #[test]
    fn a_server_says_whether_it_can_leave_things_out() {
        let second = |fetch: &[u8]| lines(&[b"version 2\n", b"agent=git/2.39\n", fetch]);
        assert_eq!(capabilities(&second(b"fetch=shallow filter\n")), Ok(true));
        assert_eq!(capabilities(&second(b"fetch=shallow\n")), Ok(false));
        let service = lines(&[b"# service=git-upload-pack\n"]);
        let both = [&service[..], b"0000", &second(b"fetch=shallow filter\n")].concat();
        assert_eq!(capabilities(&both), Ok(true));
        assert!(capabilities(&lines(&[b"1111 refs/heads/main\0 multi_ack\n"])).is_err());
        assert!(capabilities(b"<html>").is_err());
    }

    #[test]
    fn the_pack_is_what_stands_in_the_first_band() {
        let answer = |end: &[u8]| {
            [
                &lines(&[b"packfile\n", b"\x01PA", b"\x02Counting", b"\x01CK"])[..],
                end,
            ]
            .concat()
        };
        assert_eq!(packfile(&answer(b"0000")), Ok(b"PACK".to_vec()));
        assert!(packfile(&answer(b"")).is_err());
        assert!(packfile(&answer(&lines(&[b"\x03died"]))).is_err());
        assert!(packfile(&lines(&[b"ERR upload-pack: not our ref"])).is_err());
        assert!(packfile(b"").is_err());
    }
}
