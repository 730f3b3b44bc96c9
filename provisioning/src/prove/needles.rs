//! The search for the instance's credentials in environments and arguments.

use std::fs;
use std::path::Path;

use super::process::{self, Marked};

/// The instance's credentials, in order to look for them. They are compared, and never shown or passed on.
pub struct Needles(Vec<Vec<u8>>);

impl Needles {
    /// Those of a directory. What is too short to be one is left out.
    #[must_use]
    pub fn read(directory: &Path) -> Self {
        let files = fs::read_dir(directory).into_iter().flatten().flatten();
        let texts = files.filter_map(|file| fs::read(file.path()).ok());
        Self(
            texts
                .map(|bytes| bytes.trim_ascii().to_vec())
                .filter(|bytes| bytes.len() >= 8)
                .collect(),
        )
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where one of them stands, among the environments and arguments of all processes.
    ///
    /// # Errors
    /// When a word of our own in a process of our own is not found by the same search.
    pub fn find(&self) -> Result<Vec<String>, String> {
        let mut mark = [0; 16];
        getrandom::fill(&mut mark).map_err(|error| error.to_string())?;
        let mark: String = mark.iter().map(|byte| format!("{byte:02x}")).collect();
        let child = Marked::start(&mark).map_err(|error| format!("no control process: {error}"))?;
        let control = Self(vec![mark.into_bytes()]);
        let seen = control.search();
        drop(child);
        if seen.is_empty() {
            return Err("a word in the environment of a process of ours was not found".to_owned());
        }
        Ok(self.search())
    }

    fn search(&self) -> Vec<String> {
        let mut found = Vec::new();
        for process in process::all() {
            for file in ["environ", "cmdline"] {
                let text = fs::read(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
                let holds = |needle: &Vec<u8>| {
                    text.windows(needle.len())
                        .any(|part| part == needle.as_slice())
                };
                if self.0.iter().any(holds) {
                    found.push(format!("{file} of {}", process.shown()));
                }
            }
        }
        found
    }
}

impl std::fmt::Debug for Needles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} credentials", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_in_an_environment_is_found() {
        let needles = Needles(vec![b"prove-test-needle-5711".to_vec()]);
        assert_eq!(needles.find().unwrap(), Vec::<String>::new());
        let _child = Marked::start("x prove-test-needle-5711").unwrap();
        assert_eq!(needles.find().unwrap().len(), 1);
    }
}
