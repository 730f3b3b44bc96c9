//! `[audit]`: where the log lies, how it is kept and what vouches for it. Every key but `directory`
//! may be left out. And `[metrics]`: where a scraper may ask.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::document::Section;
use super::parse::{OVERFLOW_UID, Resolve, path_key};
use crate::audit::Settings;

/// `[audit]`, but for its directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditConfig {
    /// `signing_key`: the OpenPGP key that signs checkpoints, a file with mode 0600 or 0400.
    pub signing_key: Option<PathBuf>,
    /// `segment_mib`: a file of this size is closed and a new one begun.
    pub segment_mib: Option<u64>,
    /// `segment_hours`: a file of this age is closed and a new one begun.
    pub segment_hours: Option<u64>,
    /// `compress_after_minutes`: closed files are compressed after so long.
    pub compress_after_minutes: Option<u64>,
    /// `keep_files`: how many closed files are kept.
    pub keep_files: Option<u64>,
    /// `keep_mib`: how many MiB of closed files are kept.
    pub keep_mib: Option<u64>,
    /// `keep_days`: how long closed files are kept.
    pub keep_days: Option<u64>,
    /// `checkpoint_records`: a checkpoint is written after so many lines.
    pub checkpoint_records: Option<u64>,
    /// `checkpoint_seconds`: a checkpoint is written after so long.
    pub checkpoint_seconds: Option<u64>,
}

impl AuditConfig {
    /// Reads the keys out of `[audit]`.
    pub(super) fn read(section: &mut Section<'_, '_>) -> Self {
        let signing_key = path_key(section, "signing_key", false);
        let mut number = |key| {
            let number = section.integer(key)?;
            if number.value == 0 {
                section.problem(number.at, key, "is 0", "give it a value or remove the line");
                return None;
            }
            Some(number.value)
        };
        Self {
            signing_key,
            segment_mib: number("segment_mib"),
            segment_hours: number("segment_hours"),
            compress_after_minutes: number("compress_after_minutes"),
            keep_files: number("keep_files"),
            keep_mib: number("keep_mib"),
            keep_days: number("keep_days"),
            checkpoint_records: number("checkpoint_records"),
            checkpoint_seconds: number("checkpoint_seconds"),
        }
    }

    /// The settings of the log, without a signer.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let mib = |mib: u64| mib.saturating_mul(1024 * 1024);
        let seconds = |count: u64, each: u64| Duration::from_secs(count.saturating_mul(each));
        let mut settings = Settings::default();
        let put = |place: &mut Duration, count: Option<u64>, each| {
            if let Some(count) = count {
                *place = seconds(count, each);
            }
        };
        put(&mut settings.segment_age, self.segment_hours, 3600);
        put(
            &mut settings.compress_after,
            self.compress_after_minutes,
            60,
        );
        put(&mut settings.checkpoint_every, self.checkpoint_seconds, 1);
        if let Some(size) = self.segment_mib {
            settings.segment_bytes = mib(size);
        }
        if let Some(records) = self.checkpoint_records {
            settings.checkpoint_records = records;
        }
        settings.keep_files = self
            .keep_files
            .map(|files| usize::try_from(files).unwrap_or(usize::MAX));
        settings.keep_bytes = self.keep_mib.map(mib);
        settings.keep_for = self.keep_days.map(|days| seconds(days, 24 * 3600));
        settings
    }
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    /// `listen`: a loopback address.
    pub listen: SocketAddr,
    /// `users`: who may ask, by uid.
    pub uids: Vec<u32>,
}

impl MetricsConfig {
    pub(super) fn read(mut section: Section<'_, '_>, uid_of: Resolve<'_>) -> Option<Self> {
        let listen = section.required_string("listen", "\"127.0.0.1:9464\"");
        let listen = listen.and_then(|text| match text.value.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Some(address),
            Ok(_) | Err(_) => {
                let problem = format!("{} is not a loopback ADDRESS:PORT", text.value);
                section.problem(text.at, "listen", problem, "write \"127.0.0.1:9464\"");
                None
            }
        });
        let users = section.strings("users").map(|list| list.value);
        if users.as_ref().is_none_or(Vec::is_empty) {
            let hint = "add users = [\"prometheus\"]";
            section.problem(section.at(), "users", "names nobody who may ask", hint);
        }
        let mut uids = Vec::new();
        for user in users.unwrap_or_default() {
            match uid_of(&user.value) {
                None | Some(OVERFLOW_UID | u32::MAX) => {
                    let problem = format!("there is no user {}", user.value);
                    let hint = "create it (useradd --system) or give a uid";
                    section.problem(user.at, "users", problem, hint);
                }
                Some(uid) => uids.push(uid),
            }
        }
        section.close();
        Some(Self {
            listen: listen?,
            uids,
        })
    }
}
