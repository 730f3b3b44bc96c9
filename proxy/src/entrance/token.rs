//! The token entrance: for agents on another machine, where the kernel cannot say who asks. Nothing
//! of a client is served before it has shown the token of a run that is open.
//!
//! Many clients ask without it first and show it when they are told to, on the same connection; the
//! answer that tells them is all that this side of the door knows to say. Once a client is known, its
//! connection goes the way of every other, and each further request on it must show the same token.
//! Who is at an address that the configuration knows needs no token, and is nobody else for having one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use policy::grant::{Grant, RunId};
use policy::record::{Entrance, Record, RecordKind, Verdict};
use policy::{Code, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::client::Client;
use crate::config::{AddressIdentity, TokenIdentity};
use crate::framing::{Bounds, Opening};
use crate::gate::Gate;
use crate::identify::{self, IdentifyError};
use crate::token::{self, Shown};
use crate::tunnel::rejoined::Rejoined;

/// How often a client is told on one connection that a token is wanted.
const MOST_ASKED: usize = 8;
/// Wrong tokens of one place are counted for this long.
const WINDOW: Duration = Duration::from_secs(10);
/// Wrong tokens of one place in that time that are answered as such.
const MOST_WRONG: u32 = 20;
/// Places told apart at once; further ones share one count.
const MOST_PLACES: usize = 1024;
/// For telling a client that it is refused, and what is thrown away of it meanwhile.
const TELLING: Duration = Duration::from_secs(2);
const THROWN_AWAY: usize = 256 * 1024;

/// Accepts until the task is dropped.
pub async fn accept(gate: Arc<Gate>, guesses: Arc<Guesses>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let owner = stream.local_addr().map_err(IdentifyError::Kernel);
                let owner = owner.and_then(|local| identify::owner_or_remote(peer, local));
                tokio::spawn(serve(
                    Arc::clone(&gate),
                    Arc::clone(&guesses),
                    stream,
                    peer,
                    owner,
                ));
            }
            Err(error) if super::is_dead(&error) => return super::gone(&error),
            Err(error) => super::pause(&error).await,
        }
    }
}

/// Whether a further request on the connection of a client shows what it showed before. Clients that
/// the kernel vouches for show nothing that matters.
///
/// # Errors
/// The refusal.
pub(crate) fn again(client: &Client, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(known) = client.token() else {
        return Ok(());
    };
    let values = headers.get_all(PROXY_AUTHORIZATION).iter();
    match token::shown(values.map(http::HeaderValue::as_bytes)) {
        Shown::Token(digest) if digest.is(known) => Ok(()),
        Shown::Nothing => Err(token::missing()),
        Shown::Token(_) | Shown::Unreadable => Err(token::unknown()),
    }
}

async fn serve(
    gate: Arc<Gate>,
    guesses: Arc<Guesses>,
    mut stream: TcpStream,
    peer: SocketAddr,
    owner: Result<Option<u32>, IdentifyError>,
) {
    let place = place(peer.ip());
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a client was gone before it was served");
        return;
    }
    // Only from elsewhere: a client of this machine takes whichever address it likes.
    if matches!(owner, Ok(None))
        && let Some(client) = at_place(&gate, peer.ip())
    {
        return super::admitted(gate, Arc::new(client), stream, None).await;
    }
    if let Some((uid, reason)) = vouched(&gate, owner) {
        let line = super::unknown(&gate, Entrance::Token, uid, &reason);
        return super::turn_away_from(&gate, &mut stream, line, Some(place)).await;
    }
    let waiting = gate.admit_unnamed(place);
    let waiting = waiting.and_then(|waiting| Some((waiting, gate.descriptors.take()?)));
    let Some(waiting) = waiting else {
        let reason = "too many connections at once that have shown no token";
        let mut line = super::unknown(&gate, Entrance::Token, None, reason);
        line.code = Some(Code::LimitReached);
        return super::turn_away_from(&gate, &mut stream, line, Some(place)).await;
    };
    let door = Door {
        gate: &gate,
        guesses: &guesses,
        place,
    };
    match door.name(&mut stream).await {
        Ok((client, first)) => {
            drop(waiting);
            let stream = Rejoined { first, io: stream };
            super::admitted(gate, Arc::new(client), stream, None).await;
        }
        Err(Some((id, refusal))) => {
            door.record(&id, &refusal);
            tell(&gate, &mut stream, &refusal, &id).await;
        }
        Err(None) => {}
    }
}

/// Why a client is not served here although it may have a token, and its uid as far as it is known:
/// whom the kernel vouches for is who it says, and no token makes it somebody else.
fn vouched(
    gate: &Gate,
    owner: Result<Option<u32>, IdentifyError>,
) -> Option<(Option<u32>, String)> {
    let uid = match owner {
        Ok(uid) => uid?,
        Err(error) => return Some((None, error.to_string())),
    };
    if super::identity(gate, Ok(uid)).is_ok() {
        let reason = format!("uid {uid} is known without a token, on the entrance for users");
        return Some((Some(uid), reason));
    }
    let run = gate.runs.by_uid(uid)?;
    let reason = format!(
        "uid {uid} is of run {}, which has a socket of its own",
        run.id()
    );
    Some((Some(uid), reason))
}

/// Where clients are that nobody knows yet.
struct Door<'g> {
    gate: &'g Gate,
    guesses: &'g Guesses,
    place: IpAddr,
}

impl Door<'_> {
    /// Who the client is, and what it has sent so far: from its first request that says so. Otherwise
    /// why it is sent away, and the id under which that will be on record; or nothing, if it left and
    /// all is said.
    async fn name(
        &self,
        stream: &mut TcpStream,
    ) -> Result<(Client, Bytes), Option<(String, Refusal)>> {
        let limits = &self.gate.config.limits;
        let bounds = Bounds {
            bytes: limits.head_bytes,
            fields: limits.head_headers,
        };
        let id = self.gate.new_id();
        let mut bytes = BytesMut::new();
        for asked in 0..=MOST_ASKED {
            let reading = head(stream, &mut bytes, bounds);
            let (end, body) = match timeout(limits.head_timeout, reading).await {
                Ok(Ok(Some(found))) => found,
                Ok(Ok(None)) => {
                    if asked > 0 {
                        self.record(&id, &token::missing());
                    }
                    return Err(None);
                }
                Ok(Err(refusal)) => return Err(Some((id, refusal))),
                Err(_) if asked > 0 => return Err(Some((id, token::missing()))),
                Err(_) => {
                    let sentence = "no request came in time";
                    let remedy = "send a request as soon as the connection is open";
                    let late = Refusal::new(Code::ClientTimeout, sentence, remedy);
                    return Err(Some((id, late)));
                }
            };
            let head = bytes.get(..end).unwrap_or_default();
            match token::shown(fields(head)) {
                Shown::Token(digest) => match self.whose(digest) {
                    Some(client) => return Ok((client, bytes.freeze())),
                    None => return Err(Some((id, self.wrong()))),
                },
                Shown::Unreadable => return Err(Some((id, self.wrong()))),
                Shown::Nothing if body || is_old(head) => break,
                Shown::Nothing => {
                    let answer = challenge(&id, head.trim_ascii_start().starts_with(b"HEAD "));
                    let told = timeout(TELLING, stream.write_all(answer.as_bytes())).await;
                    if !matches!(told, Ok(Ok(()))) {
                        self.record(&id, &token::missing());
                        return Err(None);
                    }
                    bytes.advance(end);
                }
            }
        }
        Err(Some((id, token::missing())))
    }

    /// Whose a token is: of an agent in the configuration, or of an open run.
    fn whose(&self, digest: policy::grant::TokenDigest) -> Option<Client> {
        let listed = self
            .gate
            .config
            .listen
            .iter()
            .flat_map(|listen| &listen.tokens);
        // To the end of the list, whichever it is.
        let listed = listed.fold(None, |found, one| {
            let same = one.digest.is(&digest);
            if same { Some(one) } else { found }
        });
        let run = self.gate.runs.by_token(&digest);
        match listed {
            Some(identity) => Some(Client::of_known_token(grant(identity)?, digest)),
            None => Some(Client::of_token(run?, digest)),
        }
    }

    /// One more wrong token from here.
    fn wrong(&self) -> Refusal {
        if self.guesses.is_one_too_many(self.place, Instant::now()) {
            return Refusal::new(
                Code::LimitReached,
                "too many wrong tokens came from this address",
                "stop, and ask the operator for the token of this run",
            );
        }
        token::unknown()
    }

    fn record(&self, id: &str, refusal: &Refusal) {
        let mut record = Record::new(RecordKind::Refusal, id, &crate::audit::now());
        record.entrance = Some(Entrance::Token);
        record.verdict = Some(Verdict::Refuse);
        record.code = Some(refusal.code);
        record.reason = Some(format!("{} (from {})", refusal.text, self.place));
        self.gate.refused_from(record, Some(self.place));
    }
}

/// What an agent of the configuration is granted. Its run is named after the token's digest: there is
/// no other.
pub(super) fn grant(identity: &TokenIdentity) -> Option<Grant> {
    let digest = identity.digest.to_string();
    let run = RunId::parse(&format!("token-{}", digest.get(..16)?)).ok()?;
    Grant::new(
        &identity.company,
        &identity.agent,
        None,
        run,
        &identity.profile,
    )
    .ok()
}

/// Who is at this address, if the configuration says so.
fn at_place(gate: &Gate, address: IpAddr) -> Option<Client> {
    let address = address.to_canonical();
    let mut places = gate.config.listen.iter().flat_map(|listen| &listen.places);
    let identity = places.find(|place| place.address == address)?;
    Some(Client::of_place(place_grant(identity)?, address))
}

/// What the agent at an address is granted. Its run is named after the address, part by part.
pub(super) fn place_grant(identity: &AddressIdentity) -> Option<Grant> {
    let parts = match identity.address {
        IpAddr::V4(address) => address.to_string().replace('.', "-"),
        IpAddr::V6(address) => address.segments().map(|part| format!("{part:x}")).join("-"),
    };
    let run = RunId::parse(&format!("address-{parts}")).ok()?;
    Grant::new(
        &identity.company,
        &identity.agent,
        None,
        run,
        &identity.profile,
    )
    .ok()
}

/// Reads on until a whole head is there: where it ends, and whether a body follows. `None` when the
/// client leaves before.
async fn head(
    stream: &mut TcpStream,
    bytes: &mut BytesMut,
    bounds: Bounds,
) -> Result<Option<(usize, bool)>, Refusal> {
    let mut opening = Opening::new(bounds);
    loop {
        if !bytes.is_empty()
            && let Some(found) = opening.whole(bytes).map_err(|fault| fault.refusal())?
        {
            return Ok(Some(found));
        }
        match stream.read_buf(bytes).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}

/// The values of the fields that may hold a token, of a head that is well formed.
fn fields(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = head.trim_ascii_start().split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        name.eq_ignore_ascii_case(PROXY_AUTHORIZATION.as_str().as_bytes())
            .then(|| value.get(1..).unwrap_or_default().trim_ascii())
    })
}

/// Whether the client speaks HTTP/1.0, where a connection is for one request.
fn is_old(head: &[u8]) -> bool {
    let mut lines = head.trim_ascii_start().split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    first.trim_ascii_end().ends_with(b"HTTP/1.0")
}

/// Asks for the token, and leaves the connection open for it.
fn challenge(id: &str, head_only: bool) -> String {
    let words = super::in_words(&token::missing(), id);
    let words = words.replacen("Connection: close\r\n", "", 1);
    match words.split_once("\r\n\r\n") {
        Some((head, _)) if head_only => format!("{head}\r\n\r\n"),
        Some(_) | None => words,
    }
}

/// Tells a client why it is sent away, and reads on a little, so that closing does not reset the
/// answer away.
async fn tell(gate: &Gate, stream: &mut TcpStream, refusal: &Refusal, id: &str) {
    let Some(_place) = gate.place_to_turn_away() else {
        return;
    };
    let answer = super::in_words(refusal, id);
    let told = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut ignored = vec![0; super::IGNORED];
        let mut thrown = 0;
        while thrown < THROWN_AWAY {
            match stream.read(&mut ignored).await? {
                0 => break,
                more => thrown += more,
            }
        }
        Ok::<_, std::io::Error>(())
    };
    // Nobody has to listen to why it is sent away.
    let _ = timeout(TELLING, told).await;
}

/// What counts as one place: an address, or a network of IPv6, of which one host may use all.
fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << 64);
            Ipv6Addr::from_bits(network).into()
        }
    }
}

/// Counts wrong tokens by where they come from. Whoever shows the right one is served all the same, so
/// that no count shuts out a neighbour. What neighbours do share is the places for connections that
/// have shown no token yet, see [`Gate::admit_unnamed`].
#[derive(Debug, Default)]
pub struct Guesses {
    places: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl Guesses {
    fn is_one_too_many(&self, place: IpAddr, now: Instant) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST_PLACES {
            places.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
        }
        let crowded = places.len() >= MOST_PLACES && !places.contains_key(&place);
        let place = if crowded {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            place
        };
        let (since, wrong) = places.entry(place).or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            (*since, *wrong) = (now, 0);
        }
        *wrong = wrong.saturating_add(1);
        *wrong > MOST_WRONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tokens_are_counted_by_place_and_for_a_while() {
        let guesses = Guesses::default();
        let now = Instant::now();
        let here = place("2001:db8::1".parse().unwrap());
        assert_eq!(here, place("2001:db8::ffff:2".parse().unwrap()));
        for _ in 0..MOST_WRONG {
            assert!(!guesses.is_one_too_many(here, now));
        }
        assert!(guesses.is_one_too_many(here, now));
        let there = place("2001:db8:0:1::1".parse().unwrap());
        assert!(!guesses.is_one_too_many(there, now), "control: a neighbour");
        assert!(!guesses.is_one_too_many(here, now + WINDOW), "it passes");
        for last in 0..2 * u32::try_from(MOST_PLACES).unwrap() {
            guesses.is_one_too_many(std::net::Ipv4Addr::from_bits(last).into(), now);
        }
        assert!(guesses.places.lock().unwrap().len() <= MOST_PLACES + 1);
    }

    #[test]
    fn the_fields_of_a_head_are_found_and_nothing_else() {
        let head = b"\r\nGET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\
                     proxy-AUTHORIZATION:  Basic x \r\nX: Proxy-Authorization: y\r\n\r\n";
        assert_eq!(fields(head).collect::<Vec<_>>(), [b"Basic x"]);
        assert!(!is_old(head));
        assert!(is_old(b"CONNECT a.example:443 HTTP/1.0\r\n\r\n"));
    }

    #[test]
    fn the_challenge_leaves_the_connection_open() {
        let answer = challenge("r1-1", false);
        assert!(answer.starts_with("HTTP/1.1 407 Portcullis: "), "{answer}");
        assert!(
            answer.contains("\r\nProxy-Authenticate: Basic realm="),
            "{answer}"
        );
        assert!(!answer.contains("Connection: close"), "{answer}");
        assert!(answer.contains("run:TOKEN"), "{answer}");
        let head = challenge("r1-1", true);
        assert!(
            head.ends_with("\r\n\r\n") && head.contains("Content-Length: "),
            "{head}"
        );
    }
}
