//! Memory for secrets: pages the kernel neither swaps, dumps nor shows to another process.
//!
//! The only module of this crate with `unsafe`, for which [`program`] is here too. [`Wiping`] is the allocator that leaves nothing of
//! other memory behind. [`Secret`] has no `Debug`, `Display`, `Clone` or
//! `Serialize`; [`Secret::expose`] is the single way to its bytes, so that every use can be found
//! by searching for that word.

#![allow(
    unsafe_code,
    reason = "memfd_secret, mmap, mlock and madvise have no safe wrapper that zeroises on drop"
)]

pub mod program;

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use zeroize::Zeroize;

/// Why a secret could not be put away safely.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The kernel gave no memory that can be locked.
    #[error("could not lock memory for a secret (is RLIMIT_MEMLOCK large enough?)")]
    Lock(#[source] std::io::Error),
    /// Nothing to keep.
    #[error("an empty secret is never kept")]
    Empty,
}

/// Bytes that live in pages of their own: `memfd_secret` where the kernel has it (unreadable
/// through `/proc/PID/mem` even for root), else `mlock` and `MADV_DONTDUMP`. Zeroised on drop.
#[allow(
    missing_debug_implementations,
    reason = "a secret is never printed, in no form"
)]
pub struct Secret {
    pages: NonNull<u8>,
    mapped: NonZeroUsize,
    len: usize,
    sealed: bool,
}

// SAFETY: the mapping is owned by this value alone and is written only before construction ends
// and during drop. JUSTIFICATION: secrets are shared between the threads of the runtime.
unsafe impl Send for Secret {}
// SAFETY: after construction only shared reads happen. JUSTIFICATION: as above.
unsafe impl Sync for Secret {}

impl Secret {
    /// Moves `bytes` into protected memory; the given buffer is zeroised whatever happens.
    ///
    /// # Errors
    /// [`VaultError::Empty`] for no bytes, [`VaultError::Lock`] when memory cannot be locked.
    pub fn take(bytes: &mut Vec<u8>) -> Result<Self, VaultError> {
        let made = Self::copy_from(bytes);
        bytes.zeroize();
        made
    }

    /// As [`Secret::take`], for text.
    ///
    /// # Errors
    /// As [`Secret::take`].
    pub fn take_text(text: String) -> Result<Self, VaultError> {
        Self::take(&mut text.into_bytes())
    }

    /// The bytes. Copies made of them are the caller's to zeroise.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        // SAFETY: `pages` maps at least `len` initialised bytes until drop, and nobody writes
        // them meanwhile. JUSTIFICATION: the mapping is not a Rust allocation.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr(), self.len) }
    }

    /// Whether the pages are out of reach even for root (`memfd_secret`).
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }

    fn copy_from(bytes: &[u8]) -> Result<Self, VaultError> {
        let wanted = NonZeroUsize::new(bytes.len()).ok_or(VaultError::Empty)?;
        let mapped = round_to_pages(wanted);
        let (pages, sealed) = match map_sealed(mapped) {
            Ok(pages) => (pages, true),
            Err(_) => (map_locked(mapped).map_err(VaultError::Lock)?, false),
        };
        // SAFETY: `pages` is a fresh writable mapping of `mapped >= bytes.len()` bytes that
        // overlaps nothing. JUSTIFICATION: raw memory has no safe copy.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pages.as_ptr(), bytes.len()) };
        Ok(Self {
            pages,
            mapped,
            len: bytes.len(),
            sealed,
        })
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // SAFETY: the mapping is still ours and writable, `len <= mapped`; it is not used after
        // munmap. JUSTIFICATION: the pages must be overwritten and returned by hand.
        unsafe {
            std::slice::from_raw_parts_mut(self.pages.as_ptr(), self.len).zeroize();
            libc::munmap(self.pages.as_ptr().cast(), self.mapped.get());
        }
    }
}

/// A file that this process inherited as descriptor `number`, to be read from its beginning. The
/// descriptor itself stays open, so that the file can be read again.
///
/// # Errors
/// What the system says; a pipe, socket or terminal cannot be read again and is refused.
pub fn inherited(number: i32) -> std::io::Result<impl std::io::Read> {
    use std::os::fd::BorrowedFd;
    use std::os::unix::fs::FileExt;

    if number < 3 {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: fcntl reads a flag of whatever the number names, or fails.
    // JUSTIFICATION: a number from a configuration may name nothing.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, as was just seen, and it is borrowed only to be duplicated.
    // JUSTIFICATION: an inherited descriptor has no owner in this program.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let file = std::fs::File::from(borrowed.try_clone_to_owned()?);
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut at = 0;
    Ok(Reading(move |buffer: &mut [u8]| {
        let count = file.read_at(buffer, at)?;
        at += u64::try_from(count).unwrap_or(0);
        Ok(count)
    }))
}

struct Reading<F>(F);

impl<F: FnMut(&mut [u8]) -> std::io::Result<usize>> std::io::Read for Reading<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (self.0)(buffer)
    }
}

/// The allocator of the gate: memory is overwritten before it is given back, so that what a
/// library forgot about is gone with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wiping;

// SAFETY: every call is passed on to the system's allocator unchanged; memory is written only
// within the block that the caller is giving up. JUSTIFICATION: an allocator is unsafe by nature.
unsafe impl std::alloc::GlobalAlloc for Wiping {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the system allocator's. JUSTIFICATION: as above.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: std::alloc::Layout) -> *mut u8 {
        // SAFETY: as for `alloc`. JUSTIFICATION: as above.
        unsafe { std::alloc::System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: the block is the caller's until it is given back on the next line, and it is
        // `layout.size()` bytes long. JUSTIFICATION: a plain write would be optimised away.
        unsafe {
            libc::explicit_bzero(pointer.cast(), layout.size());
            std::alloc::System.dealloc(pointer, layout);
        }
    }
    // `realloc` is the trait's own: a new block, a copy, and `dealloc` of the old one.
}

fn round_to_pages(wanted: NonZeroUsize) -> NonZeroUsize {
    // SAFETY: sysconf reads a constant of the system. JUSTIFICATION: std does not offer it.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let rounded = wanted
        .get()
        .div_ceil(page.max(1))
        .saturating_mul(page.max(1));
    NonZeroUsize::new(rounded).unwrap_or(wanted)
}

fn map_sealed(len: NonZeroUsize) -> std::io::Result<NonNull<u8>> {
    // SAFETY: the call takes one flag word and returns a descriptor or -1.
    // JUSTIFICATION: glibc has no wrapper for memfd_secret.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let fd = libc::c_int::try_from(fd).map_err(|_| std::io::ErrorKind::InvalidData)?;
    let size = libc::off_t::try_from(len.get()).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    // SAFETY: `fd` is ours and closed exactly once here; the mapping outlives the descriptor.
    // JUSTIFICATION: the three calls belong together and have no safe form.
    unsafe {
        let mapped = if libc::ftruncate(fd, size) == 0 {
            map(len, libc::MAP_SHARED, fd)
        } else {
            Err(std::io::Error::last_os_error())
        };
        libc::close(fd);
        mapped
    }
}

fn map_locked(len: NonZeroUsize) -> std::io::Result<NonNull<u8>> {
    let pages = map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // SAFETY: the range was mapped just above with this length and is unmapped on failure.
    // JUSTIFICATION: mlock and madvise have no safe form.
    unsafe {
        if libc::mlock(pages.as_ptr().cast(), len.get()) != 0
            || libc::madvise(pages.as_ptr().cast(), len.get(), libc::MADV_DONTDUMP) != 0
        {
            let problem = std::io::Error::last_os_error();
            libc::munmap(pages.as_ptr().cast(), len.get());
            return Err(problem);
        }
    }
    Ok(pages)
}

fn map(len: NonZeroUsize, flags: libc::c_int, fd: libc::c_int) -> std::io::Result<NonNull<u8>> {
    // SAFETY: a fresh mapping chosen by the kernel touches no existing memory.
    // JUSTIFICATION: mmap has no safe form.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len.get(),
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            fd,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_put_in_and_wipes_the_source() {
        let mut source = b"ghp_canary".to_vec();
        let secret = Secret::take(&mut source).unwrap();
        assert_eq!(secret.expose(), b"ghp_canary");
        assert!(source.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn refuses_nothing_and_keeps_more_than_a_page() {
        assert!(matches!(
            Secret::take(&mut Vec::new()),
            Err(VaultError::Empty)
        ));
        let secret = Secret::take(&mut vec![7; 10_000]).unwrap();
        assert_eq!(secret.expose().len(), 10_000);
        assert!(secret.expose().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn locked_memory_is_the_fallback() {
        let len = round_to_pages(NonZeroUsize::new(10).unwrap());
        let pages = map_locked(len).unwrap();
        // SAFETY: mapped just above, unused afterwards. JUSTIFICATION: test cleans up after itself.
        unsafe { libc::munmap(pages.as_ptr().cast(), len.get()) };
    }

    #[test]
    fn sealed_pages_are_unreadable_through_proc() {
        use std::os::unix::fs::FileExt;
        let secret = Secret::take(&mut b"canary".to_vec()).unwrap();
        let ordinary = Box::new(*b"canary");
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let mut seen = [0_u8; 6];
        // The control: the same read finds ordinary memory.
        memory
            .read_exact_at(&mut seen, ordinary.as_ptr() as u64)
            .unwrap();
        assert_eq!(&seen, b"canary");
        if secret.is_sealed() {
            let read = memory.read_exact_at(&mut seen, secret.expose().as_ptr() as u64);
            assert!(read.is_err());
        }
    }
}
