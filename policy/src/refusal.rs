//! The closed vocabulary of refusals: one stable code, one sentence, one remedy.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::permit::RuleId;

/// A refusal as the agent reads it and the audit log keeps it. Every text says that it is the
/// gate that speaks, so that nobody mistakes it for the upstream's own answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Stable code.
    pub code: Code,
    /// The rule that refused, or the nearest rule that did not permit.
    pub rule: Option<RuleId>,
    /// The `why` of that rule.
    pub why: Option<String>,
    /// Of a push: the refs that are not permitted, each with its code; the others would have been.
    pub refs: Vec<(String, Code)>,
    /// What would have to change, and where.
    pub remedy: String,
    /// One sentence, starting with `portcullis: `.
    pub text: String,
    /// After so many seconds it is worth asking again.
    pub retry_after: Option<NonZeroU32>,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:literal;)+) => {
        /// Why something was refused. The text form is stable and part of the audit format.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $text)] $variant,)+
        }

        impl Code {
            /// Every code, in the order of the documentation's table.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The stable text form.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The HTTP status that carries it: 4xx final or malformed, 429 passing, 5xx when the
            /// gate or the upstream failed.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }
        }
    };
}

codes! {
    /// No service lists this host.
    DestinationNotListed = "destination_not_listed", 403;
    /// The host is listed, but not on this port.
    PortNotListed = "port_not_listed", 403;
    /// The host and port are listed for the other scheme.
    SchemeNotListed = "scheme_not_listed", 403;
    /// The path is listed, but not for this method.
    MethodNotAllowed = "method_not_allowed", 403;
    /// TRACE, CONNECT inside a tunnel, and every method the gate does not know.
    MethodRefused = "method_refused", 405;
    /// No rule of this host allows the path.
    PathNotAllowed = "path_not_allowed", 403;
    /// A deny entry matches; deny always wins.
    DeniedByRule = "denied_by_rule", 403;
    /// The path can be read in two ways.
    AmbiguousPath = "ambiguous_path", 400;
    /// The repository may not be pushed to.
    PushNotAllowed = "push_not_allowed", 403;
    /// The push changes a ref that no `refs` pattern names.
    RefNotAllowed = "ref_not_allowed", 403;
    /// The push deletes a ref.
    DeleteNotAllowed = "delete_not_allowed", 403;
    /// The push moves a ref that may only move forward, and it is not proven that it does.
    ForceNotAllowed = "force_not_allowed", 403;
    /// Git LFS is not served.
    LfsNotAllowed = "lfs_not_allowed", 403;
    /// The model, a bound of what it writes, or tools that no rule permits.
    ModelNotAllowed = "model_not_allowed", 403;
    /// The facts that the rule needs could not be read from the request.
    CouldNotInspect = "could_not_inspect", 403;
    /// The body is longer than the rule has read.
    InspectionTooLarge = "inspection_too_large", 413;
    /// A condition of the rule on the query, the head or the body is not met.
    ConditionNotMet = "condition_not_met", 403;
    /// The GraphQL request would execute an operation that the rule does not permit.
    OperationNotAllowed = "operation_not_allowed", 403;
    /// Somebody who was asked about the request said no.
    HoldDenied = "hold_denied", 403;
    /// Nobody who may decided about the request in time.
    HoldExpired = "hold_expired", 403;
    /// Several rules allow the request with different credentials.
    AmbiguousCredential = "ambiguous_credential", 403;
    /// CONNECT target, SNI and Host do not name one authority.
    AuthorityMismatch = "authority_mismatch", 421;
    /// The TLS server name differs from the CONNECT target.
    SniMismatch = "sni_mismatch", 421;
    /// A redirected client did not say which host it means.
    NameMissing = "name_missing", 421;
    /// The authority is not a strict host:port.
    MalformedAuthority = "malformed_authority", 400;
    /// The request breaks the protocol's grammar.
    MalformedRequest = "malformed_request", 400;
    /// The request head is too large.
    HeadTooLarge = "head_too_large", 431;
    /// The request's body is longer than the rule permits.
    RequestTooLarge = "request_too_large", 413;
    /// Upgrade, trailers, or another protocol feature that no rule opens.
    FeatureRefused = "feature_refused", 403;
    /// The request's `Expect` is none that can be met.
    ExpectationRefused = "expectation_refused", 417;
    /// The client did not finish its request in time.
    ClientTimeout = "client_timeout", 408;
    /// The gate does not know who is asking.
    IdentityUnknown = "identity_unknown", 403;
    /// The entrance wants a run's token, and none was shown.
    TokenMissing = "token_missing", 407;
    /// The token that was shown is none of a run that is open.
    TokenUnknown = "token_unknown", 403;
    /// The run has ended, or its lease has.
    RunEnded = "run_ended", 403;
    /// A limit of the run is reached; it will pass.
    LimitReached = "limit_reached", 429;
    /// What a run, ticket, agent, project or company may take is spent.
    AllowanceSpent = "allowance_spent", 403;
    /// The same where it is renewed within the hour.
    AllowanceWaits = "allowance_waits", 429;
    /// What was taken cannot be noted, so nothing more is given out.
    AllowanceUnavailable = "allowance_unavailable", 503;
    /// The rule permits it less often.
    RateLimited = "rate_limited", 429;
    /// Nobody has said what the model costs.
    PriceUnknown = "price_unknown", 403;
    /// The kernel boundary is not proven at this moment.
    BoundaryNotProven = "boundary_not_proven", 503;
    /// The audit record could not be made durable.
    AuditUnavailable = "audit_unavailable", 503;
    /// The policy in force is missing or broken.
    PolicyInvalid = "policy_invalid", 503;
    /// The credential that the rule names is not loaded.
    CredentialMissing = "credential_missing", 503;
    /// The credential may not go to this host.
    CredentialNotForHost = "credential_not_for_host", 403;
    /// The upstream did not accept the credential that the gate injected.
    CredentialRefused = "credential_refused", 502;
    /// The upstream's answer repeats the credential that the gate injected.
    CredentialReflected = "credential_reflected", 502;
    /// The upstream's name did not resolve.
    UpstreamDns = "upstream_dns", 502;
    /// The name resolves to an address that is not public.
    UpstreamPrivate = "upstream_private", 403;
    /// No connection to the upstream.
    UpstreamUnreachable = "upstream_unreachable", 502;
    /// The upstream's certificate or TLS failed verification.
    UpstreamTls = "upstream_tls", 502;
    /// The upstream's certificate has expired, or is not valid yet.
    UpstreamTlsExpired = "upstream_tls_expired", 502;
    /// The upstream's certificate is for another name.
    UpstreamTlsWrongName = "upstream_tls_wrong_name", 502;
    /// The upstream's certificate is signed by a CA that the gate does not trust.
    UpstreamTlsUnknownCa = "upstream_tls_unknown_ca", 502;
    /// The upstream's certificate is signed by itself.
    UpstreamTlsSelfSigned = "upstream_tls_self_signed", 502;
    /// The upstream's public key is not the pinned one.
    UpstreamTlsPinMismatch = "upstream_tls_pin_mismatch", 502;
    /// The answer's body is longer than the rule permits.
    AnswerTooLarge = "answer_too_large", 502;
    /// The request with its answer takes longer than the rule permits.
    TimeExceeded = "time_exceeded", 504;
    /// The upstream did not answer in time.
    UpstreamTimeout = "upstream_timeout", 504;
    /// The upstream broke the protocol.
    UpstreamProtocol = "upstream_protocol", 502;
    /// The gate itself failed.
    GateFailed = "gate_failed", 500;
}

impl Code {
    /// The code with this text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Refusal {
    /// A refusal without a rule. `sentence` is what happened, without the `portcullis: ` that is
    /// put in front of it and without a full stop; `remedy` says what would help.
    #[must_use]
    pub fn new(code: Code, sentence: &str, remedy: &str) -> Self {
        Self {
            code,
            rule: None,
            why: None,
            refs: Vec::new(),
            remedy: remedy.to_owned(),
            text: format!("portcullis: {sentence}"),
            retry_after: None,
        }
    }

    /// Names the rule, and passes on its `why`.
    #[must_use]
    pub fn by(mut self, rule: &RuleId, why: Option<&str>) -> Self {
        self.rule = Some(rule.clone());
        self.why = why.map(str::to_owned);
        self
    }

    /// Says after how many seconds it is worth asking again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        self.retry_after = NonZeroU32::new(seconds.max(1));
        self
    }

    /// The status that carries the refusal.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.code.status()
    }
}

impl fmt::Display for Refusal {
    /// Text, `why` and remedy as lines, for clients that print a plain body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.text, self.code)?;
        if let Some(why) = &self.why {
            writeln!(f, "why: {why}")?;
        }
        write!(f, "hint: {}", self.remedy)
    }
}

/// How much of a client's text a refusal repeats, in characters.
pub(crate) const MOST_SHOWN: usize = 120;

/// A client's text as a refusal may repeat it: short, printable ASCII.
pub(crate) fn clip(text: &str) -> String {
    let escape = |c: char| c.escape_default();
    let printable = |c: char| c.is_ascii_graphic() || c == ' ';
    let mut out = String::new();
    for c in text.chars().take(MOST_SHOWN) {
        if printable(c) {
            out.push(c);
        } else {
            out.extend(escape(c));
        }
    }
    if text.chars().nth(MOST_SHOWN).is_some() {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests;
