//! Changes that share a transaction: each stands or falls alone, and every answer is true.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

use crate::model::{Actor, Refusal};
use crate::store::journal::About;
use crate::store::{Store, StoreError, Writer, agents, verify_file};

/// Holds the writer's thread until the sender is used, so that what follows waits together.
fn hold(
    store: &Store,
) -> (
    std::sync::mpsc::Sender<()>,
    JoinHandle<Result<(), StoreError>>,
) {
    let (go, wait) = std::sync::mpsc::channel();
    let store = store.clone();
    let held = tokio::spawn(async move {
        store
            .write(Actor::System, move |_w| {
                wait.recv().unwrap();
                Ok(())
            })
            .await
    });
    (go, held)
}

fn note(w: &mut Writer<'_>, number: usize, bytes: usize) -> Result<(), StoreError> {
    let facts = json!({ "number": number, "x": "x".repeat(bytes) });
    w.note("filler", About::default(), facts)?;
    Ok(())
}

async fn numbers(store: &Store) -> Vec<usize> {
    store
        .read(|db| {
            let sql = "SELECT json_extract(facts, '$.number') FROM journal
                       WHERE kind = 'filler' ORDER BY seq";
            let mut statement = db.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get::<_, i64>(0))?;
            Ok(rows.map(|n| usize::try_from(n.unwrap()).unwrap()).collect())
        })
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_queued_together_stand_or_fall_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let store = Store::open(&path).unwrap();
    let (go, held) = hold(&store);
    let mut waiting = Vec::new();
    for number in 0..200 {
        let store = store.clone();
        waiting.push(tokio::spawn(async move {
            let change = move |w: &mut Writer<'_>| {
                note(w, number, 1)?;
                match number % 4 {
                    1 => Err(Refusal::invalid("no").into()),
                    2 => panic!("as a bug would"),
                    3 => Ok(w
                        .execute("INSERT INTO blockers VALUES ('x', 'x')", [])
                        .map(|_| ())?),
                    _ => Ok(()),
                }
            };
            (number, store.write(Actor::System, change).await)
        }));
    }
    go.send(()).unwrap();
    held.await.unwrap().unwrap();
    for answer in waiting {
        let (number, answer) = answer.await.unwrap();
        let expected = match number % 4 {
            0 => answer.is_ok(),
            1 => matches!(answer, Err(StoreError::Refused(_))),
            2 => matches!(answer, Err(StoreError::Gone)),
            _ => matches!(answer, Err(StoreError::Sqlite(_))),
        };
        assert!(expected, "{number}: {answer:?}");
    }
    let mut kept = numbers(&store).await;
    kept.sort_unstable();
    assert_eq!(kept, (0..200).step_by(4).collect::<Vec<_>>());
    assert!(verify_file(&path).unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_true_when_the_disk_fills_amid_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let store = Store::open(&path).unwrap();
    let pages = |sql: String| {
        move |w: &mut Writer<'_>| Ok(w.query_row(&sql, [], |row| row.get::<_, i64>(0))?)
    };
    let count = store
        .write(Actor::System, pages("PRAGMA page_count".into()))
        .await
        .unwrap();
    let limit = format!("PRAGMA max_page_count = {}", count + 100);
    store.write(Actor::System, pages(limit)).await.unwrap();
    let (go, held) = hold(&store);
    let mut waiting = Vec::new();
    for number in 0..100 {
        let store = store.clone();
        waiting.push(tokio::spawn(async move {
            let change = move |w: &mut Writer<'_>| note(w, number, 20_000);
            (number, store.write(Actor::System, change).await.is_ok())
        }));
    }
    go.send(()).unwrap();
    // It may share the transaction that fails.
    let _either = held.await.unwrap();
    let mut yes = Vec::new();
    for answer in waiting {
        let (number, done) = answer.await.unwrap();
        if done {
            yes.push(number);
        }
    }
    assert!(yes.len() < 100, "the disk was not full");
    let mut kept = numbers(&store).await;
    kept.sort_unstable();
    yes.sort_unstable();
    assert_eq!(kept, yes);
    let limit = "PRAGMA max_page_count = 1000000".to_owned();
    store.write(Actor::System, pages(limit)).await.unwrap();
    store
        .write(Actor::System, |w| note(w, 1000, 20_000))
        .await
        .unwrap();
    assert!(verify_file(&path).unwrap().is_ok());
}

#[tokio::test]
async fn what_was_committed_is_passed_on_although_nobody_waits_for_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db")).unwrap();
    {
        let mut write = pin!(store.write(Actor::System, |w| {
            note(w, 1, 1)?;
            w.kick = true;
            Ok(())
        }));
        let mut nobody = Context::from_waker(Waker::noop());
        let _pending = write.as_mut().poll(&mut nobody);
    }
    tokio::time::timeout(Duration::from_secs(60), store.kicked())
        .await
        .unwrap();
    assert_eq!(numbers(&store).await, [1]);
}

#[tokio::test]
async fn a_change_without_an_entry_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db")).unwrap();
    let insert = "INSERT INTO companies (id, name, prefix, created_at) VALUES ('i', 'n', 'P', 1)";
    let silent = store
        .write(Actor::System, move |w| Ok(w.execute(insert, [])?))
        .await;
    assert!(matches!(silent, Err(StoreError::Unsaid(1))), "{silent:?}");
    let said = move |w: &mut Writer<'_>| {
        w.execute(insert, [])?;
        note(w, 1, 1)
    };
    store.write(Actor::System, said).await.unwrap();
    let all = store.read(agents::companies).await.unwrap();
    assert_eq!(all.len(), 1);
}
