//! The gate test: one ticket through the whole chain, with what must work and what must fail.
//!
//! The agent (`provisioning/gate-test/agent.sh`) does the work inside a run; we file the ticket, wait for its end, print
//! its timeline and hold what it says against what really happened: at the upstream, in the audit log, on the ticket.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use thiserror::Error;

use crate::control;
use crate::file::{self, Access, FileError};
use crate::instance::Instance;
use crate::output::{data, say, say_part};
use crate::process::{Call, ProcessError};

const AGENT: &str = include_str!("../gate-test/agent.sh");
/// Names by which a second gate test finds what the first one made.
const COMPANY: &str = "Gate test";
const AGENT_NAME: &str = "gate-test";
/// How long the run may take.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Error)]
pub enum GateTestError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the gate test could not be set up")]
    Process(#[from] ProcessError),
    #[error("the orchestrator's answer to `{command}` has no {wanted}: {answer}")]
    Answer {
        command: String,
        wanted: &'static str,
        answer: String,
    },
    #[error(
        "the ticket is still {status} after {0:?}\n  hint: `portcullis why {ticket}` says what it waits for",
        PATIENCE
    )]
    TimedOut { ticket: String, status: String },
}

/// Files the ticket, waits, prints the timeline on standard output and judges it. True when everything is as it must be.
///
/// # Errors
/// When the ticket cannot be filed or does not end.
pub fn run(instance: &Instance) -> Result<bool, GateTestError> {
    say("Gate test: a new ticket for an agent in a container of its own");
    let bundle = bundle(instance)?;
    let company = company(instance)?;
    let agent = agent(instance, &company, &bundle)?;
    let ticket = ticket(instance, &company)?;
    say(&format!(
        "        ticket {}, assigned to {AGENT_NAME}: that is the wake",
        ticket.name
    ));
    orchestrator(
        instance,
        &[
            "ticket",
            "assign",
            &ticket.name,
            "--agent",
            &agent,
            "--json",
        ],
    )?;
    let status = wait(instance, &ticket.name)?;
    let timeline = timeline(instance, &ticket.name)?;
    data(&timeline);
    let checks = judge(instance, &status, &timeline);
    say("What the gate test shows:");
    for check in &checks {
        say(&format!(
            "  {} {}",
            if check.holds { "yes" } else { "NO " },
            check.what
        ));
    }
    let passed = checks.iter().all(|check| check.holds);
    say(if passed {
        "Gate test passed: the gate holds"
    } else {
        "Gate test FAILED"
    });
    if !passed {
        let command = instance.layout.command();
        say(&format!(
            "  repair: `{0} run list --ticket {1}`, then `{0} run log RUN` shows what the agent saw",
            command.display(),
            ticket.name
        ));
    }
    Ok(passed)
}

/// A ticket as a person names it.
struct Ticket {
    name: String,
}

/// One fact that has to be true.
struct Check {
    what: String,
    holds: bool,
}

/// The directory that is mounted at `/opt/agent` in the run.
fn bundle(instance: &Instance) -> Result<PathBuf, FileError> {
    let directory = instance.layout.gate_test();
    let repository = format!(
        "https://{}/{}.git",
        instance.upstream_host(),
        instance.record.repo
    );
    file::write(
        &directory.join("agent.sh"),
        AGENT.as_bytes(),
        Access::root(0o755),
    )?;
    let settings = format!("REPOSITORY={repository}\n");
    file::write(
        &directory.join("settings"),
        settings.as_bytes(),
        Access::root(0o644),
    )?;
    Ok(directory)
}

fn orchestrator(instance: &Instance, arguments: &[&str]) -> Result<Value, GateTestError> {
    let text = control::orchestrator(instance, arguments).run()?;
    serde_json::from_str(&text).map_err(|_| GateTestError::Answer {
        command: arguments.join(" "),
        wanted: "JSON",
        answer: text,
    })
}

fn field(answer: &Value, key: &'static str, command: &str) -> Result<String, GateTestError> {
    answer[key]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| GateTestError::Answer {
            command: command.to_owned(),
            wanted: key,
            answer: answer.to_string(),
        })
}

/// The id of the entry of that name in a list.
fn named(list: &Value, name: &str) -> Option<String> {
    let entries = list.as_array()?;
    let entry = entries.iter().find(|entry| entry["name"] == name)?;
    entry["id"].as_str().map(str::to_owned)
}

fn company(instance: &Instance) -> Result<String, GateTestError> {
    let list = orchestrator(instance, &["company", "list", "--json"])?;
    if let Some(id) = named(&list, COMPANY) {
        return Ok(id);
    }
    let made = orchestrator(
        instance,
        &["company", "create", COMPANY, "--prefix", "GATE", "--json"],
    )?;
    field(&made, "id", "company create")
}

fn agent(
    instance: &Instance,
    company: &str,
    bundle: &std::path::Path,
) -> Result<String, GateTestError> {
    let list = orchestrator(instance, &["agent", "list", "--company", company, "--json"])?;
    if let Some(id) = named(&list, AGENT_NAME) {
        return Ok(id);
    }
    let bundle = bundle.display().to_string();
    let made = orchestrator(
        instance,
        &[
            "agent",
            "create",
            AGENT_NAME,
            "--company",
            company,
            "--adapter",
            "process",
            "--bundle",
            &bundle,
            "--json",
            "--",
            "/bin/bash",
            "/opt/agent/agent.sh",
        ],
    )?;
    field(&made, "id", "agent create")
}

fn ticket(instance: &Instance, company: &str) -> Result<Ticket, GateTestError> {
    let made = orchestrator(
        instance,
        &[
            "ticket",
            "create",
            "Gate test: does the gate hold?",
            "--company",
            company,
            "--json",
        ],
    )?;
    Ok(Ticket {
        name: field(&made, "identifier", "ticket create")?,
    })
}

/// Waits until the ticket is at rest and returns its status.
fn wait(instance: &Instance, ticket: &str) -> Result<String, GateTestError> {
    let deadline = Instant::now() + PATIENCE;
    say_part("        running ");
    loop {
        let shown = orchestrator(instance, &["ticket", "show", ticket, "--json"])?;
        let status = field(&shown, "status", "ticket show")?;
        if ["done", "blocked", "in_review", "cancelled"].contains(&status.as_str()) {
            say(&format!(" {status}"));
            return Ok(status);
        }
        if Instant::now() > deadline {
            say("");
            return Err(GateTestError::TimedOut {
                ticket: ticket.to_owned(),
                status,
            });
        }
        say_part(".");
        thread::sleep(Duration::from_millis(200));
    }
}

fn timeline(instance: &Instance, ticket: &str) -> Result<String, GateTestError> {
    Ok(control::orchestrator(instance, &["ticket", "timeline", ticket]).run()?)
}

fn judge(instance: &Instance, status: &str, timeline: &str) -> Vec<Check> {
    let says = |words: &str| timeline.contains(words);
    let mut checks = vec![
        check("the agent finished its ticket as done", status == "done"),
        check(
            "the timeline shows why it was woken",
            says("issue_assigned"),
        ),
        check(
            "a push was allowed with the credential `github`",
            pushed_with_credential(timeline),
        ),
        check(
            "the unlisted host was refused",
            says("destination_not_listed"),
        ),
        check("the push to main was refused", says("ref_not_allowed")),
        check(
            "a direct TCP connection failed",
            says("a direct TCP connection: refused"),
        ),
        check(
            "a DNS lookup outside failed",
            says("a DNS lookup at an outside resolver: refused"),
        ),
    ];
    if instance.has_stand_in() {
        checks.push(check(
            "the pushed commit is in the upstream repository",
            arrived(instance, timeline),
        ));
        checks.push(check(
            "main is untouched there",
            main_is_first_commit(instance),
        ));
    }
    let token =
        fs::read_to_string(instance.layout.credentials().join("github")).unwrap_or_default();
    let shown = token.is_empty() || says(token.trim());
    checks.push(check("the token itself is nowhere in the timeline", !shown));
    checks
}

/// Whether a line of the timeline is an allowed push that carried the credential, by its name.
fn pushed_with_credential(timeline: &str) -> bool {
    timeline.lines().any(|line| {
        ["allowed POST", "git-receive-pack", "credential=github"]
            .iter()
            .all(|part| line.contains(part))
    })
}

fn check(what: &str, holds: bool) -> Check {
    Check {
        what: what.to_owned(),
        holds,
    }
}

/// Whether the branch of the agent's closing comment is at the commit it names, asked of the repository itself.
fn arrived(instance: &Instance, timeline: &str) -> bool {
    let Some((commit, branch)) = claim(timeline) else {
        return false;
    };
    upstream_git(
        instance,
        &["rev-parse", "--verify", &format!("refs/heads/{branch}")],
    )
    .is_some_and(|found| found.trim() == commit)
}

fn main_is_first_commit(instance: &Instance) -> bool {
    upstream_git(instance, &["rev-list", "--count", "refs/heads/main"])
        .is_some_and(|count| count.trim() == "1")
}

fn upstream_git(instance: &Instance, arguments: &[&str]) -> Option<String> {
    let repository = instance
        .layout
        .stand_in()
        .join("git")
        .join(format!("{}.git", instance.record.repo));
    Call::new("git")
        .arg("--git-dir")
        .arg(repository)
        .args(arguments.iter().copied())
        .as_user(&instance.layout.user("standin"))
        .ok()?
        .run()
        .ok()
}

/// `Pushed COMMIT to BRANCH.` in the agent's closing comment.
fn claim(timeline: &str) -> Option<(String, String)> {
    let (_, rest) = timeline.split_once("Pushed ")?;
    let mut words = rest.split_whitespace();
    let commit = words.next()?;
    let branch = words.nth(1)?.trim_end_matches('.');
    let plain = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
    (plain && branch.starts_with("agent/")).then(|| (commit.to_owned(), branch.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_counts_only_with_its_credential() {
        let line =
            "gate allowed POST h:443/a/b.git/git-receive-pack rule=r credential=github status=200";
        assert!(pushed_with_credential(line));
        assert!(!pushed_with_credential(
            &line.replace("credential=github ", "")
        ));
        assert!(!pushed_with_credential(&line.replace("allowed", "REFUSED")));
    }

    #[test]
    fn the_claim_is_read_from_the_closing_comment() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let text = format!("…\nPushed {commit} to agent/gate-test-7. All four …");
        assert_eq!(
            claim(&text),
            Some((commit.to_owned(), "agent/gate-test-7".to_owned()))
        );
        assert_eq!(claim("Pushed nothing to main."), None);
    }
}
