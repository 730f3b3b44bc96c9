//! One client connection from its first byte: plain proxy requests, or a CONNECT followed by TLS
//! that ends here. A tunnel to an unlisted host is opened too, to a leaf and nothing else, so that
//! the refusal can be read inside it. A tunnel to where a rule says plain http may carry that, judged
//! request by request all the same. What is neither is closed; there is no raw fallback.

mod handshake;
pub(crate) mod hello;
mod http2;
pub(crate) mod rejoined;
mod seldom;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use policy::authority::{Authority, Scheme};
use policy::record::{RecordKind, Verdict};
use policy::{Code, Refusal, Routing};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use self::handshake::Failure;
use self::hello::Hello;
use self::rejoined::Rejoined;
use self::seldom::Seldom;
use crate::classify::{self, Entry};
use crate::entrance::client::Client;
use crate::entrance::pulse::{Beating, Pulse};
use crate::entrance::token;
use crate::exchange::body::ResponseBody;
use crate::exchange::websocket::Handover;
use crate::exchange::{self, Channel, Live};
use crate::framing::{Bounds, Flag, UNREADABLE, Watched};
use crate::gate::Gate;
use crate::names;
use crate::policies::LoadedPolicy;
use crate::redirected;
use crate::refusal::{self, Shape};

/// A hello is read ahead so far; a longer one is the TLS library's to bound.
const LONGEST_HELLO: usize = 64 * 1024;

/// The port of ssh.
const SSH: u16 = 22;

/// Serves one connection of an identified client until it ends, stops moving, or the client's run
/// is closed.
pub async fn serve<IO>(gate: Arc<Gate>, client: Arc<Client>, io: IO)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    guarded(gate, client, io, None).await;
}

/// The same for a connection that the boundary led here, which dialled this port of the host that
/// it has yet to name.
pub async fn serve_redirected<IO>(gate: Arc<Gate>, client: Arc<Client>, io: IO, port: u16)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    guarded(gate, client, io, Some(port)).await;
}

async fn guarded<IO>(gate: Arc<Gate>, client: Arc<Client>, io: IO, redirected: Option<u16>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pulse = Pulse::default();
    let io = Beating::new(io, pulse.clone());
    let live = Live::default();
    let idle = gate.config.limits.idle_timeout;
    let guards = pin!(async {
        tokio::select! {
            biased;
            () = client.closed() => {}
            () = pulse.stopped(idle) => {}
            () = forbidden(&gate, &client, &live) => {}
            () = unproven(&gate, &live) => {}
            () = live.stuck() => {}
        }
    });
    tokio::select! {
        biased;
        () = Seldom::new(guards) => {}
        () = async {
            match redirected {
                None => outer(&gate, &client, io, &pulse, &live).await,
                Some(port) => redirected::enter(&gate, &client, port, io, &pulse, &live).await,
            }
        } => {}
    }
}

/// Cuts what a new policy no longer permits of what this connection is doing.
async fn forbidden(gate: &Gate, client: &Client, live: &Live) {
    if let Some(mut changes) = client.policy_changes(gate) {
        changes.mark_unchanged();
        while changes.changed().await.is_ok() {
            let policy = Arc::clone(&changes.borrow_and_update());
            live.cut_forbidden(&policy);
        }
    }
    std::future::pending().await
}

/// Ends when the boundary is lost while something is going on by a permit. A request that begins
/// later is refused, which is told.
async fn unproven(gate: &Gate, live: &Live) {
    let mut proven = gate.boundary.changes();
    while proven.changed().await.is_ok() {
        if !*proven.borrow_and_update() && live.is_on() {
            return;
        }
    }
    std::future::pending().await
}

/// The proxy's own protocol: absolute-form requests, or one CONNECT.
async fn outer<IO>(gate: &Arc<Gate>, client: &Arc<Client>, io: IO, pulse: &Pulse, live: &Live)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (watched, framing) = watch(gate, io);
    let opened: Arc<Mutex<Option<Authority>>> = Arc::default();
    let service = service_fn(|request| {
        let (gate, client, pulse) = (Arc::clone(gate), Arc::clone(client), pulse.clone());
        let (framing, live, opened) = (framing.clone(), live.clone(), Arc::clone(&opened));
        async move {
            Ok::<_, Infallible>(enter(gate, client, pulse, live, framing, &opened, request).await)
        }
    });
    let connection = server(gate).serve_connection(TokioIo::new(watched), service);
    let parts = match connection.without_shutdown().await {
        Ok(parts) => parts,
        Err(error) => return unreadable(gate, client, None, &error),
    };
    let target = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (kept_back, mut io) = parts.io.into_inner().into_parts();
    match target {
        Some(authority) => {
            let first = if kept_back.is_empty() {
                parts.read_buf
            } else {
                [parts.read_buf, kept_back].concat().into()
            };
            let io = Rejoined { first, io };
            within(gate, client, authority, io, pulse, live).await;
        }
        None => {
            // The peer may be gone already, which is all the same now.
            let _ = io.shutdown().await;
        }
    }
}

/// One request on the entrance.
async fn enter(
    gate: Arc<Gate>,
    client: Arc<Client>,
    pulse: Pulse,
    live: Live,
    framing: Flag,
    opened: &Mutex<Option<Authority>>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let (parts, body) = request.into_parts();
    let unread = framing.fault().filter(|_| parts.uri.path() == UNREADABLE);
    let entry = match unread {
        Some(fault) => Err(fault.refusal()),
        None => token::again(&client, &parts.headers)
            .and_then(|()| classify::entry(&parts))
            .and_then(|entry| on_connect(&gate, &client, entry)),
    };
    match entry {
        Ok(Entry::Connect(authority)) => {
            *opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(authority);
            Response::new(ResponseBody::own(Bytes::new()))
        }
        Ok(Entry::Absolute(authority)) if names::is_own(&authority) => {
            let _exchanging = framing.exchanging();
            let mut response = names::answer(&gate, &client, &parts);
            if classify::leaves_http(&parts.method, &parts.headers) {
                exchange::close(&mut response);
            }
            response
        }
        Ok(Entry::Absolute(authority)) => {
            let channel = Channel {
                gate,
                client,
                scheme: Scheme::Http,
                authority,
                framing,
                pulse,
                live,
                upgrade: Handover::default(),
            };
            exchange::serve(&channel, Request::from_parts(parts, body)).await
        }
        Err(refusal) => {
            let _exchanging = framing.exchanging();
            let id = gate.new_id();
            let target = parts.uri.to_string();
            let (method, target) = match unread {
                Some(_) => ("", None),
                None => (parts.method.as_str(), Some(target.as_str())),
            };
            note(&gate, &client, &id, &refusal, method, target);
            let mut response = refusal::answer(&refusal, &id, Shape::of(&parts.headers));
            // Who is asked for a token may show it on this connection, unless it may already have sent
            // something there that is no request.
            let leaves = classify::leaves_http(&parts.method, &parts.headers);
            if refusal.code != Code::TokenMissing || leaves {
                exchange::close(&mut response);
            }
            response
        }
    }
}

/// Where the configuration wants it so, a tunnel to an unlisted host is refused at the CONNECT; one
/// for ssh always is, since nobody would speak TLS in it.
fn on_connect(gate: &Gate, client: &Client, entry: Entry) -> Result<Entry, Refusal> {
    if let Entry::Connect(authority) = &entry
        && (!gate.config.limits.refuse_inside_tls || authority.port() == SSH)
        && let Some(refusal) = unlisted(client.policy(gate)?.as_ref(), authority)
    {
        return Err(refusal);
    }
    Ok(entry)
}

/// Why nothing in a tunnel there can be permitted: neither TLS nor, where a rule says so, plain HTTP.
fn unlisted(policy: &LoadedPolicy, authority: &Authority) -> Option<Refusal> {
    let plain = policy.policy.route(Scheme::Http, authority);
    match policy.policy.route(Scheme::Https, authority) {
        Routing::Refuse(refusal) if !matches!(plain, Routing::Route(_)) => Some(refusal),
        Routing::Refuse(_) | Routing::Route(_) => None,
    }
}

/// Serves what a client carries to `authority`: its first byte tells TLS from plain HTTP.
pub(crate) async fn within<IO>(
    gate: &Arc<Gate>,
    client: &Arc<Client>,
    authority: Authority,
    mut io: Rejoined<IO>,
    pulse: &Pulse,
    live: &Live,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if may_be_plain(gate, client, &authority) {
        let limit = gate.config.limits.handshake_timeout;
        match timeout(limit, io.peek()).await {
            Ok(Ok(Some(first))) if first.is_ascii_uppercase() => {
                return plain(gate, client, authority, io, pulse, live).await;
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                return unopened(gate, client, &authority, Some(Failure::Tls(error)));
            }
            Err(_) => return unopened(gate, client, &authority, Some(Failure::Late)),
        }
    }
    if let Err(failure) = legible(gate, &mut io).await {
        return unopened(gate, client, &authority, Some(failure));
    }
    intercept(gate, client, authority, io, pulse, live).await;
}

/// Reads a TLS hello ahead, as far as its server name, which must not be one that the TLS library
/// would take for none.
async fn legible<IO>(gate: &Gate, io: &mut Rejoined<IO>) -> Result<(), Failure>
where
    IO: AsyncRead + Unpin,
{
    let wanted = |bytes: &[u8]| match hello::read(bytes) {
        Hello::More(needed) => needed,
        Hello::Fine | Hello::Odd => 0,
    };
    let reading = io.gather(LONGEST_HELLO, wanted);
    match timeout(gate.config.limits.handshake_timeout, reading).await {
        Ok(Ok(())) if hello::read(&io.first) == Hello::Odd => Err(Failure::OtherName),
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::Tls(error)),
        Err(_) => Err(Failure::Late),
    }
}

/// Whether plain HTTP is worth reading there: a rule says so, or the port does, so that a refusal
/// can be read.
fn may_be_plain(gate: &Gate, client: &Client, authority: &Authority) -> bool {
    authority.port() == Scheme::Http.default_port()
        || client.policy(gate).is_ok_and(|policy| {
            let routing = policy.policy.route(Scheme::Http, authority);
            matches!(routing, Routing::Route(_))
        })
}

/// Plain HTTP, one judged request after the other.
async fn plain<IO>(
    gate: &Arc<Gate>,
    client: &Arc<Client>,
    authority: Authority,
    io: Rejoined<IO>,
    pulse: &Pulse,
    live: &Live,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (watched, framing) = watch(gate, io);
    let channel = Channel {
        gate: Arc::clone(gate),
        client: Arc::clone(client),
        scheme: Scheme::Http,
        authority,
        framing,
        pulse: pulse.clone(),
        live: live.clone(),
        upgrade: Handover::default(),
    };
    http1(&channel, watched).await;
}

/// TLS with the client, then judged requests: one after the other, or side by side.
async fn intercept<IO>(
    gate: &Arc<Gate>,
    client: &Arc<Client>,
    authority: Authority,
    io: Rejoined<IO>,
    pulse: &Pulse,
    live: &Live,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // What only a new connection needs has room of its own: the rest is held as long as the tunnel is.
    let accepting = Box::pin(handshake::accept(gate, client, &authority, io, pulse));
    let accepted = accepting.await;
    let (tls, http2) = match accepted {
        Ok(accepted) => accepted,
        Err(failure) => return unopened(gate, client, &authority, Some(failure)),
    };
    let mut channel = Channel {
        gate: Arc::clone(gate),
        client: Arc::clone(client),
        scheme: Scheme::Https,
        authority,
        framing: Flag::default(),
        pulse: pulse.clone(),
        live: live.clone(),
        upgrade: Handover::default(),
    };
    let authority = channel.authority.clone();
    let asked = if http2 {
        http2::serve(channel, tls).await
    } else {
        let (watched, framing) = watch(gate, tls);
        channel.framing = framing;
        http1(&channel, watched).await
    };
    if !asked {
        unopened(gate, client, &authority, None);
    }
}

/// Serves HTTP/1 until the connection ends, and the WebSocket that it may become. Whether anything
/// was asked on it.
async fn http1<IO>(channel: &Channel, io: Watched<IO>) -> bool
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        asked.store(true, Ordering::Relaxed);
        async move { Ok::<_, Infallible>(exchange::serve(channel, request).await) }
    });
    let served = server(&channel.gate)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades()
        .await;
    // How a client's connection ends otherwise is its own affair; what it asked for is on record.
    if let Err(error) = &served
        && error.is_parse()
    {
        unreadable(
            &channel.gate,
            &channel.client,
            Some(&channel.authority),
            error,
        );
        return true;
    }
    if let Some(socket) = channel.upgrade.take() {
        socket.run().await;
    }
    asked.load(Ordering::Relaxed)
}

/// A tunnel ended without a request in it. That is worth a record if something was wrong: the host
/// is not listed, the server name differs, or what came was not TLS.
fn unopened(
    gate: &Arc<Gate>,
    client: &Arc<Client>,
    authority: &Authority,
    failure: Option<Failure>,
) {
    let why_not = match client.policy(gate) {
        Ok(policy) => unlisted(&policy, authority),
        Err(refusal) => Some(refusal),
    };
    let refusal = match failure {
        Some(Failure::OtherName) => Some(Refusal::new(
            Code::SniMismatch,
            &format!("the TLS server name is not {}", authority.host()),
            "target, TLS server name and Host must name the same host",
        )),
        Some(Failure::Leaf(error)) => {
            tracing::error!(%error, "no leaf could be minted");
            Some(Refusal::new(
                Code::GateFailed,
                "no certificate could be minted",
                "see the gate's log",
            ))
        }
        Some(Failure::Tls(error)) if error.kind() == io::ErrorKind::InvalidData => {
            why_not.or_else(|| {
                Some(Refusal::new(
                    Code::MalformedRequest,
                    &format!("the tunnel did not carry TLS that the gate speaks: {error}"),
                    "only HTTP over TLS 1.2 or 1.3 is served; let the client trust the gate's CA",
                ))
            })
        }
        Some(Failure::Late) => why_not.or_else(|| {
            Some(Refusal::new(
                Code::ClientTimeout,
                "the TLS handshake was not finished in time",
                "let the client speak TLS after CONNECT",
            ))
        }),
        Some(Failure::Tls(_)) | None => why_not,
    };
    if let Some(refusal) = refusal {
        let target = authority.to_string();
        note(
            gate,
            client,
            &gate.new_id(),
            &refusal,
            "CONNECT",
            Some(&target),
        );
    }
}

/// Records a request that hyper could not read and has answered itself. Its error names the kind of
/// mistake and repeats nothing of the request.
fn unreadable(gate: &Gate, client: &Client, inside: Option<&Authority>, error: &hyper::Error) {
    if !error.is_parse() {
        return;
    }
    let refusal = Refusal::new(
        Code::MalformedRequest,
        &format!("the request could not be read: {error}"),
        "send a well-formed HTTP/1.1 request",
    );
    let target = inside.map(Authority::to_string);
    let method = if inside.is_some() { "CONNECT" } else { "" };
    note(
        gate,
        client,
        &gate.new_id(),
        &refusal,
        method,
        target.as_deref(),
    );
}

/// Records a refusal outside an exchange.
fn note(
    gate: &Gate,
    client: &Client,
    id: &str,
    refusal: &Refusal,
    method: &str,
    target: Option<&str>,
) {
    let mut record = client.record(RecordKind::Refusal, id);
    record.method =
        Some(method.chars().take(64).collect()).filter(|method: &String| !method.is_empty());
    record.authority = target
        .filter(|_| method == "CONNECT")
        .and_then(|target| Authority::parse(target).ok())
        .map(|authority| authority.to_string());
    if record.authority.is_none() {
        record.path = target.map(policy::record::redact_target);
    }
    record.verdict = Some(Verdict::Refuse);
    record.code = Some(refusal.code);
    record.rule.clone_from(&refusal.rule);
    record.reason = Some(refusal.text.clone());
    gate.refused(record);
}

/// HTTP/1.1 towards clients, with every bound set. The watcher keeps those of a head, and refuses in
/// words of the gate; hyper's are wider and only a second line.
fn server(gate: &Gate) -> http1::Builder {
    let limits = &gate.config.limits;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout.saturating_mul(2))
        .max_headers(limits.head_headers.saturating_add(1))
        .max_header_size(limits.head_bytes.saturating_mul(2))
        .half_close(false);
    builder
}

/// Puts the watcher in front of a connection.
fn watch<IO>(gate: &Gate, io: IO) -> (Watched<IO>, Flag) {
    let limits = &gate.config.limits;
    let bounds = Bounds {
        bytes: limits.head_bytes,
        fields: limits.head_headers,
    };
    let (watched, flag) = Watched::new(io, bounds);
    (watched.patient(limits.head_timeout), flag)
}
