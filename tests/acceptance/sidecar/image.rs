//! What the image is, and that it is the same each time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tests::command::{Finished, Program};
use tests::engine::image;
use tests::{binaries, host};

use super::lab::Lab;

fn build(words: &[&str]) -> Finished {
    let script = binaries::repository().join("provisioning/sidecar/build");
    let cargo = std::env::var("PATH").unwrap_or_default();
    let home = std::env::var("HOME").unwrap_or_default();
    let mut build = Program::new(script)
        .env("PATH", cargo)
        .env("HOME", home)
        .args(words);
    for name in ["CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR"] {
        if let Ok(value) = std::env::var(name) {
            build = build.env(name, value);
        }
    }
    build.limit(300).run()
}

/// That the image is no larger than its profile allows: forty million bytes as it is shipped. What `./tests/run` builds is
/// hardly optimised, and a debug build not at all.
pub(crate) fn is_small() {
    let profile = binaries::directory();
    let most = match profile.file_name().and_then(|name| name.to_str()) {
        Some("release") => 40_000_000,
        Some("debug") => 130_000_000,
        _ => 56_000_000,
    };
    let size = fs::metadata(image()).unwrap().len();
    assert!(size < most, "{size} bytes of {most}: {}", image().display());
    let archive = Program::new("tar").args(["--list", "--file"]).arg(image());
    assert!(
        archive.run().ok().stdout.contains("manifest.json"),
        "it is the image"
    );
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_same_programs_give_the_same_bytes_and_an_image_of_nothing_else() {
    let programs = binaries::directory().join("sidecar").display().to_string();
    let (one, two) = (host::scratch(), host::scratch());
    for out in [&one, &two] {
        let out = out.path().join("deep/er").display().to_string();
        build(&["--programs", &programs, "--out", &out]).ok();
    }
    let (one, two) = (one.path().join("deep/er"), two.path().join("deep/er"));
    for name in ["image.tar", "sbom.json", "oci/index.json", "SHA256SUMS"] {
        assert!(
            fs::read(one.join(name)).unwrap() == fs::read(two.join(name)).unwrap(),
            "{name} differs"
        );
    }
    let check = Program::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]);
    check.in_directory(&one).run().ok();
    // A control of that: another byte is another sum.
    fs::write(two.join("sbom.json"), "{}").unwrap();
    let check = Program::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]);
    check.in_directory(&two).run().refused();

    // The layout is one: every digest is of what it names.
    let index = json(&one.join("oci/index.json"));
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"]
            .as_str()
            .unwrap()
            .strip_prefix("sha256:")
            .unwrap();
        let path = one.join("oci/blobs/sha256").join(digest);
        let size = fs::metadata(&path).unwrap().len();
        assert_eq!(descriptor["size"], size, "{descriptor}");
        let sum = Program::new("sha256sum").arg(&path).run().ok().stdout;
        assert!(sum.starts_with(digest), "{descriptor}");
        path
    };
    let manifest = json(&blob(&index["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let layer = blob(&manifest["layers"][0]);
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        manifest["layers"][0]["digest"]
    );
    assert_eq!(config["config"]["User"], "1900:1900");

    let listed = Program::new("tar")
        .args(["--list", "--verbose", "--numeric-owner", "--file"])
        .arg(layer);
    let listed = listed.run().ok().stdout;
    let files: BTreeMap<&str, &str> = listed
        .lines()
        .map(|line| (line.split_whitespace().nth(5).unwrap(), line))
        .collect();
    for (name, line) in &files {
        // No set-user-id, nothing that others may write but /tmp.
        let mode = line.split_whitespace().next().unwrap();
        assert!(!mode.contains(['s', 'S']), "{line}");
        assert!(mode.as_bytes()[8] != b'w' || *name == "./tmp/", "{line}");
    }
    let programs: Vec<&str> = files
        .keys()
        .copied()
        .filter(|name| name.contains("bin/") && !name.ends_with('/'))
        .collect();
    assert_eq!(
        programs,
        [
            "./usr/bin/portcullis",
            "./usr/bin/portcullis-boundary",
            "./usr/bin/portcullis-proxy"
        ]
    );
    let gates: Vec<&str> = files
        .iter()
        .filter(|(_, line)| line.contains(" 1900/1900 "))
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(
        gates,
        ["portcullis/", "run/portcullis/", "var/lib/portcullis/"]
    );

    let sbom = json(&one.join("sbom.json"));
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    let components = sbom["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|it| it["name"] == name);
    for name in ["rustls", "sequoia-openpgp", "nftnl"] {
        let component = named(name).unwrap_or_else(|| panic!("{name} is missing"));
        let sum = component["hashes"][0]["content"].as_str().unwrap();
        assert!(
            sum.len() == 64 && component["licenses"].is_array(),
            "{component}"
        );
    }
    assert!(
        named("proptest").is_none(),
        "what only tests use is not in it"
    );
    assert!(named("libmnl0").is_some() && named("ca-certificates").is_some());
}

#[test]
fn an_option_that_is_wrong_says_what_is_right() {
    let cases: [(&[&str], &str); 5] = [
        (&["--nonsense"], "is no option"),
        (&["--out"], "--out needs a value"),
        (&["--profile", "../x"], "is no cargo profile"),
        (&["--out", "/proc/nowhere"], "cannot be written"),
        (
            &["--programs", "/nonexistent", "--out", "/tmp"],
            "there is no /nonexistent/portcullis-proxy",
        ),
    ];
    for (words, problem) in cases {
        let refused = build(words);
        assert_eq!(refused.code(), 2, "{}", refused.shown());
        assert!(
            refused.stderr.contains(problem) && refused.stderr.contains("\nhint: "),
            "{}",
            refused.shown()
        );
    }
    assert!(build(&["--help"]).ok().stdout.contains("--profile NAME"));
}

#[test]
fn it_loads_and_runs_without_a_shell_as_an_ordinary_user_on_a_read_only_root() {
    let lab = Lab::shared();
    assert!(image().exists());
    let run = |words: &[&str]| {
        let run = [
            "run",
            "--rm",
            "--read-only",
            "--network=none",
            "--cap-drop=ALL",
        ];
        lab.engine.docker(run).args(words).run()
    };
    let version = run(&["portcullis", "portcullis-proxy", "--version"]).ok();
    assert!(
        version.stdout.starts_with("portcullis-proxy "),
        "{}",
        version.shown()
    );
    for program in [
        "portcullis-boundary",
        "portcullis",
        "/usr/lib/portcullis/agent/portcullis",
    ] {
        run(&["portcullis", program, "--version"]).ok();
    }
    for shell in ["sh", "/bin/sh", "bash", "busybox", "apt-get", "dpkg"] {
        let refused = run(&["portcullis", shell, "-c", "exit 0"]);
        assert_eq!(refused.code(), 127, "{}", refused.shown());
    }
    let inspect = lab
        .engine
        .inspect("portcullis:latest", "{{.Config.User}} {{.Size}}")
        .ok();
    let (user, _) = inspect.stdout.trim().split_once(' ').unwrap();
    assert_eq!(user, "1900:1900");
    // The agent's part needs no library of the image it comes to but a C library's.
    let lists = lab
        .engine
        .docker(["run", "--rm", "portcullis", "portcullis", "prove", "list"])
        .run()
        .ok();
    assert!(lists.stdout.contains("[[proof]]"), "{}", lists.shown());
}
