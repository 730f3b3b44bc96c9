//! All credentials of the gate: replaced, waiting, refused, sealed.

use super::*;

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
pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A credential of this file, which holds `one`, with a canary.
pub(super) fn with_canary(file: &Path, required: bool) -> CredentialConfig {
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

pub(super) fn found(verdict: Verdict) -> CanaryView {
    CanaryView {
        at: String::new(),
        verdict,
        text: "said".to_owned(),
        clock_ahead_seconds: None,
    }
}

pub(super) fn in_use(vault: &Vault, name: &CredentialName) -> String {
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
