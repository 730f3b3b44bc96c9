//! The policy language as a JSON Schema (draft 2020-12), for editors that complete and check TOML.

use serde_json::{Map, Value, json};

use crate::caps::{MOST_BYTES, MOST_SECONDS};
use crate::provider::Provider;
use crate::refusal::Code;
use crate::service::{Kind, MOST_INSPECTED_BYTES, SEGMENT, WEBSOCKET};
use crate::source::{kind_keys, test_keys, when_keys};

/// The schema of a policy file. What it lets through may still not load: `portcullis policy check` says so.
#[must_use]
pub fn schema() -> Value {
    let services: Vec<Value> = Kind::ALL.into_iter().map(service).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Portcullis policy",
        "description": "Who may reach what with which credential; whatever no service allows is refused.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "version": { "const": 1, "description": "The version of this language." },
            "service": { "type": "array", "items": { "oneOf": services } },
            "test": { "type": "array", "items": test() },
        },
    })
}

fn service(kind: Kind) -> Value {
    let mut properties: Map<String, Value> = Map::new();
    for name in kind_keys(kind) {
        let value = words(kind, name).or_else(|| key(name));
        properties.insert(name.to_owned(), value.unwrap_or(Value::Bool(true)));
    }
    properties.insert("kind".to_owned(), json!({ "const": kind.as_str() }));
    let required = match kind {
        Kind::Llm => vec!["kind", "provider", "models"],
        Kind::Http
        | Kind::Proxmox
        | Kind::Npm
        | Kind::Pypi
        | Kind::Crates
        | Kind::Debian
        | Kind::Board => vec!["kind"],
        Kind::Github => vec!["kind", "repos"],
    };
    json!({
        "title": format!("A service of kind {}", kind.as_str()),
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    })
}

/// Keys that are there in several kinds, with other words in each.
fn words(kind: Kind, name: &str) -> Option<Value> {
    match (kind, name) {
        (Kind::Proxmox, "api") => Some(json!({
            "enum": ["read", "power", "operator"],
            "description": "What is opened of the API of Proxmox VE.",
        })),
        (Kind::Proxmox, "also") => Some(json!({
            "type": "array",
            "minItems": 1,
            "items": { "enum": ["console", "agent-exec"] },
        })),
        (_, _) => None,
    }
}

fn test() -> Value {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let mut properties: Map<String, Value> = Map::new();
    for name in test_keys() {
        let value = match *name {
            "push" => {
                texts("Commands of a push: `create`, `update` or `delete` and a full ref name.")
            }
            "expect" => json!({ "enum": ["allow", "refuse", "hold"] }),
            "code" => json!({ "enum": codes, "description": "The code of the refusal." }),
            "request" => text("`METHOD https://HOST/PATH`."),
            _ => text("Text."),
        };
        properties.insert((*name).to_owned(), value);
    }
    json!({
        "title": "A request and what must become of it; `portcullis policy test` tries it",
        "type": "object",
        "additionalProperties": false,
        "required": ["request", "expect"],
        "properties": properties,
    })
}

/// Entries under conditions.
fn when() -> Value {
    let scalar = json!({ "type": ["string", "integer", "boolean"] });
    let values = json!({ "anyOf": [scalar, { "type": "array", "minItems": 1, "items": scalar }] });
    let map = |description: &str| {
        json!({
            "type": "object", "minProperties": 1, "additionalProperties": values,
            "description": description,
        })
    };
    let mut properties = Map::new();
    for name in when_keys() {
        let value = match *name {
            "query" => map("What named parameters of the query must be; `*` for any characters."),
            "headers" => map("What named fields of the head must be; `*` for any characters."),
            "json" => map("What must stand at JSON pointers of the body."),
            "form" => map("What named fields of a form must be; `*` for any characters."),
            "models" => texts("Models that may be asked; `*` for any characters."),
            "max_tokens" => number(
                1 << 32,
                "The most tokens that a request may ask for; it must say how many.",
            ),
            "tools" => flag("Whether tools may be given to the model."),
            "graphql" => texts("Operations: `query`, `mutation:NAME`, ..."),
            "path" => map("What segments of the path must be, by their place from 1."),
            "parameters" => json!({
                "type": "object", "additionalProperties": { "type": "string" },
                "description": "What the request may carry as parameters, in its query and body; nothing else.",
            }),
            "task" => json!({
                "enum": ["given", "own"],
                "description": "Whether the answer names a task, or the path must name one of the asker's.",
            }),
            "never" => {
                flag("The condition is never met: other conditions open these lines, or nothing.")
            }
            _ => texts("`METHOD /path` lines that are allowed where every condition is met."),
        };
        properties.insert((*name).to_owned(), value);
    }
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["allow"],
            "properties": properties,
        },
    })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn texts(description: &str) -> Value {
    json!({ "type": "array", "minItems": 1, "items": { "type": "string" }, "description": description })
}

fn number(most: u64, description: &str) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": most, "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

/// What one key of a service holds, if it is known here.
fn key(name: &str) -> Option<Value> {
    Some(match name {
        "kind" => text("What the service is."),
        "id" => text("A name for refusals and the audit log."),
        "host" => text("One host, or `*.` and a suffix."),
        "hosts" => texts("Several hosts, instead of `host`."),
        "deny" => texts("`METHOD /path` lines that are refused, whatever else allows them."),
        "allow" => texts(
            "`METHOD /path` lines that are allowed; `*` within a segment, `**` for any segments.",
        ),
        "push" => texts("Lines whose body is a git push, judged by `refs`."),
        "refs" => texts("The refs that a push may create or move."),
        "create_refs" => texts("The refs that a push may create and not move."),
        "update_refs" => texts("The refs that a push may move and not create."),
        "delete_refs" => texts("The refs that a push may delete."),
        "force" => json!({
            "enum": ["deny", "allow"],
            "description": "Whether a push may move refs other than forward; `deny` has it proven. Default allow.",
        }),
        "tags" => texts("Names of tags that a push may create."),
        "api" => json!({
            "enum": ["none", "read", "contribute", "maintain"],
            "description": "What is opened of the REST and GraphQL APIs; default none.",
        }),
        "graphql" => texts("Operations of GraphQL, instead of those that go with `api`."),
        "also" => json!({
            "type": "array",
            "minItems": 1,
            "items": { "enum": ["lfs", "releases", "actions", "gists", "packages"] },
        }),
        "repos" => texts("`owner/name`; `*` stands for a part of either."),
        "git" => {
            json!({ "enum": ["none", "fetch", "push"], "description": "What git may do; default fetch." })
        }
        "max_request_bytes" => number(MOST_BYTES, "The most bytes of a request's body."),
        "max_response_bytes" => number(MOST_BYTES, "The most bytes of an answer's body."),
        "max_seconds" => number(
            MOST_SECONDS,
            "The most seconds that a request with its answer may take.",
        ),
        "provider" => {
            let names: Vec<&str> = Provider::ALL.iter().map(|one| one.as_str()).collect();
            json!({ "enum": names, "description": "Whose models they are." })
        }
        "base_url" => {
            text("Where they are, as clients have it; the provider's own place if it is not said.")
        }
        "models" => texts("Models that may be asked; `*` for any characters."),
        "max_tokens" => number(
            1 << 32,
            "The most tokens that a request may ask for; it must say how many.",
        ),
        "tools" => flag("Whether tools may be given to the model; default true."),
        "endpoints" => {
            texts("What of the provider's interface is open; all that is known if it is not said.")
        }
        "rate" => text("How often one agent may use it, as in `60/minute`."),
        "usage" => {
            let names: Vec<&str> = Provider::ALL.iter().map(|one| one.as_str()).collect();
            json!({ "enum": names, "description": "Whose models answer: what they took is read from their answers." })
        }
        "why" => text("One line that reaches the agent with every refusal by this service."),
        "port" => number(u64::from(u16::MAX), "The port."),
        "address" => text("`IP:PORT` to dial instead of resolving the name."),
        "ca_file" => {
            text("Absolute path of the certificates that are trusted instead of the system's.")
        }
        "pin" => text("`sha256/BASE64` of the public key that the upstream must carry."),
        "credential" => {
            text("The name that the gate's configuration gives a credential; never the secret.")
        }
        "nodes" => texts("The nodes; default: all. `*` stands for a part of a name."),
        "vmids" => texts("The guests, as `101` or `100-199`."),
        "templates" => texts("Further guests that may be cloned, and nothing else."),
        "pools" => texts("The pools that a new guest is put into."),
        "storages" => texts("The storages of disks and templates; default: all."),
        "bridges" => texts("The bridges of network cards; default: all."),
        "features" => {
            texts("Features of containers that may be on, such as `nesting`; default: none.")
        }
        "packages" => {
            texts("The packages that may be read; `*` stands for a part of a name. Default: all.")
        }
        "deny_packages" => texts("Packages that are refused, whatever else allows them."),
        "publish" => flag("Publishing instead of reading, in a service of its own."),
        "hold" => texts("`METHOD /path` lines that wait for a person, read as widely as `deny`."),
        "hold_by" => texts("The accounts that may decide; default: whoever administers the gate."),
        "hold_seconds" => number(
            crate::hold::MOST_SECONDS,
            "How long a decision is waited for, and is good for.",
        ),
        "when" => when(),
        "max_inspected_bytes" => number(
            MOST_INSPECTED_BYTES,
            "The most bytes of a body that is read to judge a request.",
        ),
        "scheme" => json!({ "enum": ["https", "http"] }),
        "ignore_case" => flag("Letters in `allow` and `push` match in either case."),
        "encoded_slash" => {
            json!({ "const": SEGMENT, "description": "An encoded slash is a character of its segment." })
        }
        "trailers" => flag("Fields behind a body cross, as gRPC needs."),
        "upgrade" => json!({ "type": "array", "minItems": 1, "items": { "const": WEBSOCKET } }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_the_loader_knows_is_described_and_no_other() {
        for kind in Kind::ALL {
            for name in kind_keys(kind) {
                assert!(key(name).is_some(), "{} has {name}", kind.as_str());
            }
        }
    }

    #[test]
    fn the_published_schema_is_this_one() {
        let published = include_str!("../../docs/policy.schema.json");
        let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        assert!(
            published == made,
            "write it anew: portcullis-proxy policy schema >docs/policy.schema.json"
        );
    }
}
