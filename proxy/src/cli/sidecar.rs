//! `sidecar`: the gate as a container of its own, beside agents' containers.

use std::path::PathBuf;

use clap::Args;

use super::output::{Exit, fail};
use super::run::{self, RunArgs};
use crate::ca;
use crate::config::Config;
use crate::share::Share;

#[derive(Debug, Args)]
#[command(after_help = "\
Makes the certificate authority unless there is one, puts what agents' containers need on the volume that they mount
(the image's files, ca.pem, bundle.pem), and runs the gate. Refuses to start when anything of the gate's own lies on that
volume: the control socket, the authority's key, secrets, the audit log.

Example (the image's command; as root inside: --user is needed too):
  portcullis-proxy sidecar --config /etc/portcullis/proxy.toml --share /portcullis

Signals: SIGHUP reloads, SIGTERM and SIGINT stop")]
pub(super) struct SidecarArgs {
    #[command(flatten)]
    run: RunArgs,
    /// The volume that agents' containers mount read-only
    #[arg(long, value_name = "DIR", default_value = "/portcullis")]
    share: PathBuf,
    /// What is copied there
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/portcullis/agent")]
    from: PathBuf,
}

pub(super) fn sidecar(args: &SidecarArgs) -> Exit {
    let config = match Config::load(args.run.config()) {
        Ok(config) => config,
        Err(problem) => return fail(&problem),
    };
    let share = Share {
        directory: args.share.clone(),
        from: args.from.clone(),
    };
    if let Err(problem) = share.check(&config) {
        return fail(&problem);
    }
    // Made or kept: which one, `status` tells.
    if let Err(problem) = ca::create(&config.ca_directory, None) {
        return fail(&problem);
    }
    if let Err(problem) = share.fill(&config) {
        return fail(&problem);
    }
    run::run_sharing(&args.run, Some(share))
}
