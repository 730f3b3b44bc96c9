//! One request's way: agree, judge, record, strip, inject, send, stream. Follow [`serve`]; every
//! early return is a refusal that is recorded before it is told.

pub mod account;
mod answer;
pub mod body;
pub mod ending;
mod judge;
mod live;
pub mod websocket;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use policy::authority::{Authority, Scheme};
use policy::record::{Record, RecordKind, Verdict, redact_target};
use policy::{Code, Refusal};

use self::answer::{Sought, deliver};
use self::body::{Meter, RequestBody, ResponseBody};
use self::ending::Ending;
use self::judge::{Allowed, Known, No, judge};
pub use self::live::Live;
use self::websocket::Handover;
use crate::classify;
use crate::entrance::client::Client;
use crate::entrance::pulse::Pulse;
use crate::framing::{Exchanging, Fault, Flag, UNREADABLE};
use crate::gate::Gate;
use crate::holds::Mark;
use crate::inject::Injected;
use crate::inspect::receive_pack::Commands;
use crate::policies::LoadedPolicy;
use crate::refusal::{self, Shape};
use crate::scrub;
use crate::strip;
use crate::upstream::{Interim, Wish};

/// After a refusal, this much of a body is read and thrown away, so that the client reads the
/// answer instead of a reset.
const DRAINED_BYTES: u64 = 64 * 1024 * 1024;
const DRAINED_FOR: Duration = Duration::from_secs(5);

/// How a record ends whose exchange did not.
const CUT: &str = "cut before the end";

/// Where a request came from and where it must be going.
#[derive(Debug, Clone)]
pub struct Channel {
    pub gate: Arc<Gate>,
    pub client: Arc<Client>,
    pub scheme: Scheme,
    pub authority: Authority,
    pub framing: Flag,
    pub pulse: Pulse,
    pub live: Live,
    /// Where an exchange leaves what becomes of the connection behind it.
    pub upgrade: Handover,
}

/// Serves one request, whatever comes of it.
pub async fn serve(channel: &Channel, request: Request<Incoming>) -> Response<ResponseBody> {
    let exchanging = channel.framing.exchanging();
    let id = channel.gate.new_id();
    if let Some(fault) = unreadable(channel, &request) {
        return refuse_unread(channel, &id, fault);
    }
    let (mut parts, mut body) = request.into_parts();
    let mut known = Known::default();
    let judged = judge(channel, &id, &parts, &mut body, &mut known).await;
    let mut expected = parts.headers.get_all(header::EXPECT).iter();
    let (shape, expects, http2) = (
        Shape::of(&parts.headers),
        expected.any(|one| one.as_bytes().eq_ignore_ascii_case(b"100-continue")),
        parts.version == Version::HTTP_2,
    );
    let leaves = classify::leaves_http(&parts.method, &parts.headers);
    let mut response = match judged {
        Ok(allowed) => {
            let upgrade = parts.extensions.remove::<OnUpgrade>();
            let meter = Arc::clone(&allowed.meter);
            let carried = carry(channel, &id, parts, body, allowed, upgrade, exchanging).await;
            match carried {
                Ok(response) => response,
                Err(refusal) => {
                    let mut response = refusal::answer(&refusal, &id, shape);
                    // What is left of the body is thrown away beside the answer; how long that would
                    // take nobody knows where it was cut.
                    if !http2 && meter.is_cut() && !meter.is_complete() {
                        close(&mut response);
                    }
                    response
                }
            }
        }
        Err(No {
            refusal,
            push,
            facts,
            hold,
        }) => {
            let shown = push.as_ref().is_some_and(Commands::reports_status);
            let mut response = match push.filter(|_| shown) {
                Some(commands) => refusal::push_answer(&refusal, &id, &commands),
                None => refusal::answer(&refusal, &id, shape),
            };
            let policy = known.policy.as_deref();
            let mut line = record(channel, RecordKind::Refusal, &id, &parts, policy);
            line.status = Some(response.status().as_u16());
            line.facts = facts.map(|facts| *facts);
            decided(&mut line, hold.as_deref());
            refuse(channel, line, &refusal);
            // A client that waits for 100-continue sends nothing after a final answer; reading
            // would only invite it to. On HTTP/2 an answer is read beside a body that is not.
            if !http2 && (!expects || shown) {
                drain(&mut body).await;
            }
            let upgrades = parts.headers.contains_key(header::UPGRADE);
            if !http2 && (channel.framing.is_raised() || !body.is_end_stream() || upgrades) {
                close(&mut response);
            }
            response
        }
    };
    // What its client may have sent behind a request to leave HTTP already is no request.
    if leaves && response.status() != StatusCode::SWITCHING_PROTOCOLS && !http2 {
        close(&mut response);
    }
    response
}

/// No further request is read from this connection.
pub fn close(response: &mut Response<ResponseBody>) {
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// What is wrong, if this request stands for one that could not be read.
pub fn unreadable<B>(channel: &Channel, request: &Request<B>) -> Option<Fault> {
    let fault = channel.framing.fault()?;
    (request.uri().path() == UNREADABLE).then_some(fault)
}

/// Answers a request of which nothing is known but that it could not be read.
fn refuse_unread(channel: &Channel, id: &str, fault: Fault) -> Response<ResponseBody> {
    let refusal = fault.refusal();
    let mut line = channel.client.record(RecordKind::Refusal, id);
    line.scheme = Some(channel.scheme.as_str().to_owned());
    line.authority = Some(channel.authority.to_string());
    line.status = Some(refusal.status());
    refuse(channel, line, &refusal);
    let mut response = refusal::answer(&refusal, id, Shape::Json);
    close(&mut response);
    response
}

/// Says in a line what somebody decided about its request.
fn decided(line: &mut Record, hold: Option<&Mark>) {
    if let Some(mark) = hold.filter(|mark| !mark.id.is_empty()) {
        line.hold = Some(mark.id.clone());
        line.decider.clone_from(&mark.decider);
    }
}

/// Records a refusal.
fn refuse(channel: &Channel, mut record: Record, refusal: &Refusal) {
    record.verdict = Some(Verdict::Refuse);
    record.code = Some(refusal.code);
    record.rule.clone_from(&refusal.rule);
    record.reason = Some(refusal.text.clone());
    channel.gate.refused(record);
}

/// Records, strips, injects and sends a permitted request, and streams the answer.
async fn carry(
    channel: &Channel,
    id: &str,
    mut parts: Parts,
    body: Incoming,
    allowed: Allowed,
    upgrade: Option<OnUpgrade>,
    exchanging: Exchanging,
) -> Result<Response<ResponseBody>, Refusal> {
    let Allowed {
        policy,
        route,
        permit,
        injection,
        prefix,
        websocket,
        meter,
        going,
        hold,
        account,
        place,
    } = allowed;
    let gate = &channel.gate;
    let mut line = record(channel, RecordKind::Request, id, &parts, Some(&policy));
    line.verdict = Some(Verdict::Allow);
    line.rule = Some(permit.rule().clone());
    line.credential = permit.credential().cloned();
    line.facts = permit.facts_summary().cloned();
    decided(&mut line, hold.as_ref());
    if let Some(model) = account.model() {
        let facts = line.facts.get_or_insert_default();
        facts.model.get_or_insert_with(|| model.to_owned());
    }
    let reads = account.reads();
    let trailers = permit.opens_trailers();
    // Where nothing of the body has been read, its sender is told to go on by the upstream.
    // HTTP/2 has no way to tell it here: `judge` has waited for it.
    let waits = classify::waits_for_continue(&parts)?;
    if prefix.is_none() && !body.is_end_stream() && waits && parts.version == Version::HTTP_11 {
        meter.hold();
    }
    let body = RequestBody::new(prefix, body, trailers, &meter)
        .lingering(parts.version != Version::HTTP_2);
    let rule = permit.rule().clone();
    let mut ending = Ending::new(
        Arc::clone(gate),
        line,
        Arc::clone(&meter),
        going,
        account,
        place,
    );
    let begun = {
        let beginning = pin!(ending.begin(permit.is_credentialed()));
        begun_unless_cut(&meter, beginning).await
    };
    match begun {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            tracing::error!(%error, "a request could not be recorded, so it does not leave");
            return Err(Refusal::new(
                Code::AuditUnavailable,
                "the audit log cannot be written, so nothing leaves",
                "the operator must make room for the audit log; the gate recovers by itself",
            ));
        }
        // The line is on its way to the log, where its end follows it.
        None => return Err(ending.cut().unwrap_or_else(|| changed(channel))),
    }
    if let Err(refusal) = ending.account().leave().await {
        ending.refused(&refusal);
        return Err(refusal);
    }
    let wish = match parts.version {
        _ if websocket => Wish::OnlyHttp1,
        Version::HTTP_2 if !policy.policy.opens_websocket(&route) => Wish::Http2,
        _ => Wish::Http1,
    };
    let mut origin = origin(&parts.uri);
    let kept = Kept::of(&parts.headers, trailers, websocket);
    strip::request(&mut parts.headers);
    kept.put_back(&mut parts.headers);
    let host = HeaderValue::from_str(&channel.authority.host_header(channel.scheme))
        .map_err(|_| malformed("the authority is not a field value"))?;
    parts.headers.insert(header::HOST, host);
    let token = unless_cut(&meter, pin!(injection.token(gate))).await;
    let Some(token) = token else {
        return Err(ending.cut().unwrap_or_else(|| changed(channel)));
    };
    let injected = token.and_then(|token| {
        injection.set(&gate.vault, &permit, token, &mut parts.headers, &mut origin)
    });
    let injected = match injected {
        Ok(injected) => injected,
        Err(refusal) => {
            ending.refused(&refusal);
            return Err(refusal);
        }
    };
    if injected.is_some() || reads {
        scrub::limit_encodings(&mut parts.headers);
    }
    let to_head = parts.method == Method::HEAD;
    let passes_interim = parts.version == Version::HTTP_11;
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = origin;
    *request.headers_mut() = parts.headers;
    let waiting = channel.pulse.wait();
    meter.set_waiting(true);
    let owner = channel.client.owner();
    let interim = Arc::new(Interim::new(passes_interim));
    let mut sought = None;
    let sent = {
        let sending = gate
            .upstream
            .send(&route, permit, owner, wish, request, &interim);
        let mut sending = pin!(sending);
        loop {
            tokio::select! {
                biased;
                () = meter.until_cut() => break None,
                () = interim.come() => {
                    let sought = sought.get_or_insert_with(|| Sought::of(injected.as_ref()));
                    sought.pass(&interim, channel, &mut ending)?;
                }
                sent = sending.as_mut() => break Some(sent),
            }
        }
    };
    let Some(sent) = sent else {
        return Err(ending.cut().unwrap_or_else(|| changed(channel)));
    };
    let sought = sought.unwrap_or_else(|| Sought::of(injected.as_ref()));
    // What came together with the answer.
    sought.pass(&interim, channel, &mut ending)?;
    meter.set_waiting(false);
    drop(waiting);
    let answer = match sent {
        Ok(answer) => answer,
        Err(error) => {
            let refusal = match channel.framing.fault() {
                Some(fault) => fault.refusal(),
                None => error.refusal(&route),
            };
            tracing::info!(authority = %route.authority(), error = %chain(&error), "upstream failed");
            ending.refused(&refusal);
            return Err(refusal);
        }
    };
    let status = answer.response.status();
    let refused = status == StatusCode::UNAUTHORIZED && injected.is_some();
    if let Some(injected) = &injected {
        injected.answered(gate, &channel.authority.to_string(), status);
    }
    if refused {
        ending.credential_refused();
        tracing::warn!(authority = %channel.authority, %rule, "the upstream refused the injected credential");
    }
    if refused && injected.as_ref().is_some_and(Injected::is_of_the_vault) {
        // Most clients would ask a person for a password on a 401, or give up a login that is only
        // a placeholder.
        let refusal = credential_refused(&channel.authority);
        ending.refused(&refusal);
        return Err(refusal);
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return websocket::switch(channel, answer, upgrade, sought, ending);
    }
    deliver(answer, sought, ending, trailers, to_head, exchanging)
}

/// What comes of `doing`; nothing once the exchange is cut, which is looked at first. It is given in its
/// place: handed over, it would take the same room in each exchange once more.
async fn unless_cut<T>(meter: &Meter, doing: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    tokio::select! {
        biased;
        () = meter.until_cut() => None,
        done = doing => Some(done),
    }
}

/// The same for what must begin even so: it is looked at first.
async fn begun_unless_cut<T>(meter: &Meter, doing: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    tokio::select! {
        biased;
        done = doing => Some(done),
        () = meter.until_cut() => None,
    }
}

/// The refusal of a request that was cut on its way because the policy changed.
fn changed(channel: &Channel) -> Refusal {
    match channel.client.policy(&channel.gate) {
        Err(refusal) => refusal,
        Ok(_) => Refusal::new(
            Code::PolicyInvalid,
            "the policy changed while the request was on its way, and does not permit it any more",
            "send the request again: the answer says what the policy in force wants",
        ),
    }
}

/// Fields of this hop that go on to the next one because a rule opens what they ask for.
struct Kept {
    te: bool,
    trailer: Option<HeaderValue>,
    websocket: bool,
}

impl Kept {
    fn of(headers: &HeaderMap, trailers: bool, websocket: bool) -> Self {
        let te = headers.get(header::TE).is_some_and(|te| te == "trailers");
        let trailer = headers.get(header::TRAILER);
        Self {
            te: trailers && te,
            trailer: trailer.filter(|_| trailers).cloned(),
            websocket,
        }
    }

    fn put_back(self, headers: &mut HeaderMap) {
        if self.websocket {
            let websocket = HeaderValue::from_static("websocket");
            headers.insert(header::UPGRADE, websocket);
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        } else if self.te {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        }
        if let Some(trailer) = self.trailer {
            headers.insert(header::TRAILER, trailer);
        }
    }
}

fn credential_refused(authority: &Authority) -> Refusal {
    Refusal::new(
        Code::CredentialRefused,
        &format!("{authority} did not accept the credential that the gate injected"),
        "the operator must replace the credential; nothing that you can send will help",
    )
}

/// What every line about this request says.
fn record(
    channel: &Channel,
    kind: RecordKind,
    id: &str,
    parts: &Parts,
    policy: Option<&LoadedPolicy>,
) -> Record {
    let mut record = channel.client.record(kind, id);
    record.scheme = Some(channel.scheme.as_str().to_owned());
    record.authority = Some(channel.authority.to_string());
    // A method is of ASCII.
    let method = parts.method.as_str();
    record.method = Some(method.get(..64).unwrap_or(method).to_owned());
    record.path = Some(redact_target(classify::target(&parts.uri)));
    record.policy_hash = policy.map(|policy| policy.hash.clone());
    record
}

/// The target that is sent: origin form only.
fn origin(uri: &Uri) -> Uri {
    if uri.scheme().is_none() && uri.authority().is_none() {
        return uri.clone();
    }
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = uri.path_and_query().cloned();
    Uri::from_parts(parts).unwrap_or_default()
}

fn malformed(sentence: &str) -> Refusal {
    Refusal::new(
        Code::MalformedRequest,
        sentence,
        "send a well-formed HTTP/1.1 request",
    )
}

/// Reads and drops what is left of a body, within bounds.
async fn drain(body: &mut Incoming) {
    let all = async {
        let mut seen = 0_u64;
        while let Some(Ok(frame)) = body.frame().await {
            let more = frame.data_ref().map_or(0, Bytes::len);
            seen = seen.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
            if seen > DRAINED_BYTES {
                break;
            }
        }
    };
    // Whoever sends slower than this has had its answer's chance.
    let _ = tokio::time::timeout(DRAINED_FOR, all).await;
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::body::Cut;
    use super::*;

    /// A connection holds room for an exchange as long as it is open, and each request on HTTP/2 takes
    /// it anew.
    #[test]
    fn an_exchange_takes_little_room() {
        fn room<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
            size_of::<F>()
        }
        let room = room(|channel: &'static Channel, request| serve(channel, request));
        assert!((1..8_600).contains(&room), "{room} bytes");
    }

    /// The end of what was never announced would be the end of nothing.
    #[tokio::test]
    async fn a_line_is_begun_even_where_its_exchange_is_cut_already() {
        let meter = Meter::default();
        let begun = std::sync::atomic::AtomicUsize::new(0);
        let line = |waits: bool| {
            let begun = &begun;
            async move {
                begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if waits {
                    std::future::pending::<()>().await;
                }
            }
        };
        let count = || begun.load(std::sync::atomic::Ordering::Relaxed);
        assert!(begun_unless_cut(&meter, pin!(line(false))).await.is_some());
        meter.cut(Cut::Forbidden);
        assert!(begun_unless_cut(&meter, pin!(line(true))).await.is_none());
        assert_eq!(count(), 2);
        assert!(unless_cut(&meter, pin!(line(true))).await.is_none());
        assert_eq!(count(), 2, "control: what need not be begun is not");
    }
}
