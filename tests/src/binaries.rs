//! Finds the executables under test beside the running test, and refuses old ones.
//!
//! Cargo builds neither another package's binaries for a test nor tells the test where they are;
//! see `tests/run`, which builds them first.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Path of the executable `name`; panics with the command that repairs it when it is missing or
/// older than the sources it is made from.
pub fn path(name: &str) -> PathBuf {
    let path = directory().join(name);
    let built = fs::metadata(&path)
        .and_then(|meta| meta.modified())
        .unwrap_or_else(|error| {
            panic!("{}: {error}\nhint: {}", path.display(), hint());
        });
    if let Some((source, _)) = newest(&rooms(name)).filter(|(_, changed)| *changed > built) {
        panic!(
            "{} is older than {}\nhint: {}",
            path.display(),
            source.display(),
            hint()
        );
    }
    path
}

/// The folder the executables lie in: `target/PROFILE`.
pub fn directory() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has an executable");
    let folder = test.parent().expect("an executable lies in a folder");
    // Tests run from `deps/`, the probe and the stand-in from the folder itself.
    match folder.file_name() {
        Some(name) if name == "deps" => folder.parent().expect("deps has a parent").to_path_buf(),
        _ => folder.to_path_buf(),
    }
}

/// The repository's root.
pub fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("the room lies in the repository")
        .to_path_buf()
}

/// The command that builds what tests need, with the profile of the running test.
fn hint() -> String {
    let folder = directory();
    let profile = folder.file_name().unwrap_or_default().to_string_lossy();
    // The one folder that is not called as its profile is.
    let profile = if profile == "debug" {
        "dev".into()
    } else {
        profile
    };
    format!("cargo build --workspace --bins --profile {profile}")
}

/// The rooms whose sources end up in `name`.
fn rooms(name: &str) -> Vec<PathBuf> {
    let rooms: &[&str] = match name {
        "portcullis" => &["provisioning", "nftables"],
        "portcullis-boundary" => &["nftables"],
        "portcullis-orchestrator" | "portcullis-relay" => &["orchestrator", "policy"],
        "portcullis-probe" | "portcullis-stand-in" => &["tests"],
        "portcullis-proxy" => &["proxy", "policy"],
        other => panic!("`{other}` is none of our executables"),
    };
    rooms
        .iter()
        .map(|room| repository().join(room).join("src"))
        .collect()
}

fn newest(folders: &[PathBuf]) -> Option<(PathBuf, SystemTime)> {
    let mut found: Option<(PathBuf, SystemTime)> = None;
    let mut open = folders.to_vec();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs")
                && path.file_stem().is_none_or(|stem| stem != "tests")
                && let Ok(changed) = entry.metadata().and_then(|meta| meta.modified())
                && found.as_ref().is_none_or(|(_, latest)| changed > *latest)
            {
                found = Some((path, changed));
            }
        }
    }
    found
}
