//! Becoming a service: control group, capabilities, account, then the program itself in the same process.
//!
//! Every step narrows what the process may do, in an order in which none takes away what a later one needs. Any failure
//! ends the launch: a service never starts with more rights than it should have.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use caps::{CapSet, Capability};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{User, setgid, setgroups, setuid};
use thiserror::Error;

use crate::cgroup;
use crate::instance::Instance;
use crate::process::SEARCH_PATH;
use crate::service::Service;

const DESCRIPTORS: u64 = 65_536;
/// Secrets are locked into memory.
const LOCKED_BYTES: u64 = 64 << 20;

#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("there is no user {0}\n  hint: `portcullis up` creates it")]
    NoUser(String),
    #[error("cannot {what}")]
    System {
        what: &'static str,
        #[source]
        source: nix::Error,
    },
    #[error("cannot drop {capability} from the bounding set: {said}")]
    Capability {
        capability: Capability,
        said: String,
    },
    #[error("cannot enter the control group {path}")]
    ControlGroup {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot execute {program}")]
    Execute {
        program: String,
        #[source]
        source: io::Error,
    },
}

/// Does not return unless something failed.
///
/// # Errors
/// The first step that could not be taken.
pub fn launch(instance: &Instance, service: &Service) -> Result<(), LaunchError> {
    let failed = |what| move |source| LaunchError::System { what, source };
    if service.delegated_cgroup {
        enter_control_groups(instance)?;
    }
    for capability in caps::all() {
        if !service.bounding.contains(&capability) {
            drop_capability(capability)?;
        }
    }
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(failed("forbid core dumps"))?;
    raise(Resource::RLIMIT_NOFILE, DESCRIPTORS);
    raise(Resource::RLIMIT_MEMLOCK, LOCKED_BYTES);
    umask(Mode::from_bits_truncate(0o022));
    let mut home = "/".to_owned();
    if let Some(name) = &service.user {
        let user = User::from_name(name)
            .ok()
            .flatten()
            .ok_or_else(|| LaunchError::NoUser(name.clone()))?;
        home = user.dir.display().to_string();
        setgroups(&[user.gid]).map_err(failed("set the groups"))?;
        setgid(user.gid).map_err(failed("set the group"))?;
        setuid(user.uid).map_err(failed("set the user"))?;
    }
    if service.no_new_privileges {
        prctl::set_no_new_privs().map_err(failed("set no_new_privs"))?;
    }
    // A change of user clears it, so it comes last: a service whose supervisor was killed ends, and nobody runs twice.
    prctl::set_pdeathsig(Some(Signal::SIGTERM))
        .map_err(failed("tie the service to its supervisor"))?;
    SigSet::all()
        .thread_unblock()
        .map_err(failed("unblock signals"))?;
    let mut command = Command::new(&service.program);
    command
        .args(&service.arguments)
        .env_clear()
        .current_dir("/");
    command
        .env("PATH", SEARCH_PATH)
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", home);
    let source = command.exec();
    Err(LaunchError::Execute {
        program: service.program.display().to_string(),
        source,
    })
}

/// Raises the most a service may ask for. In a container without CAP_SYS_RESOURCE what there is has to do; that takes
/// nothing away from anybody, so it is no reason to stay down.
fn raise(resource: Resource, hard: u64) {
    if let Ok((soft, before)) = getrlimit(resource)
        && before < hard
    {
        let _ = setrlimit(resource, soft, hard);
    }
}

fn drop_capability(capability: Capability) -> Result<(), LaunchError> {
    let refused = |error: caps::errors::CapsError| LaunchError::Capability {
        capability,
        said: error.to_string(),
    };
    // A kernel older than the crate's list does not know every capability; what it does not know nobody can have.
    if caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
        caps::drop(None, CapSet::Bounding, capability).map_err(refused)?;
    }
    Ok(())
}

fn enter_control_groups(instance: &Instance) -> Result<(), LaunchError> {
    for directory in cgroup::directories(Path::new(cgroup::ROOT), instance.layout.name()) {
        let path = directory.join("cgroup.procs");
        fs::write(&path, std::process::id().to_string()).map_err(|source| {
            LaunchError::ControlGroup {
                path: path.display().to_string(),
                source,
            }
        })?;
    }
    Ok(())
}
