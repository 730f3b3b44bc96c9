//! Deltas: an object as copies out of another one and what is new (gitformat-pack, "Deltified representation").

/// The base with the delta applied.
///
/// # Errors
/// Why it is none of this base.
pub(super) fn applied(base: &[u8], delta: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let broken = || "a delta of the pack is broken".to_owned();
    let mut at = 0;
    let number = |at: &mut usize| -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = *delta.get(*at)?;
            *at += 1;
            if shift > 56 {
                return None;
            }
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
    };
    let from = number(&mut at).ok_or_else(broken)?;
    let size = number(&mut at)
        .filter(|size| *size <= most)
        .ok_or_else(broken)?;
    if u64::try_from(base.len()) != Ok(from) {
        return Err(broken());
    }
    let mut text = Vec::new();
    while let Some(&op) = delta.get(at) {
        at += 1;
        if op & 0x80 == 0 {
            let more = delta
                .get(at..at + usize::from(op))
                .filter(|more| !more.is_empty());
            text.extend_from_slice(more.ok_or_else(broken)?);
            at += usize::from(op);
        } else {
            let mut numbers = [0_usize; 7];
            for (bit, number) in numbers.iter_mut().enumerate() {
                if op & (1 << bit) != 0 {
                    *number = usize::from(*delta.get(at).ok_or_else(broken)?);
                    at += 1;
                }
            }
            let [a, b, c, d, x, y, z] = numbers;
            let start = a | b << 8 | c << 16 | d << 24;
            let length = match x | y << 8 | z << 16 {
                0 => 0x1_0000,
                length => length,
            };
            text.extend_from_slice(base.get(start..start + length).ok_or_else(broken)?);
        }
        if u64::try_from(text.len()).is_ok_and(|length| length > size) {
            return Err(broken());
        }
    }
    if u64::try_from(text.len()) == Ok(size) {
        Ok(text)
    } else {
        Err(broken())
    }
}
