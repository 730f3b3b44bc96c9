use crate::policy::Policy;
use crate::trial::{Outcome, Trial};

fn policy(kind: &str, lines: &str) -> Policy {
    let text = format!("[[service]]\nid = \"r\"\nkind = \"{kind}\"\n{lines}\n");
    let policy = Policy::parse(&text, "test").unwrap_or_else(|problems| panic!("{problems}"));
    // What a kind stands for can be written out, and means the same.
    let again = Policy::parse(&policy.expanded(), "expanded")
        .unwrap_or_else(|problems| panic!("{problems}"));
    assert!(
        policy.difference(&again).is_empty(),
        "{}",
        policy.expanded()
    );
    policy
}

fn allows(policy: &Policy, request: &str) -> bool {
    match Trial::parse(request).unwrap().on(policy) {
        Outcome::Allow { .. } => true,
        Outcome::Refuse(_) => false,
        other @ (Outcome::Hold { .. } | Outcome::Inspect(_)) => panic!("{other:?}"),
    }
}

/// What each registry's client asks for to install `left`, or `@scope/right`.
const READS: [(&str, &[&str]); 4] = [
    (
        "npm",
        &[
            "GET https://registry.npmjs.org/left",
            "GET https://registry.npmjs.org/left/-/left-1.0.0.tgz",
            "GET https://registry.npmjs.org/@scope%2fright",
            "GET https://registry.npmjs.org/@scope/right/-/right-1.0.0.tgz",
        ],
    ),
    (
        "pypi",
        &[
            "GET https://pypi.org/simple/left/",
            "GET https://pypi.org/pypi/left/json",
            "GET https://files.pythonhosted.org/packages/ab/cd/0123/left-1.0.0-py3-none-any.whl",
            "GET https://files.pythonhosted.org/packages/ab/cd/0123/left-1.0.0-py3-none-any.whl.metadata",
            "HEAD https://files.pythonhosted.org/packages/source/l/left/Left-1.0.0.tar.gz",
        ],
    ),
    (
        "crates",
        &[
            "GET https://index.crates.io/config.json",
            "GET https://index.crates.io/le/ft/left",
            "GET https://static.crates.io/crates/left/left-1.0.0.crate",
            "GET https://static.crates.io/crates/left/1.0.0/download",
            "GET https://crates.io/api/v1/crates/left/1.0.0/download",
        ],
    ),
    (
        "debian",
        &[
            "GET https://deb.debian.org/debian/dists/bookworm/InRelease",
            "GET https://deb.debian.org/debian/pool/main/l/left/left_1.0-1_amd64.deb",
            "GET https://security.debian.org/debian-security/dists/bookworm-security/InRelease",
        ],
    ),
];

#[test]
fn a_registry_is_read_whole_by_default_and_never_written_to() {
    for (kind, reads) in READS {
        let everything = policy(kind, "");
        for request in reads {
            assert!(allows(&everything, request), "{kind}: {request}");
            let (_, url) = request.split_once(' ').unwrap();
            for method in ["PUT", "POST", "DELETE", "PATCH"] {
                assert!(
                    !allows(&everything, &format!("{method} {url}")),
                    "{kind}: {method} {url}"
                );
            }
        }
    }
    for beside in [
        ("npm", "GET https://registry.npmjs.org/-/whoami"),
        ("npm", "GET https://registry.npmjs.org/-/v1/search?text=x"),
        ("npm", "GET https://registry.npmjs.org/-/npm/v1/user"),
        ("pypi", "GET https://pypi.org/manage/account/"),
        ("crates", "GET https://crates.io/api/v1/me"),
        ("crates", "GET https://crates.io/api/v1/crates/left/owners"),
    ] {
        assert!(!allows(&policy(beside.0, ""), beside.1), "{beside:?}");
    }
}

#[test]
fn named_packages_are_read_and_others_are_not_also_where_their_names_are_alike() {
    for (kind, named, same, others) in [
        (
            "npm",
            "\"left\", \"@scope/*\"",
            READS[0].1,
            &[
                "GET https://registry.npmjs.org/left-pad",
                "GET https://registry.npmjs.org/lef",
                "GET https://registry.npmjs.org/@other%2fright",
                "GET https://registry.npmjs.org/@other/right/-/right-1.0.0.tgz",
            ][..],
        ),
        (
            "pypi",
            "\"left\"",
            READS[1].1,
            &[
                "GET https://pypi.org/simple/left-pad/",
                "GET https://pypi.org/simple/",
                "GET https://files.pythonhosted.org/packages/ab/cd/01/left_pad-1.0-py3-none-any.whl",
                "GET https://files.pythonhosted.org/packages/ab/cd/01/left-pad-1.0.tar.gz",
            ],
        ),
        (
            "crates",
            "\"left\"",
            READS[2].1,
            &[
                "GET https://index.crates.io/le/ft/left-pad",
                "GET https://static.crates.io/crates/left-pad/left-pad-1.0.0.crate",
                "GET https://crates.io/api/v1/crates/leftpad/1.0.0/download",
            ],
        ),
        (
            "debian",
            "\"left\"",
            READS[3].1,
            &["GET https://deb.debian.org/debian/pool/main/l/left/left-doc_1.0-1_all.deb"],
        ),
    ] {
        let some = policy(kind, &format!("packages = [{named}]"));
        for request in same {
            assert!(allows(&some, request), "{kind}: {request}");
        }
        for request in others {
            assert!(!allows(&some, request), "{kind}: {request}");
            assert!(
                kind == "pypi" && request.ends_with("simple/")
                    || allows(&policy(kind, ""), request),
                "control: {request}"
            );
        }
    }
}

#[test]
fn a_denied_package_is_denied_in_every_spelling() {
    for (kind, reads) in READS {
        let named = if kind == "npm" {
            "\"left\", \"@scope/right\""
        } else {
            "\"left\""
        };
        let shut = policy(kind, &format!("deny_packages = [{named}]"));
        for request in reads
            .iter()
            .filter(|it| it.to_ascii_lowercase().contains("left") || it.contains("right"))
        {
            assert!(!allows(&shut, request), "{kind}: {request}");
            assert!(
                !allows(&shut, &request.replace("/left", "/LEFT")),
                "{kind}: {request}"
            );
        }
    }
    let shut = policy("npm", "deny_packages = [\"@scope/right\"]");
    assert!(
        allows(&shut, "GET https://registry.npmjs.org/@scope%2fother"),
        "control"
    );
    assert!(!allows(
        &shut,
        "GET https://registry.npmjs.org/@scope%2Fright"
    ));
}

#[test]
fn short_names_and_patterns_of_crates_lie_where_the_index_has_them() {
    for (name, path) in [
        ("a", "/1/a"),
        ("ab", "/2/ab"),
        ("abc", "/3/a/abc"),
        ("abcd", "/ab/cd/abcd"),
        ("Abcd", "/ab/cd/abcd"),
    ] {
        let one = policy("crates", &format!("packages = [\"{name}\"]"));
        assert!(
            allows(&one, &format!("GET https://index.crates.io{path}")),
            "{name}"
        );
        assert!(!allows(&one, "GET https://index.crates.io/ot/he/other"));
    }
    for (pattern, paths, other) in [
        ("tokio-*", &["/to/ki/tokio-util"][..], "/to/ki/tokio"),
        (
            "a*",
            &["/1/a", "/2/ab", "/3/a/abc", "/ab/cd/abcd"],
            "/ba/ba/baba",
        ),
    ] {
        let some = policy("crates", &format!("packages = [\"{pattern}\"]"));
        for path in paths {
            assert!(
                allows(&some, &format!("GET https://index.crates.io{path}")),
                "{pattern}: {path}"
            );
        }
        assert!(
            !allows(&some, &format!("GET https://index.crates.io{other}")),
            "{pattern}: {other}"
        );
    }
}

#[test]
fn publishing_is_a_service_of_its_own_and_reads_nothing_else() {
    let npm = policy(
        "npm",
        "publish = true\npackages = [\"@acme/web\"]\ncredential = \"npm\"",
    );
    for (request, allowed) in [
        ("PUT https://registry.npmjs.org/@acme%2fweb", true),
        (
            "PUT https://registry.npmjs.org/-/package/@acme%2fweb/dist-tags/latest",
            true,
        ),
        ("PUT https://registry.npmjs.org/@acme%2fother", false),
        ("PUT https://registry.npmjs.org/left", false),
        (
            "DELETE https://registry.npmjs.org/@acme%2fweb/-rev/1",
            false,
        ),
    ] {
        assert_eq!(allows(&npm, request), allowed, "{request}");
    }
    let pypi = policy("pypi", "publish = true\ncredential = \"pypi\"");
    assert!(allows(&pypi, "POST https://upload.pypi.org/legacy/"));
    assert!(!allows(&pypi, "GET https://pypi.org/simple/left/"));
    let crates = policy("crates", "publish = true\ncredential = \"crates\"");
    assert!(allows(&crates, "PUT https://crates.io/api/v1/crates/new"));
    assert!(!allows(
        &crates,
        "DELETE https://crates.io/api/v1/crates/left/1.0.0/yank"
    ));
}

#[test]
fn names_that_no_registry_has_are_problems_with_their_place() {
    for (kind, lines, problem) in [
        ("npm", "packages = [\"a/b\"]", "no name of a package"),
        ("npm", "packages = [\"@a\"]", "no name of a package"),
        ("npm", "packages = []", "empty list"),
        (
            "npm",
            "publish = true",
            "every package that the credential may write",
        ),
        ("pypi", "packages = [\"Left_Pad\"]", "no name of a package"),
        (
            "pypi",
            "publish = true\npackages = [\"left\"]",
            "not looked at",
        ),
        ("crates", "packages = [\"a.b\"]", "no name of a package"),
        ("debian", "packages = [\"../x\"]", "no name of a package"),
        ("debian", "publish = true", "it belongs to kind"),
    ] {
        let text = format!("[[service]]\nkind = \"{kind}\"\n{lines}\n");
        let problems = Policy::parse(&text, "file.toml").unwrap_err().to_string();
        assert!(
            problems.contains(problem) && problems.contains("file.toml:"),
            "{kind} {lines}: {problems}"
        );
    }
}
