//! `[profile.NAME]` of `orchestrator.toml`.

use toml::de::{DeTable, DeValue};

use super::document::{Document, kind};
use crate::model::Profile;
use crate::model::profile::AgentWakes;
use crate::model::quiet::Quiet;

const KEYS: [&str; 3] = ["agent_wakes", "concurrent", "quiet"];

pub(super) fn all(document: &mut Document<'_>, table: &DeTable<'_>) -> Vec<Profile> {
    let Some(value) = table.get("profile") else {
        return Vec::new();
    };
    let DeValue::Table(sections) = value.get_ref() else {
        let problem = format!("is {}, must be tables", kind(value.get_ref()));
        document.say(value.span(), "profile", problem, "write [profile.NAME]");
        return Vec::new();
    };
    let mut all = Vec::new();
    for (name, value) in sections {
        let name: &str = name.get_ref();
        if name == Profile::EVERY {
            let hint = "write concurrent = N above all tables for the bound of all together";
            document.say(value.span(), "profile.*", "is no profile", hint);
            continue;
        }
        match value.get_ref() {
            DeValue::Table(section) => all.push(one(document, name, section)),
            other => {
                let key = format!("profile.{name}");
                let problem = format!("is {}, must be a table", kind(other));
                document.say(
                    value.span(),
                    &key,
                    problem,
                    format!("write [profile.{name}]"),
                );
            }
        }
    }
    all
}

fn one(document: &mut Document<'_>, name: &str, section: &DeTable<'_>) -> Profile {
    let prefix = format!("profile.{name}.");
    document.unknown(&prefix, section, &KEYS);
    let mut profile = Profile::plain(name);
    if let Some(word) = document.text(section, "agent_wakes") {
        match AgentWakes::parse(word.get_ref()) {
            Some(it) => profile.agent_wakes = it,
            None => {
                let words: Vec<&str> = AgentWakes::ALL.iter().map(|it| it.as_str()).collect();
                let problem = format!("`{}` is not one of {}", word.get_ref(), words.join(", "));
                let key = format!("{prefix}agent_wakes");
                document.say(word.span(), &key, problem, "allow is the default");
            }
        }
    }
    if section.get("concurrent").is_some() {
        let most = document.number(section, &prefix, "concurrent", 0..=1_000_000, 1);
        profile.concurrent = i64::try_from(most).ok();
    }
    if let Some(text) = document.text(section, "quiet") {
        if let Err(problem) = Quiet::parse(text.get_ref()) {
            let hint = "write quiet = \"22:00-06:00 Europe/Berlin\"";
            document.say(text.span(), &format!("{prefix}quiet"), problem, hint);
        }
        profile.quiet = Some(text.into_inner());
    }
    profile
}
