//! `ticket create | list | show | comment | assign | set | timeline | wait`, and `why`

use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::person::Person;
use super::{CliError, Json, output};
use crate::operator_client::encode;
use crate::timeline;

#[derive(Debug, Subcommand)]
pub(super) enum TicketCommand {
    /// Create a ticket
    #[command(after_help = "\
Examples:
  portcullis ticket create 'Fix the build' --assign ada
  portcullis ticket create 'Write docs' --description - < task.md")]
    Create(Box<CreateArgs>),
    /// List tickets, last changed first
    List {
        /// Of this company [default: the only one]
        #[arg(long)]
        company: Option<String>,
        /// Only these, comma-separated: backlog, todo, in_progress, in_review, done, blocked, cancelled
        #[arg(long)]
        status: Option<String>,
        /// Only those that contain this
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: u32,
        #[command(flatten)]
        json: Json,
    },
    /// Show a ticket
    Show {
        /// Identifier or id
        ticket: String,
        #[command(flatten)]
        json: Json,
    },
    /// Comment on a ticket; wakes its agent
    Comment {
        /// Identifier or id
        ticket: String,
        /// The text; - reads it from standard input
        text: String,
        /// Reopen a finished ticket
        #[arg(long)]
        reopen: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Assign a ticket; assigning is the wake
    Assign {
        /// Identifier or id
        ticket: String,
        /// To this agent (id or name)
        #[arg(long, required_unless_present = "user")]
        agent: Option<String>,
        /// To this person
        #[arg(long, conflicts_with = "agent")]
        user: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// Change a ticket's status, priority or title
    Set {
        /// Identifier or id
        ticket: String,
        #[arg(long)]
        status: Option<String>,
        #[arg(long)]
        priority: Option<String>,
        #[arg(long)]
        title: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// Everything that happened: wakes, runs, requests and their verdicts, comments
    Timeline {
        /// Identifier or id
        ticket: String,
        #[command(flatten)]
        json: Json,
    },
    /// Wait until a ticket is at rest; exit 0 when it is done
    Wait {
        /// Identifier or id
        ticket: String,
        /// Give up after this many seconds
        #[arg(long, default_value_t = 3600)]
        timeout: u64,
        #[command(flatten)]
        json: Json,
    },
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// One line
    title: String,
    /// [default: the only company]
    #[arg(long)]
    company: Option<String>,
    /// More text; - reads it from standard input
    #[arg(long)]
    description: Option<String>,
    /// Assign it to this agent (id or name), which wakes it
    #[arg(long, value_name = "AGENT")]
    assign: Option<String>,
    /// critical, high, medium or low
    #[arg(long)]
    priority: Option<String>,
    /// [default: todo]
    #[arg(long)]
    status: Option<String>,
    /// The ticket it is part of
    #[arg(long, value_name = "TICKET")]
    parent: Option<String>,
    /// A ticket it waits for
    #[arg(long, value_name = "TICKET")]
    blocked_by: Vec<String>,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  portcullis why ACM-7")]
pub(super) struct WhyArgs {
    /// Identifier or id
    ticket: String,
    #[command(flatten)]
    json: Json,
}

pub(super) async fn run(person: Person, command: TicketCommand) -> Result<ExitCode, CliError> {
    match command {
        TicketCommand::Create(args) => create(&person, *args).await?,
        TicketCommand::List {
            company,
            status,
            search,
            limit,
            json,
        } => {
            let company = person.company(company.as_deref()).await?;
            let mut target = format!("/api/companies/{company}/issues?limit={limit}");
            for (name, value) in [("status", status), ("q", search)] {
                if let Some(value) = value {
                    target.push_str(&format!("&{name}={}", encode(&value)));
                }
            }
            let all = person.get(&target).await?;
            let columns = [
                ("TICKET", "identifier"),
                ("STATUS", "status"),
                ("PRIORITY", "priority"),
                ("TITLE", "title"),
            ];
            output::either(json.json, &all, || output::table(&all, &columns));
        }
        TicketCommand::Show { ticket, json } => {
            let found = person.get(&path(&ticket, "")).await?;
            output::either(json.json, &found, || output::fields(&found));
        }
        TicketCommand::Comment {
            ticket,
            text,
            reopen,
            json,
        } => {
            let body = json!({ "body": given(text)?, "reopen": reopen });
            let made = person.post(&path(&ticket, "/comments"), &body).await?;
            output::either(json.json, &made, || output::fields(&made));
        }
        TicketCommand::Assign {
            ticket,
            agent,
            user,
            json,
        } => {
            let body = match agent {
                Some(agent) => json!({ "assigneeAgentId": agent }),
                None => json!({ "assigneeUserId": user }),
            };
            change(&person, &ticket, &body, json).await?;
        }
        TicketCommand::Set {
            ticket,
            status,
            priority,
            title,
            json,
        } => {
            let mut body = json!({});
            for (name, value) in [("status", status), ("priority", priority), ("title", title)] {
                if let Some(value) = value {
                    body[name] = json!(value);
                }
            }
            change(&person, &ticket, &body, json).await?;
        }
        TicketCommand::Timeline { ticket, json } => {
            let found = person.get(&path(&ticket, "/timeline")).await?;
            output::either(json.json, &found, || timeline::render::text(&found));
        }
        TicketCommand::Wait {
            ticket,
            timeout,
            json,
        } => {
            return wait(&person, &ticket, Duration::from_secs(timeout), json).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn why(person: Person, args: WhyArgs) -> Result<ExitCode, CliError> {
    let found = person.get(&path(&args.ticket, "/why")).await?;
    output::either(args.json.json, &found, || {
        let mut text = format!(
            "{}: {}",
            found["issue"]["identifier"].as_str().unwrap_or_default(),
            found["summary"].as_str().unwrap_or_default()
        );
        for wake in found["wakes"].as_array().into_iter().flatten() {
            text.push_str(&format!(
                "\nwake {} ({}):",
                wake["reason"], wake["decision"]
            ));
            for gate in wake["gates"].as_array().into_iter().flatten() {
                let mark = if gate["open"] == json!(true) {
                    "open"
                } else {
                    "SHUT"
                };
                let (name, fact) = (&gate["gate"], &gate["fact"]);
                let words = (
                    name.as_str().unwrap_or_default(),
                    fact.as_str().unwrap_or_default(),
                );
                text.push_str(&format!("\n  {mark}  {:<14} {}", words.0, words.1));
            }
        }
        for answer in found["earlierAnswers"].as_array().into_iter().flatten() {
            text.push_str(&format!(
                "\nearlier: {} {} {}",
                answer["at"].as_str().unwrap_or_default(),
                answer["kind"].as_str().unwrap_or_default(),
                answer["facts"]
            ));
        }
        text
    });
    Ok(ExitCode::SUCCESS)
}

async fn create(person: &Person, args: CreateArgs) -> Result<(), CliError> {
    let company = person.company(args.company.as_deref()).await?;
    let mut body = json!({
        "title": args.title,
        "description": args.description.map(given).transpose()?,
        "assigneeAgentId": args.assign,
        "parentId": args.parent,
        "blockedByIssueIds": args.blocked_by,
        // A person who says it twice means it.
        "allowDuplicate": true,
    });
    for (name, value) in [("priority", args.priority), ("status", args.status)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    let made = person
        .post(&format!("/api/companies/{company}/issues"), &body)
        .await?;
    output::either(args.json.json, &made, || output::fields(&made));
    Ok(())
}

async fn change(person: &Person, ticket: &str, body: &Value, json: Json) -> Result<(), CliError> {
    let changed = person.patch(&path(ticket, ""), body).await?;
    output::either(json.json, &changed, || output::fields(&changed));
    Ok(())
}

async fn wait(
    person: &Person,
    ticket: &str,
    patience: Duration,
    json: Json,
) -> Result<ExitCode, CliError> {
    let deadline = Instant::now() + patience;
    loop {
        let found = person.get(&path(ticket, "")).await?;
        let status = found["status"].as_str().unwrap_or_default();
        let rest = ["done", "cancelled", "blocked", "in_review"].contains(&status);
        // A parked ticket may still have a run that is about to start on it.
        if rest && found["executionRunId"].is_null() {
            output::either(json.json, &found, || status.to_owned());
            return Ok(if status == "done" {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(1)
            });
        }
        if Instant::now() >= deadline {
            output::talk(&format!(
                "error: the ticket is {status} after {} s\n  hint: `portcullis why {ticket}` says what it waits for",
                patience.as_secs()
            ));
            return Ok(ExitCode::from(1));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn path(ticket: &str, rest: &str) -> String {
    format!("/api/issues/{}{rest}", encode(ticket))
}

/// The text itself, or standard input for `-`.
fn given(text: String) -> Result<String, CliError> {
    if text != "-" {
        return Ok(text);
    }
    let mut read = String::new();
    std::io::stdin()
        .lock()
        .take(1024 * 1024)
        .read_to_string(&mut read)
        .map_err(|error| CliError::io("reading standard input", error))?;
    Ok(read)
}
