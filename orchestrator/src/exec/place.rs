//! Where exec finds things: beneath the prefix that its own binary is installed in.

use std::path::{Path, PathBuf};

use super::{ExecArgs, ExecError};

/// Where the binaries are, beneath the prefix.
const LIBRARY: &str = "usr/local/lib/portcullis";

/// All paths of one exec.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) control: PathBuf,
    pub(super) state: PathBuf,
    pub(super) trust: PathBuf,
    pub(super) relay: PathBuf,
}

impl Place {
    /// From the arguments, and from where this binary is.
    pub(super) fn find(args: &ExecArgs) -> Result<Self, ExecError> {
        let own = std::env::current_exe().map_err(ExecError::io("finding this program"))?;
        let beside = own.parent().unwrap_or(Path::new("/"));
        let prefix = prefix_of(beside);
        let or = |given: &Option<PathBuf>, default: &str| {
            given.clone().unwrap_or_else(|| prefix.join(default))
        };
        let relay = beside.join("portcullis-relay");
        if !relay.exists() {
            return Err(ExecError::Said(format!(
                "{} is missing\n  hint: install the programs together: portcullis up",
                relay.display()
            )));
        }
        Ok(Self {
            control: or(&args.control, "run/portcullis/proxy/control.sock"),
            state: or(&args.state, "var/lib/portcullis/exec"),
            trust: or(&args.trust, "var/lib/portcullis/trust"),
            relay,
        })
    }

    pub(super) fn rootfs(&self) -> PathBuf {
        self.state.join("rootfs")
    }

    pub(super) fn runs(&self) -> PathBuf {
        self.state.join("runs")
    }

    pub(super) fn staging(&self, run: &str) -> PathBuf {
        self.state.join("staging").join(run)
    }

    pub(super) fn put_aside(&self, run: &str) -> PathBuf {
        self.state.join("put-aside").join(run)
    }
}

fn prefix_of(library: &Path) -> PathBuf {
    let is_installed = library.ends_with(LIBRARY);
    let depth = Path::new(LIBRARY).components().count();
    let prefix = library.ancestors().nth(depth).filter(|_| is_installed);
    prefix.unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_where_the_binaries_were_installed() {
        assert_eq!(prefix_of(Path::new("/usr/local/lib/portcullis")), Path::new("/"));
        assert_eq!(prefix_of(Path::new("/srv/x/usr/local/lib/portcullis")), Path::new("/srv/x"));
        assert_eq!(prefix_of(Path::new("/home/me/target/debug")), Path::new("/"));
    }
}
