//! A value that waits for its canary while its source changes under it.

use super::super::health::CredentialHealth;
use super::vault::{found, in_use, until, with_canary};
use super::*;

/// What becomes of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Deleted,
    Emptied,
    Opened,
    Folder,
    Unfit,
}

const SOURCES: [Source; 5] = [
    Source::Deleted,
    Source::Emptied,
    Source::Opened,
    Source::Folder,
    Source::Unfit,
];

/// What the vault holds before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// A value in use.
    One,
    /// A first value, which waits for its canary.
    Waiting,
    /// A value in use, and another that waits.
    OneAndWaiting,
    /// The same, and its canary had no answer so far.
    OneAndUnanswered,
}

const HELD: [Held; 4] = [
    Held::One,
    Held::Waiting,
    Held::OneAndWaiting,
    Held::OneAndUnanswered,
];

/// The file is replaced, so that its stamp is another one.
fn put(file: &Path, value: &str, mode: u32) {
    let new = file.with_extension("new");
    std::fs::write(&new, value).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
    if file.is_dir() {
        std::fs::remove_dir(file).unwrap();
    }
    std::fs::rename(&new, file).unwrap();
}

fn spoil(file: &Path, how: Source) {
    match how {
        Source::Deleted => std::fs::remove_file(file).unwrap(),
        Source::Emptied => put(file, "", 0o600),
        Source::Opened => put(file, "two", 0o644),
        Source::Folder => {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        }
        Source::Unfit => put(file, "two\nthree", 0o600),
    }
}

/// A vault that holds that, and the credential whose canary is on its way, if one is.
fn vault(config: &CredentialConfig, file: &Path, held: Held) -> (Vault, Option<Arc<Credential>>) {
    let vault = Vault::unloaded(vec![config.clone()]);
    let next = |value: &str| {
        put(file, value, 0o600);
        assert!(vault.reload().is_empty());
        vault.to_try(false).remove(0).0
    };
    if held == Held::Waiting {
        let two = next("two");
        return (vault, Some(two));
    }
    let one = next("one");
    assert!(vault.tried(&one, found(Verdict::Works)));
    if held == Held::One {
        return (vault, None);
    }
    let two = next("two");
    if held == Held::OneAndUnanswered {
        assert!(!vault.tried(&two, found(Verdict::Unknown)));
    }
    (vault, Some(two))
}

fn health(vault: &Vault) -> CredentialHealth {
    vault.health().remove(0)
}

/// Whatever was held and whatever becomes of the source: it is an error by name with its remedy, said
/// once, in status and metrics; nothing waits; the value in use stays; a late answer brings nothing into
/// use; and once the source is back, it is read, tried and used.
#[test]
fn a_source_that_goes_away_is_an_error_in_every_state_and_is_taken_up_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let config = with_canary(&file, true);
    let name = &config.name;
    for held in HELD {
        for how in SOURCES {
            for back in ["two", "four"] {
                let case = format!("{held:?}, {how:?}, {back}");
                let (vault, two) = vault(&config, &file, held);
                let waits = held != Held::One;
                let has_one = held != Held::Waiting;
                assert_eq!(!vault.waiting().is_empty(), waits, "control: {case}");
                assert_eq!(health(&vault).loaded, has_one, "control: {case}");

                spoil(&file, how);
                let mut said = Vec::new();
                until("the change is seen", || {
                    said.extend(vault.follow().1);
                    !said.is_empty()
                });
                let problem = vault.view()[0].problem.clone().unwrap();
                assert!(problem.contains("credential tested: "), "{case}: {problem}");
                assert!(problem.contains("\n  hint: "), "{case}: {problem}");
                assert!(
                    problem.contains(file.to_str().unwrap()),
                    "{case}: {problem}"
                );
                assert!(!problem.contains("two"), "{case}: {problem}");
                let told = vault.reload().remove(0);
                assert_eq!(
                    super::super::source::chain(&told),
                    problem,
                    "whoever asks is told: {case}"
                );
                assert!(vault.waiting().is_empty(), "{case}");
                assert!(vault.to_try(false).is_empty(), "{case}");
                let now = health(&vault);
                assert_eq!((now.loaded, now.stale), (has_one, has_one), "{case}");
                assert_eq!(vault.view()[0].ok, has_one, "{case}");
                if let Some(two) = &two {
                    assert!(!vault.tried(two, found(Verdict::Works)), "{case}");
                }
                assert_eq!(vault.view()[0].problem.as_ref(), Some(&problem), "{case}");
                if has_one {
                    assert_eq!(in_use(&vault, name), "one", "{case}");
                }
                // It stays an error and is not said again, however often it is looked at.
                if how == Source::Deleted && back == "two" && held == Held::OneAndWaiting {
                    until("it was read again", || {
                        said.extend(vault.follow().1);
                        vault.tries(name) > 2
                    });
                }
                assert_eq!(said.len(), 1, "{case}");

                put(&file, back, 0o600);
                until("it is read", || {
                    said.extend(vault.follow().1);
                    !vault.to_try(false).is_empty()
                });
                assert_eq!(said.len(), 1, "{case}");
                assert_eq!(vault.waiting(), std::slice::from_ref(name), "{case}");
                let (again, _) = vault.to_try(false).remove(0);
                assert!(vault.tried(&again, found(Verdict::Works)), "{case}");
                assert_eq!(in_use(&vault, name), back, "{case}");
                let view = &vault.view()[0];
                assert!(view.ok && view.problem.is_none(), "{case}");
                let now = health(&vault);
                assert!(now.loaded && !now.stale, "{case}");
            }
        }
    }
}

/// A value that is in use already needs no canary when its source is back.
#[test]
fn a_source_that_comes_back_as_it_was_is_well_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let config = with_canary(&file, true);
    for how in SOURCES {
        let (vault, _) = vault(&config, &file, Held::One);
        spoil(&file, how);
        assert_eq!(vault.reload().len(), 1, "{how:?}");
        put(&file, "one", 0o600);
        until("it is read", || {
            assert!(vault.follow().1.is_empty(), "{how:?}");
            vault.view()[0].problem.is_none()
        });
        assert!(vault.waiting().is_empty() && vault.to_try(false).is_empty());
        assert_eq!(in_use(&vault, &config.name), "one", "{how:?}");
        assert!(!health(&vault).stale, "{how:?}");
    }
}
