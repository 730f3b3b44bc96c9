//! `policy replay`: what another policy would have said about traffic that is on record.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use policy::Replayed;
use policy::record::Record;
use serde::Serialize;

use super::super::audit::{FilterArgs, remark, unreadable};
use super::super::output::{Exit, say, say_pretty, tell};
use super::parse_or_tell;
use crate::audit::query::Reader;
use crate::audit::snapshot::Snapshot;
use crate::audit::tail::clean;

/// Different requests that are told apart.
const MOST_REQUESTS: usize = 10_000;

#[derive(Debug, Args)]
pub(in crate::cli) struct ReplayArgs {
    /// The log: its directory, or one file of it
    audit: PathBuf,
    /// The policy that is tried
    #[arg(long = "with", value_name = "POLICY")]
    with: PathBuf,
    /// Only runs of this profile
    #[arg(long)]
    profile: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is different, each request once.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// Requests that a policy judged.
    judged: u64,
    same: u64,
    /// The log does not keep what the policy would have to know.
    could_not_tell: u64,
    /// Different requests beyond the number that is told apart.
    untold: u64,
    newly_refused: BTreeMap<String, Change>,
    newly_allowed: BTreeMap<String, Change>,
    newly_held: BTreeMap<String, Change>,
    other_credential: BTreeMap<String, Change>,
}

#[derive(Debug, Serialize)]
struct Change {
    times: u64,
    last: String,
    says: String,
}

impl Outcome {
    fn add(&mut self, record: &Record, replayed: Replayed) {
        let (list, says) = match replayed {
            Replayed::NotJudged => return,
            Replayed::Same => {
                self.judged += 1;
                self.same += 1;
                return;
            }
            Replayed::CouldNotTell(_) => {
                self.judged += 1;
                self.could_not_tell += 1;
                return;
            }
            Replayed::NewlyRefused(refusal) => {
                let says = format!(
                    "{}: {}; {}",
                    refusal.code.as_str(),
                    refusal.text,
                    refusal.remedy
                );
                (&mut self.newly_refused, says)
            }
            Replayed::NewlyAllowed(rule, credential) => {
                let says = match (rule, credential) {
                    (Some(rule), Some(credential)) => {
                        format!("by rule `{}` with credential `{credential}`", rule.as_str())
                    }
                    (Some(rule), None) => format!("by rule `{}`", rule.as_str()),
                    (None, _) => {
                        "the connection; each request on it is judged by itself".to_owned()
                    }
                };
                (&mut self.newly_allowed, says)
            }
            Replayed::NewlyHeld(rule) => {
                let says = format!("waits for a person, as rule `{}` says", rule.as_str());
                (&mut self.newly_held, says)
            }
            Replayed::OtherCredential(was, now) => {
                let name = |of: Option<policy::credential::CredentialName>| {
                    of.map_or_else(|| "none".to_owned(), |name| format!("`{name}`"))
                };
                let says = format!("credential {} -> {}", name(was), name(now));
                (&mut self.other_credential, says)
            }
        };
        self.judged += 1;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let what = format!(
            "{} {}://{}{}",
            text(&record.method),
            text(&record.scheme),
            text(&record.authority),
            text(&record.path)
        );
        if list.len() >= MOST_REQUESTS && !list.contains_key(&what) {
            self.untold += 1;
            return;
        }
        let change = list.entry(what).or_insert(Change {
            times: 0,
            last: String::new(),
            says,
        });
        change.times += 1;
        change.last.clone_from(&record.time);
    }

    fn is_same(&self) -> bool {
        let lists = [
            &self.newly_refused,
            &self.newly_allowed,
            &self.newly_held,
            &self.other_credential,
        ];
        self.untold == 0 && lists.into_iter().all(BTreeMap::is_empty)
    }

    fn show(&self) {
        for (title, list) in [
            ("newly refused", &self.newly_refused),
            ("newly allowed", &self.newly_allowed),
            ("newly held", &self.newly_held),
            ("with another credential", &self.other_credential),
        ] {
            if list.is_empty() {
                continue;
            }
            say(title);
            let mut changes: Vec<_> = list.iter().collect();
            changes.sort_by_key(|(_, change)| std::cmp::Reverse(change.times));
            for (what, change) in changes {
                say(&format!(
                    "  {:>7} x {}, last {}",
                    change.times,
                    clean(what),
                    change.last
                ));
                say(&format!("            {}", clean(&change.says)));
            }
        }
        say(&format!(
            "{} requests: {} the same, {} could not be told, {} different ones more",
            self.judged, self.same, self.could_not_tell, self.untold
        ));
    }
}

/// 0 when everything would have been judged the same, 1 when not, 2 when some of it could not be told, or
/// nothing was judged.
pub(super) fn replay(args: &ReplayArgs) -> Exit {
    let Some(policy) = parse_or_tell(&args.with) else {
        return Exit::CouldNotTell;
    };
    let files = match Snapshot::at(&args.audit) {
        Ok(files) => files,
        Err(problem) => return unreadable(&args.audit, &problem),
    };
    if files.is_empty() {
        tell(&format!(
            "error: there is no log in {}",
            args.audit.display()
        ));
        tell("  hint: name the log's directory, or one file of it");
        return Exit::CouldNotTell;
    }
    let filter = args.filter.filter();
    let mut outcome = Outcome::default();
    let mut reader = Reader::new(&files, &filter);
    let read = reader.each(|_, record| {
        if args.profile.is_none() || args.profile == record.profile {
            outcome.add(record, policy.replay(record));
        }
        ControlFlow::Continue(())
    });
    if let Err(problem) = read {
        return unreadable(&args.audit, &problem);
    }
    if args.json {
        if let Err(exit) = say_pretty(&outcome) {
            return exit;
        }
    } else {
        outcome.show();
    }
    let exit = match (outcome.is_same(), outcome.could_not_tell) {
        (false, _) => Exit::No,
        // Of nothing, nothing can be said.
        (true, 0) if outcome.judged > 0 => Exit::Yes,
        (true, _) => Exit::CouldNotTell,
    };
    remark(&reader, exit)
}
