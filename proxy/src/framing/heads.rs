//! Where in its bytes an HTTP/1 connection is: in a head, in a body, between chunks.

use super::grammar::{self, Head};
use super::{Bounds, Fault};

/// Empty lines that may stand before a request (RFC 9112, 2.2 asks for at least one).
const BLANK_LINES: usize = 4;
/// The longest line of a chunk's size or a trailer, and of all trailers together.
const LONGEST_LINE: usize = 16 * 1024;

const NO_METHOD: Fault = Fault::Malformed("it does not begin with a method");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Head,
    Body(u64),
    ChunkSize,
    ChunkData(u64),
    Trailers(usize),
    /// Behind a CONNECT, or a request to leave HTTP: what comes next depends on the answer.
    Fork,
    /// Not followed: the gate itself has left HTTP.
    Opaque,
}

/// The follower.
#[derive(Debug)]
pub(super) struct Heads {
    bounds: Bounds,
    place: Place,
    /// How much of the unfinished head or line has been looked at.
    seen: usize,
    /// Where its last line begins.
    line: usize,
    /// Whether it has a line that is not empty.
    begun: bool,
    blank: usize,
    /// Heads that were found good since this was last asked.
    passed: usize,
    fault: Option<Fault>,
}

impl Heads {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            place: Place::Head,
            seen: 0,
            line: 0,
            begun: false,
            blank: 0,
            passed: 0,
            fault: None,
        }
    }

    /// What was wrong, if something was; nothing is followed behind it.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Follows nothing any more, for this reason.
    pub(super) fn give_up(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// How many heads were found good since this was last asked.
    pub(super) fn take_passed(&mut self) -> usize {
        std::mem::take(&mut self.passed)
    }

    /// Whether what comes next is a head, or the rest of one.
    pub(super) fn is_in_head(&self) -> bool {
        self.place == Place::Head
    }

    /// Whether what comes next belongs to a body.
    pub(super) fn is_in_body(&self) -> bool {
        match self.place {
            Place::Body(_) | Place::ChunkSize | Place::ChunkData(_) | Place::Trailers(_) => true,
            Place::Head | Place::Fork | Place::Opaque => false,
        }
    }

    /// Whether the answer must be known before anything more may pass.
    pub(super) fn is_at_fork(&self) -> bool {
        self.place == Place::Fork
    }

    /// Goes on behind the fork: in another protocol if the gate `switched` to it, else with the next
    /// head.
    pub(super) fn leave_fork(&mut self, switched: bool) {
        self.place = if switched { Place::Opaque } else { Place::Head };
    }

    /// Follows `bytes` and says how many of them may pass. What may not is the beginning of a head or
    /// line, and must be given again in front of what comes next.
    pub(super) fn walk(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.fault.is_none() {
            let rest = &bytes[at..];
            let step = match self.place {
                Place::Opaque => rest.len(),
                Place::Fork => return at,
                Place::Body(left) => self.skip(rest, left),
                Place::ChunkData(left) => self.skip(rest, left),
                Place::Head => match self.head(rest) {
                    Some(step) => step,
                    None => return at,
                },
                Place::ChunkSize | Place::Trailers(_) => match self.line(rest) {
                    Some(step) => step,
                    None => return at,
                },
            };
            at += step;
        }
        at
    }

    /// Passes over up to `left` bytes.
    fn skip(&mut self, bytes: &[u8], left: u64) -> usize {
        let here = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let step = left.min(here);
        let after = left - step;
        self.place = match (self.place, after) {
            (Place::ChunkData(_), 0) => Place::ChunkSize,
            (Place::ChunkData(_), after) => Place::ChunkData(after),
            (_, 0) => Place::Head,
            (_, after) => Place::Body(after),
        };
        usize::try_from(step).unwrap_or(bytes.len())
    }

    /// Looks for the end of the head that `bytes` begin with. Its length, if it is whole and good.
    pub(super) fn head(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(found) = bytes
            .get(self.seen..)?
            .iter()
            .position(|byte| *byte == b'\n')
        {
            let end = self.seen + found;
            if end == 0 || bytes.get(end - 1) != Some(&b'\r') {
                return self.fail(Fault::Malformed("a line ends in a bare line feed"));
            }
            let empty = end - 1 == self.line;
            if !empty && !self.may_begin(bytes) {
                return self.fail(NO_METHOD);
            }
            self.seen = end + 1;
            self.line = end + 1;
            if !empty {
                self.begun = true;
            } else if self.begun {
                return self.whole(bytes, end + 1);
            } else {
                self.blank += 1;
                if self.blank > BLANK_LINES {
                    return self.fail(Fault::Malformed("it begins with empty lines"));
                }
            }
            if end > self.bounds.bytes {
                return self.fail(Fault::TooLarge("bytes"));
            }
        }
        self.seen = bytes.len();
        if bytes.len() > self.bounds.bytes {
            return self.fail(Fault::TooLarge("bytes"));
        }
        // What cannot become a request is not waited for.
        if !self.may_begin(bytes) {
            return self.fail(NO_METHOD);
        }
        None
    }

    /// Whether a request may begin as the head does, so far as it is there.
    fn may_begin(&self, bytes: &[u8]) -> bool {
        let first = bytes.get(self.line);
        self.begun || first.is_none_or(|first| grammar::begins_a_method(*first))
    }

    fn whole(&mut self, bytes: &[u8], end: usize) -> Option<usize> {
        if end > self.bounds.bytes {
            return self.fail(Fault::TooLarge("bytes"));
        }
        let start = 2 * self.blank;
        let head = bytes.get(start..end).unwrap_or_default();
        match grammar::read(head, self.bounds.fields) {
            Ok(Head { chunked: true, .. }) => self.place = Place::ChunkSize,
            Ok(Head { length, .. }) if length > 0 => self.place = Place::Body(length),
            // Where a body is stated, it is refused, and is a body.
            Ok(Head { leaves: true, .. }) => self.place = Place::Fork,
            Ok(_) => {}
            Err(fault) => return self.fail(fault),
        }
        self.passed += 1;
        self.restart();
        Some(end)
    }

    /// One line of a chunked body's own.
    fn line(&mut self, bytes: &[u8]) -> Option<usize> {
        let Some(found) = bytes
            .get(self.seen..)?
            .iter()
            .position(|byte| *byte == b'\n')
        else {
            self.seen = bytes.len();
            if bytes.len() > LONGEST_LINE {
                return self.fail(Fault::Ambiguous);
            }
            return None;
        };
        let end = self.seen + found + 1;
        self.restart();
        let Some(line) = bytes.get(..end).and_then(|line| line.strip_suffix(b"\r\n")) else {
            return self.fail(Fault::Ambiguous);
        };
        match self.place {
            Place::Trailers(_) if line.is_empty() => self.place = Place::Head,
            Place::Trailers(before) => {
                let total = before + end;
                if total > LONGEST_LINE || !grammar::is_field(line) {
                    return self.fail(Fault::Ambiguous);
                }
                self.place = Place::Trailers(total);
            }
            Place::Head
            | Place::Body(_)
            | Place::ChunkSize
            | Place::ChunkData(_)
            | Place::Fork
            | Place::Opaque => match grammar::chunk_size(line) {
                Some(0) => self.place = Place::Trailers(0),
                // The chunk is followed by its own line end.
                Some(size) => match size.checked_add(2) {
                    Some(with_end) => self.place = Place::ChunkData(with_end),
                    None => return self.fail(Fault::Ambiguous),
                },
                None => return self.fail(Fault::Ambiguous),
            },
        }
        Some(end)
    }

    fn restart(&mut self) {
        self.seen = 0;
        self.line = 0;
        self.begun = false;
        self.blank = 0;
    }

    fn fail(&mut self, fault: Fault) -> Option<usize> {
        self.fault = Some(fault);
        None
    }
}
