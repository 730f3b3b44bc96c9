//! Units for the services, rendered from `provisioning/units/`, and how systemd sees them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::control::{Health, Up};
use crate::instance::Instance;
use crate::process::Call;
use crate::service::{self, Service};
use crate::site::Site;
use crate::step::StepError;
use crate::step::directories;

const UNITS: &str = "/etc/systemd/system";
const TMPFILES: &str = "/etc/tmpfiles.d";

fn template(key: &str) -> &'static str {
    match key {
        "boundary" => include_str!("../units/boundary.service"),
        "proxy" => include_str!("../units/proxy.service"),
        "orchestrator" => include_str!("../units/orchestrator.service"),
        _ => include_str!("../units/stand-in.service"),
    }
}

/// `NAME-KEY.service`.
#[must_use]
pub fn unit_name(instance: &Instance, key: &str) -> String {
    format!("{}-{key}.service", instance.layout.name())
}

/// The units of the instance in starting order.
#[must_use]
pub fn unit_names(instance: &Instance) -> Vec<String> {
    service::services(instance)
        .iter()
        .map(|service| unit_name(instance, service.key))
        .collect()
}

/// Where the unit file of a service lies.
#[must_use]
pub fn unit_path(instance: &Instance, key: &str) -> PathBuf {
    Path::new(UNITS).join(unit_name(instance, key))
}

/// Where the list of directories for `/run` lies.
#[must_use]
pub fn tmpfiles_path(instance: &Instance) -> PathBuf {
    Path::new(TMPFILES).join(format!("{}.conf", instance.layout.name()))
}

/// The unit of a service.
#[must_use]
pub fn render(instance: &Instance, service: &Service) -> String {
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
    template(service.key)
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
        files.push((unit_path(instance, service.key), render(instance, &service)));
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
    let shown = Call::new("systemctl")
        .args(["show", "--timestamp=unix", "--property"])
        .arg("ActiveState,SubState,MainPID,NRestarts,ExecMainStartTimestamp")
        .arg(unit_name(instance, key))
        .run();
    match shown {
        Ok(text) => match parse(&text) {
            Health::Up(up) => {
                let fingerprint = fs::read_to_string(fingerprint_path(instance, key)).ok();
                Health::Up(Up { fingerprint, ..up })
            }
            down @ Health::Down(_) => down,
        },
        Err(error) => Health::Down(error.to_string()),
    }
}

/// How often systemd has restarted it since it was last started by hand.
#[must_use]
pub fn restarts(instance: &Instance, key: &str) -> u32 {
    Call::new("systemctl")
        .args(["show", "--value", "--property", "NRestarts"])
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
        };
        Instance {
            layout: Layout::new(Path::new("/srv"), "ptx").unwrap(),
            record,
        }
    }

    #[test]
    fn no_unit_keeps_a_placeholder_and_both_services_require_the_boundary() {
        for port in [None, Some(8443)] {
            let instance = instance(port);
            for service in service::services(&instance) {
                let unit = render(&instance, &service);
                let marker = unit.split('@').any(|part| {
                    !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                });
                assert!(!marker, "{unit}");
                if ["proxy", "orchestrator"].contains(&service.key) {
                    assert!(unit.contains("\nRequires=ptx-boundary.service\n"));
                }
            }
        }
    }

    #[test]
    fn the_boundary_and_the_gate_read_the_boot_id_that_everybody_reads() {
        let instance = instance(Some(8443));
        for service in service::services(&instance) {
            let unit = render(&instance, &service);
            // A /proc of its own comes with any of these, and lacks what a container has mounted over it.
            let own_proc = ["ProtectKernelTunables=yes", "ProtectProc=invisible"]
                .iter()
                .any(|line| unit.contains(line));
            if own_proc && service.key != "stand-in" {
                assert!(unit.contains("\nBindReadOnlyPaths=/proc/sys/kernel/random/boot_id\n"));
            } else {
                assert!(["orchestrator", "stand-in"].contains(&service.key));
            }
        }
    }

    #[test]
    fn nothing_in_the_orchestrators_unit_keeps_newuidmap_from_its_privilege() {
        let instance = instance(None);
        // With a User=, systemd adds NoNewPrivileges= to each of these.
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
        let taken = |key: &str| {
            let services = service::services(&instance);
            let service = services.iter().find(|service| service.key == key).unwrap();
            render(&instance, service)
                .lines()
                .any(|line| filters.iter().any(|filter| line.starts_with(filter)))
        };
        assert!(!taken("orchestrator"));
        assert!(taken("proxy"));
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
