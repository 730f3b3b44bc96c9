//! `policy explain`: how a request would be judged, by which facts, and what would let it through.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use policy::credential::CredentialName;
use policy::record::RecordFacts;
use policy::{Decision, Facts, Inspection, Outcome, Policy, Routing, RuleId, Trial, Widening};

use super::super::output::{Exit, say, say_json, tell};
use super::parse_or_tell;
use crate::config::{Config, DEFAULT_PATH};
use crate::inspect::content;
use crate::inspect::receive_pack::{Progress, Reader};

/// The most of a body that is read here; what the gate would read the rule says.
const MOST_BODY: u64 = 128 << 20;

#[derive(Debug, Args)]
pub(in crate::cli) struct ExplainArgs {
    /// Such as GET
    method: String,
    /// Such as https://api.example.com/v1/items
    url: String,
    /// Policy file
    #[arg(long, value_name = "FILE", required_unless_present = "agent")]
    policy: Option<PathBuf>,
    /// The agent who asks, as the gate's configuration names it: by the policy of its profile
    #[arg(long = "as", value_name = "AGENT", conflicts_with = "policy")]
    agent: Option<String>,
    /// The gate's configuration, for --as
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,
    /// The request's body, or `-` for what is piped in: JSON, a form, or the commands of a push
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// A field of the request's head, as in `x-api-version: 2024-01`; may be given more than once
    #[arg(long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// A ref that the push would create, or `update REF`, `delete REF`; may be given more than once
    #[arg(long = "ref", value_name = "REF", conflicts_with = "body")]
    refs: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What would happen, for people and for scripts.
#[derive(Debug, Default, serde::Serialize)]
struct Verdict {
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<RecordFacts>,
    /// The smallest change that lets it through, and all that comes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<Widening>,
}

pub(super) fn explain(args: &ExplainArgs) -> Exit {
    let file = match (&args.policy, &args.agent) {
        (Some(file), _) => Ok(file.clone()),
        (None, Some(agent)) => policy_of(agent, &args.config),
        (None, None) => Err("which policy? write --policy FILE or --as AGENT".to_owned()),
    };
    let file = match file {
        Ok(file) => file,
        Err(problem) => return could_not(&problem),
    };
    let Some(policy) = parse_or_tell(&file) else {
        return Exit::CouldNotTell;
    };
    let trial = match trial(args, &policy) {
        Ok(trial) => trial,
        Err(problem) => return could_not(&problem),
    };
    let verdict = Verdict {
        agent: args.agent.clone(),
        policy: args.agent.is_some().then(|| file.display().to_string()),
        ..judge(&policy, &trial)
    };
    if args.json {
        if let Err(exit) = say_json(&verdict) {
            return exit;
        }
    } else {
        print(&verdict, args);
    }
    match verdict.verdict {
        "allow" => Exit::Yes,
        "refuse" => Exit::No,
        _ => Exit::CouldNotTell,
    }
}

fn could_not(problem: &str) -> Exit {
    tell(&format!("error: {problem}"));
    Exit::CouldNotTell
}

/// The policy by which the gate would judge this agent.
fn policy_of(agent: &str, config: &Path) -> Result<PathBuf, String> {
    let config = Config::load(config).map_err(|problem| problem.to_string())?;
    let file = config.path.display();
    let listen = config.listen.iter();
    let known: Vec<(&str, &str)> = listen
        .flat_map(|listen| {
            let by_uid = listen.identities.iter();
            let by_uid = by_uid.map(|one| (one.agent.as_str(), one.profile.as_str()));
            let by_token = listen.tokens.iter();
            by_uid.chain(by_token.map(|one| (one.agent.as_str(), one.profile.as_str())))
        })
        .collect();
    let unique = |mut list: Vec<&str>| {
        list.sort_unstable();
        list.dedup();
        list.join(", ")
    };
    let mut profiles: Vec<&str> = Vec::new();
    for (name, profile) in &known {
        if *name == agent && !profiles.contains(profile) {
            profiles.push(profile);
        }
    }
    match profiles.as_slice() {
        [profile] => {
            let found = config.profiles.get(*profile);
            let found = found.map(|profile| profile.policy.clone());
            found.ok_or_else(|| format!("{file}: there is no profile {profile}"))
        }
        [] => {
            let names = unique(known.iter().map(|(name, _)| *name).collect());
            let names = if names.is_empty() { "nobody" } else { &names };
            Err(format!(
                "{file}: no agent of the name {agent}, it knows {names}\n  hint: which profile a run has is said \
                 when it is opened; give its policy with --policy"
            ))
        }
        several => Err(format!(
            "{file}: {agent} has several profiles: {}\n  hint: give the policy of one with --policy",
            unique(several.to_vec())
        )),
    }
}

/// The request, with as much of it as the policy asks about.
fn trial(args: &ExplainArgs, policy: &Policy) -> Result<Trial, String> {
    let (scheme, authority, target) =
        policy::split_url(&args.url).map_err(|problem| format!("{}: {problem}", args.url))?;
    let mut trial = Trial {
        scheme,
        authority,
        method: args.method.clone(),
        target,
        facts: Facts::None,
    };
    if !args.refs.is_empty() {
        let updates: Result<_, _> = args
            .refs
            .iter()
            .map(|name| policy::ref_update(name))
            .collect();
        trial.facts = Facts::Push(updates?);
        return Ok(trial);
    }
    if args.body.is_none() && args.headers.is_empty() {
        return Ok(trial);
    }
    let body = args.body.as_deref().map(read).transpose()?;
    let parts = parts(args, &trial, body.as_ref())?;
    let Routing::Route(route) = policy.route(trial.scheme, &trial.authority) else {
        return Ok(trial);
    };
    let asked = policy.decide(&route, &trial.request(), &Facts::None);
    if let Decision::Inspect(wanted) = asked {
        trial.facts = match (wanted, body) {
            (Inspection::ReceivePack, Some(body)) => push(&body)?,
            (Inspection::ReceivePack, None) | (Inspection::History(_), _) => Facts::None,
            // Nothing is said of a body that is asked about.
            (Inspection::Content(wanted), None) if wanted.body.is_some() => Facts::None,
            (Inspection::Content(wanted), body) => {
                Facts::Content(Arc::new(content::read(&parts, &wanted, body.as_ref())))
            }
        };
    }
    Ok(trial)
}

fn read(file: &Path) -> Result<Bytes, String> {
    let told = |problem: std::io::Error| format!("{}: {problem}", file.display());
    let mut bytes = Vec::new();
    if file.as_os_str() == "-" {
        let stdin = std::io::stdin().lock();
        stdin
            .take(MOST_BODY)
            .read_to_end(&mut bytes)
            .map_err(told)?;
    } else {
        let open = std::fs::File::open(file).map_err(told)?;
        open.take(MOST_BODY).read_to_end(&mut bytes).map_err(told)?;
    }
    Ok(bytes.into())
}

/// The head of the request. A body is what it looks like unless a field says what it is.
fn parts(args: &ExplainArgs, trial: &Trial, body: Option<&Bytes>) -> Result<Parts, String> {
    let request = http::Request::builder()
        .method(trial.method.as_str())
        .uri(trial.target.as_str())
        .body(());
    let request = request.map_err(|problem| format!("{} {}: {problem}", args.method, args.url))?;
    let (mut parts, ()) = request.into_parts();
    for field in &args.headers {
        let parsed = field.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::try_from(name.trim()).ok()?;
            Some((name, HeaderValue::try_from(value.trim()).ok()?))
        });
        let (name, value) = parsed.ok_or_else(|| {
            format!("`{field}` is no field\n  hint: write 'content-type: application/json'")
        })?;
        parts.headers.append(name, value);
    }
    if let Some(body) = body
        && !parts.headers.contains_key(header::CONTENT_TYPE)
    {
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        let kind = match first {
            Some(b'{' | b'[') => "application/json",
            _ => "application/x-www-form-urlencoded",
        };
        let kind = HeaderValue::from_static(kind);
        parts.headers.insert(header::CONTENT_TYPE, kind);
    }
    Ok(parts)
}

fn push(body: &Bytes) -> Result<Facts, String> {
    match Reader::default().advance(body) {
        Progress::Done(commands) => Ok(Facts::Push(commands.updates)),
        Progress::Unreadable(problem) => Ok(Facts::Unreadable(problem)),
        Progress::More => Err("the body ends before the push's list of commands does".to_owned()),
    }
}

fn judge(policy: &Policy, trial: &Trial) -> Verdict {
    let facts = trial.facts.summary();
    let permitted = |verdict, rule: &RuleId, credential: Option<CredentialName>| Verdict {
        verdict,
        rule: Some(rule.as_str().to_owned()),
        credential: credential.map(|name| name.to_string()),
        facts: facts.clone(),
        ..Verdict::default()
    };
    let (text, remedy) = match trial.on(policy) {
        Outcome::Allow { rule, credential } => return permitted("allow", &rule, credential),
        Outcome::Hold { rule, credential } => return permitted("hold", &rule, credential),
        Outcome::Refuse(refusal) => {
            return Verdict {
                verdict: "refuse",
                rule: refusal.rule.map(|rule| rule.as_str().to_owned()),
                code: Some(refusal.code.as_str()),
                text: Some(refusal.text),
                why: refusal.why,
                remedy: Some(refusal.remedy),
                facts,
                change: policy.widening(trial),
                ..Verdict::default()
            };
        }
        Outcome::Inspect(Inspection::History(_)) => (
            "the gate would prove from the push and from the repository's history that it moves each ref forward"
                .to_owned(),
            "push: what moves forward passes, and git says which ref does not",
        ),
        Outcome::Inspect(Inspection::ReceivePack) => (
            "the gate would read which refs the push moves".to_owned(),
            "name them with --ref refs/heads/NAME",
        ),
        Outcome::Inspect(Inspection::Content(wanted)) => match wanted.body {
            Some(spool) => (
                format!(
                    "the gate would read the body, up to {} bytes, and judge by what stands in it",
                    spool.most
                ),
                "give it with --body FILE",
            ),
            None => (
                format!(
                    "the gate would look at the fields {}",
                    wanted.headers.join(", ")
                ),
                "give them with --header 'NAME: VALUE'",
            ),
        },
    };
    Verdict {
        verdict: "inspect",
        text: Some(text),
        remedy: Some(remedy.to_owned()),
        ..Verdict::default()
    }
}

fn print(verdict: &Verdict, args: &ExplainArgs) {
    say(&format!("{} {} {}", verdict.verdict, args.method, args.url));
    let facts = verdict.facts.as_ref();
    let facts = facts.and_then(|facts| serde_json::to_string(facts).ok());
    let lines = [
        ("agent", verdict.agent.as_deref()),
        ("policy", verdict.policy.as_deref()),
        ("rule", verdict.rule.as_deref()),
        ("credential", verdict.credential.as_deref()),
        ("facts", facts.as_deref()),
        ("code", verdict.code),
        ("text", verdict.text.as_deref()),
        ("why", verdict.why.as_deref()),
        ("remedy", verdict.remedy.as_deref()),
    ];
    for (word, text) in lines {
        if let Some(text) = text {
            say(&format!("  {word:<10}  {text}"));
        }
    }
    let Some(change) = &verdict.change else {
        return;
    };
    say(&format!(
        "the smallest change that allows it, {}:",
        change.place
    ));
    for line in &change.lines {
        say(&format!("  {line}"));
    }
    say("all that it opens, each with any body, and any query where none is written:");
    for line in &change.opens {
        say(&format!("  {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_policy_refuses_with_a_code_and_a_service_would_help() {
        let trial = Trial::parse("GET https://h.example.com/").unwrap();
        let verdict = judge(&Policy::empty(), &trial);
        assert_eq!(
            (verdict.verdict, verdict.code),
            ("refuse", Some("destination_not_listed"))
        );
        let change = verdict.change.unwrap();
        assert_eq!(change.opens, ["GET https://h.example.com:443/"]);
        assert!(
            change
                .lines
                .contains(&"host = \"h.example.com\"".to_owned())
        );
    }
}
