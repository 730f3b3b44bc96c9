//! Which tickets a text finds: an identifier exactly, words by index.
//!
//! What somebody typed never reaches FTS5's grammar: it is cut into runs of letters and digits, and
//! each becomes one quoted phrase.

use rusqlite::types::Value as Sql;

/// How many words of a query count.
const WORDS: usize = 32;
/// Accents that stand beside their letter belong to its word, as for the index.
const COMBINING: std::ops::RangeInclusive<char> = '\u{300}'..='\u{36f}';

/// A condition on `tickets`, and its parameters in order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Condition {
    pub(super) sql: &'static str,
    pub(super) values: Vec<Sql>,
}

/// The condition that a text asks for: every word, or its beginning, in the ticket or in one of its
/// comments.
pub(super) fn condition(text: &str) -> Condition {
    let text = text.trim();
    match expression(text) {
        Some(words) => Condition {
            sql: " AND (identifier = ? OR id IN (
                     SELECT ticket FROM search_rows WHERE search_rows.id IN
                         (SELECT rowid FROM ticket_words WHERE ticket_words MATCH ?)
                     UNION SELECT ticket FROM comments WHERE seq IN
                         (SELECT rowid FROM comment_words WHERE comment_words MATCH ?)))",
            values: vec![
                text.to_ascii_uppercase().into(),
                words.clone().into(),
                words.into(),
            ],
        },
        // Signs alone are not in the index.
        None => Condition {
            sql: " AND (instr(title, ?) > 0 OR instr(description, ?) > 0)",
            values: vec![text.to_owned().into(), text.to_owned().into()],
        },
    }
}

/// The FTS5 expression of a text; `None` when it has no letter or digit.
fn expression(text: &str) -> Option<String> {
    if is_identifier(text) {
        // Neither ABC-1 for ABC-12 nor the other way round.
        return Some(format!("\"{}\"", text.replace('-', " ")));
    }
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric() && !COMBINING.contains(&c))
        .filter(|word| !word.is_empty())
        .take(WORDS)
        .map(|word| format!("\"{word}\" *"))
        .collect();
    (!words.is_empty()).then(|| words.join(" AND "))
}

fn is_identifier(text: &str) -> bool {
    text.split_once('-').is_some_and(|(prefix, number)| {
        (2..=6).contains(&prefix.len())
            && prefix.bytes().all(|b| b.is_ascii_alphabetic())
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_grammar_survives() {
        assert_eq!(
            expression("fix the build").unwrap(),
            "\"fix\" * AND \"the\" * AND \"build\" *"
        );
        for odd in [
            "\"",
            "a\"b",
            "NEAR(a b)",
            "title:x",
            "a* OR b",
            "-a ^b +c {d}",
            "a\0b",
        ] {
            let made = expression(odd).unwrap_or_default();
            let outside: String = made.split('"').step_by(2).collect();
            assert!(
                outside.split_whitespace().all(|w| w == "*" || w == "AND"),
                "{odd}: {made}"
            );
        }
        assert_eq!(expression("%_\"'()*"), None);
        assert_eq!(
            expression(&"a ".repeat(100)).unwrap().matches('*').count(),
            WORDS
        );
    }

    #[test]
    fn identifiers_are_phrases_without_more() {
        assert_eq!(expression("acm-12").unwrap(), "\"acm 12\"");
        assert_eq!(expression("a-12").unwrap(), "\"a\" * AND \"12\" *");
        assert!(expression("acm-12x").unwrap().contains('*'));
    }
}
