//! Requests that wait for a person, and what was decided about them.
//!
//! What is decided about is a [subject](policy::Held::subject): the exact request. A decision is good once and
//! until it expires. Whoever asks the same again, with the same subject, meets the same hold, so that a client that
//! gave up and comes back does not ask people twice. Nothing of this outlives the process: after a restart
//! every request that waited has ended and asks anew.

mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use policy::record::Record;
use policy::{Code, Held, Refusal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub use view::View;

/// Holds of all askers together, and of one.
const MOST: usize = 256;
const MOST_OF_ONE: usize = 16;

/// Every hold of this process.
#[derive(Debug, Default)]
pub struct Holds {
    waiting: Mutex<BTreeMap<String, Waiting>>,
}

/// A hold that was decided for a request, as the record keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// What was approved.
    pub subject: String,
    /// The hold.
    pub id: String,
    /// Who decided; nobody where nobody did.
    pub decider: Option<String>,
}

/// A request that does not leave after a hold.
#[derive(Debug)]
pub struct Not {
    pub refusal: Refusal,
    pub mark: Mark,
}

impl Not {
    /// Without a decision about it.
    pub fn undecided(held: &Held, refusal: Refusal) -> Self {
        let mark = Mark {
            subject: held.subject().to_owned(),
            id: String::new(),
            decider: None,
        };
        Self { refusal, mark }
    }
}

/// Who asks, and for what.
#[derive(Debug)]
pub struct Asking<'a> {
    /// The id of the request.
    pub id: &'a str,
    /// What the log would say about who it is.
    pub record: Record,
    /// Nobody else's request is the same as this one's.
    pub owner: &'a Arc<str>,
    /// The method and the target, as sent.
    pub method: &'a str,
    pub target: &'a str,
    /// The whole body, if it was read.
    pub body: Option<&'a Bytes>,
}

/// Why a decision was not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HoldError {
    #[error("there is no such hold; it may have been decided, used or expired")]
    NotFound,
    #[error("{user} may not decide this hold: {}", who(.by))]
    NotYours { user: String, by: Vec<String> },
    #[error("the digest is not this hold's: look at it again with `portcullis hold show`")]
    OtherDigest,
    #[error("{0} has approved it already")]
    Decided(String),
}

fn who(by: &[String]) -> String {
    if by.is_empty() {
        return "whoever administers the gate may (admin in [[control.peer]])".to_owned();
    }
    format!("{} may (hold_by in the policy)", by.join(", "))
}

#[derive(Debug)]
struct Waiting {
    owner: Arc<str>,
    subject: String,
    expires: Instant,
    view: View,
    verdict: watch::Sender<Option<Verdict>>,
}

#[derive(Debug, Clone)]
enum Verdict {
    Approved(String),
    Denied { by: String, reason: Option<String> },
}

/// What somebody decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decide {
    Approve,
    Deny { reason: Option<String> },
}

impl Holds {
    /// Waits until somebody who may has decided about this very request, or the time is over. `told` hears of a
    /// hold that is new.
    ///
    /// # Errors
    /// The refusal, where it was denied, nobody decided, or there are too many holds.
    pub async fn decided(
        &self,
        held: &Held,
        asking: &Asking<'_>,
        told: impl FnOnce(&View),
    ) -> Result<Mark, Box<Not>> {
        let (id, expires, mut verdict) = match self.join(held, asking) {
            Ok((joined, new)) => {
                if let Some(view) = new {
                    told(&view);
                }
                joined
            }
            Err(refusal) => return Err(Box::new(Not::undecided(held, refusal))),
        };
        let mark = |decider: Option<String>| Mark {
            subject: held.subject().to_owned(),
            id: id.clone(),
            decider,
        };
        let refuse = |code, sentence: &str, remedy: &str, decider| {
            let refusal = Refusal::new(code, sentence, remedy).by(held.rule(), held.why());
            let mark = mark(decider);
            Err(Box::new(Not { refusal, mark }))
        };
        let decided = tokio::select! {
            biased;
            decided = verdict.wait_for(Option::is_some) => decided.ok().and_then(|verdict| verdict.clone()),
            () = sleep_until(expires) => None,
        };
        match decided {
            // Good once: of several that wait, one takes it.
            Some(Verdict::Approved(by)) if self.waiting().remove(&id).is_some() => {
                Ok(mark(Some(by)))
            }
            Some(Verdict::Approved(by)) => refuse(
                Code::HoldDenied,
                "an approval is good once, and the same request has used it",
                "ask again, if it shall be done again",
                Some(by),
            ),
            Some(Verdict::Denied { by, reason }) => {
                let reason = reason
                    .map(|reason| format!(": {reason}"))
                    .unwrap_or_default();
                refuse(
                    Code::HoldDenied,
                    &format!("{by} was asked about this request and said no{reason}"),
                    "do not send it again as it is; ask whoever said no what to do instead",
                    Some(by),
                )
            }
            None => {
                self.expire();
                refuse(
                    Code::HoldExpired,
                    &format!(
                        "nobody decided about this request within {} seconds",
                        held.seconds()
                    ),
                    "ask for a decision (`portcullis hold list`), then send the same request again",
                    None,
                )
            }
        }
    }

    /// Every hold, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<View> {
        self.expire();
        self.waiting().values().map(Waiting::shown).collect()
    }

    /// One of them.
    #[must_use]
    pub fn show(&self, id: &str) -> Option<View> {
        self.expire();
        self.waiting().get(id).map(Waiting::shown)
    }

    /// Takes a decision of `user`. With a digest, only about exactly that.
    ///
    /// # Errors
    /// [`HoldError`]; nothing was decided.
    pub fn decide(
        &self,
        id: &str,
        decide: Decide,
        user: &str,
        admin: bool,
        digest: Option<&str>,
    ) -> Result<View, HoldError> {
        self.expire();
        let mut waiting = self.waiting();
        let hold = waiting.get_mut(id).ok_or(HoldError::NotFound)?;
        let by = &hold.view.by;
        let may = if by.is_empty() {
            admin
        } else {
            by.iter().any(|name| name == user)
        };
        if !may {
            return Err(HoldError::NotYours {
                user: user.to_owned(),
                by: by.clone(),
            });
        }
        if digest.is_some_and(|digest| digest != hold.view.digest) {
            return Err(HoldError::OtherDigest);
        }
        if let Some(Verdict::Approved(by)) = &*hold.verdict.borrow() {
            // It can still be taken back, as long as nothing has used it.
            if decide == Decide::Approve {
                return Err(HoldError::Decided(by.clone()));
            }
        }
        let user = user.to_owned();
        match decide {
            Decide::Approve => {
                hold.view.state = "approved";
                hold.view.decider = Some(user.clone());
                hold.verdict.send_replace(Some(Verdict::Approved(user)));
                Ok(hold.shown())
            }
            Decide::Deny { reason } => {
                let mut view = hold.shown();
                (view.state, view.decider) = ("denied", Some(user.clone()));
                hold.verdict
                    .send_replace(Some(Verdict::Denied { by: user, reason }));
                waiting.remove(id);
                Ok(view)
            }
        }
    }

    /// The hold of this very request: the one that is there, or a new one.
    #[allow(
        clippy::type_complexity,
        reason = "what is joined, and what is new about it"
    )]
    fn join(
        &self,
        held: &Held,
        asking: &Asking<'_>,
    ) -> Result<
        (
            (String, Instant, watch::Receiver<Option<Verdict>>),
            Option<View>,
        ),
        Refusal,
    > {
        self.expire();
        let mut waiting = self.waiting();
        let same = waiting
            .iter()
            .find(|(_, hold)| hold.owner == *asking.owner && hold.subject == held.subject());
        if let Some((id, hold)) = same {
            return Ok(((id.clone(), hold.expires, hold.verdict.subscribe()), None));
        }
        let of_one = waiting
            .values()
            .filter(|hold| hold.owner == *asking.owner)
            .count();
        if waiting.len() >= MOST || of_one >= MOST_OF_ONE {
            return Err(Refusal::new(
                Code::LimitReached,
                "too many requests wait for a decision",
                "wait until some of them are decided (`portcullis hold list`)",
            )
            .by(held.rule(), held.why()));
        }
        let id = format!("h-{}", asking.id);
        let expires = Instant::now() + Duration::from_secs(held.seconds());
        let (verdict, seen) = watch::channel(None);
        let hold = Waiting {
            owner: Arc::clone(asking.owner),
            subject: held.subject().to_owned(),
            expires,
            view: View::of(&id, held, asking),
            verdict,
        };
        let view = hold.shown();
        waiting.insert(id.clone(), hold);
        Ok(((id, expires, seen), Some(view)))
    }

    fn expire(&self) {
        let now = Instant::now();
        self.waiting().retain(|_, hold| hold.expires > now);
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn shown(&self) -> View {
        let mut view = self.view.clone();
        view.seconds_left = self
            .expires
            .saturating_duration_since(Instant::now())
            .as_secs();
        view.requests = self.verdict.receiver_count();
        view
    }
}
