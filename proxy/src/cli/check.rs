//! `check`: would the gate start with this configuration?

use std::sync::Arc;

use clap::Args;

use super::ConfigArg;
use super::output::{Exit, fail, say, tell};
use crate::audit::signing::Signer;
use crate::ca::Minter;
use crate::config::{Config, StoreConfig};
use crate::credential::Vault;
use crate::harden;
use crate::policies::Policies;
use crate::prices::Prices;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portcullis-proxy check
  portcullis-proxy check --credentials --user portcullis-proxy   (as root: as that user)")]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArg,
    /// Read and check the credentials, the key of the audit log and the certificate authority too
    #[arg(long)]
    credentials: bool,
    /// Check them as this user; needs root
    #[arg(long, value_name = "NAME", requires = "credentials")]
    user: Option<String>,
}

pub(super) fn check(args: &CheckArgs) -> Exit {
    let config = match Config::load(&args.config.config) {
        Ok(config) => Arc::new(config),
        Err(problem @ crate::config::ConfigError::Unreadable { .. }) => return fail(&problem),
        Err(problem) => return no(&problem),
    };
    let policies = match Policies::load(Arc::clone(&config)) {
        Ok(policies) => policies,
        Err(problem) => return no(&problem),
    };
    let allowance = &config.allowance;
    if let Err(problem) = Prices::load(allowance.prices.as_deref(), allowance.unknown_model) {
        return no(&problem);
    }
    if args.credentials {
        let foreign = config.store.as_ref().map(StoreConfig::collect_foreign);
        let foreign = match foreign.transpose() {
            Ok(foreign) => foreign.flatten(),
            Err(problem) => return no(&problem),
        };
        if let Some(user) = &args.user
            && let Err(problem) = harden::drop_privileges(Some(user))
        {
            return fail(&problem);
        }
        if let Err(problem) = Vault::load(&config, foreign) {
            return no(&problem);
        }
        if let Some(path) = &config.audit.signing_key {
            let store = config.store.as_ref().map(|store| store.key.as_path());
            if let Err(problem) = Signer::load_apart(path, store) {
                return no(&problem);
            }
        }
        if let Err(problem) = Minter::load(&config.ca_directory, 1) {
            return no(&problem);
        }
    }
    say(&format!("{}: ok", args.config.config.display()));
    for (profile, policy) in policies.view() {
        say(&format!(
            "{}: ok (profile {profile})",
            policy.path.display()
        ));
    }
    Exit::Yes
}

fn no(problem: &dyn std::error::Error) -> Exit {
    tell(&problem.to_string());
    Exit::No
}
