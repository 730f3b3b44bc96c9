//! The audit log: is there room for it, and is it what was written?

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use serde_json::Value;

use super::{Finding, Verdict, bounded, first_line};
use crate::file;
use crate::instance::Instance;

const MIB: u64 = 1024 * 1024;
/// With less room the log may be full before anybody looks; then nothing with a credential leaves.
const ROOM_LEAST: u64 = 256 * MIB;
/// With less room somebody should know.
const ROOM_LITTLE: u64 = 1024 * MIB;
/// Files that can still be made.
const FILES_LEAST: u64 = 256;

pub(super) fn checks(instance: &Instance) -> Vec<Finding> {
    vec![space(&directory(instance)), intact(instance)]
}

/// `[audit] directory` of `proxy.toml`.
fn directory(instance: &Instance) -> PathBuf {
    let text = file::read(&instance.layout.config("proxy")).unwrap_or_default();
    let config: toml::Table = text.parse().unwrap_or_default();
    let named = config.get("audit").and_then(|audit| audit.get("directory"));
    match named.and_then(toml::Value::as_str) {
        Some(named) => PathBuf::from(named),
        None => instance.layout.proxy_state().join("audit"),
    }
}

fn space(directory: &Path) -> Finding {
    match statvfs(directory) {
        Ok(found) => {
            let free = found.blocks_available() * found.fragment_size();
            let read_only = found
                .flags()
                .contains(nix::sys::statvfs::FsFlags::ST_RDONLY);
            let files = (found.files() > 0).then(|| found.files_available());
            judge_space(directory, free, files, read_only)
        }
        Err(problem) => {
            let fact = format!("{}: {problem}", directory.display());
            Finding::new("space", Verdict::Unknown, fact, "portcullis up")
        }
    }
}

fn judge_space(directory: &Path, free: u64, files: Option<u64>, read_only: bool) -> Finding {
    let shown = directory.display();
    let repair = format!("df -h {shown}; keep_mib under [audit] in proxy.toml bounds the log");
    let found = |verdict, fact| Finding::new("space", verdict, fact, repair);
    if read_only {
        return found(
            Verdict::Bad,
            format!("{shown} is on a read-only file system"),
        );
    }
    if files.is_some_and(|files| files < FILES_LEAST) {
        return found(
            Verdict::Bad,
            format!("{shown} is on a file system without room for new files"),
        );
    }
    let fact = format!("{} MiB are free for {shown}", free / MIB);
    let verdict = match free {
        free if free < ROOM_LEAST => Verdict::Bad,
        free if free < ROOM_LITTLE => Verdict::Note,
        _ => Verdict::Ok,
    };
    found(verdict, fact)
}

fn intact(instance: &Instance) -> Finding {
    let layout = &instance.layout;
    let asked = bounded(|call| {
        call.arg(layout.binary("portcullis-proxy"))
            .args(["audit", "verify", "--json", "--config"])
            .arg(layout.config("proxy"))
    });
    match asked {
        Ok((code, out, err)) => judge_log(code, &out, &err),
        Err(problem) => {
            let fact = crate::output::chain(&problem);
            Finding::new("log", Verdict::Unknown, fact, "portcullis up")
        }
    }
}

/// What `audit verify --json` said; no status when it was not through in time.
fn judge_log(code: Option<i32>, out: &str, err: &str) -> Finding {
    let found =
        |verdict, fact: String| Finding::new("log", verdict, fact, "portcullis audit verify");
    if code.is_none() {
        return found(
            Verdict::Unknown,
            "it is too long to be verified in passing".to_owned(),
        );
    }
    let Ok(report) = serde_json::from_str::<Value>(out) else {
        return found(Verdict::Unknown, first_line(err));
    };
    let number = |key: &str| report[key].as_u64().unwrap_or_default();
    if report["intact"] != Value::Bool(true) {
        let first = &report["findings"][0];
        let place = match first["file"].as_str() {
            Some(file) if !file.is_empty() => format!("{file}:{}: ", first["line"]),
            Some(_) | None => String::new(),
        };
        let problem = first["problem"].as_str().unwrap_or("not intact");
        let fact = format!(
            "NOT INTACT, {} findings: {place}{problem}",
            number("problems")
        );
        return found(Verdict::Bad, fact);
    }
    let lines = number("lines");
    if number("signed") == 0 {
        let fact = format!("{lines} lines are chained, and no signature vouches for them yet");
        return found(Verdict::Note, fact);
    }
    let upto = number("signed_up_to");
    found(
        Verdict::Ok,
        format!("{lines} lines are intact, signed up to line {upto}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_told_before_there_is_none() {
        let of =
            |free, files, read_only| judge_space(Path::new("/log"), free, files, read_only).verdict;
        assert_eq!(of(10 * ROOM_LITTLE, Some(100_000), false), Verdict::Ok);
        assert_eq!(
            of(10 * ROOM_LITTLE, None, false),
            Verdict::Ok,
            "counts no files"
        );
        assert_eq!(of(ROOM_LITTLE - 1, None, false), Verdict::Note);
        assert_eq!(of(ROOM_LEAST - 1, None, false), Verdict::Bad);
        assert_eq!(of(10 * ROOM_LITTLE, Some(3), false), Verdict::Bad);
        assert_eq!(of(10 * ROOM_LITTLE, Some(100_000), true), Verdict::Bad);
    }

    #[test]
    fn a_log_that_is_not_what_was_written_names_the_place() {
        let report = |intact: bool, signed: u64| {
            serde_json::json!({
                "intact": intact, "lines": 9, "signed": signed, "signed_up_to": 7, "problems": 2,
                "findings": [{"file": "audit.jsonl", "line": 4, "problem": "was changed"}],
            })
            .to_string()
        };
        assert_eq!(
            judge_log(Some(0), &report(true, 1), "").verdict,
            Verdict::Ok
        );
        assert_eq!(
            judge_log(Some(0), &report(true, 0), "").verdict,
            Verdict::Note
        );
        let bad = judge_log(Some(1), &report(false, 1), "");
        assert_eq!(bad.verdict, Verdict::Bad);
        assert!(
            bad.fact.ends_with("audit.jsonl:4: was changed"),
            "{}",
            bad.fact
        );
        assert_eq!(judge_log(Some(2), "", "error: x\n").fact, "x");
        assert_eq!(judge_log(None, "", "").verdict, Verdict::Unknown);
    }
}
