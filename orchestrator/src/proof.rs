//! What has to be proven before anything of an agent starts: the kernel boundary, here and now.
//!
//! The gate names the status file that it goes by; this room reads that file itself and asks the same
//! judgement, [`policy::boundary`]. So no run starts on the gate's word alone, and none when the gate
//! saw the proof last and the watcher died since.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use policy::boundary::{FRESH_MS, Here, Proof, STATUS_BYTES_MAX, judge};

/// The proof in this status file at this moment.
///
/// # Errors
/// In words, with the remedy: not readable, writable by others than root, or no proof.
pub fn fresh(path: &Path) -> Result<Proof, String> {
    fresh_by(path, 0)
}

fn fresh_by(path: &Path, owner: u32) -> Result<Proof, String> {
    let shown = path.display();
    let text = read(path, owner).map_err(|problem| format!("{shown}: {problem}"))?;
    let here = here().map_err(|problem| format!("cannot tell where this process is: {problem}"))?;
    judge(&text, &here, FRESH_MS).map_err(|problem| format!("{problem} ({})", problem.remedy()))
}

fn read(path: &Path, owner: u32) -> Result<String, String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.uid() != owner || metadata.mode() & 0o022 != 0 {
        return Err("can be written by others than root".to_owned());
    }
    let mut text = String::new();
    file.by_ref()
        .take(STATUS_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    Ok(text)
}

fn here() -> std::io::Result<Here> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let clock = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    Ok(Here {
        boot_id: boot_id.trim().to_owned(),
        netns: std::fs::metadata("/proc/self/ns/net")?.ino(),
        boottime_ms: u64::try_from(clock.as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn status(change: impl FnOnce(&mut serde_json::Value), mode: u32) -> Result<Proof, String> {
        let here = here().unwrap();
        let mut value = serde_json::json!({
            "version": 1, "ok": true, "boot_id": here.boot_id, "netns": here.netns,
            "boottime_ms": here.boottime_ms, "ruleset_hash": "abc", "scope": "agents",
            "table": "portcullis", "problem": null, "events": [],
        });
        change(&mut value);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        std::fs::write(&path, value.to_string()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let owner = std::fs::metadata(&path).unwrap().uid();
        fresh_by(&path, owner)
    }

    #[test]
    fn a_fresh_status_that_only_root_writes_is_proof() {
        assert!(status(|_| (), 0o644).is_ok());
        let writable = status(|_| (), 0o664).unwrap_err();
        assert!(writable.contains("others than root"), "{writable}");
        let stale = status(|status| status["boottime_ms"] = 1.into(), 0o644).unwrap_err();
        assert!(stale.contains("stale"), "{stale}");
        let missing = fresh(Path::new("/nonexistent/status.json")).unwrap_err();
        assert!(missing.contains("/nonexistent"), "{missing}");
    }
}
