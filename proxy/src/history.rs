//! Whether a push moves refs forward: the gate knows the commits of a repository by their parents, and proves by
//! them and by what the push brings that what a ref shall have descends from what it has.
//!
//! It keeps no files and runs no git. A commit's id is a hash over the ids of its parents, so that an edge is true
//! whoever tells of it; what is not known is fetched with the credential that the push would carry, as commits
//! alone where the server can leave out the rest. What is not proven is denied.

mod fetch;
mod graph;
mod pack;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use policy::{History, RefUpdate, Route};
use tokio::sync::Semaphore;

use self::fetch::Fetch;
use self::graph::{Commits, Id, MOST_COMMITS, Walk};
use self::pack::Format;
use crate::digest::sha256;
use crate::exchange::Channel;
use crate::inspect::receive_pack::{Commands, pack_of};
use crate::policies::LoadedPolicy;

/// So many are asked for in one request, and as many are said to be there.
const MOST_ASKED: usize = 64;
/// So often is asked for what is still missing.
const MOST_ROUNDS: usize = 3;
/// So many proofs are made at once; each takes memory.
const AT_ONCE: usize = 2;

/// What is known of repositories.
#[derive(Debug)]
pub struct Histories {
    directory: PathBuf,
    /// One proof at a time for each repository.
    busy: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    room: Semaphore,
}

impl Histories {
    /// What is known is kept in this directory, which is made when it is needed.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            busy: Mutex::default(),
            room: Semaphore::new(AT_ONCE),
        }
    }

    /// Only one at a time.
    fn of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.retain(|_, one| Arc::strong_count(one) > 1);
        Arc::clone(busy.entry(name.to_owned()).or_default())
    }
}

/// A push that was read whole.
#[derive(Debug)]
pub(crate) struct Push<'p> {
    pub(crate) channel: &'p Channel,
    pub(crate) policy: &'p LoadedPolicy,
    pub(crate) route: &'p Route,
    pub(crate) target: &'p str,
    pub(crate) commands: &'p Commands,
    pub(crate) body: &'p Bytes,
}

/// Says of each ref that is moved whether it moves forward.
pub(crate) async fn prove(push: Push<'_>) -> Vec<RefUpdate> {
    let mut updates = push.commands.updates.clone();
    if let Err(problem) = proven(&push, &mut updates).await {
        for update in &mut updates {
            if update.history == History::NotAsked {
                update.history = History::Unproven(problem.clone());
            }
        }
    }
    updates
}

async fn proven(push: &Push<'_>, updates: &mut [RefUpdate]) -> Result<(), String> {
    let histories = &push.channel.gate.histories;
    let format = updates.first().and_then(|update| Format::of(&update.old));
    let format = format.ok_or("the push names no proper objects")?;
    let repository = push.target.split('?').next().unwrap_or_default();
    let repository = repository.strip_suffix("/git-receive-pack");
    let repository = repository.ok_or("the push is to no repository that can be fetched")?;
    // Both spellings of a name are one repository, and so are its letters where hosts take them for the same.
    let plain = repository.strip_suffix(".git").unwrap_or(repository);
    let place = format!(
        "{}://{}{plain}",
        push.channel.scheme, push.channel.authority
    );
    let name = sha256(place.as_bytes());
    let _room = histories
        .room
        .acquire()
        .await
        .map_err(|_| "the gate is going".to_owned())?;
    let lock = histories.of(&name);
    let _alone = lock.lock().await;
    let file = histories.directory.join(&name);
    let brought = pack_of(push.body, push.commands).ok_or("the push has no proper pack")?;
    let (mut known, brought) = {
        let file = file.clone();
        blocking(move || {
            let known = graph::load(&file)
                .map_err(|error| format!("what is known could not be read: {error}"))?;
            let brought = match brought.as_ref() {
                [] => Commits::new(),
                pack => pack::commits(pack, format)?,
            };
            Ok((known, brought))
        })
        .await?
    };
    let fetch = Fetch {
        channel: push.channel,
        policy: push.policy,
        route: push.route,
        repository,
        format,
    };
    let mut changed = false;
    let mut failed = None;
    for _ in 0..MOST_ROUNDS {
        let missing = judge(updates, &brought, &known);
        if missing.is_empty() {
            break;
        }
        let haves = graph::tips(&known, MOST_ASKED);
        let pack = match fetch.pack(&missing, &haves).await {
            Ok(pack) => pack,
            Err(problem) => {
                failed = Some(problem);
                break;
            }
        };
        let more = blocking(move || pack::commits(&pack, format)).await?;
        if known.len() + more.len() > MOST_COMMITS {
            failed = Some("the repository has more commits than are kept".to_owned());
            break;
        }
        if more.is_empty() {
            break;
        }
        known.extend(more);
        changed = true;
    }
    let missing = judge(updates, &brought, &known);
    if changed {
        let directory = histories.directory.clone();
        let kept = blocking(move || {
            std::fs::create_dir_all(&directory)
                .and_then(|()| graph::save(&file, &known))
                .map_err(|error| error.to_string())
        });
        if let Err(problem) = kept.await {
            tracing::warn!(%problem, "what is known of a repository could not be kept");
        }
    }
    match failed {
        Some(problem) if !missing.is_empty() => Err(problem),
        Some(_) | None if missing.is_empty() => Ok(()),
        Some(_) | None => Err("not all of what the push builds on is known".to_owned()),
    }
}

/// Says of each moved ref what can be said, and what is missing to say more.
fn judge(updates: &mut [RefUpdate], brought: &Commits, known: &Commits) -> Vec<Id> {
    let mut all = Vec::new();
    let zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    for update in updates
        .iter_mut()
        .filter(|update| !zero(&update.old) && !zero(&update.new))
    {
        let (Some(old), Some(new)) = (Id::parse(&update.old), Id::parse(&update.new)) else {
            update.history = History::Unproven("it names no proper objects".to_owned());
            continue;
        };
        update.history = match graph::walk(old, new, brought, known) {
            Walk::Forward => History::Forward,
            Walk::Apart => History::Unproven("it rewrites what is there".to_owned()),
            Walk::Missing(missing) => {
                all.extend(missing);
                History::NotAsked
            }
        };
    }
    all.sort_unstable();
    all.dedup();
    all.truncate(MOST_ASKED);
    all
}

/// Work that takes the processor.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err("the push could not be looked into".to_owned()))
}
