//! The tasks of a running gate, and the signals that end it.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::control::{self, custody::Custody};
use crate::entrance;
use crate::gate::Gate;
use crate::runs::NewListener;

/// How often the boundary is looked at for the vault's sake; each request asks for itself too.
const BOUNDARY_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Reloads on SIGHUP; returns on SIGTERM and SIGINT.
    pub(super) async fn until_stop(&mut self, custody: &Arc<Custody>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {
                    let custody = Arc::clone(custody);
                    // It says itself what came of it.
                    let reloaded = tokio::task::spawn_blocking(move || custody.reload()).await;
                    if let Err(problem) = reloaded {
                        tracing::error!("the reload failed: {problem}");
                    }
                }
            }
        }
    }
}

/// What runs as long as the gate does.
pub(super) struct Tasks {
    running: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Tasks {
    pub(super) fn spawn(
        custody: Arc<Custody>,
        gate: Arc<Gate>,
        control: UnixListener,
        tcp: Option<TcpListener>,
        metrics: Option<TcpListener>,
        listeners: mpsc::Receiver<NewListener>,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(entrance::runs(Arc::clone(&gate), listeners));
        running.spawn(entrance::housekeeping(Arc::clone(&gate)));
        running.spawn(keep_vault(Arc::clone(&custody)));
        if let Some(tcp) = tcp {
            running.spawn(entrance::tcp(gate, tcp));
        }
        if let (Some(listener), Some(config)) = (metrics, &custody.config.metrics) {
            let uids = config.uids.clone();
            running.spawn(crate::metrics::serve(listener, uids, Arc::clone(&custody)));
        }
        running.spawn(control::serve(control, custody, stopping));
        Self { running, stop }
    }

    /// Returns when one of them has ended, which only a panic makes it do: half a gate must not
    /// look like a whole one.
    pub(super) async fn one_ended(&mut self) {
        if let Some(Err(problem)) = self.running.join_next().await {
            tracing::error!("a part of the gate failed: {problem}");
        }
    }

    /// Lets nobody in any more, gives what is in flight a little time, and returns.
    pub(super) async fn stop(mut self, gate: &Gate, drain: Duration) {
        // Tells the control connections too; they are tasks of their own.
        self.stop.send_replace(true);
        self.running.abort_all();
        let deadline = tokio::time::Instant::now() + drain;
        while gate.connections() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        gate.settle_all_refusals();
    }
}

/// Empties the vault while the boundary is not proven, and fills it again when it is.
async fn keep_vault(custody: Arc<Custody>) {
    let mut proven = custody.boundary.check().is_ok();
    let mut ticks = tokio::time::interval(BOUNDARY_EVERY);
    loop {
        ticks.tick().await;
        let found = custody.boundary.check();
        match (&found, proven) {
            (Err(problem), true) => {
                custody.vault.seal();
                custody.audit.event(&format!("serving nothing: {problem}"));
                tracing::error!("{problem}; serving nothing until it is proven");
            }
            (Ok(_), false) => {
                let filling = Arc::clone(&custody);
                let filled = tokio::task::spawn_blocking(move || filling.vault.reload()).await;
                for problem in filled.into_iter().flatten() {
                    tracing::error!("{problem}");
                }
                custody.audit.event("the boundary is proven");
                tracing::info!("the boundary is proven");
            }
            // Again, since a reload may have filled it meanwhile.
            (Err(_), false) => custody.vault.seal(),
            (Ok(_), true) => {}
        }
        proven = found.is_ok();
    }
}
