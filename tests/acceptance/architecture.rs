//! The repository keeps its own rules: rooms, fences, headers, examples.

mod attacks;
mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tests::binaries::repository;
use tests::command::Program;

const ROOMS: [&str; 6] = [
    "policy",
    "nftables",
    "proxy",
    "orchestrator",
    "provisioning",
    "tests",
];

/// The only files that may opt into unsafe code: the netlink module, the vault, the spawning.
const UNSAFE: [&str; 3] = [
    "nftables/src/netlink",
    "orchestrator/src/spawn",
    "proxy/src/vault",
];

#[test]
fn rooms_depend_exactly_downwards() {
    let metadata = Program::new(env!("CARGO"))
        .env("HOME", home())
        .args([
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--offline",
            "--manifest-path",
        ])
        .arg(repository().join("Cargo.toml"))
        .run()
        .ok();
    let metadata: serde_json::Value = serde_json::from_str(&metadata.stdout).unwrap();
    let mut edges = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap().to_owned();
        let uses: BTreeSet<_> = package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|name| ROOMS.contains(name))
            .map(str::to_owned)
            .collect();
        assert!(
            package["publish"].as_array().is_some_and(Vec::is_empty),
            "{name} may be published"
        );
        edges.insert(name, uses);
    }
    let expected: [(&str, &[&str]); 6] = [
        ("policy", &[]),
        ("nftables", &[]),
        ("proxy", &["policy"]),
        ("orchestrator", &["policy"]),
        ("provisioning", &["nftables"]),
        ("tests", &["nftables", "policy"]),
    ];
    let expected: BTreeMap<String, BTreeSet<String>> = expected
        .iter()
        .map(|(room, uses)| {
            (
                (*room).to_owned(),
                uses.iter().map(|&it| it.to_owned()).collect(),
            )
        })
        .collect();
    assert_eq!(edges, expected);
}

#[test]
fn policy_stays_pure() {
    let manifest = fs::read_to_string(repository().join("policy/Cargo.toml")).unwrap();
    for banned in [
        "tokio",
        "hyper",
        "rustls",
        "nix",
        "libc",
        "getrandom",
        "sha2",
    ] {
        assert!(
            !manifest.contains(&format!("\n{banned}")),
            "policy depends on {banned}"
        );
    }
    for file in sources(&["policy"]).filter(|file| !is_test(file)) {
        let text = code(&file);
        for banned in [
            "std::fs",
            "std::net::Tcp",
            "std::process",
            "SystemTime",
            "Instant",
            "async ",
        ] {
            assert!(!text.contains(banned), "{}: {banned}", file.display());
        }
    }
}

#[test]
fn no_room_has_lint_configuration_of_its_own() {
    for room in ROOMS {
        for name in [
            "clippy.toml",
            ".clippy.toml",
            "rustfmt.toml",
            ".rustfmt.toml",
        ] {
            let path = repository().join(room).join(name);
            assert!(
                !path.exists(),
                "{} replaces the root's file in silence",
                path.display()
            );
        }
        let manifest = fs::read_to_string(repository().join(room).join("Cargo.toml")).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{room} opts out of the lints"
        );
    }
}

#[test]
fn shipped_policies_parse() {
    let mut count = 0;
    for file in files(&repository(), "toml") {
        let text = fs::read_to_string(&file).unwrap();
        let name = relative(&file);
        if name.starts_with("tests/") || !text.contains("[[service]]") {
            continue;
        }
        if let Err(problems) = policy::Policy::parse(&text, &name) {
            panic!("{problems}");
        }
        count += 1;
    }
    assert!(count > 0, "no example policy is shipped");
    assert!(policy::Policy::parse("version = 1\n[[service]]\nkin = 1\n", "broken").is_err());
}

#[test]
fn unsafe_code_lives_in_three_modules() {
    let mut seen = BTreeSet::new();
    for file in sources(&ROOMS) {
        let (name, text) = (relative(&file), code(&file));
        let allowed = UNSAFE.iter().find(|module| {
            name == format!("{module}.rs") || name.starts_with(&format!("{module}/"))
        });
        let opens = [
            "unsafe {",
            "unsafe fn",
            "unsafe impl",
            "unsafe extern",
            "allow(unsafe_code",
        ];
        if name != "tests/acceptance/architecture.rs"
            && opens.iter().any(|open| text.contains(open))
        {
            let module = allowed.unwrap_or_else(|| panic!("{name} has unsafe code"));
            seen.insert(*module);
        }
    }
    assert!(
        !seen.is_empty(),
        "the scan sees none where some is known to be"
    );
}

#[test]
fn every_source_file_says_what_it_is() {
    // A `tests.rs` lies beside the file it tests, whose header speaks for both.
    for file in sources(&ROOMS).filter(|file| !is_test(file)) {
        let text = fs::read_to_string(&file).unwrap();
        let first = text
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        assert!(
            first.starts_with("//!"),
            "{} opens without a `//!` header",
            relative(&file)
        );
    }
}

#[test]
fn decisions_are_matched_without_a_wildcard() {
    let mut matches = 0;
    for file in sources(&["proxy", "policy"]) {
        let text = code(&file);
        for name in ["Decision", "Routing"] {
            matches += text.matches(&format!("{name}::Permit")).count();
            matches += text.matches(&format!("{name}::Route(")).count();
        }
        for body in match_bodies(&text) {
            let judges = ["Decision::", "Routing::"].iter().any(|name| {
                body.lines().any(|line| {
                    line.trim_start()
                        .trim_start_matches("policy::")
                        .starts_with(name)
                })
            });
            let wildcard = body
                .lines()
                .any(|line| line.trim_start().starts_with("_ =>"));
            assert!(!(judges && wildcard), "{}: {body}", relative(&file));
        }
    }
    assert!(matches > 0, "the scan finds no decision at all");
    let bad = "match decision {\n    Decision::Permit(p) => 1,\n    _ => 2,\n}";
    assert!(match_bodies(bad).any(|body| body.contains("_ =>")));
}

#[test]
fn no_test_is_switched_off() {
    let mark = concat!("#[", "ignore");
    for file in sources(&ROOMS) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            !text.contains(mark),
            "{} switches a test off",
            relative(&file)
        );
    }
}

#[test]
fn no_build_machine_and_no_unfinished_business_is_shipped() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("todo", "!("),
    ];
    let paths = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/.pyenv"),
        concat!("/ho", "me/run"),
    ];
    let kinds = [
        "rs", "toml", "md", "sh", "service", "conf", "nft", "yml", "run", "up",
    ];
    for file in tracked() {
        let named = file
            .extension()
            .and_then(|ext| ext.to_str())
            .unwrap_or("run");
        if !kinds.contains(&named) {
            continue;
        }
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        for word in paths.iter().chain(&words) {
            assert!(!text.contains(word), "{}: `{word}`", relative(&file));
        }
    }
}

#[test]
fn the_tests_that_the_documents_name_exist() {
    let folder = repository().join("tests/acceptance");
    let mut count = 0;
    for document in ["ARCHITECTURE.md", "SECURITY.md"] {
        let text = fs::read_to_string(repository().join(document)).unwrap();
        for quoted in text.split('`').skip(1).step_by(2) {
            let Some((module, test)) = quoted.split_once("::") else {
                continue;
            };
            let mut own =
                fs::read_to_string(folder.join(format!("{module}.rs"))).unwrap_or_default();
            if own.is_empty() {
                continue;
            }
            for file in files(&folder.join(module), "rs") {
                own.push_str(&fs::read_to_string(file).unwrap());
            }
            count += 1;
            let named = format!("fn {}(", test.rsplit("::").next().unwrap_or(test));
            let all = test == "*" && own.contains("#[test]");
            assert!(
                all || own.contains(&named),
                "{document} names `{quoted}`, which is no test"
            );
        }
    }
    assert!(count > 20, "the documents name only {count} tests");
}

/// The innermost-first bodies of `match` expressions, cut by counting braces.
fn match_bodies(text: &str) -> impl Iterator<Item = String> + '_ {
    text.match_indices("match ").filter_map(|(start, _)| {
        let open = start + text[start..].find('{')?;
        let mut depth = 0;
        let mut arms = String::new();
        for letter in text[open..].chars() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            // Only the arms themselves: what lies deeper belongs to other matches.
            if depth <= 1 {
                arms.push(letter);
            }
            if depth == 0 {
                return Some(arms);
            }
        }
        None
    })
}

/// The file without comments of the line form.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| line.find("//").map_or(line, |at| &line[..at]))
        .collect::<Vec<_>>()
        .join("\n")
}

fn is_test(file: &Path) -> bool {
    let name = relative(file);
    name.contains("/tests/") || name.ends_with("tests.rs")
}

fn sources<'a>(rooms: &'a [&'a str]) -> impl Iterator<Item = PathBuf> + 'a {
    rooms
        .iter()
        .flat_map(|room| files(&repository().join(room), "rs"))
}

fn files(root: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && name != "target" && name != ".git" {
                open.push(path);
            } else if path.extension().is_some_and(|ext| ext == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every file that belongs to the repository; all files where there is no git history beside it.
fn tracked() -> Vec<PathBuf> {
    let root = repository();
    let listed = Program::new("git")
        .args(["-c", "safe.directory=*", "-C"])
        .arg(&root)
        .args(["ls-files", "-z"])
        .run();
    if listed.status.success() {
        return listed
            .stdout
            .split('\0')
            .filter(|it| !it.is_empty())
            .map(|it| root.join(it))
            .collect();
    }
    ["rs", "toml", "md"]
        .iter()
        .flat_map(|extension| files(&root, extension))
        .collect()
}

fn relative(file: &Path) -> String {
    file.strip_prefix(repository())
        .unwrap_or(file)
        .display()
        .to_string()
}

/// Cargo finds its toolchain and registry through it.
fn home() -> String {
    #[allow(
        clippy::disallowed_methods,
        reason = "the test's own environment, not a setting of ours"
    )]
    std::env::var("HOME").unwrap_or_else(|_| "/root".to_owned())
}
