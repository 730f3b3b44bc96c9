//! A panic at any point of serving a connection ends that connection, in an error: nobody else
//! notices, what was begun is on record with its end, and nothing of it is left.
//!
//! The gate's side has a thread of its own. Each look at the client's stream, also from within the
//! HTTP/2 library, and each event that the gate logs is a point, and one after the other panics.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Frame;
use policy::grant::{Grant, RunId};
use proxy::entrance::client::Client as Asker;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::HOST;
use super::modern::{Client, Modern, full, sent};
use super::stand::{Stand, connect, until};

const OLD: &[&str] = &["http/1.1"];
const NEW: &[&str] = &["h2"];
const UID: u32 = 1500;
const PATIENCE: Duration = Duration::from_secs(20);

/// Which point panics.
#[derive(Debug, Default)]
struct Fault {
    /// Points until then; zero: none does.
    left: AtomicUsize,
    hit: AtomicBool,
}

impl Fault {
    fn arm(&self, at: usize) {
        self.hit.store(false, Ordering::SeqCst);
        self.left.store(at, Ordering::SeqCst);
    }

    /// Whether it has panicked.
    fn disarm(&self) -> bool {
        self.left.store(0, Ordering::SeqCst);
        self.hit.load(Ordering::SeqCst)
    }

    fn point(&self) {
        // Only the gate's thread counts down.
        let left = self.left.load(Ordering::SeqCst);
        if left > 0 && !std::thread::panicking() {
            self.left.store(left - 1, Ordering::SeqCst);
            if left == 1 {
                self.hit.store(true, Ordering::SeqCst);
                panic!("the fault of a test");
            }
        }
    }
}

/// Hears the gate's events on its thread.
struct Hearing(Arc<Fault>);

impl tracing::Subscriber for Hearing {
    fn enabled(&self, about: &tracing::Metadata<'_>) -> bool {
        about.target().starts_with("proxy")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.point();
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The gate's end of a client's connection.
struct Faulty {
    io: DuplexStream,
    fault: Arc<Fault>,
}

impl AsyncRead for Faulty {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.fault.point();
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl AsyncWrite for Faulty {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fault.point();
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.fault.point();
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.fault.point();
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// The thread that the gate's side runs on, until this is dropped.
struct Side {
    handle: Handle,
    fault: Arc<Fault>,
    _end: mpsc::Sender<()>,
}

impl Side {
    fn new() -> Self {
        let fault = Arc::<Fault>::default();
        let (end, mut ended) = mpsc::channel(1);
        let (told, handle) = std::sync::mpsc::channel();
        let hearing = Hearing(Arc::clone(&fault));
        std::thread::spawn(move || {
            let _hears = tracing::subscriber::set_default(hearing);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            told.send(runtime.handle().clone()).unwrap();
            // Nothing is ever sent: it ends with its sender.
            let _ = runtime.block_on(ended.recv());
        });
        Self {
            handle: handle.recv().unwrap(),
            fault,
            _end: end,
        }
    }

    /// A connection that is served there, whose stream has points.
    fn open(&self, stand: &Stand) -> (DuplexStream, JoinHandle<()>) {
        self.open_with(stand, Arc::clone(&self.fault))
    }

    /// One whose stream has none.
    fn open_sound(&self, stand: &Stand) -> (DuplexStream, JoinHandle<()>) {
        self.open_with(stand, Arc::default())
    }

    fn open_with(&self, stand: &Stand, fault: Arc<Fault>) -> (DuplexStream, JoinHandle<()>) {
        let (ours, io) = tokio::io::duplex(64 * 1024);
        let run = RunId::parse(&format!("uid-{UID}")).unwrap();
        let grant = Grant::new("acme", "coder", None, run, "default").unwrap();
        let served = self.handle.spawn(proxy::tunnel::serve(
            Arc::clone(&stand.gate),
            Arc::new(Asker::of_uid(grant, UID)),
            Faulty { io, fault },
        ));
        (ours, served)
    }
}

/// One whole exchange on a connection of its own, with bodies that stream; nothing if it broke off.
async fn exchange(
    stand: &Stand,
    mut stream: DuplexStream,
    protocols: &[&str],
) -> Option<(StatusCode, Bytes)> {
    let head = format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    let answer = super::stand::response(&mut stream, true).await;
    if !answer.starts_with(b"HTTP/1.1 200") {
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
        return None;
    }
    let tls = stand.tls_offering(stream, HOST, protocols).await.ok()?;
    let mut client = Client::try_over(tls).await.ok()?;
    let (sender, body) = sent();
    for part in ["one ", "and ", "another"] {
        sender.send(Frame::data(Bytes::from(part))).await.unwrap();
    }
    drop(sender);
    let request = client.request("POST", HOST, "/v1/echo/5").body(body);
    let response = client.send(request.unwrap()).await.ok()?;
    let status = response.status();
    let body = response.into_body().collect().await.ok()?;
    Some((status, body.to_bytes()))
}

#[tokio::test]
async fn a_panic_at_any_point_ends_its_own_connection_and_nothing_else() {
    for (offered, served) in [(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)] {
        let case = format!("{offered:?} to {served:?}");
        let upstream = Modern::start(HOST, served).await;
        // A place that is not given back is missed by the next request.
        let limits =
            "idle_timeout_seconds = 600\nhead_timeout_seconds = 600\nexchanges_per_run = 2";
        // Without a credential nobody waits for a disk that others use too.
        let policy = upstream
            .policy(HOST, "")
            .replace("credential = \"api\"\n", "");
        let stand = upstream.stand_with_limits(&policy, limits);
        let side = Side::new();
        // Somebody who is there all the time.
        let (bystander, _) = side.open_sound(&stand);
        let tls = connect(bystander, &format!("{HOST}:443")).await;
        let tls = stand.tls_offering(tls, HOST, OLD).await.unwrap();
        let mut bystander = Client::over(tls).await;
        let (_idle, idle) = side.open_sound(&stand);
        bystander.get(HOST, "/v1/x").await;
        let left = Arc::strong_count(&stand.gate);
        let (mut at, mut broken) = (0, 0);
        loop {
            at += 1;
            let (stream, served) = side.open(&stand);
            side.fault.arm(at);
            let outcome = tokio::time::timeout(PATIENCE, exchange(&stand, stream, offered)).await;
            let outcome = outcome.unwrap_or_else(|_| panic!("{case}: hangs at {at}"));
            let ended = tokio::time::timeout(PATIENCE, served).await;
            let ended = ended.unwrap_or_else(|_| panic!("{case}: is still served at {at}"));
            let hit = side.fault.disarm();
            match &outcome {
                Some((status, body)) if *status == StatusCode::OK => {
                    assert_eq!(body, "one and another", "{case} at {at}");
                }
                // What panicked was not the client's connection but that to the upstream.
                Some((status, _)) => assert_eq!(*status, StatusCode::BAD_GATEWAY, "{case} at {at}"),
                None => assert!(hit, "{case} at {at}"),
            }
            broken += usize::from(outcome.is_none() && ended.is_err_and(|error| error.is_panic()));
            until(&format!("{case}: nothing is left of {at}"), || {
                Arc::strong_count(&stand.gate) <= left
            })
            .await;
            let (status, _, text) = bystander.get(HOST, "/v1/x").await;
            assert_eq!(status, StatusCode::OK, "{case} after {at}: {text}");
            if !hit {
                break;
            }
        }
        assert!(
            broken > 10,
            "{case}: only {broken} of {at} panicked in the middle"
        );
        assert!(!idle.is_finished(), "{case}: a silent connection goes on");
        let request = bystander
            .request("GET", HOST, "/v1/x")
            .body(full(Vec::new()));
        let last = bystander.send(request.unwrap()).await.unwrap();
        assert_eq!(last.status(), StatusCode::OK, "{case}");
        drop(last);
        until(&format!("{case}: what was begun has its end"), || {
            let log = stand.audit();
            let ids = |kind: &str| {
                let lines = log.iter().filter(|line| line["kind"] == kind);
                let mut ids: Vec<_> = lines.map(|line| line["id"].to_string()).collect();
                ids.sort();
                ids
            };
            ids("request").len() > at && ids("request") == ids("response")
        })
        .await;
        let log = stand.audit();
        let cut = log
            .iter()
            .filter(|line| line["reason"] == "cut before the end");
        assert!(cut.count() > 0, "{case}: a request that panicked says so");
    }
}

/// Who leaves while its request waits for the disk leaves a record with an end too.
#[tokio::test]
async fn who_leaves_while_the_record_is_written_leaves_no_open_record() {
    let upstream = Modern::start(HOST, OLD).await;
    let stand = upstream.stand(&upstream.policy(HOST, ""));
    let count = |kind: &str| {
        let log = stand.audit();
        log.iter().filter(|line| line["kind"] == kind).count()
    };
    for number in 1..=30 {
        let mut tls = stand.tunnel(HOST).await;
        let get = super::stand::get(HOST, "/v1/x");
        tls.write_all(get.as_bytes()).await.unwrap();
        tls.flush().await.unwrap();
        // The line can be read before the disk has it.
        until("the request is on record", || count("request") >= number).await;
        drop(tls);
    }
    until("each has its end", || count("response") == count("request")).await;
}
