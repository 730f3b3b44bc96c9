//! What an account has by itself: its groups, its variables, and what the kernel grants its uid.

use std::fs;

use nix::unistd::{Group, Uid, User, getgid, getgroups, setuid};

use crate::prove::task::{Outcome, Report, Task};

/// Groups whose members become root by one command, or read and write what root keeps.
const AS_GOOD_AS_ROOT: [&str; 18] = [
    "_lxd",
    "adm",
    "admin",
    "containerd",
    "disk",
    "docker",
    "incus",
    "incus-admin",
    "kmem",
    "kvm",
    "libvirt",
    "lxd",
    "podman",
    "root",
    "shadow",
    "staff",
    "sudo",
    "wheel",
];
/// Any message: the kernel judges the sender before it looks at what is wanted, so that reading is refused as changing is.
pub(super) fn netlink(task: &Task) -> Report {
    let table = task.names.first().map_or("portcullis", String::as_str);
    match nftables::netlink::observe(table) {
        Ok(_) => Report::new(Outcome::Granted, "the packet filter answers"),
        Err(nftables::netlink::NetlinkError::NotPermitted { .. }) => Report {
            errno: Some("EPERM".to_owned()),
            ..Report::new(Outcome::Refused, "")
        },
        // A list of system calls, as a run has one, may refuse the socket itself.
        Err(nftables::netlink::NetlinkError::Io { source, .. })
            if source.raw_os_error().is_some() =>
        {
            Report::of_error(&source)
        }
        Err(error) => Report::new(Outcome::Unable, crate::output::chain(&error)),
    }
}

/// Variables of this process that match, unless their value is the placeholder that agents get instead of a secret.
pub(super) fn environment(task: &Task) -> Report {
    let own: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| {
            let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
            (text(name), text(value))
        })
        .collect();
    Report::of_found(telling(&own, &task.names))
}

/// The names of the variables that match one of the patterns and hold more than a placeholder.
#[must_use]
pub fn telling(variables: &[(String, String)], patterns: &[String]) -> Vec<String> {
    let matches = |name: &str, pattern: &String| match pattern.split_once('*') {
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
        None => name == pattern,
    };
    variables
        .iter()
        .filter(|(_, value)| !value.is_empty() && !value.contains("portcullis"))
        .filter(|(name, _)| patterns.iter().any(|pattern| matches(name, pattern)))
        .map(|(name, _)| name.clone())
        .collect()
}

pub(super) fn become_user(uid: u32) -> Report {
    match setuid(Uid::from_raw(uid)) {
        Ok(()) => Report::new(Outcome::Granted, format!("became uid {uid}")),
        Err(error) => Report::of_error(&error.into()),
    }
}

/// The groups this process is in.
pub(super) fn groups() -> Report {
    let mut own = getgroups().unwrap_or_default();
    own.push(getgid());
    let names = own
        .into_iter()
        .filter_map(|gid| Group::from_gid(gid).ok().flatten())
        .map(|group| group.name);
    Report::of_found(dangerous(names))
}

/// Those of the groups an account is given when it logs in that are as good as root. A uid without an account has none.
#[must_use]
pub fn groups_as_good_as_root(uid: u32) -> Vec<String> {
    let Some(user) = User::from_uid(Uid::from_raw(uid)).ok().flatten() else {
        return Vec::new();
    };
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    let listed = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let member = fields.nth(2)?.split(',').any(|member| member == user.name);
        member.then(|| name.to_owned())
    });
    let primary = Group::from_gid(user.gid)
        .ok()
        .flatten()
        .map(|group| group.name);
    dangerous(listed.chain(primary))
}

fn dangerous(names: impl Iterator<Item = String>) -> Vec<String> {
    names
        .filter(|name| AS_GOOD_AS_ROOT.contains(&name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_no_credential_and_a_wildcard_is_a_suffix() {
        let variables = [
            ("GITHUB_TOKEN", "ghp_x"),
            ("OPENAI_API_KEY", "injected-by-portcullis"),
            ("MY_SECRET", "s"),
            ("PATH", "/bin"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let patterns = ["GITHUB_TOKEN", "*_API_KEY", "*_SECRET"].map(str::to_owned);
        assert_eq!(
            telling(&variables, &patterns),
            ["GITHUB_TOKEN", "MY_SECRET"]
        );
    }
}
