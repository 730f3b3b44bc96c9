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
    /// The control met the same lack: this machine has nothing of the kind, for anybody.
    pub lacks: bool,
    /// What it was, and how it went.
    pub words: String,
}

impl Control {
    /// One that succeeded or did not.
    pub fn new(works: bool, words: impl Into<String>) -> Self {
        Self {
            works,
            lacks: false,
            words: words.into(),
        }
    }

    /// The same attempt by `who`, to whom it should be granted.
    pub fn by(who: &str, report: &Report) -> Self {
        Self {
            works: is_granted(report),
            lacks: report.outcome == Outcome::Absent,
            words: format!("{who}: {}", report.words()),
        }
    }
}

pub(super) type Judged = (Status, String);

/// How a kernel, a network or a service says no. Every other error says that the attempt itself went wrong.
const REFUSALS: [&str; 17] = [
    "EACCES",
    "EADDRINUSE",
    "EADDRNOTAVAIL",
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "ENETDOWN",
    "ENETUNREACH",
    "ENODATA",
    "ENXIO",
    "EPERM",
    "EPIPE",
    "EROFS",
    "ESRCH",
    "ETXTBSY",
];

/// What a report says of an attempt, whatever had to come of it.
enum Said<'r> {
    /// It was let through, or answered.
    Granted,
    /// It was told no, or heard nothing.
    Refused,
    /// There is nothing to try it on.
    Absent,
    /// It was not made, or failed for another reason than a refusal.
    Failed(&'r str),
}

fn said(report: &Report) -> Said<'_> {
    match report.outcome {
        Outcome::Answered | Outcome::Connected | Outcome::Granted => Said::Granted,
        Outcome::Sent | Outcome::TimedOut => Said::Refused,
        Outcome::Refused => match report.errno.as_deref() {
            None => Said::Refused,
            Some(errno) if REFUSALS.contains(&errno) => Said::Refused,
            Some(_) => Said::Failed("no refusal, but an error of the attempt itself"),
        },
        Outcome::Absent => Said::Absent,
        Outcome::Unable => Said::Failed("it was not made"),
    }
}

/// Whether what was asked for was given.
pub(super) fn is_granted(report: &Report) -> bool {
    matches!(said(report), Said::Granted)
}

/// Whether it was told no, and nothing else went wrong.
pub(super) fn is_refused(report: &Report) -> bool {
    matches!(said(report), Said::Refused)
}

/// A refusal beside its control. Without one nobody knows whether anything was refused.
fn beside(words: &str, control: Option<&Control>) -> Judged {
    match control {
        None => (
            Status::CouldNotTell,
            format!("{words}; there is no control"),
        ),
        Some(control) if control.lacks => (
            Status::NotApplicable,
            format!("{words}, and nobody here has more: {}", control.words),
        ),
        Some(control) if !control.works => (
            Status::CouldNotTell,
            format!("{words}, but the control did not work: {}", control.words),
        ),
        Some(control) => (
            Status::Holds,
            format!("{words}; control: {}", control.words),
        ),
    }
}

/// An attempt that must not reach the peer. `led`: flows of its kind are led to the gate, which may answer them.
pub(super) fn at_peer(
    report: &Report,
    arrived: usize,
    control: Option<&Control>,
    answer: Option<Answer>,
    led: bool,
) -> Judged {
    let words = report.words();
    if arrived > 0 {
        let text = format!("{words}; {arrived} packets reached the outside peer");
        return (Status::Broken, text);
    }
    match said(report) {
        Said::Failed(why) => return (Status::CouldNotTell, format!("{words}: {why}")),
        Said::Granted if !led => {
            let text = format!("{words}, but not by the outside peer, and nothing is led here");
            return (Status::CouldNotTell, text);
        }
        Said::Absent if !control.is_some_and(|control| control.lacks) => {
            let text = format!("{words}: it was not made, and the control was");
            return (Status::CouldNotTell, text);
        }
        Said::Absent | Said::Granted | Said::Refused => {}
    }
    let text = format!("{words}; nothing reached the outside peer");
    let (status, text) = beside(&text, control);
    if status == Status::Holds && answer.is_some_and(|answer| !is_told(report, answer)) {
        let text = format!("{words}: the caller did not hear it at once");
        return (Status::Broken, text);
    }
    (status, text)
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
    match (must, said(report)) {
        (_, Said::Failed(why)) => (Status::CouldNotTell, format!("{words}: {why}")),
        (Must::Succeed, Said::Granted) => (Status::Holds, words),
        (Must::Succeed, Said::Refused | Said::Absent) | (Must::Fail, Said::Granted) => {
            (Status::Broken, words)
        }
        (Must::Fail, Said::Refused) => beside(&words, control),
        (Must::Fail, Said::Absent) => match control {
            Some(control) if control.works => {
                let text = format!("{words}, but the control found it: {}", control.words);
                (Status::CouldNotTell, text)
            }
            _ => (Status::NotApplicable, words),
        },
    }
}

/// A search for offenders: `good` says what was looked at, `bad` what they do.
pub(super) fn none_of(offenders: &[String], good: impl Into<String>, bad: &str) -> Judged {
    if offenders.is_empty() {
        return (Status::Holds, good.into());
    }
    (Status::Broken, format!("{bad} {}", offenders.join(", ")))
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
        lacks: false,
        words: String::new(),
    });
    const BAD: Option<&Control> = Some(&Control {
        works: false,
        lacks: false,
        words: String::new(),
    });
    const NOTHING: Option<&Control> = Some(&Control {
        works: false,
        lacks: true,
        words: String::new(),
    });

    #[test]
    fn the_peer_decides_and_only_beside_a_control_that_works() {
        let judged = |report: &Report, arrived, control, answer| {
            at_peer(report, arrived, control, answer, false).0
        };
        let refused = report(Outcome::Refused, Some("ECONNREFUSED"));
        assert_eq!(judged(&refused, 0, GOOD, None), Status::Holds);
        assert_eq!(judged(&refused, 1, GOOD, None), Status::Broken);
        assert_eq!(judged(&refused, 0, BAD, None), Status::CouldNotTell);
        assert_eq!(judged(&refused, 0, None, None), Status::CouldNotTell);
        // Redirected to the gate: connected, and nothing left. Where nothing is led, nobody knows who answered.
        let redirected = report(Outcome::Connected, None);
        let reset = Some(Answer::Reset);
        assert_eq!(at_peer(&redirected, 0, GOOD, reset, true).0, Status::Holds);
        assert_eq!(judged(&redirected, 0, GOOD, reset), Status::CouldNotTell);
        let silent = report(Outcome::TimedOut, None);
        assert_eq!(judged(&silent, 0, GOOD, None), Status::Holds);
        assert_eq!(judged(&silent, 0, GOOD, reset), Status::Broken);
    }

    /// Whatever goes wrong with an attempt, it is no refusal.
    #[test]
    fn an_attempt_that_was_not_made_is_never_held() {
        let failures = [
            report(Outcome::Unable, None),
            report(Outcome::Refused, Some("ENOSYS")),
            report(Outcome::Refused, Some("ENOEXEC")),
            report(Outcome::Refused, Some("EMFILE")),
            report(Outcome::Refused, Some("EINVAL")),
            report(Outcome::Refused, Some("something that is no number")),
            report(Outcome::Absent, Some("ENOENT")),
        ];
        for failure in failures {
            for control in [None, BAD, GOOD, NOTHING] {
                for led in [false, true] {
                    let (status, _) = at_peer(&failure, 0, control, None, led);
                    assert_ne!(status, Status::Holds, "{failure:?} {control:?}");
                }
                let (status, _) = granted(&failure, Must::Fail, control);
                assert_ne!(status, Status::Holds, "{failure:?} {control:?}");
            }
            assert_eq!(
                at_peer(&failure, 0, GOOD, None, true).0,
                Status::CouldNotTell
            );
            assert_eq!(granted(&failure, Must::Fail, GOOD).0, Status::CouldNotTell);
        }
        let refused = report(Outcome::Refused, Some("EACCES"));
        assert_eq!(granted(&refused, Must::Fail, GOOD).0, Status::Holds);
        assert_eq!(granted(&refused, Must::Fail, None).0, Status::CouldNotTell);
        assert_eq!(granted(&refused, Must::Succeed, GOOD).0, Status::Broken);
        let nothing = report(Outcome::Absent, None);
        for control in [None, BAD, NOTHING] {
            let (status, _) = granted(&nothing, Must::Fail, control);
            assert_eq!(status, Status::NotApplicable);
        }
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
