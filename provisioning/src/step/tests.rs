use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::*;
use crate::instance::{Instance, Record};
use crate::layout::Layout;

/// Right after it was applied, unless it is broken.
struct Fake {
    done: Cell<bool>,
    applied: Cell<u32>,
    broken: bool,
}

impl Step for &'static Fake {
    fn name(&self) -> String {
        "fake".into()
    }
    fn check(&self, _: &Site) -> Result<State, StepError> {
        let problems = if self.done.get() {
            vec![]
        } else {
            vec!["not there".to_owned()]
        };
        Ok(State::from_problems(problems))
    }
    fn apply(&self, _: &Site) -> Result<(), StepError> {
        self.applied.set(self.applied.get() + 1);
        self.done.set(!self.broken);
        Ok(())
    }
    fn repair(&self, _: &Site) -> String {
        "mend it".into()
    }
}

fn site() -> Site {
    let record = Record {
        name: "t".into(),
        repo: "a/b".into(),
        stand_in_port: None,
        gate_port: 3128,
        scope: crate::instance::Scope::Agents,
    };
    let layout = Layout::new(Path::new("/nonexistent"), "t").unwrap();
    Site {
        instance: Instance { layout, record },
        binaries: PathBuf::from("/nonexistent"),
        token_file: None,
        systemd: false,
    }
}

fn fake(broken: bool) -> &'static Fake {
    Box::leak(Box::new(Fake {
        done: Cell::new(false),
        applied: Cell::new(0),
        broken,
    }))
}

#[test]
fn a_second_time_changes_nothing() {
    let step = fake(false);
    let steps: Vec<Box<dyn Step>> = vec![Box::new(step)];
    assert_eq!(carry_out(&steps, &site()).unwrap(), 1);
    assert_eq!(carry_out(&steps, &site()).unwrap(), 0);
    assert_eq!(step.applied.get(), 1);
}

#[test]
fn a_failure_names_step_reason_and_repair_and_stops_there() {
    let (first, second) = (fake(true), fake(false));
    let steps: Vec<Box<dyn Step>> = vec![Box::new(first), Box::new(second)];
    let text = carry_out(&steps, &site()).unwrap_err().to_string();
    assert!(text.contains("\"fake\"") && text.contains("not there") && text.contains("mend it"));
    assert_eq!(second.applied.get(), 0);
}
