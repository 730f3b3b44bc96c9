//! A gate in this process with one upstream behind it, and clients that speak to it in raw bytes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use policy::grant::{Grant, OpenRun, PeerUids, RunId};
use proxy::audit::Audit;
use proxy::boundary::Boundary;
use proxy::ca::Minter;
use proxy::config::{Config, Peer};
use proxy::credential::Vault;
use proxy::descriptors::Descriptors;
use proxy::entrance::client::Client;
use proxy::gate::{Gate, Parts};
use proxy::policies::Policies;
use proxy::runs::{NewListener, Run, Runs, RunsSettings};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::upstream::Upstream;

/// The secret that must never come back to a client.
pub(crate) const CANARY: &str = "canary-3f9a1c77e2b84d05a6";

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stand {
    pub(crate) gate: Arc<Gate>,
    listeners: mpsc::Receiver<NewListener>,
    dir: TempDir,
}

/// The usual policy: one credentialed API, one bare one, both at the upstream's address.
pub(crate) fn usual(upstream: &Upstream) -> String {
    let address = upstream.address;
    format!(
        r#"
version = 1
[[service]]
id = "api"
kind = "http"
host = "api.example.com"
address = "{address}"
ca_file = "CA_FILE"
credential = "api"
allow = ["* /v1/**"]

[[service]]
id = "bare"
kind = "http"
host = "bare.example.com"
address = "{address}"
pin = "{pin}"
allow = ["* /v1/**"]
"#,
        pin = upstream.pin
    )
}

impl Stand {
    pub(crate) fn new(upstream: &Upstream, policy: &str) -> Self {
        Self::with_limits(upstream, policy, "idle_timeout_seconds = 60")
    }

    /// With these lines under `[limits]`.
    pub(crate) fn with_limits(upstream: &Upstream, policy: &str, limits: &str) -> Self {
        let boundary = "external = \"a test without a network of its own\"";
        Self::with(upstream, policy, limits, boundary)
    }

    /// With these lines under `[limits]` and `[boundary]`.
    pub(crate) fn with(upstream: &Upstream, policy: &str, limits: &str, boundary: &str) -> Self {
        let bearer = "[credential.api]\nkind = \"bearer\"\nfile = \"DIR/secret\"\n\
             hosts = [\"api.example.com\"]\n";
        Self::made(
            upstream,
            policy,
            limits,
            boundary,
            bearer,
            CANARY.as_bytes(),
            &[],
        )
    }

    /// With these tables for the credential `api`, where `DIR` is the stand's directory, this secret
    /// in `DIR/secret` and this key for a store in `DIR/store.key`.
    pub(crate) fn with_credential(
        upstream: &Upstream,
        credential: &str,
        secret: &[u8],
        key: &[u8],
    ) -> Self {
        let boundary = "external = \"a test without a network of its own\"";
        let limits = "idle_timeout_seconds = 60";
        Self::made(
            upstream,
            &usual(upstream),
            limits,
            boundary,
            credential,
            secret,
            key,
        )
    }

    fn made(
        upstream: &Upstream,
        policy: &str,
        limits: &str,
        boundary: &str,
        credential: &str,
        secret: &[u8],
        key: &[u8],
    ) -> Self {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("ca_of_upstream.pem"), &upstream.ca).unwrap();
        std::fs::write(
            path("policy.toml"),
            policy.replace("CA_FILE", &path("ca_of_upstream.pem")),
        )
        .unwrap();
        for (name, bytes) in [("secret", secret), ("store.key", key)] {
            std::fs::write(path(name), bytes).unwrap();
            std::fs::set_permissions(path(name), PermissionsExt::from_mode(0o600)).unwrap();
        }
        for name in ["ca", "runs", "store"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::set_permissions(path("ca"), PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::set_permissions(path("runs"), PermissionsExt::from_mode(0o711)).unwrap();
        let text = format!(
            r#"
[control]
socket = "{control}"
[[control.peer]]
user = "0"
profiles = ["default"]
[runs]
directory = "{runs}"
[board]
socket = "{board}"
[ca]
directory = "{ca}"
[audit]
directory = "{audit}"
[boundary]
{boundary}
[profile.default]
policy = "{policy}"
{credential}
[limits]
{limits}
"#,
            control = path("control.sock"),
            runs = path("runs"),
            board = path("board.sock"),
            ca = path("ca"),
            audit = path("audit"),
            policy = path("policy.toml"),
            credential = credential.replace("DIR", &dir.path().display().to_string()),
        );
        let config = match Config::parse(&text, Path::new("proxy.toml")) {
            Ok(config) => Arc::new(config),
            Err(error) => panic!("{error}"),
        };
        proxy::ca::create(&config.ca_directory, None).unwrap();
        let policies = match Policies::load(Arc::clone(&config)) {
            Ok(policies) => Arc::new(policies),
            Err(error) => panic!("{error}"),
        };
        let audit = Arc::new(Audit::open(&config.audit_directory).unwrap());
        let (sender, listeners) = mpsc::channel(8);
        let settings = RunsSettings {
            directory: config.runs_directory.clone(),
            most: 8,
            lease: Duration::from_secs(60),
            own_uid: 0,
            tokens: Vec::new(),
            visible: proxy::harden::VisibleUids::read().unwrap(),
        };
        let runs = Runs::new(settings, Arc::clone(&policies), Arc::clone(&audit), sender).unwrap();
        let vault = match Vault::load(&config, None) {
            Ok(vault) => Arc::new(vault),
            Err(error) => panic!("{error}"),
        };
        let parts = Parts {
            minter: Arc::new(Minter::load(&config.ca_directory, 16).unwrap()),
            boundary: Arc::new(Boundary::new(config.boundary.clone())),
            policies,
            vault,
            audit,
            runs: Arc::new(runs),
            descriptors: Arc::new(Descriptors::new(1024)),
            config,
        };
        Self {
            gate: Arc::new(Gate::new(parts).unwrap()),
            listeners,
            dir,
        }
    }

    /// Replaces the policy's text and reloads.
    pub(crate) fn reload(&self, policy: &str) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let text = policy.replace("CA_FILE", &path("ca_of_upstream.pem"));
        std::fs::write(path("policy.toml"), text).unwrap();
        let reloaded = self.gate.policies.reload();
        assert!(reloaded.broken.is_empty(), "{:?}", reloaded.broken);
    }

    /// A file of the stand.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// The file that `ca_file` names.
    pub(crate) fn upstream_ca(&self) -> std::path::PathBuf {
        self.dir.path().join("ca_of_upstream.pem")
    }

    /// Where the board is expected to listen.
    pub(crate) fn board(&self) -> std::path::PathBuf {
        self.dir.path().join("board.sock")
    }

    /// Opens a run with this token for the board, and gives it.
    pub(crate) async fn run(&mut self, name: &str, token: Option<&str>) -> Arc<Run> {
        let id = RunId::parse(name).unwrap();
        let request = OpenRun {
            grant: Grant::new("acme", "coder", Some("T-1"), id.clone(), "default").unwrap(),
            epoch: 1,
            peer_uids: PeerUids::new(200_000, 1024).unwrap(),
            token_sha256: None,
            lease_seconds: 60,
            board_token: token.map(str::to_owned),
            policy: None,
        };
        self.gate.runs.open(&id, request, &peer()).await.unwrap();
        self.listeners.recv().await.unwrap().0
    }

    /// The audit log so far.
    pub(crate) fn audit(&self) -> Vec<serde_json::Value> {
        let path = self.dir.path().join("audit").join(proxy::audit::FILE);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // What is being written at this moment may end within a line.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The refusals in the audit log, by code.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let lines = self.audit();
        let refused = lines.iter().filter(|line| line["kind"] == "refusal");
        refused
            .map(|line| line["code"].as_str().unwrap().to_owned())
            .collect()
    }

    /// A connection of the agent with this uid.
    pub(crate) fn open(&self, uid: u32) -> DuplexStream {
        let run = RunId::parse(&format!("uid-{uid}")).unwrap();
        let grant = Grant::new("acme", "coder", None, run, "default").unwrap();
        self.open_as(Client::of_uid(grant, uid))
    }

    pub(crate) fn open_as(&self, client: Client) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(proxy::tunnel::serve(
            Arc::clone(&self.gate),
            Arc::new(client),
            theirs,
        ));
        ours
    }

    /// A tunnel to `host:443` with TLS for the same name.
    pub(crate) async fn tunnel(&self, host: &str) -> TlsStream<DuplexStream> {
        self.tunnel_of(1500, host).await
    }

    pub(crate) async fn tunnel_of(&self, uid: u32, host: &str) -> TlsStream<DuplexStream> {
        let stream = self.open(uid);
        let stream = connect(stream, &format!("{host}:443")).await;
        self.tls(stream, host).await.unwrap()
    }

    pub(crate) async fn tls<IO>(&self, stream: IO, name: &str) -> std::io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.tls_offering(stream, name, &[]).await
    }

    /// A tunnel of the agent with this uid to `host:443`, with TLS that offers these protocols.
    pub(crate) async fn tunnel_offering(
        &self,
        uid: u32,
        host: &str,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<DuplexStream>> {
        let stream = connect(self.open(uid), &format!("{host}:443")).await;
        self.tls_offering(stream, host, protocols).await
    }

    pub(crate) async fn tls_offering<IO>(
        &self,
        stream: IO,
        name: &str,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut roots = RootCertStore::empty();
        let certificate: CertificateDer<'static> = self.gate.minter.certificate();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

/// Who opens runs here.
pub(crate) fn peer() -> Peer {
    Peer {
        uid: 0,
        user: "root".to_owned(),
        profiles: vec!["default".to_owned()],
        inline: false,
        admin: true,
    }
}

/// Sends CONNECT and expects 200.
pub(crate) async fn connect<IO>(mut stream: IO, target: &str) -> IO
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let answer = ask(
        &mut stream,
        &format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stream
}

/// Sends raw bytes and reads one response: its head, and as much body as it states.
pub(crate) async fn ask<IO>(stream: &mut IO, request: &str) -> String
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    // A server that has answered and closed is no failure of the test.
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.flush().await;
    let bodyless = request.starts_with("HEAD ") || request.starts_with("CONNECT ");
    String::from_utf8_lossy(&response(stream, bodyless).await).into_owned()
}

/// Reads one response.
pub(crate) async fn response<IO>(stream: &mut IO, bodyless: bool) -> Vec<u8>
where
    IO: AsyncRead + Unpin,
{
    let reading = async {
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
                let length = text.split("content-length: ").nth(1);
                let length = length.map_or(0, |rest| {
                    rest.split("\r\n").next().unwrap().parse().unwrap()
                });
                if bodyless || bytes.len() >= head + 4 + length {
                    return bytes;
                }
            }
            match stream.read(&mut buffer).await {
                Ok(read) if read > 0 => bytes.extend_from_slice(&buffer[..read]),
                _ => return bytes,
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the gate answers")
}

/// Reads on until these words stand in what came, which must be before it ends.
pub(crate) async fn read_until<IO>(stream: &mut IO, words: &str)
where
    IO: AsyncRead + Unpin,
{
    let reading = async {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(words) {
            let read = stream.read_buf(&mut seen).await.unwrap();
            assert!(read > 0, "it ends before `{words}`");
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the words come");
}

/// A GET inside a tunnel to `host`.
pub(crate) fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// Waits until `done` holds.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, waiting).await.is_ok(),
        "{what}"
    );
}
