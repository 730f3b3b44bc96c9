//! Tasks of Proxmox that answers have named: whoever began one may ask how it goes, and nobody else. Nothing is
//! kept over a restart.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::authority::Authority;
use serde_json::Value;

/// How long a task is remembered.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// Tasks of one asker; the oldest is forgotten for one more.
const MOST_OF_ONE: usize = 256;
/// Askers at one place each; with more, those of whom everything is old are forgotten, and then nothing more is
/// remembered.
const MOST_ASKERS: usize = 4096;
/// An answer that names a task is short.
const MOST_BYTES: usize = 4096;
/// The longest name of a task.
const MOST_NAME: usize = 256;

/// Whose tasks are whose.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<HashMap<Asker, VecDeque<(String, Instant)>>>);

/// Where a task is, and who began it.
type Asker = (Authority, Arc<str>);

impl Tasks {
    /// Whether the asker has begun this task there.
    pub fn is_own(&self, at: &Authority, owner: &Arc<str>, task: &str) -> bool {
        self.is_own_at(at, owner, task, Instant::now())
    }

    fn is_own_at(&self, at: &Authority, owner: &Arc<str>, task: &str, now: Instant) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = known.get(&(at.clone(), Arc::clone(owner)));
        let fresh = |since: &Instant| now.saturating_duration_since(*since) < KEPT_FOR;
        own.is_some_and(|own| own.iter().any(|(name, since)| name == task && fresh(since)))
    }

    fn note(&self, at: &Authority, owner: &Arc<str>, task: &str, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asker = (at.clone(), Arc::clone(owner));
        if known.len() >= MOST_ASKERS && !known.contains_key(&asker) {
            let old =
                |(_, since): &(String, Instant)| now.saturating_duration_since(*since) >= KEPT_FOR;
            known.retain(|_, tasks| !tasks.iter().all(old));
            if known.len() >= MOST_ASKERS {
                tracing::warn!("too many askers have begun tasks; one more is not remembered");
                return;
            }
        }
        let own = known.entry(asker).or_default();
        if own.len() >= MOST_OF_ONE {
            own.pop_front();
        }
        own.push_back((task.to_owned(), now));
    }
}

/// Reads an answer for the task that it names: `{"data":"UPID:..."}`.
#[derive(Debug)]
pub struct Learner {
    at: Authority,
    owner: Arc<str>,
    /// Nothing once it is too long, or has been understood.
    text: Option<Vec<u8>>,
}

impl Learner {
    /// For an answer from there to this asker.
    pub fn new(at: &Authority, owner: &Arc<str>) -> Self {
        Self {
            at: at.clone(),
            owner: Arc::clone(owner),
            text: Some(Vec::new()),
        }
    }

    /// Reads more of the answer. A task is known before the bytes that complete its name go on.
    pub fn read(&mut self, tasks: &Tasks, more: &[u8]) {
        let Some(text) = &mut self.text else {
            return;
        };
        if text.len() + more.len() > MOST_BYTES {
            self.text = None;
            return;
        }
        text.extend_from_slice(more);
        let Ok(answer) = serde_json::from_slice::<Value>(text) else {
            return;
        };
        if let Some(task) = answer
            .get("data")
            .and_then(Value::as_str)
            .filter(|name| is_task(name))
        {
            tasks.note(&self.at, &self.owner, task, Instant::now());
            self.text = None;
        }
    }
}

/// `UPID:NODE:PID:PSTART:STARTTIME:TYPE:ID:USER:`.
fn is_task(name: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b":._@!-".contains(&byte);
    name.starts_with("UPID:")
        && name.len() <= MOST_NAME
        && name.bytes().all(byte)
        && name.split(':').count() == 9
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "UPID:pve:00001:00000001:00000001:vzreboot:101:agent@pve!ci:";

    fn at(text: &str) -> Authority {
        Authority::parse(text).unwrap()
    }

    fn learnt(answer: &[&str]) -> Tasks {
        let tasks = Tasks::default();
        let mut learner = Learner::new(&at("pve.example:8006"), &"run:a".into());
        for part in answer {
            learner.read(&tasks, part.as_bytes());
        }
        tasks
    }

    fn own(tasks: &Tasks, task: &str) -> bool {
        tasks.is_own(&at("pve.example:8006"), &"run:a".into(), task)
    }

    #[test]
    fn a_task_is_its_askers_where_it_was_begun() {
        let (first, last) = TASK.split_at(20);
        let tasks = learnt(&["{\"data\":\"", first, &format!("{last}\"}}")]);
        assert!(own(&tasks, TASK));
        assert!(!tasks.is_own(&at("pve.example:8006"), &"run:b".into(), TASK));
        assert!(!tasks.is_own(&at("other.example:8006"), &"run:a".into(), TASK));
        assert!(!own(&tasks, &TASK.replace("101", "102")));
    }

    #[test]
    fn only_an_answer_that_is_a_task_names_one() {
        let long = format!(
            "{{\"x\":\"{}\",\"data\":\"{TASK}\"}}",
            "a".repeat(MOST_BYTES)
        );
        for answer in [
            format!("{{\"data\":[\"{TASK}\"]}}"),
            format!("{{\"data\":{{\"upid\":\"{TASK}\"}}}}"),
            format!("\"{TASK}\""),
            format!("{{\"data\":\"x {TASK}\"}}"),
            format!("{{\"data\":\"{TASK}:\"}}"),
            format!("{{\"data\":\"{TASK}\""),
            long,
        ] {
            assert!(!own(&learnt(&[&answer]), TASK), "{answer}");
        }
        assert!(
            own(&learnt(&[&format!("{{\"data\":\"{TASK}\"}}")]), TASK),
            "control"
        );
    }

    #[test]
    fn tasks_are_forgotten_with_time_and_with_many_more() {
        let (place, owner) = (at("pve.example:8006"), Arc::from("run:a"));
        let tasks = Tasks::default();
        let now = Instant::now();
        tasks.note(&place, &owner, TASK, now);
        let before = now + KEPT_FOR.checked_sub(Duration::from_secs(1)).unwrap();
        assert!(tasks.is_own_at(&place, &owner, TASK, before));
        assert!(!tasks.is_own_at(&place, &owner, TASK, now + KEPT_FOR));
        for n in 0..MOST_OF_ONE {
            assert!(tasks.is_own_at(&place, &owner, TASK, now), "{n}");
            tasks.note(&place, &owner, &format!("UPID:{n}"), now);
        }
        assert!(!tasks.is_own_at(&place, &owner, TASK, now));
        for n in 0..MOST_ASKERS {
            tasks.note(&place, &format!("run:{n}").into(), TASK, now);
        }
        assert_eq!(tasks.0.lock().unwrap().len(), MOST_ASKERS);
        tasks.note(&place, &"run:new".into(), TASK, now + KEPT_FOR);
        assert!(tasks.is_own_at(&place, &"run:new".into(), TASK, now + KEPT_FOR));
    }
}
