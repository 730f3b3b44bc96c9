//! `routine create | list | show | set | pause | resume | run | slots | webhook`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::person::Person;
use super::{CliError, Json, output};
use crate::operator_client::encode;

#[derive(Debug, Subcommand)]
pub(super) enum RoutineCommand {
    /// Make a routine: a ticket that comes back
    #[command(after_help = "\
Examples:
  portcullis routine create 'Update dependencies' --agent ada --cron '0 6 * * 1' --timezone Europe/Berlin
  portcullis routine create 'Look into the alarm' --agent ada --overlap always")]
    Create(Box<CreateArgs>),
    /// List routines
    List {
        /// Of this company [default: the only one]
        #[arg(long)]
        company: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// Show a routine
    Show(One),
    /// Change a routine
    #[command(after_help = "\
Examples:
  portcullis routine set 0190f6d2-... --cron '30 6 * * 1-5'
  portcullis routine set 0190f6d2-... --cron none --catch-up run_once")]
    Set(Box<SetArgs>),
    /// Skip a routine's slots
    Pause(One),
    /// Start the slots of a paused routine again
    Resume(One),
    /// Start a routine now
    Run(One),
    /// List its newest slots and what became of each
    Slots(One),
    /// Let deliveries from outside start it; prints the secret, this once
    #[command(after_help = "\
Examples:
  portcullis routine webhook 0190f6d2-... --kind github_hmac
  portcullis routine webhook 0190f6d2-... --kind none

Deliveries come in where [hooks] of orchestrator.toml says.")]
    Webhook(WebhookArgs),
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// Its id
    routine: String,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, Args)]
pub(super) struct WebhookArgs {
    #[command(flatten)]
    one: One,
    /// How deliveries are proven: bearer, hmac_sha256 or github_hmac; none takes the webhook away
    #[arg(long)]
    kind: String,
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Its name, unique in the company; the title of its tickets
    name: String,
    /// [default: the only company]
    #[arg(long)]
    company: Option<String>,
    /// The agent that its tickets are assigned to (id or name)
    #[arg(long)]
    agent: String,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    json: Json,
}

#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// Its id
    routine: String,
    /// Another name
    #[arg(long)]
    name: Option<String>,
    /// Another agent (id or name)
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    json: Json,
}

/// What can be said of a routine at any time.
#[derive(Debug, Args)]
struct What {
    /// Minute, hour, day, month, weekday; or none
    #[arg(long, value_name = "PATTERN")]
    cron: Option<String>,
    /// The place whose clocks count, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// The description of its tickets
    #[arg(long)]
    description: Option<String>,
    /// The project of its tickets (id)
    #[arg(long)]
    project: Option<String>,
    /// critical, high, medium or low [default: medium]
    #[arg(long)]
    priority: Option<String>,
    /// Slots that were due while nobody looked: skip_missed, run_once or run_all [default: skip_missed]
    #[arg(long, value_name = "POLICY")]
    catch_up: Option<String>,
    /// A slot while the last one's ticket is open: skip_if_active or always [default: skip_if_active]
    #[arg(long, value_name = "POLICY")]
    overlap: Option<String>,
}

pub(super) async fn run(person: Person, command: RoutineCommand) -> Result<ExitCode, CliError> {
    match command {
        RoutineCommand::Create(args) => {
            let company = person.company(args.company.as_deref()).await?;
            let mut new = fields(args.what);
            new.insert("name".to_owned(), json!(args.name));
            new.insert("assigneeAgentId".to_owned(), json!(args.agent));
            let target = format!("/api/companies/{company}/routines");
            let made = person.post(&target, &Value::Object(new)).await?;
            output::either(args.json.json, &made, || output::fields(&made));
        }
        RoutineCommand::List { company, json } => {
            let company = person.company(company.as_deref()).await?;
            let target = format!("/api/companies/{company}/routines");
            let all = person.get(&target).await?;
            let columns = [
                ("NAME", "name"),
                ("STATUS", "status"),
                ("CRON", "cron"),
                ("TIMEZONE", "timezone"),
                ("NEXT", "nextDueAt"),
                ("ID", "id"),
            ];
            output::either(json.json, &all, || output::table(&all, &columns));
        }
        RoutineCommand::Show(one) => {
            let found = person.get(&path(&one.routine, "")).await?;
            output::either(one.json.json, &found, || output::fields(&found));
        }
        RoutineCommand::Set(args) => set(&person, *args).await?,
        RoutineCommand::Pause(one) => patch(&person, &one, json!({ "status": "paused" })).await?,
        RoutineCommand::Resume(one) => patch(&person, &one, json!({ "status": "active" })).await?,
        RoutineCommand::Run(one) => {
            let slot = person.post(&path(&one.routine, "/run"), &json!({})).await?;
            output::either(one.json.json, &slot, || output::fields(&slot));
            if slot["status"] != "started" {
                return Ok(ExitCode::from(1));
            }
        }
        RoutineCommand::Slots(one) => {
            let all = person.get(&path(&one.routine, "/runs")).await?;
            let columns = [
                ("DUE", "dueAt"),
                ("BY", "trigger"),
                ("STATUS", "status"),
                ("TICKET", "issueId"),
                ("REASON", "reason"),
            ];
            output::either(one.json.json, &all, || output::table(&all, &columns));
        }
        RoutineCommand::Webhook(args) => {
            let target = path(&args.one.routine, "/webhook");
            let answer = if args.kind == "none" {
                person.delete(&target).await?
            } else {
                person.put(&target, &json!({ "kind": args.kind })).await?
            };
            output::either(args.one.json.json, &answer, || output::fields(&answer));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn set(person: &Person, args: SetArgs) -> Result<(), CliError> {
    let mut changes = fields(args.what);
    if let Some(name) = args.name {
        changes.insert("name".to_owned(), json!(name));
    }
    if let Some(agent) = args.agent {
        changes.insert("assigneeAgentId".to_owned(), json!(agent));
    }
    if changes.is_empty() {
        return Err(CliError::Usage("nothing to change was given".to_owned()));
    }
    let one = One {
        routine: args.routine,
        json: args.json,
    };
    patch(person, &one, Value::Object(changes)).await
}

async fn patch(person: &Person, one: &One, changes: Value) -> Result<(), CliError> {
    let changed = person.patch(&path(&one.routine, ""), &changes).await?;
    output::either(one.json.json, &changed, || output::fields(&changed));
    Ok(())
}

fn fields(what: What) -> Map<String, Value> {
    let given = [
        ("cron", what.cron),
        ("timezone", what.timezone),
        ("description", what.description),
        ("projectId", what.project),
        ("priority", what.priority),
        ("catchUp", what.catch_up),
        ("overlap", what.overlap),
    ];
    let given = given.into_iter();
    given
        .filter_map(|(key, value)| match value {
            Some(none) if key == "cron" && none == "none" => Some((key.to_owned(), Value::Null)),
            Some(text) => Some((key.to_owned(), json!(text))),
            None => None,
        })
        .collect()
}

fn path(routine: &str, rest: &str) -> String {
    format!("/api/routines/{}{rest}", encode(routine))
}
