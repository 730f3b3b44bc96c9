//! Tokens that are fetched with a secret: installation tokens of a GitHub App, access tokens of a
//! login. One fetch at a time, renewed before they end, kept in protected memory only.

use std::sync::{Arc, Mutex, PoisonError};
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
use zeroize::Zeroizing;

use super::sealed::{Sealed, SealedError};
use super::sensitive;
use crate::config::{CredentialConfig, CredentialKind, GithubApp, OauthRefresh, StoreConfig};
use crate::errand::{self, Answer, Errand, ErrandError};
use crate::gate::Gate;
use crate::vault::{Secret, VaultError};

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
    live: Mutex<Option<Live>>,
    turn: tokio::sync::Mutex<()>,
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
                secret,
                live: Mutex::new(None),
                turn: tokio::sync::Mutex::new(()),
            }),
        })
    }

    /// A token that is good for a while.
    pub(super) async fn token(&self, gate: &Arc<Gate>) -> Result<Arc<Secret>, MintError> {
        if let Some(token) = self.inner.fresh() {
            return Ok(token);
        }
        // A task of its own: a client that leaves must not break off a fetch whose answer is the
        // only copy of the next refresh token.
        let (inner, gate) = (Arc::clone(&self.inner), Arc::clone(gate));
        tokio::spawn(async move { inner.fetched(&gate).await })
            .await
            .map_err(|_| MintError::Broken)?
    }

    /// The next asker gets a new one.
    pub(super) fn forget(&self, token: &Arc<Secret>) {
        let mut live = self.inner.live();
        if live
            .as_ref()
            .is_some_and(|live| Arc::ptr_eq(&live.token, token))
        {
            *live = None;
        }
    }
}

impl Inner {
    fn live(&self) -> std::sync::MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self) -> Option<Arc<Secret>> {
        let live = self.live();
        let live = live.as_ref()?;
        (Instant::now() < live.renew).then(|| Arc::clone(&live.token))
    }

    async fn fetched(&self, gate: &Arc<Gate>) -> Result<Arc<Secret>, MintError> {
        let _turn = self.turn.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(token);
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
                let early = (lasts / 2).min(Duration::from_secs(300));
                *self.live() = Some(Live {
                    token: Arc::clone(&token),
                    renew: asked + (lasts - early),
                    ends: asked + lasts,
                });
                Ok(token)
            }
            Err(problem) => {
                tracing::error!(credential = %self.name, "{}", super::source::chain(&problem));
                gate.audit
                    .event(&format!("credential {}: {problem}", self.name));
                // The one in hand may still be good.
                let live = self.live();
                match live.as_ref().filter(|live| Instant::now() < live.ends) {
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
                authority: &app.api,
                method: Method::POST,
                target: &target,
                headers,
                body,
            },
        )
        .await?;
        #[derive(serde::Deserialize)]
        struct Told {
            token: String,
            expires_at: String,
        }
        let told: Told = understood(&app.api.to_string(), &answer, StatusCode::CREATED)?;
        let ends: Timestamp = told
            .expires_at
            .parse()
            .map_err(|_| MintError::Answer(app.api.to_string()))?;
        let lasts = ends.as_second() - Timestamp::now().as_second();
        Ok((Secret::take_text(told.token)?, bounded(lasts)))
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
            authority: &login.authority,
            method: Method::POST,
            target: &login.target,
            headers,
            body,
        };
        let answer = match errand::run(gate, errand).await {
            Ok(answer) => answer,
            Err(problem) => {
                let unused = matches!(
                    problem,
                    ErrandError::Boundary | ErrandError::NotPermitted(..)
                );
                if unused {
                    let seed = Arc::clone(&self.secret);
                    let token = refresh.token;
                    tokio::task::spawn_blocking(move || sealed.finish(&seed, &token))
                        .await
                        .map_err(|_| MintError::Broken)??;
                }
                return Err(problem.into());
            }
        };
        #[derive(serde::Deserialize)]
        struct Told {
            access_token: String,
            refresh_token: Option<String>,
            expires_in: Option<i64>,
        }
        let told: Told = understood(&login.authority.to_string(), &answer, StatusCode::OK)?;
        let next = match told.refresh_token.filter(|next| !next.is_empty()) {
            Some(next) => Arc::new(Secret::take_text(next)?),
            None => refresh.token,
        };
        // The new refresh token is on disk before anything is done with the access token.
        let seed = Arc::clone(&self.secret);
        tokio::task::spawn_blocking(move || sealed.finish(&seed, &next))
            .await
            .map_err(|_| MintError::Broken)??;
        let lasts = told.expires_in.unwrap_or(3600);
        Ok((Secret::take_text(told.access_token)?, bounded(lasts)))
    }
}

/// How long a token is used: what was said, within reason.
fn bounded(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).clamp(10, 24 * 3600))
}

fn understood<T: serde::de::DeserializeOwned>(
    whom: &str,
    answer: &Answer,
    wanted: StatusCode,
) -> Result<T, MintError> {
    if answer.status != wanted && answer.status != StatusCode::OK {
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
