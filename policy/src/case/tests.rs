use super::*;

const SERVICE: &str = r#"
[[service]]
id = "forge"
kind = "github"
host = "git.example.com"
repos = ["acme/web"]
git = "push"
refs = ["refs/heads/agent/*"]
credential = "git"
"#;

fn run(test: &str) -> Result<(), String> {
    let text = format!("{SERVICE}\n[[test]]\n{test}\n");
    let cases = Case::all(&text, "test").unwrap_or_else(|problems| panic!("{problems}"));
    cases[0].run(&Policy::parse(&text, "test").unwrap())
}

const PUSH: &str = "request = \"POST https://git.example.com/acme/web.git/git-receive-pack\"\n";

#[test]
fn a_test_holds_or_says_what_became_of_its_request() {
    for (test, fails) in [
        (
            "push = [\"create refs/heads/agent/x\"]\nexpect = \"allow\"",
            None,
        ),
        (
            "push = [\"update refs/heads/agent/x\"]\nexpect = \"allow\"\nrule = \"forge\"\ncredential = \"git\"",
            None,
        ),
        (
            "push = [\"create refs/heads/main\"]\nexpect = \"refuse\"\ncode = \"ref_not_allowed\"",
            None,
        ),
        (
            "push = [\"delete refs/heads/agent/x\"]\nexpect = \"refuse\"\ncode = \"delete_not_allowed\"",
            None,
        ),
        (
            "push = [\"create refs/heads/main\"]\nexpect = \"allow\"",
            Some("ref_not_allowed"),
        ),
        (
            "push = [\"create refs/heads/agent/x\"]\nexpect = \"refuse\"",
            Some("allowed by rule `forge`"),
        ),
        (
            "push = [\"create refs/heads/agent/x\"]\nexpect = \"allow\"\ncredential = \"other\"",
            Some("`git`, not `other`"),
        ),
        (
            "push = [\"create refs/heads/main\"]\nexpect = \"refuse\"\ncode = \"delete_not_allowed\"",
            Some("`ref_not_allowed`"),
        ),
        ("expect = \"allow\"", Some("look into the body")),
    ] {
        let outcome = run(&format!("{PUSH}{test}"));
        match fails {
            None => assert_eq!(outcome, Ok(()), "{test}"),
            Some(part) => assert!(
                outcome.as_ref().is_err_and(|text| text.contains(part)),
                "{test}: {outcome:?}"
            ),
        }
    }
}

#[test]
fn a_test_that_cannot_be_read_is_a_problem_of_the_file_with_its_line() {
    for (test, problem) in [
        ("expect = \"allow\"", "asks nothing"),
        ("request = \"GET x\"\nexpect = \"allow\"", "https://HOST"),
        ("request = \"GET https://h.example/\"", "expects nothing"),
        (
            "request = \"GET https://h.example/\"\nexpect = \"alow\"",
            "did you mean `allow`",
        ),
        (
            "request = \"GET https://h.example/\"\nexpect = \"refuse\"\ncode = \"path_not_alowed\"",
            "did you mean `path_not_allowed`",
        ),
        (
            "request = \"GET https://h.example/\"\nexpect = \"allow\"\ncode = \"path_not_allowed\"",
            "says nothing",
        ),
        (
            "request = \"GET https://h.example/\"\nexpect = \"allow\"\nrul = \"x\"",
            "did you mean `rule`",
        ),
        (
            "request = \"GET https://h.example/\"\nexpect = \"allow\"\npush = [\"force refs/heads/x\"]",
            "`force` is not",
        ),
    ] {
        let text = format!("{SERVICE}\n[[test]]\n{test}\n");
        let problems = Policy::parse(&text, "file.toml").unwrap_err().to_string();
        assert!(
            problems.contains(problem) && problems.contains("test[1]"),
            "{test}: {problems}"
        );
        assert_eq!(
            Case::all(&text, "file.toml").unwrap_err().to_string(),
            problems
        );
    }
}

#[test]
fn tests_change_nothing_about_the_policy() {
    let text =
        format!("{SERVICE}\n[[test]]\nrequest = \"GET https://h.example/\"\nexpect = \"refuse\"\n");
    let (with, without) = (
        Policy::parse(&text, "a").unwrap(),
        Policy::parse(SERVICE, "a").unwrap(),
    );
    assert_eq!(with.expanded(), without.expanded());
    assert_eq!(Case::all(SERVICE, "a").unwrap(), []);
}
