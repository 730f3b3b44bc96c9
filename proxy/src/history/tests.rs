use std::sync::mpsc::channel;

use super::fetch::ANSWER_BYTES;
use super::graph::MOST_PARENTS;
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
        brought: [(id(9), [id(3)].into())].into(),
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
    let turn = histories.turn("a", "one").await.unwrap();
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
    for (who, name) in [("a", "two"), ("b", "one")] {
        let turn = timeout(short, histories.turn(who, name)).await;
        assert!(turn.is_err(), "{who} {name}");
    }
    assert_eq!(histories.room.available_permits(), AT_ONCE - 1);
    let other = histories.turn("b", "two").await.unwrap();
    assert_eq!(histories.room.available_permits(), 0);
    assert!(timeout(short, histories.turn("c", "three")).await.is_err());
    drop(other);
    go.send(()).unwrap();
    let _again = histories.turn("a", "one").await.unwrap();
    let names = histories.busy.lock().unwrap().len();
    assert!(names <= 4, "what nobody waits for is forgotten: {names}");
}

#[test]
fn each_ref_is_judged_by_itself() {
    let known: Commits = [
        (id(1), [].into()),
        (id(2), [id(1)].into()),
        (id(3), [id(2)].into()),
    ]
    .into();
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
    let known: Commits = [(id(3), [id(2)].into())].into();
    let mut begun = proof(vec![update(1, 9)], known);
    assert_eq!(begun.missing, [id(2)]);
    let empty =
        b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82;\xd8\xa8\xea\xb5\x10\xadj\xc7\\\x82<\xfd>\xd3\x1e";
    assert_eq!(begun.learn(empty, Format::Sha1), Ok(false));
    let bad = begun.learn(b"<html>", Format::Sha1);
    assert_eq!(bad, Err("it does not begin like a pack".to_owned()));
    assert_eq!(begun.updates[0].history, History::NotAsked);
    assert_eq!(begun.known.len(), 1);
}

/// What a proof takes at most is what the documentation says, and each bound has a part in it.
#[test]
fn what_a_proof_takes_of_memory_is_bounded() {
    // A table keeps an eighth of its places free, and has twice as many each time that it grows.
    let table = |entries: usize, each: usize| (entries * 8 / 7).next_power_of_two() * (each + 1);
    let entry = size_of::<(Id, Box<[Id]>)>();
    // The heap keeps its own word before each part, and rounds up.
    let graph = table(MOST_COMMITS, entry) + MOST_COMMITS * 16 + MOST_PARENTS * size_of::<Id>();
    let grows = table(MOST_COMMITS, entry) / 2;
    let learning = 2 * graph + grows + pack::memory() + ANSWER_BYTES;
    assert!(learning <= 128 << 20, "{learning}");
    // To walk, the ids that were met are named and not copied.
    let met = 2 * (MOST_COMMITS + MOST_PARENTS);
    let walking = 2 * graph + table(met, 8) + met * 8 + ANSWER_BYTES;
    assert!(walking <= 128 << 20, "{walking}");
    assert!(2 * graph > 32 << 20, "the reckoning is of something");
}
