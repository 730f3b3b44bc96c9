//! Is the kernel boundary in force, here and now? The judgement alone.
//!
//! `portcullis-boundary watch` rewrites a small status file each second. Whoever lets agents do
//! anything (the gate, the orchestrator, `exec`, a container's entrypoint) reads it, says where and
//! when it is itself, and asks here; one judgement, so that they never disagree. The caller sees to
//! it that nobody but root could have written the file.
//!
//! ```json
//! {"version":1,"ok":true,"boot_id":"…","netns":4026531840,"boottime_ms":81234,
//!  "ruleset_hash":"…","scope":"agents","table":"portcullis","problem":null,"events":[]}
//! ```

use serde::Deserialize;

/// A status older than this is not believed. The watcher writes every second.
pub const FRESH_MS: u64 = 5_000;
/// A status file is some kilobytes; more than this is not one.
pub const STATUS_BYTES_MAX: u64 = 64 * 1024;

/// Where and when the caller is, measured by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// `/proc/sys/kernel/random/boot_id`, trimmed.
    pub boot_id: String,
    /// Inode of `/proc/self/ns/net`.
    pub netns: u64,
    /// `CLOCK_BOOTTIME` in milliseconds.
    pub boottime_ms: u64,
}

/// The boundary holds, as far as this machine can show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// SHA-256 of the ruleset in force, hex.
    pub ruleset_hash: String,
    /// `agents` or `guest`.
    pub scope: String,
    /// The nft table.
    pub table: String,
}

/// Why the boundary is not proven. Every variant means: nothing may start, nothing is served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not the JSON we know.
    #[error("the boundary status is not understood: {0}")]
    Corrupt(String),
    /// Written before the last boot.
    #[error("the boundary status is of another boot")]
    OtherBoot,
    /// Written for another network namespace.
    #[error("the boundary status is of another network namespace")]
    OtherNamespace,
    /// Too old, or from the future: nobody watches the ruleset.
    #[error("the boundary status is stale: portcullis-boundary watch is not running")]
    Stale,
    /// The watcher itself says no.
    #[error("the boundary is not in force: {0}")]
    NotOk(String),
}

impl Problem {
    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Corrupt(_) => "bring portcullis-boundary and this program to one version",
            Self::OtherBoot | Self::Stale => {
                "start portcullis-boundary watch, or see why it ended: portcullis status"
            }
            Self::OtherNamespace => {
                "the rules must stand in the network namespace that the agents' gate is in"
            }
            Self::NotOk(_) => "portcullis-boundary verify names what is wrong, apply puts it right",
        }
    }
}

/// Unknown keys are let be: a newer watcher may say more.
#[derive(Deserialize)]
struct Status {
    version: u32,
    ok: bool,
    boot_id: String,
    netns: u64,
    boottime_ms: u64,
    #[serde(default)]
    ruleset_hash: String,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    table: String,
    #[serde(default)]
    problem: Option<String>,
}

/// The proof in the text of a status file, or why there is none. `max_age_ms` is [`FRESH_MS`]
/// unless the caller knows better.
///
/// # Errors
/// [`Problem`]: corrupt, foreign, stale or not in force.
pub fn judge(text: &str, here: &Here, max_age_ms: u64) -> Result<Proof, Problem> {
    let status: Status =
        serde_json::from_str(text).map_err(|problem| Problem::Corrupt(problem.to_string()))?;
    if status.version != 1 {
        let text = format!("version {} is not 1", status.version);
        return Err(Problem::Corrupt(text));
    }
    if status.boot_id != here.boot_id {
        return Err(Problem::OtherBoot);
    }
    if status.netns != here.netns {
        return Err(Problem::OtherNamespace);
    }
    // A status from the future is as wrong as an old one: this clock only runs forward.
    if here.boottime_ms.abs_diff(status.boottime_ms) > max_age_ms {
        return Err(Problem::Stale);
    }
    if !status.ok {
        let reason = status
            .problem
            .unwrap_or_else(|| "no reason given".to_owned());
        return Err(Problem::NotOk(reason));
    }
    if status.ruleset_hash.is_empty() {
        return Err(Problem::Corrupt("it names no ruleset".to_owned()));
    }
    Ok(Proof {
        ruleset_hash: status.ruleset_hash,
        scope: status.scope,
        table: status.table,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Here {
        Here {
            boot_id: "b".into(),
            netns: 7,
            boottime_ms: 100_000,
        }
    }

    fn status(change: impl FnOnce(&mut serde_json::Value)) -> Result<Proof, Problem> {
        let mut value = serde_json::json!({
            "version": 1, "ok": true, "boot_id": "b", "netns": 7, "boottime_ms": 99_000,
            "ruleset_hash": "abc", "scope": "agents", "table": "portcullis", "problem": null,
            "events": [{"kind": "reasserted"}],
        });
        change(&mut value);
        judge(&value.to_string(), &here(), FRESH_MS)
    }

    #[test]
    fn a_fresh_status_of_this_boot_and_namespace_is_proof() {
        let proof = status(|_| ()).unwrap();
        assert_eq!(proof.table, "portcullis");
        assert!(status(|status| status["boottime_ms"] = 95_000.into()).is_ok());
        // Written while the reader looked at its clock.
        assert!(status(|status| status["boottime_ms"] = 100_001.into()).is_ok());
    }

    #[test]
    fn every_other_status_is_refused_with_a_remedy() {
        let cases: [(&str, serde_json::Value, Problem); 6] = [
            ("boot_id", "other".into(), Problem::OtherBoot),
            ("netns", 8.into(), Problem::OtherNamespace),
            ("boottime_ms", 94_999.into(), Problem::Stale),
            ("boottime_ms", 105_001.into(), Problem::Stale),
            ("ok", false.into(), Problem::NotOk("no reason given".into())),
            (
                "version",
                2.into(),
                Problem::Corrupt("version 2 is not 1".into()),
            ),
        ];
        for (key, value, expected) in cases {
            let problem = status(|status| status[key] = value).unwrap_err();
            assert_eq!(problem, expected, "{key}");
            assert!(!problem.remedy().is_empty());
        }
        assert!(matches!(
            status(|status| status["ruleset_hash"] = "".into()),
            Err(Problem::Corrupt(_))
        ));
        for text in ["", "{}", "null", "[]", "{\"version\":1,\"ok\":true}"] {
            let judged = judge(text, &here(), FRESH_MS);
            assert!(matches!(judged, Err(Problem::Corrupt(_))), "{text}");
        }
    }
}
