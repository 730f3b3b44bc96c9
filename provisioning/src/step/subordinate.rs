//! One range of 65,536 subordinate ids for the orchestrator's runs and one for `portcullis exec`; none for anybody else.

use super::{State, Step, StepError, doing};
use crate::site::Site;
use crate::subid::{self, SubidFiles};

/// Ranges in /etc/subuid and /etc/subgid.
#[derive(Debug)]
pub struct Subordinate;

impl Step for Subordinate {
    fn name(&self) -> String {
        "subordinate ids".to_owned()
    }

    fn check(&self, site: &Site) -> Result<State, StepError> {
        let (uids, gids) = SubidFiles::default().ranges()?;
        let owners = site.instance.range_owners();
        let mut problems: Vec<String> = owners
            .iter()
            .filter(|owner| subid::held(owner, &uids, &gids).is_none())
            .map(|owner| format!("{owner} has no range of {} ids", subid::RANGE))
            .collect();
        for (name, _) in site.instance.accounts() {
            let surplus = !owners.contains(&name)
                && uids.iter().chain(&gids).any(|range| range.owner == name);
            if surplus {
                problems.push(format!("{name} has subordinate ids and must not"));
            }
        }
        Ok(State::from_problems(problems))
    }

    fn apply(&self, site: &Site) -> Result<(), StepError> {
        let owners = site.instance.range_owners();
        let others: Vec<String> = site
            .instance
            .accounts()
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| !owners.contains(name))
            .collect();
        let files = SubidFiles::default();
        files.release(&others)?;
        files.assign(&owners)?;
        let (uids, gids) = files.ranges()?;
        for owner in &owners {
            if let Some(range) = subid::held(owner, &uids, &gids) {
                doing(&format!(
                    "{owner}: {} to {} in /etc/subuid and /etc/subgid",
                    range.first,
                    range.first + (range.count - 1)
                ));
            }
        }
        Ok(())
    }

    fn repair(&self, _: &Site) -> String {
        "cat /etc/subuid /etc/subgid; ls -l /etc/subuid.lock".to_owned()
    }
}
