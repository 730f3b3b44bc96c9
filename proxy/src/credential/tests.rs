//! One credential: which values it takes, what form they have, where it goes.

mod printed;
mod vault;
mod waiting;

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
