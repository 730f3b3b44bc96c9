//! A policy as plain rules, for `policy show --expanded`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::authority::Scheme;
use crate::condition::{Conditional, Conditions, Pointer};
use crate::model::ModelGlob;
use crate::parameter;
use crate::path::Slashes;
use crate::pattern::{Case, Entry};
use crate::permit::SpkiPin;
use crate::service::{DENY, INSPECTED_BYTES, Kind, SEGMENT, Service, WEBSOCKET};

/// The services as TOML, each of kind http except the board, whose socket no plain rule can name.
/// Reading it again gives a policy that decides the same.
pub(crate) fn toml(services: &[Service]) -> String {
    let mut out = String::from("version = 1\n");
    for service in services {
        out.push('\n');
        out.push_str("[[service]]\n");
        line(&mut out, "id", &quoted(service.id.as_str()));
        out.push_str(&body(service));
    }
    out
}

/// Everything of one service but its id: also what gives services without an id their order.
pub(crate) fn body(service: &Service) -> String {
    let mut out = String::new();
    let kind = match service.kind {
        Kind::Http
        | Kind::Github
        | Kind::Proxmox
        | Kind::Npm
        | Kind::Pypi
        | Kind::Crates
        | Kind::Debian
        | Kind::Llm => Kind::Http,
        Kind::Board => Kind::Board,
    };
    line(&mut out, "kind", &quoted(kind.as_str()));
    let hosts: BTreeSet<String> = service
        .destinations
        .iter()
        .map(|to| to.host.to_string())
        .collect();
    line(&mut out, "hosts", &list(hosts.iter().map(String::as_str)));
    if let Some(first) = service.destinations.first()
        && kind != Kind::Board
    {
        if first.scheme == Scheme::Http {
            line(&mut out, "scheme", &quoted(first.scheme.as_str()));
        }
        line(&mut out, "port", &first.port.to_string());
    }
    if let Some(address) = service.reach.address {
        line(&mut out, "address", &quoted(&address.to_string()));
    }
    if let Some(file) = &service.reach.tls.ca_file {
        line(&mut out, "ca_file", &quoted(file));
    }
    if let Some(pin) = &service.reach.tls.pin {
        line(&mut out, "pin", &quoted(&self::pin(pin)));
    }
    if let Some(credential) = &service.credential {
        line(&mut out, "credential", &quoted(credential.as_str()));
    }
    if service.case == Case::Ignore {
        line(&mut out, "ignore_case", "true");
    }
    if service.slashes == Slashes::Segment {
        line(&mut out, "encoded_slash", &quoted(SEGMENT));
    }
    for (key, entries) in [
        ("allow", &service.allow),
        ("deny", &service.deny),
        ("push", &service.push),
    ] {
        if !entries.is_empty() {
            let texts: BTreeSet<String> = entries.iter().map(Entry::to_string).collect();
            line(&mut out, key, &list(texts.iter().map(String::as_str)));
        }
    }
    if let Some(hold) = &service.hold {
        let texts: BTreeSet<String> = hold.entries.iter().map(Entry::to_string).collect();
        line(&mut out, "hold", &list(texts.iter().map(String::as_str)));
        if !hold.by.is_empty() {
            line(
                &mut out,
                "hold_by",
                &list(hold.by.iter().map(String::as_str)),
            );
        }
        line(&mut out, "hold_seconds", &hold.seconds.to_string());
    }
    for (key, globs) in service.refs.lists() {
        if !globs.is_empty() {
            let refs: BTreeSet<&str> = globs.iter().map(|glob| glob.as_str()).collect();
            line(&mut out, key, &list(refs.into_iter()));
        }
    }
    if service.refs.forward {
        line(&mut out, "force", &quoted(DENY));
    }
    if service.features.trailers {
        line(&mut out, "trailers", "true");
    }
    if service.features.websocket {
        line(&mut out, "upgrade", &list(std::iter::once(WEBSOCKET)));
    }
    for (key, bound) in service.caps.keys() {
        line(&mut out, key, &bound.to_string());
    }
    if service.inspected != INSPECTED_BYTES {
        line(
            &mut out,
            "max_inspected_bytes",
            &service.inspected.to_string(),
        );
    }
    if let Some(rate) = service.rate {
        line(&mut out, "rate", &quoted(&rate.to_string()));
    }
    if let Some(provider) = service.usage {
        line(&mut out, "usage", &quoted(provider.as_str()));
    }
    if let Some(why) = &service.why {
        line(&mut out, "why", &quoted(why));
    }
    let mut tables: Vec<String> = service.when.iter().map(when).collect();
    tables.sort();
    out.extend(tables);
    out
}

/// A pin as a policy writes it.
pub(crate) fn pin(pin: &SpkiPin) -> String {
    format!("sha256/{}", STANDARD.encode(pin.0))
}

/// One `[[service.when]]`.
pub(crate) fn when(conditional: &Conditional) -> String {
    let mut out = String::from("\n[[service.when]]\n");
    let texts: BTreeSet<String> = conditional.entries.iter().map(Entry::to_string).collect();
    line(&mut out, "allow", &list(texts.iter().map(String::as_str)));
    let Conditions {
        query,
        headers,
        json,
        form,
        graphql,
        model,
        path,
        parameters,
        task,
        never,
    } = &conditional.conditions;
    for (key, map) in [("query", query), ("headers", headers), ("form", form)] {
        let member = |(name, values): (&String, &Vec<String>)| {
            let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            format!("{} = {}", quoted(name), one_or_many(&values))
        };
        table(&mut out, key, map.iter().map(member).collect());
    }
    let member = |(pointer, values): (&Pointer, &Vec<Value>)| {
        let value = |value: &Value| match value.as_str() {
            Some(text) => quoted(text),
            None => value.to_string(),
        };
        let values: Vec<String> = values.iter().map(value).collect();
        format!("{} = {}", quoted(&pointer.text), one_or_many(&values))
    };
    table(&mut out, "json", json.iter().map(member).collect());
    if !graphql.is_empty() {
        let words: Vec<String> = graphql.iter().map(ToString::to_string).collect();
        line(&mut out, "graphql", &list(words.iter().map(String::as_str)));
    }
    if let Some(model) = model {
        line(
            &mut out,
            "models",
            &list(model.models.iter().map(ModelGlob::as_str)),
        );
        if let Some(most) = model.max_tokens {
            line(&mut out, "max_tokens", &most.to_string());
        }
        if !model.tools {
            line(&mut out, "tools", "false");
        }
    }
    let member = |name: &str, value: &parameter::Value| {
        format!("{} = {}", quoted(name), quoted(&value.to_string()))
    };
    let segments = path
        .iter()
        .map(|(place, value)| member(&place.to_string(), value));
    table(&mut out, "path", segments.collect());
    if let Some(parameters) = parameters {
        let all = parameters
            .iter()
            .map(|(name, value)| member(&name.to_string(), value));
        let all: Vec<String> = all.collect();
        line(&mut out, "parameters", &format!("{{ {} }}", all.join(", ")));
    }
    if let Some(task) = task {
        line(&mut out, "task", &quoted(task.as_str()));
    }
    if *never {
        line(&mut out, "never", "true");
    }
    out
}

fn table(out: &mut String, key: &str, members: Vec<String>) {
    if !members.is_empty() {
        line(out, key, &format!("{{ {} }}", members.join(", ")));
    }
}

fn one_or_many(values: &[String]) -> String {
    match values {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn line(out: &mut String, key: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{key} = {value}");
}

fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.map(quoted).collect();
    match texts.as_slice() {
        [one] => format!("[{one}]"),
        more => {
            more.iter()
                .fold(String::from("[\n"), |out, text| out + "    " + text + ",\n")
                + "]"
        }
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
