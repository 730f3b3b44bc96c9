//! The tasks of a running gate, and the signals that end it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::config::Listen;
use crate::control::{self, custody::Custody};
use crate::entrance;
use crate::entrance::token::{self, Guesses};
use crate::gate::Gate;
use crate::redirected;
use crate::resolver::{self, Resolver, Sockets};
use crate::runs::NewListener;

/// How often the boundary is looked at for the vault's sake; each request asks for itself too.
const BOUNDARY_EVERY: Duration = Duration::from_secs(1);

/// How often the certificate authority's directory and the clock are looked at.
const AUTHORITY_EVERY: Duration = Duration::from_secs(1);
/// A wall clock that differs by less has not been set, but drifted.
const JUMP: Duration = Duration::from_secs(60);

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

/// What `[listen]` asks for, bound.
#[derive(Debug, Default)]
pub(super) struct Entrances {
    tcp: Option<TcpListener>,
    unix: Vec<UnixListener>,
    token: Vec<TcpListener>,
    redirected: Vec<TcpListener>,
    resolver: Vec<Sockets>,
}

impl Entrances {
    /// Binds all of it; the error names the address that could not be had.
    pub(super) async fn bind(listen: &Listen) -> Result<Self, (String, std::io::Error)> {
        let named = |at: SocketAddr| move |error| (at.to_string(), error);
        let mut this = Self::default();
        if let Some(at) = listen.tcp {
            this.tcp = Some(TcpListener::bind(at).await.map_err(named(at))?);
        }
        for path in &listen.unix {
            let listener =
                control::bind(path).map_err(|error| (path.display().to_string(), error))?;
            this.unix.push(listener);
        }
        for at in &listen.token {
            let listener = TcpListener::bind(at).await.map_err(named(*at))?;
            this.token.push(listener);
        }
        for at in &listen.redirected {
            let listener = TcpListener::bind(at).await.map_err(named(*at))?;
            this.redirected.push(listener);
        }
        for at in &listen.resolver {
            let sockets = Sockets::bind(*at).await.map_err(named(*at))?;
            this.resolver.push(sockets);
        }
        Ok(this)
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
        entrances: Entrances,
        metrics: Option<TcpListener>,
        listeners: mpsc::Receiver<NewListener>,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(entrance::runs(Arc::clone(&gate), listeners));
        running.spawn(entrance::housekeeping(Arc::clone(&gate)));
        running.spawn(keep_vault(Arc::clone(&custody)));
        running.spawn(follow_credentials(Arc::clone(&custody), Arc::clone(&gate)));
        running.spawn(keep_authority(Arc::clone(&custody)));
        if let Some(tcp) = entrances.tcp {
            running.spawn(entrance::tcp(Arc::clone(&gate), tcp));
        }
        for listener in entrances.unix {
            running.spawn(entrance::unix(Arc::clone(&gate), listener));
        }
        let guesses = Arc::<Guesses>::default();
        for listener in entrances.token {
            let guesses = Arc::clone(&guesses);
            running.spawn(token::accept(Arc::clone(&gate), guesses, listener));
        }
        for listener in entrances.redirected {
            running.spawn(redirected::accept(Arc::clone(&gate), listener));
        }
        let names = Arc::new(Resolver::default());
        for sockets in entrances.resolver {
            let names = Arc::clone(&names);
            running.spawn(resolver::serve(Arc::clone(&gate), names, sockets));
        }
        if let (Some(listener), Some(config)) = (metrics, &custody.config.metrics) {
            let uids = config.uids.clone();
            running.spawn(crate::metrics::serve(listener, uids, Arc::clone(&custody)));
        }
        running.spawn(control::serve(control, custody, gate, stopping));
        Self { running, stop }
    }

    /// One more that runs as long.
    pub(super) fn add(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(task);
    }

    /// Returns when one of them has ended, as a panic or a socket that no longer accepts makes it do:
    /// half a gate must not look like a whole one.
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

/// Takes up a replaced certificate authority, and says when the wall clock has jumped: leaves and
/// the times of records go by it, while leases and deadlines do not.
async fn keep_authority(custody: Arc<Custody>) {
    let mut ticks = tokio::time::interval(AUTHORITY_EVERY);
    let (mut wall, mut steady) = (SystemTime::now(), Instant::now());
    let mut failing = false;
    loop {
        ticks.tick().await;
        let (now, passed) = (SystemTime::now(), steady.elapsed());
        if let Some(text) = jump(wall + passed, now) {
            custody.audit.event(&text);
            tracing::warn!("{text}");
        }
        (wall, steady) = (now, Instant::now());
        let minter = Arc::clone(&custody.minter);
        match tokio::task::spawn_blocking(move || minter.turn()).await {
            Ok(Ok(None)) => failing = false,
            Ok(Ok(Some(name))) => {
                failing = false;
                custody.audit.event(&format!("{name} signs from now on"));
                tracing::info!("{name} signs from now on");
            }
            Ok(Err(problem)) if !failing => {
                failing = true;
                tracing::error!("{problem}");
            }
            Ok(Err(_)) => {}
            Err(problem) => tracing::error!("the authority could not be looked at: {problem}"),
        }
    }
}

/// What is said of a wall clock that shows `found` where `expected` was due.
fn jump(expected: SystemTime, found: SystemTime) -> Option<String> {
    let (by, way) = match found.duration_since(expected) {
        Ok(by) => (by, "forward"),
        Err(back) => (back.duration(), "back"),
    };
    let text = format!("the wall clock was set {way} by {} s", by.as_secs());
    (by >= JUMP).then_some(text)
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

/// Takes up credentials whose source has changed, and sends the canary of each new value.
async fn follow_credentials(custody: Arc<Custody>, gate: Arc<Gate>) {
    let mut ticks = tokio::time::interval(BOUNDARY_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut rounds = custody.vault.rounds();
    loop {
        ticks.tick().await;
        // However a value came to be replaced, its copies go with its connections.
        let now = custody.vault.rounds();
        for (name, round) in &now {
            if rounds.get(name) != Some(round) {
                gate.upstream.forget_credential(name);
            }
        }
        rounds = now;
        // A sealed vault stays empty.
        if custody.boundary.check().is_err() {
            continue;
        }
        let following = Arc::clone(&custody);
        let followed = tokio::task::spawn_blocking(move || following.vault.follow()).await;
        let Ok((changed, failed)) = followed else {
            continue;
        };
        for name in changed {
            tracing::info!("credential {name}: a new value is in use");
            custody
                .audit
                .event(&format!("credential {name}: a new value is in use"));
        }
        for problem in failed {
            tracing::error!("{problem}; the former value stays in use if there is one");
            custody.audit.event(&format!(
                "a credential could not be read again; the former value stays in use if there is one: {problem}"
            ));
        }
        crate::credential::try_canaries(&gate, false).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attack: LIF-11
    #[test]
    fn a_clock_that_is_set_is_told_and_one_that_drifts_is_not() {
        let now = SystemTime::now();
        let day = Duration::from_secs(24 * 3600);
        let said = jump(now, now + day).unwrap();
        assert_eq!(said, "the wall clock was set forward by 86400 s");
        let said = jump(now, SystemTime::UNIX_EPOCH).unwrap();
        assert!(
            said.starts_with("the wall clock was set back by "),
            "{said}"
        );
        assert_eq!(jump(now, now + Duration::from_secs(1)), None);
    }
}
