//! Structured mentions in comments: `[@Name](agent://id)`.

/// How many agents one comment may wake.
pub const MAX: usize = 8;

/// The agent ids mentioned in a text, each once, at most [`MAX`]. Linear in the text's length.
#[must_use]
pub fn agents(text: &str) -> Vec<String> {
    const MARK: &str = "](agent://";
    let mut found: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let label_ok = rest[..at]
            .rfind('[')
            .is_some_and(|b| rest[b..at].starts_with("[@"));
        rest = &rest[at + MARK.len()..];
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .unwrap_or(rest.len());
        let id = &rest[..end];
        if label_ok && rest[end..].starts_with(')') && !id.is_empty() && id.len() <= 64 {
            let id = id.to_ascii_lowercase();
            if !found.contains(&id) {
                found.push(id);
            }
            if found.len() == MAX {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_structured_mentions_only() {
        let text =
            "hi [@Ada](agent://a-1), [@Bob](agent://b-2) and [@Ada](agent://A-1) [x](agent://c)";
        assert_eq!(agents(text), ["a-1", "b-2"]);
        assert!(agents("@Ada agent://a-1 [@Ada](agent://)").is_empty());
        assert!(agents("[@Ada](agent://a-1").is_empty());
    }
}
