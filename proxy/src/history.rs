//! Whether a push moves refs forward: the gate knows the commits of a repository by their parents, and proves by
//! them and by what the push brings that what a ref shall have descends from what it has.
//!
//! It keeps no objects and runs no git. A commit's id is a hash over the ids of its parents, so that an edge is true
//! whoever tells of it; what is not known is fetched with the credential that the push would carry, as commits
//! alone where the server can leave out the rest. What is not proven is denied.

mod fetch;
pub(crate) mod graph;
pub(crate) mod pack;
mod protocol;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use policy::{History, RefUpdate, Route};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::fetch::Fetch;
use self::graph::{Commits, Id, MOST_COMMITS, MOST_MISSING, Walk};
use self::pack::Format;
use crate::digest::sha256;
use crate::exchange::Channel;
use crate::inspect::receive_pack::{Commands, pack_of};
use crate::policies::LoadedPolicy;

/// So often is asked for what is still missing.
const MOST_ROUNDS: usize = 3;
/// So many proofs are made at once. Each takes at most 128 MiB (the tests reckon of what), beside the push
/// itself, which counts as a body that is read whole.
const AT_ONCE: usize = 2;
/// Commits that are looked at for all refs of one push.
const MOST_STEPS: usize = 4 * MOST_COMMITS;
/// From having read the push to the verdict, waiting for others included.
const PATIENCE: Duration = Duration::from_secs(150);

/// What is known of repositories.
#[derive(Debug)]
pub struct Histories {
    directory: PathBuf,
    /// One proof at a time for each repository, and for each who asks.
    busy: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    room: Arc<Semaphore>,
}

/// A proof's turn: held as long as anything works for it, also when nobody waits for the verdict any more.
struct Turn {
    _own: OwnedMutexGuard<()>,
    _alone: OwnedMutexGuard<()>,
    _room: OwnedSemaphorePermit,
}

impl Histories {
    /// What is known is kept in this directory, which is made when it is needed.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            busy: Mutex::default(),
            room: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Waits until it is the turn of a repository and of who asks.
    async fn turn(&self, who: &str, name: &str) -> Result<Arc<Turn>, String> {
        // Those that wait for one repository, or for their own, take no room from others. Always in this order.
        let own = self.alone(format!("who {who}")).await;
        let alone = self.alone(format!("repository {name}")).await;
        let room = Arc::clone(&self.room).acquire_owned().await;
        Ok(Arc::new(Turn {
            _own: own,
            _alone: alone,
            _room: room.map_err(|_| "the gate is going".to_owned())?,
        }))
    }

    async fn alone(&self, of: String) -> OwnedMutexGuard<()> {
        let one = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.retain(|_, one| Arc::strong_count(one) > 1);
            Arc::clone(busy.entry(of).or_default())
        };
        one.lock_owned().await
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
    let proof = timeout(PATIENCE, proven(&push)).await;
    match proof {
        Ok(Ok(updates)) => updates,
        Ok(Err(problem)) => unproven(&push.commands.updates, &problem),
        Err(_) => unproven(
            &push.commands.updates,
            "what the push builds on could not be learnt in time",
        ),
    }
}

/// All that were not proven are not, for this reason.
pub(crate) fn unproven(updates: &[RefUpdate], problem: &str) -> Vec<RefUpdate> {
    let mut updates = updates.to_vec();
    for update in &mut updates {
        if update.history == History::NotAsked {
            update.history = History::Unproven(problem.to_owned());
        }
    }
    updates
}

async fn proven(push: &Push<'_>) -> Result<Vec<RefUpdate>, String> {
    let histories = &push.channel.gate.histories;
    let updates = push.commands.updates.clone();
    let format = updates.first().and_then(|update| Format::of(&update.old));
    let format = format.ok_or("the push names no proper objects")?;
    let repository = push.target.split('?').next().unwrap_or_default();
    let repository = repository.strip_suffix("/git-receive-pack");
    let repository = repository.ok_or("the push is to no repository that can be fetched")?;
    // Both spellings of a name are one repository.
    let plain = repository.strip_suffix(".git").unwrap_or(repository);
    let place = format!(
        "{}://{}{plain}",
        push.channel.scheme, push.channel.authority
    );
    let name = sha256(place.as_bytes());
    let turn = histories.turn(push.channel.client.owner(), &name).await?;
    let file = histories.directory.join(&name);
    let pack = pack_of(push.body, push.commands).ok_or("the push has no proper pack")?;
    let read = file.clone();
    let mut proof = blocking(&turn, move || Proof::begin(updates, &pack, format, &read)).await?;
    let fetch = Fetch {
        channel: push.channel,
        policy: push.policy,
        route: push.route,
        repository,
        format,
    };
    let mut changed = false;
    let mut failed = "not all of what the push builds on is known".to_owned();
    for _ in 0..MOST_ROUNDS {
        if proof.missing.is_empty() {
            break;
        }
        let pack = match fetch.pack(&proof.missing, &proof.haves, &proof.known).await {
            Ok(pack) => pack,
            Err(problem) => {
                failed = problem;
                break;
            }
        };
        let more;
        (proof, more) = blocking(&turn, move || {
            let more = proof.learn(&pack, format);
            Ok((proof, more))
        })
        .await?;
        match more {
            Ok(true) => changed = true,
            Ok(false) => break,
            Err(problem) => {
                failed = problem;
                break;
            }
        }
    }
    let updates = if proof.missing.is_empty() {
        proof.updates
    } else {
        unproven(&proof.updates, &failed)
    };
    if changed {
        let known = proof.known;
        let kept = blocking(&turn, move || {
            graph::save(&file, &known).map_err(|error| error.to_string())
        });
        if let Err(problem) = kept.await {
            tracing::warn!(%problem, "what is known of a repository could not be kept");
        }
    }
    Ok(updates)
}

/// How far a proof has come.
struct Proof {
    updates: Vec<RefUpdate>,
    /// What the push brings; it is not known of the repository before it has it.
    brought: Commits,
    known: Commits,
    /// What must be known to say more.
    missing: Vec<Id>,
    /// What the repository need not send.
    haves: Vec<Id>,
}

impl Proof {
    fn begin(
        updates: Vec<RefUpdate>,
        pack: &[u8],
        format: Format,
        file: &Path,
    ) -> Result<Self, String> {
        let known = graph::load(file)
            .map_err(|error| format!("what is known could not be read: {error}"))?;
        let mut brought = Commits::new();
        if !pack.is_empty() {
            pack::commits(pack, format, &mut brought)?;
        }
        let (missing, haves) = (Vec::new(), Vec::new());
        let mut proof = Self {
            updates,
            brought,
            known,
            missing,
            haves,
        };
        proof.judge();
        Ok(proof)
    }

    /// Takes in what was fetched, as far as it can be read. Says whether there was anything new.
    fn learn(&mut self, pack: &[u8], format: Format) -> Result<bool, String> {
        let before = self.known.len();
        let read = pack::commits(pack, format, &mut self.known);
        let any = self.known.len() > before;
        if any {
            self.judge();
        }
        read.map(|()| any)
    }

    /// Says of each moved ref what can be said, and what is missing to say more.
    fn judge(&mut self) {
        let zero = |text: &str| text.bytes().all(|byte| byte == b'0');
        let mut all = Vec::new();
        let mut steps = MOST_STEPS;
        for update in self
            .updates
            .iter_mut()
            .filter(|update| !zero(&update.old) && !zero(&update.new))
        {
            let (Some(old), Some(new)) = (Id::parse(&update.old), Id::parse(&update.new)) else {
                update.history = History::Unproven("it names no proper objects".to_owned());
                continue;
            };
            update.history = match graph::walk(old, new, &self.brought, &self.known, &mut steps) {
                Walk::Forward => History::Forward,
                Walk::Apart => History::Unproven("it rewrites what is there".to_owned()),
                Walk::TooFar => {
                    History::Unproven("more is to be looked through than is looked at".to_owned())
                }
                Walk::Missing(missing) => {
                    all.extend(missing);
                    all.sort_unstable();
                    all.dedup();
                    all.truncate(MOST_MISSING);
                    History::NotAsked
                }
            };
        }
        self.haves = match all.is_empty() {
            true => Vec::new(),
            false => graph::tips(&self.known, MOST_MISSING),
        };
        self.missing = all;
    }
}

/// Work that takes the processor, and the turn until it is done.
async fn blocking<T: Send + 'static>(
    turn: &Arc<Turn>,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let turn = Arc::clone(turn);
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    let done = done.await;
    done.unwrap_or_else(|_| Err("the push could not be looked into".to_owned()))
}

#[cfg(test)]
mod tests;
