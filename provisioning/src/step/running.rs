//! A service runs, as the binary and configuration that are installed now.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{State, Step, StepError, doing};
use crate::control::{self, Health};
use crate::service::{self, Service};
use crate::site::Site;

/// How long a service may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// One service of the instance.
#[derive(Debug)]
pub struct Running {
    /// Its key in [`crate::service`].
    pub key: &'static str,
}

impl Running {
    fn service(&self, site: &Site) -> Result<Service, StepError> {
        service::service(&site.instance, self.key)
            .ok_or_else(|| StepError::Said(format!("this instance has no {}", self.key)))
    }
}

impl Step for Running {
    fn name(&self) -> String {
        format!("service {}", self.key)
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let service = self.service(site)?;
        let problems = match control::health(&site.instance, site.systemd, self.key) {
            Health::Down(why) => vec![why],
            Health::Up(state) => {
                let mut problems = Vec::new();
                let changed = match state.fingerprint {
                    Some(running) => {
                        running != control::fingerprint(&site.instance, site.systemd, &service)?
                    }
                    None => {
                        site.systemd
                            && control::is_touched_since(&site.instance, &service, &state.since)?
                    }
                };
                if changed {
                    problems.push("its binary, configuration or unit has changed".to_owned());
                }
                problems.extend(control::not_ready(&site.instance, self.key));
                problems
            }
        };
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let service = self.service(site)?;
        if control::stop(&site.instance, site.systemd, self.key)? {
            doing("stop the old one");
        }
        doing(&format!(
            "start {} {}",
            service.program.display(),
            service.arguments.join(" ")
        ));
        control::start(&site.instance, site.systemd, &service)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let problem = match control::health(&site.instance, site.systemd, self.key) {
                Health::Down(why) => Some(why),
                Health::Up(_) => control::not_ready(&site.instance, self.key),
            };
            let Some(problem) = problem else {
                return Ok(());
            };
            let hopeless = control::keeps_falling(&site.instance, site.systemd, self.key);
            if hopeless || Instant::now() > deadline {
                let words = control::last_words(&site.instance, site.systemd, self.key);
                return Err(StepError::Said(format!("{problem}\n{words}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn repair(&self, site: &Site) -> String {
        if site.systemd {
            return format!(
                "journalctl -u '{}-{}*' -n 50",
                site.instance.layout.name(),
                self.key
            );
        }
        let log = crate::supervise::log_path(&site.instance, self.key);
        show(&log)
    }
}

fn show(log: &Path) -> String {
    format!("tail -n 50 {}", log.display())
}
