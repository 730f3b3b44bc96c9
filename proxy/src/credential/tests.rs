use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use http::HeaderName;
use http::header::AUTHORIZATION;

use super::*;
use crate::config::{Config, SecretSource};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn config(kind: CredentialKind, file: &Path) -> CredentialConfig {
    CredentialConfig {
        name: CredentialName::parse("tested").unwrap(),
        kind,
        source: SecretSource::File(file.to_owned()),
        hosts: vec![HostPattern::parse("api.example.com").unwrap()],
        canary: None,
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
    Credential::load(&config(kind, &file), &Reader::new(None))
}

fn field(kind: CredentialKind, value: &[u8], git: bool) -> (String, String) {
    let (credential, _) = load(kind, value).unwrap_or_else(|problem| panic!("{problem}"));
    let target = if git { "/o/r/info/refs" } else { "/v1" };
    let (name, value) = placed(&credential, "api.example.com", target).unwrap();
    assert!(value.is_sensitive());
    (name.to_string(), value.to_str().unwrap().to_owned())
}

fn placed(credential: &Credential, host: &str, target: &str) -> Option<(HeaderName, HeaderValue)> {
    let host = Host::parse(host).unwrap();
    match credential.place(&host, target, &credential.secret)? {
        Placed::Field { name, value, .. } => Some((name, value)),
        Placed::Nowhere | Placed::Query { .. } => None,
    }
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
    assert!(credential.may_go_to(&bound) && placed(&credential, "api.example.com", "/").is_some());
    assert!(
        !credential.may_go_to(&other)
            && placed(&credential, "api.example.com.evil.example", "/").is_none()
    );
}

/// CRD-25: one line end is trimmed and said; never sent.
/// Attack: CRD-25
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
/// Attack: CRD-26
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
/// Attack: CRD-27
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
/// Attack: CRD-28
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
/// Attack: CRD-29
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
        Credential::load(&config(CredentialKind::Bearer, &file), &Reader::new(None)).map(|_| ())
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
    let said = Credential::load(&config(CredentialKind::Bearer, &link), &Reader::new(None))
        .map(|_| ())
        .unwrap_err();
    assert!(said.to_string().contains("symbolic link"), "{said}");
    let said = Credential::load(
        &config(CredentialKind::Bearer, directory.path()),
        &Reader::new(None),
    )
    .map(|_| ())
    .unwrap_err();
    assert!(said.to_string().contains("not a regular file"), "{said}");
    let missing = directory.path().join("missing");
    let said = Credential::load(
        &config(CredentialKind::Bearer, &missing),
        &Reader::new(None),
    )
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
    let vault = Vault::unloaded(vec![config(CredentialKind::Bearer, &file)]);
    let name = CredentialName::parse("tested").unwrap();
    let value = || {
        let (_, value) = placed(&*vault.get(&name)?, "api.example.com", "/")?;
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

    // A request that holds the old value keeps it; a changed file is taken up when it has settled.
    let held = vault.get(&name).unwrap();
    std::fs::write(&file, "three").unwrap();
    assert!(vault.follow().0.is_empty(), "it may still be being written");
    assert_eq!(vault.follow().0, std::slice::from_ref(&name));
    assert_eq!(value().as_deref(), Some("Bearer three"));
    assert_eq!(held.secret.expose(), b"two");
    assert!(vault.follow().0.is_empty() && vault.follow().0.is_empty());
    std::fs::write(&file, "\n").unwrap();
    assert!(vault.follow().1.is_empty());
    assert_eq!(vault.follow().1.len(), 1, "told once");
    assert!(vault.follow().1.is_empty());
    assert_eq!(value().as_deref(), Some("Bearer three"));
    assert!(vault.health()[0].stale && vault.health()[0].loaded);
}

/// Waits until `done` holds.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A credential of this file, which holds `one`, with a canary.
fn with_canary(file: &Path, required: bool) -> CredentialConfig {
    std::fs::write(file, "one").unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut config = config(CredentialKind::Bearer, file);
    config.canary = Some(crate::config::CanaryConfig {
        authority: policy::authority::Authority::parse("api.example.com:443").unwrap(),
        method: http::Method::GET,
        target: "/me".to_owned(),
        required,
    });
    config
}

fn found(verdict: Verdict) -> CanaryView {
    CanaryView {
        at: String::new(),
        verdict,
        text: "said".to_owned(),
        clock_ahead_seconds: None,
    }
}

fn in_use(vault: &Vault, name: &CredentialName) -> String {
    let held = vault.get(name).unwrap();
    String::from_utf8(held.secret.expose().to_vec()).unwrap()
}

/// What waits for its canary is dropped as soon as its source says something else, be it what is in
/// use already: the answer to a canary that is on its way changes nothing then.
#[test]
fn a_value_that_is_withdrawn_before_its_canary_is_answered_never_comes_into_use() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    let config = with_canary(&file, true);
    let name = &config.name;
    for (instead, waits) in [("one", false), ("three", true), ("two", true)] {
        std::fs::write(&file, "one").unwrap();
        let vault = Vault::unloaded(vec![config.clone()]);
        assert!(vault.reload().is_empty());
        let (one, _) = vault.to_try(false).remove(0);
        assert!(vault.tried(&one, found(Verdict::Works)));
        std::fs::write(&file, "two").unwrap();
        assert!(vault.reload().is_empty());
        let (two, _) = vault.to_try(false).remove(0);
        assert!(!vault.tried(&two, found(Verdict::Unknown)));

        std::fs::write(&file, instead).unwrap();
        assert!(vault.reload().is_empty());
        assert_eq!(!vault.waiting().is_empty(), waits, "{instead}");
        assert_eq!(!vault.to_try(false).is_empty(), waits, "{instead}");
        assert_eq!(vault.view()[0].problem.is_some(), waits, "{instead}");
        let used = vault.tried(&two, found(Verdict::Works));
        let wanted = instead == "two";
        assert_eq!(used, wanted, "{instead}: control");
        let value = if wanted { "two" } else { "one" };
        assert_eq!(in_use(&vault, name), value, "{instead}");
    }
}

/// Canaries on demand and canaries of new values overlap: each result is about the value that was sent.
#[test]
fn what_is_found_of_one_value_is_not_taken_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    for required in [true, false] {
        let config = with_canary(&file, required);
        let vault = Vault::unloaded(vec![config.clone()]);
        assert!(vault.reload().is_empty());
        let (one, _) = vault.to_try(true).remove(0);
        assert_eq!(vault.tried(&one, found(Verdict::Works)), required);
        std::fs::write(&file, "two").unwrap();
        assert!(vault.reload().is_empty());
        let before = vault.view()[0].canary.clone();
        assert!(!vault.tried(&one, found(Verdict::Refused)));
        assert_eq!(vault.view()[0].canary, before, "{required}");
        assert_eq!(vault.to_try(false).len(), 1, "{required}: it is sent still");
        let (two, _) = vault.to_try(false).remove(0);
        assert_eq!(vault.tried(&two, found(Verdict::Works)), required);
        assert!(vault.to_try(false).is_empty(), "control: once");
        assert!(vault.view()[0].canary.is_some());
        assert_eq!(in_use(&vault, &config.name), "two");
        // Nor of one that a seal took.
        vault.seal();
        assert!(!vault.tried(&two, found(Verdict::Works)));
        assert!(vault.get(&config.name).is_none());
    }
}

#[test]
fn a_value_whose_canary_has_no_answer_waits_and_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    let config = with_canary(&file, true);
    for (last, used) in [(Verdict::Works, true), (Verdict::Refused, false)] {
        let vault = Vault::unloaded(vec![config.clone()]);
        assert!(vault.reload().is_empty());
        let name = &config.name;
        let (first, _) = vault.to_try(false).remove(0);
        assert!(!vault.tried(&first, found(Verdict::Unknown)));
        assert_eq!(
            vault.waiting(),
            std::slice::from_ref(name),
            "it is not dropped"
        );
        assert!(vault.to_try(false).is_empty(), "not at once");
        let problem = vault.view()[0].problem.clone().unwrap();
        assert!(problem.contains("tried again: said"), "{problem}");
        until("it is tried again", || !vault.to_try(false).is_empty());
        let (again, _) = vault.to_try(false).remove(0);
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(vault.tried(&again, found(last)), used);
        assert_eq!(vault.get(name).is_some(), used);
        assert!(vault.waiting().is_empty() && vault.to_try(false).is_empty());
    }
}

#[test]
fn a_value_that_a_seal_took_is_read_again_by_itself_after_a_failure() {
    use std::os::fd::AsRawFd;

    use nix::fcntl::{FcntlArg, fcntl};
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, b"one").unwrap();
    // High enough that nobody else here is given it.
    let number = 913;
    let place = || {
        let placed = fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(number)).unwrap();
        assert_eq!(placed, number);
    };
    let mut config = config(CredentialKind::Bearer, Path::new("/nonexistent"));
    config.source = SecretSource::Descriptor(number);
    let name = config.name.clone();
    let vault = Vault::unloaded(vec![config]);
    place();
    assert!(vault.reload().is_empty() && vault.get(&name).is_some());
    nix::unistd::close(number).unwrap();
    assert_eq!(vault.reload().len(), 1);
    assert!(vault.get(&name).is_some(), "the former value stays");
    vault.seal();
    assert_eq!(vault.reload().len(), 1);
    assert!(vault.get(&name).is_none());
    assert!(vault.follow().1.is_empty(), "not at once");
    place();
    until("it is read again", || vault.follow().0 == [name.clone()]);
    assert!(vault.get(&name).is_some());
    nix::unistd::close(number).unwrap();
    assert!(file.as_raw_fd() >= 0);
}

#[test]
fn a_401_marks_a_credential_until_it_is_taken_or_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::write(&file, "one").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let vault = Vault::unloaded(vec![config(CredentialKind::Bearer, &file)]);
    assert!(vault.reload().is_empty());
    let name = CredentialName::parse("tested").unwrap();
    let sick = || vault.view()[0].sick.as_ref().map(|sick| sick.refusals);
    assert!(!vault.accepted(&name), "no news");
    assert!(vault.refused(&name, "api.example.com:443"));
    assert!(!vault.refused(&name, "api.example.com:443"), "told once");
    assert_eq!((sick(), vault.health()[0].refused), (Some(2), 2));
    assert!(vault.accepted(&name));
    assert_eq!((sick(), vault.health()[0].refused), (None, 2));
    vault.refused(&name, "api.example.com:443");
    std::fs::write(&file, "one").unwrap();
    assert!(vault.reload().is_empty());
    assert_eq!(sick(), Some(1), "the same value is no cure");
    std::fs::write(&file, "two").unwrap();
    assert!(vault.reload().is_empty());
    assert_eq!(sick(), None);
}

#[test]
fn anthropic_openai_and_query_have_their_form() {
    let key = field(CredentialKind::Anthropic, b"sk-ant-api03-x", false);
    assert_eq!(key, ("x-api-key".to_owned(), "sk-ant-api03-x".to_owned()));
    let (credential, _) =
        load(CredentialKind::Anthropic, b"sk-ant-oat01-x").unwrap_or_else(|e| panic!("{e}"));
    let host = Host::parse("api.example.com").unwrap();
    match credential.place(&host, "/v1/messages", &credential.secret) {
        Some(Placed::Field { name, value, also }) => {
            assert_eq!(name, AUTHORIZATION);
            assert_eq!(value.to_str().unwrap(), "Bearer sk-ant-oat01-x");
            assert_eq!(also, Some(("anthropic-beta", "oauth-2025-04-20")));
        }
        Some(Placed::Nowhere | Placed::Query { .. }) | None => panic!("a field is wanted"),
    }
    let openai = field(CredentialKind::Openai, b"sk-proj-x", false);
    assert_eq!(
        openai,
        ("authorization".to_owned(), "Bearer sk-proj-x".to_owned())
    );
    let query = CredentialKind::Query {
        parameter: "key".to_owned(),
    };
    let (credential, _) = load(query, b"a+b").unwrap_or_else(|e| panic!("{e}"));
    match credential.place(&host, "/v1", &credential.secret) {
        Some(Placed::Query { parameter, value }) => {
            assert_eq!((parameter.as_str(), value.as_str()), ("key", "a%2Bb"));
        }
        Some(Placed::Nowhere | Placed::Field { .. }) | None => panic!("a parameter is wanted"),
    }
    assert_eq!(
        flaw(CredentialKind::Anthropic, b"sk-x"),
        Flaw::LooksLike("an OpenAI key")
    );
    assert_eq!(flaw(CredentialKind::Openai, b"hunter2"), Flaw::NotOpenai);
    assert_eq!(
        flaw(CredentialKind::GithubToken, b"ghr_x"),
        Flaw::RefreshToken
    );
}

/// LIF-13: a descriptor that a service manager passes works, and one that it failed to pass is told.
/// Attack: LIF-13
#[test]
fn lif_13_an_inherited_descriptor_is_read_again_and_a_missing_one_is_told() {
    use std::os::fd::AsRawFd;
    let mut passed = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut passed, b"one\n").unwrap();
    let from = |number| {
        let mut config = config(CredentialKind::Bearer, Path::new("/nonexistent"));
        config.source = SecretSource::Descriptor(number);
        Credential::load(&config, &Reader::new(None))
    };
    for _ in 0..2 {
        let (credential, _) = from(passed.as_raw_fd()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(credential.secret.expose(), b"one");
    }
    let said = from(1_000_000).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("descriptor 1000000 cannot be used"), "{said}");
    let (pipe, _other) = std::io::pipe().unwrap();
    let said = from(pipe.as_raw_fd()).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("not a file"), "{said}");
}

/// A credential is neither printed nor copied: what is not implemented cannot be called.
#[test]
fn secrets_are_neither_printed_nor_copied() {
    trait Fallback {
        const HAS: bool = false;
    }
    impl<T: ?Sized> Fallback for T {}
    macro_rules! has {
        ($type:ty: $bound:path) => {{
            #[allow(dead_code, reason = "which constant is used is what is asked")]
            struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
            #[allow(dead_code, reason = "which constant is used is what is asked")]
            impl<T: ?Sized + $bound> Probe<T> {
                const HAS: bool = true;
            }
            <Probe<$type>>::HAS
        }};
    }
    assert!(has!(String: std::fmt::Debug), "the control");
    assert!(
        has!(String: Clone) && has!(String: serde::Serialize),
        "the control"
    );
    for found in [
        has!(Secret: std::fmt::Debug),
        has!(Secret: std::fmt::Display),
        has!(Secret: Clone),
        has!(Secret: serde::Serialize),
        has!(Credential: std::fmt::Debug),
        has!(Credential: Clone),
        has!(Credential: serde::Serialize),
        has!(Vault: std::fmt::Debug),
        has!(Vault: Clone),
        has!(crate::openpgp::SecretKey: std::fmt::Debug),
        has!(crate::openpgp::SecretKey: Clone),
        has!(crate::store::Store: std::fmt::Debug),
    ] {
        assert!(!found);
    }
}

fn whole_config(text: &str) -> Config {
    let text = format!(
        "[control]\nsocket = \"/c\"\n[runs]\ndirectory = \"/r\"\n[ca]\ndirectory = \"/ca\"\n[audit]\n\
         directory = \"/a\"\n[boundary]\nexternal = \"test\"\n{text}"
    );
    Config::parse(&text, Path::new("proxy.toml")).unwrap_or_else(|problem| panic!("{problem}"))
}

#[test]
fn every_kind_can_be_configured() {
    let config = whole_config(
        "[store]\ndirectory = \"/s\"\nkey = \"/k\"\nno_operator_entries = \"none here\"\nstate = \"/state\"\n\
         [credential.app]\nkind = \"github-app\"\napp = 12\ninstallation = 34\nrepositories = [\"o/b\", \"a\"]\n\
         entry = \"agents/app\"\nhosts = [\"api.github.com\", \"github.com\"]\ncanary = \"GET /meta?x=1\"\n\
         [credential.login]\nkind = \"oauth-refresh\"\ntoken_url = \"https://auth.example.com/token\"\n\
         client_id = \"c\"\nentry = \"agents/login\"\nhosts = [\"*.example.com\"]\n\
         canary = \"HEAD https://api.example.com/me\"\ncanary_required = true\n\
         [credential.maps]\nkind = \"query\"\nparameter = \"key\"\ndescriptor = 7\nhosts = [\"maps.example.com\"]\n",
    );
    let named = |name: &str| &config.credentials[&CredentialName::parse(name).unwrap()];
    let CredentialKind::GithubApp(app) = &named("app").kind else {
        panic!("an app is wanted");
    };
    assert_eq!((app.app.as_str(), app.installation), ("12", 34));
    assert_eq!(app.repositories, ["a", "b"]);
    let canary = named("app").canary.as_ref().unwrap();
    assert_eq!(canary.authority.to_string(), "api.github.com:443");
    assert!(named("login").canary.as_ref().unwrap().required);
    assert_eq!(named("maps").source, SecretSource::Descriptor(7));
}
