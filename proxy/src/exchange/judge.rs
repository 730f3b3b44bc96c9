//! Everything before the record: agreement, policy, inspection, and finding the credential. Nothing
//! here resolves, dials or sends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use policy::record::{RecordFacts, RecordKind};
use policy::{
    Code, Decision, Facts, Held, History, Inspection, Permit, RefUpdate, Refusal, Route, Routing,
};
use tokio::time::timeout;

use super::account::{Account, Asked};
use super::body::{Cut, Meter};
use super::live::{GoingOn, Judged};
use super::{Channel, ending, malformed};
use crate::classify;
use crate::framing::Fault;
use crate::gate::Admission;
use crate::history;
use crate::holds::{Asking, Mark, Not, View};
use crate::inject::Injection;
use crate::inspect::content;
use crate::inspect::receive_pack::{Commands, Progress, Reader};
use crate::inspect::spool::{self, Spooled, Taken};
use crate::policies::LoadedPolicy;

/// How long a body is waited for over HTTP/2 that its sender keeps back. curl waits for a second.
const UNASKED_FOR: Duration = Duration::from_secs(3);

/// The whole body of git's probe before a large push.
const PROBE: &[u8] = b"0000";

/// A refusal on its way to the client, and the push it refuses if that is what it does.
pub(super) struct No {
    pub(super) refusal: Refusal,
    pub(super) push: Option<Commands>,
    /// What inspection found, for the record.
    pub(super) facts: Option<Box<RecordFacts>>,
    /// The hold that it comes out of.
    pub(super) hold: Option<Box<Mark>>,
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            push: None,
            facts: None,
            hold: None,
        }
    }
}

/// What was learnt of a request before it was refused, for its record.
#[derive(Default)]
pub(super) struct Known {
    pub(super) policy: Option<Arc<LoadedPolicy>>,
}

/// A request that may leave.
pub(super) struct Allowed {
    pub(super) policy: Arc<LoadedPolicy>,
    pub(super) route: Route,
    pub(super) permit: Permit,
    pub(super) injection: Injection,
    pub(super) prefix: Option<Bytes>,
    /// Whether it becomes a WebSocket.
    pub(super) websocket: bool,
    pub(super) meter: Arc<Meter>,
    pub(super) going: GoingOn,
    /// What somebody decided about it.
    pub(super) hold: Option<Mark>,
    pub(super) account: Account,
    /// Its place among what its asker has under way.
    pub(super) place: Admission,
}

/// Everything before the record: nothing here resolves, dials or sends. Reading a body takes as long
/// as its sender likes, so that everything is asked anew once it has been read.
pub(super) async fn judge(
    channel: &Channel,
    id: &str,
    parts: &Parts,
    body: &mut Incoming,
    known: &mut Known,
) -> Result<Allowed, No> {
    let place = channel.gate.begin(channel.client.owner());
    let place = place.ok_or_else(too_many)?;
    size(channel, parts)?;
    classify::inside(parts, channel.scheme, &channel.authority)?;
    let websocket = classify::upgrade(parts, channel.scheme)?;
    let gate = &channel.gate;
    let request = policy::Request {
        scheme: channel.scheme,
        authority: &channel.authority,
        method: parts.method.as_str(),
        target: classify::target(&parts.uri),
    };
    let mut facts = Facts::None;
    let mut prefix = None;
    let mut push = None;
    let mut taken = Taken::default();
    let mut approved: Option<Mark> = None;
    loop {
        let no = |refusal, push| No {
            refusal,
            push,
            facts: facts.summary().map(Box::new),
            hold: None,
        };
        let policy = in_force(channel, known)?;
        let route = match policy.policy.route(channel.scheme, &channel.authority) {
            Routing::Route(route) => route,
            Routing::Refuse(refusal) => return Err(no(refusal, push)),
        };
        let permit = match policy.policy.decide(&route, &request, &facts) {
            Decision::Permit(permit) => permit,
            Decision::Hold(held) => {
                features(held.would(), parts, websocket)?;
                let subject = approved.as_ref().map_or("", |mark| mark.subject.as_str());
                match held.approved(subject) {
                    Ok(permit) => permit,
                    Err(held) => {
                        let asking = Asking {
                            id,
                            record: channel.client.record(RecordKind::Event, id),
                            owner: channel.client.owner(),
                            method: request.method,
                            target: request.target,
                            body: prefix.as_ref(),
                        };
                        // Rare, and large: not a part of every exchange.
                        let asked = Box::pin(ask(channel, &held, &asking)).await;
                        approved = Some(asked.map_err(|not| No {
                            hold: Some(Box::new(not.mark)),
                            ..no(not.refusal, push.take())
                        })?);
                        continue;
                    }
                }
            }
            Decision::Refuse(refusal) => return Err(no(refusal, push)),
            Decision::Inspect(Inspection::ReceivePack) if prefix.is_none() => {
                let most = gate.config.limits.push_commands_bytes;
                let reading = push_commands(parts, body, most);
                let (seen, read) = timeout(gate.config.limits.head_timeout, reading)
                    .await
                    .map_err(|_| late())??;
                prefix = Some(seen);
                (facts, push) = match read {
                    Ok(commands) => (Facts::Push(commands.updates.clone()), Some(commands)),
                    Err(reason) => (Facts::Unreadable(reason), None),
                };
                continue;
            }
            Decision::Inspect(Inspection::History(most)) if unproven(&facts) => {
                let (Some(commands), Some(seen)) = (&push, &prefix) else {
                    return Err(no(unread(), push));
                };
                let within = gate.config.limits.inspect_timeout;
                let rest = spool::rest(body, seen, most, &gate.room, within);
                let (updates, room) = match Box::pin(rest).await? {
                    Spooled::Whole(whole, room) => {
                        let asked = history::Push {
                            channel,
                            policy: &policy,
                            route: &route,
                            target: request.target,
                            commands,
                            body: &whole,
                        };
                        // Rare, and large: not a part of every exchange.
                        let updates = Box::pin(history::prove(asked)).await;
                        prefix = Some(whole);
                        (updates, room)
                    }
                    Spooled::Beyond => (beyond(commands, most), Taken::default()),
                };
                (facts, taken) = (Facts::Push(updates), room);
                continue;
            }
            Decision::Inspect(Inspection::Content(wanted)) if prefix.is_none() => {
                let mut bytes = None;
                if let Some(spool) = wanted.body {
                    let within = gate.config.limits.inspect_timeout;
                    match spool::whole(body, spool.most, &gate.room, within).await? {
                        Spooled::Whole(whole, room) => (bytes, taken) = (Some(whole), room),
                        Spooled::Beyond => {}
                    }
                    prefix = Some(bytes.clone().unwrap_or_default());
                }
                let mut read = content::read(parts, &wanted, bytes.as_ref());
                let (at, owner) = (&channel.authority, channel.client.owner());
                let own = |task: &String| gate.tasks.is_own(at, owner, task);
                read.task = wanted.task.as_ref().map(own);
                facts = Facts::Content(Arc::new(read));
                continue;
            }
            Decision::Inspect(
                Inspection::ReceivePack | Inspection::History(_) | Inspection::Content(_),
            ) => {
                return Err(No::from(unread()));
            }
        };
        features(&permit, parts, websocket)?;
        let waits = classify::waits_for_continue(parts)?;
        let http2 = parts.version == http::Version::HTTP_2;
        if waits && http2 && prefix.is_none() && !body.is_end_stream() {
            prefix = Some(begun(body).await?);
            continue;
        }
        let injection = Injection::find(&permit, &gate.vault, channel.client.run())?;
        let meter = channel.live.meter();
        let judged = Judged {
            facts: &facts,
            approved: approved.as_ref().map(|mark| mark.subject.as_str()),
        };
        let going = channel
            .live
            .permitted(parts, &route, &permit, judged, websocket, &meter);
        if let Some(refusal) = too_long(&permit, body, prefix.as_ref(), &meter) {
            return Err(no(refusal, push));
        }
        // A policy that came in between has not seen this request among what is going on, and
        // nor has the loss of the boundary.
        if !Arc::ptr_eq(&policy, &in_force(channel, known)?) {
            continue;
        }
        if let Err(refusal) = gate.rates.take(&permit, &channel.client.asker()) {
            return Err(no(refusal, push));
        }
        let asked = Asked {
            websocket,
            ..asked(&permit, body, prefix.as_ref())
        };
        let account = match Account::open(gate, &channel.client, &permit, asked, &meter) {
            Ok(account) => account,
            Err(refusal) => return Err(no(refusal, push)),
        };
        return Ok(Allowed {
            policy,
            route,
            permit,
            injection,
            prefix,
            websocket,
            meter,
            going: going.keeping(taken),
            hold: approved,
            account,
            place,
        });
    }
}

fn unread() -> Refusal {
    Refusal::new(
        Code::CouldNotInspect,
        "the request could not be inspected",
        "report this: the policy asked for facts that it had been given",
    )
}

/// Whether nobody has looked yet where a push leads.
fn unproven(facts: &Facts) -> bool {
    match facts {
        Facts::Push(updates) => updates
            .iter()
            .all(|update| update.history == History::NotAsked),
        Facts::None | Facts::Content(_) | Facts::Unreadable(_) => false,
    }
}

/// What can be said of a push that is too long to be looked into.
fn beyond(commands: &Commands, most: u64) -> Vec<RefUpdate> {
    let why = format!("the push is longer than the {most} bytes that are read to prove it");
    history::unproven(&commands.updates, &why)
}

/// Waits for a person to decide, for as long as the client is let in at all.
async fn ask(channel: &Channel, held: &Held, asking: &Asking<'_>) -> Result<Mark, Box<Not>> {
    let told = |view: &View| channel.gate.audit.event(&view.summary());
    tokio::select! {
        biased;
        () = channel.client.closed() => {
            let sentence = "this run ended while its request waited for a decision";
            let remedy = "nothing of an ended run may leave";
            let refusal = Refusal::new(Code::RunEnded, sentence, remedy);
            Err(Box::new(Not::undecided(held, refusal)))
        }
        decided = channel.gate.holds.decided(held, asking, told) => decided,
    }
}

/// What is asked, as far as it is known.
fn asked(permit: &Permit, body: &Incoming, prefix: Option<&Bytes>) -> Asked {
    let read = u64::try_from(prefix.map_or(0, Bytes::len)).unwrap_or(u64::MAX);
    Asked {
        bytes: body.size_hint().lower().saturating_add(read),
        model: permit.asked().map(|asked| asked.model.clone()),
        most_output: permit.asked().and_then(|asked| asked.most_output),
        ..Asked::default()
    }
}

/// The bounds of a head, which the watcher keeps for HTTP/1 already.
fn size(channel: &Channel, parts: &Parts) -> Result<(), Refusal> {
    if parts.version != http::Version::HTTP_2 {
        return Ok(());
    }
    let limits = &channel.gate.config.limits;
    let field = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    let bytes: usize = parts.headers.iter().map(field).sum();
    let target = classify::target(&parts.uri).len();
    if parts.headers.len() > limits.head_headers {
        return Err(Fault::TooLarge("fields").refusal());
    }
    if bytes + target > limits.head_bytes {
        return Err(Fault::TooLarge("bytes").refusal());
    }
    Ok(())
}

/// The first bytes of a body whose sender waits for a word that the library behind hyper cannot send
/// over HTTP/2. Most do not wait for long.
async fn begun(body: &mut Incoming) -> Result<Bytes, Refusal> {
    match timeout(UNASKED_FOR, body.frame()).await {
        Ok(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default()),
        Ok(Some(Err(_))) => Err(malformed("the body broke off")),
        Ok(None) => Ok(Bytes::new()),
        Err(_) => Err(Refusal::new(
            Code::ExpectationRefused,
            "over HTTP/2 nobody is told to go on with a body",
            "send the request without `Expect: 100-continue`",
        )),
    }
}

/// A body that states its length is refused before anything of it leaves.
fn too_long(
    permit: &Permit,
    body: &Incoming,
    prefix: Option<&Bytes>,
    meter: &Meter,
) -> Option<Refusal> {
    let read = prefix.map_or(0, Bytes::len);
    let stated = body.size_hint().lower();
    let stated = stated.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    if stated <= meter.most_sent() {
        return None;
    }
    ending::beyond(Cut::Request, Some(permit.rule()), meter)
}

/// What a request needs of the protocol must be opened by the rule that permits it.
fn features(permit: &Permit, parts: &Parts, websocket: bool) -> Result<(), Refusal> {
    let refuse = |sentence: &str, remedy: &str| {
        let refusal = Refusal::new(Code::FeatureRefused, sentence, remedy);
        Err(refusal.by(permit.rule(), None))
    };
    if websocket && !permit.opens_websocket() {
        return refuse(
            &format!("rule `{}` does not open WebSocket", permit.rule()),
            "use the HTTP interface of this service, or have upgrade = [\"websocket\"] added to its [[service]]",
        );
    }
    if is_grpc(parts) && !permit.opens_trailers() {
        return refuse(
            &format!(
                "rule `{}` does not open trailers, which gRPC needs",
                permit.rule()
            ),
            "have trailers = true added to its [[service]]",
        );
    }
    Ok(())
}

/// Whether a request is gRPC proper, whose status travels in trailers.
fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let kind = kind.map(HeaderValue::as_bytes).unwrap_or_default();
    kind.strip_prefix(b"application/grpc")
        .is_some_and(|rest| !rest.starts_with(b"-web"))
}

fn too_many() -> Refusal {
    Refusal::new(
        Code::LimitReached,
        "too many requests are under way at once",
        "wait for the answers to some of them, and ask again",
    )
}

fn late() -> Refusal {
    Refusal::new(
        Code::ClientTimeout,
        "the command list of the push did not arrive in time",
        "send the push without a pause",
    )
}

/// The policy at this moment, if the boundary is proven at this moment.
fn in_force(channel: &Channel, known: &mut Known) -> Result<Arc<LoadedPolicy>, Refusal> {
    let policy = channel.client.policy(&channel.gate)?;
    known.policy = Some(Arc::clone(&policy));
    channel.gate.boundary.holds().map_err(|problem| {
        Refusal::new(
            Code::BoundaryNotProven,
            &format!("the kernel boundary is not proven: {problem}"),
            "the operator must start portcullis-boundary; `portcullis status` says what is missing",
        )
    })?;
    Ok(policy)
}

/// The commands of a push with the bytes they were read from, which still have to be sent; or why
/// they cannot be read.
async fn push_commands(
    parts: &Parts,
    body: &mut Incoming,
    most: usize,
) -> Result<(Bytes, Result<Commands, String>), Refusal> {
    let mut prefix = Vec::new();
    if parts.headers.contains_key(header::CONTENT_ENCODING) {
        return Ok((
            Bytes::new(),
            Err("the body of the push is compressed".to_owned()),
        ));
    }
    let mut reader = Reader::default();
    loop {
        match reader.advance(&prefix) {
            Progress::Done(commands) if commands.updates.is_empty() => {
                let probe = prefix == PROBE && ends(body).await?;
                let read = if probe {
                    Ok(commands)
                } else {
                    Err("a command list without commands is followed by something".to_owned())
                };
                return Ok((prefix.into(), read));
            }
            Progress::Done(commands) => return Ok((prefix.into(), Ok(commands))),
            Progress::Unreadable(reason) => return Ok((prefix.into(), Err(reason))),
            Progress::More if prefix.len() >= most => {
                let reason = format!("the command list of the push is longer than {most} bytes");
                return Ok((prefix.into(), Err(reason)));
            }
            Progress::More => {}
        }
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    prefix.extend_from_slice(&data);
                }
            }
            Some(Err(_)) => return Err(malformed("the body of the push broke off")),
            None => {
                let reason = "the push ended before its command list did".to_owned();
                return Ok((prefix.into(), Err(reason)));
            }
        }
    }
}

/// Whether nothing more comes.
async fn ends(body: &mut Incoming) -> Result<bool, Refusal> {
    loop {
        match body.frame().await {
            None => return Ok(true),
            Some(Ok(frame)) if frame.data_ref().is_none_or(Bytes::is_empty) => {}
            Some(Ok(_)) => return Ok(false),
            Some(Err(_)) => return Err(malformed("the body of the push broke off")),
        }
    }
}
