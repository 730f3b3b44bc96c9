//! `policy`: check a file, show what it means, try a request on it.

mod diff;
mod fmt;
mod replay;
mod test;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use policy::credential::CredentialName;
use policy::{Facts, Inspection, Outcome, Policy, Refusal, RuleId, Trial};

use super::output::{Exit, fail, say, say_json, say_pretty, tell};
use crate::config::Config;
use crate::policies::{self, PolicyError};

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Check policy files; names file, line, key, problem and remedy
    Check(CheckArgs),
    /// Show a policy
    Show(ShowArgs),
    /// Say how a request would be judged
    #[command(after_help = "\
Examples:
  portcullis-proxy policy explain GET https://api.example.com/v1/items --policy default.toml
  portcullis-proxy policy explain POST https://github.com/acme/web.git/git-receive-pack \\
      --ref refs/heads/agent/x --policy default.toml")]
    Explain(ExplainArgs),
    /// Try the tests that stand in a policy file
    Test(test::TestArgs),
    /// Say what becomes possible, and what no longer is, with another policy
    #[command(after_help = "\
Example:
  portcullis-proxy policy diff /etc/portcullis/default.toml new.toml")]
    Diff(diff::DiffArgs),
    /// Say what another policy would have said about the traffic on record
    #[command(after_help = "\
Example:
  portcullis-proxy policy replay /var/lib/portcullis/proxy/audit --with new.toml --since 24h")]
    Replay(replay::ReplayArgs),
    /// Write policy files in their one form; comments stay
    Fmt(fmt::FmtArgs),
    /// Print the JSON Schema of policy files, for editors
    Schema,
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Policy files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also check that the credentials they name are bound to their hosts in this configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Policy file
    file: PathBuf,
    /// With every kind expanded into plain rules, as a policy again
    #[arg(long)]
    expanded: bool,
}

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Such as GET
    method: String,
    /// Such as https://api.example.com/v1/items
    url: String,
    /// Policy file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// A ref that the push would create, or `update REF`, `delete REF`; may be given more than once
    #[arg(long = "ref", value_name = "REF")]
    refs: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn policy(command: &PolicyCommand) -> Exit {
    match command {
        PolicyCommand::Check(args) => check(args),
        PolicyCommand::Show(args) => show(args),
        PolicyCommand::Explain(args) => explain(args),
        PolicyCommand::Test(args) => test::test(args),
        PolicyCommand::Diff(args) => diff::diff(args),
        PolicyCommand::Replay(args) => replay::replay(args),
        PolicyCommand::Fmt(args) => fmt::fmt(args),
        PolicyCommand::Schema => match say_pretty(&policy::schema()) {
            Ok(()) => Exit::Yes,
            Err(exit) => exit,
        },
    }
}

fn check(args: &CheckArgs) -> Exit {
    let config = match args.config.as_deref().map(Config::load).transpose() {
        Ok(config) => config,
        Err(problem) => return fail(&problem),
    };
    let mut exit = Exit::Yes;
    for file in &args.files {
        let checked = match &config {
            Some(config) => policies::read(file, config).map(|_| ()),
            None => parse(file).map(|_| ()),
        };
        match checked {
            Ok(()) => {
                say(&format!("{}: ok", file.display()));
            }
            Err(problem @ PolicyError::Unreadable { .. }) => {
                tell(&problem.to_string());
                exit = Exit::CouldNotTell;
            }
            Err(problem) => {
                tell(&problem.to_string());
                if exit == Exit::Yes {
                    exit = Exit::No;
                }
            }
        }
    }
    exit
}

fn parse(file: &Path) -> Result<Policy, PolicyError> {
    let text = policies::read_text(file)?;
    Policy::parse(&text, &file.display().to_string()).map_err(PolicyError::Invalid)
}

/// The policy of a file; what is wrong with it has been told otherwise.
fn parse_or_tell(file: &Path) -> Option<Policy> {
    parse(file)
        .map_err(|problem| tell(&problem.to_string()))
        .ok()
}

fn show(args: &ShowArgs) -> Exit {
    let Some(policy) = parse_or_tell(&args.file) else {
        return Exit::CouldNotTell;
    };
    if args.expanded {
        say(policy.expanded().trim_end());
        return Exit::Yes;
    }
    if policy.services().is_empty() {
        tell("this policy permits nothing");
    }
    for service in policy.services() {
        say(&format!("{} ({})", service.id, service.kind));
        for destination in &service.destinations {
            let Destination { scheme, host, port } = destination;
            say(&format!(
                "  to          {}://{host}:{port}",
                scheme.as_str()
            ));
        }
        if let Some(credential) = &service.credential {
            say(&format!("  credential  {credential}"));
        }
        let lists = [
            ("allow", &service.allow),
            ("when", &service.when),
            ("push", &service.push),
            ("hold", &service.hold),
            ("hold by", &service.hold_by),
            ("refs", &service.refs),
            ("deny", &service.deny),
        ];
        for (word, list) in lists {
            for line in list {
                say(&format!("  {word:<10}  {line}"));
            }
        }
        let bounds = [
            ("max inspected bytes", service.max_inspected_bytes),
            ("max request bytes", service.max_request_bytes),
            ("max response bytes", service.max_response_bytes),
            ("max seconds", service.max_seconds),
            ("hold seconds", service.hold_seconds),
        ];
        for (what, bound) in bounds {
            if let Some(bound) = bound {
                say(&format!("  {what}  {bound}"));
            }
        }
        if let Some(why) = &service.why {
            say(&format!("  why         {why}"));
        }
    }
    Exit::Yes
}

use policy::Destination;

/// What would happen, for people and for scripts.
#[derive(Debug, Default, serde::Serialize)]
struct Verdict {
    verdict: &'static str,
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
}

fn explain(args: &ExplainArgs) -> Exit {
    let Some(policy) = parse_or_tell(&args.policy) else {
        return Exit::CouldNotTell;
    };
    let (scheme, authority, target) = match policy::split_url(&args.url) {
        Ok(parts) => parts,
        Err(problem) => {
            tell(&format!("error: {}: {problem}", args.url));
            return Exit::CouldNotTell;
        }
    };
    let trial = Trial {
        scheme,
        authority,
        method: args.method.clone(),
        target,
        facts: Facts::None,
    };
    let verdict = judge(&policy, trial, &args.refs);
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

fn judge(policy: &Policy, mut trial: Trial, refs: &[String]) -> Verdict {
    if !refs.is_empty() {
        let updates: Result<_, _> = refs.iter().map(|name| policy::ref_update(name)).collect();
        trial.facts = updates.map_or_else(Facts::Unreadable, Facts::Push);
    }
    let (verdict, text, remedy) = match trial.on(policy) {
        Outcome::Allow { rule, credential } => return permitted("allow", &rule, credential),
        Outcome::Hold { rule, credential } => return permitted("hold", &rule, credential),
        Outcome::Refuse(refusal) => return refused(refusal),
        Outcome::Inspect(Inspection::ReceivePack) => (
            "inspect",
            "the gate would read which refs the push moves".to_owned(),
            Some("name them with --ref refs/heads/NAME".to_owned()),
        ),
        Outcome::Inspect(Inspection::Content(wanted)) => (
            "inspect",
            match wanted.body {
                Some(spool) => format!(
                    "the gate would read the body, up to {} bytes, and judge by what stands in it",
                    spool.most
                ),
                None => format!(
                    "the gate would look at the fields {}",
                    wanted.headers.join(", ")
                ),
            },
            None,
        ),
    };
    Verdict {
        verdict,
        text: Some(text),
        remedy,
        ..Verdict::default()
    }
}

fn permitted(verdict: &'static str, rule: &RuleId, credential: Option<CredentialName>) -> Verdict {
    Verdict {
        verdict,
        rule: Some(rule.as_str().to_owned()),
        credential: credential.map(|name| name.to_string()),
        ..Verdict::default()
    }
}

fn refused(refusal: Refusal) -> Verdict {
    Verdict {
        verdict: "refuse",
        rule: refusal.rule.map(|rule| rule.as_str().to_owned()),
        credential: None,
        code: Some(refusal.code.as_str()),
        text: Some(refusal.text),
        why: refusal.why,
        remedy: Some(refusal.remedy),
    }
}

fn print(verdict: &Verdict, args: &ExplainArgs) {
    say(&format!("{} {} {}", verdict.verdict, args.method, args.url));
    let lines = [
        ("rule", verdict.rule.as_deref()),
        ("credential", verdict.credential.as_deref()),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_policy_refuses_with_a_code() {
        let (scheme, authority, target) = policy::split_url("https://h.example/").unwrap();
        let trial = Trial {
            scheme,
            authority,
            method: "GET".to_owned(),
            target,
            facts: Facts::None,
        };
        let verdict = judge(&Policy::empty(), trial, &[]);
        assert_eq!(
            (verdict.verdict, verdict.code),
            ("refuse", Some("destination_not_listed"))
        );
    }
}
