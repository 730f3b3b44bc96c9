//! The ways in: a loopback TCP port and unix sockets, where the kernel is asked whose socket it is, and one unix
//! socket per run, whose peer must be of the run's uid range. A client that the kernel does not
//! vouch for is answered once and closed; agents on other machines come in by [`token`].

pub mod client;
pub mod pulse;
pub mod token;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use policy::grant::{Grant, RunId};
use policy::record::{Entrance, Record, RecordKind, Verdict};
use policy::{Code, Refusal};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::client::Client;
use crate::config::{Identity, Listen};
use crate::gate::Gate;
use crate::identify;
use crate::runs::Run;
use crate::tunnel;

/// Pause after an accept that failed for lack of descriptors or memory.
const BREATH: Duration = Duration::from_millis(50);

/// What somebody sends who is turned away is read in pieces of this size. It has no room in a task, of which
/// there is one for each who is served.
const IGNORED: usize = 8192;

/// Accepts on the loopback port until the task is dropped.
pub async fn tcp(gate: Arc<Gate>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let gate = Arc::clone(&gate);
                // Asked at once: the answer is only good while the client holds its end open.
                let owner = stream.local_addr().map_err(identify::IdentifyError::Kernel);
                let owner = owner.and_then(|local| identify::tcp_peer(peer, local));
                tokio::spawn(async move { tcp_client(gate, stream, owner).await });
            }
            Err(error) if is_dead(&error) => return gone(&error),
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts on a unix socket for agents that are known by their uid, until the task is dropped.
pub async fn unix(gate: Arc<Gate>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move { unix_client(gate, stream).await });
            }
            Err(error) if is_dead(&error) => return gone(&error),
            Err(error) => pause(&error).await,
        }
    }
}

/// Serves each run's socket as it is opened, until the channel closes, one of them no longer accepts,
/// or the task is dropped; no socket is accepted on after that.
pub async fn runs(gate: Arc<Gate>, mut opened: mpsc::Receiver<(Arc<Run>, UnixListener)>) {
    let mut sockets = JoinSet::new();
    loop {
        tokio::select! {
            new = opened.recv() => match new {
                Some((run, listener)) => {
                    sockets.spawn(run_socket(Arc::clone(&gate), run, listener));
                }
                None => break,
            },
            Some(ended) = sockets.join_next() => match ended {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => tracing::error!(%error, "a run's socket is no longer served"),
            },
        }
    }
}

/// Closes what idles in the upstream pool for too long, lets go of what was made of tokens that are
/// gone, and settles what was only counted, until the task is dropped.
pub async fn housekeeping(gate: Arc<Gate>) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        gate.upstream.sweep();
        gate.vault.tidy();
        gate.settle_refusals();
    }
}

/// Accepts on one run's socket until the run is closed; false if it cannot go on before that.
async fn run_socket(gate: Arc<Gate>, run: Arc<Run>, listener: UnixListener) -> bool {
    loop {
        tokio::select! {
            biased;
            () = client::ended(&run) => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(run_client(Arc::clone(&gate), Arc::clone(&run), stream));
                }
                Err(error) if is_dead(&error) => {
                    gone(&error);
                    return false;
                }
                Err(error) => pause(&error).await,
            },
        }
    }
    gate.upstream.forget_owner(&client::owner_of(&run));
    true
}

async fn run_client(gate: Arc<Gate>, run: Arc<Run>, mut stream: UnixStream) {
    let uid = match identify::unix_peer(&stream) {
        Ok(uid) => uid,
        Err(error) => {
            let line = unknown(&gate, Entrance::RunSocket, None, &error.to_string()).of(&run.grant);
            return turn_away(&gate, &mut stream, line).await;
        }
    };
    if !run.peer_uids.contains(uid) {
        let reason = format!("uid {uid} is not of this run");
        let line = unknown(&gate, Entrance::RunSocket, Some(uid), &reason).of(&run.grant);
        return turn_away(&gate, &mut stream, line).await;
    }
    admitted(gate, Arc::new(Client::of_run(run, uid)), stream, None).await;
}

async fn tcp_client(
    gate: Arc<Gate>,
    mut stream: TcpStream,
    owner: Result<u32, identify::IdentifyError>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a client was gone before it was served");
        return;
    }
    match identity(&gate, owner) {
        Ok((grant, uid)) => {
            let client = Arc::new(Client::of_uid(grant, uid));
            admitted(gate, client, stream, None).await;
        }
        Err((uid, reason)) => {
            let line = unknown(&gate, Entrance::Uid, uid, &reason);
            turn_away(&gate, &mut stream, line).await;
        }
    }
}

async fn unix_client(gate: Arc<Gate>, mut stream: UnixStream) {
    let owner = identify::unix_peer(&stream);
    match identity(&gate, owner) {
        Ok((grant, uid)) => {
            let client = Arc::new(Client::of_uid(grant, uid));
            admitted(gate, client, stream, None).await;
        }
        Err((uid, reason)) => {
            let line = unknown(&gate, Entrance::Uid, uid, &reason);
            turn_away(&gate, &mut stream, line).await;
        }
    }
}

/// What the owner of a client's socket is granted; or the uid, as far as it is known, and why it is
/// granted nothing.
pub(crate) fn identity(
    gate: &Gate,
    owner: Result<u32, identify::IdentifyError>,
) -> Result<(Grant, u32), (Option<u32>, String)> {
    let uid = owner.map_err(|error| (None, error.to_string()))?;
    let mut known = gate
        .config
        .listen
        .iter()
        .flat_map(|listen| &listen.identities);
    let identity = known.find(|identity| identity.uid == uid);
    let granted = identity.and_then(grant);
    granted.map(|grant| (grant, uid)).ok_or_else(|| {
        let reason = format!("uid {uid} is nobody that the configuration knows");
        (Some(uid), reason)
    })
}

/// Serves a client that is known, unless there are too many connections. `redirected` is the port
/// that it dialled, where the boundary led it here.
pub(crate) async fn admitted<IO>(
    gate: Arc<Gate>,
    client: Arc<Client>,
    mut stream: IO,
    redirected: Option<u16>,
) where
    IO: AsyncWrite + tokio::io::AsyncRead + Unpin + Send + 'static,
{
    let admission = gate.admit(client.owner());
    let place = admission.and_then(|admission| Some((admission, gate.descriptors.take()?)));
    let Some(place) = place else {
        let mut line = client.record(RecordKind::Refusal, &gate.new_id());
        line.verdict = Some(Verdict::Refuse);
        line.code = Some(Code::LimitReached);
        line.reason = Some("portcullis: too many connections at once".to_owned());
        return turn_away(&gate, &mut stream, line).await;
    };
    match redirected {
        None => tunnel::serve(gate, client, stream).await,
        Some(port) => tunnel::serve_redirected(gate, client, stream, port).await,
    }
    drop(place);
}

/// What everybody is granted whom the configuration knows.
pub(crate) fn grants(listen: &Listen) -> impl Iterator<Item = Grant> {
    let uids = listen.identities.iter().filter_map(grant);
    let tokens = listen.tokens.iter().filter_map(token::grant);
    let places = listen.places.iter().filter_map(token::place_grant);
    uids.chain(tokens).chain(places)
}

/// What a uid of the TCP entrance is granted. Its run is the uid itself: there is no other.
fn grant(identity: &Identity) -> Option<Grant> {
    let run = RunId::parse(&format!("uid-{}", identity.uid)).ok()?;
    Grant::new(
        &identity.company,
        &identity.agent,
        None,
        run,
        &identity.profile,
    )
    .ok()
}

pub(crate) fn unknown(gate: &Gate, entrance: Entrance, uid: Option<u32>, reason: &str) -> Record {
    let mut record = Record::new(RecordKind::Refusal, &gate.new_id(), &crate::audit::now());
    record.entrance = Some(entrance);
    record.peer_uid = uid;
    record.verdict = Some(Verdict::Refuse);
    record.code = Some(Code::IdentityUnknown);
    record.reason = Some(format!("portcullis: {reason}"));
    record
}

/// Records why a connection is not served, says so in one answer, and closes it.
pub(crate) async fn turn_away<IO>(gate: &Gate, stream: &mut IO, line: Record)
where
    IO: AsyncWrite + tokio::io::AsyncRead + Unpin,
{
    turn_away_from(gate, stream, line, None).await;
}

/// The same for a client of whom it is only known where it is.
pub(crate) async fn turn_away_from<IO>(
    gate: &Gate,
    stream: &mut IO,
    line: Record,
    place: Option<IpAddr>,
) where
    IO: AsyncWrite + tokio::io::AsyncRead + Unpin,
{
    let code = line.code.unwrap_or(Code::IdentityUnknown);
    let sentence = line.reason.clone().unwrap_or_default();
    let id = line.id.clone();
    gate.refused_from(line, place);
    let Some(_place) = gate.place_to_turn_away() else {
        return;
    };
    let sentence = sentence
        .strip_prefix("portcullis: ")
        .unwrap_or(&sentence)
        .to_owned();
    let refusal = Refusal::new(
        code,
        &sentence,
        "the operator says who may use the gate in proxy.toml",
    );
    let answer = in_words(&refusal, &id);
    let told = async {
        // The request is read first, so that closing does not reset the answer away; what it says
        // does not matter.
        let mut ignored = vec![0_u8; IGNORED];
        let _read = stream.read(&mut ignored).await?;
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    // Nobody has to listen to why it is turned away.
    let _ = tokio::time::timeout(Duration::from_secs(2), told).await;
}

/// A refusal as bytes of HTTP, for a client that is served no further.
pub(crate) fn in_words(refusal: &Refusal, id: &str) -> String {
    let code = refusal.code;
    let sentence = refusal.text.strip_prefix("portcullis: ");
    let sentence = sentence.unwrap_or(&refusal.text);
    let body = crate::refusal::message(refusal, id);
    let more = if code == Code::LimitReached {
        "Retry-After: 5\r\n".to_owned()
    } else if code == Code::TokenMissing {
        format!("Proxy-Authenticate: {}\r\n", crate::refusal::CHALLENGE)
    } else {
        String::new()
    };
    format!(
        "HTTP/1.1 {} Portcullis: {sentence}\r\nx-portcullis-code: {}\r\nx-portcullis-audit: {id}\r\n{more}\
         Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        code.status(),
        code.as_str(),
        body.len(),
    )
}

/// Whether a listener will never accept again, unlike one that lacks descriptors or memory.
pub(crate) fn is_dead(error: &std::io::Error) -> bool {
    const NEVER: [i32; 4] = [libc::EINVAL, libc::EBADF, libc::ENOTSOCK, libc::EOPNOTSUPP];
    error
        .raw_os_error()
        .is_some_and(|code| NEVER.contains(&code))
}

/// Says so; the task that accepted ends with it, and so does the gate.
pub(crate) fn gone(error: &std::io::Error) {
    tracing::error!(%error, "a socket no longer accepts anybody");
}

/// An accept that fails must not end the entrance, nor spin: descriptors come back.
pub(crate) async fn pause(error: &std::io::Error) {
    tracing::warn!(%error, "accepting a client failed; trying again");
    tokio::time::sleep(BREATH).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of tunnels are held that do nothing.
    #[test]
    fn a_client_takes_little_room() {
        fn room<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        for room in [room(tcp_client), room(run_client)] {
            assert!((1..8_000).contains(&room), "{room} bytes");
        }
    }
}
