//! Fetching commits of a repository, for the gate's own knowledge: commits alone where the server can leave out the
//! rest. Each request is judged by the policy in force and recorded, as an agent's is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header};
use http_body_util::BodyExt;
use hyper::body::Body;
use policy::record::{RecordKind, Verdict, redact_target};
use policy::{Decision, Facts, Route};
use tokio::time::timeout;

use super::graph::{Commits, Id};
use super::pack::Format;
use super::protocol;
use crate::exchange::Channel;
use crate::exchange::body::RequestBody;
use crate::inject::Injection;
use crate::policies::LoadedPolicy;
use crate::upstream::{Interim, Wish};

/// The most bytes of one answer.
pub(super) const ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// From the first byte to the last.
const PATIENCE: Duration = Duration::from_secs(60);

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
    /// The pack of everything that `wants` descend from and `haves` do not, as far as the repository can be asked.
    pub(super) async fn pack(
        &self,
        wants: &[Id],
        haves: &[Id],
        known: &Commits,
    ) -> Result<Vec<u8>, String> {
        let target = format!("{}/info/refs?service=git-upload-pack", self.repository);
        let offered = self.ask(Method::GET, &target, Bytes::new()).await?;
        let body = protocol::offered(&offered, wants, known)?.request(haves, self.format);
        drop(offered);
        let target = format!("{}/git-upload-pack", self.repository);
        protocol::packfile(self.ask(Method::POST, &target, body.into()).await?)
    }

    /// Sends one request and reads its answer, which must be a good one.
    async fn ask(&self, method: Method, target: &str, body: Bytes) -> Result<Vec<u8>, String> {
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
    ) -> Result<Vec<u8>, String> {
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
        let bytes = whole(body).await?;
        ending.note(|record| record.bytes_out = u64::try_from(bytes.len()).ok());
        // The connection is not kept: what was injected goes with it.
        drop(answer.lease);
        Ok(bytes)
    }
}

/// An answer in one piece, which grows to no more than it may be.
async fn whole<B>(mut body: B) -> Result<Vec<u8>, String>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "the repository broke off its answer".to_owned())?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let length = bytes.len() + data.len();
        if length > ANSWER_BYTES {
            return Err(format!(
                "the repository answers with more than the {ANSWER_BYTES} bytes that are read of its history"
            ));
        }
        if length > bytes.capacity() {
            let more = (2 * bytes.capacity()).clamp(length, ANSWER_BYTES);
            bytes.reserve_exact(more - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
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
