//! A record as its line's JSON, byte for byte what `serde_json` makes of it, in a third of the time:
//! it stands in each request's way. A test holds the two together, for any record.

use super::{Entrance, Record, RecordKind, Verdict};

impl RecordKind {
    /// As the line has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Refusal => "refusal",
            Self::Event => "event",
            Self::Checkpoint => "checkpoint",
        }
    }
}

impl Entrance {
    /// As the line has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunSocket => "run_socket",
            Self::Uid => "uid",
            Self::Redirected => "redirected",
            Self::Resolver => "resolver",
            Self::Token => "token",
            Self::Address => "address",
        }
    }
}

impl Verdict {
    /// As the line has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Refuse => "refuse",
        }
    }
}

impl Record {
    /// Appends the record to `out` as one JSON object, without a line end.
    ///
    /// # Errors
    /// What `serde_json` says of the rarer members, which are left to it. `out` then ends anywhere.
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        // Every member is named here, so that a new one cannot be forgotten.
        let Self {
            v,
            seq,
            time,
            kind,
            id,
            run,
            ticket,
            agent,
            company,
            profile,
            entrance,
            peer_uid,
            scheme,
            authority,
            method,
            path,
            verdict,
            code,
            rule,
            policy_hash,
            credential,
            facts,
            address,
            status,
            bytes_in,
            bytes_out,
            ms,
            ms_head,
            tokens_in,
            tokens_out,
            cost_microusd,
            hold,
            decider,
            reason,
            log,
            checkpoint,
            prev,
            hash,
        } = self;
        out.extend_from_slice(b"{\"v\":");
        digits(out, u64::from(*v));
        number(out, b",\"seq\":", Some(*seq));
        text(out, b",\"time\":", Some(time));
        word(out, b",\"kind\":", Some(kind.as_str()));
        text(out, b",\"id\":", Some(id));
        word(out, b",\"run\":", run.as_ref().map(|run| run.as_str()));
        text(out, b",\"ticket\":", ticket.as_deref());
        text(out, b",\"agent\":", agent.as_deref());
        text(out, b",\"company\":", company.as_deref());
        text(out, b",\"profile\":", profile.as_deref());
        word(out, b",\"entrance\":", entrance.map(Entrance::as_str));
        number(out, b",\"peer_uid\":", peer_uid.map(u64::from));
        text(out, b",\"scheme\":", scheme.as_deref());
        text(out, b",\"authority\":", authority.as_deref());
        text(out, b",\"method\":", method.as_deref());
        text(out, b",\"path\":", path.as_deref());
        word(out, b",\"verdict\":", verdict.map(Verdict::as_str));
        word(out, b",\"code\":", code.map(|code| code.as_str()));
        word(out, b",\"rule\":", rule.as_ref().map(|rule| rule.as_str()));
        text(out, b",\"policy_hash\":", policy_hash.as_deref());
        let credential = credential.as_ref().map(|name| name.as_str());
        word(out, b",\"credential\":", credential);
        other(out, b",\"facts\":", facts.as_ref())?;
        text(out, b",\"address\":", address.as_deref());
        number(out, b",\"status\":", status.map(u64::from));
        number(out, b",\"bytes_in\":", *bytes_in);
        number(out, b",\"bytes_out\":", *bytes_out);
        number(out, b",\"ms\":", *ms);
        number(out, b",\"ms_head\":", *ms_head);
        number(out, b",\"tokens_in\":", *tokens_in);
        number(out, b",\"tokens_out\":", *tokens_out);
        number(out, b",\"cost_microusd\":", *cost_microusd);
        text(out, b",\"hold\":", hold.as_deref());
        text(out, b",\"decider\":", decider.as_deref());
        text(out, b",\"reason\":", reason.as_deref());
        other(out, b",\"log\":", log.as_ref())?;
        other(out, b",\"checkpoint\":", checkpoint.as_ref())?;
        text(out, b",\"prev\":", prev.as_deref());
        text(out, b",\"hash\":", hash.as_deref());
        out.push(b'}');
        Ok(())
    }
}

fn other<T: serde::Serialize>(
    out: &mut Vec<u8>,
    name: &[u8],
    value: Option<&T>,
) -> Result<(), serde_json::Error> {
    let Some(value) = value else {
        return Ok(());
    };
    out.extend_from_slice(name);
    serde_json::to_writer(out, value)
}

/// A text of which nothing needs escaping, by its type.
fn word(out: &mut Vec<u8>, name: &[u8], value: Option<&str>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    }
}

fn text(out: &mut Vec<u8>, name: &[u8], value: Option<&str>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        quoted(out, value);
    }
}

fn quoted(out: &mut Vec<u8>, value: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = value.as_bytes();
    // All of them are looked at, which many can be at a time; most texts are plain.
    if !bytes
        .iter()
        .fold(false, |any, byte| any | is_escaped(*byte))
    {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut plain = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if !is_escaped(*byte) {
            continue;
        }
        out.extend_from_slice(&bytes[plain..at]);
        plain = at + 1;
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            12 => b'f',
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}

fn is_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn number(out: &mut Vec<u8>, name: &[u8], value: Option<u64>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        digits(out, value);
    }
}

fn digits(out: &mut Vec<u8>, mut value: u64) {
    let mut room = [b'0'; 20];
    let mut at = room.len() - 1;
    while value >= 10 {
        room[at] += u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        at -= 1;
    }
    room[at] += u8::try_from(value).unwrap_or(0);
    out.extend_from_slice(&room[at..]);
}

#[cfg(test)]
mod tests;
