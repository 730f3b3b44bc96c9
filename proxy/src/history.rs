//! Whether a push moves refs forward: the gate knows the commits of a repository by their parents, and proves by
//! them and by what the push brings that what a ref shall have descends from what it has.
//!
//! It keeps no objects and runs no git. A commit's id is a hash over the ids of its parents, so that an edge is true
//! whoever tells of it; what is not known is fetched with the credential that the push would carry, as commits
//! alone where the server can leave out the rest. What is not proven is denied.

mod fetch;
mod graph;
mod pack;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use policy::{History, RefUpdate, Route};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

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
/// Commits that are looked at for all refs of one push.
const MOST_STEPS: usize = 4 * MOST_COMMITS;
/// From having read the push to the verdict, waiting for others included.
const PATIENCE: Duration = Duration::from_secs(150);

/// What is known of repositories.
#[derive(Debug)]
pub struct Histories {
    directory: PathBuf,
    /// One proof at a time for each repository.
    busy: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    room: Arc<Semaphore>,
}

/// A proof's turn: held as long as anything works for it, also when nobody waits for the verdict any more.
struct Turn {
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

    /// Waits until it is a repository's turn.
    async fn turn(&self, name: &str) -> Result<Arc<Turn>, String> {
        let one = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.retain(|_, one| Arc::strong_count(one) > 1);
            Arc::clone(busy.entry(name.to_owned()).or_default())
        };
        // Those that wait for one repository take no room from others.
        let alone = one.lock_owned().await;
        let room = Arc::clone(&self.room).acquire_owned().await;
        Ok(Arc::new(Turn {
            _alone: alone,
            _room: room.map_err(|_| "the gate is going".to_owned())?,
        }))
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
    let turn = histories.turn(&name).await?;
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
        let pack = match fetch.pack(&proof.missing, &proof.haves).await {
            Ok(pack) => pack,
            Err(problem) => {
                failed = problem;
                break;
            }
        };
        let more;
        (proof, more) = blocking(&turn, move || proof.learn(&pack, format)).await?;
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
        let brought = match pack {
            [] => Commits::new(),
            pack => pack::commits(pack, format)?,
        };
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

    /// Takes in what was fetched. Says whether there was anything.
    #[allow(clippy::type_complexity, reason = "what came of it goes with it")]
    fn learn(
        mut self,
        pack: &[u8],
        format: Format,
    ) -> Result<(Self, Result<bool, String>), String> {
        let more = match pack::commits(pack, format) {
            Ok(more) => more,
            Err(problem) => return Ok((self, Err(problem))),
        };
        if self.known.len() + more.len() > MOST_COMMITS {
            let problem = "the repository has more commits than are kept";
            return Ok((self, Err(problem.to_owned())));
        }
        let before = self.known.len();
        self.known.extend(more);
        let any = self.known.len() > before;
        if any {
            self.judge();
        }
        Ok((self, Ok(any)))
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
                    all.truncate(MOST_ASKED);
                    History::NotAsked
                }
            };
        }
        self.haves = match all.is_empty() {
            true => Vec::new(),
            false => graph::tips(&self.known, MOST_ASKED),
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
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn update(old: u8, new: u8) -> RefUpdate {
        let id = |n: u8| format!("{n:02x}").repeat(20);
        RefUpdate {
            old: id(old),
            new: id(new),
            name: format!("refs/heads/{old}-{new}"),
            history: History::NotAsked,
        }
    }

    fn id(n: u8) -> Id {
        Id::of(&[n; 20]).unwrap()
    }

    fn proof(updates: Vec<RefUpdate>, known: Commits) -> Proof {
        let mut proof = Proof {
            updates,
            brought: [(id(9), vec![id(3)])].into(),
            known,
            missing: Vec::new(),
            haves: Vec::new(),
        };
        proof.judge();
        proof
    }

    /// Who goes away gives nothing back before the work for it is done.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_turn_lasts_as_long_as_what_works_for_it() {
        let histories = Histories::new(PathBuf::from("/nowhere"));
        let (go, gone) = channel::<()>();
        let turn = histories.turn("one").await.unwrap();
        let proving = async move {
            let waits = move || {
                let _end = gone.recv();
                Ok(())
            };
            blocking(&turn, waits).await
        };
        let short = Duration::from_millis(50);
        assert!(
            timeout(short, proving).await.is_err(),
            "the client goes away"
        );
        assert!(timeout(short, histories.turn("one")).await.is_err());
        assert_eq!(histories.room.available_permits(), AT_ONCE - 1);
        let other = histories.turn("two").await.unwrap();
        assert_eq!(histories.room.available_permits(), 0);
        assert!(timeout(short, histories.turn("three")).await.is_err());
        drop(other);
        go.send(()).unwrap();
        let _again = histories.turn("one").await.unwrap();
        let names = histories.busy.lock().unwrap().len();
        assert!(names <= 2, "what nobody waits for is forgotten: {names}");
    }

    #[test]
    fn each_ref_is_judged_by_itself() {
        let known: Commits = [(id(1), vec![]), (id(2), vec![id(1)]), (id(3), vec![id(2)])].into();
        let moves = vec![
            update(3, 9),
            update(9, 3),
            update(2, 8),
            update(0, 9),
            update(2, 0),
        ];
        let proof = proof(moves, known);
        let rewrites = History::Unproven("it rewrites what is there".to_owned());
        let said: Vec<&History> = proof.updates.iter().map(|it| &it.history).collect();
        let open = &History::NotAsked;
        assert_eq!(said, [&History::Forward, &rewrites, open, open, open]);
        assert_eq!(proof.missing, [id(8)]);
        assert_eq!(proof.haves, [id(3)]);
        // What remains open is not proven, for the reason that is given.
        let said = unproven(&proof.updates, "nobody knows it");
        assert_eq!(said[0].history, History::Forward);
        assert_eq!(said[1].history, rewrites);
        let nobody = History::Unproven("nobody knows it".to_owned());
        assert_eq!(said[2].history, nobody);
    }

    #[test]
    fn what_brings_nothing_new_is_told_so_that_asking_ends() {
        let known: Commits = [(id(3), vec![id(2)])].into();
        let begun = proof(vec![update(1, 9)], known);
        assert_eq!(begun.missing, [id(2)]);
        let empty = b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82;\xd8\xa8\xea\xb5\x10\xadj\xc7\\\x82<\xfd>\xd3\x1e";
        let (begun, any) = begun.learn(empty, Format::Sha1).unwrap();
        assert_eq!(any, Ok(false));
        let (begun, bad) = begun.learn(b"<html>", Format::Sha1).unwrap();
        assert_eq!(bad, Err("it does not begin like a pack".to_owned()));
        assert_eq!(begun.updates[0].history, History::NotAsked);
        assert_eq!(begun.known.len(), 1);
    }
}
