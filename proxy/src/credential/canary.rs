//! One harmless call that tells whether a credential works, and if not, why: the same call with and
//! without it. A 401 that looks like a missing permission may be a mistyped value; here it is told
//! before an agent meets it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Serialize;

use super::place::Placed;
use super::{Credential, shape};
use crate::config::CanaryConfig;
use crate::errand::{self, Answer, Errand};
use crate::gate::Gate;

/// What a canary call found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CanaryView {
    /// When, RFC 3339.
    pub at: String,
    /// In one word.
    pub verdict: Verdict,
    /// In a sentence.
    pub text: String,
    /// By how much the far end's clock is ahead of ours, where it names a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead_seconds: Option<i64>,
}

/// In one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The call succeeds with it and fails without.
    Works,
    /// The far end does not take it for a credential at all.
    Format,
    /// It is known there, and may not do this.
    Scope,
    /// It was good once.
    Expired,
    /// It is not taken: mistyped, revoked or for somewhere else.
    Refused,
    /// The call says nothing about the credential.
    ProvesNothing,
    /// There was no answer to judge.
    Unknown,
}

impl Verdict {
    /// Whether the credential was seen to work.
    #[must_use]
    pub fn works(self) -> bool {
        matches!(self, Self::Works)
    }
}

/// Sends the canaries of new values, or of all, and notes what they found.
pub async fn try_canaries(gate: &Arc<Gate>, all: bool) {
    for (credential, canary) in gate.vault.to_try(all) {
        let found = test(gate, &credential, &canary).await;
        note(gate, &credential, found);
    }
}

/// Says what was found where it is looked for.
pub(super) fn note(gate: &Gate, credential: &Arc<Credential>, found: CanaryView) {
    let name = credential.name();
    let text = format!("credential {name}: canary: {}", found.text);
    if found.verdict.works() {
        tracing::info!("{text}");
    } else {
        tracing::error!("{text}");
    }
    gate.audit.event(&text);
    if gate.vault.tried(credential, found) {
        gate.audit
            .event(&format!("credential {name}: a new value is in use"));
    }
}

/// Makes both calls and judges them.
pub(super) async fn test(
    gate: &Arc<Gate>,
    credential: &Credential,
    canary: &CanaryConfig,
) -> CanaryView {
    let both = both(gate, credential, canary).await;
    let clock_ahead_seconds = both.as_ref().ok().and_then(|(with, ..)| ahead(with));
    let (verdict, text) = match both {
        Ok((with, without, known)) => judge(&with, without, known),
        Err(text) => (Verdict::Unknown, text),
    };
    CanaryView {
        at: crate::audit::now(),
        verdict,
        text,
        clock_ahead_seconds,
    }
}

async fn both(
    gate: &Arc<Gate>,
    credential: &Credential,
    canary: &CanaryConfig,
) -> Result<(Answer, StatusCode, bool), String> {
    let host = canary.authority.host();
    let token = credential
        .token(gate)
        .await
        .map_err(|problem| super::source::chain(&problem))?;
    let placed = credential
        .place(host, &canary.target, &token)
        .ok_or_else(|| format!("it is not bound to {host}"))?;
    let known = shape::recognise(token.expose()) != "of no known form";
    let mut headers = HeaderMap::new();
    let mut target = canary.target.clone();
    match placed {
        Placed::Nowhere => return Err(format!("it is not sent to {host}{}", canary.target)),
        Placed::Field { name, value, also } => {
            headers.insert(name, value);
            if let Some((name, value)) = also {
                headers.insert(name, http::HeaderValue::from_static(value));
            }
        }
        Placed::Query { parameter, value } => {
            let mark = if target.contains('?') { '&' } else { '?' };
            target = format!("{target}{mark}{parameter}={}", value.as_str());
        }
    }
    let call = async |target: &str, headers| {
        let errand = Errand {
            credential: credential.name(),
            authority: &canary.authority,
            method: canary.method.clone(),
            target,
            headers,
            body: Bytes::new(),
        };
        errand::run(gate, errand)
            .await
            .map_err(|problem| super::source::chain(&problem))
    };
    let without = call(&canary.target, HeaderMap::new()).await?;
    let with = call(&target, headers).await?;
    if with.status == StatusCode::UNAUTHORIZED {
        // Of a token that was fetched, the next call gets a new one.
        credential.refused(&token);
    }
    Ok((with, without.status, known))
}

/// `known` says that the value has a form that its issuer uses.
fn judge(with: &Answer, without: StatusCode, known: bool) -> (Verdict, String) {
    let status = with.status;
    if status.is_success() && without.is_success() {
        return (
            Verdict::ProvesNothing,
            format!("the call answers {without} without a credential too: choose another one"),
        );
    }
    if status.is_success() {
        let ends = with
            .headers
            .get("github-authentication-token-expiration")
            .and_then(|value| date(value.to_str().ok()?))
            .map(|when| format!("; it ends {when}"))
            .unwrap_or_default();
        return (
            Verdict::Works,
            format!("{status} with it, {without} without{ends}"),
        );
    }
    let said = told(with);
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST if said.contains("expire") => (
            Verdict::Expired,
            format!("{status}: it has expired; issue a new one"),
        ),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if said.contains("insufficient_scope") => {
            (
                Verdict::Scope,
                format!("{status}: its scope does not reach this call"),
            )
        }
        StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST if !known => (
            Verdict::Format,
            format!(
                "{status}, and it has no form that its issuer is known to use: check the value, not the permissions"
            ),
        ),
        StatusCode::BAD_REQUEST => (
            Verdict::Format,
            format!("{status}: the far end cannot read it as a credential"),
        ),
        StatusCode::UNAUTHORIZED => (
            Verdict::Refused,
            format!("{status} with it, {without} without: mistyped, revoked or expired"),
        ),
        StatusCode::FORBIDDEN => (
            Verdict::Scope,
            format!("{status} with it, {without} without: it is known and may not do this"),
        ),
        StatusCode::NOT_FOUND if without == StatusCode::UNAUTHORIZED => (
            Verdict::Scope,
            format!("{status} with it, {without} without: it is known and does not see this"),
        ),
        _ if status == without => (
            Verdict::ProvesNothing,
            format!("{status} with it and without: choose another call"),
        ),
        _ => (
            Verdict::Unknown,
            format!("{status} with it, {without} without"),
        ),
    }
}

/// The far end's time, as it names it in its answer, less ours.
fn ahead(answer: &Answer) -> Option<i64> {
    let named = answer.headers.get(http::header::DATE)?.to_str().ok()?;
    let named = jiff::fmt::rfc2822::parse(named).ok()?.timestamp();
    Some(named.as_second() - jiff::Timestamp::now().as_second())
}

/// A moment as GitHub writes it, `2027-01-31 12:00:00 UTC` or with an offset. Whatever else stands
/// there is not repeated.
fn date(text: &str) -> Option<jiff::Timestamp> {
    let text = text.replace(" UTC", " +0000");
    let moment = jiff::fmt::strtime::parse("%Y-%m-%d %H:%M:%S %z", text).ok()?;
    moment.to_timestamp().ok()
}

/// What the far end says about its refusal, in small letters, for a look at single words.
fn told(answer: &Answer) -> String {
    let challenge = answer
        .headers
        .get(http::header::WWW_AUTHENTICATE)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default();
    let body = String::from_utf8_lossy(&answer.body);
    let body: String = body.chars().take(4096).collect();
    format!("{challenge} {body}").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(with: u16, without: u16, body: &'static str, known: bool) -> Verdict {
        let answer = Answer {
            status: StatusCode::from_u16(with).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
        };
        judge(&answer, StatusCode::from_u16(without).unwrap(), known).0
    }

    #[test]
    fn when_it_ends_is_told_only_if_it_is_a_date() {
        let told = |when: &'static str| {
            let mut headers = HeaderMap::new();
            let value = http::HeaderValue::from_static(when);
            headers.insert("github-authentication-token-expiration", value);
            let answer = Answer {
                status: StatusCode::OK,
                headers,
                body: Bytes::new(),
            };
            judge(&answer, StatusCode::UNAUTHORIZED, true).1
        };
        for date in ["2027-01-31 12:00:00 UTC", "2027-01-31 13:00:00 +0100"] {
            let text = told(date);
            assert!(text.ends_with("; it ends 2027-01-31T12:00:00Z"), "{text}");
        }
        for other in ["ghp_repeated", "2027-01-31 12:00:00 UTC ghp_repeated", ""] {
            let text = told(other);
            assert!(text.ends_with("without"), "{text}");
        }
    }

    #[test]
    fn how_far_the_clocks_are_apart_is_told_where_the_answer_names_a_time() {
        let of = |date: Option<String>| {
            let mut headers = HeaderMap::new();
            if let Some(date) = date {
                headers.insert(http::header::DATE, date.parse().unwrap());
            }
            ahead(&Answer {
                status: StatusCode::OK,
                headers,
                body: Bytes::new(),
            })
        };
        let hour = jiff::Timestamp::now() + jiff::Span::new().hours(1);
        let text = hour.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        assert!((3590..=3610).contains(&of(Some(text)).unwrap()));
        assert_eq!(of(Some("yesterday".to_owned())), None);
        assert_eq!(of(None), None);
    }

    #[test]
    fn a_401_is_told_apart() {
        assert_eq!(verdict(200, 401, "", true), Verdict::Works);
        assert_eq!(verdict(200, 200, "", true), Verdict::ProvesNothing);
        assert_eq!(
            verdict(401, 401, "{\"message\":\"Bad credentials\"}", true),
            Verdict::Refused
        );
        assert_eq!(verdict(401, 401, "no ticket", false), Verdict::Format);
        assert_eq!(
            verdict(401, 401, "token has expired", true),
            Verdict::Expired
        );
        assert_eq!(
            verdict(401, 401, "error=\"insufficient_scope\"", true),
            Verdict::Scope
        );
        assert_eq!(verdict(403, 401, "", true), Verdict::Scope);
        assert_eq!(verdict(404, 401, "", true), Verdict::Scope);
        assert_eq!(verdict(404, 404, "", true), Verdict::ProvesNothing);
        assert_eq!(verdict(502, 401, "", true), Verdict::Unknown);
    }
}
