//! From a policy text to services: TOML, then raw services with their places, then services.
//!
//! Nothing stops at the first problem. [`document`] reads tables and remembers lines, [`kinds`]
//! turns each kind into plain rules, [`reach`] reads where a service leads, [`cases`] what the file says of
//! itself under `[[test]]`; this file puts them
//! together and checks what only the whole can show.

mod cases;
mod document;
mod kinds;
mod reach;

use std::collections::{HashMap, HashSet};

use crate::case::Case;
use crate::diagnostics::Diagnostics;
use crate::expand;
use crate::permit::RuleId;
use crate::service::{Destination, Kind, Service};
use document::{Document, Place, Problems};
pub(crate) use kinds::{Opening, github_opening};

/// A service and the places that later checks talk about.
struct Placed {
    service: Service,
    /// The `[[service]]` line.
    place: Place,
    /// Whether the file gave the id.
    named: bool,
}

/// Reads a policy text.
///
/// # Errors
/// Every problem that one pass can find.
pub(crate) fn parse(text: &str, source_name: &str) -> Result<Vec<Service>, Diagnostics> {
    let mut problems = Problems::new(text);
    let mut placed: Vec<Placed> = Vec::new();
    if let Some(document) = Document::read(text, &mut problems) {
        for mut table in document.services {
            for (service, named) in kinds::services(&mut table, &mut problems) {
                placed.push(Placed {
                    service,
                    place: table.place.clone(),
                    named,
                });
            }
        }
        for mut table in document.cases {
            // A test that cannot be read keeps the policy from loading, as any other mistake does.
            cases::read(&mut table, &mut problems);
        }
    }
    name_the_nameless(&mut placed);
    refuse_duplicate_ids(&placed, &mut problems);
    refuse_two_ways(&placed, &mut problems);
    refuse_two_credentials(&placed, &mut problems);
    problems.finish(source_name)?;
    Ok(placed.into_iter().map(|placed| placed.service).collect())
}

/// Reads the `[[test]]` tables of a policy text, which must be a policy.
///
/// # Errors
/// Every problem of the whole text.
pub(crate) fn cases(text: &str, source_name: &str) -> Result<Vec<Case>, Diagnostics> {
    parse(text, source_name)?;
    let mut problems = Problems::new(text);
    let mut cases = Vec::new();
    if let Some(document) = Document::read(text, &mut problems) {
        for mut table in document.cases {
            cases.extend(cases::read(&mut table, &mut problems));
        }
    }
    problems.finish(source_name)?;
    Ok(cases)
}

/// Every key of a kind of service.
pub(crate) fn kind_keys(kind: Kind) -> impl Iterator<Item = &'static str> + Clone {
    kinds::keys(kind)
}

/// Every key of a test.
pub(crate) fn test_keys() -> &'static [&'static str] {
    cases::KEYS
}

/// Every key of conditions.
pub(crate) fn when_keys() -> &'static [&'static str] {
    kinds::when_keys()
}

/// Gives `KIND-HOST-n` to services without an id. `n` follows from what the services say and not
/// from where they stand, so that reordering a file changes nothing.
fn name_the_nameless(placed: &mut [Placed]) {
    let mut nameless: Vec<(String, String, usize)> = placed
        .iter()
        .enumerate()
        .filter(|(_, placed)| !placed.named)
        .map(|(at, placed)| (base_id(&placed.service), expand::body(&placed.service), at))
        .collect();
    nameless.sort();
    let mut taken: HashSet<String> = placed
        .iter()
        .filter(|placed| placed.named)
        .map(|placed| placed.service.id.as_str().to_owned())
        .collect();
    for (base, _, at) in nameless {
        let free = (1usize..)
            .map(|n| format!("{base}-{n}"))
            .find(|id| !taken.contains(id));
        if let Some(id) = free
            && let Ok(rule) = RuleId::parse(&id)
        {
            placed[at].service.id = rule;
            taken.insert(id);
        }
    }
}

/// `KIND-HOST`, of the first host by name; shortened so that any number still fits.
fn base_id(service: &Service) -> String {
    let host = service
        .destinations
        .iter()
        .map(|to| to.host.to_string())
        .min()
        .unwrap_or_default();
    let host: String = host.replace(':', "-").chars().take(100).collect();
    format!("{}-{host}", service.kind.as_str())
}

fn refuse_duplicate_ids(placed: &[Placed], problems: &mut Problems) {
    let mut seen: HashMap<&RuleId, &Place> = HashMap::new();
    for Placed { service, place, .. } in placed {
        match seen.get(&service.id) {
            None => {
                seen.insert(&service.id, place);
            }
            Some(first) => problems.add(
                &place.key("id"),
                format!(
                    "`{}` is also the id of the service in line {}",
                    service.id, first.line
                ),
                String::from("give every service an id of its own"),
            ),
        }
    }
}

/// Services that open the same destination must agree on how to reach it.
fn refuse_two_ways(placed: &[Placed], problems: &mut Problems) {
    let mut seen: HashMap<&Destination, &Placed> = HashMap::new();
    for this in placed.iter().filter(|placed| placed.service.opens()) {
        for destination in &this.service.destinations {
            match seen.get(destination) {
                None => {
                    seen.insert(destination, this);
                }
                Some(first) if first.service.reach == this.service.reach => {}
                Some(first) => problems.add(
                    &this.place,
                    format!(
                        "`{}` and the service in line {} lead to {} port {} in different ways",
                        this.service.id, first.place.line, destination.host, destination.port
                    ),
                    String::from("give both the same address, ca_file and pin"),
                ),
            }
        }
    }
}

/// Two services that allow the very same request with different credentials.
fn refuse_two_credentials(placed: &[Placed], problems: &mut Problems) {
    let mut seen: HashMap<(&Destination, &str), Vec<&Placed>> = HashMap::new();
    for this in placed
        .iter()
        .filter(|placed| placed.service.credential.is_some())
    {
        let entries = || this.service.allow.iter().chain(&this.service.push);
        let mut told = false;
        for destination in &this.service.destinations {
            for entry in entries() {
                let others = seen.entry((destination, entry.pattern())).or_default();
                let clash = others.iter().find(|other| {
                    let theirs = other.service.allow.iter().chain(&other.service.push);
                    other.service.credential != this.service.credential
                        && theirs.into_iter().any(|theirs| theirs.coincides(entry))
                });
                if let Some(other) = clash
                    && !told
                {
                    told = true;
                    problems.add(
                        &this.place,
                        format!(
                            "`{entry}` is also allowed by the service in line {}, with another \
                             credential",
                            other.place.line
                        ),
                        String::from("allow every request with one credential only"),
                    );
                }
                others.push(this);
            }
        }
    }
}

#[cfg(test)]
mod tests;
