//! The gate as a value: everything a request meets on its way, shared by all connections. Nothing
//! in it is changed by a request; what a reload changes (policies, credentials) is asked for anew
//! by each request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use policy::authority::Host;
use policy::record::Record;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::allowance::{AllowanceView, Allowances, JournalError};
use crate::audit::Audit;
use crate::boundary::Boundary;
use crate::ca::{CaError, Minter};
use crate::config::Config;
use crate::credential::Vault;
use crate::descriptors::Descriptors;
use crate::entrance;
use crate::flood::Flood;
use crate::history::Histories;
use crate::holds::Holds;
use crate::inspect::spool::Room;
use crate::names::Names;
use crate::policies::Policies;
use crate::prices::{Prices, PricesError};
use crate::rates::Rates;
use crate::runs::Runs;
use crate::tasks::Tasks;
use crate::upstream::{Settings, Upstream};

/// Clients that are being told at one time why they are not served; others are closed.
const MOST_AWAY: usize = 64;
/// Beside the connections of clients that are known, this part of their number may be open that have
/// shown no token yet.
const UNNAMED_PART: usize = 8;

/// What custody hands to the data path.
#[allow(
    missing_debug_implementations,
    reason = "leads to secrets, which are never printed"
)]
pub struct Parts {
    pub config: Arc<Config>,
    pub policies: Arc<Policies>,
    pub vault: Arc<Vault>,
    pub minter: Arc<Minter>,
    pub audit: Arc<Audit>,
    pub runs: Arc<Runs>,
    pub boundary: Arc<Boundary>,
    pub descriptors: Arc<Descriptors>,
}

/// The running gate.
pub struct Gate {
    pub config: Arc<Config>,
    pub policies: Arc<Policies>,
    pub vault: Arc<Vault>,
    pub minter: Arc<Minter>,
    pub audit: Arc<Audit>,
    pub runs: Arc<Runs>,
    pub boundary: Arc<Boundary>,
    pub descriptors: Arc<Descriptors>,
    pub upstream: Upstream,
    pub names: Names,
    /// Room for bodies that are read whole before they are judged.
    pub room: Room,
    /// Requests that wait for a person.
    pub holds: Holds,
    pub allowances: Arc<Allowances>,
    pub prices: Prices,
    pub rates: Rates,
    /// What is known of repositories that refs must move forward in.
    pub histories: Histories,
    /// Tasks that answers have named.
    pub tasks: Tasks,
    tls: ServerConfig,
    doors: Arc<Mutex<Doors>>,
    unnamed: Arc<Mutex<Doors>>,
    exchanges: Arc<Mutex<Doors>>,
    flood: Flood,
    away: Arc<Semaphore>,
    instance: u32,
    next: AtomicU64,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// Why a gate could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("preparing TLS towards clients")]
    Tls(#[source] rustls::Error),
    #[error(transparent)]
    Prices(#[from] PricesError),
    #[error(transparent)]
    Allowances(#[from] JournalError),
}

impl Gate {
    /// Puts the gate together. Reads the system's roots and resolver configuration; opens nothing.
    pub fn new(parts: Parts) -> Result<Self, GateError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let limits = &parts.config.limits;
        let settings = Settings::of(limits, parts.config.board_socket.clone());
        let tls = client_side(&provider).map_err(GateError::Tls)?;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // Only to tell the ids of one start from those of another; the low bits of the clock do.
        let allowance = &parts.config.allowance;
        let prices = Prices::load(allowance.prices.as_deref(), allowance.unknown_model)?;
        let limits = allowance.limits.clone();
        let allowances = Allowances::open(limits, parts.config.allowance_directory())?;
        let instance = u32::try_from(since.as_millis() / 100 % u128::from(u32::MAX)).unwrap_or(0);
        Ok(Self {
            upstream: Upstream::new(settings, provider, Arc::clone(&parts.descriptors)),
            names: Names::new(parts.config.limits.new_names),
            holds: Holds::default(),
            room: Room::new(parts.config.limits.inspected_bytes),
            allowances: Arc::new(allowances),
            prices,
            rates: Rates::default(),
            histories: Histories::new(parts.config.history_directory()),
            tasks: Tasks::default(),
            config: parts.config,
            policies: parts.policies,
            vault: parts.vault,
            minter: parts.minter,
            audit: parts.audit,
            runs: parts.runs,
            boundary: parts.boundary,
            descriptors: parts.descriptors,
            tls,
            doors: Arc::default(),
            unnamed: Arc::default(),
            exchanges: Arc::default(),
            flood: Flood::default(),
            away: Arc::new(Semaphore::new(MOST_AWAY)),
            instance,
            next: AtomicU64::new(1),
        })
    }

    /// A new id for a request, unique over restarts, which joins its audit lines and is shown to
    /// the agent.
    pub fn new_id(&self) -> String {
        format!(
            "r{:x}-{}",
            self.instance,
            self.next.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// Records a refusal, or counts it where too many are alike. A refusal is told even if the log
    /// is away: nothing left through it.
    pub fn refused(&self, record: Record) {
        self.refused_from(record, None);
    }

    /// The same of a client of whom it is only known where it is.
    pub fn refused_from(&self, record: Record, place: Option<IpAddr>) {
        self.write_refusals(self.flood.admit(record, place, Instant::now()));
    }

    /// Writes the counts of refusals that were not written out, to be called now and then.
    pub fn settle_refusals(&self) {
        self.write_refusals(self.flood.settle(Instant::now()));
    }

    /// Writes every such count, for the end.
    pub fn settle_all_refusals(&self) {
        self.write_refusals(self.flood.settle_all());
    }

    fn write_refusals(&self, lines: Vec<Record>) {
        for line in lines {
            if let Err(error) = self.audit.append(line) {
                tracing::error!(%error, "a refusal could not be recorded");
            }
        }
    }

    /// A place for telling one client why it is not served; without one it is just closed.
    pub fn place_to_turn_away(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.away).try_acquire_owned().ok()
    }

    /// TLS settings for a client that opened a tunnel to `host`: a leaf for exactly that host,
    /// whatever it offers, and HTTP/2 or HTTP/1.1 but not both.
    pub fn leaf(&self, host: &Host, http2: bool) -> Result<Arc<ServerConfig>, CaError> {
        let mut config = self.tls.clone();
        if http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        config.cert_resolver = Arc::new(Only(self.minter.leaf(host)?));
        Ok(Arc::new(config))
    }

    /// What everybody whose limits are known has taken, and whoever else was counted.
    pub fn allowance_view(&self) -> Vec<AllowanceView> {
        let runs = self.runs.granted();
        let known = self.config.listen.iter().flat_map(entrance::grants);
        let askers: Vec<_> = runs
            .into_iter()
            .chain(known.map(|grant| (grant, Vec::new())))
            .collect();
        self.allowances.view(&askers)
    }

    /// How many connections of clients are open.
    pub fn connections(&self) -> usize {
        self.doors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .total
    }

    /// Lets one more connection of `owner` in, unless it or the gate has too many already.
    pub fn admit(&self, owner: &Arc<str>) -> Option<Admission> {
        let limits = &self.config.limits;
        Doors::enter(
            &self.doors,
            owner,
            limits.connections,
            limits.connections_per_run,
        )
    }

    /// Lets one more connection in that has shown no token yet, from this place, unless there are too
    /// many such connections from there or in all. They take nothing of what is for clients that are
    /// known.
    pub fn admit_unnamed(&self, place: IpAddr) -> Option<Admission> {
        let limits = &self.config.limits;
        let most = (limits.connections / UNNAMED_PART).max(1);
        let owner = place.to_string().into();
        Doors::enter(&self.unnamed, &owner, most, limits.connections_per_run)
    }

    /// Lets one more exchange of `owner` begin, unless it has too many under way. Connections do not
    /// bound them: one of HTTP/2 carries many, and each may need a connection of its own upstream.
    pub fn begin(&self, owner: &Arc<str>) -> Option<Admission> {
        let most = self.config.limits.exchanges_per_run;
        Doors::enter(&self.exchanges, owner, usize::MAX, most)
    }
}

#[derive(Debug, Default)]
struct Doors {
    by_owner: HashMap<Arc<str>, usize>,
    total: usize,
}

impl Doors {
    /// One more of `owner`, unless there are `most` or it has `most_of_one`.
    fn enter(
        doors: &Arc<Mutex<Self>>,
        owner: &Arc<str>,
        most: usize,
        most_of_one: usize,
    ) -> Option<Admission> {
        let mut inside = doors.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = inside.by_owner.get(owner).copied().unwrap_or_default();
        if inside.total >= most || of_one >= most_of_one {
            return None;
        }
        inside.by_owner.insert(Arc::clone(owner), of_one + 1);
        inside.total += 1;
        Some(Admission {
            doors: Arc::clone(doors),
            owner: Arc::clone(owner),
        })
    }
}

/// One admitted connection, or one exchange under way; leaving is dropping.
#[derive(Debug)]
pub struct Admission {
    doors: Arc<Mutex<Doors>>,
    owner: Arc<str>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.total = doors.total.saturating_sub(1);
        if let Some(count) = doors.by_owner.get_mut(&self.owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                doors.by_owner.remove(&self.owner);
            }
        }
    }
}

/// Presents one leaf, decided by the tunnel and not by what the client says in its hello.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Nothing;

impl ResolvesServerCert for Nothing {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// What every client is offered: TLS 1.2 and 1.3.
fn client_side(provider: &Arc<CryptoProvider>) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Nothing));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.send_tls13_tickets = 1;
    Ok(config)
}
