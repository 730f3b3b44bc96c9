//! Reads a TOML document key by key and notes every problem with its line. `provisioning` reads its lists with it, too.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostics::Diagnostics;

/// A document that is being read, and what is wrong with it so far.
#[derive(Debug)]
pub struct Reader<'t> {
    text: &'t str,
    pub problems: Diagnostics,
}

/// A value that knows its place.
pub type Value<'a, 'i> = &'a Spanned<DeValue<'i>>;

impl<'t> Reader<'t> {
    /// What `read` makes of the document's top level. `file` is its name in messages.
    ///
    /// # Errors
    /// Every problem, those of the TOML first; also when `read` noted none and has nothing.
    pub fn read<T>(
        text: &'t str,
        file: &str,
        read: impl FnOnce(&mut Self, &DeTable<'t>) -> Option<T>,
    ) -> Result<T, Diagnostics> {
        let mut reader = Self {
            text,
            problems: Diagnostics::new(file),
        };
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let line = error.span().map_or(0, |span| reader.line(&span));
            let hint = "the file must be valid TOML";
            reader.problems.add(line, "", error.message(), hint);
        }
        let read = read(&mut reader, document.get_ref());
        reader.problems.finish(read)
    }

    /// The line, from 1, that a span starts in.
    #[must_use]
    pub fn line(&self, span: &Range<usize>) -> usize {
        let end = span.start.min(self.text.len());
        let before = &self.text.as_bytes()[..end];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Notes a problem at the place of a value.
    pub fn problem(
        &mut self,
        value: Value<'_, '_>,
        key: &str,
        text: impl Into<String>,
        hint: &str,
    ) {
        let line = self.line(&value.span());
        self.problems.add(line, key, text, hint);
    }

    /// Notes every key of the table that is none of `keys`.
    pub fn known(&mut self, table: &DeTable<'_>, prefix: &str, keys: &[&str]) {
        for (key, _) in table.iter() {
            let name = key.get_ref().as_ref();
            if !keys.contains(&name) {
                let line = self.line(&key.span());
                let hint = nearest(name, keys)
                    .unwrap_or_else(|| format!("known keys: {}", keys.join(", ")));
                self.problems
                    .add(line, format!("{prefix}{name}"), "unknown key", hint);
            }
        }
    }

    /// The tables of a `[[prefix key]]`, each with its place and its name for messages: `key[0]`.
    pub fn tables<'a, 'i>(
        &mut self,
        table: &'a DeTable<'i>,
        prefix: &str,
        key: &str,
    ) -> Vec<(Value<'a, 'i>, &'a DeTable<'i>, String)> {
        let Some(value) = table.get(key) else {
            return Vec::new();
        };
        let key = format!("{prefix}{key}");
        let hint = format!("write each under its own [[{key}]]");
        let Some(entries) = value.get_ref().as_array() else {
            self.problem(value, &key, "must be a list of tables", &hint);
            return Vec::new();
        };
        let mut found = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let name = format!("{key}[{index}]");
            match entry.get_ref().as_table() {
                Some(table) => found.push((entry, table, name)),
                None => self.problem(entry, &name, "must be a table", &hint),
            }
        }
        found
    }
}

/// Asks for the known word that differs by a slip or two, if there is one.
#[must_use]
pub fn nearest(name: &str, known: &[&str]) -> Option<String> {
    known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(word, name), word))
        .min()
        .filter(|(slips, word)| *slips <= 1 + word.len() / 4)
        .map(|(_, near)| format!("did you mean {near:?}?"))
}
