//! Forms (`application/x-www-form-urlencoded`): names and values, decoded once.

/// How many fields one form may have.
const MOST_FIELDS: usize = 10_000;

/// Reads a form.
///
/// # Errors
/// Why it cannot be inspected.
pub fn read(text: &[u8]) -> Result<Vec<(String, String)>, String> {
    let mut fields = Vec::new();
    if text.contains(&b';') {
        return Err("the form has a `;`, at which some servers part it".to_owned());
    }
    for part in text.split(|byte| *byte == b'&') {
        if part.is_empty() {
            continue;
        }
        if fields.len() == MOST_FIELDS {
            return Err("the form has too many fields".to_owned());
        }
        let at = part.iter().position(|byte| *byte == b'=');
        let (name, value) = match at {
            Some(at) => (&part[..at], &part[at + 1..]),
            None => (part, &b""[..]),
        };
        fields.push((decoded(name)?, decoded(value)?));
    }
    Ok(fields)
}

fn decoded(text: &[u8]) -> Result<String, String> {
    let problem = || "the form has an escape that is none, or text that is not UTF-8".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let digit = |at: usize| {
                    let digit = text.get(at).copied().map(char::from)?;
                    digit
                        .to_digit(16)
                        .and_then(|value| u8::try_from(value).ok())
                };
                let (high, low) = digit(at).zip(digit(at + 1)).ok_or_else(problem)?;
                bytes.push(high * 16 + low);
                at += 2;
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).map_err(|_| problem())
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn fields_are_decoded_once_and_kept_in_order() {
        let fields = read(b"newid=101&name=a+b%26c&empty=&bare&x=%2541").unwrap();
        let pairs = [
            ("newid", "101"),
            ("name", "a b&c"),
            ("empty", ""),
            ("bare", ""),
            ("x", "%41"),
        ];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(fields, pairs);
        assert_eq!(read(b"").unwrap(), []);
    }

    #[test]
    fn what_servers_read_in_different_ways_is_refused() {
        for text in [
            &b"a=%zz"[..],
            b"a=%4",
            b"a=%ff",
            b"a=\xff",
            b"a=1;b=2",
            b"%=1",
        ] {
            assert!(read(text).is_err(), "{}", String::from_utf8_lossy(text));
        }
        let many = "a=1&".repeat(super::MOST_FIELDS + 1);
        assert!(read(many.as_bytes()).is_err());
    }
}
