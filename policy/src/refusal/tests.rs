use super::*;

#[test]
fn codes_are_stable_words_with_fitting_statuses() {
    for code in Code::ALL {
        let text = code.as_str();
        assert!(
            text.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{text}"
        );
        assert_eq!(Code::parse(text), Some(*code));
        let status = code.status();
        assert!(
            matches!(
                status,
                400 | 403 | 405 | 407 | 408 | 413 | 417 | 421 | 429 | 431 | 500 | 502..=504
            ),
            "{text}: {status}"
        );
        let json = serde_json::to_string(code).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<Code>(&json).unwrap(), *code);
    }
    assert_eq!(Code::parse("unheard_of"), None);
    let mut texts: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), Code::ALL.len());
}

/// `docs/policy.md` lists exactly these codes with these statuses.
#[test]
fn the_documentation_lists_every_code() {
    let docs = include_str!("../../../docs/policy.md");
    let table = docs.split("## Refusal codes").nth(1).unwrap();
    let listed: Vec<(String, String)> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let (code, rest) = line.split_once('`').unwrap();
            (
                code.to_owned(),
                rest.trim_matches([' ', '|'])
                    .split(' ')
                    .next()
                    .unwrap()
                    .to_owned(),
            )
        })
        .collect();
    let known: Vec<(String, String)> = Code::ALL
        .iter()
        .map(|code| (code.as_str().to_owned(), code.status().to_string()))
        .collect();
    assert_eq!(listed, known);
}

/// The documentation's complete policies load; `toml` blocks that are complete start with a
/// `[[service]]` or `version`.
#[test]
fn the_documentation_s_policies_load() {
    let docs = include_str!("../../../docs/policy.md");
    let mut count = 0;
    for block in docs.split("```toml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        crate::Policy::parse(text, "docs/policy.md").unwrap_or_else(|problems| {
            panic!("{problems}\n{text}");
        });
        count += 1;
    }
    assert!(count >= 6, "{count}");
}
