//! `approval list | show | approve | reject | revise`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::person::Person;
use super::{CliError, Json, output};
use crate::operator_client::encode;

#[derive(Debug, Subcommand)]
pub(super) enum ApprovalCommand {
    /// List approvals
    List {
        /// Of this company [default: the only one]
        #[arg(long)]
        company: Option<String>,
        /// pending, revision_requested, approved, rejected or cancelled
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// Show what is asked for
    Show {
        /// Its id
        approval: String,
        #[command(flatten)]
        json: Json,
    },
    /// Say yes; wakes who asked
    #[command(after_help = "\
Examples:
  portcullis approval list --status pending
  portcullis approval approve 0190f6d2-... --note 'go ahead'")]
    Approve(Decision),
    /// Say no; wakes who asked
    Reject(Decision),
    /// Ask for a better request; wakes who asked
    Revise(Decision),
}

#[derive(Debug, Args)]
pub(super) struct Decision {
    /// Its id
    approval: String,
    /// A word to who asked
    #[arg(long)]
    note: Option<String>,
    /// Refuse if what is asked for is no longer this
    #[arg(long, value_name = "SHA256")]
    fingerprint: Option<String>,
    #[command(flatten)]
    json: Json,
}

pub(super) async fn run(person: Person, command: ApprovalCommand) -> Result<ExitCode, CliError> {
    match command {
        ApprovalCommand::List {
            company,
            status,
            json,
        } => {
            let company = person.company(company.as_deref()).await?;
            let mut target = format!("/api/companies/{company}/approvals");
            if let Some(status) = status {
                target.push_str(&format!("?status={}", encode(&status)));
            }
            let all = person.get(&target).await?;
            let columns = [
                ("ID", "id"),
                ("TYPE", "type"),
                ("STATUS", "status"),
                ("AGENT", "requestedByAgentId"),
                ("SINCE", "createdAt"),
            ];
            output::either(json.json, &all, || output::table(&all, &columns));
        }
        ApprovalCommand::Show { approval, json } => {
            let found = person.get(&path(&approval, "")).await?;
            output::either(json.json, &found, || output::fields(&found));
        }
        ApprovalCommand::Approve(decision) => decide(&person, decision, "/approve").await?,
        ApprovalCommand::Reject(decision) => decide(&person, decision, "/reject").await?,
        ApprovalCommand::Revise(decision) => decide(&person, decision, "/request-revision").await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn decide(person: &Person, decision: Decision, verb: &str) -> Result<(), CliError> {
    let body = json!({ "decisionNote": decision.note, "fingerprint": decision.fingerprint });
    let made = person.post(&path(&decision.approval, verb), &body).await?;
    output::either(decision.json.json, &made, || output::fields(&made));
    Ok(())
}

fn path(approval: &str, rest: &str) -> String {
    format!("/api/approvals/{}{rest}", encode(approval))
}
