//! Kind `llm`: models of a provider, by name, by how much they may write, with tools or without.

use super::Rules;
use crate::ask::ModelCondition;
use crate::authority::Scheme;
use crate::condition::{Conditional, Conditions};
use crate::model::ModelGlob;
use crate::pattern::Entry;
use crate::provider::Provider;
use crate::source::document::{Field, Problems, Table, did_you_mean};
use crate::source::reach::Defaults;

/// Requests to models carry pictures and long conversations.
const INSPECTED: u64 = 32 << 20;
/// The most that `max_tokens` can say.
pub(super) const MOST_TOKENS: u64 = 1 << 32;

/// What a provider offers under one name.
struct Endpoint {
    word: &'static str,
    /// Whether a model works there: its body is judged, and its answer says what it took.
    works: bool,
    /// Methods and paths below the base.
    lines: &'static [(&'static str, &'static str)],
}

/// Where a provider is, and what it offers.
pub(super) struct Place {
    provider: Option<Provider>,
    base: String,
    pub(super) defaults: Defaults,
}

const fn works(word: &'static str, lines: &'static [(&'static str, &'static str)]) -> Endpoint {
    Endpoint {
        word,
        works: true,
        lines,
    }
}

const fn tells(word: &'static str, lines: &'static [(&'static str, &'static str)]) -> Endpoint {
    Endpoint {
        word,
        works: false,
        lines,
    }
}

const CHAT: Endpoint = works("chat", &[("POST", "/chat/completions")]);
const RESPONSES: Endpoint = works("responses", &[("POST", "/responses")]);
const EMBEDDINGS: Endpoint = works("embeddings", &[("POST", "/embeddings")]);
const MODELS: Endpoint = tells("models", &[("GET", "/models"), ("GET", "/models/**")]);

const ANTHROPIC: &[Endpoint] = &[
    works("messages", &[("POST", "/v1/messages")]),
    tells("count_tokens", &[("POST", "/v1/messages/count_tokens")]),
    tells("models", &[("GET", "/v1/models"), ("GET", "/v1/models/*")]),
];
const OPENAI: &[Endpoint] = &[CHAT, RESPONSES, EMBEDDINGS, MODELS];
const GOOGLE: &[Endpoint] = &[
    works(
        "generate",
        &[
            ("POST", "/v1beta/models/*:generateContent"),
            ("POST", "/v1beta/models/*:streamGenerateContent"),
        ],
    ),
    works("embed", &[("POST", "/v1beta/models/*:embedContent")]),
    tells("count_tokens", &[("POST", "/v1beta/models/*:countTokens")]),
    tells(
        "models",
        &[("GET", "/v1beta/models"), ("GET", "/v1beta/models/*")],
    ),
];
const MANY: &[Endpoint] = &[
    CHAT,
    RESPONSES,
    works("messages", &[("POST", "/messages")]),
    EMBEDDINGS,
    MODELS,
];
const OLLAMA: &[Endpoint] = &[
    works(
        "chat",
        &[("POST", "/api/chat"), ("POST", "/v1/chat/completions")],
    ),
    works("generate", &[("POST", "/api/generate")]),
    works("embed", &[("POST", "/api/embed")]),
    tells(
        "models",
        &[
            ("GET", "/api/tags"),
            ("GET", "/api/version"),
            ("POST", "/api/show"),
            ("GET", "/v1/models"),
        ],
    ),
];

fn endpoints(provider: Provider) -> &'static [Endpoint] {
    match provider {
        Provider::Anthropic => ANTHROPIC,
        Provider::Openai => OPENAI,
        Provider::Google => GOOGLE,
        Provider::Openrouter | Provider::Compatible => MANY,
        Provider::Ollama => OLLAMA,
    }
}

/// Where a provider is unless `base_url` says otherwise.
fn home(provider: Provider) -> (Option<&'static str>, &'static str) {
    match provider {
        Provider::Anthropic => (Some("api.anthropic.com"), ""),
        Provider::Openai => (Some("api.openai.com"), "/v1"),
        Provider::Google => (Some("generativelanguage.googleapis.com"), ""),
        Provider::Openrouter => (Some("openrouter.ai"), "/api/v1"),
        Provider::Ollama | Provider::Compatible => (None, ""),
    }
}

/// Reads `provider` and `base_url`.
pub(super) fn place(table: &mut Table<'_>, problems: &mut Problems) -> Place {
    let names = || Provider::ALL.iter().map(|one| one.as_str());
    let provider = match table.string("provider", problems) {
        None => {
            let all = names().collect::<Vec<_>>().join(", ");
            problems.add(
                &table.place.key("provider"),
                String::from("the service does not say whose models they are"),
                format!("add `provider = \"anthropic\"`, or another of: {all}"),
            );
            None
        }
        Some(field) => {
            let known = Provider::parse(&field.value);
            if known.is_none() {
                let problem = format!("`{}` is not a provider of models", field.value);
                problems.add(&field.place, problem, did_you_mean(&field.value, names()));
            }
            known
        }
    };
    let (host, base) = provider.map_or((Some("unknown.invalid"), ""), home);
    let mut place = Place {
        provider,
        base: base.to_owned(),
        defaults: Defaults {
            hosts: host.map(str::to_owned).into_iter().collect(),
            port: 443,
            scheme: Scheme::Https,
        },
    };
    let Some(field) = table.string("base_url", problems) else {
        if place.defaults.hosts.is_empty() {
            problems.add(
                &table.place.key("base_url"),
                String::from("the service does not say where its models are"),
                String::from("add `base_url = \"https://models.example.com/v1\"`"),
            );
            // Told once.
            place.defaults.hosts = vec![String::from("unknown.invalid")];
        }
        return place;
    };
    match base_url(&field.value) {
        Some((scheme, host, port, path)) => {
            place.base = path;
            place.defaults = Defaults {
                hosts: vec![host],
                port,
                scheme,
            };
        }
        None => problems.add(
            &field.place,
            format!("`{}` is no base URL", field.value),
            String::from(
                "write it as clients have it, such as \"https://models.example.com:8443/v1\"",
            ),
        ),
    }
    for key in ["host", "hosts", "port"] {
        if let Some(place) = table.find(key, problems) {
            problems.add(
                &place,
                format!("`{key}` and `base_url` both say where the service leads"),
                format!("remove `{key}`"),
            );
        }
    }
    place
}

/// Scheme, host, port and path; the path without a slash at its end.
fn base_url(text: &str) -> Option<(Scheme, String, u16, String)> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = match scheme {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        _ => return None,
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let path = path.trim_end_matches('/');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    if authority.contains('@') || !path.bytes().all(plain) || path.contains("//") {
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        Some(_) | None => (authority, scheme.default_port()),
    };
    let whole = !host.is_empty() && port > 0;
    whole.then(|| (scheme, host.to_owned(), port, path.to_owned()))
}

/// Reads `models`, `max_tokens`, `tools` and `endpoints`.
pub(super) fn read(table: &mut Table<'_>, place: &Place, problems: &mut Problems) -> Rules {
    let models = models(table, problems);
    let max_tokens = table.number("max_tokens", MOST_TOKENS, problems);
    let tools = table.flag("tools", problems);
    let words = table.strings("endpoints", problems);
    let mut rules = Rules {
        inspected: INSPECTED,
        usage: place.provider,
        ..Rules::default()
    };
    let Some(provider) = place.provider else {
        return rules;
    };
    let offered = endpoints(provider);
    let wanted = |endpoint: &&Endpoint| {
        words
            .as_ref()
            .is_none_or(|words| words.value.iter().any(|word| word.value == endpoint.word))
    };
    if let Some(words) = &words {
        check(words, provider, problems);
    }
    let mut judged = Vec::new();
    for endpoint in offered.iter().filter(wanted) {
        for (method, path) in endpoint.lines {
            // A base that was checked, and a path of ours, make a well-formed entry.
            let entry = Entry::parse(&format!("{method} {}{path}", place.base)).ok();
            let to = if endpoint.works {
                &mut judged
            } else {
                &mut rules.allow
            };
            to.extend(entry);
        }
    }
    if !judged.is_empty() && !models.is_empty() {
        rules.when.push(Conditional {
            entries: judged,
            conditions: Conditions {
                model: Some(ModelCondition {
                    models,
                    max_tokens: max_tokens.map(|field| field.value),
                    tools: tools.is_none_or(|field| field.value),
                }),
                ..Conditions::default()
            },
        });
    }
    rules
}

fn check(words: &Field<Vec<Field<String>>>, provider: Provider, problems: &mut Problems) {
    let names = || endpoints(provider).iter().map(|endpoint| endpoint.word);
    if words.value.is_empty() {
        problems.add(
            &words.place,
            String::from("an empty list permits nothing"),
            format!("write some of: {}", names().collect::<Vec<_>>().join(", ")),
        );
    }
    for word in &words.value {
        if !names().any(|name| name == word.value) {
            problems.add(
                &word.place,
                format!("{provider} has no endpoint of the name `{}`", word.value),
                did_you_mean(&word.value, names()),
            );
        }
    }
}

/// Reads `models`.
pub(super) fn models(table: &mut Table<'_>, problems: &mut Problems) -> Vec<ModelGlob> {
    let Some(list) = table.strings("models", problems) else {
        problems.add(
            &table.place.key("models"),
            String::from("the service names no model"),
            String::from("add `models = [\"claude-sonnet-*\"]`; `*` stands for any characters"),
        );
        return Vec::new();
    };
    if list.value.is_empty() {
        problems.add(
            &list.place,
            String::from("an empty list of models permits none"),
            String::from("list a model, or remove the service"),
        );
    }
    let mut models = Vec::new();
    for text in &list.value {
        match ModelGlob::parse(&text.value) {
            Ok(glob) => models.push(glob),
            Err((problem, remedy)) => problems.add(&text.place, problem, remedy),
        }
    }
    models
}
