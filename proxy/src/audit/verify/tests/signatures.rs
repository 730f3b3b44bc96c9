//! What the key vouches for, and what plain gpg says of it.

use super::*;

#[test]
fn a_signed_log_is_vouched_for_by_its_own_key_and_by_no_other() {
    let (keep, folder) = log();
    let (key, public) = signer(keep.path());
    let settings = Settings {
        signer: Some(key),
        checkpoint_records: 3,
        ..Settings::default()
    };
    let audit = Audit::open_with(&folder, settings).unwrap();
    audit.commit_to(|| crate::audit::checkpoint::Commitments {
        boundary: "external: a test".to_owned(),
        ..Default::default()
    });
    for _ in 0..8 {
        audit
            .append(Record::new(RecordKind::Event, "x", ""))
            .unwrap();
    }
    drop(audit);
    let public = crate::openpgp::PublicKey::load(&public).unwrap();
    let check_with = |key: &crate::openpgp::PublicKey| {
        let judge = |text: &str, signature: &str| signing::judge(key, text, signature);
        let arguments = Check {
            key: Some(&judge),
            ..Check::default()
        };
        verify(&segment::list(&folder).unwrap(), &arguments).unwrap()
    };
    let report = check_with(&public);
    assert!(report.intact && report.signed > 0, "{report}");
    assert_eq!(report.signed, report.checkpoints);
    assert_eq!(
        report.signed_up_to + 1,
        report.last,
        "to the closing record"
    );
    let (_, other, _) = signing::generate("somebody else").unwrap();
    let other = crate::openpgp::PublicKey::parse(&other).unwrap();
    assert!(!check_with(&other).intact);

    // Written anew by somebody without the key: right in itself, but not signed.
    let lines: Vec<String> = std::fs::read_to_string(folder.join(FILE))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    std::fs::remove_dir_all(&folder).unwrap();
    let forged = Audit::open(&folder).unwrap();
    for line in &lines[..lines.len() - 1] {
        let mut record: Record = serde_json::from_str(line).unwrap();
        if record.kind == RecordKind::Event {
            record.reason = Some("forged".to_owned());
            forged.append(record).unwrap();
        }
    }
    drop(forged);
    assert!(check(&folder).intact, "by itself nothing can be seen");
    assert!(!check_with(&public).intact);
}

#[test]
fn with_a_key_a_log_that_nothing_signs_is_not_intact_nor_is_one_with_a_long_unsigned_end() {
    let (keep, folder) = log();
    let (key, public) = signer(keep.path());
    let public = crate::openpgp::PublicKey::load(&public).unwrap();
    let judge = |text: &str, signature: &str| signing::judge(&public, text, signature);
    let with_key = |live: bool| {
        let arguments = Check {
            key: Some(&judge),
            live,
            ..Check::default()
        };
        verify(&segment::list(&folder).unwrap(), &arguments).unwrap()
    };
    let event = |time: &str| Record::new(RecordKind::Event, "x", time);
    // No checkpoint at all, since it is being written: nothing is signed, and nothing unsigned.
    let audit = Audit::open(&folder).unwrap();
    audit.append(event("")).unwrap();
    let report = with_key(true);
    assert!(!report.intact && report.checkpoints == 0, "{report}");
    assert!(
        report.to_string().contains("vouches for any line"),
        "{report}"
    );
    drop(audit);
    std::fs::remove_dir_all(&folder).unwrap();

    let settings = |signer| Settings {
        signer,
        checkpoint_records: 4,
        ..Settings::default()
    };
    for (lines, last, intact) in [
        (2, "2026-11-30T08:01:00Z", true),
        (12, "2026-11-30T08:00:00Z", false),
        (2, "2026-11-30T08:30:00Z", false),
    ] {
        let audit = Audit::open_with(&folder, settings(Some(key.clone()))).unwrap();
        audit.append(event("2026-11-30T08:00:00Z")).unwrap();
        drop(audit);
        assert!(with_key(false).intact, "control");
        // Goes on without the key, and without a checkpoint.
        let unsigned = Settings {
            checkpoint_records: u64::MAX,
            checkpoint_every: Duration::from_secs(3600),
            ..Settings::default()
        };
        let audit = Audit::open_with(&folder, unsigned).unwrap();
        for line in 0..lines {
            let time = if line + 1 == lines {
                last
            } else {
                "2026-11-30T08:00:00Z"
            };
            audit.append(event(time)).unwrap();
        }
        let report = with_key(true);
        assert_eq!(report.intact, intact, "{lines} to {last}: {report}");
        let shown = format!("unsigned     {lines} lines");
        assert!(report.to_string().contains(&shown), "{report}");
        drop(audit);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// The signature verifies with the real gpg, which knows nothing of this program.
#[test]
fn gpg_verifies_a_checkpoint_and_refuses_a_changed_one() {
    let (keep, folder) = log();
    let (key, public) = signer(keep.path());
    let settings = Settings {
        signer: Some(key),
        ..Settings::default()
    };
    let audit = Audit::open_with(&folder, settings).unwrap();
    audit
        .append(Record::new(RecordKind::Event, "x", ""))
        .unwrap();
    drop(audit);
    let text = std::fs::read_to_string(folder.join(FILE)).unwrap();
    let last: Record = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let checkpoint = last.checkpoint.unwrap();
    let (statement, signature) = (keep.path().join("c.txt"), keep.path().join("c.txt.asc"));
    std::fs::write(&statement, &checkpoint.statement).unwrap();
    std::fs::write(&signature, checkpoint.signature.unwrap()).unwrap();
    let home = keep.path().join("gnupg");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let gpg = |arguments: &[&std::ffi::OsStr]| {
        std::process::Command::new("gpg")
            .args(["--batch", "--no-autostart", "--homedir"])
            .arg(&home)
            .args(arguments)
            .output()
            .unwrap()
    };
    let imported = gpg(&["--import".as_ref(), public.as_os_str()]);
    assert!(imported.status.success(), "{imported:?}");
    let verify = || {
        gpg(&[
            "--verify".as_ref(),
            signature.as_os_str(),
            statement.as_os_str(),
        ])
    };
    let good = verify();
    assert!(good.status.success(), "{good:?}");
    std::fs::write(
        &statement,
        checkpoint.statement.replace("closing yes", "closing no"),
    )
    .unwrap();
    assert!(!verify().status.success());
}
