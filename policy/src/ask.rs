//! What a request asks of a model, read from its body and its path, and what a rule may say about it.
//!
//! The languages of the providers have the same few members under a handful of names. A name that
//! differs from one of them by letter case or underscores alone counts as that one: some servers take
//! it for that. Where two may be taken for the same thing it cannot be told, and is refused.

use serde_json::{Map, Value};

use crate::condition::Objection;
use crate::model::ModelGlob;
use crate::path::Target;
use crate::refusal::clip;

/// What a request asks of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The model.
    pub model: String,
    /// The most tokens that it may write, if the request says so.
    pub most_output: Option<u64>,
    /// Bytes of the body.
    pub bytes: u64,
    /// Models that may answer in its place.
    others: Vec<String>,
    /// The member that gives it tools, if one does.
    tools: Option<String>,
}

/// What a rule says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelCondition {
    /// The models that may be asked; never empty.
    pub(crate) models: Vec<ModelGlob>,
    /// The most tokens that may be asked for.
    pub(crate) max_tokens: Option<u64>,
    /// Whether tools may be given.
    pub(crate) tools: bool,
}

/// Members that bound what is written.
const BOUNDS: [&str; 4] = [
    "maxtokens",
    "maxcompletiontokens",
    "maxoutputtokens",
    "maxtokenstosample",
];
/// Members that hold such a one.
const HOLDERS: [(&str, &str); 2] = [
    ("generationconfig", "maxoutputtokens"),
    ("options", "numpredict"),
];
/// Members that give a model something to do beside writing.
const TOOLS: [&str; 8] = [
    "tools",
    "functions",
    "toolconfig",
    "mcpservers",
    "container",
    "plugins",
    "websearchoptions",
    "prompt",
];

impl Asked {
    /// Reads a body of `bytes` bytes that was sent to `target`.
    ///
    /// # Errors
    /// What cannot be told.
    pub(crate) fn read(body: &Value, target: &Target<'_>, bytes: u64) -> Result<Self, String> {
        let members = body
            .as_object()
            .ok_or_else(|| String::from("the body is no JSON object"))?;
        let in_path = model_of(target);
        let in_body = only(members, "model")?;
        let in_body = in_body.map(|value| {
            let name = value.as_str();
            name.ok_or_else(|| String::from("`model` is no text"))
        });
        let in_body = in_body.transpose()?;
        let model = match (in_path, in_body) {
            (Some(path), None) => path,
            (Some(path), Some(body)) if path == bare(body) => path,
            (Some(_), Some(_)) => {
                return Err(String::from("path and body name two models"));
            }
            (None, Some(body)) => body.to_owned(),
            (None, None) => return Err(String::from("it names no model")),
        };
        let others = match only(members, "models")? {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                let names = list.iter().map(|one| one.as_str().map(str::to_owned));
                let names: Option<Vec<String>> = names.collect();
                names.ok_or_else(|| String::from("`models` is no list of texts"))?
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                return Err(String::from("`models` is no list"));
            }
        };
        Ok(Self {
            model,
            most_output: bound(members)?,
            bytes,
            others,
            tools: tools(members)?,
        })
    }
}

impl ModelCondition {
    /// Whether it is met.
    pub(crate) fn judge(&self, asked: &Asked) -> Result<(), Objection> {
        let covered = |name: &&String| !self.models.iter().any(|glob| glob.matches(bare(name)));
        let mut names = std::iter::once(&asked.model).chain(&asked.others);
        if let Some(name) = names.find(covered) {
            return Err(Objection::Model {
                found: format!("the model {}", clip(name)),
                wanted: self.listed(),
            });
        }
        if let Some(most) = self.max_tokens
            && asked.most_output.is_none_or(|asked| asked > most)
        {
            return Err(Objection::Model {
                found: match asked.most_output {
                    Some(asked) => format!("{asked} tokens at most"),
                    None => String::from("no bound of what is written"),
                },
                wanted: format!("a bound (max_tokens or its like) of {most} tokens or less"),
            });
        }
        match &asked.tools {
            Some(member) if !self.tools => Err(Objection::Model {
                found: format!("tools (`{}`)", clip(member)),
                wanted: String::from("requests without tools"),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Widens it so that this is met, and says in words by what. `None` where it cannot be said.
    pub(crate) fn admit(&mut self, asked: &Asked) -> Option<Vec<String>> {
        let mut more = Vec::new();
        for name in std::iter::once(&asked.model).chain(&asked.others) {
            let name = bare(name);
            if !self.models.iter().any(|glob| glob.matches(name)) {
                (!name.contains('*')).then_some(())?;
                self.models.push(ModelGlob::parse(name).ok()?);
                more.push(format!("the model is {}", clip(name)));
            }
        }
        if let Some(most) = self.max_tokens {
            match asked.most_output {
                Some(asked) if asked <= most => {}
                Some(asked) => {
                    self.max_tokens = Some(asked);
                    more.push(format!("the model may write up to {asked} tokens"));
                }
                None => {
                    self.max_tokens = None;
                    more.push(String::from("nothing bounds what the model writes"));
                }
            }
        }
        if asked.tools.is_some() && !self.tools {
            self.tools = true;
            more.push(String::from("the model is given tools of any kind"));
        }
        Some(more)
    }

    /// The models, for people.
    pub(crate) fn listed(&self) -> String {
        let names: Vec<&str> = self.models.iter().map(ModelGlob::as_str).collect();
        names.join(", ")
    }

    /// For people.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("model {}", self.listed().replace(", ", " | "));
        if let Some(most) = self.max_tokens {
            line.push_str(&format!(", max_tokens {most}"));
        }
        if !self.tools {
            line.push_str(", no tools");
        }
        line
    }
}

/// Google writes `models/NAME`.
fn bare(name: &str) -> &str {
    name.strip_prefix("models/").unwrap_or(name)
}

/// The model of `.../models/NAME:verb`.
fn model_of(target: &Target<'_>) -> Option<String> {
    let segments: Vec<&str> = target.segments().collect();
    let [.., before, last] = segments.as_slice() else {
        return None;
    };
    let (name, _) = last.split_once(':')?;
    (*before == "models").then(|| name.to_owned())
}

fn bound(members: &Map<String, Value>) -> Result<Option<u64>, String> {
    let mut most = None;
    let mut note = |name: &str, value: &Value| {
        if value.is_null() {
            return Ok(());
        }
        let count = value
            .as_u64()
            .ok_or_else(|| format!("`{name}` is no whole number"))?;
        // Of several the largest: nobody says which one counts.
        most = most.max(Some(count));
        Ok::<(), String>(())
    };
    for name in BOUNDS {
        if let Some(value) = only(members, name)? {
            note(name, value)?;
        }
    }
    for (holder, name) in HOLDERS {
        if let Some(Value::Object(inner)) = only(members, holder)?
            && let Some(value) = only(inner, name)?
        {
            note(name, value)?;
        }
    }
    Ok(most)
}

/// The member that gives tools, as it is written.
fn tools(members: &Map<String, Value>) -> Result<Option<String>, String> {
    let mut found = None;
    for name in TOOLS {
        let there = match only(members, name)? {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Array(list)) => !list.is_empty(),
            // A stored prompt brings its own; one that is written out does not.
            Some(Value::String(_)) => name != "prompt",
            Some(Value::Object(_) | Value::Bool(true) | Value::Number(_)) => true,
        };
        if there && found.is_none() {
            found = Some(name.to_owned());
        }
    }
    Ok(found)
}

/// The one member that may be taken for `folded`.
fn only<'v>(members: &'v Map<String, Value>, folded: &str) -> Result<Option<&'v Value>, String> {
    let mut alike = members.iter().filter(|(name, _)| fold(name) == folded);
    match (alike.next(), alike.next()) {
        (Some((name, _)), Some(_)) => Err(format!("two members may be taken for `{}`", clip(name))),
        (found, None) => Ok(found.map(|(_, value)| value)),
        (None, Some(_)) => Ok(None),
    }
}

/// Without underscores, and letters that some JSON readers take for each other alike.
fn fold(name: &str) -> String {
    name.chars()
        .filter(|c| *c != '_')
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(target: &str, body: &Value) -> Result<Asked, String> {
        Asked::read(body, &Target::parse(target).unwrap(), 10)
    }

    fn condition(max_tokens: Option<u64>, tools: bool) -> ModelCondition {
        let models = ["claude-sonnet-*", "gpt-5", "gemini-2.5-*"];
        let models = models.map(|text| ModelGlob::parse(text).unwrap()).to_vec();
        ModelCondition {
            models,
            max_tokens,
            tools,
        }
    }

    fn met(condition: &ModelCondition, target: &str, body: &Value) -> bool {
        asked(target, body).is_ok_and(|asked| condition.judge(&asked).is_ok())
    }

    #[test]
    fn a_model_is_told_from_body_or_path_in_every_language() {
        let any = condition(None, true);
        let messages = "/v1/messages?beta=true";
        for (target, body) in [
            (
                messages,
                json!({"model": "claude-sonnet-4-5", "max_tokens": 5, "tools": [{}]}),
            ),
            ("/v1/responses", json!({"model": "gpt-5", "input": "x"})),
            (
                "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
                json!({"contents": []}),
            ),
            (
                "/v1beta/models/gemini-2.5-pro:generateContent",
                json!({"model": "models/gemini-2.5-pro"}),
            ),
            (
                "/api/v1/chat/completions",
                json!({"model": "gpt-5", "models": ["claude-sonnet-x"]}),
            ),
        ] {
            assert!(met(&any, target, &body), "{target} {body}");
        }
        for (target, body) in [
            (messages, json!({"model": "claude-opus-4-5"})),
            (messages, json!({"Model": "claude-opus-4-5"})),
            (
                messages,
                json!({"model": "claude-sonnet-4-5", "MODEL": "claude-opus-4-5"}),
            ),
            (messages, json!({"model": ["claude-sonnet-4-5"]})),
            (messages, json!({})),
            (messages, json!([{"model": "claude-sonnet-4-5"}])),
            ("/v1beta/models/gemini-3-pro:generateContent", json!({})),
            (
                "/v1beta/models/gemini-2.5-pro:generateContent",
                json!({"model": "models/gemini-3-pro"}),
            ),
            (
                "/api/v1/chat/completions",
                json!({"model": "gpt-5", "models": ["claude-opus-4-5"]}),
            ),
            (
                "/api/v1/chat/completions",
                json!({"model": "gpt-5", "models": "gpt-5"}),
            ),
        ] {
            assert!(!met(&any, target, &body), "{target} {body}");
        }
    }

    #[test]
    fn a_bound_must_be_stated_and_kept_under_every_name() {
        let bounded = condition(Some(100), true);
        for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
            let body = |count: Value| json!({"model": "gpt-5", name: count});
            assert!(met(&bounded, "/v1/x", &body(json!(100))), "{name}");
            for bad in [json!(101), json!(-1), json!(1.5), json!("1"), json!(null)] {
                assert!(!met(&bounded, "/v1/x", &body(bad.clone())), "{name} {bad}");
            }
        }
        let google = |most: u64| json!({"generationConfig": {"maxOutputTokens": most}});
        let path = "/v1beta/models/gemini-2.5-pro:generateContent";
        assert!(met(&bounded, path, &google(100)) && !met(&bounded, path, &google(101)));
        let ollama = |most: i64| json!({"model": "gpt-5", "options": {"num_predict": most}});
        assert!(
            met(&bounded, "/api/chat", &ollama(100)) && !met(&bounded, "/api/chat", &ollama(-1))
        );
        assert!(
            !met(&bounded, "/v1/x", &json!({"model": "gpt-5"})),
            "none is stated"
        );
        let two = json!({"model": "gpt-5", "max_tokens": 1, "max_completion_tokens": 101});
        assert!(!met(&bounded, "/v1/x", &two), "the larger counts");
    }

    #[test]
    fn tools_are_found_under_every_name() {
        let bare = condition(None, false);
        for (name, value) in [
            ("tools", json!([{}])),
            ("Tools", json!([{}])),
            ("functions", json!([{}])),
            ("mcp_servers", json!([{}])),
            ("toolConfig", json!({})),
            ("web_search_options", json!({})),
            ("plugins", json!([{}])),
            ("prompt", json!({"id": "p"})),
        ] {
            let body = json!({"model": "gpt-5", name: value});
            assert!(!met(&bare, "/v1/x", &body), "{body}");
            assert!(
                met(&condition(None, true), "/v1/x", &body),
                "control: {body}"
            );
        }
        for body in [
            json!({"model": "gpt-5"}),
            json!({"model": "gpt-5", "tools": []}),
            json!({"model": "gpt-5", "tools": null, "prompt": "Say hi"}),
        ] {
            assert!(met(&bare, "/v1/x", &body), "{body}");
        }
    }
}
