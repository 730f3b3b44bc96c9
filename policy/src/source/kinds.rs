//! The kinds of service, each turned into plain rules.

mod api;
mod github;
mod hold;
mod lines;
mod llm;
mod proxmox;
mod registries;
mod when;

use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use self::api::{Opening, opening as github_opening};
use self::lines::{allow, deny, encoded_slash, push, refs};
use super::document::{Field, Problems, Table, did_you_mean};
use super::reach::{self, Defaults};
use crate::authority::Scheme;
use crate::caps::{Caps, MOST_BYTES, MOST_SECONDS};
use crate::condition::Conditional;
use crate::credential::CredentialName;
use crate::path::Slashes;
use crate::pattern::{Case, Entry, HostPattern};
use crate::permit::RuleId;
use crate::provider::Provider;
use crate::rate::Rate;
use crate::service::{
    Destination, Features, HISTORY_BYTES, INSPECTED_BYTES, Kind, MOST_INSPECTED_BYTES, Refs,
    Service, WEBSOCKET,
};

/// Keys that every kind has.
const COMMON: &[&str] = &[
    "id",
    "kind",
    "host",
    "hosts",
    "deny",
    "hold",
    "hold_by",
    "hold_seconds",
    "max_request_bytes",
    "max_response_bytes",
    "max_seconds",
    "rate",
    "why",
];
/// Keys of every kind that leads over a network.
const NETWORK: &[&str] = &["port", "address", "ca_file", "pin", "credential"];
/// The longest `why`, in bytes; it travels in every refusal.
const MOST_WHY: usize = 300;

/// Keys that a kind has beside [`COMMON`].
fn own_keys(kind: Kind) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        Kind::Http => (
            NETWORK,
            &[
                "scheme",
                "allow",
                "push",
                "refs",
                "create_refs",
                "update_refs",
                "delete_refs",
                "force",
                "ignore_case",
                "encoded_slash",
                "trailers",
                "upgrade",
                "when",
                "max_inspected_bytes",
                "usage",
            ],
        ),
        Kind::Github => (
            NETWORK,
            &[
                "repos",
                "git",
                "refs",
                "create_refs",
                "update_refs",
                "delete_refs",
                "force",
                "tags",
                "api",
                "graphql",
                "also",
                "max_inspected_bytes",
            ],
        ),
        Kind::Proxmox => (
            NETWORK,
            &[
                "api",
                "also",
                "allow",
                "nodes",
                "vmids",
                "templates",
                "pools",
                "storages",
                "bridges",
                "features",
                "encoded_slash",
            ],
        ),
        Kind::Npm | Kind::Pypi | Kind::Crates => {
            (NETWORK, &["packages", "deny_packages", "publish"])
        }
        Kind::Debian => (NETWORK, &["scheme", "packages", "deny_packages"]),
        Kind::Llm => (
            NETWORK,
            &[
                "provider",
                "base_url",
                "models",
                "max_tokens",
                "tools",
                "endpoints",
                "max_inspected_bytes",
            ],
        ),
        Kind::Board => (&[], &["allow"]),
    }
}

/// Every key of a kind.
pub(super) fn keys(kind: Kind) -> impl Iterator<Item = &'static str> + Clone {
    let (network, own) = own_keys(kind);
    COMMON.iter().chain(network).chain(own).copied()
}

/// Every key of conditions.
pub(super) fn when_keys() -> &'static [&'static str] {
    when::KEYS
}

/// What a kind says about requests.
struct Rules {
    allow: Vec<Entry>,
    deny: Vec<Entry>,
    when: Vec<Conditional>,
    inspected: u64,
    push: Vec<Entry>,
    refs: Refs,
    beside: Vec<Beside>,
    ignore_case: bool,
    slashes: Slashes,
    features: Features,
    usage: Option<Provider>,
}

/// What a kind opens at another host in the same name.
struct Beside {
    /// What its id ends in.
    word: &'static str,
    host: &'static str,
    allow: Vec<Entry>,
    when: Vec<Conditional>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            when: Vec::new(),
            inspected: INSPECTED_BYTES,
            push: Vec::new(),
            refs: Refs::default(),
            beside: Vec::new(),
            ignore_case: false,
            slashes: Slashes::Refused,
            features: Features::default(),
            usage: None,
        }
    }
}

/// Reads one service, which may be several at as many hosts. The flag says whether the file gave it an
/// id. Empty when it cannot be judged further; every reason has been added to the problems then.
pub(super) fn services(table: &mut Table<'_>, problems: &mut Problems) -> Vec<(Service, bool)> {
    let Some((service, beside, named)) = service(table, problems) else {
        return Vec::new();
    };
    let mut services = Vec::new();
    for Beside {
        word,
        host,
        allow,
        when,
    } in beside
    {
        let id = match RuleId::parse(&format!("{}-{word}", service.id)) {
            Ok(id) => id,
            Err(error) => {
                let remedy = String::from("choose a shorter id, or leave it out");
                problems.add(&table.place.key("id"), error.to_string(), remedy);
                service.id.clone()
            }
        };
        let Ok(host) = HostPattern::parse(host) else {
            continue;
        };
        let at = |to: &Destination| Destination {
            host: host.clone(),
            ..to.clone()
        };
        services.push((
            Service {
                id,
                destinations: service.destinations.iter().take(1).map(at).collect(),
                allow,
                when,
                push: Vec::new(),
                refs: Refs::default(),
                ..service.clone()
            },
            named,
        ));
    }
    if service.opens() || !service.deny.is_empty() || services.is_empty() {
        services.push((service, named));
    }
    services
}

fn service(table: &mut Table<'_>, problems: &mut Problems) -> Option<(Service, Vec<Beside>, bool)> {
    let kind = kind(table, problems)?;
    let id = id(table, problems);
    let why = why(table, problems);
    let publishes = matches!(kind, Kind::Npm | Kind::Pypi | Kind::Crates)
        && table
            .flag("publish", problems)
            .is_some_and(|field| field.value);
    let models = (kind == Kind::Llm).then(|| llm::place(table, problems));
    let assumed = models
        .as_ref()
        .map_or_else(|| defaults(kind, publishes), |place| place.defaults.clone());
    let reached = reach::read(table, kind, &assumed, problems);
    let credential = credential(table, kind, problems);
    let rules = match kind {
        Kind::Http => http(table, problems),
        Kind::Github => github::read(
            table,
            reached.as_ref().map(|(to, _)| to.as_slice()),
            problems,
        ),
        Kind::Proxmox => proxmox::read(table, problems),
        Kind::Npm => registries::npm(table, publishes, problems),
        Kind::Pypi => registries::pypi(table, publishes, problems),
        Kind::Crates => registries::crates(table, publishes, problems),
        Kind::Debian => registries::debian(table, problems),
        Kind::Board => board(table, problems),
        Kind::Llm => match &models {
            Some(place) => llm::read(table, place, problems),
            None => Rules::default(),
        },
    };
    let mut deny = deny(table, problems);
    deny.extend(rules.deny);
    let hold = hold::read(table, problems);
    let caps = caps(table, problems);
    let rate = rate(table, problems);
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
        slashes: rules.slashes,
        allow: rules.allow,
        when: rules.when,
        inspected: rules.inspected,
        deny,
        hold,
        push: rules.push,
        refs: rules.refs,
        features: rules.features,
        caps,
        rate,
        usage: rules.usage,
    };
    if rules.beside.is_empty() {
        refuse_inactive(&service, credential.as_ref(), table, problems);
    }
    Some((service, rules.beside, id.is_some()))
}

/// Stands in until the whole file is known, when the service receives its derived id.
fn nameless() -> RuleId {
    RuleId::parse("unnamed").expect("a lower-case word is an id")
}

fn defaults(kind: Kind, publishes: bool) -> Defaults {
    match kind {
        Kind::Http | Kind::Llm => Defaults {
            hosts: Vec::new(),
            port: 443,
            scheme: Scheme::Https,
        },
        Kind::Github => Defaults {
            hosts: vec![String::from("github.com")],
            port: 443,
            scheme: Scheme::Https,
        },
        Kind::Proxmox => Defaults {
            hosts: Vec::new(),
            port: 8006,
            scheme: Scheme::Https,
        },
        Kind::Npm | Kind::Pypi | Kind::Crates | Kind::Debian => Defaults {
            hosts: registries::hosts(kind, publishes)
                .iter()
                .map(|host| (*host).to_owned())
                .collect(),
            port: 443,
            scheme: Scheme::Https,
        },
        Kind::Board => Defaults {
            hosts: vec![String::from("board.portcullis.internal")],
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
        unknown_to_every_kind(table, problems);
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

/// The bounds of a request with its answer.
fn caps(table: &mut Table<'_>, problems: &mut Problems) -> Caps {
    let mut read = |key, most| {
        let field = table.number(key, most, problems);
        field.map(|field| field.value)
    };
    Caps {
        request_bytes: read("max_request_bytes", MOST_BYTES),
        response_bytes: read("max_response_bytes", MOST_BYTES),
        seconds: read("max_seconds", MOST_SECONDS),
    }
}

fn http(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
    let slashes = encoded_slash(table, problems);
    let allow = allow(table, slashes, problems);
    let when = when::read(table, slashes, problems);
    let push_place = table.place.key("push");
    let push = push(table, problems);
    let refs = refs(table, problems);
    let forward = refs.as_ref().is_some_and(|field| field.value.forward);
    let inspected = inspected(table, &when, forward, problems);
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
        deny: Vec::new(),
        when,
        inspected,
        push: push.unwrap_or_default(),
        refs: refs.map(|field| field.value).unwrap_or_default(),
        ignore_case,
        slashes,
        features: features(table, problems),
        usage: usage(table, problems),
        ..Rules::default()
    }
}

/// `usage`: whose answers say what they took.
fn usage(table: &mut Table<'_>, problems: &mut Problems) -> Option<Provider> {
    let field = table.string("usage", problems)?;
    let provider = Provider::parse(&field.value);
    if provider.is_none() {
        let names = Provider::ALL.iter().map(|one| one.as_str());
        problems.add(
            &field.place,
            format!("`{}` is not a provider of models", field.value),
            did_you_mean(&field.value, names),
        );
    }
    provider
}

/// `rate`: how often one asker may use the service.
fn rate(table: &mut Table<'_>, problems: &mut Problems) -> Option<Rate> {
    let field = table.string("rate", problems)?;
    match Rate::parse(&field.value) {
        Ok(rate) => Some(rate),
        Err((problem, remedy)) => {
            problems.add(&field.place, problem, remedy);
            None
        }
    }
}

/// `max_inspected_bytes`, which has an effect where a condition asks about a body.
fn inspected(
    table: &mut Table<'_>,
    when: &[Conditional],
    forward: bool,
    problems: &mut Problems,
) -> u64 {
    let Some(field) = table.number("max_inspected_bytes", MOST_INSPECTED_BYTES, problems) else {
        return if forward {
            HISTORY_BYTES
        } else {
            INSPECTED_BYTES
        };
    };
    let asks = |when: &Conditional| when.conditions.wanted(1).body.is_some();
    // A push is read whole as well, to prove that it moves forward.
    if !forward && !when.iter().any(asks) && !problems.concern(&table.place) {
        problems.add(
            &field.place,
            String::from("nothing of this service has a body read"),
            String::from("remove the key, or add a [[service.when]] with json, form or graphql"),
        );
    }
    field.value
}

/// `trailers` and `upgrade`.
fn features(table: &mut Table<'_>, problems: &mut Problems) -> Features {
    let trailers = table
        .flag("trailers", problems)
        .is_some_and(|field| field.value);
    let mut websocket = false;
    if let Some(list) = table.strings("upgrade", problems) {
        if list.value.is_empty() {
            problems.add(
                &list.place,
                String::from("an empty list has no effect"),
                String::from("write `upgrade = [\"websocket\"]`, or remove the key"),
            );
        }
        for name in list.value {
            if name.value == WEBSOCKET {
                websocket = true;
            } else {
                problems.add(
                    &name.place,
                    format!("`{}` is not a protocol that can be opened", name.value),
                    did_you_mean(&name.value, std::iter::once(WEBSOCKET)),
                );
            }
        }
    }
    Features {
        trailers,
        websocket,
    }
}

fn board(table: &mut Table<'_>, problems: &mut Problems) -> Rules {
    let allow = allow(table, Slashes::Refused, problems);
    let allow = allow.unwrap_or_else(|| Entry::parse("* /api/**").into_iter().collect());
    Rules {
        allow,
        ..Rules::default()
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
    if service.deny.is_empty() && service.hold.is_some() {
        // Somebody else's requests may be held by it, as they may be denied.
    } else if service.deny.is_empty() {
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
    } else if service.features != Features::default() {
        problems.add(
            &table.place,
            String::from("a service that only denies opens neither trailers nor an upgrade"),
            String::from("remove trailers and upgrade, or add `allow`"),
        );
    } else if service.slashes != Slashes::Refused {
        problems.add(
            &table.place.key("encoded_slash"),
            String::from("a service that only denies opens no encoded slash"),
            String::from("remove `encoded_slash`, or add `allow`; `deny` reads both ways anyway"),
        );
    } else if service.rate.is_some() || service.usage.is_some() {
        problems.add(
            &table.place,
            String::from("a service that only denies has no requests to count"),
            String::from("remove rate and usage, or add `allow`"),
        );
    } else if let Some((key, _)) = service.caps.keys().next() {
        problems.add(
            &table.place.key(key),
            String::from("a service that only denies has nothing to bound"),
            format!("remove `{key}`, or add `allow`"),
        );
    }
}

/// Without a kind, a key is wrong only if no kind has it.
fn unknown_to_every_kind(table: &Table<'_>, problems: &mut Problems) {
    let all: BTreeSet<&str> = Kind::ALL.into_iter().flat_map(keys).collect();
    for Field { value: key, place } in table.rest(problems) {
        if !all.contains(key.as_str()) {
            let remedy = did_you_mean(&key, all.iter().copied());
            problems.add(&place, format!("`{key}` is not a key of a service"), remedy);
        }
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
