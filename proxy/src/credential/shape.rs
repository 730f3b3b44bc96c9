//! What tokens of well-known issuers look like, by how they begin.

use super::lint::Flaw;

/// How a token begins, what that makes it, and of which kind it is.
const KNOWN: [(&str, &str); 19] = [
    ("ghp_", "a classic GitHub token"),
    ("github_pat_", "a fine-grained GitHub token"),
    ("gho_", "a GitHub login token"),
    ("ghu_", "a GitHub App user token"),
    ("ghs_", "a GitHub installation token"),
    ("ghr_", "a GitHub refresh token"),
    ("sk-ant-api", "an Anthropic API key"),
    ("sk-ant-admin", "an Anthropic admin key"),
    ("sk-ant-oat", "an Anthropic login token"),
    ("sk-ant-ort", "an Anthropic refresh token"),
    ("sk-ant-", "an Anthropic key"),
    ("sk-proj-", "an OpenAI project key"),
    ("sk-", "an OpenAI key"),
    ("glpat-", "a GitLab token"),
    ("npm_", "an npm token"),
    ("pypi-", "a PyPI token"),
    ("xoxb-", "a Slack token"),
    ("AKIA", "an AWS key id"),
    ("eyJ", "a JSON web token"),
];

/// What a value is, in words that tell nothing of it.
pub fn recognise(value: &[u8]) -> &'static str {
    if value.starts_with(b"-----BEGIN ") {
        return "a text in armour";
    }
    let known = KNOWN
        .iter()
        .find(|(begins, _)| value.starts_with(begins.as_bytes()));
    if let Some((_, words)) = known {
        return words;
    }
    if value.contains(&b'!') && value.contains(&b'=') && value.contains(&b'@') {
        return "a Proxmox id=secret pair";
    }
    match uuid::Uuid::try_parse_ascii(value) {
        Ok(_) if value.len() == 36 => "a UUID",
        Ok(_) | Err(_) => "of no known form",
    }
}

/// Words and signs that stand where a value was lost.
pub(super) fn hollow(value: &[u8]) -> Result<(), Flaw> {
    const WORDS: [&str; 12] = [
        "null",
        "(null)",
        "<null>",
        "nil",
        "<nil>",
        "none",
        "<none>",
        "undefined",
        "nan",
        "\"\"",
        "''",
        "no password",
    ];
    if value.iter().all(|byte| *byte == b'*') {
        return Err(Flaw::Masked);
    }
    if WORDS
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
    {
        return Err(Flaw::Placeholder);
    }
    if KNOWN.iter().any(|(begins, _)| value == begins.as_bytes()) {
        return Err(Flaw::PrefixOnly);
    }
    Ok(())
}

pub(super) fn github(value: &[u8], notes: &mut Vec<&'static str>) -> Result<(), Flaw> {
    match recognise(value) {
        "a GitHub refresh token" => Err(Flaw::RefreshToken),
        words if words.contains("GitHub") => Ok(()),
        "of no known form" | "a UUID" => {
            let old = value.len() == 40 && value.iter().all(u8::is_ascii_hexdigit);
            if !old {
                notes.push("the value does not begin as GitHub's tokens do (ghp_, github_pat_, …)");
            }
            Ok(())
        }
        other => Err(Flaw::LooksLike(other)),
    }
}

pub(super) fn anthropic(value: &[u8]) -> Result<(), Flaw> {
    match recognise(value) {
        "an Anthropic refresh token" => Err(Flaw::RefreshToken),
        words if words.contains("Anthropic") => Ok(()),
        "of no known form" => Err(Flaw::NotAnthropic),
        other => Err(Flaw::LooksLike(other)),
    }
}

pub(super) fn openai(value: &[u8]) -> Result<(), Flaw> {
    match recognise(value) {
        // The access token of a login is a web token.
        "an OpenAI project key" | "an OpenAI key" | "a JSON web token" => Ok(()),
        "of no known form" => Err(Flaw::NotOpenai),
        other => Err(Flaw::LooksLike(other)),
    }
}

/// Whether an Anthropic value goes out as Bearer instead of `x-api-key`.
pub(super) fn is_anthropic_login(value: &[u8]) -> bool {
    value.starts_with(b"sk-ant-oat")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_recognised_by_how_they_begin() {
        for (value, words) in [
            ("ghp_0123", "a classic GitHub token"),
            ("github_pat_11A", "a fine-grained GitHub token"),
            ("sk-ant-oat01-x", "an Anthropic login token"),
            ("sk-ant-new-x", "an Anthropic key"),
            ("sk-proj-x", "an OpenAI project key"),
            ("01234567-89ab-cdef-0123-456789abcdef", "a UUID"),
            (
                "a@pve!ci=01234567-89ab-cdef-0123-456789abcdef",
                "a Proxmox id=secret pair",
            ),
            ("hunter2", "of no known form"),
        ] {
            assert_eq!(recognise(value.as_bytes()), words);
        }
    }

    #[test]
    fn a_value_of_another_kind_is_told() {
        let mut notes = Vec::new();
        assert_eq!(
            github(b"sk-ant-api03-x", &mut notes),
            Err(Flaw::LooksLike("an Anthropic API key"))
        );
        assert_eq!(github(b"ghr_x", &mut notes), Err(Flaw::RefreshToken));
        assert!(notes.is_empty());
        assert_eq!(github(b"other", &mut notes), Ok(()));
        assert_eq!(notes.len(), 1, "an enterprise may have forms of its own");
        assert_eq!(github(b"ghp_x", &mut notes), Ok(()));
        assert_eq!(notes.len(), 1);
        assert_eq!(anthropic(b"sk-ant-ort01-x"), Err(Flaw::RefreshToken));
        assert_eq!(anthropic(b"hunter2"), Err(Flaw::NotAnthropic));
        assert_eq!(anthropic(b"sk-ant-api03-x"), Ok(()));
        assert_eq!(
            openai(b"sk-ant-api03-x"),
            Err(Flaw::LooksLike("an Anthropic API key"))
        );
        assert_eq!(openai(b"sk-x"), Ok(()));
        assert_eq!(hollow(b"NULL"), Err(Flaw::Placeholder));
        assert_eq!(hollow(b"********"), Err(Flaw::Masked));
        assert_eq!(hollow(b"sk-ant-"), Err(Flaw::PrefixOnly));
        assert_eq!(hollow(b"nullable"), Ok(()));
    }
}
