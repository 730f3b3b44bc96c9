//! Tokens that are fetched with a secret: installation tokens of a GitHub App, access tokens of a
//! login. One fetch at a time, renewed before they end, kept in protected memory only.
//!
//! A fetch that failed is an answer for all who ask within [`FAILURE_LASTS`], as a token is: neither
//! a far end that is down nor one that refuses every token is asked once per request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use policy::credential::CredentialName;
use rustls::SignatureScheme;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::lint;
use super::sealed::{Sealed, SealedError, digest};
use super::sensitive;
use crate::config::{CredentialConfig, CredentialKind, GithubApp, OauthRefresh, StoreConfig};
use crate::errand::{self, Answer, Errand, ErrandError};
use crate::gate::Gate;
use crate::vault::{Secret, VaultError};

/// Whoever asks so soon after a failure is told of it instead.
const FAILURE_LASTS: Duration = Duration::from_secs(10);
/// A token that is refused is replaced before its time no more often than this.
const FORCED_EVERY: Duration = Duration::from_secs(30);
/// Requests that wait for one token.
const MOST_WAITING: usize = 256;

/// Why there is no token. Says nothing of secrets.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// The far end was not asked or did not answer.
    #[error(transparent)]
    Errand(#[from] ErrandError),
    /// It answered something else than a token.
    #[error("{whom} gave no token: {status}{said}")]
    Refused {
        /// Whom.
        whom: String,
        /// Its status.
        status: StatusCode,
        /// An error code that it named, with a colon before it.
        said: String,
    },
    /// The answer is not what is expected of it.
    #[error("{0} gave an answer that cannot be understood")]
    Answer(String),
    /// The key does not sign.
    #[error("the app's private key cannot be used")]
    Key,
    /// The sealed state.
    #[error(transparent)]
    Sealed(#[from] SealedError),
    /// Protected memory.
    #[error(transparent)]
    Memory(#[from] VaultError),
    /// The last try, moments ago.
    #[error("{0}; it is not asked again so soon")]
    Earlier(String),
    /// Too many wait already.
    #[error("too many requests wait for the token already")]
    Crowded,
    /// The task ended without an answer.
    #[error("fetching the token was broken off")]
    Broken,
}

/// A fetched token and when to fetch the next.
struct Live {
    token: Arc<Secret>,
    renew: Instant,
    ends: Instant,
}

/// Fetches tokens with one secret.
pub(super) struct Mint {
    inner: Arc<Inner>,
}

struct Inner {
    name: CredentialName,
    how: How,
    secret: Arc<Secret>,
    core: Arc<Core>,
}

/// What all who fetch with the same secret have in common.
pub(super) struct Core {
    known: Mutex<Known>,
    turn: tokio::sync::Mutex<()>,
    waiting: Arc<Semaphore>,
}

/// What the last fetch brought.
#[derive(Default)]
struct Known {
    live: Option<Live>,
    failed: Option<(Instant, String)>,
    /// When a token was last given up because it was refused.
    forced: Option<Instant>,
}

impl Default for Core {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            waiting: Arc::new(Semaphore::new(MOST_WAITING)),
        }
    }
}

/// The cores in use, by credential and digest of the secret. Only who fetches or holds the credential
/// keeps one: a vault that is sealed keeps no token, and one that is filled again while a fetch is
/// under way waits for it instead of using the same refresh token beside it.
#[derive(Default)]
pub(super) struct Cores(Mutex<BTreeMap<(CredentialName, String), Weak<Core>>>);

impl Cores {
    fn of(&self, name: &CredentialName, secret: &Secret) -> Arc<Core> {
        let mut cores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cores.retain(|_, core| core.strong_count() > 0);
        let place = cores.entry((name.clone(), digest(secret))).or_default();
        place.upgrade().unwrap_or_else(|| {
            let core = Arc::new(Core::default());
            *place = Arc::downgrade(&core);
            core
        })
    }
}

enum How {
    App(GithubApp),
    Login(OauthRefresh, Sealed),
}

impl Mint {
    /// For kinds whose secret is not sent itself.
    pub(super) fn of(
        config: &CredentialConfig,
        secret: Arc<Secret>,
        store: Option<&StoreConfig>,
    ) -> Option<Self> {
        let how = match &config.kind {
            CredentialKind::GithubApp(app) => How::App(app.clone()),
            CredentialKind::OauthRefresh(login) => {
                How::Login(login.clone(), Sealed::of(&config.name, store?)?)
            }
            CredentialKind::Bearer
            | CredentialKind::Basic { .. }
            | CredentialKind::Header { .. }
            | CredentialKind::GithubToken
            | CredentialKind::ProxmoxToken { .. }
            | CredentialKind::Anthropic
            | CredentialKind::Openai
            | CredentialKind::Query { .. } => return None,
        };
        Some(Self {
            inner: Arc::new(Inner {
                name: config.name.clone(),
                how,
                core: Arc::default(),
                secret,
            }),
        })
    }

    /// Shares what is known with all others of this name and secret. Only before its first use.
    pub(super) fn join(&mut self, cores: &Cores) {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.core = cores.of(&inner.name, &inner.secret);
        }
    }

    /// A token that is good for a while.
    pub(super) async fn token(&self, gate: &Arc<Gate>) -> Result<Arc<Secret>, MintError> {
        if let Some(known) = self.inner.core.at_hand() {
            return known;
        }
        let place = Arc::clone(&self.inner.core.waiting)
            .try_acquire_owned()
            .map_err(|_| MintError::Crowded)?;
        // A task of its own: a client that leaves must not break off a fetch whose answer is the
        // only copy of the next refresh token.
        let (inner, gate) = (Arc::clone(&self.inner), Arc::clone(gate));
        let fetching = async move {
            let fetched = inner.fetched(&gate).await;
            drop(place);
            fetched
        };
        tokio::spawn(fetching)
            .await
            .map_err(|_| MintError::Broken)?
    }

    /// The next asker gets a new one, unless that was so a moment ago.
    pub(super) fn forget(&self, token: &Arc<Secret>) {
        let mut known = self.inner.core.known();
        let now = Instant::now();
        let meant = known
            .live
            .as_ref()
            .is_some_and(|live| Arc::ptr_eq(&live.token, token));
        let often = known
            .forced
            .is_some_and(|forced| now.duration_since(forced) < FORCED_EVERY);
        if meant && !often {
            (known.live, known.forced) = (None, Some(now));
        }
    }
}

impl Core {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be said without a fetch.
    fn at_hand(&self) -> Option<Result<Arc<Secret>, MintError>> {
        let known = self.known();
        let now = Instant::now();
        let live = known.live.as_ref();
        if let Some(live) = live.filter(|live| now < live.renew) {
            return Some(Ok(Arc::clone(&live.token)));
        }
        let (at, problem) = known.failed.as_ref()?;
        if now.duration_since(*at) >= FAILURE_LASTS {
            return None;
        }
        // The one in hand may still be good.
        Some(match live.filter(|live| now < live.ends) {
            Some(live) => Ok(Arc::clone(&live.token)),
            None => Err(MintError::Earlier(problem.clone())),
        })
    }
}

impl Inner {
    async fn fetched(&self, gate: &Arc<Gate>) -> Result<Arc<Secret>, MintError> {
        let _turn = self.core.turn.lock().await;
        if let Some(known) = self.core.at_hand() {
            return known;
        }
        let asked = Instant::now();
        let fetched = match &self.how {
            How::App(app) => self.installation_token(gate, app).await,
            How::Login(login, sealed) => self.access_token(gate, login, sealed).await,
        };
        match fetched {
            Ok((token, lasts)) => {
                gate.audit.event(&format!(
                    "credential {}: a new token was fetched",
                    self.name
                ));
                let token = Arc::new(token);
                // The copies of the former one go with the connections that carried it.
                gate.upstream.forget_credential(&self.name);
                let early = (lasts / 2).min(Duration::from_secs(300));
                let mut known = self.core.known();
                known.failed = None;
                known.live = Some(Live {
                    token: Arc::clone(&token),
                    renew: asked + (lasts - early),
                    ends: asked + lasts,
                });
                Ok(token)
            }
            Err(problem) => {
                let said = super::source::chain(&problem);
                tracing::error!(credential = %self.name, "{said}");
                gate.audit
                    .event(&format!("credential {}: {problem}", self.name));
                let mut known = self.core.known();
                // Where nothing left, nobody is spared by waiting.
                if !matches!(&problem, MintError::Errand(errand) if errand.stayed()) {
                    known.failed = Some((Instant::now(), said));
                }
                let live = known.live.as_ref();
                match live.filter(|live| Instant::now() < live.ends) {
                    Some(live) => Ok(Arc::clone(&live.token)),
                    None => Err(problem),
                }
            }
        }
    }

    async fn installation_token(
        &self,
        gate: &Arc<Gate>,
        app: &GithubApp,
    ) -> Result<(Secret, Duration), MintError> {
        let now = Timestamp::now().as_second();
        let token = signed(&self.secret, &app.app, now)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, sensitive(&token));
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/vnd.github+json"),
        );
        let body = match app.repositories.is_empty() {
            true => Bytes::new(),
            false => {
                headers.insert(
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("application/json"),
                );
                serde_json::json!({ "repositories": app.repositories })
                    .to_string()
                    .into()
            }
        };
        let target = format!("/app/installations/{}/access_tokens", app.installation);
        let answer = errand::run(
            gate,
            Errand {
                credential: &self.name,
                authority: &app.api,
                method: Method::POST,
                target: &target,
                headers,
                body,
            },
        )
        .await?;
        let whom = app.api.to_string();
        let told = understood(&whom, &answer)?;
        let token = text(&told, "token").ok_or_else(|| MintError::Answer(whom.clone()))?;
        let token = taken(token, &whom)?;
        let ends: Timestamp = told["expires_at"]
            .as_str()
            .and_then(|ends| ends.parse().ok())
            .ok_or(MintError::Answer(whom))?;
        let lasts = ends.as_second() - Timestamp::now().as_second();
        Ok((token, bounded(lasts)))
    }

    async fn access_token(
        &self,
        gate: &Arc<Gate>,
        login: &OauthRefresh,
        sealed: &Sealed,
    ) -> Result<(Secret, Duration), MintError> {
        // What is on disk says that the token is being used, before it is used.
        let (sealed, seed) = (sealed.clone(), Arc::clone(&self.secret));
        let opened = sealed.clone();
        let refresh = tokio::task::spawn_blocking(move || opened.begin(&seed))
            .await
            .map_err(|_| MintError::Broken)??;
        if refresh.interrupted {
            gate.audit.event(&format!(
                "credential {}: the last refresh was interrupted; if the provider has used the token up, log in again",
                self.name
            ));
        }
        let (kind, body) = asking(login, refresh.token.expose());
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let errand = Errand {
            credential: &self.name,
            authority: &login.authority,
            method: Method::POST,
            target: &login.target,
            headers,
            body,
        };
        let seed = Arc::clone(&self.secret);
        let finish = async move |next: Arc<Secret>| -> Result<(), MintError> {
            tokio::task::spawn_blocking(move || sealed.finish(&seed, &next))
                .await
                .map_err(|_| MintError::Broken)??;
            Ok(())
        };
        let whom = login.authority.to_string();
        let told = match errand::run(gate, errand).await {
            Ok(answer) => {
                let told = understood(&whom, &answer);
                if told.is_err() && is_no(answer.status) {
                    finish(refresh.token).await?;
                    return Err(told.err().unwrap_or(MintError::Answer(whom)));
                }
                told?
            }
            Err(problem) => {
                if problem.stayed() {
                    finish(refresh.token).await?;
                }
                return Err(problem.into());
            }
        };
        // The new refresh token first, whatever else stands there: it may be the only one that is
        // good from now on. It is on disk before anything is done with the access token.
        let next = match told.get("refresh_token") {
            None | Some(serde_json::Value::Null) => refresh.token,
            Some(serde_json::Value::String(next)) if next.is_empty() => refresh.token,
            Some(serde_json::Value::String(next)) if let Ok(next) = taken(next, &whom) => {
                Arc::new(next)
            }
            Some(_) => {
                // The refresh is over, and nothing better is at hand than the token it used.
                finish(refresh.token).await?;
                return Err(MintError::Answer(whom));
            }
        };
        finish(next).await?;
        let token = text(&told, "access_token").ok_or_else(|| MintError::Answer(whom.clone()))?;
        let lasts = seconds(&told["expires_in"]).unwrap_or(3600);
        Ok((taken(token, &whom)?, bounded(lasts)))
    }
}

/// Whether a status says for certain that nothing was done.
fn is_no(status: StatusCode) -> bool {
    status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT
}

/// A member that is text and not empty.
fn text<'t>(told: &'t serde_json::Value, key: &str) -> Option<&'t str> {
    told[key].as_str().filter(|text| !text.is_empty())
}

/// A token of an answer, in protected memory, if it can be sent at all.
fn taken(token: &str, whom: &str) -> Result<Secret, MintError> {
    lint::minted(token.as_bytes()).map_err(|_| MintError::Answer(whom.to_owned()))?;
    Ok(Secret::take_text(token.to_owned())?)
}

/// Seconds as providers write them: `3600`, `3600.0` or `"3600"`.
fn seconds(told: &serde_json::Value) -> Option<i64> {
    let number = match told {
        serde_json::Value::Number(number) => number.as_f64(),
        serde_json::Value::String(text) => text.trim().parse().ok(),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_) => None,
    };
    let number = number.filter(|number: &f64| number.is_finite() && *number > 0.0)?;
    i64::try_from(Duration::try_from_secs_f64(number).ok()?.as_secs()).ok()
}

/// How long a token is used: what was said, within reason.
fn bounded(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).clamp(10, 24 * 3600))
}

/// What an answer that grants something says.
fn understood(whom: &str, answer: &Answer) -> Result<serde_json::Value, MintError> {
    if !answer.status.is_success() {
        let said: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        // A code is a word; a sentence might repeat what was sent.
        let word = said["error"].as_str().filter(|word| {
            word.len() <= 40
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        });
        return Err(MintError::Refused {
            whom: whom.to_owned(),
            status: answer.status,
            said: word.map(|word| format!(": {word}")).unwrap_or_default(),
        });
    }
    serde_json::from_slice(&answer.body).map_err(|_| MintError::Answer(whom.to_owned()))
}

/// The body of a refresh. Some providers take JSON only; the standard is a form.
fn asking(login: &OauthRefresh, refresh: &[u8]) -> (&'static str, Bytes) {
    let refresh = String::from_utf8_lossy(refresh);
    let host = login.authority.host().to_string();
    let json = ["anthropic.com", "claude.com", "claude.ai", "openai.com"]
        .iter()
        .any(|name| host == *name || host.ends_with(&format!(".{name}")));
    if json {
        let body = serde_json::json!({
            "grant_type": "refresh_token",
            "refresh_token": refresh,
            "client_id": login.client,
        });
        return ("application/json", body.to_string().into());
    }
    let body = format!(
        "grant_type=refresh_token&refresh_token={}&client_id={}",
        super::place::percent(refresh.as_bytes()).as_str(),
        super::place::percent(login.client.as_bytes()).as_str(),
    );
    ("application/x-www-form-urlencoded", body.into())
}

/// `Bearer` and a token by which the app names itself, good for nine minutes.
fn signed(key: &Secret, app: &str, now: i64) -> Result<Zeroizing<Vec<u8>>, MintError> {
    let key = PrivateKeyDer::from_pem_slice(key.expose()).map_err(|_| MintError::Key)?;
    let key =
        rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(|_| MintError::Key)?;
    let signer = key
        .choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
        .ok_or(MintError::Key)?;
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
    // A minute back, for clocks that differ.
    let claims = serde_json::json!({ "iat": now - 60, "exp": now + 540, "iss": app });
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    let text = format!("{head}.{claims}");
    let signature = signer.sign(text.as_bytes()).map_err(|_| MintError::Key)?;
    let signature = URL_SAFE_NO_PAD.encode(signature);
    Ok(Zeroizing::new(
        format!("Bearer {text}.{signature}").into_bytes(),
    ))
}

#[cfg(test)]
mod tests;
