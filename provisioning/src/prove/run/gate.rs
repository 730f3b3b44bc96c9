//! Requests through the live gate, in a run that this proof opens.

use std::time::Duration;

use super::Run;
use super::local::not_applicable;
use crate::prove::case::Case;
use crate::prove::gate_run::{GateRun, PORT};
use crate::prove::kind::{Kind, Must};
use crate::prove::spawn;
use crate::prove::task::{Outcome, Report, Task};
use crate::prove::verdict::{self, Control, Judged, Status};

/// How the policy room says it; a test of the installed gate holds them together.
const IN_CLEAR: &str = "in the clear";

impl Run<'_> {
    fn open_run(&self) -> Result<&GateRun, Judged> {
        match &self.gate_run {
            Ok(run) => Ok(run),
            Err(why) if self.subject.instance.is_none() => Err(not_applicable(why)),
            Err(why) => Err((Status::CouldNotTell, why.clone())),
        }
    }

    /// The request that the peer got. What was answered has arrived, and is told in its own time; what was refused will
    /// not come.
    fn head(&self, run: &GateRun, report: &Report, words: &str) -> Option<String> {
        let patience = if report.outcome == Outcome::Answered {
            super::HEARS
        } else {
            Duration::ZERO
        };
        self.peer.head(run.at, words, patience)
    }

    /// A request that the policy allows, by the same user.
    fn listed_control(&self, run: &GateRun, case: &Case) -> Control {
        let listed = spawn::attempt(case.identity, &run.request(&run.url("control"), &[]));
        Control::by("a listed place", &listed)
    }

    pub(super) fn listed(&self, case: &Case) -> Judged {
        let run = match self.open_run() {
            Ok(run) => run,
            Err(judged) => return judged,
        };
        let report = spawn::attempt(case.identity, &run.request(&run.url("listed"), &[]));
        let arrived = self.head(run, &report, "/listed").is_some();
        let (status, saw) = verdict::granted(&report, case.proof.must, None);
        let status = if case.proof.must == Must::Succeed && !arrived {
            Status::Broken
        } else {
            status
        };
        let got = if arrived { "got" } else { "did not get" };
        (status, format!("{saw}; the outside peer {got} it"))
    }

    pub(super) fn unlisted(&self, case: &Case) -> Judged {
        let run = match self.open_run() {
            Ok(run) => run,
            Err(judged) => return judged,
        };
        let address = self.peer.address(false).and_then(|address| {
            self.peer.listen(address, &[], &[], &[PORT])?;
            Ok(address)
        });
        let address = match address {
            Ok(address) => address,
            Err(error) => return (Status::CouldNotTell, error.to_string()),
        };
        let request = run.request(&format!("http://{address}/"), &[]);
        let report = spawn::attempt(case.identity, &request);
        let arrived = self.peer.arrived(address);
        let control = self.listed_control(run, case);
        verdict::at_peer(&report, arrived, Some(&control), None, false)
    }

    /// Each method alone, to a place that the policy lists for all of them.
    pub(super) fn methods(&self, case: &Case) -> Judged {
        let run = match self.open_run() {
            Ok(run) => run,
            Err(judged) => return judged,
        };
        let control = self.listed_control(run, case);
        let mut held = Vec::new();
        for method in &case.proof.names {
            let mark = format!("{}-{method}", case.id.replace('/', "-"));
            let report =
                spawn::attempt(case.identity, &run.request_by(method, &run.url(&mark), &[]));
            if self.head(run, &report, &mark).is_some() {
                return (Status::Broken, format!("{method} reached the outside peer"));
            }
            let (status, saw) = verdict::granted(&report, case.proof.must, Some(&control));
            if status != Status::Holds {
                return (status, format!("{method}: {saw}"));
            }
            held.push(format!("{method}: {saw}"));
        }
        (Status::Holds, held.join("; "))
    }

    /// The gate takes no policy by which a credential would cross the network in the clear. The same policy without it is that of
    /// the open run.
    pub(super) fn plain_credential(&self) -> Judged {
        let run = match self.open_run() {
            Ok(run) => run,
            Err(judged) => return judged,
        };
        match run.with_plain_credential(self.subject.agent.uid) {
            Err(why) => (Status::CouldNotTell, why),
            Ok((200, _)) => (
                Status::Broken,
                "the gate opened a run whose policy puts a credential on plain HTTP".to_owned(),
            ),
            // Another problem of the policy would be no answer to this one.
            Ok((422, words)) if words.contains(IN_CLEAR) => (
                Status::Holds,
                "422, because it would go in the clear; control: a run with the same policy and no credential is open"
                    .to_owned(),
            ),
            Ok((code, words)) => (Status::CouldNotTell, format!("{code} {}", words.trim())),
        }
    }

    /// The gate's own page where a place is down. The same request to a place that is up shows what it would have had to tell.
    pub(super) fn error_page(&self, case: &Case) -> Judged {
        let run = match self.open_run() {
            Ok(run) => run,
            Err(judged) => return judged,
        };
        let mark = format!("{}-path", case.id.replace('/', "-"));
        let path = format!("{mark}?{mark}-query=1");
        let asked = |url: &str| Task {
            kind: Kind::GateError,
            ..run.request(url, &case.proof.headers)
        };
        let report = spawn::attempt(case.identity, &asked(&run.down(&path)));
        let told = report.found.first().map_or("", String::as_str);
        if !told.starts_with('5') {
            let text = format!(
                "no answer of a gate whose upstream is down: {}",
                report.words()
            );
            return (Status::CouldNotTell, text);
        }
        let repeated = report.found.get(1..).unwrap_or_default();
        if !repeated.is_empty() {
            return verdict::none_of(repeated, "", "the gate's page repeats");
        }
        let up = spawn::attempt(
            case.identity,
            &run.request(&run.url(&path), &case.proof.headers),
        );
        let head = self.head(run, &up, &mark).unwrap_or_default();
        let value = |header: &String| {
            header
                .split_once(':')
                .is_some_and(|(_, value)| head.contains(value.trim()))
        };
        let control = Control::new(
            head.contains(&mark) && case.proof.headers.iter().all(value),
            "all of it arrived at a listed place that is up",
        );
        let refused = Report::new(
            Outcome::Refused,
            format!("{told}, and nothing of the request"),
        );
        verdict::granted(&refused, Must::Fail, Some(&control))
    }

    pub(super) fn headers(&self, case: &Case) -> Judged {
        let run = match self.open_run() {
            Ok(run) => run,
            Err(judged) => return judged,
        };
        let mark = format!("/{}", case.id.replace('/', "-"));
        let request = run.request(&run.url(&mark[1..]), &case.proof.headers);
        let report = spawn::attempt(case.identity, &request);
        let Some(head) = self.head(run, &report, &mark) else {
            // A request that is refused for what it carries takes nothing along either.
            let code = report.found.first().map(String::as_str);
            if matches!(code, Some("400" | "403")) {
                let control = self.listed_control(run, case);
                return verdict::granted(&report, Must::Fail, Some(&control));
            }
            let text = format!("the request did not arrive: {}", report.words());
            return (Status::CouldNotTell, text);
        };
        let head = head.to_ascii_lowercase();
        let value = |header: &str| {
            let (_, value) = header.split_once(':').unwrap_or(("", header));
            value.trim().to_ascii_lowercase()
        };
        let headers = case.proof.headers.iter();
        let leaked: Vec<String> = headers
            .filter(|header| head.contains(value(header).as_str()))
            .cloned()
            .collect();
        let good = format!(
            "the request arrived without any of {}",
            case.proof.headers.len()
        );
        verdict::none_of(&leaked, good, "there arrived")
    }
}
