//! `[credential.NAME]`: one function per kind that has keys of its own.

use std::collections::BTreeMap;

use policy::authority::Authority;
use policy::credential::CredentialName;
use policy::pattern::HostPattern;

use super::path_key;
use crate::config::document::{At, Section};
use crate::config::{
    CanaryConfig, CredentialConfig, CredentialKind, GithubApp, OauthRefresh, SecretSource,
    StoreConfig,
};
use crate::store::EntryName;

const KINDS: [&str; 10] = [
    "bearer",
    "basic",
    "header",
    "query",
    "github-token",
    "github-app",
    "proxmox-token",
    "anthropic",
    "openai",
    "oauth-refresh",
];

/// Keys that belong to one kind alone.
const OWN_KEYS: [(&str, &str); 10] = [
    ("username", "basic"),
    ("header", "header"),
    ("parameter", "query"),
    ("id", "proxmox-token"),
    ("app", "github-app"),
    ("installation", "github-app"),
    ("repositories", "github-app"),
    ("api", "github-app"),
    ("token_url", "oauth-refresh"),
    ("client_id", "oauth-refresh"),
];

pub(super) fn credentials(
    root: &mut Section<'_, '_>,
    store: Option<&Result<StoreConfig, ()>>,
) -> BTreeMap<CredentialName, CredentialConfig> {
    let mut credentials = BTreeMap::new();
    for (name, mut section) in root.named_sections("credential") {
        let source = source(&mut section, store);
        let (hosts, plain) = credential_hosts(&mut section);
        let kind = credential_kind(&mut section, store);
        let canary = canary(&mut section, plain.as_deref());
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
        if let (Some(name), Some(kind), Some(source), Some(hosts)) = (parsed, kind, source, hosts) {
            credentials.insert(
                name.clone(),
                CredentialConfig {
                    name,
                    kind,
                    source,
                    hosts,
                    canary,
                },
            );
        }
    }
    credentials
}

/// Exactly one of `file`, `descriptor` and `entry`.
fn source(
    section: &mut Section<'_, '_>,
    store: Option<&Result<StoreConfig, ()>>,
) -> Option<SecretSource> {
    const HINT: &str = "add file = \"/etc/portcullis/credentials/NAME\", or entry = \"NAME\" \
         with a [store], or descriptor = 3";
    let given = ["file", "descriptor", "entry"]
        .into_iter()
        .filter(|key| section.has(key))
        .count();
    let file = path_key(section, "file", false);
    let descriptor = section.integer("descriptor");
    let entry = section.string("entry");
    match given {
        0 => section.problem(section.at(), "file", "is missing", HINT),
        1 => {}
        _ => section.problem(
            section.at(),
            "",
            "names several places for one secret",
            "keep one of file, descriptor and entry",
        ),
    }
    if let Some(number) = descriptor {
        match i32::try_from(number.value) {
            Ok(number) if number > 2 => return Some(SecretSource::Descriptor(number)),
            Ok(_) | Err(_) => section.problem(
                number.at,
                "descriptor",
                format!("{} is not an inherited descriptor", number.value),
                "0 to 2 are the standard streams; write 3 or more",
            ),
        }
        return None;
    }
    if let Some(text) = entry {
        if store.is_none() {
            section.problem(
                text.at,
                "entry",
                "there is no [store] to find it in",
                "add [store] with directory, key and operator_entries",
            );
        }
        return match EntryName::parse(&text.value) {
            Ok(name) => Some(SecretSource::Entry(name)),
            Err(problem) => {
                section.problem(
                    text.at,
                    "entry",
                    problem.to_string(),
                    "write it as pass shows it, such as agents/github",
                );
                None
            }
        };
    }
    file.map(SecretSource::File)
}

fn canary(section: &mut Section<'_, '_>, plain_host: Option<&str>) -> Option<CanaryConfig> {
    const HINT: &str = "write \"GET /user\" or \"GET https://api.example.com/user\"";
    let required = section.boolean("canary_required");
    let Some(text) = section.string("canary") else {
        if required.is_some() {
            section.problem(
                section.at(),
                "canary_required",
                "there is no canary to require",
                HINT,
            );
        }
        return None;
    };
    let wrong = |section: &Section<'_, '_>, problem: &str, hint: &str| {
        section.problem(text.at, "canary", problem, hint);
        None
    };
    let Some((method, url)) = text.value.split_once(' ') else {
        return wrong(section, "is not METHOD /path", HINT);
    };
    let method = match method {
        "GET" => http::Method::GET,
        "HEAD" => http::Method::HEAD,
        _ => return wrong(section, "is no harmless method", "write GET or HEAD"),
    };
    let (host, target) = match url.strip_prefix("https://") {
        Some(rest) => match rest.find('/') {
            Some(at) => (&rest[..at], &rest[at..]),
            None => (rest, "/"),
        },
        None => match plain_host {
            Some(host) => (host, url),
            None => {
                return wrong(
                    section,
                    "does not say to which host",
                    "hosts has only patterns: write \"GET https://HOST/path\"",
                );
            }
        },
    };
    let clean = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
    match Authority::with_default_port(host, 443) {
        Ok(authority) if clean => Some(CanaryConfig {
            authority,
            method,
            target: target.to_owned(),
            required: required.unwrap_or(false),
        }),
        Ok(_) => wrong(section, "has no clean path", HINT),
        Err(problem) => wrong(section, &problem.to_string(), HINT),
    }
}

/// The hosts, and the first that is a plain name.
fn credential_hosts(section: &mut Section<'_, '_>) -> (Option<Vec<HostPattern>>, Option<String>) {
    const HINT: &str = "add hosts = [\"api.example.com\"]: the secret can then go nowhere else";
    if !section.has("hosts") {
        section.problem(section.at(), "hosts", "is missing", HINT);
    }
    let Some(list) = section.strings("hosts") else {
        return (None, None);
    };
    if list.value.is_empty() {
        section.problem(list.at, "hosts", "is empty", HINT);
        return (None, None);
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
    let plain = list.value.iter().find(|text| !text.value.contains('*'));
    let plain = plain.map(|text| text.value.clone());
    ((hosts.len() == list.value.len()).then_some(hosts), plain)
}

fn credential_kind(
    section: &mut Section<'_, '_>,
    store: Option<&Result<StoreConfig, ()>>,
) -> Option<CredentialKind> {
    let kind = section.required_string("kind", "\"bearer\"");
    let word = kind.as_ref().map_or("", |kind| kind.value.as_str());
    for (key, of) in OWN_KEYS {
        if section.has(key) && word != of && !word.is_empty() {
            let text = format!("belongs to kind = \"{of}\", not \"{word}\"");
            section.problem(section.at(), key, text, "remove it or change the kind");
        }
    }
    let mut needed = |key, of, example| match word == of {
        true => section.required_string(key, example),
        false => section.string(key),
    };
    let username = needed("username", "basic", "\"NAME\"");
    let header = needed("header", "header", "\"X-Api-Key\"");
    let parameter = needed("parameter", "query", "\"key\"");
    let app = match section.has("app") {
        true => section.string_or_integer("app"),
        false if word == "github-app" => section.required_string("app", "\"APP-ID\""),
        false => None,
    };
    let installation = section.integer("installation");
    let repositories = section.strings("repositories");
    let api = section.string("api");
    let token_url = match word == "oauth-refresh" {
        true => section.required_string("token_url", "\"https://HOST/oauth/token\""),
        false => section.string("token_url"),
    };
    let client = match word == "oauth-refresh" {
        true => section.required_string("client_id", "\"CLIENT\""),
        false => section.string("client_id"),
    };
    let id = section.string("id");
    let kind = kind?;
    match kind.value.as_str() {
        "bearer" => Some(CredentialKind::Bearer),
        "github-token" => Some(CredentialKind::GithubToken),
        "anthropic" => Some(CredentialKind::Anthropic),
        "openai" => Some(CredentialKind::Openai),
        "basic" => basic(section, username?),
        "header" => named_header(section, &header?),
        "query" => query(section, parameter?),
        "proxmox-token" => proxmox(section, id),
        "github-app" => github_app(section, app, installation, repositories, api),
        "oauth-refresh" => oauth(section, store, token_url, client),
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

fn query(section: &Section<'_, '_>, parameter: At<String>) -> Option<CredentialKind> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !parameter.value.bytes().all(plain) {
        section.problem(
            parameter.at,
            "parameter",
            "is not a plain parameter name",
            "use letters, digits, - _ and . alone",
        );
        return None;
    }
    Some(CredentialKind::Query {
        parameter: parameter.value,
    })
}

fn github_app(
    section: &Section<'_, '_>,
    app: Option<At<String>>,
    installation: Option<At<u64>>,
    repositories: Option<At<Vec<At<String>>>>,
    api: Option<At<String>>,
) -> Option<CredentialKind> {
    let Some(installation) = installation else {
        section.problem(
            section.at(),
            "installation",
            "is missing",
            "add installation = NUMBER: it ends the address of the installation's settings page",
        );
        return None;
    };
    let app = app?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !app.value.bytes().all(plain) {
        section.problem(
            app.at,
            "app",
            "is neither an app id nor a client id",
            "write the number or the Iv… that the app's settings page shows",
        );
        return None;
    }
    let mut names = Vec::new();
    for name in repositories.map(|list| list.value).unwrap_or_default() {
        // The API takes names of one owner, the installation's.
        let bare = name.value.rsplit('/').next().unwrap_or_default().to_owned();
        if bare.is_empty() || !bare.bytes().all(plain) {
            section.problem(
                name.at,
                "repositories",
                "holds something that is no repository",
                "write names such as \"tools\" or \"owner/tools\"",
            );
            return None;
        }
        names.push(bare);
    }
    names.sort();
    names.dedup();
    let (host, at) = match &api {
        Some(api) => (api.value.as_str(), api.at),
        None => ("api.github.com", section.at()),
    };
    match Authority::with_default_port(host, 443) {
        Ok(api) => Some(CredentialKind::GithubApp(GithubApp {
            app: app.value,
            installation: installation.value,
            repositories: names,
            api,
        })),
        Err(problem) => {
            section.problem(at, "api", problem.to_string(), "write \"api.github.com\"");
            None
        }
    }
}

fn oauth(
    section: &Section<'_, '_>,
    store: Option<&Result<StoreConfig, ()>>,
    token_url: Option<At<String>>,
    client: Option<At<String>>,
) -> Option<CredentialKind> {
    let state = match store {
        Some(Ok(store)) => store.state.is_some(),
        Some(Err(())) => true,
        None => false,
    };
    if !state {
        section.problem(
            section.at(),
            "kind",
            "oauth-refresh has no place for the token that follows",
            "add [store] state = \"/var/lib/portcullis/proxy/credentials\": it is sealed with the store's key",
        );
    }
    let (url, client) = (token_url?, client?);
    let parts = url.value.strip_prefix("https://").and_then(|rest| {
        let at = rest.find('/')?;
        let authority = Authority::with_default_port(&rest[..at], 443).ok()?;
        let target = &rest[at..];
        let clean = target.bytes().all(|byte| byte.is_ascii_graphic());
        clean.then(|| (authority, target.to_owned()))
    });
    let Some((authority, target)) = parts else {
        section.problem(
            url.at,
            "token_url",
            "is not an https URL with a path",
            "write \"https://HOST/oauth/token\"",
        );
        return None;
    };
    Some(CredentialKind::OauthRefresh(OauthRefresh {
        authority,
        target,
        client: client.value,
    }))
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
