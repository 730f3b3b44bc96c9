//! `[credential.NAME]`: one function per kind that has keys of its own.

use std::collections::BTreeMap;

use policy::credential::CredentialName;
use policy::pattern::HostPattern;

use super::path_key;
use crate::config::document::{At, Section};
use crate::config::{CredentialConfig, CredentialKind};

const KINDS: [&str; 5] = ["bearer", "basic", "header", "github-token", "proxmox-token"];

pub(super) fn credentials(
    root: &mut Section<'_, '_>,
) -> BTreeMap<CredentialName, CredentialConfig> {
    let mut credentials = BTreeMap::new();
    for (name, mut section) in root.named_sections("credential") {
        let file = path_key(&mut section, "file", true);
        let hosts = credential_hosts(&mut section);
        let kind = credential_kind(&mut section);
        let parsed = match CredentialName::parse(&name.value) {
            Ok(parsed) => Some(parsed),
            Err(problem) => {
                section.problem(
                    name.at,
                    "",
                    problem.to_string(),
                    "rename it, here and in policies",
                );
                None
            }
        };
        section.close();
        if let (Some(name), Some(kind), Some(file), Some(hosts)) = (parsed, kind, file, hosts) {
            credentials.insert(
                name.clone(),
                CredentialConfig {
                    name,
                    kind,
                    file,
                    hosts,
                },
            );
        }
    }
    credentials
}

fn credential_hosts(section: &mut Section<'_, '_>) -> Option<Vec<HostPattern>> {
    const HINT: &str = "add hosts = [\"api.example.com\"]: the secret can then go nowhere else";
    if !section.has("hosts") {
        section.problem(section.at(), "hosts", "is missing", HINT);
    }
    let list = section.strings("hosts")?;
    if list.value.is_empty() {
        section.problem(list.at, "hosts", "is empty", HINT);
        return None;
    }
    let mut hosts = Vec::new();
    for text in &list.value {
        match HostPattern::parse(&text.value) {
            Ok(pattern) => hosts.push(pattern),
            Err(problem) => {
                section.problem(text.at, "hosts", problem, "write a host name or *.suffix");
            }
        }
    }
    (hosts.len() == list.value.len()).then_some(hosts)
}

fn credential_kind(section: &mut Section<'_, '_>) -> Option<CredentialKind> {
    let kind = section.required_string("kind", "\"bearer\"");
    let word = kind.as_ref().map_or("", |kind| kind.value.as_str());
    for (key, of) in [
        ("username", "basic"),
        ("header", "header"),
        ("id", "proxmox-token"),
    ] {
        if section.has(key) && word != of && !word.is_empty() {
            let text = format!("belongs to kind = \"{of}\", not \"{word}\"");
            section.problem(section.at(), key, text, "remove it or change the kind");
        }
    }
    let username = match word {
        "basic" => section.required_string("username", "\"NAME\""),
        _ => section.string("username"),
    };
    let header = match word {
        "header" => section.required_string("header", "\"X-Api-Key\""),
        _ => section.string("header"),
    };
    let id = section.string("id");
    let kind = kind?;
    match kind.value.as_str() {
        "bearer" => Some(CredentialKind::Bearer),
        "github-token" => Some(CredentialKind::GithubToken),
        "basic" => basic(section, username?),
        "header" => named_header(section, &header?),
        "proxmox-token" => proxmox(section, id),
        other => {
            let nearest = KINDS
                .into_iter()
                .max_by(|a, b| {
                    strsim::jaro_winkler(other, a).total_cmp(&strsim::jaro_winkler(other, b))
                })
                .unwrap_or("bearer");
            section.problem(
                kind.at,
                "kind",
                format!("{other} is not a kind of credential"),
                &format!("did you mean {nearest}? kinds: {}", KINDS.join(", ")),
            );
            None
        }
    }
}

fn basic(section: &Section<'_, '_>, username: At<String>) -> Option<CredentialKind> {
    let bad = |c: char| c == ':' || !(c.is_ascii_graphic() || c == ' ');
    if username.value.contains(bad) {
        section.problem(
            username.at,
            "username",
            "holds a colon or an unprintable character",
            "HTTP Basic cannot carry it: use another user name",
        );
        return None;
    }
    Some(CredentialKind::Basic {
        username: username.value,
    })
}

fn named_header(section: &Section<'_, '_>, header: &At<String>) -> Option<CredentialKind> {
    /// Fields that frame or route a message: a secret in them would change what is sent where.
    const RESERVED: [&str; 9] = [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "proxy-authorization",
        "proxy-connection",
    ];
    let name = http::HeaderName::from_bytes(header.value.as_bytes()).ok();
    match name {
        Some(name) if !RESERVED.contains(&name.as_str()) => {
            Some(CredentialKind::Header { header: name })
        }
        Some(_) | None => {
            section.problem(
                header.at,
                "header",
                format!("{} cannot carry a credential", header.value),
                "write a field name such as \"X-Api-Key\"",
            );
            None
        }
    }
}

fn proxmox(section: &Section<'_, '_>, id: Option<At<String>>) -> Option<CredentialKind> {
    if let Some(id) = &id
        && !crate::credential::is_proxmox_id(&id.value)
    {
        section.problem(
            id.at,
            "id",
            "is not of the form user@realm!name",
            "copy the token ID as Proxmox shows it, such as \"agent@pve!ci\", without the secret",
        );
        return None;
    }
    Some(CredentialKind::ProxmoxToken {
        id: id.map(|id| id.value),
    })
}
