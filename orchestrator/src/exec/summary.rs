//! What exec says at the end, on standard error: for people, or as one line of JSON.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::changes::Changed;

/// The end of a run, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The run's id: `portcullis audit query --run ID` shows the records.
    pub run: String,
    /// The command's exit code, 128 and more for signals.
    pub exit: u8,
    /// Requests that were let through.
    pub allowed: Vec<Seen>,
    /// Requests that were refused.
    pub refused: Vec<Seen>,
    /// Why the requests are not known, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_unknown: Option<String>,
    /// Changed files that a tool of the host would execute.
    pub changed: Vec<Changed>,
    /// Whether the search for changed files reached its end.
    pub changes_complete: bool,
    /// Names that appeared where git or direnv would take commands from them, and were moved.
    #[serde(serialize_with = "readable_all")]
    pub put_aside: Vec<PathBuf>,
    /// The branch that the work of `--clone` is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// Equal requests, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// How many.
    pub times: u64,
    /// `GET https://api.example.com:443/v1/status`.
    pub request: String,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The credential that was injected, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The refusal's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// Lines of one group printed at most; JSON has all.
const SHOWN: usize = 40;

impl Summary {
    /// Counts the gate's records of a run into [`Self::allowed`] and [`Self::refused`].
    pub(super) fn count(&mut self, records: &[Value]) {
        for record in records {
            let text = |key: &str| record[key].as_str().map(str::to_owned);
            let list = match (record["kind"].as_str(), record["verdict"].as_str()) {
                (Some("refusal"), _) | (Some("request"), Some("refuse")) => &mut self.refused,
                (Some("request"), _) => &mut self.allowed,
                _ => continue,
            };
            let request = format!(
                "{} {}://{}{}",
                text("method").unwrap_or_else(|| "CONNECT".to_owned()),
                text("scheme").unwrap_or_else(|| "https".to_owned()),
                text("authority").unwrap_or_else(|| "?".to_owned()),
                text("path").unwrap_or_default(),
            );
            let seen = Seen {
                times: 1,
                request,
                rule: text("rule"),
                credential: text("credential"),
                code: text("code"),
            };
            let same = |other: &&mut Seen| {
                (&other.request, &other.rule, &other.code)
                    == (&seen.request, &seen.rule, &seen.code)
            };
            match list.iter_mut().find(same) {
                Some(other) => other.times += 1,
                None => list.push(seen),
            }
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        let count = |list: &[Seen]| list.iter().map(|seen| seen.times).sum::<u64>();
        let (allowed, refused) = (count(&self.allowed), count(&self.refused));
        lines.push(match &self.requests_unknown {
            None => format!(
                "portcullis: run {} ended with {}; {allowed} requests allowed, {refused} refused",
                self.run, self.exit
            ),
            Some(why) => format!(
                "portcullis: run {} ended with {}; its requests are not known: {why}",
                self.run, self.exit
            ),
        });
        for (word, list) in [("allowed", &self.allowed), ("refused", &self.refused)] {
            for seen in list.iter().take(SHOWN) {
                let mut line = format!("  {word} {:>4}x {}", seen.times, printable(&seen.request));
                for (what, value) in [
                    ("", &seen.code),
                    ("rule ", &seen.rule),
                    ("credential ", &seen.credential),
                ] {
                    if let Some(value) = value {
                        line.push_str(&format!("  {what}{value}"));
                    }
                }
                lines.push(line);
            }
            more(&mut lines, list.len());
        }
        if !self.put_aside.is_empty() {
            lines.push("portcullis: moved out of git's and direnv's way:".to_owned());
            for path in &self.put_aside {
                lines.push(format!("  {}", printable(&path.to_string_lossy())));
            }
        }
        if !self.changed.is_empty() {
            lines.push("portcullis: changed files that a tool of this host would execute:".into());
            for file in self.changed.iter().take(SHOWN) {
                let reason = format!("{:?}", file.reason).to_lowercase();
                lines.push(format!(
                    "  {reason:<10} {}",
                    printable(&file.path.to_string_lossy())
                ));
            }
            more(&mut lines, self.changed.len());
        }
        if !self.changes_complete {
            lines.push("portcullis: the search for changed files was not completed".to_owned());
        }
        if let Some(branch) = &self.branch {
            lines.push(format!("portcullis: the work is on branch {branch}"));
        }
        lines.join("\n")
    }
}

fn more(lines: &mut Vec<String>, all: usize) {
    if all > SHOWN {
        lines.push(format!("  … and {} more (--json lists all)", all - SHOWN));
    }
}

/// Text from inside a container, with what could steer a terminal made visible (WRK-12).
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            // Controls, line and paragraph separators, and what turns or hides text.
            let escaped = c.is_control()
                || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
            let (plain, hidden) = if escaped {
                (None, Some(c.escape_unicode()))
            } else {
                (Some(c), None)
            };
            plain.into_iter().chain(hidden.into_iter().flatten())
        })
        .collect()
}

/// A path as JSON carries it. A name that is no text is shown as far as it is, because leaving it (or
/// everything) out is what whoever chose the name wants.
pub(super) fn readable<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.to_string_lossy())
}

fn readable_all<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// Exec's only voice: standard error, since standard output is the command's. That nobody listens
/// any more must not keep exec from its end.
pub(super) fn say(text: &str) {
    use std::io::Write;
    let _nobody_listens = writeln!(std::io::stderr(), "{text}");
}

/// Now, as the kernel stamps files: seconds and nanoseconds of the epoch. Files are stamped with a
/// coarser clock that lags by a few milliseconds, so a little earlier is taken.
pub(super) fn file_time_now() -> (i64, i64) {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let lag = since.saturating_sub(std::time::Duration::from_millis(20));
    (
        i64::try_from(lag.as_secs()).unwrap_or(i64::MAX),
        i64::from(lag.subsec_nanos()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_requests_are_counted_and_terminal_codes_made_visible() {
        let mut summary = Summary {
            run: "r".into(),
            exit: 0,
            allowed: vec![],
            refused: vec![],
            requests_unknown: None,
            changed: vec![],
            changes_complete: true,
            put_aside: vec![],
            branch: None,
        };
        let request = json!({"kind": "request", "verdict": "allow", "method": "GET", "scheme": "https",
            "authority": "a.example:443", "path": "/x", "rule": "one", "credential": "key"});
        let refusal = json!({"kind": "refusal", "verdict": "refuse", "authority": "b\u{1b}[2J:443",
            "code": "destination_not_listed"});
        let response = json!({"kind": "response", "status": 200});
        summary.count(&[request.clone(), response, request, refusal]);
        assert_eq!((summary.allowed[0].times, summary.refused.len()), (2, 1));
        let text = summary.text();
        assert!(text.contains("2 requests allowed, 1 refused"), "{text}");
        assert!(
            text.contains("GET https://a.example:443/x  rule one  credential key"),
            "{text}"
        );
        assert!(
            !text.contains('\u{1b}') && text.contains("\\u{1b}[2J"),
            "{text}"
        );
    }

    #[test]
    fn no_name_that_a_run_chose_can_silence_or_garble_the_summary() {
        use std::os::unix::ffi::OsStrExt;
        let mut summary = Summary {
            run: "r".into(),
            exit: 0,
            allowed: vec![],
            refused: vec![],
            requests_unknown: None,
            changed: vec![],
            changes_complete: true,
            put_aside: vec![std::ffi::OsStr::from_bytes(b"x/\xff").into()],
            branch: None,
        };
        let hostile = [
            "a\nb",
            "a\u{1b}]8;;",
            "a\u{9b}",
            "a\u{202e}",
            "a\u{2066}",
            "a\u{200b}",
            "a\u{2028}",
            "a\u{e0041}",
        ];
        let mut names: Vec<&[u8]> = hostile.iter().map(|name| name.as_bytes()).collect();
        names.push(b"bin/\xff\xfe");
        names.push("plain-ü".as_bytes());
        for name in &names {
            summary.changed.push(Changed {
                path: std::ffi::OsStr::from_bytes(name).into(),
                reason: crate::exec::Reason::Executable,
            });
        }
        let json: Value = serde_json::from_str(&serde_json::to_string(&summary).unwrap()).unwrap();
        assert_eq!(json["changed"].as_array().unwrap().len(), names.len());
        assert_eq!(json["changed"][0]["path"], "a\nb");
        let text = summary.text();
        assert!(text.contains("plain-ü"), "{text}");
        for name in hostile {
            assert!(!text.contains(name), "{name:?} in {text:?}");
        }
        assert_eq!(text.lines().count(), 4 + names.len(), "{text}");
    }
}
