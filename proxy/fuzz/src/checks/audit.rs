//! Lines of the audit log, which an agent's words have gone into.

use policy::record::Record;

use crate::audit::chain::{LineHash, open, seal};
use crate::audit::checkpoint::Statement;
use crate::audit::query::Filter;

/// A record reads back as itself; a sealed line opens, and not once a byte of it has changed.
pub(crate) fn check(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n').take(8) {
        if let Ok(sealed) = open(line) {
            assert!(line.ends_with(format!("\"hash\":\"{}\"}}", sealed.hash).as_bytes()));
        }
        if let Ok(text) = std::str::from_utf8(line) {
            read(text);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(statement) = Statement::parse(text)
    {
        assert!(text.contains(&format!("head {}", statement.head)));
    }
    let mut lines = b"{".to_vec();
    lines.extend(bytes.iter().filter(|byte| **byte != b'\n'));
    lines.push(b'}');
    let hash = seal(&mut lines, 0, LineHash::NONE);
    let line = lines.strip_suffix(b"\n").unwrap_or(&lines).to_vec();
    let sealed = open(&line).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!((sealed.prev, sealed.hash), (LineHash::NONE, hash));
    let sum = bytes
        .iter()
        .fold(0_usize, |sum, byte| sum * 31 % 65_521 + usize::from(*byte));
    let mut changed = line;
    let at = sum % changed.len();
    changed[at] ^= 1;
    assert!(open(&changed).is_err(), "byte {at} may be another");
}

fn read(text: &str) {
    let Ok(record) = serde_json::from_str::<Record>(text) else {
        return;
    };
    let written = serde_json::to_string(&record).unwrap_or_default();
    assert!(!written.contains('\n'));
    let again = serde_json::from_str::<Record>(&written);
    assert_eq!(again.ok().as_ref(), Some(&record));
    assert_eq!(Filter::default().select(&written), Some(record));
}
