//! Both ways with the real `gpg`, `pass` and `git`.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

mod lab;
mod versions;

use super::*;
use lab::Lab;

fn name(text: &str) -> EntryName {
    EntryName::parse(text).unwrap()
}

#[test]
fn what_pass_and_gpg_write_is_read_and_what_is_written_they_read() {
    let lab = Lab::new();
    lab.run(
        "pass",
        &["insert", "--multiline", "agents/github"],
        b"ghp_from_pass\nuser: robot\n",
    );
    lab.encrypt("agents/by-gpg", b"ghp_from_gpg\n", &lab.fingerprint);
    let store = lab.open();
    let read = |entry: &str| {
        store
            .read(&name(entry), false)
            .unwrap_or_else(|e| panic!("{e}"))
    };
    assert_eq!(read("agents/github").0.as_slice(), b"ghp_from_pass");
    assert_eq!(read("agents/by-gpg").0.as_slice(), b"ghp_from_gpg");
    assert_eq!(
        store.list().unwrap(),
        [name("agents/by-gpg"), name("agents/github")]
    );

    store
        .put(&name("agents/new"), b"ghp_from_us", "Put")
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        lab.run("pass", &["show", "agents/new"], b""),
        b"ghp_from_us"
    );
    let file = lab.store().join("agents/new.gpg");
    assert_eq!(
        lab.gpg(&["--decrypt", file.to_str().unwrap()], b""),
        b"ghp_from_us"
    );

    // An armoured key and an armoured entry are the same thing in other clothes.
    let key = lab.gpg(&["--armor", "--export-secret-keys", &lab.fingerprint], b"");
    std::fs::write(lab.key(), key).unwrap();
    let armoured = lab.gpg(
        &["--armor", "--encrypt", "--recipient", &lab.fingerprint],
        b"armoured",
    );
    std::fs::write(lab.store().join("armoured.gpg"), armoured).unwrap();
    assert_eq!(
        lab.open()
            .read(&name("armoured"), false)
            .unwrap()
            .0
            .as_slice(),
        b"armoured"
    );
}

/// GnuPG 2.4 makes keys that ask for its own packet. What is written so is named, counts for the scope proof like
/// anything else, and is never written by us.
#[test]
fn an_entry_in_gnupg_s_own_ocb_form_is_named_and_counts_for_the_scope() {
    let lab = Lab::new();
    lab.encrypt("agents/token", b"canary", &lab.fingerprint);
    let path = lab.store().join("agents/token.gpg");
    let mut sealed = std::fs::read(&path).unwrap();
    assert_eq!(
        lab.open().text(&name("agents/token")).unwrap().as_slice(),
        b"canary"
    );
    // A recipient's packet in the old or the new form, then the data's, in the new one.
    let length = usize::from(sealed[1]);
    let behind = 2 + length;
    assert_eq!(sealed[behind], 0xc0 | 18, "the data's packet");
    sealed[behind] = 0xc0 | 20;
    std::fs::write(&path, &sealed).unwrap();
    let problem = lab
        .open()
        .text(&name("agents/token"))
        .unwrap_err()
        .to_string();
    assert!(
        problem.contains("agents/token is encrypted in a form of GnuPG's own"),
        "{problem}"
    );
    assert!(problem.contains("setpref"), "{problem}");

    let operator = lab.folder.path().join("operator");
    std::fs::create_dir(&operator).unwrap();
    std::fs::write(operator.join("bank.gpg"), &sealed).unwrap();
    let foreign = Foreign::collect(&operator).unwrap();
    assert!(matches!(
        lab.open().prove_foreign(&foreign),
        Err(ProofError::Readable(_))
    ));
}

/// CRD-27: no form of an empty entry is taken for a value, at reading and at writing.
/// Attack: CRD-27
#[test]
fn crd_27_an_empty_entry_is_an_error_that_names_it() {
    let lab = Lab::new();
    let attachment =
        b"\nContent-Disposition: attachment; filename=\"x\"\nContent-Transfer-Encoding: Base64\n\n";
    let empty: [(&str, &[u8]); 6] = [
        ("zero", b""),
        ("newline", b"\n"),
        ("blanks", b"  \t\n"),
        ("nuls", b"\0\0"),
        ("mark", b"\xef\xbb\xbf"),
        ("attachment", attachment),
    ];
    for (entry, text) in empty {
        lab.encrypt(entry, text, &lab.fingerprint);
    }
    std::fs::write(lab.store().join("file.gpg"), b"").unwrap();
    let hollow = b"-----BEGIN PGP MESSAGE-----\n\n=twTO\n-----END PGP MESSAGE-----\n";
    std::fs::write(lab.store().join("armour.gpg"), hollow).unwrap();
    lab.run("pass", &["insert", "--multiline", "by-pass"], b"");
    let store = lab.open();
    for entry in [
        "zero",
        "newline",
        "blanks",
        "nuls",
        "mark",
        "attachment",
        "file",
        "armour",
        "by-pass",
    ] {
        let problem = store.read(&name(entry), false).map(drop).unwrap_err();
        let said = problem.to_string();
        assert!(said.contains(&format!("the entry {entry} ")), "{said}");
        assert!(said.contains("restore"), "{said}");
    }
    for (entry, text) in empty {
        let refused = store.put(&name("kept"), text, "Put").unwrap_err();
        assert!(
            matches!(refused, StoreError::Void { .. }),
            "{entry}: {refused}"
        );
    }
    assert!(!lab.store().join("kept.gpg").exists());
    store.put(&name("kept"), b"x", "Put").unwrap();
}

#[test]
fn the_nearest_gpg_id_counts_and_the_gate_must_be_able_to_read() {
    let lab = Lab::new();
    let other = lab.generate("other@example.com");
    std::fs::create_dir(lab.store().join("both")).unwrap();
    std::fs::write(
        lab.store().join("both/.gpg-id"),
        format!("# two\n{other} # the other\n{}\n", lab.fingerprint),
    )
    .unwrap();
    std::fs::create_dir(lab.store().join("theirs")).unwrap();
    std::fs::write(lab.store().join("theirs/.gpg-id"), format!("{other}\n")).unwrap();
    let store = lab.open();
    let said = |entry: &str| {
        store
            .put(&name(entry), b"x", "Put")
            .unwrap_err()
            .to_string()
    };
    assert!(said("both/a").contains(&format!("recipient {other} is not at hand")));
    let keys = lab.store().join(".public-keys");
    std::fs::create_dir(&keys).unwrap();
    std::fs::write(
        keys.join(&other),
        lab.gpg(&["--armor", "--export", &other], b""),
    )
    .unwrap();
    assert!(said("theirs/a").contains("the store's own key is not among the recipients"));
    store
        .put(&name("both/deep/a"), b"x", "Put")
        .unwrap_or_else(|e| panic!("{e}"));
    let file = lab.store().join("both/deep/a.gpg");
    let packets = lab.gpg(&["--list-packets", file.to_str().unwrap()], b"");
    let packets = String::from_utf8_lossy(&packets);
    assert_eq!(
        packets.matches(":pubkey enc packet:").count(),
        2,
        "{packets}"
    );
    // By address too, when it names one key.
    std::fs::write(lab.store().join(".gpg-id"), "agents@example.com\n").unwrap();
    store
        .put(&name("a"), b"x", "Put")
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_scope_proof_finds_an_entry_that_the_key_can_read() {
    let lab = Lab::new();
    let operator = lab.generate("operator@example.com");
    let home = tempfile::tempdir().unwrap();
    let entry = |file: &str, to: &[&str]| {
        let mut arguments = vec!["--encrypt"];
        for whom in to {
            arguments.extend(["--recipient", whom]);
        }
        std::fs::create_dir_all(home.path().join("deep")).unwrap();
        std::fs::write(home.path().join(file), lab.gpg(&arguments, b"secret")).unwrap();
    };
    let proof = || lab.open().prove_foreign(&Foreign::collect(home.path())?);
    assert!(
        matches!(proof(), Err(ProofError::Nothing(_))),
        "nothing proves nothing"
    );
    entry("a.gpg", &[&operator]);
    assert_eq!(proof().unwrap(), 1);
    entry("deep/b.gpg", &[&operator, &lab.fingerprint]);
    let said = proof().unwrap_err().to_string();
    assert!(said.contains("deep/b.gpg can be decrypted"), "{said}");
    entry("deep/b.gpg", &[&operator]);
    assert_eq!(proof().unwrap(), 2);
    // An unnamed recipient may be us.
    let hidden = lab.gpg(&["--encrypt", "--hidden-recipient", &lab.fingerprint], b"x");
    std::fs::write(home.path().join("c.gpg"), hidden).unwrap();
    assert!(matches!(proof(), Err(ProofError::Readable(_))));
    assert!(matches!(
        Foreign::collect(Path::new("/nonexistent/store")),
        Err(ProofError::Unreadable { .. })
    ));
}

/// A key that sound software would not encrypt to opens what was encrypted to it all the same.
#[test]
fn the_scope_proof_tries_keys_that_no_sound_policy_would_use() {
    use sequoia_openpgp as pgp;

    use pgp::cert::{CertBuilder, CipherSuite};
    use pgp::crypto::SessionKey;
    use pgp::packet::{PKESK, Packet};
    use pgp::serialize::Serialize as _;
    use pgp::types::SymmetricAlgorithm;

    let (cert, _) = CertBuilder::new()
        .set_cipher_suite(CipherSuite::RSA2k)
        .add_userid("agents")
        .add_signing_subkey()
        .add_storage_encryption_subkey()
        .generate()
        .unwrap();
    let (other, _) = CertBuilder::new()
        .set_cipher_suite(CipherSuite::RSA2k)
        .add_userid("operator")
        .add_signing_subkey()
        .generate()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (home, key) = (folder.path().join("store"), folder.path().join("key"));
    std::fs::create_dir(&home).unwrap();
    let mut bytes = Vec::new();
    cert.as_tsk().serialize(&mut bytes).unwrap();
    std::fs::write(&key, bytes).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let store = Store::open(&home, &key).unwrap_or_else(|problem| panic!("{problem}"));
    let sealed = folder.path().join("entry.gpg");
    let proof = |cert: &pgp::Cert, at: usize| {
        let session = SessionKey::new(32).unwrap();
        let to = cert.keys().nth(at).unwrap();
        let packet = pgp::packet::pkesk::PKESK3::for_recipient(
            SymmetricAlgorithm::AES256,
            &session,
            to.key(),
        );
        let mut bytes = Vec::new();
        Packet::from(PKESK::from(packet.unwrap()))
            .serialize(&mut bytes)
            .unwrap();
        std::fs::write(&sealed, bytes).unwrap();
        store.prove_foreign(&Foreign::collect(&sealed).unwrap())
    };
    for at in 0..2 {
        assert_eq!(proof(&other, at).unwrap(), 1, "the control");
    }
    for at in 0..3 {
        let found = proof(&cert, at);
        assert!(matches!(found, Err(ProofError::Readable(_))), "{at}");
    }
}
