//! The commands of a push.

use policy::RefUpdate;

use crate::inspect::receive_pack::{Commands, Progress, Reader, rejection};

/// What is read does not depend on the pieces, reads back when written again, and can be answered.
pub(crate) fn check(bytes: &[u8]) {
    let whole = read(bytes, bytes.len().max(1));
    let one_by_one = read(bytes, 1);
    assert_eq!(shown(&whole), shown(&one_by_one));
    let Progress::Done(commands) = whole else {
        return;
    };
    for update in &commands.updates {
        let id = |text: &str| matches!(text.len(), 40 | 64) && text.bytes().all(is_digit);
        assert!(id(&update.old) && id(&update.new) && update.old.len() == update.new.len());
        let odd = |c: char| c.is_control() || c == ' ';
        assert!(!update.name.is_empty() && !update.name.contains(odd));
    }
    let again = read(&written(&commands), usize::MAX);
    let Progress::Done(again) = again else {
        panic!("{again:?}")
    };
    assert_eq!(commands.updates, again.updates);
    if !commands.updates.is_empty() {
        assert_eq!(commands.capabilities, again.capabilities);
    }
    packets(&rejection(
        &commands,
        |_| "not\r\nallowed".to_owned(),
        "one\ntwo",
    ));
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn shown(progress: &Progress) -> String {
    format!("{progress:?}")
}

/// Read with the prefix growing by `step`.
fn read(bytes: &[u8], step: usize) -> Progress {
    let mut reader = Reader::default();
    let mut at = 0;
    loop {
        match reader.advance(&bytes[..at]) {
            Progress::More if at < bytes.len() => at = at.saturating_add(step).min(bytes.len()),
            progress @ (Progress::More | Progress::Done(_) | Progress::Unreadable(_)) => {
                return progress;
            }
        }
    }
}

fn written(commands: &Commands) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, RefUpdate { old, new, name, .. }) in commands.updates.iter().enumerate() {
        let mut line = format!("{old} {new} {name}");
        if at == 0 && !commands.capabilities.is_empty() {
            line.push('\0');
            line.push_str(&commands.capabilities.join(" "));
        }
        out.extend(format!("{:04x}{line}", line.len() + 4).into_bytes());
    }
    out.extend(b"0000");
    out
}

/// Every byte of an answer lies in a packet that git takes.
fn packets(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let digits = std::str::from_utf8(bytes.get(..4).unwrap_or_default()).unwrap_or_default();
        let length = usize::from_str_radix(digits, 16).unwrap_or(usize::MAX);
        assert!(length == 0 || (5..=65_520).contains(&length), "{digits:?}");
        bytes = bytes
            .get(length.max(4)..)
            .unwrap_or_else(|| panic!("cut at {digits}"));
    }
}
