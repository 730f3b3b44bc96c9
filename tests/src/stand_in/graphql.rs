//! Just enough GraphQL to give a client the fields it asked for: names, aliases, fragments. Arguments
//! and directives are passed over.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The fields of `source` that `query` selects; what is not there is null.
pub fn select(query: &str, source: &Value) -> Value {
    let words = words(query);
    let mut fragments = HashMap::new();
    let mut operation = None;
    let mut at = 0;
    while at < words.len() {
        let start = at;
        while at < words.len() && words[at] != "{" {
            at = after(&words, at);
        }
        if words[start] == "fragment" {
            fragments.insert(words[start + 1], at);
        } else if at < words.len() {
            operation.get_or_insert(at);
        }
        at = after(&words, at);
    }
    let document = Document { words, fragments };
    operation.map_or(Value::Null, |at| document.apply(at, source))
}

struct Document<'q> {
    words: Vec<&'q str>,
    /// Where the braces of each fragment open.
    fragments: HashMap<&'q str, usize>,
}

impl Document<'_> {
    /// What the selection that opens at `at` takes from `source`.
    fn apply(&self, at: usize, source: &Value) -> Value {
        match source {
            Value::Array(list) => list.iter().map(|each| self.apply(at, each)).collect(),
            Value::Object(_) => {
                let mut found = Map::new();
                self.fields(at, source, &mut found);
                Value::Object(found)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => source.clone(),
        }
    }

    fn fields(&self, open: usize, source: &Value, found: &mut Map<String, Value>) {
        let word = |at: usize| self.words.get(at).copied().unwrap_or("}");
        let mut at = open + 1;
        while word(at) != "}" {
            if word(at) == "..." {
                if word(at + 1) == "on" {
                    self.fields(at + 3, source, found);
                    at = after(&self.words, at + 3);
                } else {
                    if let Some(&open) = self.fragments.get(word(at + 1)) {
                        self.fields(open, source, found);
                    }
                    at += 2;
                }
                continue;
            }
            let key = word(at);
            if word(at + 1) == ":" {
                at += 2;
            }
            let value = &source[word(at)];
            at += 1;
            if word(at) == "(" {
                at = after(&self.words, at);
            }
            let value = if word(at) == "{" {
                let inner = self.apply(at, value);
                at = after(&self.words, at);
                inner
            } else {
                value.clone()
            };
            found.insert(key.to_owned(), value);
        }
    }
}

/// The place behind the word at `at`, or behind what closes it.
fn after(words: &[&str], at: usize) -> usize {
    let mut depth = 0_usize;
    for (place, word) in words.iter().enumerate().skip(at) {
        match *word {
            "{" | "(" => depth += 1,
            "}" | ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return place + 1;
        }
    }
    words.len()
}

/// Names and marks; commas and blanks mean nothing.
fn words(query: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = query.trim_start_matches(blank);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("...") {
            3
        } else if "{}():".contains(first) {
            first.len_utf8()
        } else {
            let end = |c: char| blank(c) || "{}():".contains(c);
            rest.find(end).unwrap_or(rest.len())
        };
        words.push(&rest[..length]);
        rest = rest[length..].trim_start_matches(blank);
    }
    words
}

fn blank(c: char) -> bool {
    c.is_whitespace() || c == ','
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn aliases_fragments_and_lists_are_followed_and_nothing_else_is_given() {
        let source = json!({"repository": {"id": 1, "name": "web", "list": [{"a": 1, "b": 2}]}});
        let query = "fragment part on Repository{name,list{b}} query Q($x: String!) {
            one: repository(owner: $x, name: \"web\") { ...part ... on Repository { id } gone } }";
        let expected = json!({"one": {"name": "web", "list": [{"b": 2}], "id": 1, "gone": null}});
        assert_eq!(select(query, &source), expected);
    }
}
