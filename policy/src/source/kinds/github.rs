//! Kind `github`: smart HTTP of named repositories.

use super::Rules;
use super::lines::refs;
use crate::pattern::Entry;
use crate::source::document::{Problems, Table, did_you_mean};

/// Reads `repos`, `git` and `refs`.
pub(super) fn read(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
    let repos = table.strings("repos", problems);
    let git = table.string("git", problems);
    let refs = refs(table, problems);
    let (fetch, push) = match git.as_ref().map(|field| field.value.as_str()) {
        None | Some("fetch") => (true, false),
        Some("push") => (true, true),
        Some("none") => (false, false),
        Some(other) => {
            let place = git
                .as_ref()
                .map_or_else(|| table.place.key("git"), |f| f.place.clone());
            let remedy = did_you_mean(other, ["none", "fetch", "push"].into_iter());
            problems.add(&place, format!("`{other}` is not a way to use git"), remedy);
            // Unknown: judge the other keys as if it were the most, so that no second-hand
            // problems are told.
            (true, refs.is_some())
        }
    };
    match &refs {
        Some(field) if !push => problems.add(
            &field.place,
            String::from("`refs` has no effect without `git = \"push\"`"),
            String::from("add `git = \"push\"`, or remove `refs`"),
        ),
        None if push => problems.add(
            &table.place.key("refs"),
            String::from("`git = \"push\"` permits no push without `refs`"),
            String::from("add `refs = [\"refs/heads/agent/*\"]`"),
        ),
        Some(_) | None => {}
    }
    let mut rules = Rules {
        ignore_case: true,
        ..Rules::default()
    };
    match repos {
        None => problems.add(
            &table.place.key("repos"),
            String::from("the service names no repository"),
            String::from("add `repos = [\"owner/name\"]`"),
        ),
        Some(list) if list.value.is_empty() => problems.add(
            &list.place,
            String::from("an empty list of repositories permits nothing"),
            String::from("list a repository, or remove the service"),
        ),
        Some(list) => {
            for repository in &list.value {
                if let Err((problem, remedy)) = check_repository(&repository.value, push) {
                    problems.add(&repository.place, problem, remedy);
                } else if fetch {
                    add_repository(&mut rules, &repository.value, push);
                }
            }
        }
    }
    rules.refs = refs.map(|field| field.value).unwrap_or_default();
    rules
}

/// Smart HTTP, with and without `.git`: what a git client asks for, and nothing else.
fn add_repository(rules: &mut Rules, repository: &str, push: bool) {
    let mut allow = Vec::new();
    let mut pushes = Vec::new();
    for path in [format!("/{repository}"), format!("/{repository}.git")] {
        allow.push(format!("GET {path}/info/refs?service=git-upload-pack"));
        allow.push(format!("POST {path}/git-upload-pack"));
        if push {
            allow.push(format!("GET {path}/info/refs?service=git-receive-pack"));
            pushes.push(format!("POST {path}/git-receive-pack"));
        }
    }
    // A checked repository name makes a well-formed entry.
    rules
        .allow
        .extend(allow.iter().filter_map(|line| Entry::parse(line).ok()));
    rules
        .push
        .extend(pushes.iter().filter_map(|line| Entry::parse(line).ok()));
}

fn check_repository(text: &str, push: bool) -> Result<(), (String, String)> {
    let form = || String::from("write \"owner/name\"; `*` stands for a part of either");
    let good = |part: &str| {
        let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-*".contains(&byte);
        !part.is_empty()
            && part.bytes().all(byte)
            && part != "."
            && part != ".."
            && !part.contains("**")
    };
    let Some((owner, name)) = text.split_once('/') else {
        return Err((format!("`{text}` is not a repository"), form()));
    };
    if !good(owner) || !good(name) {
        return Err((format!("`{text}` is not a repository"), form()));
    }
    if name.to_ascii_lowercase().ends_with(".git") {
        let plain = &text[..text.len() - 4];
        return Err((
            format!("`{text}` ends in .git"),
            format!("write \"{plain}\"; it covers both spellings"),
        ));
    }
    if push && owner.contains('*') {
        let remedy = String::from("name the owner whose repositories may be pushed to");
        return Err((
            format!("`{text}` would permit pushes to repositories of anybody"),
            remedy,
        ));
    }
    Ok(())
}
