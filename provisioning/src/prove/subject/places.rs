//! The paths and names of a proof, as they are on this machine.

use std::path::{Path, PathBuf};

use crate::instance::Instance;

/// As [`Subject::paths`].
#[must_use]
pub fn expand(written: &[String], instance: Option<&Instance>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in written {
        let mut path = path.clone();
        if let Some(instance) = instance {
            let layout = &instance.layout;
            for (word, value) in [
                ("{etc}", layout.etc()),
                ("{run}", layout.run()),
                ("{state}", layout.state()),
                ("{library}", layout.library()),
            ] {
                path = path.replace(word, &value.display().to_string());
            }
        }
        if path.contains('{') {
            continue;
        }
        if let Some(name) = path.strip_prefix('@') {
            found.extend(named_sockets(name.trim_end_matches('*')));
            continue;
        }
        let (path, directory) = match path.strip_suffix("/*") {
            Some(directory) => (directory, true),
            None => (path.as_str(), false),
        };
        for path in each_directory(path) {
            if directory {
                found.extend(entries(&path));
            }
            found.push(path);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A `*` between two slashes is every entry there.
fn each_directory(path: &str) -> Vec<PathBuf> {
    match path.split_once("/*/") {
        None => vec![path.into()],
        Some((before, after)) => {
            let within = entries(Path::new(before)).into_iter();
            within.map(|entry| entry.join(after)).collect()
        }
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Unix sockets of this network that have no file, by the beginning of their names; written with an `@` in front.
fn named_sockets(beginning: &str) -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7));
    let of_it = names.filter(|name| {
        name.strip_prefix('@')
            .is_some_and(|name| name.starts_with(beginning))
    });
    of_it.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_without_a_file_and_a_directory_in_between_are_found() {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let beginning = format!("/prove-test-{}", std::process::id());
        let name = format!("{beginning}/a.sock");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let wanted = vec![PathBuf::from(format!("@{name}"))];
        assert_eq!(expand(&[format!("@{beginning}/*")], None), wanted);
        assert!(crate::prove::attempt::connects(&wanted[0]).is_ok());
        assert_eq!(
            expand(&[format!("@{beginning}-not/*")], None),
            Vec::<PathBuf>::new()
        );
        let dir = tempfile::tempdir().unwrap();
        for user in ["1", "2"] {
            std::fs::create_dir(dir.path().join(user)).unwrap();
        }
        let found = expand(&[format!("{}/*/docker.sock", dir.path().display())], None);
        let wanted = ["1/docker.sock", "2/docker.sock"].map(|name| dir.path().join(name));
        assert_eq!(found, wanted);
    }

    #[test]
    fn paths_of_an_instance_are_left_out_where_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let all = format!("{}/*", dir.path().display());
        let found = expand(&["{etc}/x".to_owned(), all, "/y".to_owned()], None);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.contains(&dir.path().join("a")));
    }
}
