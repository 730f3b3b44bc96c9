use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn config(kind: CredentialKind, file: &Path) -> CredentialConfig {
    CredentialConfig {
        name: CredentialName::parse("tested").unwrap(),
        kind,
        file: file.to_owned(),
        hosts: vec![HostPattern::parse("api.example.com").unwrap()],
    }
}

fn proxmox(id: Option<&str>) -> CredentialKind {
    CredentialKind::ProxmoxToken {
        id: id.map(str::to_owned),
    }
}

fn load(kind: CredentialKind, value: &[u8]) -> Result<(Credential, Vec<String>), CredentialError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::write(&file, value).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    Credential::load(&config(kind, &file))
}

fn field(kind: CredentialKind, value: &[u8], git: bool) -> (String, String) {
    let (credential, _) = load(kind, value).unwrap_or_else(|problem| panic!("{problem}"));
    let host = Host::parse("api.example.com").unwrap();
    let (name, value) = credential.header(&host, git).unwrap();
    assert!(value.is_sensitive());
    (name.to_string(), value.to_str().unwrap().to_owned())
}

fn refused(kind: CredentialKind, value: &[u8]) -> String {
    match load(kind, value) {
        Ok(_) => panic!("accepted a value that it must refuse"),
        Err(problem) => problem.to_string(),
    }
}

fn flaw(kind: CredentialKind, value: &[u8]) -> Flaw {
    match load(kind, value) {
        Err(CredentialError::Value { flaw, .. }) => flaw,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted a value that it must refuse"),
    }
}

#[test]
fn each_kind_has_its_form() {
    let auth = |value: &str| ("authorization".to_owned(), value.to_owned());
    assert_eq!(
        field(CredentialKind::Bearer, b"abc", false),
        auth("Bearer abc")
    );
    let basic = CredentialKind::Basic {
        username: "robot".to_owned(),
    };
    assert_eq!(
        field(basic, b"pa ss", false),
        auth("Basic cm9ib3Q6cGEgc3M=")
    );
    let header = CredentialKind::Header {
        header: HeaderName::from_static("x-api-key"),
    };
    assert_eq!(
        field(header, b"abc", false),
        ("x-api-key".to_owned(), "abc".to_owned())
    );
    assert_eq!(
        field(CredentialKind::GithubToken, b"ghp_x", false),
        auth("Bearer ghp_x")
    );
    assert_eq!(
        field(CredentialKind::GithubToken, b"ghp_x", true),
        auth("Basic eC1hY2Nlc3MtdG9rZW46Z2hwX3g=")
    );
    assert_eq!(
        field(proxmox(Some("agent@pve!ci")), UUID.as_bytes(), false),
        auth(&format!("PVEAPIToken=agent@pve!ci={UUID}"))
    );
}

#[test]
fn a_credential_is_bound_to_its_hosts() {
    let (credential, _) = load(CredentialKind::Bearer, b"abc").unwrap_or_else(|e| panic!("{e}"));
    let bound = Host::parse("api.example.com").unwrap();
    let other = Host::parse("api.example.com.evil.example").unwrap();
    assert!(credential.may_go_to(&bound) && credential.header(&bound, false).is_some());
    assert!(!credential.may_go_to(&other) && credential.header(&other, false).is_none());
}

/// CRD-25: one line end is trimmed and said; never sent.
#[test]
fn crd_25_trailing_newline() {
    for value in [b"abc\n".as_slice(), b"abc\r\n"] {
        assert_eq!(field(CredentialKind::Bearer, value, false).1, "Bearer abc");
        let (_, notes) = load(CredentialKind::Bearer, value).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            notes,
            ["credential tested: one line end after the value was removed"]
        );
    }
    let (_, notes) = load(CredentialKind::Bearer, b"abc").unwrap_or_else(|e| panic!("{e}"));
    assert!(notes.is_empty());
    assert_eq!(flaw(CredentialKind::Bearer, b"abc\n\n"), Flaw::Lines);
    assert_eq!(flaw(CredentialKind::Bearer, b"abc\r"), Flaw::Lines);
}

/// CRD-26: nothing that could end a header line.
#[test]
fn crd_26_control_bytes_inside() {
    assert_eq!(
        flaw(CredentialKind::Bearer, b"abc\r\nX-Evil: 1"),
        Flaw::Lines
    );
    assert_eq!(flaw(CredentialKind::Bearer, b"abc\nX-Evil: 1"), Flaw::Lines);
    assert_eq!(flaw(CredentialKind::Bearer, b"a\0c"), Flaw::Nul);
    assert_eq!(flaw(CredentialKind::Bearer, b"a\x1bc"), Flaw::Control);
    assert_eq!(flaw(CredentialKind::Bearer, b"a\tc"), Flaw::Control);
    assert_eq!(flaw(CredentialKind::Bearer, b"a\x7fc"), Flaw::Control);
}

/// CRD-27: an entry without a value is not a credential.
#[test]
fn crd_27_empty() {
    for value in [b"".as_slice(), b"\n", b"\r\n"] {
        assert_eq!(flaw(CredentialKind::Bearer, value), Flaw::Empty);
    }
    for value in [b" ".as_slice(), b" \t \n", b"\n\n"] {
        assert_eq!(flaw(CredentialKind::Bearer, value), Flaw::Blank);
    }
}

/// CRD-28: an id that is already there is recognised, said, and used once.
#[test]
fn crd_28_doubled_proxmox_id() {
    let once = format!("PVEAPIToken=agent@pve!ci={UUID}");
    let id = Some("agent@pve!ci");
    let same = [
        (id, UUID.to_owned(), false),
        (None, format!("agent@pve!ci={UUID}"), false),
        (id, format!("agent@pve!ci={UUID}"), true),
        (None, format!("agent@pve!ci=agent@pve!ci={UUID}"), true),
        (id, format!("agent@pve!ci=agent@pve!ci={UUID}\n"), true),
        (id, format!("PVEAPIToken=agent@pve!ci={UUID}"), true),
    ];
    for (id, value, said) in same {
        assert_eq!(
            field(proxmox(id), value.as_bytes(), false).1,
            once,
            "{value}"
        );
        let (_, notes) =
            load(proxmox(id), value.trim_end().as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(!notes.is_empty(), said, "{value}: {notes:?}");
    }
    let other = format!("other@pve!ci={UUID}");
    assert_eq!(flaw(proxmox(id), other.as_bytes()), Flaw::OtherId);
    let two = format!("other@pve!ci=agent@pve!ci={UUID}");
    assert_eq!(flaw(proxmox(None), two.as_bytes()), Flaw::OtherId);
    assert_eq!(flaw(proxmox(None), UUID.as_bytes()), Flaw::NoId);
    assert_eq!(flaw(proxmox(id), b"not-a-uuid"), Flaw::NotUuid);
    assert_eq!(flaw(proxmox(id), b"agent@pve!ci="), Flaw::NotUuid);
    assert_eq!(
        flaw(proxmox(id), format!("x={UUID}").as_bytes()),
        Flaw::NotUuid
    );
}

#[test]
fn proxmox_ids() {
    for good in [
        "agent@pve!ci",
        "root@pam!a-b_c",
        "a.b@ldap.example!t",
        "a@b@pve!t",
    ] {
        assert!(is_proxmox_id(good), "{good}");
    }
    for bad in [
        "",
        "agent",
        "agent@pve",
        "agent!ci",
        "@pve!ci",
        "a@pve!",
        "a b@pve!c",
        "a@pve!c!d",
    ] {
        assert!(!is_proxmox_id(bad), "{bad}");
    }
}

/// CRD-29: odd values are errors with a name, and `Bearer Bearer` cannot be produced.
#[test]
fn crd_29_odd_values() {
    let cases: [(&[u8], Flaw); 14] = [
        ("gehe\u{e9}m".as_bytes(), Flaw::NonAscii),
        (b"a\xffb", Flaw::NonAscii),
        (&[b'a'; 64 * 1024], Flaw::TooLong),
        (&[b'a'; 8 * 1024 + 1], Flaw::TooLong),
        (b"Bearer abc", Flaw::Scheme),
        (b"bearer abc", Flaw::Scheme),
        (b"Basic abc", Flaw::Scheme),
        (b"token abc", Flaw::Scheme),
        (b"\"abc\"", Flaw::Quoted),
        (b"'abc'", Flaw::Quoted),
        (b"\xef\xbb\xbfabc", Flaw::ByteOrderMark),
        (b" abc", Flaw::Padded),
        (b"abc ", Flaw::Padded),
        (b"abc def", Flaw::Spaced),
    ];
    for (value, wanted) in cases {
        assert_eq!(flaw(CredentialKind::Bearer, value), wanted);
    }
    // The control: the longest that is allowed.
    assert!(load(CredentialKind::Bearer, &[b'a'; 8 * 1024]).is_ok());
    assert!(load(CredentialKind::Bearer, &[b'a'; 8 * 1024 + 2]).is_err());
}

#[test]
fn errors_name_the_credential_and_never_the_value() {
    let said = refused(CredentialKind::Bearer, b"canary\r\nX: 1");
    assert!(
        said.contains("credential tested") && said.contains("hint:"),
        "{said}"
    );
    assert!(!said.contains("canary"), "{said}");
    let said = refused(proxmox(Some("agent@pve!ci")), b"canary");
    assert!(!said.contains("canary"), "{said}");
}

#[test]
fn only_a_file_that_others_cannot_read_is_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::write(&file, "abc").unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Credential::load(&config(CredentialKind::Bearer, &file)).map(|_| ())
    };
    for good in [0o600, 0o400] {
        assert!(mode(good).is_ok(), "{good:o}");
    }
    for bad in [0o644, 0o640, 0o660, 0o604, 0o700, 0o4600] {
        let said = mode(bad).unwrap_err().to_string();
        assert!(said.contains("chmod 600"), "{bad:o}: {said}");
    }
    mode(0o600).unwrap();

    let link = directory.path().join("link");
    symlink(&file, &link).unwrap();
    let said = Credential::load(&config(CredentialKind::Bearer, &link))
        .map(|_| ())
        .unwrap_err();
    assert!(said.to_string().contains("symbolic link"), "{said}");
    let said = Credential::load(&config(CredentialKind::Bearer, directory.path()))
        .map(|_| ())
        .unwrap_err();
    assert!(said.to_string().contains("not a regular file"), "{said}");
    let missing = directory.path().join("missing");
    let said = Credential::load(&config(CredentialKind::Bearer, &missing))
        .map(|_| ())
        .unwrap_err();
    assert!(said.to_string().contains("does not exist"), "{said}");
}

#[test]
fn a_vault_keeps_the_former_value_and_can_be_sealed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::write(&file, "one").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let vault = Vault {
        configs: vec![config(CredentialKind::Bearer, &file)],
        entries: RwLock::new(BTreeMap::new()),
    };
    let name = CredentialName::parse("tested").unwrap();
    let host = Host::parse("api.example.com").unwrap();
    let value = || {
        let (_, value) = vault.get(&name)?.header(&host, false)?;
        Some(value.to_str().unwrap().to_owned())
    };
    assert!(vault.reload().is_empty());
    assert_eq!(value().as_deref(), Some("Bearer one"));

    std::fs::write(&file, "").unwrap();
    assert_eq!(vault.reload().len(), 1);
    assert_eq!(
        value().as_deref(),
        Some("Bearer one"),
        "the former value stays"
    );
    let view = &vault.view()[0];
    assert!(view.ok && view.problem.is_some());

    vault.seal();
    assert_eq!(value(), None);
    assert!(!vault.view()[0].ok);

    std::fs::write(&file, "two").unwrap();
    assert!(vault.reload().is_empty());
    assert_eq!(value().as_deref(), Some("Bearer two"));
    assert_eq!(vault.view()[0].problem, None);
}
