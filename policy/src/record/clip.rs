//! Making a record fit into a line: nothing that a client or a file chose may make it so long that
//! no reader takes it.

use super::{Record, RecordKind};

/// What stands for the end of a text that was cut.
const CUT: &str = "...";
/// The first try leaves so many bytes of each text; then all of them together fit well.
const TEXT_BYTES_MAX: usize = 4096;
/// Of a text that identifies something, so many bytes stay in the last try.
const WORD_BYTES_MAX: usize = 128;
/// What facts may take beside texts of that size, as JSON.
const FACTS_BYTES_MAX: usize = 64 * 1024;

/// How many bytes a text takes in JSON, without its quotes.
pub(super) fn json_bytes(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
            0..0x20 => 6,
            _ => 1,
        })
        .sum()
}

/// The text, cut to so many bytes with what says that it was.
pub(super) fn clipped(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(CUT.len())));
        text.push_str(CUT);
    }
    text
}

impl Record {
    /// Cuts every text to a size at which the line takes less than 512 KiB, and counts what is left
    /// out of the facts. What a checkpoint signed stays as it is.
    pub fn clip(&mut self) {
        self.cut(TEXT_BYTES_MAX);
        self.facts = self.facts.take().map(|facts| facts.within(FACTS_BYTES_MAX));
    }

    /// Keeps what identifies the record alone: the line takes less than 16 KiB.
    pub fn strip(&mut self) {
        let mut kept = Self::new(self.kind, &self.id, &self.time);
        if kept.kind == RecordKind::Checkpoint {
            kept.kind = RecordKind::Event;
        }
        kept.run = self.run.take();
        kept.entrance = self.entrance;
        kept.peer_uid = self.peer_uid;
        kept.authority = self.authority.take();
        kept.verdict = self.verdict;
        kept.code = self.code;
        kept.status = self.status;
        kept.cut(WORD_BYTES_MAX);
        kept.reason = Some("the rest of this record was too long for a line of the log".to_owned());
        *self = kept;
    }

    fn cut(&mut self, most: usize) {
        for text in [&mut self.time, &mut self.id] {
            *text = clipped(std::mem::take(text), most);
        }
        for text in [
            &mut self.ticket,
            &mut self.agent,
            &mut self.company,
            &mut self.profile,
            &mut self.scheme,
            &mut self.authority,
            &mut self.method,
            &mut self.path,
            &mut self.policy_hash,
            &mut self.address,
            &mut self.hold,
            &mut self.decider,
            &mut self.reason,
        ] {
            *text = text.take().map(|text| clipped(text, most));
        }
    }
}
