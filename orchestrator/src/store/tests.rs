//! The store's promises: whole or not at all, in the journal, damaged means closed.

use serde_json::json;

use super::*;
use crate::model::agent::NewAgent;
use crate::store::tickets::NewTicket;

fn person() -> Actor {
    Actor::User {
        name: "ann".to_owned(),
    }
}

async fn with_ticket(store: &Store) -> String {
    store
        .write(person(), |w| {
            let company = agents::create_company(w, "Acme", None)?;
            let new: NewAgent = serde_json::from_value(
                json!({ "name": "ada", "adapter": { "adapter": "process", "command": ["true"] } }),
            )?;
            agents::create(w, &company.id, new)?;
            let new = NewTicket {
                title: "One".into(),
                ..NewTicket::default()
            };
            Ok(tickets::create(w, &company.id, new)?.ticket.id)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn the_chain_verifies_and_a_changed_row_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let store = Store::open(&path).unwrap();
    with_ticket(&store).await;
    assert_eq!(verify_file(&path).unwrap().unwrap(), 3);

    // Even with the database in hand, the triggers have to be removed first.
    let raw = Connection::open(&path).unwrap();
    assert!(
        raw.execute("UPDATE journal SET actor = 'user:eve' WHERE seq = 2", [])
            .is_err()
    );
    raw.execute_batch("DROP TRIGGER journal_no_update; DROP TRIGGER journal_no_delete")
        .unwrap();
    raw.execute("UPDATE journal SET actor = 'user:eve' WHERE seq = 2", [])
        .unwrap();
    assert_eq!(verify_file(&path).unwrap().unwrap_err().seq, 2);
    raw.execute("UPDATE journal SET actor = 'user:ann' WHERE seq = 2", [])
        .unwrap();
    assert!(verify_file(&path).unwrap().is_ok());
    raw.execute("DELETE FROM journal WHERE seq = 3", [])
        .unwrap();
    assert_eq!(verify_file(&path).unwrap().unwrap_err().seq, 3);
}

#[tokio::test]
async fn a_refused_change_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let store = Store::open(&path).unwrap();
    let ticket = with_ticket(&store).await;
    let before = verify_file(&path).unwrap().unwrap();
    let id = ticket.clone();
    let refused: Result<(), _> = store
        .write(person(), move |w| {
            comments::post(w, &id, comments::NewComment::of("half"), false, false)?;
            Err(Refusal::invalid("no").into())
        })
        .await;
    assert!(matches!(refused, Err(StoreError::Refused(_))));
    assert_eq!(verify_file(&path).unwrap().unwrap(), before);
    let (count, _) = store
        .read(move |db| comments::cursor(db, &ticket))
        .await
        .unwrap();
    assert_eq!(count, 0);
}

#[tokio::test]
async fn a_panicking_change_rolls_back_and_the_next_one_works() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("state.db")).unwrap();
    let broken: Result<(), _> = store.write(person(), |_w| panic!("as a bug would")).await;
    assert!(matches!(broken, Err(StoreError::Gone)));
    with_ticket(&store).await;
}

#[tokio::test]
async fn damaged_foreign_newer_and_locked_files_are_refused_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let say = |path: &Path| Store::open(path).unwrap_err().to_string();

    let garbage = dir.path().join("garbage.db");
    std::fs::write(&garbage, vec![b'x'; 8192]).unwrap();
    assert!(say(&garbage).contains("damaged"));

    let whole = dir.path().join("whole.db");
    drop(Store::open(&whole).unwrap());
    let bytes = std::fs::read(&whole).unwrap();
    let cut = dir.path().join("cut.db");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    assert!(say(&cut).contains("damaged"), "{}", say(&cut));

    let foreign = dir.path().join("foreign.db");
    Connection::open(&foreign)
        .unwrap()
        .execute_batch("CREATE TABLE x (y)")
        .unwrap();
    assert!(say(&foreign).contains("not the orchestrator's"));

    let newer = dir.path().join("newer.db");
    drop(Store::open(&newer).unwrap());
    Connection::open(&newer)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    assert!(say(&newer).contains("version 99"));

    let missing = dir.path().join("no/such/dir/state.db");
    assert!(say(&missing).contains("hint:"));
    assert!(Store::open(&whole).is_ok());
}

#[tokio::test]
async fn a_full_or_locked_database_claims_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let store = Store::open(&path).unwrap();
    let ticket = with_ticket(&store).await;
    let assign = tickets::Patch {
        assignee_agent_id: Some(Some("ada".to_owned())),
        ..tickets::Patch::default()
    };
    store
        .write(person(), move |w| tickets::update(w, &ticket, assign))
        .await
        .unwrap();
    let wake = store.read(wakes::all_queued).await.unwrap().remove(0).id;

    // No more pages than there are: what SQLite says when the disk is full.
    let limit = |pages: &'static str| {
        move |w: &mut Writer<'_>| {
            w.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
            Ok(())
        }
    };
    store.write(Actor::System, limit("1")).await.unwrap();
    let mut outcome = Ok(());
    for _ in 0..500 {
        let (id, big) = (wake.clone(), "x".repeat(60_000));
        outcome = store
            .write(Actor::System, move |w| {
                w.note("filler", journal::About::default(), json!({ "x": big }))?;
                runs::claim(w, &id, &[0, 1])?;
                Ok(())
            })
            .await;
        if outcome.is_err() {
            break;
        }
    }
    assert!(matches!(outcome, Err(StoreError::Sqlite(_))), "{outcome:?}");
    assert!(store.read(runs::holding).await.unwrap().is_empty());
    store.write(Actor::System, limit("1000000")).await.unwrap();
    let id = wake.clone();
    store
        .write(Actor::System, move |w| runs::claim(w, &id, &[0, 1]))
        .await
        .unwrap();
    // The same wake never becomes a second run.
    assert!(
        store
            .write(Actor::System, move |w| runs::claim(w, &wake, &[0, 1]))
            .await
            .is_err()
    );
    assert_eq!(store.read(runs::holding).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_database_of_the_first_schema_is_brought_up_to_date_with_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let old = Connection::open(&path).unwrap();
    old.execute_batch(include_str!("schema/0001.sql")).unwrap();
    old.execute_batch("PRAGMA application_id = 1347375700; PRAGMA user_version = 1")
        .unwrap();
    old.execute(
        "INSERT INTO companies (id, name, prefix, created_at) VALUES ('i', 'Old', 'OLD', 1)",
        [],
    )
    .unwrap();
    // What was any text is a project and a goal now, and what was written is found.
    old.execute_batch(
        "INSERT INTO tickets (id, company, number, identifier, title, title_key, status, priority,
             project, goal, created_at, updated_at)
         VALUES ('t', 'i', 1, 'OLD-1', 'Ancient', 'ancient', 'todo', 'low', 'Web', 'Ship', 1, 1);
         INSERT INTO comments (id, ticket, author_type, body, created_at)
         VALUES ('c', 't', 'user', 'forgotten words', 1);",
    )
    .unwrap();
    drop(old);
    let store = Store::open(&path).unwrap();
    with_ticket(&store).await;
    for word in ["ancient", "forgotten"] {
        let filter = tickets::Filter {
            text: Some(word.to_owned()),
            limit: 10,
            ..tickets::Filter::default()
        };
        let found = store
            .read(move |db| tickets::list(db, "i", &filter))
            .await
            .unwrap();
        assert_eq!(found.len(), 1, "{word}");
        let (project, goal) = (found[0].project.clone(), found[0].goal.clone());
        let (project, goal) = store
            .read(move |db| {
                let project = projects::get(db, &project.unwrap(), Some("i"))?;
                Ok((project, goals::get(db, &goal.unwrap(), Some("i"))?))
            })
            .await
            .unwrap();
        assert_eq!(
            (project.name.as_str(), goal.title.as_str()),
            ("Web", "Ship")
        );
    }
    let companies = store.read(agents::companies).await.unwrap();
    let names: Vec<&str> = companies.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["Old", "Acme"]);
    drop(store);
    assert!(Store::open(&path).is_ok(), "and only once");
}

/// Nobody but its owner, root too, can change the mode of a file of `/proc`, and everybody who may write it can open it.
#[test]
fn a_state_that_cannot_be_closed_to_others_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    for _ in 0..2 {
        keep_private(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
            0o600
        );
    }
    let stubborn = Path::new("/proc/self/comm");
    let refused = keep_private(stubborn).unwrap_err().to_string();
    assert!(refused.contains("/proc/self/comm"), "{refused}");
    assert!(refused.contains("open to others"), "{refused}");
    // What an earlier process left beside it counts as much.
    std::os::unix::fs::symlink(stubborn, folder.path().join("state.db-wal")).unwrap();
    let refused = keep_private(&path).unwrap_err().to_string();
    assert!(refused.contains("state.db-wal"), "{refused}");
}
