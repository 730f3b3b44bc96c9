//! The programs put into a guest, and `portcullis up` run there: the same step that installs them on a host.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::driver::Driver;
use super::error::GuestError;
use super::keeper::{inside, ours};
use super::name::Name;
use crate::output::say;
use crate::step::binaries::{BINARIES, STAND_IN};

/// Where they wait inside to be installed; `up` copies what differs.
const WAITING: &str = "/root/portcullis-programs";

/// What the programs need in a system that has nothing: of `packages.txt`, and the libraries they are linked with.
const PACKAGES: &str = include_str!("../../packages.txt");
const LIBRARIES: [(&str, &str); 3] = [
    ("libnftnl.so.11", "libnftnl11"),
    ("libmnl.so.0", "libmnl0"),
    ("libssl.so.3", "libssl3"),
];
/// How long their installation may take, in seconds.
const FETCHING: u32 = 900;

/// Installs what is missing, before the programs that could not start without it.
///
/// # Errors
/// When apt-get cannot; in a guest that is sealed already it has no way out.
pub fn packages(driver: &dyn Driver, name: &Name) -> Result<(), GuestError> {
    let guest = ours(driver, name.as_str())?.name;
    let missing = inside(driver, &guest, &missing_script())?;
    let missing: Vec<&str> = missing.output.split_whitespace().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(" ");
    say(&format!("{guest}: install {missing}"));
    let script = format!(
        "export DEBIAN_FRONTEND=noninteractive; install() {{ timeout {FETCHING} apt-get install -y -q --no-install-recommends {missing}; }}; \
         install || {{ timeout {FETCHING} apt-get update -q && install; }}"
    );
    inside(driver, &guest, &script).map(drop).map_err(|problem| {
        GuestError::Said(format!(
            "{guest}: {missing} could not be installed: {}\n  hint: a guest without a network needs them in its image; a sealed one shows in `portcullis boundary counters` whom it refused, and an [[exception]] in its boundary.toml lets that account out for a while",
            crate::output::chain(&problem)
        ))
    })
}

/// A script that prints the packages that are not there.
fn missing_script() -> String {
    let packages: Vec<&str> = PACKAGES
        .lines()
        .filter_map(|line| line.strip_prefix("run: "))
        .collect();
    let mut script = format!(
        "for package in {}; do [ \"$(dpkg-query -W -f '${{db:Status-Status}}' $package 2>/dev/null)\" = installed ] || echo $package; done\n",
        packages.join(" ")
    );
    for (library, package) in LIBRARIES {
        // A string takes whatever is written.
        let _ = writeln!(script, "ldconfig -p | grep -qF {library} || echo {package}");
    }
    script
}

/// Puts what has changed of the programs into the guest; how many that were.
///
/// # Errors
/// When one is missing here or cannot be put there.
pub fn programs(driver: &dyn Driver, name: &Name, from: &Path) -> Result<usize, GuestError> {
    let guest = ours(driver, name.as_str())?.name;
    inside(driver, &guest, &format!("mkdir -p -m 0755 {WAITING}"))?;
    let listed = inside(
        driver,
        &guest,
        &format!(
            "cd {WAITING} && for file in *; do test ! -f \"$file\" || sha256sum \"$file\"; done"
        ),
    )?;
    let mut put = 0;
    for program in BINARIES.into_iter().chain([STAND_IN]) {
        let path = from.join(program);
        if program == STAND_IN && !path.is_file() {
            continue;
        }
        let hash = hash(&path)?;
        if listed
            .output
            .lines()
            .any(|line| line == format!("{hash}  {program}"))
        {
            continue;
        }
        say(&format!("{guest}: put {program} there"));
        driver.put(&guest, &format!("{WAITING}/{program}"), &path, 0o755)?;
        put += 1;
    }
    Ok(put)
}

fn hash(path: &Path) -> Result<String, GuestError> {
    let read = |source| GuestError::Read {
        path: path.to_path_buf(),
        source,
    };
    let length = fs::metadata(path).map_err(read)?.size();
    if length == 0 {
        return Err(GuestError::Said(format!(
            "{} is empty\n  hint: `cargo build --release` makes it; --binaries says where it is",
            path.display()
        )));
    }
    // The host's own tool: it is there wherever guests are, and fast.
    let listed = crate::process::Call::new("sha256sum").arg(path).run()?;
    Ok(listed.split(' ').next().unwrap_or_default().to_owned())
}

/// Runs `portcullis guest provision` inside. What it said, and whether it succeeded.
///
/// # Errors
/// When it could not be run.
pub fn provision(driver: &dyn Driver, name: &Name, words: &[String]) -> Result<bool, GuestError> {
    let guest = ours(driver, name.as_str())?.name;
    let program = PathBuf::from(WAITING).join("portcullis");
    let program = program.display().to_string();
    let mut command = vec![
        program.as_str(),
        "guest",
        "provision",
        "--binaries",
        WAITING,
    ];
    command.extend(words.iter().map(String::as_str));
    let ended = driver.run(&guest, &command)?;
    for line in ended.error.lines().chain(ended.output.lines()) {
        say(&format!("{guest}: {line}"));
    }
    Ok(ended.code == 0)
}
