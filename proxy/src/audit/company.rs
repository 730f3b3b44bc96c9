//! Those who wait for one sync: they are told together, and being one of them costs no memory of its own.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use super::AuditError;

/// What became of the lines of a company.
type Outcome = Result<(), AuditError>;

/// Those who wait for the next sync, as the log has them. Dropped without a word, they hear that the
/// log has ended.
pub(super) struct Company {
    told: Arc<Told>,
    /// The ids of their records, one after the other, and where each ends.
    ids: String,
    ends: Vec<usize>,
}

#[derive(Debug, Default)]
struct Told {
    outcome: OnceLock<Outcome>,
    bell: Notify,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Member(Arc<Told>);

impl Company {
    pub(super) fn new() -> Self {
        Self {
            told: Arc::default(),
            ids: String::new(),
            ends: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whoever appended the record with this id waits as well.
    pub(super) fn join(&mut self, id: &str) -> Member {
        self.ids.push_str(id);
        self.ends.push(self.ids.len());
        Member(Arc::clone(&self.told))
    }

    /// Those who wait now; whoever comes later belongs to another company.
    pub(super) fn take(&mut self) -> Self {
        let room = Self {
            told: Arc::default(),
            ids: String::with_capacity(self.ids.len()),
            ends: Vec::with_capacity(self.ends.len()),
        };
        std::mem::replace(self, room)
    }

    /// The ids of their records.
    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        let begins = std::iter::once(&0).chain(&self.ends);
        let spans = begins.zip(&self.ends);
        spans.map(|(begin, end)| self.ids.get(*begin..*end).unwrap_or_default().to_owned())
    }

    /// Tells all of them. One that went away has cancelled its request.
    pub(super) fn tell(self, outcome: Outcome) {
        self.told.say(outcome);
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        self.told.say(Err(ended()));
    }
}

impl Told {
    fn say(&self, outcome: Outcome) {
        // Only the first word counts.
        if self.outcome.set(outcome).is_ok() {
            self.bell.notify_waiters();
        }
    }
}

impl Member {
    pub(super) async fn wait(self) -> Outcome {
        loop {
            // Made before the look, so that it hears whatever is said after it.
            let rung = self.0.bell.notified();
            if let Some(outcome) = self.0.outcome.get() {
                return outcome.clone();
            }
            rung.await;
        }
    }
}

fn ended() -> AuditError {
    AuditError::Unavailable("the audit thread has ended".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_hear_the_same_once_and_those_who_come_later_do_not() {
        let mut open = Company::new();
        let first = [open.join("a"), open.join(""), open.join("bc")];
        let taken = open.take();
        let later = open.join("d");
        assert_eq!((taken.len(), open.len()), (3, 1));
        assert_eq!(taken.ids().collect::<Vec<_>>(), ["a", "", "bc"]);
        let waiting = first.map(|member| tokio::spawn(member.wait()));
        tokio::task::yield_now().await;
        taken.tell(Ok(()));
        for one in waiting {
            assert!(one.await.unwrap().is_ok());
        }
        let later = tokio::spawn(later.wait());
        tokio::task::yield_now().await;
        assert!(!later.is_finished(), "that was said to others");
        open.tell(Err(AuditError::Unavailable("full".to_owned())));
        assert!(later.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn whoever_looks_after_it_was_said_hears_it_too() {
        let mut open = Company::new();
        let late = open.join("a");
        open.tell(Ok(()));
        assert!(late.wait().await.is_ok());
    }

    #[tokio::test]
    async fn a_company_that_is_lost_hears_of_it() {
        let mut open = Company::new();
        let member = open.join("a");
        drop(open);
        let problem = member.wait().await.unwrap_err();
        assert!(problem.to_string().contains("ended"), "{problem}");
    }
}
