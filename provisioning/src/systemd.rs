//! Units for the services, rendered from `provisioning/units/`, and how systemd sees them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::control::{Health, Up};
use crate::instance::Instance;
use crate::process::{self, Call};
use crate::service::{self, Service};
use crate::site::Site;
use crate::step::StepError;
use crate::step::directories;

/// How long systemd may take to say how a unit is, in seconds.
const PATIENCE: u32 = 10;
const UNITS: &str = "/etc/systemd/system";
const TMPFILES: &str = "/etc/tmpfiles.d";

/// The units of a service, in starting order. The boundary's are three: the rules, the watcher that stays, and the proof
/// that others require; its process is the watcher's.
fn parts(key: &'static str) -> &'static [&'static str] {
    match key {
        "boundary" => &["boundary", "boundary-watch", "boundary-proof"],
        "stand-in" => &["stand-in"],
        "proxy" => &["proxy"],
        "orchestrator" => &["orchestrator"],
        _ => &[],
    }
}

/// Whether the unit is one that is started only because others require it: nobody enables, starts or stops it.
fn is_dependency(part: &str) -> bool {
    part == "boundary-proof"
}

fn template(part: &str) -> &'static str {
    match part {
        "boundary" => include_str!("../units/boundary.service"),
        "boundary-watch" => include_str!("../units/boundary-watch.service"),
        "boundary-proof" => include_str!("../units/boundary-proof.service"),
        "proxy" => include_str!("../units/proxy.service"),
        "orchestrator" => include_str!("../units/orchestrator.service"),
        _ => include_str!("../units/stand-in.service"),
    }
}

fn named(instance: &Instance, part: &str) -> String {
    format!("{}-{part}.service", instance.layout.name())
}

/// The unit that holds the process of a service.
#[must_use]
pub fn unit_name(instance: &Instance, key: &str) -> String {
    match key {
        "boundary" => named(instance, "boundary-watch"),
        _ => named(instance, key),
    }
}

/// The units by which a service is started, stopped and enabled, in starting order.
#[must_use]
pub fn unit_names(instance: &Instance, key: &'static str) -> Vec<String> {
    parts(key)
        .iter()
        .filter(|part| !is_dependency(part))
        .map(|part| named(instance, part))
        .collect()
}

/// Where the unit files of a service lie.
#[must_use]
pub fn unit_paths(instance: &Instance, key: &'static str) -> Vec<PathBuf> {
    parts(key)
        .iter()
        .map(|part| Path::new(UNITS).join(named(instance, part)))
        .collect()
}

/// Where the list of directories for `/run` lies.
#[must_use]
pub fn tmpfiles_path(instance: &Instance) -> PathBuf {
    Path::new(TMPFILES).join(format!("{}.conf", instance.layout.name()))
}

/// The units of a service, each with its path.
#[must_use]
pub fn render(instance: &Instance, service: &Service) -> Vec<(PathBuf, String)> {
    unit_paths(instance, service.key)
        .into_iter()
        .zip(parts(service.key))
        .map(|(path, part)| (path, fill(template(part), instance, service)))
        .collect()
}

fn fill(template: &str, instance: &Instance, service: &Service) -> String {
    let layout = &instance.layout;
    let exec = format!(
        "{} {}",
        service.program.display(),
        service.arguments.join(" ")
    );
    let stand_in = if instance.has_stand_in() {
        format!("{}-stand-in.service ", layout.name())
    } else {
        String::new()
    };
    template
        .replace("@NAME@", layout.name())
        .replace("@LIBRARY@", &layout.library().display().to_string())
        .replace("@ETC@", &layout.etc().display().to_string())
        .replace("@STATE@", &layout.state().display().to_string())
        .replace("@RUN@", &layout.run().display().to_string())
        .replace("@AFTER_STAND_IN@", &stand_in)
        .replace("@EXEC@", &exec)
}

/// Every file systemd gets, with its text.
///
/// # Errors
/// When an account is missing.
pub fn files(site: &Site) -> Result<Vec<(PathBuf, String)>, StepError> {
    let instance = &site.instance;
    let mut files = Vec::new();
    for service in service::services(instance) {
        files.extend(render(instance, &service));
    }
    let run = instance.layout.run();
    let lines: String = directories::table(site)?
        .into_iter()
        .filter(|(path, _)| path.starts_with(&run))
        .map(|(path, access)| {
            format!(
                "d {} {:04o} {} {} -\n",
                path.display(),
                access.mode,
                access.uid,
                access.gid
            )
        })
        .collect();
    files.push((tmpfiles_path(instance), lines));
    Ok(files)
}

/// Where it is noted what a unit was last started with. It goes with a reboot, after which everything is started with
/// what is there.
#[must_use]
pub fn fingerprint_path(instance: &Instance, key: &str) -> PathBuf {
    instance
        .layout
        .supervise()
        .join(format!("{key}.fingerprint"))
}

/// How systemd says the service is.
#[must_use]
pub fn health(instance: &Instance, key: &str) -> Health {
    let call = Call::bounded(PATIENCE)
        .args(["systemctl", "show", "--timestamp=unix", "--property"])
        .arg("ActiveState,SubState,MainPID,NRestarts,ExecMainStartTimestamp")
        .arg(unit_name(instance, key));
    match answer(call) {
        Ok(text) => match parse(&text) {
            Health::Up(up) => {
                let fingerprint = fs::read_to_string(fingerprint_path(instance, key)).ok();
                Health::Up(Up { fingerprint, ..up })
            }
            down @ Health::Down(_) => down,
        },
        Err(problem) => Health::Down(problem),
    }
}

/// What a bounded call of systemctl says, or why it says nothing.
fn answer(call: Call) -> Result<String, String> {
    let (status, out, err) = call.outcome().map_err(|error| error.to_string())?;
    match process::in_time(status) {
        Some(0) => Ok(out),
        Some(code) => Err(format!("systemctl show failed ({code}): {}", err.trim())),
        None => Err("systemd did not answer in time: its state cannot be told".to_owned()),
    }
}

/// How often systemd has restarted it since it was last started by hand.
#[must_use]
pub fn restarts(instance: &Instance, key: &str) -> u32 {
    Call::bounded(PATIENCE)
        .args(["systemctl", "show", "--value", "--property", "NRestarts"])
        .arg(unit_name(instance, key))
        .run()
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

fn parse(text: &str) -> Health {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .unwrap_or_default()
    };
    let pid = value("MainPID").parse().unwrap_or(0);
    if value("ActiveState") != "active" || pid == 0 {
        return Health::Down(format!(
            "systemd says {} ({})",
            value("ActiveState"),
            value("SubState")
        ));
    }
    let since = value("ExecMainStartTimestamp")
        .trim_start_matches('@')
        .parse()
        .ok();
    let since = since.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    Health::Up(Up {
        pid,
        since: since.map(|since| format!("{since:.0}")).unwrap_or_default(),
        restarts: value("NRestarts").parse().unwrap_or(0),
        fingerprint: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Record;
    use crate::layout::Layout;

    fn instance(stand_in_port: Option<u16>) -> Instance {
        let record = Record {
            name: "ptx".into(),
            repo: "a/b".into(),
            stand_in_port,
            gate_port: 3128,
            scope: crate::instance::Scope::Agents,
        };
        Instance {
            layout: Layout::new(Path::new("/srv"), "ptx").unwrap(),
            record,
        }
    }

    /// File name and text of every unit.
    fn units(instance: &Instance) -> Vec<(String, String)> {
        service::services(instance)
            .iter()
            .flat_map(|service| render(instance, service))
            .map(|(path, text)| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, text)
            })
            .collect()
    }

    fn unit(instance: &Instance, name: &str) -> String {
        let mut units = units(instance).into_iter();
        units.find(|(own, _)| own == name).unwrap().1
    }

    /// The words of every line `KEY=...` of a unit.
    fn values(unit: &str, key: &str) -> Vec<String> {
        unit.lines()
            .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .flat_map(str::split_whitespace)
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn no_unit_keeps_a_placeholder() {
        for port in [None, Some(8443)] {
            for (name, unit) in units(&instance(port)) {
                let marker = unit.split('@').any(|part| {
                    !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                });
                assert!(!marker, "{name}: {unit}");
            }
        }
    }

    #[test]
    fn both_services_require_the_proof_and_a_restart_of_the_boundary_reaches_neither() {
        let instance = instance(Some(8443));
        let proof = "ptx-boundary-proof.service".to_owned();
        // What systemd stops or restarts along with the unit that is named.
        let binding = [
            "Requires",
            "Requisite",
            "BindsTo",
            "PartOf",
            "StopPropagatedFrom",
        ];
        let bound = |name: &str| -> Vec<String> {
            let unit = unit(&instance, name);
            binding.iter().flat_map(|key| values(&unit, key)).collect()
        };
        for name in ["ptx-proxy.service", "ptx-orchestrator.service"] {
            assert_eq!(bound(name), std::slice::from_ref(&proof));
            assert!(values(&unit(&instance, name), "After").contains(&proof));
        }
        let text = unit(&instance, &proof);
        assert!(bound(&proof).is_empty(), "{text}");
        assert_eq!(values(&text, "RefuseManualStop"), ["yes"]);
        assert!(values(&text, "After").contains(&"ptx-boundary.service".to_owned()));
        // The watcher outlives a failed restart of what loads the rules.
        let watch = unit(&instance, "ptx-boundary-watch.service");
        assert!(bound("ptx-boundary-watch.service").is_empty(), "{watch}");
        assert!(values(&watch, "Wants").is_empty(), "{watch}");
        assert!(values(&watch, "After").contains(&"ptx-boundary.service".to_owned()));
    }

    #[test]
    fn the_rules_come_before_networks_and_everything_ordinary() {
        let unit = unit(&instance(None), "ptx-boundary.service");
        let before = values(&unit, "Before");
        for target in ["network-pre.target", "sysinit.target"] {
            assert!(before.contains(&target.to_owned()), "{before:?}");
        }
        // Who else loads rules at boot may flush all of them, so it comes first; and nothing that systemd starts only after
        // sysinit.target does, or there would be no order at all.
        let after = values(&unit, "After");
        for service in ["nftables", "netfilter-persistent", "ufw"] {
            assert!(after.contains(&format!("{service}.service")), "{after:?}");
        }
        assert!(
            !after.contains(&"firewalld.service".to_owned()),
            "{after:?}"
        );
        assert_eq!(values(&unit, "Wants"), ["network-pre.target"]);
        assert_eq!(values(&unit, "DefaultDependencies"), ["no"]);
        assert_eq!(values(&unit, "WantedBy"), ["sysinit.target"]);
        assert!(!unit.contains("\nExecStop="), "stopping removes nothing");
    }

    #[test]
    fn the_boundary_and_the_gate_read_the_boot_id_that_everybody_reads() {
        for (name, unit) in units(&instance(Some(8443))) {
            // A /proc of its own comes with any of these, and lacks what a container has mounted over it.
            let own_proc = ["ProtectKernelTunables=yes", "ProtectProc=invisible"]
                .iter()
                .any(|line| unit.contains(line));
            let bound = unit.contains("\nBindReadOnlyPaths=/proc/sys/kernel/random/boot_id\n");
            // The stand-in asks for no boundary, and the proof reads rules alone.
            let needs_none = ["ptx-stand-in.service", "ptx-boundary-proof.service"];
            let needed = own_proc && !needs_none.contains(&name.as_str());
            assert_eq!(bound, needed, "{name}");
        }
    }

    #[test]
    fn every_unit_but_the_orchestrators_has_no_new_privileges() {
        let instance = instance(Some(8443));
        // With a User=, systemd adds NoNewPrivileges= to each of these, and newuidmap would lose its own.
        let filters = [
            "NoNewPrivileges",
            "LockPersonality",
            "MemoryDenyWriteExecute",
            "PrivateDevices",
            "ProtectClock",
            "ProtectHostname",
            "ProtectKernel",
            "RestrictAddressFamilies",
            "RestrictNamespaces",
            "RestrictRealtime",
            "RestrictSUIDSGID",
            "SystemCall",
        ];
        for (name, unit) in units(&instance) {
            let taken = unit
                .lines()
                .any(|line| filters.iter().any(|filter| line.starts_with(filter)));
            let orchestrator = name == "ptx-orchestrator.service";
            assert_eq!(taken, !orchestrator, "{name}");
            assert_eq!(
                unit.contains("\nNoNewPrivileges=yes\n"),
                !orchestrator,
                "{name}"
            );
        }
    }

    #[test]
    fn a_systemd_that_hangs_is_said_to_hang() {
        let call = |script: &str| Call::bounded(1).args(["sh", "-c", script]);
        assert_eq!(answer(call("echo x")).unwrap(), "x\n", "control");
        let hangs = answer(call("exec sleep 600")).unwrap_err();
        assert!(hangs.contains("did not answer in time"), "{hangs}");
        let fails = answer(call("echo no >&2; exit 3")).unwrap_err();
        assert_eq!(fails, "systemctl show failed (3): no");
    }

    #[test]
    fn what_systemd_shows_is_read() {
        let up = parse(
            "ActiveState=active\nSubState=running\nMainPID=7\nNRestarts=2\nExecMainStartTimestamp=@1790000000\n",
        );
        let Health::Up(up) = up else { panic!("{up:?}") };
        assert_eq!((up.pid, up.restarts), (7, 2));
        assert!(up.since.ends_with('Z'));
        assert!(matches!(
            parse("ActiveState=failed\nMainPID=0\n"),
            Health::Down(_)
        ));
    }
}
