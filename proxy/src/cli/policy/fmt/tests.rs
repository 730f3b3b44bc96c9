use std::os::unix::fs::PermissionsExt;

use super::*;

const UNTIDY: &str = r#"# What agents may do.


[[service]]
allow=["GET /v1/**"]   # reading
credential   = "a"
host = "api.example.com"
kind='http'
# Who may.
deny = [
  # never
  "* /v1/admin/**",
]
[[service]]
kind = "github"
refs = ["refs/heads/agent/one/*", "refs/heads/agent/two/*", "refs/heads/agent/three/*", "refs/tags/agent-*"]
git = "push"
repos = ["acme/web"]
[[test]]
expect = "allow"
request = "GET https://api.example.com/v1/x"
"#;

const TIDY: &str = r#"# What agents may do.

[[service]]
kind = 'http'
host = "api.example.com"
allow = ["GET /v1/**"]   # reading
# Who may.
deny = [
  # never
  "* /v1/admin/**",
]
credential = "a"

[[service]]
kind = "github"
repos = ["acme/web"]
git = "push"
refs = [
    "refs/heads/agent/one/*",
    "refs/heads/agent/two/*",
    "refs/heads/agent/three/*",
    "refs/tags/agent-*",
]

[[test]]
request = "GET https://api.example.com/v1/x"
expect = "allow"
"#;

fn tidied(text: &str) -> String {
    formatted(text, Path::new("test.toml")).unwrap_or_else(|problem| panic!("{problem}"))
}

#[test]
fn a_policy_has_one_form_keeps_its_comments_and_means_the_same() {
    assert_eq!(tidied(UNTIDY), TIDY);
    assert_eq!(tidied(TIDY), TIDY, "once is enough");
    for example in ["coder", "packages", "proxmox", "closed"] {
        let path = format!(
            "{}/../policy/examples/{example}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            tidied(&text),
            text,
            "{example}.toml is written as fmt writes it"
        );
        let comments = |text: &str| text.matches('#').count();
        assert_eq!(comments(&tidied(&text)), comments(&text), "{example}");
    }
    assert_eq!(tidied(""), "");
}

#[test]
fn what_is_no_policy_is_left_alone_and_a_file_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    let args = |check| FmtArgs {
        files: vec![file.clone()],
        check,
    };
    fs::write(&file, "[[service]]\nkind = \"htp\"\n").unwrap();
    assert_eq!(fmt(&args(false)), Exit::CouldNotTell);
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "[[service]]\nkind = \"htp\"\n"
    );
    fs::write(&file, UNTIDY).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fmt(&args(true)), Exit::No);
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        UNTIDY,
        "--check writes nothing"
    );
    assert_eq!(fmt(&args(false)), Exit::Yes);
    assert_eq!(fs::read_to_string(&file).unwrap(), TIDY);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(fmt(&args(true)), Exit::Yes);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left beside it"
    );
}
