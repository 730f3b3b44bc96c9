//! The second line of a request's record: written once, at its end, however it ends. Dropping it is
//! an end too, so that a cut stream, a client that left and a panic all leave a line.

use std::sync::Arc;
use std::time::Instant;

use policy::record::{Record, RecordKind};
use policy::{Code, Refusal, RuleId};

use super::account::Account;
use super::body::{Cut, Meter};
use super::live::GoingOn;
use crate::audit::AuditError;
use crate::gate::{Admission, Gate};
use crate::scrub::Reflected;

/// A record that is open once its first line is in the log.
#[derive(Debug)]
pub struct Ending {
    gate: Arc<Gate>,
    record: Option<Box<Record>>,
    /// The end of what was never announced would be the end of nothing.
    begun: bool,
    started: Instant,
    meter: Arc<Meter>,
    going: Option<GoingOn>,
    account: Account,
    /// Held until nothing of the exchange is left.
    _place: Admission,
}

impl Ending {
    /// `record` is the request's line, `meter` counts both bodies.
    pub fn new(
        gate: Arc<Gate>,
        record: Record,
        meter: Arc<Meter>,
        going: GoingOn,
        account: Account,
        place: Admission,
    ) -> Self {
        Self {
            gate,
            record: Some(Box::new(record)),
            begun: false,
            started: Instant::now(),
            meter,
            going: Some(going),
            account,
            _place: place,
        }
    }

    /// Writes the first line, and waits until it is on the disk where that is wanted. The second one
    /// is owed as soon as the first is in the log, also where nobody waits for the disk any longer.
    ///
    /// # Errors
    /// What the line describes must not happen. Nothing is owed then.
    pub async fn begin(&mut self, durably: bool) -> Result<(), AuditError> {
        let Some(record) = self.record.as_deref_mut() else {
            return Ok(());
        };
        let begun = if durably {
            Some(self.gate.audit.begin_durable(&mut *record)?)
        } else {
            self.gate.audit.append(&mut *record)?;
            None
        };
        record.kind = RecordKind::Response;
        record.facts = None;
        self.begun = true;
        if let Some(begun) = begun {
            // Without it the request does not leave, and the log says so itself.
            begun.written().await.inspect_err(|_| self.begun = false)?;
        }
        self.started = Instant::now();
        Ok(())
    }

    /// What the client is about to read.
    pub fn answered(&mut self, status: http::StatusCode, address: Option<std::net::SocketAddr>) {
        if let Some(record) = &mut self.record {
            record.status = Some(status.as_u16());
            record.ms_head = u64::try_from(self.started.elapsed().as_millis()).ok();
            record.address = address.map(|address| address.to_string());
        }
    }

    /// The upstream refused what the gate injected; the record says so, whatever the client gets to
    /// see.
    pub fn credential_refused(&mut self) {
        if let Some(record) = &mut self.record {
            record.code = Some(policy::Code::CredentialRefused);
        }
    }

    /// The answer repeats in `place` what the gate injected, or cannot be looked into: raises the
    /// alarm, and gives the refusal. The record ends with [`Ending::refused`] where the client can
    /// still be told, else with [`Ending::broken`].
    pub fn reflected(&mut self, how: Reflected, place: &str) -> Refusal {
        let (authority, credential) = match &self.record {
            Some(record) => (record.authority.as_deref(), record.credential.as_ref()),
            None => (None, None),
        };
        let authority = authority.unwrap_or("the upstream");
        let refusal = match how {
            Reflected::Found(form) => {
                let whose = credential.map_or("a run's token".to_owned(), |name| {
                    format!("credential {name}")
                });
                let alarm = format!("{whose}: repeated by {authority} in its {place} ({form})");
                tracing::error!("{alarm}");
                self.gate.audit.event(&alarm);
                Refusal::new(
                    Code::CredentialReflected,
                    &format!("{authority} repeats the injected credential in its {place}"),
                    "ask for something that does not repeat it; the operator has been told",
                )
            }
            Reflected::Bomb => Refusal::new(
                Code::CouldNotInspect,
                &format!(
                    "{authority}'s answer unpacks to more than the gate looks into, where it had \
                     injected a credential"
                ),
                "ask without Accept-Encoding, or for less at a time",
            ),
            Reflected::Opaque => Refusal::new(
                Code::CouldNotInspect,
                &format!(
                    "{authority} encoded its answer in a way that the gate cannot look into, where \
                     it had injected a credential"
                ),
                "ask without Accept-Encoding, or for gzip, deflate, br or zstd alone, and for the \
                 whole of it",
            ),
        };
        if let Some(record) = &mut self.record {
            record.code = Some(refusal.code);
        }
        refusal
    }

    /// What the exchange takes.
    pub fn account(&mut self) -> &mut Account {
        &mut self.account
    }

    /// What counts the bodies and stops the exchange.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The exchange ended as it should.
    pub fn complete(&mut self) {
        self.write(None);
    }

    /// The exchange ended early.
    pub fn broken(&mut self, reason: &str) {
        self.write(Some(reason));
    }

    /// The exchange was cut. Gives the refusal for a client that can still be told, where it was a
    /// bound of its rule that cut it.
    pub fn cut(&mut self) -> Option<Refusal> {
        let refusal = match self.meter.why_cut() {
            Some(Cut::Allowance) => self.account.refusal(),
            Some(why) => self.beyond(why),
            None => None,
        };
        match &refusal {
            Some(refusal) => {
                if let Some(record) = &mut self.record {
                    record.code = Some(refusal.code);
                }
                self.write(Some(&refusal.text));
            }
            None => self.write(Some(super::CUT)),
        }
        refusal
    }

    fn beyond(&self, why: Cut) -> Option<Refusal> {
        let rule = self.record.as_ref().and_then(|record| record.rule.as_ref());
        beyond(why, rule, &self.meter)
    }

    /// The exchange ended in a refusal by the gate, such as an unreachable upstream.
    pub fn refused(&mut self, refusal: &policy::Refusal) {
        if let Some(record) = &mut self.record {
            record.status = Some(refusal.status());
            record.code = Some(refusal.code);
        }
        self.write(Some(&refusal.text));
    }

    fn write(&mut self, reason: Option<&str>) {
        let Some(mut record) = self.record.take() else {
            return;
        };
        self.going = None;
        if !self.begun {
            return;
        }
        record.time = crate::audit::now();
        record.bytes_in = Some(self.meter.sent());
        record.bytes_out = Some(self.meter.received());
        record.ms = Some(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX));
        record.reason = reason.map(str::to_owned);
        self.account.settle(&mut record, reason.is_none());
        if let Err(error) = self.gate.audit.append_end(&mut *record) {
            tracing::error!(%error, "the end of a request could not be recorded");
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.cut();
    }
}

/// The refusal of a request that a bound of its rule has cut, or that it would.
pub fn beyond(why: Cut, rule: Option<&RuleId>, meter: &Meter) -> Option<Refusal> {
    let (code, sentence, remedy) = match why {
        // What is left of an allowance is told by whoever counts it.
        Cut::Forbidden | Cut::Allowance => return None,
        Cut::Request => (
            Code::RequestTooLarge,
            format!(
                "the body of the request is longer than the {} bytes that the policy permits",
                meter.most_sent()
            ),
            "send less at a time, or have max_request_bytes raised in the [[service]]",
        ),
        Cut::Answer => (
            Code::AnswerTooLarge,
            format!(
                "the body of the answer is longer than the {} bytes that the policy permits",
                meter.most_received()
            ),
            "ask for less at a time, or have max_response_bytes raised in the [[service]]",
        ),
        Cut::Time => (
            Code::TimeExceeded,
            "the request and its answer take longer than the policy permits".to_owned(),
            "ask for less at a time, or have max_seconds raised in the [[service]]",
        ),
    };
    let refusal = Refusal::new(code, &sentence, remedy);
    Some(match rule {
        Some(rule) => refusal.by(rule, None),
        None => refusal,
    })
}
