//! Where a secret goes on a request: by kind, and for GitHub by host and path too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use policy::authority::Host;
use zeroize::Zeroizing;

use super::{sensitive, shape};

/// Hosts of GitHub that serve content on the strength of their own links, or anybody's pages. A
/// token has no business there.
const GITHUB_BARE: [&str; 8] = [
    "githubusercontent.com",
    "github.io",
    "githubassets.com",
    "codeload.github.com",
    "raw.github.com",
    "pages.github.com",
    "gist.github.io",
    "github.dev",
];

/// Their like on a server of one's own.
const GITHUB_BARE_FIRST: [&str; 6] = ["raw", "codeload", "pages", "media", "assets", "avatars"];

/// How the secret is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    Bearer,
    Basic { username: String },
    Header { name: HeaderName },
    Github,
    Proxmox { id: String },
    Anthropic,
    Login,
    Query { parameter: String },
}

/// What is to be done to a request.
#[allow(
    missing_debug_implementations,
    reason = "holds a secret, which is never printed"
)]
pub enum Placed {
    /// Nothing: this host or path is not one for the credential.
    Nowhere,
    /// One field.
    Field {
        /// Its name.
        name: HeaderName,
        /// Its value, marked sensitive.
        value: HeaderValue,
        /// A word that a second field must hold too.
        also: Option<(&'static str, &'static str)>,
    },
    /// One query parameter.
    Query {
        /// Its name.
        parameter: String,
        /// Its value, percent-encoded.
        value: Zeroizing<String>,
    },
}

/// What Anthropic wants beside a login's token.
const ANTHROPIC_LOGIN: (&str, &str) = ("anthropic-beta", "oauth-2025-04-20");

impl Form {
    pub(super) fn place(&self, host: &Host, target: &str, secret: &[u8]) -> Placed {
        let authorization = |text: Zeroizing<Vec<u8>>| field(AUTHORIZATION, &text);
        match self {
            Self::Bearer => authorization(joined(&[b"Bearer ", secret])),
            Self::Basic { username } => authorization(basic(username.as_bytes(), secret)),
            Self::Header { name } => field(name.clone(), secret),
            Self::Github => match github(host, target) {
                Github::Nowhere => Placed::Nowhere,
                Github::Basic => authorization(basic(b"x-access-token", secret)),
                Github::Bearer => authorization(joined(&[b"Bearer ", secret])),
            },
            Self::Proxmox { id } => {
                authorization(joined(&[b"PVEAPIToken=", id.as_bytes(), b"=", secret]))
            }
            Self::Anthropic if shape::is_anthropic_login(secret) => anthropic_login(secret),
            Self::Anthropic => field(HeaderName::from_static("x-api-key"), secret),
            Self::Login if shape::is_anthropic_login(secret) => anthropic_login(secret),
            Self::Login => authorization(joined(&[b"Bearer ", secret])),
            Self::Query { parameter } => Placed::Query {
                parameter: parameter.clone(),
                value: percent(secret),
            },
        }
    }
}

fn field(name: HeaderName, value: &[u8]) -> Placed {
    Placed::Field {
        name,
        value: sensitive(value),
        also: None,
    }
}

fn anthropic_login(secret: &[u8]) -> Placed {
    Placed::Field {
        name: AUTHORIZATION,
        value: sensitive(&joined(&[b"Bearer ", secret])),
        also: Some(ANTHROPIC_LOGIN),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Github {
    Nowhere,
    Basic,
    Bearer,
}

fn github(host: &Host, target: &str) -> Github {
    let host = host.to_string();
    let within = |suffix: &str| {
        host == suffix
            || host
                .strip_suffix(suffix)
                .is_some_and(|rest| rest.ends_with('.'))
    };
    let first = host.split('.').next().unwrap_or_default();
    if GITHUB_BARE.into_iter().any(within) || GITHUB_BARE_FIRST.contains(&first) {
        return Github::Nowhere;
    }
    let path = target.split('?').next().unwrap_or(target);
    if is_git(path) || host == "lfs.github.com" {
        return Github::Basic;
    }
    // What is left of github.com are pages for people, where a token means nothing.
    if host == "github.com" || host == "www.github.com" || host == "gist.github.com" {
        return Github::Nowhere;
    }
    Github::Bearer
}

/// Whether the path is one of git's or of its large files' own protocol.
fn is_git(path: &str) -> bool {
    path.ends_with("/info/refs")
        || path.ends_with("/git-upload-pack")
        || path.ends_with("/git-receive-pack")
        || path.contains("/info/lfs/")
}

fn joined(parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut whole = Zeroizing::new(Vec::with_capacity(
        parts.iter().map(|part| part.len()).sum(),
    ));
    for part in parts {
        whole.extend_from_slice(part);
    }
    whole
}

fn basic(username: &[u8], secret: &[u8]) -> Zeroizing<Vec<u8>> {
    let pair = joined(&[username, b":", secret]);
    let encoded = Zeroizing::new(STANDARD.encode(&*pair));
    joined(&[b"Basic ", encoded.as_bytes()])
}

/// Everything but RFC 3986's unreserved characters encoded.
pub(super) fn percent(secret: &[u8]) -> Zeroizing<String> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = Zeroizing::new(String::with_capacity(secret.len() * 3));
    for byte in secret {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(host: &str, target: &str) -> Github {
        github(&Host::parse(host).unwrap(), target)
    }

    #[test]
    fn a_github_token_takes_the_form_of_the_host_and_goes_nowhere_else() {
        for (host, target) in [
            ("github.com", "/o/r.git/info/refs?service=git-upload-pack"),
            ("github.com", "/o/r.git/git-receive-pack"),
            ("github.com", "/o/r.git/info/lfs/objects/batch"),
            ("git.example.com", "/o/r/git-upload-pack"),
            ("lfs.github.com", "/o/r"),
        ] {
            assert_eq!(kind(host, target), Github::Basic, "{host}{target}");
        }
        for (host, target) in [
            ("api.github.com", "/user"),
            ("api.github.com", "/repos/o/r/contents/info/refs-notes"),
            ("uploads.github.com", "/repos/o/r/releases/1/assets?name=x"),
            ("git.example.com", "/api/v3/user"),
        ] {
            assert_eq!(kind(host, target), Github::Bearer, "{host}{target}");
        }
        for (host, target) in [
            ("raw.githubusercontent.com", "/o/r/main/x"),
            ("objects.githubusercontent.com", "/x"),
            ("codeload.github.com", "/o/r/tar.gz/main"),
            ("o.github.io", "/info/refs"),
            ("github.com", "/o/r/settings"),
            ("github.com", "/o/r/raw/main/x?git-upload-pack"),
            ("pages.git.example.com", "/o/r/"),
            ("raw.git.example.com", "/o/r/info/refs"),
        ] {
            assert_eq!(kind(host, target), Github::Nowhere, "{host}{target}");
        }
    }

    #[test]
    fn a_query_value_is_encoded_whole() {
        assert_eq!(percent(b"a-Z_9.~").as_str(), "a-Z_9.~");
        assert_eq!(percent(b"a+b/c=&%").as_str(), "a%2Bb%2Fc%3D%26%25");
    }
}
