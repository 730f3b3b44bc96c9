//! Where everything of one instance lives: every path and account name follows from a prefix and a name.
//!
//! ```text
//! P/usr/local/lib/portcullis/*        binaries            root 0755
//! P/etc/portcullis/*.toml             configuration       root 0644
//! P/etc/portcullis/credentials/NAME   upstream secrets    N-proxy 0600 in 0700
//! P/var/lib/portcullis/proxy          CA and audit key, audit log   N-proxy 0700
//! P/var/lib/portcullis/trust          CA for clients      root 0644
//! P/var/lib/portcullis/orchestrator   tickets, runs       N-orchestrator 0711
//! P/run/portcullis/*                  sockets, status
//! P/var/log/portcullis                logs of supervised services
//! ```

use std::path::{Path, PathBuf};

use thiserror::Error;

/// The longest prefix that still leaves room for `P/run/portcullis/runs/RUN/gate.sock` in a socket address.
const LONGEST_PREFIX: usize = 36;
/// Account names may have 32 characters, `-orchestrator` takes 13.
const LONGEST_NAME: usize = 16;

/// Why a prefix or a name cannot be used.
#[derive(Debug, Error)]
pub enum LayoutError {
    #[error("--prefix {0} is not an absolute path\n  hint: give one that begins with /")]
    Relative(PathBuf),
    #[error(
        "--prefix {0} is longer than {LONGEST_PREFIX} characters\n  hint: socket paths below it must fit \
         into 107 bytes; choose a shorter directory"
    )]
    LongPrefix(PathBuf),
    #[error(
        "--prefix {0} contains a character other than letters, digits and ._/-\n  hint: it is written into \
         units and configuration files; choose a plain path"
    )]
    PrefixCharacter(PathBuf),
    #[error(
        "--name {0:?} is not usable\n  hint: a lower-case letter, then up to 15 letters, digits or inner \
         dashes; it names users, units, cgroups and the ruleset table"
    )]
    Name(String),
}

/// One instance's places. Constructed once, from validated parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    prefix: PathBuf,
    name: String,
}

impl Layout {
    /// # Errors
    /// When the prefix is relative, too long or has odd characters, or the name is not a plain short word.
    pub fn new(prefix: &Path, name: &str) -> Result<Self, LayoutError> {
        if !prefix.is_absolute() || prefix.components().any(|part| part.as_os_str() == "..") {
            return Err(LayoutError::Relative(prefix.into()));
        }
        let text = prefix.to_string_lossy();
        if !text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c))
        {
            return Err(LayoutError::PrefixCharacter(prefix.into()));
        }
        // Collecting the components drops doubled and trailing slashes.
        let prefix: PathBuf = prefix.components().collect();
        if prefix.as_os_str().len() > LONGEST_PREFIX {
            return Err(LayoutError::LongPrefix(prefix));
        }
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && !name.ends_with('-')
            && name.len() <= LONGEST_NAME
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !plain {
            return Err(LayoutError::Name(name.to_owned()));
        }
        Ok(Self {
            prefix,
            name: name.to_owned(),
        })
    }

    /// The prefix an installed binary belongs to: `P` when it is `P/usr/local/lib/portcullis/…`.
    #[must_use]
    pub fn prefix_of_binary(binary: &Path) -> Option<PathBuf> {
        let directory = binary.parent()?;
        let mut prefix = directory;
        for part in ["portcullis", "lib", "local", "usr"] {
            if prefix.file_name()? != part {
                return None;
            }
            prefix = prefix.parent()?;
        }
        Some(prefix.to_path_buf())
    }

    #[must_use]
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The account of a role: `proxy`, `orchestrator`, `exec`, `standin`.
    #[must_use]
    pub fn user(&self, role: &str) -> String {
        format!("{}-{role}", self.name)
    }

    fn below(&self, path: &str) -> PathBuf {
        self.prefix.join(path)
    }

    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.below("usr/local/lib/portcullis")
    }

    #[must_use]
    pub fn binary(&self, name: &str) -> PathBuf {
        self.library().join(name)
    }

    /// The name a person types.
    #[must_use]
    pub fn command(&self) -> PathBuf {
        self.below("usr/local/bin/portcullis")
    }

    #[must_use]
    pub fn etc(&self) -> PathBuf {
        self.below("etc/portcullis")
    }

    /// A configuration file of a component: `proxy`, `orchestrator`, `boundary`, `instance`.
    #[must_use]
    pub fn config(&self, component: &str) -> PathBuf {
        self.etc().join(format!("{component}.toml"))
    }

    #[must_use]
    pub fn policies(&self) -> PathBuf {
        self.etc().join("policies")
    }

    #[must_use]
    pub fn credentials(&self) -> PathBuf {
        self.etc().join("credentials")
    }

    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.below("var/lib/portcullis")
    }

    /// Hashes of the generated files as they were written.
    #[must_use]
    pub fn manifest(&self) -> PathBuf {
        self.state().join("manifest.json")
    }

    #[must_use]
    pub fn proxy_state(&self) -> PathBuf {
        self.state().join("proxy")
    }

    /// The key that signs the audit log.
    #[must_use]
    pub fn audit_key(&self) -> PathBuf {
        self.proxy_state().join("audit.key")
    }

    #[must_use]
    pub fn trust(&self) -> PathBuf {
        self.state().join("trust")
    }

    #[must_use]
    pub fn orchestrator_state(&self) -> PathBuf {
        self.state().join("orchestrator")
    }

    #[must_use]
    pub fn rootfs(&self) -> PathBuf {
        self.orchestrator_state().join("rootfs")
    }

    #[must_use]
    pub fn gate_test(&self) -> PathBuf {
        self.state().join("gate-test")
    }

    #[must_use]
    pub fn stand_in(&self) -> PathBuf {
        self.state().join("stand-in")
    }

    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.below("run/portcullis")
    }

    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.run().join("proxy/control.sock")
    }

    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.run().join("runs")
    }

    #[must_use]
    pub fn board_socket(&self) -> PathBuf {
        self.run().join("orchestrator/board.sock")
    }

    #[must_use]
    pub fn api_socket(&self) -> PathBuf {
        self.run().join("orchestrator/api.sock")
    }

    #[must_use]
    pub fn boundary_status(&self) -> PathBuf {
        self.run().join("boundary/status.json")
    }

    /// Records of the supervised services, one file each.
    #[must_use]
    pub fn supervise(&self) -> PathBuf {
        self.run().join("supervise")
    }

    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.below("var/log/portcullis")
    }

    /// Every directory that belongs to this instance alone and goes with a purge; the one with its record last, so that a
    /// purge that was interrupted can be repeated.
    #[must_use]
    pub fn owned_trees(&self) -> Vec<PathBuf> {
        vec![
            self.run(),
            self.state(),
            self.logs(),
            self.library(),
            self.etc(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_from_prefix_and_name() {
        let layout = Layout::new(Path::new("/srv/x/"), "ptx").unwrap();
        assert_eq!(
            layout.config("proxy"),
            Path::new("/srv/x/etc/portcullis/proxy.toml")
        );
        assert_eq!(layout.user("orchestrator"), "ptx-orchestrator");
        let root = Layout::new(Path::new("/"), "portcullis").unwrap();
        assert_eq!(root.run(), Path::new("/run/portcullis"));
    }

    #[test]
    fn what_could_not_work_is_refused() {
        assert!(Layout::new(Path::new("/ok"), "ptx").is_ok());
        for prefix in [
            "relative",
            "/a/../b",
            "/has space",
            "/percent%h",
            &format!("/{}", "x".repeat(40)),
        ] {
            assert!(Layout::new(Path::new(prefix), "ptx").is_err(), "{prefix}");
        }
        for name in ["", "Upper", "1st", "a_b", "a-", "a b", "abcdefghijklmnopq"] {
            assert!(Layout::new(Path::new("/ok"), name).is_err(), "{name}");
        }
    }

    #[test]
    fn an_installed_binary_names_its_prefix() {
        let of = |path: &str| Layout::prefix_of_binary(Path::new(path));
        assert_eq!(
            of("/usr/local/lib/portcullis/portcullis"),
            Some(PathBuf::from("/"))
        );
        assert_eq!(
            of("/tmp/x/usr/local/lib/portcullis/portcullis"),
            Some(PathBuf::from("/tmp/x"))
        );
        assert_eq!(of("/home/me/target/release/portcullis"), None);
    }
}
