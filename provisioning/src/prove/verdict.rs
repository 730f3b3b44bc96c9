//! What came of a proof, and how a report and what the outside peer saw become it.

use serde::Serialize;

use super::kind::{Answer, Must};
use super::task::{Outcome, Report};

/// What a proof says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Holds,
    Broken,
    /// A refusal whose control did not work, or an attempt that could not be made.
    CouldNotTell,
    /// There is nothing of the kind here.
    NotApplicable,
}

/// One proof, tried once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The proof's id with what was varied: `KRN-01/ipv4/443`.
    pub id: String,
    pub must: Must,
    pub status: Status,
    /// In words, who tried what.
    pub tried: String,
    /// Why it must be so.
    pub reason: String,
    /// What was seen.
    pub saw: String,
    /// Whether the gate was down.
    pub gate_down: bool,
    pub ms: u64,
}

/// Whether an attempt that must fail would have been seen had it not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    pub works: bool,
    /// What it was, and how it went.
    pub words: String,
}

pub(super) type Judged = (Status, String);

/// An attempt that must not reach the peer.
pub(super) fn at_peer(
    report: &Report,
    arrived: usize,
    control: Option<&Control>,
    answer: Option<Answer>,
) -> Judged {
    let words = report.words();
    if arrived > 0 {
        let text = format!("{words}; {arrived} packets reached the outside peer");
        return (Status::Broken, text);
    }
    let Some(control) = control else {
        return (
            Status::CouldNotTell,
            format!("{words}; there is no control"),
        );
    };
    if !control.works {
        let text = format!("{words}, but the control did not work: {}", control.words);
        return (Status::CouldNotTell, text);
    }
    let text = format!(
        "{words}; nothing reached the outside peer; control: {}",
        control.words
    );
    match report.outcome {
        Outcome::Unable => (Status::CouldNotTell, words),
        _ if answer.is_some_and(|answer| !is_told(report, answer)) => (
            Status::Broken,
            format!("{words}: the caller did not hear it at once"),
        ),
        _ => (Status::Holds, text),
    }
}

/// Whether a refused caller heard it at once. One whose connection was taken over by the gate did as well.
fn is_told(report: &Report, answer: Answer) -> bool {
    let refused = report.outcome == Outcome::Refused;
    let reset = matches!(report.errno.as_deref(), Some("ECONNREFUSED" | "ECONNRESET"));
    match answer {
        Answer::Reset => refused && reset || report.outcome == Outcome::Connected,
        Answer::Error => refused,
    }
}

/// An attempt whose own report tells: granted or not.
pub(super) fn granted(report: &Report, must: Must, control: Option<&Control>) -> Judged {
    let words = report.words();
    let granted = matches!(
        report.outcome,
        Outcome::Granted | Outcome::Answered | Outcome::Connected
    );
    match (must, granted) {
        _ if report.outcome == Outcome::Unable => (Status::CouldNotTell, words),
        (Must::Succeed, true) => (Status::Holds, words),
        (Must::Succeed, false) | (Must::Fail, true) => (Status::Broken, words),
        (Must::Fail, false) => match control {
            Some(control) if !control.works => {
                let text = format!("{words}, but the control did not work: {}", control.words);
                (Status::CouldNotTell, text)
            }
            Some(control) => (
                Status::Holds,
                format!("{words}; control: {}", control.words),
            ),
            None => (Status::Holds, words),
        },
    }
}

/// All of them together: 0 holds, 1 broken, 2 could not tell. What proves nothing does not hold.
#[must_use]
pub fn exit_code(verdicts: &[Verdict]) -> u8 {
    let any = |status| verdicts.iter().any(|verdict| verdict.status == status);
    let refusal = verdicts
        .iter()
        .any(|verdict| verdict.status == Status::Holds && verdict.must == Must::Fail);
    if any(Status::Broken) {
        1
    } else if any(Status::CouldNotTell) || !refusal {
        2
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome, errno: Option<&str>) -> Report {
        Report {
            errno: errno.map(str::to_owned),
            ..Report::new(outcome, "")
        }
    }

    const GOOD: Option<&Control> = Some(&Control {
        works: true,
        words: String::new(),
    });
    const BAD: Option<&Control> = Some(&Control {
        works: false,
        words: String::new(),
    });

    #[test]
    fn the_peer_decides_and_only_beside_a_control_that_works() {
        let refused = report(Outcome::Refused, Some("ECONNREFUSED"));
        assert_eq!(at_peer(&refused, 0, GOOD, None).0, Status::Holds);
        assert_eq!(at_peer(&refused, 1, GOOD, None).0, Status::Broken);
        assert_eq!(at_peer(&refused, 0, BAD, None).0, Status::CouldNotTell);
        assert_eq!(at_peer(&refused, 0, None, None).0, Status::CouldNotTell);
        // Redirected to the gate: connected, and nothing left.
        let redirected = report(Outcome::Connected, None);
        assert_eq!(
            at_peer(&redirected, 0, GOOD, Some(Answer::Reset)).0,
            Status::Holds
        );
        let silent = report(Outcome::TimedOut, None);
        assert_eq!(at_peer(&silent, 0, GOOD, None).0, Status::Holds);
        assert_eq!(
            at_peer(&silent, 0, GOOD, Some(Answer::Reset)).0,
            Status::Broken
        );
        assert_eq!(
            at_peer(&report(Outcome::Unable, None), 0, GOOD, None).0,
            Status::CouldNotTell
        );
    }

    #[test]
    fn nothing_proven_is_not_proven() {
        let verdict = |status, must| Verdict {
            id: "X".into(),
            must,
            status,
            tried: String::new(),
            reason: String::new(),
            saw: String::new(),
            gate_down: false,
            ms: 0,
        };
        let holds = verdict(Status::Holds, Must::Fail);
        let untold = verdict(Status::CouldNotTell, Must::Fail);
        let broken = verdict(Status::Broken, Must::Fail);
        let works = verdict(Status::Holds, Must::Succeed);
        let absent = verdict(Status::NotApplicable, Must::Fail);
        assert_eq!(exit_code(&[]), 2);
        assert_eq!(exit_code(&[works, absent.clone()]), 2);
        assert_eq!(exit_code(&[holds.clone(), absent]), 0);
        assert_eq!(exit_code(&[holds.clone(), untold.clone()]), 2);
        assert_eq!(exit_code(&[holds, untold, broken]), 1);
    }
}
