//! What one exchange takes of its asker's allowances: reserved before it leaves, watched while it
//! streams, settled at its end.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use policy::grant::Grant;
use policy::money::Usd;
use policy::record::{Record, RecordFacts};
use policy::{Code, Permit, Provider, Refusal};
use tokio::task::AbortHandle;

use super::body::{Cut, Meter};
use crate::allowance::{Amount, Reservation, escaped};
use crate::entrance::client::Client;
use crate::gate::Gate;
use crate::inspect::usage::{Reader, Usage};
use crate::prices::Price;
use crate::scrub::{self, Decoder};
use crate::tasks::Learner;

/// Tokens that a model is expected to write while nothing has been learnt of it.
const EXPECTED_OUTPUT: u64 = 4096;
/// About so many bytes of a request are a token.
const BYTES_OF_A_TOKEN: u64 = 4;

/// What is asked of a model, as far as it is known before the request leaves.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The model, if the request says it where it was read.
    pub model: Option<String>,
    /// The most that it may write.
    pub most_output: Option<u64>,
    /// Bytes of the request's body.
    pub bytes: u64,
    /// Whether it becomes a WebSocket, in which nobody reads what a model takes.
    pub websocket: bool,
}

/// An exchange's account.
#[derive(Debug)]
pub struct Account {
    /// Rare, and large.
    model: Option<Box<Model>>,
    /// Reads which task the answer names.
    begins: Option<Box<Begins>>,
    reservation: Option<Arc<Reservation>>,
    meter: Arc<Meter>,
    clock: Option<Clock>,
}

#[derive(Debug)]
struct Model {
    gate: Arc<Gate>,
    provider: Provider,
    name: Option<String>,
    price: Option<Price>,
    reader: Reader,
    /// Of a body that nobody else decodes.
    decoder: Option<Decoder>,
    /// Of which agent and model it is learnt.
    learn: Option<String>,
}

/// An answer that may name a task.
#[derive(Debug)]
struct Begins {
    gate: Arc<Gate>,
    learner: Learner,
    /// Of a body that nobody else decodes.
    decoder: Option<Decoder>,
}

/// Cuts the exchange when its wall time is over.
#[derive(Debug)]
struct Clock(AbortHandle);

impl Drop for Clock {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Account {
    /// Reserves what the request is expected to take.
    ///
    /// # Errors
    /// A limit is reached, nothing can be noted, or nobody knows what the model costs.
    pub fn open(
        gate: &Arc<Gate>,
        client: &Client,
        permit: &Permit,
        asked: Asked,
        meter: &Arc<Meter>,
    ) -> Result<Self, Refusal> {
        let grant = client.grant();
        let claims = gate.allowances.claims(grant, &client.granted());
        let limits_money = claims.iter().any(|claim| claim.limit.usd.is_some());
        let limits_tokens = claims.iter().any(|claim| claim.limit.tokens.is_some());
        if asked.websocket && permit.usage().is_some() && (limits_money || limits_tokens) {
            return Err(uncounted(permit));
        }
        let mut model = permit
            .usage()
            .map(|provider| Box::new(Model::new(gate, provider, &asked, grant)));
        if let Some(model) = &mut model
            && model.price.is_none()
            && limits_money
        {
            if let Some(name) = &model.name {
                return Err(unpriced(permit, model.provider, name));
            }
            // Which model it is the answer says: as if it were the dearest, until then.
            model.price = Some(gate.prices.dearest());
        }
        let wanted = Amount {
            requests: 1,
            // At least one: that there is nothing left is told before anything has gone by.
            bytes: asked.bytes.max(1),
            ..model
                .as_ref()
                .map(|model| model.expected(&asked))
                .unwrap_or_default()
        };
        let reservation = gate
            .allowances
            .reserve(claims, wanted)
            .map_err(|refusal| refusal.by(permit.rule(), None))?;
        let clock = reservation.as_ref().and_then(|reservation| {
            let lasts = reservation.lasts()?;
            let (reservation, meter) = (Arc::clone(reservation), Arc::clone(meter));
            let waiting = tokio::spawn(async move {
                tokio::time::sleep(lasts).await;
                reservation.is_late();
                meter.cut(Cut::Allowance);
            });
            Some(Clock(waiting.abort_handle()))
        });
        if let Some(reservation) = &reservation {
            meter.hold_to(Arc::clone(reservation));
        }
        let begins = permit.gives_task().then(|| {
            Box::new(Begins {
                gate: Arc::clone(gate),
                learner: Learner::new(permit.authority(), client.owner()),
                decoder: None,
            })
        });
        Ok(Self {
            model,
            begins,
            reservation,
            meter: Arc::clone(meter),
            clock,
        })
    }

    /// The model that is asked.
    pub fn model(&self) -> Option<&str> {
        self.model.as_ref()?.name.as_deref()
    }

    /// Whether the answer is read.
    pub fn reads(&self) -> bool {
        self.model.is_some() || self.begins.is_some()
    }

    /// The request leaves.
    ///
    /// # Errors
    /// What is reserved cannot be noted.
    pub async fn leave(&self) -> Result<(), Refusal> {
        match &self.reservation {
            Some(reservation) => reservation.leave().await,
            None => Ok(()),
        }
    }

    /// Prepares for an answer that somebody else decodes (`shared`), or nobody. What cannot be decoded
    /// says nothing.
    pub fn expect(&mut self, fields: &HeaderMap, shared: bool) {
        if let Some(begins) = self.begins.as_mut().filter(|_| !shared)
            && let Ok(decoder) = scrub::decoder(fields)
        {
            begins.decoder = decoder;
        }
        let Some(model) = &mut self.model else {
            return;
        };
        if !shared && let Ok(decoder) = scrub::decoder(fields) {
            model.decoder = decoder;
        }
    }

    /// Reads more of the answer as it was sent.
    pub fn read_sent(&mut self, chunk: &Bytes) {
        if let Some(begins) = &mut self.begins {
            begins.read_sent(chunk);
        }
        let Some(model) = &mut self.model else {
            return;
        };
        let reader = &mut model.reader;
        match &mut model.decoder {
            None => reader.push(chunk),
            Some(decoder) => {
                let read = decoder.push(chunk, &mut |text| {
                    reader.push(text);
                    Ok(())
                });
                if let Err(problem) = read {
                    tracing::debug!(%problem, "an answer's usage could not be read");
                    self.model = None;
                    return;
                }
            }
        }
        self.watch();
    }

    /// Reads more of its text.
    pub fn read(&mut self, text: &[u8]) {
        if let Some(begins) = &mut self.begins {
            begins.learner.read(&begins.gate.tasks, text);
        }
        if let Some(model) = &mut self.model {
            model.reader.push(text);
        }
        self.watch();
    }

    /// Cuts the exchange when it takes more than there is left.
    fn watch(&self) {
        let (Some(model), Some(reservation)) = (&self.model, &self.reservation) else {
            return;
        };
        let guess = model.reader.guess();
        let nano = model.price.map_or(0, |price| price.of(&guess).nano());
        if !reservation.needs(nano, guess.total()) {
            self.meter.cut(Cut::Allowance);
        }
    }

    /// Why it was cut, as the agent reads it.
    pub fn refusal(&self) -> Option<Refusal> {
        self.reservation
            .as_ref()
            .map(|reservation| reservation.refusal())
    }

    /// The exchange has ended, and its record is about to be written. `whole`: the answer came to its
    /// end. `answered`: there was one.
    pub fn settle(&mut self, record: &mut Record, whole: bool) {
        self.clock = None;
        let bytes = self.meter.sent().saturating_add(self.meter.received());
        let held = self
            .reservation
            .as_ref()
            .map(|reservation| reservation.held());
        let mut taken = Amount {
            requests: 1,
            bytes,
            ..Amount::default()
        };
        let mut learn = None;
        if let Some(model) = &mut self.model {
            if whole {
                model.reader.end();
            }
            let outcome = Outcome::of(record, whole);
            let (usage, cost) = model.took(outcome);
            // Not of an answer that was cut for what it says, which may say it here.
            if let Some(name) = model.reader.model().filter(|_| record.code.is_none()) {
                let facts = RecordFacts {
                    model: Some(name.to_owned()),
                    ..RecordFacts::default()
                };
                record.facts = Some(facts.bounded());
            }
            match usage {
                Some(usage) => {
                    record.tokens_in = Some(usage.read());
                    record.tokens_out = Some(usage.output);
                    taken.tokens = usage.total();
                    taken.nano = cost.map_or(0, Usd::nano);
                    record.cost_microusd = cost.map(Usd::micro);
                    learn = model.learn.take().filter(|_| usage.total() > 0);
                }
                None if outcome == Outcome::Nothing => {}
                None => {
                    // What it took nobody has said: all that was reserved, or more if more was seen.
                    let guess = model.reader.guess();
                    let held = held.unwrap_or_default();
                    let seen = model.price.map_or(0, |price| price.of(&guess).nano());
                    taken.tokens = held.tokens.max(guess.total());
                    taken.nano = held.nano.max(seen);
                    if guess != Usage::default() {
                        record.tokens_in = Some(guess.read());
                        record.tokens_out = Some(guess.output);
                    }
                    if taken.nano > 0 {
                        record.cost_microusd = Some(Usd::from_nano(taken.nano).micro());
                    }
                }
            }
        } else if was_for_a_model(held) && Outcome::of(record, whole) != Outcome::Nothing {
            let held = held.unwrap_or_default();
            (taken.tokens, taken.nano) = (held.tokens, held.nano);
            record.cost_microusd = Some(Usd::from_nano(held.nano).micro());
        }
        if let Some(reservation) = &self.reservation {
            reservation.settle(taken, learn.as_deref());
        }
    }
}

impl Begins {
    fn read_sent(&mut self, chunk: &Bytes) {
        let Self {
            gate,
            learner,
            decoder,
        } = self;
        match decoder {
            None => learner.read(&gate.tasks, chunk),
            Some(decoder) => {
                let read = decoder.push(chunk, &mut |text| {
                    learner.read(&gate.tasks, text);
                    Ok(())
                });
                if let Err(problem) = read {
                    tracing::debug!(%problem, "an answer that may name a task could not be read");
                }
            }
        }
    }
}

/// Something of it was reserved in tokens, yet its answer could not be read.
fn was_for_a_model(held: Option<Amount>) -> bool {
    held.is_some_and(|held| held.tokens > 0)
}

/// How an exchange with a model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The request did not get there, or was refused there: no model has worked.
    Nothing,
    /// The answer came to its end.
    Whole,
    /// It did not, or there was none.
    Broken,
}

impl Outcome {
    fn of(record: &Record, whole: bool) -> Self {
        let nowhere = [
            Code::UpstreamDns,
            Code::UpstreamPrivate,
            Code::UpstreamUnreachable,
            Code::UpstreamTls,
            Code::UpstreamTlsExpired,
            Code::UpstreamTlsWrongName,
            Code::UpstreamTlsUnknownCa,
            Code::UpstreamTlsSelfSigned,
            Code::UpstreamTlsPinMismatch,
            Code::CredentialRefused,
            Code::CredentialMissing,
        ];
        let refused = record.ms_head.is_some() && record.status.is_some_and(|status| status >= 400);
        if refused || record.code.is_some_and(|code| nowhere.contains(&code)) {
            Self::Nothing
        } else if whole {
            Self::Whole
        } else {
            Self::Broken
        }
    }
}

impl Model {
    fn new(gate: &Arc<Gate>, provider: Provider, asked: &Asked, grant: &Grant) -> Self {
        let name = asked.model.clone();
        let price = name
            .as_deref()
            .and_then(|name| gate.prices.find(provider, name));
        let learn = name.as_deref().map(|name| {
            let (company, agent) = (escaped(&grant.company), escaped(&grant.agent));
            format!("{company}/{agent} {provider} {}", escaped(name))
        });
        Self {
            gate: Arc::clone(gate),
            provider,
            name,
            price,
            reader: Reader::default(),
            decoder: None,
            learn,
        }
    }

    /// What was learnt, but no more than is possible; else a guess.
    fn expected(&self, asked: &Asked) -> Amount {
        let of = |usage: Usage| Amount {
            nano: self.price.map_or(0, |price| price.of(&usage).nano()),
            // At least one: that there is nothing left is told before it is asked.
            tokens: usage.total().max(1),
            ..Amount::default()
        };
        let guess = of(Usage {
            input: asked.bytes / BYTES_OF_A_TOKEN,
            output: asked.most_output.unwrap_or(u64::MAX).min(EXPECTED_OUTPUT),
            ..Usage::default()
        });
        let Some(learnt) = self
            .learn
            .as_deref()
            .and_then(|key| self.gate.allowances.expected(key))
        else {
            return guess;
        };
        let Some(most) = asked.most_output else {
            return learnt;
        };
        let most = of(Usage {
            input: asked.bytes,
            output: most,
            ..Usage::default()
        });
        Amount {
            nano: learnt.nano.min(most.nano),
            tokens: learnt.tokens.min(most.tokens),
            ..Amount::default()
        }
    }

    /// What the answer says that it took, and what that costs, if it says it for good.
    fn took(&self, outcome: Outcome) -> (Option<Usage>, Option<Usd>) {
        let stated = self.reader.stated();
        let usage = match outcome {
            Outcome::Nothing => stated,
            Outcome::Whole => stated.filter(|_| self.reader.is_final(true)),
            Outcome::Broken => stated.filter(|_| self.reader.is_final(false)),
        };
        let Some(usage) = usage else {
            return (None, None);
        };
        // Another model may have answered than was asked: of both the dearer.
        let answered = self
            .reader
            .model()
            .and_then(|name| self.gate.prices.known(self.provider, name));
        let asked = self
            .price
            .filter(|_| self.name.is_some() || answered.is_none());
        let of = |price: Option<Price>| price.map(|price| price.of(&usage));
        let stated = self
            .reader
            .cost()
            .filter(|_| self.provider == Provider::Openrouter);
        let stated = stated.and_then(|text| Usd::parse(text).ok());
        (Some(usage), stated.or(of(asked).max(of(answered))))
    }
}

fn uncounted(permit: &Permit) -> Refusal {
    Refusal::new(
        Code::FeatureRefused,
        "what a model takes through a WebSocket is not counted, and money or tokens are limited",
        "ask over HTTP (POST, streamed if you like), as clients do by themselves when a WebSocket is refused",
    )
    .by(permit.rule(), None)
}

fn unpriced(permit: &Permit, provider: Provider, model: &str) -> Refusal {
    let shown: String = model
        .chars()
        .filter(char::is_ascii_graphic)
        .take(120)
        .collect();
    Refusal::new(
        Code::PriceUnknown,
        &format!(
            "nobody has said what the model {shown} of {provider} costs, and money is limited"
        ),
        "ask another model, or have its price added to the table that [allowance] prices names",
    )
    .by(permit.rule(), None)
}
