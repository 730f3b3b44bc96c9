//! The kinds of service, each turned into plain rules.

use std::sync::Arc;

use super::document::{Field, Problems, Table, did_you_mean};
use super::reach::{self, Defaults};
use crate::authority::Scheme;
use crate::credential::CredentialName;
use crate::pattern::{Case, Entry, RefGlob};
use crate::permit::RuleId;
use crate::service::{Kind, Service};

/// Keys that every kind has.
const COMMON: &[&str] = &["id", "kind", "host", "hosts", "deny", "why"];
/// Keys of every kind that leads over a network.
const NETWORK: &[&str] = &["port", "address", "ca_file", "pin", "credential"];
/// The longest `why`, in bytes; it travels in every refusal.
const MOST_WHY: usize = 300;

/// Keys that a kind has beside [`COMMON`].
fn own_keys(kind: Kind) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        Kind::Http => (NETWORK, &["scheme", "allow", "push", "refs", "ignore_case"]),
        Kind::Github => (NETWORK, &["repos", "git", "refs"]),
        Kind::Proxmox => (NETWORK, &["allow"]),
        Kind::Board => (&[], &["allow"]),
    }
}

fn keys(kind: Kind) -> impl Iterator<Item = &'static str> + Clone {
    let (network, own) = own_keys(kind);
    COMMON.iter().chain(network).chain(own).copied()
}

/// What a kind says about requests.
#[derive(Default)]
struct Rules {
    allow: Vec<Entry>,
    push: Vec<Entry>,
    refs: Vec<RefGlob>,
    ignore_case: bool,
}

/// Reads one service. The flag says whether the file gave it an id. `None` when it cannot be
/// judged further; every reason has been added to the problems then.
pub(super) fn service(table: &mut Table<'_>, problems: &mut Problems) -> Option<(Service, bool)> {
    let kind = kind(table, problems)?;
    let id = id(table, problems);
    let why = why(table, problems);
    let reached = reach::read(table, kind, &defaults(kind), problems);
    let credential = credential(table, kind, problems);
    let rules = match kind {
        Kind::Http => http(table, problems),
        Kind::Github => github(table, problems),
        Kind::Proxmox => proxmox(table, problems),
        Kind::Board => board(table, problems),
    };
    let deny = deny(table, problems);
    unknown_keys(table, kind, problems);

    let (destinations, reach) = reached?;
    let case = if rules.ignore_case {
        Case::Ignore
    } else {
        Case::Exact
    };
    let service = Service {
        id: id.clone().unwrap_or_else(nameless),
        kind,
        why,
        destinations,
        reach: Arc::new(reach),
        credential: credential.as_ref().map(|field| field.value.clone()),
        case,
        allow: rules.allow,
        deny,
        push: rules.push,
        refs: rules.refs,
    };
    refuse_inactive(&service, credential.as_ref(), table, problems);
    Some((service, id.is_some()))
}

/// Stands in until the whole file is known, when the service receives its derived id.
fn nameless() -> RuleId {
    RuleId::parse("unnamed").expect("a lower-case word is an id")
}

fn defaults(kind: Kind) -> Defaults {
    match kind {
        Kind::Http => Defaults {
            host: None,
            port: 443,
            scheme: Scheme::Https,
        },
        Kind::Github => Defaults {
            host: Some("github.com"),
            port: 443,
            scheme: Scheme::Https,
        },
        Kind::Proxmox => Defaults {
            host: None,
            port: 8006,
            scheme: Scheme::Https,
        },
        Kind::Board => Defaults {
            host: Some("board.portcullis.internal"),
            port: 80,
            scheme: Scheme::Http,
        },
    }
}

fn kind(table: &mut Table<'_>, problems: &mut Problems) -> Option<Kind> {
    let names = || Kind::ALL.iter().map(|kind| kind.as_str());
    let Some(field) = table.string("kind", problems) else {
        let all = names().collect::<Vec<_>>().join(", ");
        problems.add(
            &table.place.key("kind"),
            String::from("the service has no kind"),
            format!("add `kind = \"http\"`, or another of: {all}"),
        );
        return None;
    };
    let known = Kind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == field.value);
    if known.is_none() {
        let problem = format!("`{}` is not a kind of service", field.value);
        problems.add(&field.place, problem, did_you_mean(&field.value, names()));
    }
    known
}

fn id(table: &mut Table<'_>, problems: &mut Problems) -> Option<RuleId> {
    let field = table.string("id", problems)?;
    match RuleId::parse(&field.value) {
        Ok(id) => Some(id),
        Err(error) => {
            let remedy = String::from("choose another id, or leave it out");
            problems.add(&field.place, format!("`{}`: {error}", field.value), remedy);
            None
        }
    }
}

fn why(table: &mut Table<'_>, problems: &mut Problems) -> Option<String> {
    let field = table.string("why", problems)?;
    let text = field.value.trim();
    if text.is_empty() || text.len() > MOST_WHY || text.chars().any(char::is_control) {
        problems.add(
            &field.place,
            format!("a `why` is one line of 1 to {MOST_WHY} bytes"),
            String::from("say in a sentence what the service is for; agents read it"),
        );
        return None;
    }
    Some(text.to_owned())
}

fn credential(
    table: &mut Table<'_>,
    kind: Kind,
    problems: &mut Problems,
) -> Option<Field<CredentialName>> {
    if kind == Kind::Board {
        return None;
    }
    let field = table.string("credential", problems)?;
    match CredentialName::parse(&field.value) {
        Ok(value) => Some(Field {
            value,
            place: field.place,
        }),
        Err(error) => {
            let remedy = "write the name that the gate's configuration gives it, never the secret";
            problems.add(&field.place, error.to_string(), remedy.to_owned());
            None
        }
    }
}

fn http(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
    let allow = entries(table, "allow", problems);
    let push_place = table.place.key("push");
    let push = entries(table, "push", problems);
    let refs = refs(table, problems);
    let ignore_case = table
        .flag("ignore_case", problems)
        .is_some_and(|field| field.value);
    match &refs {
        Some(field) if push.is_none() => problems.add(
            &field.place,
            String::from("`refs` has no effect without `push`"),
            String::from("add `push = [\"POST /owner/name.git/git-receive-pack\"]`, or use kind = \"github\""),
        ),
        None if push.is_some() => problems.add(
            &push_place,
            String::from("`push` permits nothing without `refs`"),
            String::from("add `refs = [\"refs/heads/agent/*\"]`"),
        ),
        Some(_) | None => {}
    }
    Rules {
        allow: allow.unwrap_or_default(),
        push: push.unwrap_or_default(),
        refs: refs.map(|field| field.value).unwrap_or_default(),
        ignore_case,
    }
}

fn github(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
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

fn proxmox(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
    let Some(lines) = table.strings("allow", problems) else {
        problems.add(
            &table.place.key("allow"),
            String::from("the service allows nothing"),
            String::from("add `allow = [\"GET /api2/json/**\"]`"),
        );
        return Rules::default();
    };
    let allow = parse_entries(lines, problems, |entry| {
        if entry.starts_with(&["api2", "json"]) {
            return Ok(());
        }
        let remedy =
            String::from("begin the path with /api2/json/; other formats of the API stay shut");
        Err((format!("`{entry}` is not below /api2/json"), remedy))
    });
    Rules {
        allow,
        ..Rules::default()
    }
}

fn board(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
    let allow = entries(table, "allow", problems);
    let allow = allow.unwrap_or_else(|| Entry::parse("* /api/**").into_iter().collect());
    Rules {
        allow,
        ..Rules::default()
    }
}

fn deny(table: &mut Table<'_>, problems: &mut Problems) -> Vec<Entry> {
    let Some(lines) = table.strings("deny", problems) else {
        return Vec::new();
    };
    refuse_empty(&lines, problems);
    let entries = parse_entries(lines, problems, |entry| {
        if !entry.has_query() {
            return Ok(());
        }
        let remedy = String::from("deny the path; a query can be written in many ways");
        Err((format!("`{entry}` denies by query"), remedy))
    });
    entries.into_iter().map(Entry::loosened).collect()
}

fn entries(table: &mut Table<'_>, key: &str, problems: &mut Problems) -> Option<Vec<Entry>> {
    let lines = table.strings(key, problems)?;
    refuse_empty(&lines, problems);
    Some(parse_entries(lines, problems, |_| Ok(())))
}

fn refs(table: &mut Table<'_>, problems: &mut Problems) -> Option<Field<Vec<RefGlob>>> {
    let lines = table.strings("refs", problems)?;
    refuse_empty(&lines, problems);
    let mut globs = Vec::new();
    for line in &lines.value {
        match RefGlob::parse(&line.value) {
            Ok(glob) => globs.push(glob),
            Err((problem, remedy)) => problems.add(&line.place, problem, remedy),
        }
    }
    Some(Field {
        value: globs,
        place: lines.place,
    })
}

fn parse_entries(
    lines: Field<Vec<Field<String>>>,
    problems: &mut Problems,
    check: impl Fn(&Entry) -> Result<(), (String, String)>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for line in lines.value {
        match Entry::parse(&line.value).and_then(|entry| check(&entry).map(|()| entry)) {
            Ok(entry) => entries.push(entry),
            Err((problem, remedy)) => problems.add(&line.place, problem, remedy),
        }
    }
    entries
}

fn refuse_empty(lines: &Field<Vec<Field<String>>>, problems: &mut Problems) {
    if lines.value.is_empty() {
        let problem = String::from("an empty list has no effect");
        problems.add(
            &lines.place,
            problem,
            String::from("fill it, or remove the key"),
        );
    }
}

/// What is configured must have an effect, and a credential never travels in the clear.
fn refuse_inactive(
    service: &Service,
    credential: Option<&Field<CredentialName>>,
    table: &Table<'_>,
    problems: &mut Problems,
) {
    let plain = service
        .destinations
        .iter()
        .any(|to| to.scheme == Scheme::Http);
    if let Some(field) = credential
        && plain
    {
        problems.add(
            &field.place,
            format!("credential `{}` would travel in the clear", field.value),
            String::from("use https, or remove the credential"),
        );
    }
    // A list with a broken line has been told already; only what is right and idle is told here.
    if service.opens() || problems.concern(&table.place) {
        return;
    }
    if service.deny.is_empty() {
        problems.add(
            &table.place,
            String::from("the service permits nothing and denies nothing"),
            String::from("add `allow = [\"GET /v1/**\"]`, or remove the service"),
        );
    } else if let Some(field) = credential {
        problems.add(
            &field.place,
            String::from("a service that only denies injects nothing"),
            String::from("remove the credential"),
        );
    } else if *service.reach != crate::permit::Reach::default() {
        problems.add(
            &table.place,
            String::from("a service that only denies dials nothing"),
            String::from("remove address, ca_file and pin"),
        );
    }
}

fn unknown_keys(table: &Table<'_>, kind: Kind, problems: &mut Problems) {
    for Field { value: key, place } in table.rest(problems) {
        let owners: Vec<&str> = Kind::ALL
            .into_iter()
            .filter(|other| keys(*other).any(|known| known == key))
            .map(Kind::as_str)
            .collect();
        let remedy = if owners.is_empty() {
            did_you_mean(&key, keys(kind))
        } else {
            format!("it belongs to kind {}", owners.join(", "))
        };
        let problem = format!("`{key}` is not a key of kind {}", kind.as_str());
        problems.add(&place, problem, remedy);
    }
}
