//! `run list | show | log | cancel`

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use super::person::Person;
use super::{CliError, Json, output};
use crate::operator_client::encode;

#[derive(Debug, Subcommand)]
pub(super) enum RunCommand {
    /// List runs, newest first
    #[command(
        after_help = "Examples:\n  portcullis run list --live\n  portcullis run list --ticket ACM-7"
    )]
    List {
        /// Only those that hold a ticket or an agent now
        #[arg(long)]
        live: bool,
        /// Only those of this ticket
        #[arg(long)]
        ticket: Option<String>,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: u32,
        #[command(flatten)]
        json: Json,
    },
    /// Show a run
    Show {
        /// Its id
        run: String,
        #[command(flatten)]
        json: Json,
    },
    /// Print what a run's command wrote
    Log {
        /// Its id
        run: String,
        /// Go on until the run has ended
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Stop a run; the whole container is killed
    Cancel {
        /// Its id
        run: String,
        #[command(flatten)]
        json: Json,
    },
}

pub(super) async fn run(person: Person, command: RunCommand) -> Result<ExitCode, CliError> {
    match command {
        RunCommand::List {
            live,
            ticket,
            limit,
            json,
        } => {
            let mut target = format!("/api/heartbeat-runs?limit={limit}&live={live}");
            if let Some(ticket) = ticket {
                target.push_str(&format!("&issueId={}", encode(&ticket)));
            }
            let all = person.get(&target).await?;
            let columns = [
                ("RUN", "id"),
                ("STATUS", "status"),
                ("CREATED", "createdAt"),
                ("REASON", "reason"),
            ];
            output::either(json.json, &all, || output::table(&all, &columns));
        }
        RunCommand::Show { run, json } => {
            let found = person.get(&path(&run, "")).await?;
            output::either(json.json, &found, || output::fields(&found));
        }
        RunCommand::Log { run, follow, json } => log(&person, &run, follow, json.json).await?,
        RunCommand::Cancel { run, json } => {
            let found = person.post(&path(&run, "/cancel"), &json!({})).await?;
            output::either(json.json, &found, || output::fields(&found));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints pages until the log ends, or, following, until the run does.
async fn log(person: &Person, run: &str, follow: bool, json: bool) -> Result<(), CliError> {
    let mut offset = 0;
    loop {
        // Asked before the page: what is written after the run's end is nothing.
        let live = person.get(&path(run, "")).await?["live"] == json!(true);
        let page = person
            .get_bytes(&path(run, &format!("/log?offset={offset}")))
            .await?;
        offset += page.len();
        if json {
            output::bytes(&page)?;
        } else {
            for line in page.split(|byte| *byte == b'\n') {
                if let Ok(line) = serde_json::from_slice::<Value>(line) {
                    output::foreign(line["chunk"].as_str().unwrap_or_default())?;
                }
            }
        }
        if page.is_empty() {
            if !follow || !live {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn path(run: &str, rest: &str) -> String {
    format!("/api/heartbeat-runs/{}{rest}", encode(run))
}
