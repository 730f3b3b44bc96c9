//! The one parser of hosts and ports.
//!
//! CONNECT target, SNI, `Host`, policy, dialling, certificate check, injection and audit all use
//! the [`Authority`] made here; what does not parse is refused, never repaired. The only two
//! liberties taken are ASCII lower-casing and dropping one trailing dot, so that
//! `API.GitHub.COM.:443` and `api.github.com:443` are one identity everywhere.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

/// Longest DNS name accepted, in bytes, without the trailing dot (RFC 1035 2.3.4).
const MAX_NAME: usize = 253;
/// Longest label accepted, in bytes.
const MAX_LABEL: usize = 63;
/// How much of a hostile value an error repeats.
const MAX_SHOWN: usize = 64;

/// A canonical `host:port`. Two spellings of one destination are one value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Authority {
    host: Host,
    port: u16,
}

/// A host in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name, lower case, no trailing dot.
    Name(DnsName),
    /// An IPv4 literal in dotted-quad form.
    V4(Ipv4Addr),
    /// An IPv6 literal; brackets belong to [`Authority`]'s text form and to [`Host::parse`]'s input.
    V6(Ipv6Addr),
}

/// A DNS name in canonical form: lower-case ASCII labels, no trailing dot. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DnsName(Arc<str>);

/// The scheme that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// HTTP over TLS that the gate terminates and verifies.
    Https,
    /// Plain HTTP. Never carries an injected credential over a network.
    Http,
}

/// Why a host or an authority was refused. Messages repeat at most 64 characters of the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// Nothing where a host should stand.
    #[error("the host is empty")]
    Empty,
    /// The port is missing where it is required.
    #[error("`{0}` has no port; write host:port")]
    NoPort(String),
    /// The port is not a plain decimal number from 1 to 65535.
    #[error("`{0}` is not a port; a port is a plain number from 1 to 65535")]
    BadPort(String),
    /// `user@host` in any form.
    #[error("`{0}` contains user information; a destination is host:port and nothing else")]
    UserInfo(String),
    /// Bytes outside ASCII; the message suggests the name that DNS would be asked for.
    #[error("`{shown}` is not ASCII{}", suggest(.punycode.as_deref()))]
    NotAscii {
        /// The refused text, shortened.
        shown: String,
        /// The ASCII (punycode) form, when there is one.
        punycode: Option<String>,
    },
    /// A byte that no host contains: control, space, slash, percent, ...
    #[error("`{shown}` contains {byte:?}, which no host name contains")]
    BadCharacter {
        /// The refused text, shortened and escaped.
        shown: String,
        /// The offending character.
        byte: char,
    },
    /// Brackets round something that is not an IPv6 literal.
    #[error("`{0}`: brackets belong only around an IPv6 address")]
    BadBrackets(String),
    /// An IPv6 zone id such as `fe80::1%eth0`.
    #[error("`{0}` carries a zone id; link-local scopes are never reachable")]
    ZoneId(String),
    /// A spelling that some resolvers read as an IPv4 address: `127.1`, `0x7f000001`, `0177.0.0.1`.
    #[error("`{0}` is a legacy spelling of an IPv4 address; write four decimal numbers")]
    LegacyIpv4(String),
    /// A label is empty, too long, or has a character where it may not stand.
    #[error("`{shown}`: {problem}")]
    BadLabel {
        /// The refused text, shortened.
        shown: String,
        /// What is wrong with the label.
        problem: &'static str,
    },
    /// The whole name is too long.
    #[error("the name is {0} bytes long; 253 is the most DNS allows")]
    TooLong(usize),
}

fn suggest(punycode: Option<&str>) -> String {
    match punycode {
        Some(name) => format!("; if you mean it, write `{name}`"),
        None => String::from(", and has no ASCII form"),
    }
}

impl Authority {
    /// Puts a host and a port together. The port must not be 0.
    ///
    /// # Errors
    /// [`AuthorityError::BadPort`] for port 0.
    pub fn new(host: Host, port: u16) -> Result<Self, AuthorityError> {
        if port == 0 {
            return Err(AuthorityError::BadPort(String::from("0")));
        }
        Ok(Self { host, port })
    }

    /// Parses `host:port` as a CONNECT target spells it; the port is required.
    ///
    /// # Errors
    /// Anything but a strict host and a plain port.
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        let (host, port) = split(text)?;
        let port = port.ok_or_else(|| AuthorityError::NoPort(shown(text)))?;
        Self::new(Host::parse(host)?, parse_port(port)?)
    }

    /// Parses a `Host` header value or an absolute-form authority, where the port may be missing.
    ///
    /// # Errors
    /// As [`Authority::parse`], except for a missing port.
    pub fn with_default_port(text: &str, port: u16) -> Result<Self, AuthorityError> {
        let (host, stated) = split(text)?;
        let port = stated.map_or(Ok(port), parse_port)?;
        Self::new(Host::parse(host)?, port)
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, 1 to 65535.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The value of a `Host` header for this authority: the port only where it is not the
    /// scheme's own.
    #[must_use]
    pub fn host_header(&self, scheme: Scheme) -> String {
        if self.port == scheme.default_port() {
            bracketed(&self.host)
        } else {
            self.to_string()
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::V6(address) => write!(f, "[{address}]:{}", self.port),
            Host::Name(_) | Host::V4(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Authority {
    type Err = AuthorityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Host {
    /// Parses a host: a DNS name, a dotted-quad IPv4 address, or an IPv6 address in brackets.
    /// A bare IPv6 address (as SNI-less configuration spells it) is accepted too, since it cannot
    /// be mistaken for anything else.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        if text.is_empty() {
            return Err(AuthorityError::Empty);
        }
        if text.len() > MAX_NAME + 2 {
            return Err(AuthorityError::TooLong(text.len()));
        }
        if !text.is_ascii() {
            return Err(AuthorityError::NotAscii {
                shown: shown(text),
                punycode: idna::domain_to_ascii_strict(text)
                    .ok()
                    .filter(|ascii| ascii.is_ascii() && DnsName::parse(ascii).is_ok()),
            });
        }
        if text.contains('@') {
            return Err(AuthorityError::UserInfo(shown(text)));
        }
        if let Some(inner) = text.strip_prefix('[') {
            let Some(inner) = inner.strip_suffix(']') else {
                return Err(AuthorityError::BadBrackets(shown(text)));
            };
            return parse_v6(inner, text);
        }
        if text.contains(':') {
            return parse_v6(text, text);
        }
        let name = DnsName::canonical(text)?;
        if looks_numeric(&name) {
            return match name.parse::<Ipv4Addr>() {
                // `Ipv4Addr` refuses leading zeros and short forms; a trailing dot is not a quad.
                Ok(address) if !text.ends_with('.') => Ok(Self::V4(address)),
                Ok(_) | Err(_) => Err(AuthorityError::LegacyIpv4(shown(text))),
            };
        }
        Ok(Self::Name(DnsName(name.into())))
    }

    /// The name, unless the host is an address.
    #[must_use]
    pub fn as_name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name.as_str()),
            Self::V4(_) | Self::V6(_) => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name.as_str()),
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => address.fmt(f),
        }
    }
}

impl FromStr for Host {
    type Err = AuthorityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl DnsName {
    /// Parses a DNS name; an address in any spelling is refused.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        match Host::parse(text)? {
            Host::Name(name) => Ok(name),
            Host::V4(_) | Host::V6(_) => Err(AuthorityError::BadLabel {
                shown: shown(text),
                problem: "a name is wanted here, not an address",
            }),
        }
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks every label and returns the lower-case name without its trailing dot.
    fn canonical(text: &str) -> Result<String, AuthorityError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(AuthorityError::Empty);
        }
        if name.len() > MAX_NAME {
            return Err(AuthorityError::TooLong(name.len()));
        }
        let bad = |problem| AuthorityError::BadLabel {
            shown: shown(text),
            problem,
        };
        for label in name.split('.') {
            if label.is_empty() {
                return Err(bad("a label is empty"));
            }
            if label.len() > MAX_LABEL {
                return Err(bad("a label is longer than 63 bytes"));
            }
            for (at, byte) in label.bytes().enumerate() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {}
                    b'_' if at == 0 => {}
                    b'_' => return Err(bad("`_` may only stand first in a label")),
                    b'-' if at > 0 && at + 1 < label.len() => {}
                    b'-' => return Err(bad("a label may not start or end with `-`")),
                    b'[' | b']' => return Err(AuthorityError::BadBrackets(shown(text))),
                    other => {
                        return Err(AuthorityError::BadCharacter {
                            shown: shown(text),
                            byte: char::from(other),
                        });
                    }
                }
            }
        }
        Ok(name.to_ascii_lowercase())
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Scheme {
    /// `https` or `http`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    /// 443 or 80.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Splits `host[:port]`; a bracketed host may contain colons.
fn split(text: &str) -> Result<(&str, Option<&str>), AuthorityError> {
    if text.is_empty() {
        return Err(AuthorityError::Empty);
    }
    if text.contains('@') {
        return Err(AuthorityError::UserInfo(shown(text)));
    }
    if text.starts_with('[') {
        let Some(end) = text.find(']') else {
            return Err(AuthorityError::BadBrackets(shown(text)));
        };
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(AuthorityError::BadBrackets(shown(text))),
        };
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        // A second colon would be an unbracketed IPv6 address, whose port cannot be told apart.
        Some((_, rest)) if rest.contains(':') => Err(AuthorityError::BadBrackets(shown(text))),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

fn parse_port(text: &str) -> Result<u16, AuthorityError> {
    let plain = !text.is_empty()
        && text.len() <= 5
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.starts_with('0');
    plain
        .then(|| text.parse::<u16>().ok())
        .flatten()
        .ok_or_else(|| AuthorityError::BadPort(shown(text)))
}

fn parse_v6(inner: &str, whole: &str) -> Result<Host, AuthorityError> {
    if inner.contains('%') {
        return Err(AuthorityError::ZoneId(shown(whole)));
    }
    let address: Ipv6Addr = inner
        .parse()
        .map_err(|_| AuthorityError::BadBrackets(shown(whole)))?;
    // `::ffff:127.0.0.1` is 127.0.0.1 to the kernel: a second identity of one destination.
    if address.to_ipv4_mapped().is_some() {
        return Err(AuthorityError::LegacyIpv4(shown(whole)));
    }
    Ok(Host::V6(address))
}

/// Whether some resolver might read the name as an IPv4 address: its last label is all digits, or
/// starts with `0x` and continues in hexadecimal (the URL standard's "ends in a number").
fn looks_numeric(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn bracketed(host: &Host) -> String {
    match host {
        Host::V6(address) => format!("[{address}]"),
        Host::Name(_) | Host::V4(_) => host.to_string(),
    }
}

/// At most [`MAX_SHOWN`] characters of hostile text, controls escaped. What stands before an `@` may
/// be somebody's name and password, and is not shown.
fn shown(text: &str) -> String {
    if let Some((_, host)) = text.rsplit_once('@') {
        return format!("...@{}", shown(host));
    }
    let mut out: String = text
        .chars()
        .take(MAX_SHOWN)
        .flat_map(char::escape_default)
        .collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests;
