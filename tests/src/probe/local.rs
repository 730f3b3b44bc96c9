//! Attempts that need no packet: user namespaces, inherited descriptors, abstract sockets.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use super::{Outcome, Report, attempt};

/// Becomes root of a user namespace of its own and tries TCP, raw and packet sockets from there.
///
/// Runs in a child of the same executable (subcommand `user-namespace`), because a namespace cannot
/// be left again. Without a child's answer the attempt itself is reported.
pub fn user_namespace(target: SocketAddr, patience: Duration) -> Vec<Report> {
    let mut reports = Vec::new();
    let report = attempt("userns", target.to_string(), || {
        let output = Command::new("/proc/self/exe")
            .args(["user-namespace", &target.to_string(), "--timeout-ms"])
            .arg(patience.as_millis().to_string())
            .output()?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            reports.push(serde_json::from_str::<Report>(line).map_err(io::Error::other)?);
        }
        Ok(Outcome::Nothing)
    });
    if reports.is_empty() {
        vec![report]
    } else {
        reports
    }
}

/// Every descriptor beyond the standard three that the parent left open.
pub fn inherited_descriptors() -> Vec<Report> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let numbers: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&number| number > 2)
        .collect();
    // The listing's own descriptor is closed by now and has no link any more.
    let mut reports: Vec<_> = numbers
        .into_iter()
        .filter_map(|number| {
            let link = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
            let target = format!("{number} -> {}", link.display());
            Some(attempt("inherited-fd", target, || Ok(Outcome::Opened)))
        })
        .collect();
    if reports.is_empty() {
        reports.push(attempt("inherited-fd", "none".to_owned(), || {
            Ok(Outcome::Nothing)
        }));
    }
    reports
}

/// Every abstract unix socket this network namespace shows.
pub fn abstract_sockets() -> Vec<Report> {
    let listing = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut names: Vec<_> = listing
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    let mut reports: Vec<_> = names
        .into_iter()
        .map(|name| {
            attempt("abstract-socket", format!("@{name}"), || {
                let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
                UnixStream::connect_addr(&address)?;
                Ok(Outcome::Connected)
            })
        })
        .collect();
    if reports.is_empty() {
        reports.push(attempt("abstract-socket", "none".to_owned(), || {
            Ok(Outcome::Nothing)
        }));
    }
    reports
}
