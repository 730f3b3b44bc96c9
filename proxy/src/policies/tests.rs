use super::*;

const POLICY: &str = "version = 1\n[[service]]\nkind = \"http\"\nhost = \"api.example.com\"\n\
                      allow = [\"GET /**\"]\ncredential = \"example\"\n";

struct Files {
    directory: tempfile::TempDir,
    policy: PathBuf,
    config: Arc<Config>,
}

fn files(policy_text: &str) -> Files {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("default.toml");
    std::fs::write(&policy, policy_text).unwrap();
    let text = format!(
        "[control]\nsocket = \"/c\"\n[runs]\ndirectory = \"/r\"\n[ca]\ndirectory = \"/a\"\n\
         [audit]\ndirectory = \"/l\"\n[boundary]\nexternal = \"test\"\n\
         [profile.default]\npolicy = \"{}\"\n\
         [credential.example]\nkind = \"bearer\"\nfile = \"/f\"\nhosts = [\"api.example.com\"]\n",
        policy.display()
    );
    let config = Arc::new(Config::parse(&text, Path::new("proxy.toml")).unwrap());
    Files {
        directory,
        policy,
        config,
    }
}

fn problem(files: &Files) -> String {
    Policies::load(Arc::clone(&files.config))
        .map(|_| ())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_policy_is_loaded_with_its_hash() {
    let files = files(POLICY);
    let policies = Policies::load(Arc::clone(&files.config)).unwrap();
    let loaded = policies.get("default").unwrap();
    assert_eq!(loaded.hash, sha256(POLICY));
    assert_eq!(loaded.policy.services().len(), 1);
    assert!(policies.get("other").is_none());
    assert_eq!(
        sha256("abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn a_broken_or_missing_policy_is_named() {
    let files = files(&POLICY.replace("allow", "alow"));
    let said = problem(&files);
    assert!(
        said.contains(&format!("{}:", files.policy.display())),
        "{said}"
    );
    assert!(said.contains("alow") && said.contains("hint:"), "{said}");
    std::fs::remove_file(&files.policy).unwrap();
    assert!(problem(&files).contains("cannot be read"));
}

#[test]
fn a_credential_must_exist_and_be_bound_to_where_it_would_go() {
    let unknown = files(&POLICY.replace("\"example\"", "\"exemple\""));
    let said = problem(&unknown);
    assert!(
        said.contains(&format!("{}:6:", unknown.policy.display())),
        "{said}"
    );
    assert!(
        said.contains("there is no credential exemple in proxy.toml"),
        "{said}"
    );

    let elsewhere = files(&POLICY.replace("api.example.com", "evil.example.com"));
    let said = problem(&elsewhere);
    assert!(
        said.contains("example would go to evil.example.com"),
        "{said}"
    );
    assert!(said.contains("proxy.toml binds it elsewhere"), "{said}");

    let inline = files(POLICY);
    let policies = Policies::load(Arc::clone(&inline.config)).unwrap();
    assert!(policies.inline(POLICY, true).is_ok(), "control");
    assert!(
        policies
            .inline(&POLICY.replace("api.", "evil."), true)
            .is_err()
    );
}

#[test]
fn a_board_that_the_gate_does_not_know_is_refused() {
    let files = files("version = 1\n[[service]]\nkind = \"board\"\n");
    let said = problem(&files);
    assert!(said.contains("proxy.toml has no [board]"), "{said}");
    let mut config = Config::clone(&files.config);
    config.board_socket = Some(PathBuf::from("/board.sock"));
    assert!(Policies::load(Arc::new(config)).is_ok(), "control");
}

/// Attack: LIF-03
#[test]
fn a_reload_with_a_broken_file_keeps_the_old_policy_and_says_so() {
    let files = files(POLICY);
    let policies = Policies::load(Arc::clone(&files.config)).unwrap();
    let mut changes = policies.watch("default").unwrap();
    let before = policies.get("default").unwrap();

    std::fs::write(&files.policy, "version = 1\n[[service]]\nkind = 3\n").unwrap();
    let report = policies.reload();
    assert!(report.changed.is_empty());
    assert!(
        report.broken["default"].contains("default.toml:"),
        "{:?}",
        report.broken
    );
    assert!(Arc::ptr_eq(&before, &policies.get("default").unwrap()));
    let stale = policies.view()["default"].stale.clone().unwrap();
    policies.reload();
    let again = policies.view()["default"].stale.clone().unwrap();
    assert_eq!(again.since, stale.since, "stale since the first failure");
    assert!(!changes.has_changed().unwrap());

    std::fs::write(&files.policy, "version = 1\n").unwrap();
    assert_eq!(policies.reload().changed, ["default"]);
    assert!(policies.view()["default"].stale.is_none());
    assert!(changes.has_changed().unwrap());
    assert!(changes.borrow_and_update().policy.services().is_empty());
}

#[test]
fn an_inline_policy_does_not_say_who_receives_a_credential() {
    let files = files(POLICY);
    let policies = Policies::load(Arc::clone(&files.config)).unwrap();
    let pin = "pin = \"sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\"\n";
    let ca = files.directory.path().join("ca.pem");
    let signed = rcgen::generate_simple_self_signed(vec!["x.example".to_owned()]).unwrap();
    std::fs::write(&ca, signed.cert.pem()).unwrap();
    let ways = [
        pin.to_owned(),
        "address = \"192.0.2.1:443\"\n".to_owned(),
        format!("ca_file = \"{}\"\n", ca.display()),
    ];
    let other = |host: &str, way: &str| {
        format!("[[service]]\nkind = \"http\"\nhost = \"{host}\"\n{way}allow = [\"GET /x\"]\n")
    };
    for way in &ways {
        // On the credential's own service, and on another one for the same host.
        let own = POLICY.replace("allow", &format!("{way}allow"));
        let beside = format!("{own}{}", other("api.example.com", way));
        for text in [&own, &beside] {
            let said = policies
                .inline(text, false)
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(said.contains("api.example.com may receive"), "{said}");
            assert!(policies.inline(text, true).is_ok(), "control: an admin may");
        }
        let elsewhere = format!("{POLICY}{}", other("bare.example.com", way));
        assert!(
            policies.inline(&elsewhere, false).is_ok(),
            "control: no credential goes there"
        );
    }
    assert!(policies.inline(POLICY, false).is_ok(), "control");
}
