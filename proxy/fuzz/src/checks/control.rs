//! Requests on the control socket.

use http::{Method, Uri};
use policy::grant::{OpenRun, RunId};

use crate::control::command::{Command, Extend};

/// The first line is method and target, the rest is the body. A body that is taken reads back as
/// itself, with identities that can be ones.
pub(crate) fn check(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (line, body) = match end {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, [].as_slice()),
    };
    let mut words = line.splitn(2, |byte| *byte == b' ');
    let method = Method::from_bytes(words.next().unwrap_or_default());
    let uri = Uri::try_from(words.next().unwrap_or_default());
    if let (Ok(method), Ok(uri)) = (method, uri)
        && let Ok(command) = Command::parse(&method, &uri)
    {
        match command {
            Command::Open(run) | Command::Extend(run) | Command::Close { run, .. } => {
                assert_eq!(RunId::parse(run.as_str()), Ok(run));
            }
            Command::Audit(filter) => assert!(filter.run.is_some() || filter.id.is_some()),
            Command::Runs
            | Command::Status
            | Command::Reload
            | Command::Events
            | Command::Metrics
            | Command::Checkpoint
            | Command::Canaries
            | Command::Allowances
            | Command::Holds => {}
            // Looked up as it is, among those that are there.
            Command::Hold(id) | Command::Approve(id) | Command::Deny(id) => {
                assert!(!id.contains('/'));
            }
        }
    }
    if let Ok(open) = serde_json::from_slice::<OpenRun>(body) {
        let uids = open.peer_uids;
        // Left out, it is nobody; written down, it is somebody.
        if !uids.is_nobody() {
            assert!(uids.first() > 0 && uids.count() > 0);
            let last = uids.first().checked_add(uids.count() - 1);
            assert!(last.is_some_and(|last| uids.contains(last) && last < u32::MAX));
        }
        assert!(!uids.contains(65_534) && !uids.contains(0));
        let written = serde_json::to_vec(&open).unwrap_or_default();
        let again = serde_json::from_slice::<OpenRun>(&written);
        let again = again.unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(again.grant, open.grant);
        assert_eq!(again.peer_uids, open.peer_uids);
        assert_eq!(again.token_sha256, open.token_sha256);
        assert_eq!((again.epoch, again.policy), (open.epoch, open.policy));
    }
    if let Ok(extend) = serde_json::from_slice::<Extend>(body) {
        let whole = matches!(body.trim_ascii().first(), Some(b'{' | b'['));
        assert!(
            whole,
            "{:?} is no object",
            (extend.epoch, extend.lease_seconds)
        );
    }
}
