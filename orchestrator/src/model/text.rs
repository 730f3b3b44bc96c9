//! Limits on what people and agents may write.
//!
//! Everything is checked once, in time linear in its length, before it reaches the database.

use super::Refusal;

/// Characters of a title.
pub const TITLE: usize = 500;
/// Bytes of a description, comment or document body.
pub const BODY: usize = 512 * 1024;
/// Bytes of a name, key or label.
pub const NAME: usize = 128;

/// One line: no control characters, not empty, at most `max` characters.
///
/// # Errors
/// 400 naming the field.
pub fn line(field: &str, text: &str, max: usize) -> Result<String, Refusal> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Refusal::invalid(format!("{field} must not be empty")));
    }
    if text.chars().any(|c| c.is_control()) {
        return Err(Refusal::invalid(format!(
            "{field} must be one line without control characters"
        )));
    }
    if text.chars().count() > max {
        return Err(Refusal::invalid(format!(
            "{field} is longer than {max} characters"
        )));
    }
    Ok(text.to_owned())
}

/// A title: as [`line`], except that line breaks and tabs become spaces, as clients send them.
///
/// # Errors
/// 400 naming the field.
pub fn title(text: &str) -> Result<String, Refusal> {
    let flat: String = text
        .chars()
        .map(|c| if "\r\n\t".contains(c) { ' ' } else { c })
        .collect();
    line("title", &flat, TITLE)
}

/// Free text: no NUL, at most [`BODY`] bytes.
///
/// # Errors
/// 400 naming the field.
pub fn body(field: &str, text: &str) -> Result<String, Refusal> {
    if text.contains('\0') {
        return Err(Refusal::invalid(format!("{field} must not contain NUL")));
    }
    if text.len() > BODY {
        return Err(Refusal::invalid(format!(
            "{field} is longer than {BODY} bytes"
        )));
    }
    Ok(text.to_owned())
}

/// A text for a terminal: control characters, and those that reorder or hide what stands beside
/// them, become U+FFFD; line breaks and tabs stay.
#[must_use]
pub fn printable(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => true,
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => false,
        c => !c.is_control(),
    };
    let shown = |c| if harmless(c) { c } else { '\u{fffd}' };
    text.chars().map(shown).collect()
}

/// What two titles have in common when they mean the same ticket: letters and digits, lower case.
#[must_use]
pub fn title_key(title: &str) -> String {
    let mut key = String::with_capacity(title.len());
    for word in title
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
    {
        if !key.is_empty() {
            key.push(' ');
        }
        key.extend(word.chars().flat_map(char::to_lowercase));
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_data_within_limits() {
        assert_eq!(
            title(" -rf $(id) '\"\nnext ").unwrap(),
            "-rf $(id) '\" next"
        );
        assert!(title("a\0b").is_err());
        assert!(title("  ").is_err());
        assert!(title(&"x".repeat(TITLE)).is_ok());
        assert!(title(&"x".repeat(TITLE + 1)).is_err());
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_printable() {
        let plain = "caf\u{e9} \u{1f600} \u{5d0}\n\tx";
        assert_eq!(printable(plain), plain);
        for bad in ('\0'..=' ')
            .chain('\u{7f}'..='\u{9f}')
            .chain("\u{202e}\u{2066}\u{200b}\u{feff}".chars())
        {
            let kept = matches!(bad, '\n' | '\t' | ' ');
            assert_eq!(printable(&bad.to_string()).contains(bad), kept, "{bad:?}");
        }
    }

    #[test]
    fn bodies_refuse_nul() {
        assert!(body("body", "two\nlines").is_ok());
        assert!(body("body", "a\0").is_err());
    }

    #[test]
    fn title_keys_ignore_case_and_punctuation() {
        assert_eq!(title_key("Fix: the  Build!"), title_key("fix the build"));
        assert_ne!(title_key("fix a"), title_key("fix b"));
    }
}
