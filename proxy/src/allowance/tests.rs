use policy::grant::{RunId, Scope};
use policy::money::Usd;

use super::*;

fn limit(per: Scope) -> Limit {
    Limit {
        per,
        usd: None,
        tokens: None,
        requests: None,
        bytes: None,
        seconds: None,
        window_seconds: None,
    }
}

fn grant(limits: &[Limit]) -> (Grant, Vec<Limit>) {
    let run = RunId::parse("r-1").unwrap();
    let grant = Grant::new("acme", "coder", Some("T-1"), run, "default").unwrap();
    (grant, limits.to_vec())
}

fn open(directory: &std::path::Path) -> Arc<Allowances> {
    Arc::new(Allowances::open(Vec::new(), directory.to_owned()).unwrap())
}

fn wanted(nano: u64, tokens: u64) -> Amount {
    Amount {
        nano,
        tokens,
        requests: 1,
        bytes: 0,
    }
}

fn reserve(
    allowances: &Arc<Allowances>,
    (grant, granted): &(Grant, Vec<Limit>),
    amount: Amount,
) -> Result<Arc<Reservation>, Refusal> {
    let claims = allowances.claims(grant, granted);
    Ok(allowances.reserve(claims, amount)?.expect("it has limits"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_at_once_never_take_more_than_one_reservation_over() {
    let scratch = tempfile::tempdir().unwrap();
    let allowances = open(&scratch.path().join("a"));
    let money = Limit {
        usd: Some(Usd::from_nano(1_000)),
        ..limit(Scope::Agent)
    };
    let asker = Arc::new(grant(&[money]));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (allowances, asker) = (Arc::clone(&allowances), Arc::clone(&asker));
        tasks.spawn(async move {
            let Ok(reservation) = reserve(&allowances, &asker, wanted(300, 10)) else {
                return false;
            };
            reservation.leave().await.unwrap();
            reservation.settle(wanted(300, 10), None);
            true
        });
    }
    let served = tasks.join_all().await;
    assert_eq!(served.iter().filter(|served| **served).count(), 4);
    let view = &allowances.view(std::slice::from_ref(&*asker))[0];
    assert_eq!(view.spent.usd.nano(), 1_200);
    let refused = reserve(&allowances, &asker, wanted(1, 1)).unwrap_err();
    assert_eq!(
        (refused.code, refused.status()),
        (Code::AllowanceSpent, 403)
    );
    assert!(
        refused.text.contains("0.0000012 US dollars of 0.000001"),
        "{}",
        refused.text
    );
    reserve(&allowances, &asker, wanted(0, 0)).expect("control: what costs nothing goes on");
}

#[tokio::test]
async fn what_was_taken_and_what_was_under_way_outlive_the_gate() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("a");
    let tokens = Limit {
        tokens: Some(100),
        ..limit(Scope::Ticket)
    };
    let asker = grant(&[tokens]);
    let spent = |allowances: &Arc<Allowances>| {
        allowances.view(std::slice::from_ref(&asker))[0]
            .spent
            .tokens
    };
    {
        let allowances = open(&directory);
        let settled = reserve(&allowances, &asker, wanted(0, 50)).unwrap();
        settled.leave().await.unwrap();
        settled.settle(wanted(0, 7), Some("acme/coder m"));
        let left = reserve(&allowances, &asker, wanted(0, 20)).unwrap();
        left.leave().await.unwrap();
        assert!(left.needs(0, 25));
        let never_left = reserve(&allowances, &asker, wanted(0, 30)).unwrap();
        drop(never_left);
        assert_eq!(spent(&allowances), 7);
        let journal = allowances.books().journal.clone().unwrap();
        journal.synced().await;
        // As if the process had been killed: nothing is settled.
        std::mem::forget(left);
    }
    let file = directory.join("journal.jsonl");
    let mut torn = std::fs::read(&file).unwrap();
    torn.extend_from_slice(b"{\"settle\":{\"id\":1,\"amo");
    std::fs::write(&file, &torn).unwrap();
    let again = open(&directory);
    // 20 that were held, and a step of 10 that was added.
    assert_eq!(spent(&again), 7 + 30);
    drop(again);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("nonsense\n{text}")).unwrap();
    let problem = Allowances::open(Vec::new(), directory.clone()).unwrap_err();
    assert!(
        problem.to_string().contains("journal.jsonl:1:"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_journal_that_cannot_be_written_gives_nothing_out_and_recovers() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("a");
    std::fs::write(&directory, "in the way").unwrap();
    let allowances = Arc::new(Allowances {
        configured: Vec::new(),
        directory: directory.clone(),
        books: Mutex::default(),
    });
    let asker = grant(&[Limit {
        requests: Some(5),
        ..limit(Scope::Run)
    }]);
    let refused = reserve(&allowances, &asker, wanted(0, 0)).unwrap_err();
    assert_eq!(
        (refused.code, refused.status()),
        (Code::AllowanceUnavailable, 503)
    );
    std::fs::remove_file(&directory).unwrap();
    reserve(&allowances, &asker, wanted(0, 0)).expect("it recovers");
}

#[tokio::test]
async fn bytes_and_money_are_asked_for_in_steps_until_there_are_none() {
    let scratch = tempfile::tempdir().unwrap();
    let allowances = open(&scratch.path().join("a"));
    let asker = grant(&[Limit {
        bytes: Some(1 << 20),
        tokens: Some(1000),
        window_seconds: Some(60),
        ..limit(Scope::Company)
    }]);
    let reservation = reserve(&allowances, &asker, wanted(0, 100)).unwrap();
    reservation.leave().await.unwrap();
    assert!(reservation.bytes(1 << 20));
    assert!(!reservation.bytes((1 << 20) + 1));
    let refused = reservation.refusal();
    assert_eq!(
        (refused.code, refused.status()),
        (Code::AllowanceWaits, 429)
    );
    assert!(
        refused
            .retry_after
            .is_some_and(|seconds| (1..=60).contains(&seconds.get()))
    );
    assert!(reservation.needs(0, 1000));
    assert!(!reservation.needs(0, 2000), "nothing is left");
    reservation.settle(wanted(0, 1), None);
    assert!(
        reserve(&allowances, &asker, wanted(0, 1)).is_ok(),
        "control"
    );
}
