//! `portcullis status`: every service, the boundary's proof, the gate's and the orchestrator's own words.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use crate::control::{self, Health};
use crate::instance::Instance;
use crate::process::Call;
use crate::site::Site;
use crate::{ready, service};

/// One service as `status` shows it.
#[derive(Debug, Serialize)]
pub struct ServiceReport {
    pub service: &'static str,
    pub up: bool,
    pub pid: Option<i32>,
    /// RFC 3339.
    pub since: Option<String>,
    pub uptime_seconds: Option<i64>,
    pub restarts: Option<u32>,
    pub problem: Option<String>,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether everything is up and proven.
    pub ok: bool,
    pub name: String,
    pub prefix: String,
    pub upstream: String,
    pub repository: String,
    pub services: Vec<ServiceReport>,
    pub boundary_proven: bool,
    pub boundary_problem: Option<String>,
    /// `GET /v1/status` of the gate.
    pub gate: Option<Value>,
    /// Live runs as the orchestrator lists them.
    pub runs: Option<Value>,
}

impl Report {
    /// Asks everybody.
    #[must_use]
    pub fn gather(instance: &Instance) -> Self {
        let by_systemd = Site::host_has_systemd();
        let services: Vec<ServiceReport> = service::services(instance)
            .iter()
            .map(|service| one(instance, by_systemd, service.key))
            .collect();
        let boundary = ready::boundary(instance);
        Self {
            ok: boundary.is_ok()
                && services
                    .iter()
                    .all(|service| service.up && service.problem.is_none()),
            name: instance.layout.name().to_owned(),
            prefix: instance.layout.prefix().display().to_string(),
            upstream: instance.upstream_host().to_owned(),
            repository: instance.record.repo.clone(),
            services,
            boundary_proven: boundary.is_ok(),
            boundary_problem: boundary.err(),
            gate: ask(control::gate(instance, &["status", "--json"])),
            runs: ask(control::orchestrator(
                instance,
                &["run", "list", "--live", "--json"],
            )),
        }
    }

    /// One JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// For a person.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} at {}, upstream {} ({})\n",
            self.name, self.prefix, self.upstream, self.repository
        );
        for service in &self.services {
            let state = match (service.up, service.pid, service.uptime_seconds) {
                (true, Some(pid), Some(uptime)) => {
                    let since = service.since.as_deref().unwrap_or("?");
                    format!("up    pid {pid:<8} since {since} ({})", duration(uptime))
                }
                _ => "DOWN".to_owned(),
            };
            let _ = write!(text, "  {:<13} {state}", service.service);
            if let Some(restarts) = service.restarts.filter(|restarts| *restarts > 0) {
                let _ = write!(text, ", restarted {restarts} times");
            }
            if let Some(problem) = &service.problem {
                let _ = write!(text, "  {problem}");
            }
            text.push('\n');
        }
        let _ = match &self.boundary_problem {
            None => writeln!(
                text,
                "  the boundary is proven: the kernel's rules are the configured ones"
            ),
            Some(problem) => writeln!(text, "  the boundary is NOT proven: {problem}"),
        };
        if let Some(gate) = &self.gate {
            let _ = writeln!(text, "  the gate: {}", brief(gate));
        }
        if let Some(Value::Array(runs)) = &self.runs {
            let _ = writeln!(text, "  live runs: {}", runs.len());
        }
        text
    }
}

fn one(instance: &Instance, by_systemd: bool, key: &'static str) -> ServiceReport {
    match control::health(instance, by_systemd, key) {
        Health::Up(up) => {
            let since: Option<jiff::Timestamp> = up.since.parse().ok();
            ServiceReport {
                service: key,
                up: true,
                pid: Some(up.pid),
                uptime_seconds: since
                    .map(|since| jiff::Timestamp::now().as_second() - since.as_second()),
                since: Some(up.since),
                restarts: Some(up.restarts),
                problem: control::not_ready(instance, key),
            }
        }
        Health::Down(problem) => ServiceReport {
            service: key,
            up: false,
            pid: None,
            since: None,
            uptime_seconds: None,
            restarts: None,
            problem: Some(problem),
        },
    }
}

/// What a sibling says as JSON; `None` when it does not answer, which its service's line tells. Its exit status is its
/// own verdict and does not matter here.
fn ask(call: Call) -> Option<Value> {
    let (_, text, _) = call.outcome().ok()?;
    serde_json::from_str(&text).ok()
}

/// The facts of the gate's status a person looks for first.
fn brief(gate: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(policies) = gate.get("policies").and_then(Value::as_object) {
        for (name, policy) in policies {
            let hash: String = policy["hash"]
                .as_str()
                .unwrap_or_default()
                .chars()
                .take(12)
                .collect();
            let stale = policy["stale"]
                .as_str()
                .map(|why| format!(" STALE: {why}"))
                .unwrap_or_default();
            parts.push(format!("policy {name} {hash}{stale}"));
        }
    }
    for credential in gate
        .get("credentials")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let usable = if credential["ok"] == Value::Bool(true) {
            "usable"
        } else {
            "UNUSABLE"
        };
        parts.push(format!(
            "credential {} {usable}",
            credential["name"].as_str().unwrap_or("?")
        ));
    }
    if let Some(audit) = gate.get("audit") {
        let usable = if audit["ok"] == Value::Bool(true) {
            "durable"
        } else {
            "NOT WRITABLE"
        };
        parts.push(format!("audit {usable}, {} records", audit["seq"]));
    }
    parts.join("; ")
}

fn duration(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_parts_at_most() {
        assert_eq!(duration(7), "7 s");
        assert_eq!(duration(67), "1 min 7 s");
        assert_eq!(duration(3_720), "1 h 2 min");
        assert_eq!(duration(90_000), "1 d 1 h");
    }
}
