//! How each credential fares: for status, doctor and metrics. Names, kinds and verdicts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use policy::credential::CredentialName;
use serde::Serialize;

use super::canary::CanaryView;

/// One line of `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CredentialView {
    /// The credential.
    pub name: CredentialName,
    /// Its kind, as the configuration writes it.
    pub kind: &'static str,
    /// Whether it can be injected now.
    pub ok: bool,
    /// When the value in use was read, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded_at: Option<String>,
    /// Why not, or why an older value is in use. Absent when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Set while an upstream refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sick: Option<Sickness>,
    /// What the last canary call found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryView>,
}

/// An upstream answered 401 to the credential, and has not taken it since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sickness {
    /// The first refusal, RFC 3339.
    pub since: String,
    /// How many there were.
    pub refusals: u64,
    /// Who refused it.
    pub by: String,
}

/// A snapshot for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialHealth {
    /// The credential.
    pub name: CredentialName,
    /// Its kind, as the configuration writes it.
    pub kind: &'static str,
    /// Whether it can be injected now.
    pub loaded: bool,
    /// Whether an older value is in use because the present one could not be read.
    pub stale: bool,
    /// Whether an upstream refuses it.
    pub sick: bool,
    /// What the last canary call found, if there is a canary: whether the credential works.
    pub canary_works: Option<bool>,
    /// Requests that it was put on.
    pub injected: u64,
    /// Of those, how many the upstream answered with 401.
    pub refused: u64,
}

/// Counters that outlive a rotation.
#[derive(Debug, Default)]
pub(super) struct Health {
    injected: AtomicU64,
    refused: AtomicU64,
    sick: Mutex<Option<Sickness>>,
    canary: Mutex<Option<CanaryView>>,
}

impl Health {
    pub(super) fn injected(&self) {
        self.injected.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this is the first refusal in a row.
    pub(super) fn refused(&self, by: &str) -> bool {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut sick = self.sick.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *sick {
            Some(sick) => {
                sick.refusals = sick.refusals.saturating_add(1);
                false
            }
            None => {
                *sick = Some(Sickness {
                    since: crate::audit::now(),
                    refusals: 1,
                    by: by.to_owned(),
                });
                true
            }
        }
    }

    /// It was taken, or it is another value now. Whether it was sick.
    pub(super) fn recovered(&self) -> bool {
        let mut sick = self.sick.lock().unwrap_or_else(PoisonError::into_inner);
        sick.take().is_some()
    }

    pub(super) fn tried(&self, found: Option<CanaryView>) {
        *self.canary.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    pub(super) fn sickness(&self) -> Option<Sickness> {
        let sick = self.sick.lock().unwrap_or_else(PoisonError::into_inner);
        sick.clone()
    }

    pub(super) fn canary(&self) -> Option<CanaryView> {
        let canary = self.canary.lock().unwrap_or_else(PoisonError::into_inner);
        canary.clone()
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        (
            self.injected.load(Ordering::Relaxed),
            self.refused.load(Ordering::Relaxed),
        )
    }
}
