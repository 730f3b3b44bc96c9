//! The program's own pages. Most of what is mapped of its code, of its constants and of the libraries
//! once it has come up is what only the start needed.

use std::io::{BufRead, BufReader};

/// A part of a file that is mapped and cannot be written.
struct Mapped {
    start: usize,
    len: usize,
}

/// Lets go of every page that is as it is in its file, which brings it back when it is used again.
/// Gives the number of bytes that were looked at.
///
/// # Errors
/// What the system says when the process's own mappings cannot be read.
pub fn give_back_unchanged() -> std::io::Result<usize> {
    let mappings = BufReader::new(std::fs::File::open("/proc/self/smaps")?);
    let mut candidate = None;
    let mut bytes = 0;
    for line in mappings.lines() {
        let line = line?;
        match line.strip_prefix("Anonymous:") {
            // Of a mapping without any, no page differs from its file.
            Some(changed) if changed.trim_start() == "0 kB" => {
                bytes += candidate.take().map_or(0, |mapped| give_back(&mapped));
            }
            Some(_) => candidate = None,
            None => {
                if let Some(mapping) = heading(&line) {
                    candidate = mapping;
                }
            }
        }
    }
    Ok(bytes)
}

/// Of the line that a mapping begins with: the mapping, if it is of a file and cannot be written.
fn heading(line: &str) -> Option<Option<Mapped>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let (access, inode) = (words.next()?, words.nth(2)?);
    let fits = matches!(access, "r-xp" | "r--p") && inode != "0";
    Some(fits.then(|| Mapped {
        start,
        len: end.saturating_sub(start),
    }))
}

fn give_back(mapped: &Mapped) -> usize {
    let start = std::ptr::with_exposed_provenance_mut(mapped.start);
    // SAFETY: the mapping is private, of a file, cannot be written and has no page of its own, so that
    // whoever reads there next reads the same bytes. JUSTIFICATION: madvise has no safe form.
    let done = unsafe { libc::madvise(start, mapped.len, libc::MADV_DONTNEED) };
    // What the kernel would rather keep stays.
    if done == 0 { mapped.len } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:"));
        let count = line.unwrap().split_ascii_whitespace().nth(1);
        count.unwrap().parse().unwrap()
    }

    #[test]
    fn pages_go_and_come_back_and_those_that_were_changed_stay() {
        const LEN: usize = 4096;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'a'; LEN]).unwrap();
        let map = || {
            // SAFETY: a fresh private mapping of a file of this length. JUSTIFICATION: no safe form.
            unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    LEN,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE,
                    file.as_raw_fd(),
                    0,
                )
            }
            .cast::<u8>()
        };
        let (changed, unchanged) = (map(), map());
        // SAFETY: both were mapped just above and are ours. JUSTIFICATION: as the loader does it.
        unsafe {
            changed.write(b'b');
            for one in [changed, unchanged] {
                assert_eq!(libc::mprotect(one.cast(), LEN, libc::PROT_READ), 0);
            }
        }
        let before = resident();
        assert!(give_back_unchanged().unwrap() > LEN);
        let after = resident();
        assert!(after < before, "{before} kB became {after} kB");
        // SAFETY: as above, and not used afterwards. JUSTIFICATION: as above.
        unsafe {
            assert_eq!((changed.read(), unchanged.read()), (b'b', b'a'));
            for one in [changed, unchanged] {
                libc::munmap(one.cast(), LEN);
            }
        }
    }
}
