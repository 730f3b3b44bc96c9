//! Checks a log from its first line to its last, without the gate: every line against its own hash
//! and the one before, every number, every checkpoint, and how it ends. Nothing is trusted but the
//! public key and the anchors that the caller brings.
//!
//! What it cannot see by itself: a log that was cut back to an earlier clean close, deleted and begun
//! anew, or made anew by somebody who has the signing key. Anchors, kept elsewhere, show these as far as
//! the newest one: what came after it, who has the key can write anew. One that begins after the newest
//! anchor, whatever it says of lines that retention removed, is therefore not intact.

mod anchored;
mod moving;
mod report;
mod walk;

use std::fs::File;

use super::segment::Segment;

pub use anchored::{Anchor, Anchors};
pub use moving::verify_at;
pub use report::{End, Finding, Report};

/// Tells whether a signature over a statement is good.
pub type Judge<'j> = dyn Fn(&str, &str) -> Result<(), String> + 'j;

/// How to check.
#[derive(Default)]
pub struct Check<'c> {
    /// Tells whether a signature over a statement is good; without it no signature is looked at.
    pub key: Option<&'c Judge<'c>>,
    /// Hashes of lines that must be in the log.
    pub anchors: Anchors,
    /// Whether the log is still being written, so that no closing record is expected; [`verify_at`] sees
    /// by itself whether a gate writes it here.
    pub live: bool,
}

impl std::fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check")
            .field("key", &self.key.is_some())
            .field("anchors", &self.anchors.0.len())
            .field("live", &self.live)
            .finish()
    }
}

/// Reads the whole log, of which no file changes meanwhile, and says what it found.
///
/// # Errors
/// What the system said about a file: nothing can be said of the log then.
pub fn verify(segments: &[Segment], check: &Check<'_>) -> std::io::Result<Report> {
    pass(segments, None, check, check.live)
}

/// One pass over the files, of which the last one may have been opened.
fn pass(
    segments: &[Segment],
    mut last: Option<File>,
    check: &Check<'_>,
    live: bool,
) -> std::io::Result<Report> {
    let mut walk = walk::Walk::new(check, live);
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        let held = if is_last { last.take() } else { None };
        walk.segment(segment, held, is_last)?;
    }
    Ok(walk.finish())
}

#[cfg(test)]
mod tests;
