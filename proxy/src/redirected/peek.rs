//! What the beginning of a redirected connection says of the host that is meant: the TLS server name
//! of a hello, or the one `Host` of a plain request.

use policy::authority::{Authority, Host, Scheme};
use policy::{Code, Refusal};
use rustls::server::Acceptor;

/// A TLS handshake message begins so.
pub(crate) const HANDSHAKE: u8 = 22;

/// What a client said of the host it means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The TLS server name.
    ServerName(String),
    /// The `Host` of a plain request.
    Host(String),
}

/// Why it is not known which host is meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unsaid {
    /// A TLS hello without a server name.
    NoServerName,
    /// A plain request without exactly one readable `Host`.
    NoHost,
    /// Neither TLS nor HTTP, or too long.
    Neither,
    /// The client left before it had said anything.
    Left,
}

/// A beginning as it comes.
#[derive(Default)]
pub(crate) struct Peek {
    hello: Acceptor,
    /// How much of it the TLS library has seen.
    read: usize,
}

impl Peek {
    /// Looks at everything that has come so far, which has only grown since the last time; `None`
    /// while it may still say what is meant.
    ///
    /// # Errors
    /// [`Unsaid`], whatever comes behind it.
    pub(crate) fn look(&mut self, seen: &[u8]) -> Result<Option<Said>, Unsaid> {
        match seen.first() {
            None => Ok(None),
            Some(&HANDSHAKE) => {
                let mut rest = seen.get(self.read..).unwrap_or_default();
                while !rest.is_empty() {
                    self.read += self
                        .hello
                        .read_tls(&mut rest)
                        .map_err(|_| Unsaid::Neither)?;
                    if let Some(hello) = self.hello.accept().map_err(|_| Unsaid::Neither)? {
                        let name = hello.client_hello().server_name().map(str::to_owned);
                        let said = name.map(Said::ServerName).ok_or(Unsaid::NoServerName);
                        return said.map(Some);
                    }
                }
                Ok(None)
            }
            Some(first) if first.is_ascii_uppercase() => {
                let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return Ok(None);
                };
                let host = host_of(seen.get(..end).unwrap_or_default());
                host.map(Said::Host).ok_or(Unsaid::NoHost).map(Some)
            }
            Some(_) => Err(Unsaid::Neither),
        }
    }
}

/// The value of the one `Host` of a head, whose requests are each compared with it later.
fn host_of(head: &[u8]) -> Option<String> {
    let mut found = None;
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        if name.trim_ascii().eq_ignore_ascii_case(b"host") {
            if found.is_some() || name.len() != 4 {
                return None;
            }
            let value = value.get(1..)?.trim_ascii();
            found = Some(std::str::from_utf8(value).ok()?.to_owned());
        }
    }
    found
}

/// The authority that is meant: the name that was said, at the port that was dialled.
pub(crate) fn authority(said: &Said, port: u16) -> Result<Authority, Refusal> {
    let strict = "name the host as it is listed";
    match said {
        Said::ServerName(name) => {
            let host = Host::parse(name)
                .ok()
                .filter(|_| !name.ends_with('.'))
                .filter(|host| host.as_name().is_some());
            host.and_then(|host| Authority::new(host, port).ok())
                .ok_or_else(|| {
                    Refusal::new(
                        Code::MalformedAuthority,
                        "the TLS server name is not a host name",
                        strict,
                    )
                })
        }
        Said::Host(text) => {
            let stated = Authority::with_default_port(text, Scheme::Http.default_port()).map_err(
                |error| Refusal::new(Code::MalformedAuthority, &error.to_string(), strict),
            )?;
            if stated.port() == port {
                return Ok(stated);
            }
            let sentence = format!("Host names {stated}, and port {port} was dialled");
            let remedy = "Host must name the port that is dialled";
            Err(Refusal::new(Code::AuthorityMismatch, &sentence, remedy))
        }
    }
}
