//! The gate's own requests: fetching a token, trying a credential. They take the same way as an
//! agent's: a policy that says what may be sent, a [`policy::Route`] and a [`policy::Permit`] from
//! it, a checked address and verified TLS.
//!
//! The policy is made for the errand and permits nothing else. How the far end proves itself and
//! where it lies is taken from the operator's own policies where one of them lists it.
//!
//! It is recorded like an agent's too: one line that is on the disk before anything leaves, and one
//! at its end, however it ends. Where the log cannot be written, nothing leaves.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use policy::authority::{Authority, Scheme};
use policy::credential::CredentialName;
use policy::record::{Record, RecordKind, Verdict, redact_target};
use policy::{Decision, Facts, Permit, Policy, Route, Routing};
use tokio::time::timeout;

use crate::audit::AuditError;
use crate::exchange::body::RequestBody;
use crate::gate::Gate;
use crate::upstream::{Interim, Wish};

/// Of an answer, at most this much is read.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// From the first byte to the last.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// One request of the gate's own.
pub(crate) struct Errand<'e> {
    /// The credential that it is about and that it may carry.
    pub(crate) credential: &'e CredentialName,
    pub(crate) authority: &'e Authority,
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: &'e str,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why nothing came back. Says nothing about what was sent.
#[derive(Debug, thiserror::Error)]
pub enum ErrandError {
    /// The boundary is not proven, so that the gate sends nothing.
    #[error("the kernel boundary is not proven")]
    Boundary,
    /// The errand's own policy does not permit it.
    #[error("{0} cannot be asked: {1}")]
    NotPermitted(String, String),
    /// It could not be recorded, so that it did not leave.
    #[error("nothing leaves unrecorded")]
    Audit(#[from] AuditError),
    /// The upstream.
    #[error("{0} could not be asked")]
    Upstream(String, #[source] crate::upstream::UpstreamError),
    /// The answer broke off or was too long.
    #[error("the answer of {0} could not be read")]
    Answer(String),
    /// It took too long.
    #[error("{0} did not answer in time")]
    Late(String),
}

impl ErrandError {
    /// Whether it is certain that nothing left.
    pub(crate) fn stayed(&self) -> bool {
        match self {
            Self::Boundary | Self::NotPermitted(..) | Self::Audit(_) => true,
            Self::Upstream(..) | Self::Answer(_) | Self::Late(_) => false,
        }
    }
}

/// Sends one request and reads its answer.
pub(crate) async fn run(gate: &Arc<Gate>, errand: Errand<'_>) -> Result<Answer, ErrandError> {
    let name = errand.authority.to_string();
    gate.boundary.check().map_err(|_| ErrandError::Boundary)?;
    let (route, permit) = permitted(gate, &errand)?;
    let mut open = Open::announce(gate, &errand, &permit).await?;
    let answer = match timeout(PATIENCE, send(gate, errand, &route, permit, &mut open)).await {
        Ok(answer) => answer,
        Err(_) => Err(ErrandError::Late(name)),
    };
    open.end(answer.as_ref().err().map(ToString::to_string));
    answer
}

/// The second line of the record, to be written at the end; dropping it is an end too.
struct Open<'g> {
    gate: &'g Arc<Gate>,
    record: Option<Box<Record>>,
    started: Instant,
}

impl<'g> Open<'g> {
    /// Writes the first line and waits until it is on the disk.
    async fn announce(
        gate: &'g Arc<Gate>,
        errand: &Errand<'_>,
        permit: &Permit,
    ) -> Result<Self, AuditError> {
        let started = Instant::now();
        let mut record = Record::new(RecordKind::Request, &gate.new_id(), "");
        record.scheme = Some(Scheme::Https.to_string());
        record.authority = Some(errand.authority.to_string());
        record.method = Some(errand.method.to_string());
        record.path = Some(redact_target(errand.target));
        record.verdict = Some(Verdict::Allow);
        record.rule = Some(permit.rule().clone());
        record.credential = Some(errand.credential.clone());
        record.reason = Some("the gate's own request".to_owned());
        let mut record = Box::new(record);
        let begun = gate.audit.begin_durable(record.as_mut())?;
        record.kind = RecordKind::Response;
        record.reason = None;
        record.bytes_in = u64::try_from(errand.body.len()).ok();
        let mut open = Self {
            gate,
            record: Some(record),
            started,
        };
        if let Err(error) = begun.written().await {
            // It does not leave, and the log says so itself.
            open.record = None;
            return Err(error);
        }
        Ok(open)
    }

    fn note(&mut self, note: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            note(record);
        }
    }

    fn end(&mut self, problem: Option<String>) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        record.time = crate::audit::now();
        record.ms = u64::try_from(self.started.elapsed().as_millis()).ok();
        record.reason = problem;
        if let Err(error) = self.gate.audit.append_end(*record) {
            tracing::error!(%error, "the end of the gate's own request could not be recorded");
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.end(Some("it was broken off".to_owned()));
    }
}

async fn send(
    gate: &Arc<Gate>,
    errand: Errand<'_>,
    route: &Route,
    permit: Permit,
    open: &mut Open<'_>,
) -> Result<Answer, ErrandError> {
    let name = errand.authority.to_string();
    let mut request = Request::new(RequestBody::whole(errand.body));
    *request.method_mut() = errand.method;
    *request.uri_mut() = errand
        .target
        .parse()
        .map_err(|_| ErrandError::NotPermitted(name.clone(), "the target is no path".to_owned()))?;
    *request.headers_mut() = errand.headers;
    let host = HeaderValue::from_str(&errand.authority.host_header(Scheme::Https))
        .map_err(|_| ErrandError::NotPermitted(name.clone(), "the name is no field".to_owned()))?;
    request.headers_mut().insert(header::HOST, host);
    let agent = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().insert(header::USER_AGENT, agent);
    let owner: Arc<str> = Arc::from("gate");
    let answer = gate
        .upstream
        .send(
            route,
            permit,
            &owner,
            Wish::Http1,
            request,
            &Arc::new(Interim::new(false)),
        )
        .await
        .map_err(|source| {
            open.note(|record| record.code = Some(source.refusal(route).code));
            ErrandError::Upstream(name.clone(), source)
        })?;
    let (head, body) = answer.response.into_parts();
    open.note(|record| {
        record.status = Some(head.status.as_u16());
        record.address = answer.lease.address().map(|address| address.to_string());
    });
    let body = Limited::new(body, ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|_| ErrandError::Answer(name))?
        .to_bytes();
    open.note(|record| record.bytes_out = u64::try_from(body.len()).ok());
    // The connection is not kept: what was injected goes with it.
    drop(answer.lease);
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
    })
}

/// A route and a permit for exactly this request.
fn permitted(gate: &Arc<Gate>, errand: &Errand<'_>) -> Result<(Route, Permit), ErrandError> {
    let refused = |why: String| ErrandError::NotPermitted(errand.authority.to_string(), why);
    let listed = gate
        .policies
        .view()
        .into_keys()
        .filter_map(|profile| gate.policies.get(&profile))
        .find_map(
            |policy| match policy.policy.route(Scheme::Https, errand.authority) {
                Routing::Route(route) => Some(route),
                Routing::Refuse(_) => None,
            },
        );
    let text = text(errand, listed.as_ref());
    let policy = Policy::parse(&text, "errand").map_err(|problem| refused(problem.to_string()))?;
    let route = match policy.route(Scheme::Https, errand.authority) {
        Routing::Route(route) => route,
        Routing::Refuse(refusal) => return Err(refused(refusal.text)),
    };
    let request = policy::Request {
        scheme: Scheme::Https,
        authority: errand.authority,
        method: errand.method.as_str(),
        target: errand.target,
    };
    match policy.decide(&route, &request, &Facts::None) {
        Decision::Permit(permit) => Ok((route, permit)),
        Decision::Refuse(refusal) => Err(refused(refusal.text)),
        Decision::Inspect(_) => Err(refused("it would have to be inspected".to_owned())),
        Decision::Hold(_) => Err(refused("it would have to wait for a person".to_owned())),
    }
}

/// The errand as a policy.
fn text(errand: &Errand<'_>, listed: Option<&Route>) -> String {
    let path = errand.target.split('?').next().unwrap_or_default();
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut text = format!(
        "version = 1\n[[service]]\nid = \"errand\"\nkind = \"http\"\nhost = {}\nport = {}\nallow = [{}]\n",
        quoted(&errand.authority.host().to_string()),
        errand.authority.port(),
        quoted(&format!("{} {path}", errand.method)),
    );
    if let Some(route) = listed {
        if let Some(address) = route.address() {
            text.push_str(&format!("address = {}\n", quoted(&address.to_string())));
        }
        if let Some(file) = &route.tls().ca_file {
            text.push_str(&format!("ca_file = {}\n", quoted(file)));
        }
        if let Some(pin) = route.tls().pin {
            use base64::Engine as _;
            let digest = base64::engine::general_purpose::STANDARD.encode(pin.0);
            text.push_str(&format!("pin = \"sha256/{digest}\"\n"));
        }
    }
    text
}
