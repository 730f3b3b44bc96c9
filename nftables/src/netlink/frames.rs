//! Netlink framing on bytes: lengths are checked here, once, for everything that is parsed later.

use std::io;

use nftnl_sys::libc::nlmsghdr;

use super::NetlinkError;

const HEADER: usize = 16;

/// A buffer aligned for netlink headers.
pub(super) struct Buffer {
    words: Vec<u64>,
}

impl Buffer {
    pub(super) fn of_size(bytes: usize) -> Self {
        Self {
            words: vec![0; bytes.div_ceil(8)],
        }
    }

    fn holding(bytes: &[u8]) -> Self {
        let mut buffer = Self::of_size(bytes.len());
        buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.words.len() * 8;
        // SAFETY: the words are initialised memory of exactly this many bytes, borrowed mutably
        // for as long as the slice lives; any byte pattern is a valid u64.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), len) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let len = self.words.len() * 8;
        // SAFETY: as above, shared.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), len) }
    }
}

/// One whole netlink message.
pub(super) struct Frame {
    buffer: Buffer,
    len: usize,
    pub(super) kind: u16,
    pub(super) sequence: u32,
}

impl Frame {
    /// The header that libnftnl parses from. Valid as long as `self`; its length field was
    /// checked against the bytes behind it.
    pub(super) fn header(&self) -> *const nlmsghdr {
        self.buffer.bytes().as_ptr().cast()
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.buffer.bytes()[HEADER..self.len]
    }

    /// `Some(errno)` for an error or acknowledgement message; 0 is success.
    pub(super) fn error_code(&self) -> Option<i32> {
        if i32::from(self.kind) != libc::NLMSG_ERROR {
            return None;
        }
        Some(
            number(self.payload(), 0)
                .map_or(libc::EPROTO, |code| code.cast_signed().saturating_neg()),
        )
    }
}

/// A request with this body, sequence number 1.
pub(super) fn message(kind: u16, flags: i32, body: &[u8]) -> Vec<u8> {
    let [low, high, ..] = flags.to_le_bytes();
    let len = u32::try_from(HEADER + body.len()).expect("requests are small");
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(u16::from_le_bytes([low, high]).to_ne_bytes());
    bytes.extend(1u32.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// One datagram from the kernel, cut into messages.
pub(super) fn receive(socket: &mnl::Socket, doing: &str) -> Result<Vec<Frame>, NetlinkError> {
    let mut buffer = Buffer::of_size(nftnl::nft_nlmsg_maxsize() as usize);
    let received = loop {
        match socket.recv_raw(buffer.bytes_mut()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other.map_err(|error| NetlinkError::new(doing, error))?,
        }
    };
    let mut rest = &buffer.bytes()[..received];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let malformed = || NetlinkError::Malformed {
            doing: doing.to_owned(),
        };
        let len = number(rest, 0).ok_or_else(malformed)? as usize;
        if len < HEADER || len > rest.len() {
            return Err(malformed());
        }
        let word = number(rest, 4).ok_or_else(malformed)?.to_ne_bytes();
        frames.push(Frame {
            buffer: Buffer::holding(&rest[..len]),
            len,
            kind: u16::from_ne_bytes([word[0], word[1]]),
            sequence: number(rest, 8).ok_or_else(malformed)?,
        });
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    }
    Ok(frames)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}
