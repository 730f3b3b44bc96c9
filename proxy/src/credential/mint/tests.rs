//! Whose tokens are whose.

use super::*;

fn secret(text: &str) -> Secret {
    Secret::take(&mut text.as_bytes().to_vec()).unwrap()
}

/// A credential is one set of repositories of an app: another of the same key asks for tokens of its own.
#[test]
fn tokens_are_kept_for_each_credential_and_so_for_each_set_of_repositories() {
    let name = |text: &str| CredentialName::parse(text).unwrap();
    let cores = Cores::default();
    let web = cores.of(&name("web"), &secret("key"));
    let again = cores.of(&name("web"), &secret("key"));
    assert!(Arc::ptr_eq(&web, &again), "control: read again, it is one");
    let docs = cores.of(&name("docs"), &secret("key"));
    assert!(!Arc::ptr_eq(&web, &docs), "another set, the same key");
    let rotated = cores.of(&name("web"), &secret("another key"));
    assert!(!Arc::ptr_eq(&web, &rotated), "another key");
}
