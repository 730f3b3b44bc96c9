//! One gate of this process, with a log of its own.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::grant::{Grant, RunId};
use proxy::audit::{Audit, Settings, Workers};
use proxy::boundary::Boundary;
use proxy::ca::Minter;
use proxy::config::Config;
use proxy::credential::Vault;
use proxy::descriptors::Descriptors;
use proxy::entrance::client::Client;
use proxy::gate::{Gate, Parts};
use proxy::policies::Policies;
use proxy::runs::{Runs, RunsSettings};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::origin::{HOSTS, Origin};
use super::processors::{self, Side};

/// A secret as long as most.
pub(crate) const SECRET: &str = "canary-3f9a1c77e2b84d05a6-as-long-as-one";

/// How a request is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Both lines are written; there is no credential.
    Bare,
    /// With a credential, and no log at all.
    Off,
    /// With a credential; both lines are written, and nobody waits for the disk.
    Written,
    /// With a credential; the first line is on the disk before the request leaves.
    Durable,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "no credential",
            Self::Off => "credential, log off",
            Self::Written => "credential, not waited for",
            Self::Durable => "credential, durable",
        }
    }

    /// What its clients ask for.
    pub(crate) fn host(self) -> &'static str {
        match self {
            Self::Bare => HOSTS[1],
            Self::Off | Self::Written | Self::Durable => HOSTS[0],
        }
    }

    fn settings(self) -> Settings {
        let settings = Settings::default();
        match self {
            Self::Bare | Self::Durable => settings,
            Self::Off => settings.measured_without_log(),
            Self::Written => settings.measured_without_wait(),
        }
    }
}

pub(crate) struct Stand {
    pub(crate) way: Way,
    pub(crate) address: SocketAddr,
    pub(crate) gate: Arc<Gate>,
    _runtime: Runtime,
    _opened: mpsc::Receiver<proxy::runs::NewListener>,
}

impl Stand {
    /// Begins to serve below `directory`, with so many threads, and with this secret.
    pub(crate) fn new(
        way: Way,
        workers: usize,
        directory: &Path,
        origin: &Origin,
        secret: &str,
    ) -> Self {
        let config = configure(directory, origin, secret);
        std::thread::scope(|scope| {
            // The log's thread stays where the one is that opens it.
            let made = scope.spawn(|| {
                processors::keep_on(Side::Gate(workers));
                Self::serve(way, workers, config)
            });
            made.join().unwrap()
        })
    }

    fn serve(way: Way, workers: usize, config: Arc<Config>) -> Self {
        let policies = Arc::new(Policies::load(Arc::clone(&config)).unwrap());
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let mut settings = way.settings();
        settings.workers = Some(Workers::of(&mut runtime));
        let runtime = runtime
            .worker_threads(workers)
            .thread_name("gate")
            .enable_all()
            .build()
            .unwrap();
        if processors::LOG_APART.load(Ordering::Relaxed) {
            processors::keep_on(Side::Others);
        }
        let audit = Audit::open_with(&config.audit_directory, settings).unwrap();
        processors::keep_on(Side::Gate(workers));
        let audit = Arc::new(audit);
        let (sender, opened) = mpsc::channel(1);
        let settings = RunsSettings {
            directory: config.runs_directory.clone(),
            most: 8,
            lease: Duration::from_secs(60),
            own_uid: 0,
            tokens: Vec::new(),
            visible: proxy::harden::VisibleUids::read().unwrap(),
        };
        let runs = Runs::new(settings, Arc::clone(&policies), Arc::clone(&audit), sender).unwrap();
        let parts = Parts {
            minter: Arc::new(Minter::load(&config.ca_directory, 16).unwrap()),
            boundary: Arc::new(Boundary::new(config.boundary.clone())),
            vault: Arc::new(Vault::load(&config, None).unwrap()),
            runs: Arc::new(runs),
            descriptors: Arc::new(Descriptors::new(4096)),
            policies,
            audit,
            config,
        };
        let gate = Arc::new(Gate::new(parts).unwrap());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(accept(Arc::clone(&gate), listener));
        Self {
            way,
            address,
            gate,
            _runtime: runtime,
            _opened: opened,
        }
    }

    /// What its clients must trust.
    pub(crate) fn ca(&self) -> CertificateDer<'static> {
        self.gate.minter.certificate()
    }

    /// How often the log was synced.
    pub(crate) fn syncs(&self) -> u64 {
        self.gate.audit.tally().1.syncs
    }
}

async fn accept(gate: Arc<Gate>, listener: TcpListener) {
    let run = RunId::parse("0195f1f0-7d3a-7c3e-9b1a-6f1d2c3b4a59").unwrap();
    let grant = Grant::new("acme", "coder", Some("T-1"), run, "default").unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let client = Arc::new(Client::of_uid(grant.clone(), 1500));
        tokio::spawn(proxy::tunnel::serve(Arc::clone(&gate), client, stream));
    }
}

fn configure(directory: &Path, origin: &Origin, secret: &str) -> Arc<Config> {
    let path = |name: &str| directory.join(name).display().to_string();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    for name in ["", "ca", "runs"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    std::fs::write(path("secret"), secret).unwrap();
    for (name, bits) in [("secret", 0o600), ("ca", 0o700), ("runs", 0o711)] {
        mode(name, bits);
    }
    std::fs::write(path("upstream.pem"), &origin.ca).unwrap();
    let service = |id: &str, host: &str, credential: &str| {
        format!(
            "[[service]]\nid = \"{id}\"\nkind = \"http\"\nhost = \"{host}\"\naddress = \"{}\"\n\
             ca_file = \"{}\"\nallow = [\"GET,POST /v1/**\"]\n{credential}",
            origin.address,
            path("upstream.pem"),
        )
    };
    let policy = [
        service("api", HOSTS[0], "credential = \"api\"\n"),
        service("bare", HOSTS[1], ""),
    ];
    std::fs::write(path("policy.toml"), policy.concat()).unwrap();
    let text = format!(
        "[control]\nsocket = \"{0}/control.sock\"\n[[control.peer]]\nuser = \"0\"\n\
         profiles = [\"default\"]\n[runs]\ndirectory = \"{0}/runs\"\n[ca]\ndirectory = \"{0}/ca\"\n\
         [audit]\ndirectory = \"{0}/audit\"\n[boundary]\nexternal = \"a measurement\"\n\
         [profile.default]\npolicy = \"{0}/policy.toml\"\n[credential.api]\nkind = \"bearer\"\n\
         file = \"{0}/secret\"\nhosts = [\"{1}\"]\n[limits]\nrefuse_inside_tls = false\n",
        directory.display(),
        HOSTS[0]
    );
    let config = Config::parse(&text, Path::new("proxy.toml")).unwrap();
    proxy::ca::create(&config.ca_directory, None).unwrap();
    Arc::new(config)
}
