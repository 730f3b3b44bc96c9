//! `portcullis up`: the steps in order, then the proof.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Instant;

use thiserror::Error;

use crate::control;
use crate::gate_test::{self, GateTestError};
use crate::instance::{DEFAULT_NAME, Instance, InstanceError, Record, STAND_IN_REPO, Scope};
use crate::layout::Layout;
use crate::output;
use crate::site::Site;
use crate::step::{self, Failure, Mode, Step, StepError, binaries};

/// The gate's port where nothing else has it.
const GATE_PORT: u16 = 3128;

/// What a person asked for.
#[derive(Debug)]
pub struct Wanted {
    pub prefix: PathBuf,
    pub name: Option<String>,
    /// `owner/name` on github.com; the local stand-in without it.
    pub repo: Option<String>,
    pub token_file: Option<PathBuf>,
    pub gate_test: bool,
    pub binaries: Option<PathBuf>,
    /// Another scope than the instance has.
    pub scope: Option<Scope>,
    pub mode: Mode,
}

#[derive(Debug, Error)]
pub enum UpError {
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error(
        "{0:?} is not OWNER/NAME\n  hint: as in the address bar, https://github.com/OWNER/NAME"
    )]
    Repo(String),
    #[error(
        "a token is needed to push to {0}\n  hint: put one on one line of a file and add --github-token-file FILE"
    )]
    NoToken(String),
    #[error(
        "{0} is missing\n  hint: `cargo build --release` makes it; --binaries says where it is"
    )]
    NoBinary(PathBuf),
    #[error("no free port on the loopback interface")]
    NoPort(#[source] std::io::Error),
    #[error("the stand-in does not stop")]
    StandIn(#[from] StepError),
    #[error(transparent)]
    Step(#[from] Failure),
    #[error(transparent)]
    GateTest(#[from] GateTestError),
}

/// Makes the host right and runs the gate test. True when the test passed or was not wanted.
///
/// # Errors
/// When something cannot be had or a step fails; what was done stays and the next `up` goes on from there.
pub fn up(wanted: &Wanted) -> Result<bool, Box<dyn std::error::Error>> {
    Ok(carry_out(wanted)?)
}

fn carry_out(wanted: &Wanted) -> Result<bool, UpError> {
    let began = Instant::now();
    let site = site(wanted)?;
    let layout = &site.instance.layout;
    output::say(&format!(
        "Portcullis {} at {} ({}; upstream {})",
        layout.name(),
        layout.prefix().display(),
        if site.systemd {
            "systemd units"
        } else {
            "supervised processes"
        },
        site.instance.upstream_host()
    ));
    let steps = steps(&site);
    match &wanted.mode {
        Mode::Plan => return Ok(step::plan(&steps, &site)),
        Mode::Verify => return Ok(step::verify(&steps, &site)),
        Mode::Apply { .. } => {}
    }
    if !site.instance.has_stand_in() && control::stop(&site.instance, site.systemd, "stand-in")? {
        output::say("stopped the stand-in, whose place github.com takes");
    }
    let taken = step::up_to(&steps, wanted.mode.until())?;
    let changed = step::carry_out(taken, &site)?;
    let seconds = began.elapsed().as_secs_f32();
    output::say(&match changed {
        0 => format!(
            "0 changed: all {} steps were right already; nothing was changed ({seconds:.1} s)",
            taken.len()
        ),
        _ => format!(
            "{changed} changed of {} steps ({seconds:.1} s)",
            taken.len()
        ),
    });
    if taken.len() < steps.len() {
        output::say("stopped where --until says; the next run goes on from there");
        return Ok(true);
    }
    if !wanted.gate_test {
        return Ok(true);
    }
    let passed = gate_test::run(&site.instance)?;
    output::say(&format!("{:.1} s in all", began.elapsed().as_secs_f32()));
    let command = layout.command();
    let command = command.display();
    output::say(&format!("hint: `{command} status` shows what runs"));
    output::say(&format!(
        "hint: `{command} prove` tries, as an agent, everything that must fail"
    ));
    Ok(passed)
}

/// Every step, in an order in which each finds what it needs.
fn steps(site: &Site) -> Vec<Box<dyn Step>> {
    let mut steps: Vec<Box<dyn Step>> = vec![
        Box::new(step::record::InstanceRecord),
        Box::new(step::users::Users),
        Box::new(step::subordinate::Subordinate),
        Box::new(step::directories::Directories),
        Box::new(step::binaries::Binaries),
    ];
    if site.instance.has_stand_in() {
        steps.push(Box::new(step::stand_in::StandIn));
    }
    steps.push(Box::new(step::credential::Credential));
    steps.push(Box::new(step::rules::Rules));
    steps.push(Box::new(step::configuration::Configuration));
    steps.push(Box::new(step::authority::Authority));
    steps.push(Box::new(step::trust::Trust));
    steps.push(Box::new(step::audit_key::AuditKey));
    steps.push(Box::new(step::rootfs::Rootfs));
    steps.push(Box::new(step::settings::Settings));
    if site.systemd {
        steps.push(Box::new(step::units::Units));
    } else {
        steps.push(Box::new(step::cgroups::Cgroups));
    }
    steps.push(Box::new(step::outage::Outage));
    for service in crate::service::services(&site.instance) {
        steps.push(Box::new(step::running::Running { key: service.key }));
    }
    steps.push(Box::new(step::rules::Loaded));
    steps
}

fn site(wanted: &Wanted) -> Result<Site, UpError> {
    let found = Instance::find(&wanted.prefix)?;
    if found.is_some() {
        // Refuses a name that is not the one this prefix has.
        Instance::open(&wanted.prefix, wanted.name.as_deref())?;
    }
    let name = wanted
        .name
        .clone()
        .or_else(|| found.as_ref().map(|found| found.record.name.clone()))
        .unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let layout = Layout::new(&wanted.prefix, &name).map_err(InstanceError::from)?;
    let before = found.map(|found| found.record);
    let mut record = record(wanted, before, &layout)?;
    if let Some(scope) = wanted.scope {
        record.scope = scope;
    }
    let instance = Instance { layout, record };
    Ok(Site {
        binaries: find_binaries(wanted, &instance)?,
        token_file: wanted.token_file.clone(),
        systemd: Site::host_has_systemd(),
        instance,
    })
}

/// The decisions of the instance: those of before, unless the person asks for another repository.
fn record(wanted: &Wanted, before: Option<Record>, layout: &Layout) -> Result<Record, UpError> {
    let Some(repo) = &wanted.repo else {
        return match before {
            Some(before) => Ok(before),
            None => Ok(Record {
                name: layout.name().to_owned(),
                repo: STAND_IN_REPO.to_owned(),
                stand_in_port: Some(free_port(&[])?),
                gate_port: gate_port(layout)?,
                scope: Scope::default(),
            }),
        };
    };
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if !repo
        .split_once('/')
        .is_some_and(|(owner, name)| plain(owner) && plain(name))
    {
        return Err(UpError::Repo(repo.clone()));
    }
    let kept = before
        .as_ref()
        .is_some_and(|before| before.stand_in_port.is_none())
        && layout.credentials().join("github").exists();
    if wanted.token_file.is_none() && !kept {
        return Err(UpError::NoToken(repo.clone()));
    }
    Ok(Record {
        scope: before
            .as_ref()
            .map_or_else(Scope::default, |before| before.scope),
        name: layout.name().to_owned(),
        repo: repo.clone(),
        stand_in_port: None,
        gate_port: before.map_or_else(|| gate_port(layout), |before| Ok(before.gate_port))?,
    })
}

/// The usual port for the usual instance if nobody has it: the boundary keeps everybody else from answering there.
fn gate_port(layout: &Layout) -> Result<u16, UpError> {
    let usual = layout.name() == DEFAULT_NAME
        && TcpListener::bind((Ipv4Addr::LOCALHOST, GATE_PORT)).is_ok();
    if usual {
        Ok(GATE_PORT)
    } else {
        free_port(&[GATE_PORT])
    }
}

fn free_port(not: &[u16]) -> Result<u16, UpError> {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(UpError::NoPort)?;
        let port = listener.local_addr().map_err(UpError::NoPort)?.port();
        if !not.contains(&port) {
            return Ok(port);
        }
    }
}

/// Where the person says, beside this program, or, for an installed one, what is installed.
fn find_binaries(wanted: &Wanted, instance: &Instance) -> Result<PathBuf, UpError> {
    let own = std::env::current_exe()
        .and_then(|own| own.canonicalize())
        .ok();
    let directory = wanted
        .binaries
        .clone()
        .or_else(|| own.as_deref().and_then(Path::parent).map(Path::to_path_buf))
        .unwrap_or_else(|| instance.layout.library());
    let stand_in = instance.has_stand_in().then_some(binaries::STAND_IN);
    for name in binaries::BINARIES.into_iter().chain(stand_in) {
        let path = directory.join(name);
        if !path.is_file() {
            return Err(UpError::NoBinary(path));
        }
    }
    Ok(directory)
}
