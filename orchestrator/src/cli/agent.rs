//! `agent create | list | show | set | pause | resume | terminate`, and `wake`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::person::Person;
use super::{CliError, Json, output};
use crate::operator_client::encode;

#[derive(Debug, Subcommand)]
pub(super) enum AgentCommand {
    /// Create an agent
    #[command(after_help = "\
Examples:
  portcullis agent create ada -- /bin/sh -c 'echo hello'
  portcullis agent create bob --profile web --bundle /srv/agents/bob -- /opt/agent/run")]
    Create(Box<CreateArgs>),
    /// List agents
    List {
        /// Of this company [default: the only one]
        #[arg(long)]
        company: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// Show an agent
    Show {
        /// Id or name
        agent: String,
        #[command(flatten)]
        json: Json,
    },
    /// Start no more runs of an agent; its wakes wait
    Pause {
        /// Id or name
        agent: String,
        #[command(flatten)]
        json: Json,
    },
    /// Start runs of a paused agent again
    Resume {
        /// Id or name
        agent: String,
        #[command(flatten)]
        json: Json,
    },
    /// End an agent for good; its live run is stopped
    Terminate {
        /// Id or name
        agent: String,
        #[command(flatten)]
        json: Json,
    },
    /// Change an agent
    #[command(after_help = "\
Examples:
  portcullis agent set travis --may create,assign,wake
  portcullis agent set ada --may none --profile web
  portcullis agent set ada -- /opt/agent/run --fast")]
    Set(Box<SetArgs>),
}

#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// Id or name
    agent: String,
    /// A word such as engineer
    #[arg(long)]
    role: Option<String>,
    /// A title for people
    #[arg(long)]
    title: Option<String>,
    /// Profile at the gate
    #[arg(long)]
    profile: Option<String>,
    /// The agent it reports to (id)
    #[arg(long, value_name = "AGENT")]
    reports_to: Option<String>,
    /// create, assign, wake, separated by commas, or none: what it may set others to
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    may: Option<Vec<What>>,
    /// What it may spend in a month
    #[arg(long, value_name = "CENTS")]
    budget: Option<i64>,
    #[command(flatten)]
    json: Json,
    /// Another command and its arguments; everything else of its adapter stays
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What an agent may set others to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Create,
    Assign,
    Wake,
    None,
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Its name, unique in the company
    name: String,
    /// [default: the only company]
    #[arg(long)]
    company: Option<String>,
    /// How its runs are started
    #[arg(long, value_enum, default_value_t = Kind::Process)]
    adapter: Kind,
    /// A word such as engineer
    #[arg(long)]
    role: Option<String>,
    /// A title for people
    #[arg(long)]
    title: Option<String>,
    /// The agent it reports to (id)
    #[arg(long, value_name = "AGENT")]
    reports_to: Option<String>,
    /// Profile at the gate, whose policy judges its requests
    #[arg(long, default_value = "default")]
    profile: String,
    /// create, assign, wake, separated by commas, or none: what it may set others to [default: all of it
    /// for the role coordinator, none otherwise]
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    may: Option<Vec<What>>,
    /// Directory with its instructions, mounted read-only at /opt/agent
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// A variable for its command
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Stop a run after this many seconds [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    #[command(flatten)]
    json: Json,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Process,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  portcullis wake ada\n  portcullis wake ada --ticket ACM-7")]
pub(super) struct WakeArgs {
    /// Id or name
    agent: String,
    /// For this ticket [default: its most urgent one]
    #[arg(long)]
    ticket: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) async fn run(person: Person, command: AgentCommand) -> Result<ExitCode, CliError> {
    match command {
        AgentCommand::Create(args) => {
            let company = person.company(args.company.as_deref()).await?;
            let body = new_agent(&args)?;
            let made = person
                .post(&format!("/api/companies/{company}/agents"), &body)
                .await?;
            output::either(args.json.json, &made, || output::fields(&made));
        }
        AgentCommand::List { company, json } => {
            let company = person.company(company.as_deref()).await?;
            let all = person
                .get(&format!("/api/companies/{company}/agents"))
                .await?;
            let columns = [
                ("NAME", "name"),
                ("STATUS", "status"),
                ("ROLE", "role"),
                ("PROFILE", "profile"),
                ("ID", "id"),
            ];
            output::either(json.json, &all, || output::table(&all, &columns));
        }
        AgentCommand::Show { agent, json } => {
            let found = person
                .get(&format!("/api/agents/{}", encode(&agent)))
                .await?;
            output::either(json.json, &found, || output::fields(&found));
        }
        AgentCommand::Pause { agent, json } => set(&person, &agent, "paused", json).await?,
        AgentCommand::Resume { agent, json } => set(&person, &agent, "active", json).await?,
        AgentCommand::Terminate { agent, json } => set(&person, &agent, "terminated", json).await?,
        AgentCommand::Set(args) => change(&person, *args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn wake(person: Person, args: WakeArgs) -> Result<ExitCode, CliError> {
    let target = format!("/api/agents/{}/wakeup", encode(&args.agent));
    let answer = person
        .post(&target, &json!({ "issueId": args.ticket }))
        .await?;
    output::either(args.json.json, &answer, || output::fields(&answer));
    let skipped = answer["status"] == "skipped";
    Ok(if skipped {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

async fn set(person: &Person, agent: &str, status: &str, json: Json) -> Result<(), CliError> {
    let target = format!("/api/agents/{}", encode(agent));
    let changed = person.patch(&target, &json!({ "status": status })).await?;
    output::either(json.json, &changed, || output::fields(&changed));
    Ok(())
}

async fn change(person: &Person, args: SetArgs) -> Result<(), CliError> {
    let target = format!("/api/agents/{}", encode(&args.agent));
    let mut patch = Map::new();
    let texts = [
        ("role", args.role),
        ("title", args.title),
        ("profile", args.profile),
        ("reportsTo", args.reports_to),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            patch.insert(key.to_owned(), json!(value));
        }
    }
    if let Some(cents) = args.budget {
        patch.insert("budgetMonthlyCents".to_owned(), json!(cents));
    }
    if let Some(may) = args.may {
        patch.insert("permissions".to_owned(), permissions(&may)?);
    }
    if !args.command.is_empty() {
        let mut adapter = person.get(&target).await?["adapterConfig"].clone();
        adapter["command"] = json!(args.command);
        patch.insert("adapter".to_owned(), adapter);
    }
    if patch.is_empty() {
        return Err(CliError::Usage("nothing to change was given".to_owned()));
    }
    let changed = person.patch(&target, &Value::Object(patch)).await?;
    output::either(args.json.json, &changed, || output::fields(&changed));
    Ok(())
}

fn permissions(may: &[What]) -> Result<Value, CliError> {
    if may.contains(&What::None) && may.len() > 1 {
        return Err(CliError::Usage("--may none stands alone".to_owned()));
    }
    Ok(
        json!({ "mayCreate": may.contains(&What::Create), "mayAssign": may.contains(&What::Assign),
               "mayWake": may.contains(&What::Wake) }),
    )
}

fn new_agent(args: &CreateArgs) -> Result<Value, CliError> {
    let mut env = Map::new();
    for pair in &args.env {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(CliError::Usage(format!("--env {pair}: must be NAME=VALUE")));
        };
        env.insert(name.to_owned(), json!(value));
    }
    let Kind::Process = args.adapter;
    let mut adapter = json!({ "adapter": "process", "command": args.command, "env": env });
    if let Some(bundle) = &args.bundle {
        let bundle = std::path::absolute(bundle)
            .map_err(|error| CliError::io(format!("--bundle {}", bundle.display()), error))?;
        adapter["bundle"] = json!(bundle);
    }
    if let Some(seconds) = args.timeout {
        adapter["timeout_seconds"] = json!(seconds);
    }
    let mut new = json!({ "name": args.name, "role": args.role, "title": args.title,
                          "reportsTo": args.reports_to, "profile": args.profile,
                          "adapter": adapter });
    if let Some(may) = &args.may {
        new["permissions"] = permissions(may)?;
    }
    Ok(new)
}
