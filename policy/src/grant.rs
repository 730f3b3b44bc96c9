//! Who is asking: the grant of one run, and the bodies of the control socket that carry it.

mod limit;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use limit::{Limit, Scope};

/// The name of a run: `[A-Za-z0-9][A-Za-z0-9-]{0,63}`. Safe as a directory name. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(Arc<str>);

/// Whose run this is, and under which profile's policy its requests are judged.
///
/// Every field is a short label (1 to 128 printable ASCII characters, no spaces at the ends);
/// deserialising checks that, and [`Grant::new`] does for values made in code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawGrant")]
pub struct Grant {
    /// The company that the agent works for.
    pub company: String,
    /// The agent.
    pub agent: String,
    /// The ticket that the run works on, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// The run.
    pub run: RunId,
    /// The name of the policy profile.
    pub profile: String,
    /// The project that the ticket belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// What the gate holds the run's requests to, beside what its own configuration says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowance: Vec<Limit>,
}

/// The host uids that a run's processes have: `first .. first + count`.
/// By default nobody has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawPeerUids")]
pub struct PeerUids {
    first: u32,
    count: u32,
}

/// SHA-256 of a run's token, in lower-case hex where it is written. Whoever opens a run makes the
/// token and keeps it; the gate is told this alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenDigest([u8; 32]);

/// Body of `PUT /v1/runs/{run}`: open a run, or say again that it is open (same epoch).
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRun {
    /// Whose run it is.
    pub grant: Grant,
    /// Counts the openings of this run; an epoch that ended never opens again.
    pub epoch: u64,
    /// Which uids may use the run's socket; nobody, where the run has a token instead.
    #[serde(default, skip_serializing_if = "PeerUids::is_nobody")]
    pub peer_uids: PeerUids,
    /// What the token of the run digests to, where its agent is one that the kernel cannot vouch for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_sha256: Option<TokenDigest>,
    /// The lease ends this many seconds from now unless it is extended.
    pub lease_seconds: u32,
    /// The token that the gate injects into requests to the board. Never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board_token: Option<String>,
    /// A policy of the run's own, as TOML text, from peers that may send one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// Answer to `PUT /v1/runs/{run}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedRun {
    /// The directory to bind into the container; it outlives restarts of the gate.
    pub socket_dir: String,
    /// The socket's path.
    pub socket: String,
    /// The epoch that is open.
    pub epoch: u64,
    /// The lease that was given, in seconds.
    pub lease_seconds: u32,
    /// Hosts whose git remotes over ssh are to be rewritten to https.
    #[serde(default)]
    pub git_hosts: Vec<String>,
}

/// One line of `GET /v1/runs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunView {
    /// Whose run it is.
    pub grant: Grant,
    /// The epoch that is open.
    pub epoch: u64,
    /// Which uids may use the run's socket.
    #[serde(default, skip_serializing_if = "PeerUids::is_nobody")]
    pub peer_uids: PeerUids,
    /// Whether it has a token for the token entrance.
    #[serde(default)]
    pub token: bool,
    /// Seconds until the lease ends.
    pub lease_seconds_left: u64,
    /// The run's socket.
    pub socket: String,
    /// SHA-256 of the policy text that judges the run, in hex.
    pub policy_hash: String,
    /// Connections that are open now.
    pub connections: u64,
}

/// Why a grant, a run id or a uid range was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Not a run id.
    #[error("a run id is 1 to 64 letters, digits and `-`, and starts with a letter or digit")]
    RunId,
    /// Not a short label.
    #[error("`{field}` must be 1 to 128 printable ASCII characters without spaces at its ends")]
    Label {
        /// The field's name.
        field: &'static str,
    },
    /// A range that is empty, wraps round, or holds a uid that is never an identity.
    #[error("uids {first}+{count} are no range of a run: {problem}")]
    PeerUids {
        /// First uid.
        first: u32,
        /// Number of uids.
        count: u32,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// More limits than anybody writes.
    #[error("a grant has at most {MOST_LIMITS} limits")]
    TooMany,
    /// Not a digest.
    #[error("a token's digest is 64 hexadecimal digits: SHA-256 of the token")]
    Digest,
}

/// The most limits of one grant.
const MOST_LIMITS: usize = 32;
/// The overflow uid: what the kernel answers for "nobody I can name here".
const OVERFLOW_UID: u32 = 65_534;

impl RunId {
    /// Parses a run id.
    ///
    /// # Errors
    /// [`GrantError::RunId`].
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let good = (1..=64).contains(&text.len())
            && text
                .bytes()
                .next()
                .is_some_and(|byte| byte.is_ascii_alphanumeric())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if good {
            Ok(Self(text.into()))
        } else {
            Err(GrantError::RunId)
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunId {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl Grant {
    /// Makes a grant from checked labels.
    ///
    /// # Errors
    /// [`GrantError::Label`] naming the first bad field.
    pub fn new(
        company: &str,
        agent: &str,
        ticket: Option<&str>,
        run: RunId,
        profile: &str,
    ) -> Result<Self, GrantError> {
        let label = |field, text: &str| {
            if is_label(text) {
                Ok(text.to_owned())
            } else {
                Err(GrantError::Label { field })
            }
        };
        Ok(Self {
            company: label("company", company)?,
            agent: label("agent", agent)?,
            ticket: ticket.map(|text| label("ticket", text)).transpose()?,
            run,
            profile: label("profile", profile)?,
            project: None,
            allowance: Vec::new(),
        })
    }

    /// Names the project.
    ///
    /// # Errors
    /// [`GrantError::Label`].
    pub fn in_project(mut self, project: Option<&str>) -> Result<Self, GrantError> {
        if let Some(project) = project {
            if !is_label(project) {
                return Err(GrantError::Label { field: "project" });
            }
            self.project = Some(project.to_owned());
        }
        Ok(self)
    }

    /// Whether both are the same but for what they may take.
    #[must_use]
    pub fn is_of(&self, other: &Self) -> bool {
        let bare = |grant: &Self| Self {
            allowance: Vec::new(),
            ..grant.clone()
        };
        bare(self) == bare(other)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGrant {
    company: String,
    agent: String,
    #[serde(default)]
    ticket: Option<String>,
    run: RunId,
    profile: String,
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    allowance: Vec<Limit>,
}

impl TryFrom<RawGrant> for Grant {
    type Error = GrantError;

    fn try_from(raw: RawGrant) -> Result<Self, Self::Error> {
        let grant = Self::new(
            &raw.company,
            &raw.agent,
            raw.ticket.as_deref(),
            raw.run,
            &raw.profile,
        )?;
        let grant = grant.in_project(raw.project.as_deref())?;
        if raw.allowance.len() > MOST_LIMITS {
            return Err(GrantError::TooMany);
        }
        Ok(Self {
            allowance: raw.allowance,
            ..grant
        })
    }
}

impl PeerUids {
    /// A range of `count` uids that starts at `first`.
    ///
    /// # Errors
    /// The range is empty, wraps round, or holds uid 0 or the overflow uid 65534.
    pub fn new(first: u32, count: u32) -> Result<Self, GrantError> {
        let bad = |problem| {
            Err(GrantError::PeerUids {
                first,
                count,
                problem,
            })
        };
        let Some(last) = count
            .checked_sub(1)
            .and_then(|more| first.checked_add(more))
        else {
            return bad("it is empty or ends beyond the largest uid");
        };
        if first == 0 {
            return bad("uid 0 is never an agent");
        }
        if (first..=last).contains(&OVERFLOW_UID) {
            return bad("it holds 65534, which the kernel answers for unknown users");
        }
        if last == u32::MAX {
            return bad("the largest number means `no uid`");
        }
        Ok(Self { first, count })
    }

    /// The first uid.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// How many uids.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the range is empty, as it can only be by leaving it out.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        self.count == 0
    }

    /// Whether the range holds this uid.
    #[must_use]
    pub fn contains(&self, uid: u32) -> bool {
        uid >= self.first && uid - self.first < self.count
    }

    /// Whether two ranges share a uid.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }
}

impl TokenDigest {
    /// A digest as it was computed.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`GrantError::Digest`].
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(GrantError::Digest);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = match pair {
                [high, low] => (nibble(*high)? << 4) | nibble(*low)?,
                _ => return Err(GrantError::Digest),
            };
        }
        Ok(Self(bytes))
    }

    /// Whether both are the same, in a time that does not tell where they differ.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0);
        let difference = difference.fold(0, |all, (one, other)| all | (one ^ other));
        std::hint::black_box(difference) == 0
    }
}

fn nibble(digit: u8) -> Result<u8, GrantError> {
    let value = char::from(digit).to_digit(16).ok_or(GrantError::Digest)?;
    u8::try_from(value).map_err(|_| GrantError::Digest)
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TryFrom<String> for TokenDigest {
    type Error = GrantError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<TokenDigest> for String {
    fn from(digest: TokenDigest) -> Self {
        digest.to_string()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeerUids {
    first: u32,
    count: u32,
}

impl TryFrom<RawPeerUids> for PeerUids {
    type Error = GrantError;

    fn try_from(raw: RawPeerUids) -> Result<Self, Self::Error> {
        Self::new(raw.first, raw.count)
    }
}

impl fmt::Debug for OpenRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRun")
            .field("grant", &self.grant)
            .field("epoch", &self.epoch)
            .field("peer_uids", &self.peer_uids)
            .field("lease_seconds", &self.lease_seconds)
            .finish_non_exhaustive()
    }
}

fn is_label(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && text.trim() == text
}

#[cfg(test)]
mod tests;
