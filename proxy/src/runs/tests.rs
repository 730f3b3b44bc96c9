use std::os::unix::fs::PermissionsExt;

use policy::grant::{Grant, PeerUids};

use super::*;
use crate::config::Config;

const POLICY: &str = "version = 1\n[[service]]\nkind = \"http\"\nhost = \"api.example.com\"\n\
                      allow = [\"GET /**\"]\n";

struct Fixture {
    _directory: tempfile::TempDir,
    directory: PathBuf,
    policies: Arc<Policies>,
    audit: Arc<Audit>,
    runs: Arc<Runs>,
    listeners: mpsc::Receiver<NewListener>,
}

impl Fixture {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let policy = keep.path().join("default.toml");
        std::fs::write(&policy, POLICY).unwrap();
        let text = format!(
            "[control]\nsocket = \"/c\"\n[runs]\ndirectory = \"/r\"\n[ca]\ndirectory = \"/a\"\n\
             [audit]\ndirectory = \"/l\"\n[boundary]\nexternal = \"test\"\n\
             [profile.default]\npolicy = \"{}\"\n",
            policy.display()
        );
        let config = Config::parse(&text, Path::new("proxy.toml")).unwrap();
        let policies = Arc::new(Policies::load(Arc::new(config)).unwrap());
        let audit = Arc::new(Audit::open(&keep.path().join("audit")).unwrap());
        let directory = keep.path().join("runs");
        let (runs, listeners) = runs(&directory, &policies, &audit);
        Self {
            _directory: keep,
            directory,
            policies,
            audit,
            runs,
            listeners,
        }
    }

    /// As a restarted process would begin.
    fn restart(&mut self) {
        (self.runs, self.listeners) = runs(&self.directory, &self.policies, &self.audit);
    }

    async fn open(&self, request: OpenRun) -> Result<OpenedRun, RunError> {
        self.runs.open(&id(), request, &peer(0)).await
    }
}

fn runs(
    directory: &Path,
    policies: &Arc<Policies>,
    audit: &Arc<Audit>,
) -> (Arc<Runs>, mpsc::Receiver<NewListener>) {
    let (sender, listeners) = mpsc::channel(16);
    let settings = RunsSettings {
        directory: directory.to_owned(),
        most: 2,
        lease: Duration::from_secs(3600),
        own_uid: 990,
        visible: VisibleUids::parse("0 0 1000000"),
        tokens: vec![TokenDigest::new([1; 32])],
    };
    let runs = Runs::new(settings, Arc::clone(policies), Arc::clone(audit), sender).unwrap();
    (Arc::new(runs), listeners)
}

fn id() -> RunId {
    RunId::parse("run-1").unwrap()
}

fn peer(uid: u32) -> Peer {
    Peer {
        uid,
        user: uid.to_string(),
        profiles: vec!["default".to_owned()],
        inline: false,
        admin: false,
    }
}

fn request(epoch: u64) -> OpenRun {
    OpenRun {
        grant: Grant::new("acme", "coder", Some("T-1"), id(), "default").unwrap(),
        epoch,
        peer_uids: PeerUids::new(100_000, 1024).unwrap(),
        token_sha256: None,
        lease_seconds: 60,
        board_token: Some("token".to_owned()),
        policy: None,
    }
}

#[tokio::test]
async fn opening_makes_a_socket_and_is_idempotent() {
    let mut fixture = Fixture::new();
    let opened = fixture.open(request(1)).await.unwrap();
    let (run, _listener) = fixture.listeners.recv().await.unwrap();
    assert_eq!(run.board_token.as_ref().unwrap().expose(), b"token");
    let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&opened.socket_dir), 0o711);
    assert_eq!(mode(&opened.socket), 0o666);
    assert!(
        tokio::net::UnixStream::connect(&opened.socket)
            .await
            .is_ok()
    );

    assert_eq!(fixture.open(request(1)).await.unwrap(), opened);
    assert!(fixture.listeners.try_recv().is_err(), "no second listener");
    assert!(Arc::ptr_eq(&run, &fixture.runs.get(&id()).unwrap()));

    let mut other = request(1);
    other.board_token = Some("another".to_owned());
    assert!(matches!(
        fixture.open(other).await,
        Err(RunError::Conflict { .. })
    ));
}

#[tokio::test]
async fn an_ended_epoch_never_opens_again_also_after_a_restart() {
    let mut fixture = Fixture::new();
    fixture.open(request(3)).await.unwrap();
    let (run, _listener) = fixture.listeners.recv().await.unwrap();
    let mut closed = run.closed();
    assert!(fixture.runs.close(&id(), 3, &peer(0)).unwrap());
    assert!(closed.wait_for(|closed| *closed).await.is_ok());
    assert!(run.is_closed());
    assert!(
        !fixture.runs.close(&id(), 3, &peer(0)).unwrap(),
        "again is no error"
    );
    assert!(fixture.runs.get(&id()).is_none());
    assert!(!fixture.directory.join("run-1").exists());

    for epoch in [1, 2, 3] {
        let refused = fixture.open(request(epoch)).await;
        assert!(
            matches!(refused, Err(RunError::Ended { next: 4, .. })),
            "{epoch}"
        );
    }
    fixture.restart();
    assert!(matches!(
        fixture.open(request(3)).await,
        Err(RunError::Ended { .. })
    ));
    assert!(fixture.open(request(4)).await.is_ok(), "control");
}

#[tokio::test]
async fn grants_are_not_kept_over_a_restart_but_directories_are() {
    use std::os::unix::fs::MetadataExt;
    let mut fixture = Fixture::new();
    let opened = fixture.open(request(1)).await.unwrap();
    let inode = std::fs::metadata(&opened.socket_dir).unwrap().ino();
    fixture.restart();
    assert!(fixture.runs.get(&id()).is_none());
    let again = fixture.open(request(1)).await.unwrap();
    assert_eq!(again, opened);
    assert_eq!(std::fs::metadata(&opened.socket_dir).unwrap().ino(), inode);
    let (_run, listener) = fixture.listeners.recv().await.unwrap();
    let (connected, accepted) = tokio::join!(
        tokio::net::UnixStream::connect(&opened.socket),
        listener.accept()
    );
    assert!(connected.is_ok() && accepted.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_extends_ends_the_run() {
    let mut fixture = Fixture::new();
    fixture.open(request(1)).await.unwrap();
    let (run, _listener) = fixture.listeners.recv().await.unwrap();
    let mut closed = run.closed();

    tokio::time::sleep(Duration::from_secs(50)).await;
    let view = fixture.runs.extend(&id(), 1, None, &peer(0)).unwrap();
    assert_eq!(view.lease_seconds_left, 60);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!run.is_closed(), "extended");

    tokio::time::timeout(Duration::from_secs(11), closed.wait_for(|closed| *closed))
        .await
        .unwrap()
        .unwrap();
    assert!(fixture.runs.get(&id()).is_none());
    assert!(matches!(
        fixture.runs.extend(&id(), 1, None, &peer(0)),
        Err(RunError::NotOpen { .. })
    ));
    assert!(matches!(
        fixture.open(request(1)).await,
        Err(RunError::Ended { .. })
    ));
    let directory = fixture.directory.join("run-1");
    assert!(directory.is_dir() && !directory.join("gate.sock").exists());
}

#[tokio::test]
async fn a_higher_epoch_takes_over_and_a_lower_one_is_refused() {
    let mut fixture = Fixture::new();
    fixture.open(request(2)).await.unwrap();
    let (former, _listener) = fixture.listeners.recv().await.unwrap();
    let opened = fixture.open(request(5)).await.unwrap();
    assert!(former.is_closed());
    assert_eq!(fixture.runs.get(&id()).unwrap().epoch, 5);
    assert!(Path::new(&opened.socket).exists());
    assert!(matches!(
        fixture.open(request(4)).await,
        Err(RunError::Ended { .. })
    ));
    let late = fixture.runs.close(&id(), 2, &peer(0));
    assert!(
        matches!(late, Err(RunError::Conflict { .. })),
        "a late close of the old epoch"
    );
    assert!(fixture.runs.get(&id()).is_some());
}

#[tokio::test]
async fn a_peer_opens_only_what_it_may() {
    let fixture = Fixture::new();
    let mut stranger = peer(1);
    stranger.profiles.clear();
    let profile = fixture.runs.open(&id(), request(1), &stranger).await;
    assert!(matches!(profile, Err(RunError::Profile { .. })));
    let mut inline = request(1);
    inline.policy = Some(POLICY.to_owned());
    let mut own_uid = request(1);
    own_uid.peer_uids = PeerUids::new(900, 100).unwrap();
    let mut unmapped = request(1);
    unmapped.peer_uids = PeerUids::new(999_990, 20).unwrap();
    let unmapped = fixture.runs.open(&id(), unmapped, &peer(1)).await;
    assert!(matches!(unmapped, Err(RunError::Unmapped)));
    let mut long = request(1);
    long.lease_seconds = 4000;
    let refused = |result: Result<OpenedRun, RunError>| result.unwrap_err();
    let inlined = fixture.runs.open(&id(), inline.clone(), &peer(1)).await;
    assert!(matches!(refused(inlined), RunError::Inline { .. }));
    let own = fixture.runs.open(&id(), own_uid, &peer(1)).await;
    assert!(matches!(refused(own), RunError::OwnUid));
    let long = fixture.runs.open(&id(), long, &peer(1)).await;
    assert!(matches!(refused(long), RunError::Lease { .. }));
    let other = RunId::parse("run-2").unwrap();
    let mismatch = fixture.runs.open(&other, request(1), &peer(1)).await;
    assert!(matches!(refused(mismatch), RunError::Mismatch { .. }));
    // The control, and the run then belongs to who opened it.
    let mut may = peer(1);
    may.inline = true;
    fixture.runs.open(&id(), inline, &may).await.unwrap();
    assert!(matches!(
        fixture.runs.close(&id(), 1, &peer(2)),
        Err(RunError::NotYours { .. })
    ));
    let mut admin = peer(2);
    admin.admin = true;
    assert!(fixture.runs.close(&id(), 1, &admin).unwrap());
}

#[tokio::test]
async fn the_number_of_runs_is_bounded() {
    let fixture = Fixture::new();
    for at in 0..3 {
        let run = RunId::parse(&format!("run-{at}")).unwrap();
        let mut request = request(1);
        request.grant.run = run.clone();
        let opened = fixture.runs.open(&run, request, &peer(0)).await;
        assert_eq!(opened.is_ok(), at < 2, "{at}");
    }
    assert_eq!(fixture.runs.views().len(), 2);
}

#[tokio::test]
async fn a_reload_reaches_open_runs() {
    let mut fixture = Fixture::new();
    fixture.open(request(1)).await.unwrap();
    let (run, _listener) = fixture.listeners.recv().await.unwrap();
    let before = run.policy().hash.clone();
    let path = fixture.policies.view()["default"].path.clone();
    std::fs::write(path, "version = 1\n").unwrap();
    assert_eq!(fixture.policies.reload().changed, ["default"]);
    assert_ne!(run.policy().hash, before);
    assert!(run.policy().policy.services().is_empty());
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_not_used() {
    let fixture = Fixture::new();
    let target = fixture.directory.join("elsewhere");
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, fixture.directory.join("run-1")).unwrap();
    assert!(matches!(
        fixture.open(request(1)).await,
        Err(RunError::Socket { .. })
    ));
    std::fs::remove_file(fixture.directory.join("run-1")).unwrap();
    assert!(fixture.open(request(1)).await.is_ok(), "control");
}

fn request_of(run: &str, epoch: u64, token: u8) -> (RunId, OpenRun) {
    let id = RunId::parse(run).unwrap();
    let mut request = request(epoch);
    request.grant.run = id.clone();
    request.token_sha256 = Some(TokenDigest::new([token; 32]));
    (id, request)
}

/// Whatever keeps a later epoch from opening, the former one goes on.
#[tokio::test]
async fn an_epoch_that_cannot_open_ends_nothing() {
    let mut fixture = Fixture::new();
    let (second, request) = request_of("run-2", 1, 2);
    fixture.runs.open(&second, request, &peer(0)).await.unwrap();
    let (first, request) = request_of("run-1", 1, 3);
    fixture.runs.open(&first, request, &peer(0)).await.unwrap();
    let former = fixture.runs.get(&first).unwrap();
    for (why, token) in [("another run's", 2), ("the configuration's", 1)] {
        let (_, request) = request_of("run-1", 2, token);
        let refused = fixture.runs.open(&first, request, &peer(0)).await;
        assert!(matches!(refused, Err(RunError::TokenTaken)), "{why}");
        assert!(!former.is_closed(), "{why}");
        assert!(Path::new(&former.socket).exists(), "{why}");
    }
    // The control, with its own token and though as many runs are open as may be.
    let (_, request) = request_of("run-1", 2, 3);
    fixture.runs.open(&first, request, &peer(0)).await.unwrap();
    assert!(former.is_closed());
    let (third, request) = request_of("run-3", 1, 4);
    let full = fixture.runs.open(&third, request, &peer(0)).await;
    assert!(matches!(full, Err(RunError::Full { .. })));
    assert!(fixture.listeners.recv().await.is_some());
}

#[tokio::test]
async fn the_token_of_a_configured_agent_is_no_runs_token() {
    let fixture = Fixture::new();
    let (id, request) = request_of("run-1", 1, 1);
    let refused = fixture.runs.open(&id, request, &peer(0)).await;
    assert!(matches!(refused, Err(RunError::TokenTaken)));
    let (id, request) = request_of("run-1", 1, 2);
    fixture.runs.open(&id, request, &peer(0)).await.unwrap();
    assert!(
        fixture.runs.by_token(&TokenDigest::new([2; 32])).is_some(),
        "control"
    );
}

#[tokio::test]
async fn the_run_of_a_uid_is_known_as_long_as_it_is_open() {
    let fixture = Fixture::new();
    fixture.open(request(1)).await.unwrap();
    let run = |uid| fixture.runs.by_uid(uid).map(|run| run.id().clone());
    assert_eq!(run(100_000), Some(id()));
    assert_eq!(run(101_023), Some(id()));
    assert_eq!((run(99_999), run(101_024)), (None, None));
    fixture.runs.close(&id(), 1, &peer(0)).unwrap();
    assert_eq!(run(100_000), None);
}
