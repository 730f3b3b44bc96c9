//! `environment`: what makes clients outside of run containers use the gate.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::{CliError, output};
use crate::environment::{client_families, files, placeholders};

/// What to print and where the files are.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis-orchestrator environment                          NAME='VALUE' lines for a shell
  portcullis-orchestrator environment --json                   one object
  portcullis-orchestrator environment --trust /srv/ci/trust --write --git-host github.com

With --write the directory gets apt.conf, gitconfig, maven-settings.xml and wgetrc; ca.pem, bundle.pem and
truststore.p12 are the installation's and are only pointed at.")]
pub(super) struct EnvironmentArgs {
    /// The gate as clients see it; http://run:TOKEN@ADDRESS:PORT for its token entrance
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:3128")]
    gate: String,
    /// Directory of the files for clients, absolute
    #[arg(long, value_name = "DIR", default_value = "/var/lib/portcullis/trust")]
    trust: PathBuf,
    /// Write the files that clients need beside variables into the trust directory
    #[arg(long)]
    write: bool,
    /// A git host whose remotes over ssh are rewritten to https; may be repeated
    #[arg(long, value_name = "NAME")]
    git_host: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Writes the files where asked, and prints the variables.
pub(super) fn run(args: &EnvironmentArgs) -> Result<ExitCode, CliError> {
    let trust = args
        .trust
        .to_str()
        .filter(|_| args.trust.is_absolute())
        .ok_or_else(|| {
            CliError::Usage(format!("{} is not an absolute path", args.trust.display()))
        })?;
    for host in &args.git_host {
        policy::authority::Host::parse(host)
            .map_err(|error| CliError::Usage(format!("--git-host {host}: {error}")))?;
    }
    if args.write {
        for (name, content) in files::client_files(&args.gate, trust, &args.git_host) {
            write(&args.trust.join(name), &content)?;
        }
    }
    let mut table = client_families(&args.gate, trust);
    if args.trust.join("gitconfig").exists() {
        table.push(("GIT_CONFIG_SYSTEM".to_owned(), format!("{trust}/gitconfig")));
    }
    table.extend(placeholders());
    table.sort();
    let object: serde_json::Map<_, _> = table
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into()))
        .collect();
    output::either(args.json, &object.into(), || {
        let lines: Vec<_> = table
            .iter()
            .map(|(name, value)| format!("{name}='{}'", value.replace('\'', "'\\''")))
            .collect();
        lines.join("\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, content: &str) -> Result<(), CliError> {
    std::fs::write(path, content)
        .map_err(|error| CliError::io(format!("writing {}", path.display()), error))
}
