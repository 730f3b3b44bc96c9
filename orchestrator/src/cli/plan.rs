//! `project create | list`, `goal create | list`, `label create | list | remove`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::person::Person;
use super::{CliError, Json, output};
use crate::operator_client::encode;

#[derive(Debug, Subcommand)]
pub(super) enum ProjectCommand {
    /// Create a project
    Create(New),
    /// List projects
    List(Of),
}

#[derive(Debug, Subcommand)]
pub(super) enum GoalCommand {
    /// Create a goal
    Create(New),
    /// List goals
    List(Of),
}

#[derive(Debug, Subcommand)]
pub(super) enum LabelCommand {
    /// Create a label
    Create {
        /// Its name
        name: String,
        /// #rrggbb
        #[arg(long)]
        color: Option<String>,
        #[command(flatten)]
        of: Of,
    },
    /// List labels
    List(Of),
    /// Remove a label, from its tickets too
    Remove {
        /// Its id
        label: String,
        #[command(flatten)]
        json: Json,
    },
}

#[derive(Debug, Args)]
pub(super) struct New {
    /// Its name
    name: String,
    /// More text
    #[arg(long)]
    description: Option<String>,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, Args)]
pub(super) struct Of {
    /// Of this company [default: the only one]
    #[arg(long)]
    company: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) async fn project(person: Person, command: ProjectCommand) -> Result<ExitCode, CliError> {
    match command {
        ProjectCommand::Create(new) => {
            let body = json!({ "name": new.name, "description": new.description });
            create(&person, "projects", &body, &new.of).await
        }
        ProjectCommand::List(of) => list(&person, "projects", ("NAME", "name"), &of).await,
    }
}

pub(super) async fn goal(person: Person, command: GoalCommand) -> Result<ExitCode, CliError> {
    match command {
        GoalCommand::Create(new) => {
            let body = json!({ "title": new.name, "description": new.description });
            create(&person, "goals", &body, &new.of).await
        }
        GoalCommand::List(of) => list(&person, "goals", ("TITLE", "title"), &of).await,
    }
}

pub(super) async fn label(person: Person, command: LabelCommand) -> Result<ExitCode, CliError> {
    match command {
        LabelCommand::Create { name, color, of } => {
            let body = json!({ "name": name, "color": color });
            create(&person, "labels", &body, &of).await
        }
        LabelCommand::List(of) => list(&person, "labels", ("NAME", "name"), &of).await,
        LabelCommand::Remove { label, json } => {
            let target = format!("/api/labels/{}", encode(&label));
            let gone = person.delete(&target).await?;
            output::either(json.json, &gone, || output::fields(&gone));
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn create(person: &Person, what: &str, body: &Value, of: &Of) -> Result<ExitCode, CliError> {
    let company = person.company(of.company.as_deref()).await?;
    let target = format!("/api/companies/{company}/{what}");
    let made = person.post(&target, body).await?;
    output::either(of.json.json, &made, || output::fields(&made));
    Ok(ExitCode::SUCCESS)
}

async fn list(
    person: &Person,
    what: &str,
    first: (&str, &str),
    of: &Of,
) -> Result<ExitCode, CliError> {
    let company = person.company(of.company.as_deref()).await?;
    let all = person
        .get(&format!("/api/companies/{company}/{what}"))
        .await?;
    let columns = [first, ("STATUS", "status"), ("ID", "id")];
    let shown = if what == "labels" {
        vec![columns[0], columns[2]]
    } else {
        columns.to_vec()
    };
    output::either(of.json.json, &all, || output::table(&all, &shown));
    Ok(ExitCode::SUCCESS)
}
