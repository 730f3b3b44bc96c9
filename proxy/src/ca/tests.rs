use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustls_pki_types::{ServerName, UnixTime};

use super::*;

fn made() -> (tempfile::TempDir, Minter) {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca");
    assert_eq!(create(&ca, None).unwrap(), Created::New);
    let minter = Minter::load(&ca, 4).unwrap();
    (directory, minter)
}

/// Verifies a leaf as a client would, at a given time.
fn accepts(minter: &Minter, leaf: &CertifiedKey, name: &str, at: SystemTime) -> bool {
    let authority = minter.certificate();
    let anchor = webpki::anchor_from_trusted_cert(&authority).unwrap();
    let end = webpki::EndEntityCert::try_from(leaf.end_entity_cert().unwrap()).unwrap();
    let at = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let chained = end
        .verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &[anchor],
            &[],
            at,
            webpki::KeyUsage::server_auth(),
            None,
            None,
        )
        .is_ok();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    chained && end.verify_is_valid_for_subject_name(&name).is_ok()
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

#[test]
fn a_leaf_is_valid_for_its_host_alone() {
    let (_directory, minter) = made();
    let now = SystemTime::now();
    for name in ["api.example.com", "127.0.0.1", "::1"] {
        let leaf = minter.leaf(&host(name)).unwrap();
        assert!(accepts(&minter, &leaf, name, now), "{name}");
        assert!(!accepts(&minter, &leaf, "other.example.com", now), "{name}");
    }
    let long = format!("{0}.{0}.example.com", "a".repeat(60));
    let leaf = minter.leaf(&host(&long)).unwrap();
    assert!(accepts(&minter, &leaf, &long, now));
}

#[test]
fn a_leaf_is_back_dated_and_lives_a_day() {
    let (_directory, minter) = made();
    let leaf = minter.leaf(&host("h.example")).unwrap();
    let now = SystemTime::now();
    let minutes = |count: u64| Duration::from_secs(60 * count);
    assert!(accepts(&minter, &leaf, "h.example", now - minutes(4)));
    assert!(!accepts(&minter, &leaf, "h.example", now - minutes(6)));
    assert!(accepts(&minter, &leaf, "h.example", now + minutes(23 * 60)));
    assert!(!accepts(
        &minter,
        &leaf,
        "h.example",
        now + minutes(25 * 60)
    ));
}

/// Attack: LIF-11
#[test]
fn leaves_are_reused_until_their_time_is_over_or_the_clock_jumps() {
    let (_directory, minter) = made();
    let now = SystemTime::now();
    let name = host("h.example");
    let first = minter.leaf_at(&name, now).unwrap();
    assert!(Arc::ptr_eq(&first, &minter.leaf_at(&name, now).unwrap()));
    let day = Duration::from_secs(24 * 3600);
    for jumped in [now + day, now - day, SystemTime::UNIX_EPOCH + day] {
        let fresh = minter.leaf_at(&name, jumped).unwrap();
        assert!(!Arc::ptr_eq(&first, &fresh));
    }
}

#[test]
fn a_leaf_is_minted_again_an_hour_before_its_end() {
    let (_directory, minter) = made();
    let name = host("h.example");
    let now = SystemTime::now();
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let first = minter.leaf_at(&name, now).unwrap();
    let early = minter.leaf_at(&name, now + minutes(22 * 60)).unwrap();
    assert!(Arc::ptr_eq(&first, &early), "control: not yet");
    let late = now + minutes(23 * 60);
    assert!(
        accepts(&minter, &first, "h.example", late),
        "it still holds"
    );
    let fresh = minter.leaf_at(&name, late).unwrap();
    assert!(!Arc::ptr_eq(&first, &fresh));
    assert!(accepts(
        &minter,
        &fresh,
        "h.example",
        late + minutes(20 * 60)
    ));
    assert!(
        !accepts(&minter, &first, "h.example", late + minutes(20 * 60)),
        "control"
    );
}

#[test]
fn a_leaf_says_by_whom_it_was_issued_and_what_it_is_for_and_nothing_more() {
    use x509_parser::extensions::{GeneralName, ParsedExtension};
    use x509_parser::prelude::{FromDer, X509Certificate};

    let (_directory, minter) = made();
    let authority = minter.certificate();
    let (_, authority) = X509Certificate::from_der(&authority).unwrap();
    let key_id = |certificate: &X509Certificate<'_>| {
        let found = certificate.iter_extensions().find_map(|extension| {
            let ParsedExtension::SubjectKeyIdentifier(id) = extension.parsed_extension() else {
                return None;
            };
            Some(id.0.to_vec())
        });
        found.unwrap()
    };
    let issuer = key_id(&authority);
    let usage = authority.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.key_cert_sign());
    assert!(authority.basic_constraints().unwrap().unwrap().value.ca);
    let mut serials = Vec::new();
    for (name, wanted) in [
        ("a.example", GeneralName::DNSName("a.example")),
        ("192.0.2.7", GeneralName::IPAddress(&[192, 0, 2, 7])),
        (
            "::1",
            GeneralName::IPAddress(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ),
    ] {
        let leaf = minter.leaf(&host(name)).unwrap();
        let der = leaf.end_entity_cert().unwrap().to_vec();
        let (_, leaf) = X509Certificate::from_der(&der).unwrap();
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names, [wanted], "one name: {name}");
        let own = key_id(&leaf);
        assert_ne!(own, issuer, "{name}");
        let by = leaf.iter_extensions().find_map(|extension| {
            let ParsedExtension::AuthorityKeyIdentifier(id) = extension.parsed_extension() else {
                return None;
            };
            id.key_identifier.as_ref().map(|id| id.0.to_vec())
        });
        assert_eq!(by, Some(issuer.clone()), "{name}");
        let usage = leaf.key_usage().unwrap().unwrap();
        assert!(
            usage.critical && usage.value.flags == 1,
            "digital signature alone: {name}"
        );
        let extended = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(
            extended.server_auth && !extended.client_auth && !extended.any,
            "{name}"
        );
        assert!(
            extended.other.is_empty() && !extended.code_signing,
            "{name}"
        );
        let constraints = leaf.basic_constraints().unwrap();
        assert!(constraints.is_none_or(|found| !found.value.ca), "{name}");
        assert_eq!(leaf.issuer(), authority.subject());
        serials.push(leaf.raw_serial().to_vec());
    }
    let mut distinct = serials.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), serials.len(), "serials differ");
}

#[test]
fn the_cache_is_bounded() {
    let (_directory, minter) = made();
    let first = minter.leaf(&host("h0.example")).unwrap();
    for at in 1..50 {
        minter.leaf(&host(&format!("h{at}.example"))).unwrap();
    }
    assert_eq!(minter.cache().len(), 4);
    assert!(!Arc::ptr_eq(
        &first,
        &minter.leaf(&host("h0.example")).unwrap()
    ));
}

#[test]
fn minting_at_once_is_safe() {
    let (_directory, minter) = made();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for at in 0..20 {
                    minter.leaf(&host(&format!("h{}.example", at % 7))).unwrap();
                }
            });
        }
    });
    assert!(minter.cache().len() <= 4);
}

#[test]
fn an_authority_is_made_once_and_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("deep/ca");
    assert_eq!(create(&ca, None).unwrap(), Created::New);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&ca), 0o700);
    assert_eq!(mode(&ca.join(KEY)), 0o600);
    assert_eq!(mode(&ca.join(CERTIFICATE)), 0o644);
    let before = std::fs::read(ca.join(CERTIFICATE)).unwrap();
    assert_eq!(create(&ca, None).unwrap(), Created::Kept);
    assert_eq!(std::fs::read(ca.join(CERTIFICATE)).unwrap(), before);
    assert!(export(&ca).unwrap().contains("BEGIN CERTIFICATE"));

    std::fs::remove_file(ca.join(CERTIFICATE)).unwrap();
    let said = create(&ca, None).unwrap_err().to_string();
    assert!(said.contains("ca.pem: is missing while"), "{said}");
    assert!(Minter::load(&ca, 1).is_err());
}

/// Attack: TLS-16
#[test]
fn an_authority_that_is_not_ours_alone_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    create(&one, None).unwrap();
    create(&two, None).unwrap();
    assert!(Minter::load(&one, 1).is_ok(), "control");
    let key = one.join(KEY);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let said = Minter::load(&one, 1).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("others may read the key"), "{said}");
    std::fs::copy(two.join(KEY), &key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = Minter::load(&one, 1).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("is not the key of"), "{said}");
    let said = Minter::load(&directory.path().join("none"), 1)
        .map(|_| ())
        .unwrap_err();
    assert!(said.to_string().contains("ca init"), "{said}");
}

#[test]
fn a_rotation_overlaps_and_the_successor_takes_over_at_its_time() {
    let (directory, minter) = made();
    let ca = directory.path().join("ca");
    let hour = Duration::from_secs(3600);
    let now = SystemTime::now();
    let old = minter.certificate();
    let begun = begin(&ca, hour).unwrap();
    let next = begun.next.unwrap();
    assert_ne!(next.authority.sha256, begun.current.sha256);
    let mode = std::fs::metadata(ca.join("next.key")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_eq!(export(&ca).unwrap().matches("BEGIN CERTIFICATE").count(), 2);
    let said = begin(&ca, hour).unwrap_err().to_string();
    assert!(said.contains("under way"), "{said}");

    // During the overlap the old one signs, also after a restart.
    assert_eq!(minter.turn_at(now).unwrap(), None);
    assert_eq!(Minter::load(&ca, 4).unwrap().certificate(), old);
    let name = host("h.example");
    let before = minter.leaf(&name).unwrap();
    let turned = minter.turn_at(now + 2 * hour).unwrap();
    assert_eq!(turned, Some(next.authority.name.clone()));
    assert_ne!(minter.certificate(), old);
    let after = minter.leaf(&name).unwrap();
    assert!(
        !Arc::ptr_eq(&before, &after),
        "no leaf of the old one is served"
    );
    assert!(accepts(&minter, &after, "h.example", now));
    assert!(!accepts(&minter, &before, "h.example", now), "control");
    assert_eq!(
        minter.turn_at(now).unwrap(),
        None,
        "a clock that goes back changes nothing"
    );
    let after = view(&ca).unwrap();
    assert_eq!(after.current.sha256, next.authority.sha256);
    assert_eq!(after.current.name, next.authority.name);
    assert_eq!(after.next, None);
    assert_eq!(export(&ca).unwrap().matches("BEGIN CERTIFICATE").count(), 1);
}

#[test]
fn a_rotation_is_finished_by_hand_and_the_running_gate_takes_it_up() {
    let (directory, minter) = made();
    let ca = directory.path().join("ca");
    let said = finish(&ca).unwrap_err().to_string();
    assert!(said.contains("no rotation is under way"), "{said}");
    let begun = begin(&ca, Duration::from_secs(7 * 24 * 3600)).unwrap();
    let finished = finish(&ca).unwrap();
    assert_eq!(
        finished.current.sha256,
        begun.next.unwrap().authority.sha256
    );
    assert!(!ca.join("next.key").exists() && !ca.join("next.from").exists());
    assert_eq!(minter.turn().unwrap(), Some(finished.current.name));
    assert!(
        begin(&ca, Duration::from_secs(400 * 24 * 3600)).is_err(),
        "no overlap for ever"
    );
}

#[test]
fn a_switch_that_was_cut_short_is_completed_and_a_foreign_certificate_is_not() {
    let (directory, minter) = made();
    let ca = directory.path().join("ca");
    let next = begin(&ca, Duration::ZERO).unwrap().next.unwrap();
    // The crash: the key has moved, the certificate has not.
    std::fs::rename(ca.join("next.key"), ca.join(KEY)).unwrap();
    assert!(authority::load(&ca).is_err(), "as it is, it is of no use");
    let healed = Minter::load(&ca, 4).unwrap();
    assert_ne!(healed.certificate(), minter.certificate());
    assert_eq!(view(&ca).unwrap().current.sha256, next.authority.sha256);

    std::fs::copy(ca.join(CERTIFICATE), ca.join("next.pem")).unwrap();
    let other = directory.path().join("other");
    create(&other, None).unwrap();
    std::fs::copy(other.join(CERTIFICATE), ca.join("next.pem")).unwrap();
    let kept = Minter::load(&ca, 4).unwrap();
    assert_eq!(kept.certificate(), healed.certificate());
}

/// Attack: RES-11
#[test]
fn ten_thousand_names_leave_the_cache_at_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca");
    create(&ca, None).unwrap();
    let minter = Minter::load(&ca, 1024).unwrap();
    for at in 0..10_000 {
        minter.leaf(&host(&format!("h{at}.example"))).unwrap();
        assert!(minter.cache().len() <= 1024);
    }
    assert_eq!(minter.cache().len(), 1024);
}
