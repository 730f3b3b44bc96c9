use std::os::unix::fs::PermissionsExt;

use super::*;

fn status(here: &Here, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut value = serde_json::json!({
        "version": 1, "ok": true, "boot_id": here.boot_id, "netns": here.netns,
        "boottime_ms": here.boottime_ms, "ruleset_hash": "abc", "scope": "agents",
        "table": "portcullis", "problem": null,
    });
    change(&mut value);
    value.to_string()
}

fn put(text: &str) -> (tempfile::TempDir, PathBuf, u32) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let owner = std::fs::metadata(&path).unwrap().uid();
    (directory, path, owner)
}

fn of(path: PathBuf, owner: u32) -> Boundary {
    Boundary {
        source: Source::Status(path),
        owner,
        last: Mutex::new(None),
        proven: watch::Sender::new(true),
    }
}

fn ask(text: &str) -> Result<BoundaryProof, BoundaryProblem> {
    let (_directory, path, owner) = put(text);
    of(path, owner).check()
}

#[test]
fn a_look_is_of_now_and_what_is_cached_follows_it() {
    let here = here().unwrap();
    let (_directory, path, owner) = put(&status(&here, |_| ()));
    let boundary = of(path.clone(), owner);
    assert!(boundary.check().is_ok());
    let changes = boundary.changes();
    std::fs::write(&path, status(&here, |s| s["ok"] = false.into())).unwrap();
    assert!(boundary.look().is_err());
    assert!(boundary.check().is_err());
    assert!(changes.has_changed().unwrap());
    std::fs::write(&path, status(&here, |_| ())).unwrap();
    assert!(boundary.look().is_ok());
    assert!(boundary.check().is_ok());
}

#[test]
fn a_fresh_status_of_this_boot_and_namespace_is_proof() {
    let here = here().unwrap();
    let proof = ask(&status(&here, |_| ())).unwrap();
    assert!(matches!(proof, BoundaryProof::Kernel { ref table, .. } if table == "portcullis"));
}

#[test]
fn every_other_status_is_refused() {
    let here = here().unwrap();
    let old = here.boottime_ms.saturating_sub(6_000);
    assert_eq!(
        ask(&status(&here, |s| s["boottime_ms"] = old.into())),
        Err(Problem::Stale.into())
    );
    let ahead = here.boottime_ms + 60_000;
    assert_eq!(
        ask(&status(&here, |s| s["boottime_ms"] = ahead.into())),
        Err(Problem::Stale.into())
    );
    assert_eq!(
        ask(&status(&here, |s| s["boot_id"] = "other".into())),
        Err(Problem::OtherBoot.into())
    );
    assert_eq!(
        ask(&status(&here, |s| s["netns"] = 1.into())),
        Err(Problem::OtherNamespace.into())
    );
    assert_eq!(
        ask(&status(&here, |s| {
            s["ok"] = false.into();
            s["problem"] = "table missing".into();
        })),
        Err(Problem::NotOk("table missing".to_owned()).into())
    );
    assert!(matches!(
        ask(&status(&here, |s| s["version"] = 2.into())),
        Err(BoundaryProblem::Judged(Problem::Corrupt(_)))
    ));
    assert!(matches!(
        ask(""),
        Err(BoundaryProblem::Judged(Problem::Corrupt(_)))
    ));
    assert!(matches!(
        ask("{}"),
        Err(BoundaryProblem::Judged(Problem::Corrupt(_)))
    ));
}

#[test]
fn a_file_that_others_can_write_is_not_believed() {
    let here = here().unwrap();
    let (_directory, path, owner) = put(&status(&here, |_| ()));
    assert!(read(&path, owner, &here).is_ok(), "control");
    assert!(matches!(
        read(&path, owner + 1, &here),
        Err(BoundaryProblem::Untrusted { .. })
    ));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(
        read(&path, owner, &here),
        Err(BoundaryProblem::Untrusted { .. })
    ));
}

#[test]
fn a_missing_file_is_a_problem_and_external_is_said() {
    let missing = Boundary::new(Source::Status("/nonexistent/status.json".into()));
    assert!(matches!(
        missing.check(),
        Err(BoundaryProblem::Unreadable { .. })
    ));
    let external = Boundary::new(Source::External("the guest's host".to_owned()));
    assert_eq!(
        external.check(),
        Ok(BoundaryProof::External {
            reason: "the guest's host".to_owned()
        })
    );
}
