use policy::{Policy, Routing};
use tokio::io::DuplexStream;

use super::super::Settings;
use super::*;
use crate::config::Limits;

const POLICY: &str =
    "version = 1\n[[service]]\nkind = \"http\"\nhost = \"*.example.com\"\nallow = [\"GET /**\"]\n";

fn key(pool: &Pool, owner: &str, host: usize) -> Key {
    let policy = Policy::parse(POLICY, "policy.toml").unwrap();
    let authority = Authority::parse(&format!("h{host}.example.com:443")).unwrap();
    let Routing::Route(route) = policy.route(Scheme::Https, &authority) else {
        panic!("it is listed");
    };
    let name = CredentialName::parse("api").unwrap();
    pool.key(&Arc::from(owner), Some(&name), &route)
}

/// An idle connection, and its far end.
async fn connection() -> (Connection, DuplexStream) {
    let settings = Settings::of(&Limits::default(), None);
    let (near, far) = tokio::io::duplex(64);
    let connection = Connection::http1(&settings, near, None).await.unwrap();
    (connection, far)
}

/// Gives back `count` connections of `key`; their far ends.
async fn fill(pool: &Pool, key: &Key, count: usize) -> Vec<DuplexStream> {
    let mut far_ends = Vec::new();
    for _ in 0..count {
        let (connection, far) = connection().await;
        pool.put(key.clone(), connection);
        far_ends.push(far);
    }
    far_ends
}

fn kept(pool: &Pool, owner: &str) -> usize {
    let shelf = pool.shelf();
    let own = shelf.kept.iter().filter(|(key, _)| &*key.owner == owner);
    own.map(|(_, list)| list.len()).sum()
}

fn taken(pool: &Pool) -> usize {
    pool.shelf().taken.load(Ordering::Acquire)
}

#[tokio::test]
async fn one_owner_has_its_share_and_leaves_the_others_theirs() {
    let pool = Pool::new(64, Duration::from_secs(60));
    let mut far_ends = Vec::new();
    for host in 0..6 {
        far_ends.extend(fill(&pool, &key(&pool, "one", host), 65).await);
    }
    assert_eq!(kept(&pool, "one"), MOST_OF_OWNER);
    assert_eq!(pool.shelf().kept.len(), 4, "no key without a connection");
    let other = key(&pool, "other", 0);
    far_ends.extend(fill(&pool, &other, 65).await);
    assert_eq!(kept(&pool, "other"), 64, "of one key");
    // What is taken makes room.
    assert!(pool.take(&key(&pool, "one", 0), Offer::Http1).is_some());
    far_ends.extend(fill(&pool, &key(&pool, "one", 5), 2).await);
    assert_eq!(kept(&pool, "one"), MOST_OF_OWNER);
    assert_eq!(taken(&pool), MOST_OF_OWNER + 64);
    pool.clear();
    assert_eq!(taken(&pool), 0);
    assert!(pool.shelf().owners.is_empty());
}

#[tokio::test]
async fn all_owners_together_have_no_more_than_the_gate_keeps() {
    let pool = Pool::new(256, Duration::from_secs(60));
    let mut far_ends = Vec::new();
    for owner in 0..MOST_KEPT / MOST_OF_OWNER + 1 {
        let key = key(&pool, &owner.to_string(), 0);
        far_ends.extend(fill(&pool, &key, MOST_OF_OWNER).await);
    }
    assert_eq!(taken(&pool), MOST_KEPT);
    assert_eq!(kept(&pool, "0"), MOST_OF_OWNER);
    assert_eq!(kept(&pool, "16"), 0);
    assert!(!pool.shelf().kept.contains_key(&key(&pool, "16", 0)));
}

/// Waits until the driver of each connection has seen its far end's close.
async fn closed(pool: &Pool, key: &Key, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let dead = |list: &Vec<Kept>| list.iter().filter(|one| one.connection.is_closed()).count();
        if pool.shelf().kept.get(key).map_or(0, dead) == count {
            return;
        }
        assert!(Instant::now() < deadline, "they are not closed");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_closed_below_the_top_takes_no_place_for_long() {
    let pool = Pool::new(8, Duration::from_secs(60));
    let key = key(&pool, "one", 0);
    let mut far_ends = fill(&pool, &key, 8).await;
    far_ends.drain(..3);
    closed(&pool, &key, 3).await;
    assert_eq!(kept(&pool, "one"), 8, "control");
    let top = pool.take(&key, Offer::Http1).unwrap();
    assert!(!top.is_closed());
    assert_eq!((kept(&pool, "one"), taken(&pool)), (4, 4));
    // One in between goes when room is wanted.
    far_ends.extend(fill(&pool, &key, 4).await);
    far_ends.remove(1);
    closed(&pool, &key, 1).await;
    far_ends.extend(fill(&pool, &key, 1).await);
    closed(&pool, &key, 0).await;
    assert_eq!(kept(&pool, "one"), 8);
}

#[tokio::test]
async fn nothing_is_kept_of_who_has_ended_or_of_a_value_that_is_replaced() {
    let pool = Pool::new(8, Duration::from_secs(60));
    let (ended, lives) = (key(&pool, "run:a:1", 0), key(&pool, "run:a:2", 0));
    let mut far_ends = Vec::new();
    for key in [&ended, &lives] {
        far_ends.extend(fill(&pool, key, 1).await);
    }
    pool.forget("run:a:1");
    for key in [&ended, &lives] {
        far_ends.extend(fill(&pool, key, 1).await);
    }
    assert_eq!((kept(&pool, "run:a:1"), kept(&pool, "run:a:2")), (0, 2));
    pool.forget_credential(&CredentialName::parse("api").unwrap());
    far_ends.extend(fill(&pool, &lives, 1).await);
    assert_eq!((kept(&pool, "run:a:2"), taken(&pool)), (0, 0));
    far_ends.extend(fill(&pool, &key(&pool, "run:a:2", 0), 1).await);
    assert_eq!(kept(&pool, "run:a:2"), 1, "control");
}

/// Whatever interleaves, nothing that was forgotten is there once all are through.
#[test]
fn what_is_given_back_while_it_is_forgotten_does_not_stay() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let pool = Pool::new(8, Duration::from_secs(60));
    let name = CredentialName::parse("api").unwrap();
    for round in 0..200 {
        let owner = format!("run:{round}:1");
        let (ended, replaced) = (key(&pool, &owner, 0), key(&pool, "lives", 0));
        let ((first, _one), (second, _other)) =
            runtime.block_on(async { (connection().await, connection().await) });
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                pool.put(ended, first);
                pool.put(replaced, second);
            });
            start.wait();
            pool.forget(&owner);
            pool.forget_credential(&name);
        });
        assert_eq!((kept(&pool, &owner), kept(&pool, "lives")), (0, 0));
    }
}
