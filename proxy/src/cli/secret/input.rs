//! Where a value comes from: stdin, a descriptor, a file. Never an argument.

use std::io::{IsTerminal, Read};
use std::path::Path;

use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::SecretError;
use crate::cli::output::tell;
use crate::guarded;

/// The largest value.
const VALUE_BYTES_MAX: usize = 32 * 1024;

/// Reads the value from a descriptor or from stdin; on a terminal one line, which is not shown.
pub(super) fn read(descriptor: Option<i32>) -> std::io::Result<Zeroizing<Vec<u8>>> {
    if let Some(number) = descriptor {
        let opened = std::fs::File::open(format!("/proc/self/fd/{number}"))?;
        return fill(opened);
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return fill(stdin.lock());
    }
    tell("value (not shown; end with Enter):");
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(&stdin, SetArg::TCSAFLUSH, &hidden)?;
    let read = line(stdin.lock());
    tcsetattr(&stdin, SetArg::TCSAFLUSH, &shown)?;
    read
}

fn fill(from: impl Read) -> std::io::Result<Zeroizing<Vec<u8>>> {
    guarded::fill(from, VALUE_BYTES_MAX).map_err(|unfit| std::io::Error::other(unfit.problem))
}

/// Byte by byte, so that nothing is left in a buffer.
fn line(mut from: impl Read) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(VALUE_BYTES_MAX));
    let mut byte = [0];
    while text.len() < VALUE_BYTES_MAX && from.read(&mut byte)? == 1 && byte[0] != b'\n' {
        text.push(byte[0]);
    }
    Ok(text)
}

/// A file's value, or one field of it.
pub(super) fn file(path: &Path, pointer: Option<&str>) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let owners: Vec<u32> = {
        use std::os::unix::fs::MetadataExt;
        let owner = std::fs::metadata(path).map(|found| found.uid()).ok();
        let own = nix::unistd::Uid::effective();
        // Root takes what anybody keeps for himself.
        let anybody = owner.filter(|_| own.is_root());
        anybody.into_iter().chain([own.as_raw()]).collect()
    };
    let bytes = guarded::read_owned(path, VALUE_BYTES_MAX, &owners)
        .map_err(|unfit| SecretError::File(path.to_owned(), unfit.problem, unfit.hint))?;
    let Some(pointer) = pointer else {
        return Ok(bytes);
    };
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    document
        .pointer(pointer)
        .and_then(serde_json::Value::as_str)
        .map(|text| Zeroizing::new(text.as_bytes().to_vec()))
        .ok_or_else(|| SecretError::Pointer(path.to_owned(), pointer.to_owned()))
}
