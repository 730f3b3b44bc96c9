//! `company create | list`

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::person::Person;
use super::{CliError, Json, output};

#[derive(Debug, Subcommand)]
pub(super) enum CompanyCommand {
    /// Create a company
    #[command(after_help = "Examples:\n  portcullis company create 'Acme Ltd' --prefix ACME")]
    Create {
        /// Its name
        name: String,
        /// First half of its tickets' identifiers [default: the first three letters of the name]
        #[arg(long)]
        prefix: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// List companies
    List {
        #[command(flatten)]
        json: Json,
    },
}

pub(super) async fn run(person: Person, command: CompanyCommand) -> Result<ExitCode, CliError> {
    match command {
        CompanyCommand::Create { name, prefix, json } => {
            let body = json!({ "name": name, "issuePrefix": prefix });
            let made = person.post("/api/companies", &body).await?;
            output::either(json.json, &made, || output::fields(&made));
        }
        CompanyCommand::List { json } => {
            let all = person.get("/api/companies").await?;
            let columns = [("NAME", "name"), ("PREFIX", "issuePrefix"), ("ID", "id")];
            output::either(json.json, &all, || output::table(&all, &columns));
        }
    }
    Ok(ExitCode::SUCCESS)
}
