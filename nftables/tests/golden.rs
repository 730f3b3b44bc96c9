//! The rendered text, byte for byte: a changed rule must be a changed file in review.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use nftables::accounts::Accounts;
use nftables::config::Config;
use nftables::render;
use nftables::ruleset::Ruleset;

const PASSWD: &str = "root:x:0:0::/root:/bin/sh\n\
                      portcullis-proxy:x:990:990::/:/usr/sbin/nologin\n\
                      portcullis-orchestrator:x:991:991::/:/usr/sbin/nologin\n\
                      portcullis-exec:x:992:992::/:/usr/sbin/nologin\n\
                      systemd-resolve:x:993:993::/:/usr/sbin/nologin\n\
                      _apt:x:42:65534::/:/usr/sbin/nologin\n";
const SUBUID: &str = "portcullis-orchestrator:200000:65536\nportcullis-exec:265536:65536\n";

fn ruleset(text: &str) -> Ruleset {
    let config = Config::parse(text, "boundary.toml").unwrap();
    let accounts = Accounts::from_texts(PASSWD, SUBUID, SUBUID).unwrap();
    Ruleset::build(&config, &accounts, now()).unwrap()
}

fn now() -> jiff::Timestamp {
    "2026-12-01T00:00:00Z".parse().unwrap()
}

#[test]
fn agents() {
    let ruleset = ruleset(include_str!("golden/agents.toml"));
    assert_eq!(
        render::text(&ruleset, now()),
        include_str!("golden/agents.nft")
    );
}

#[test]
fn redirect() {
    let ruleset = ruleset(include_str!("golden/redirect.toml"));
    assert_eq!(
        render::text(&ruleset, now()),
        include_str!("golden/redirect.nft")
    );
}

#[test]
fn guest() {
    let ruleset = ruleset(include_str!("golden/guest.toml"));
    assert_eq!(
        render::text(&ruleset, now()),
        include_str!("golden/guest.nft")
    );
}

#[test]
fn the_hash_names_the_rules_and_nothing_else() {
    let text = include_str!("golden/agents.toml");
    let hash = ruleset(text).hash();
    assert_eq!(hash.len(), 64);
    assert_eq!(ruleset(&format!("# a comment\n{text}")).hash(), hash);
    let other = text.replace("gate_port = 3128", "gate_port = 3129");
    assert_ne!(ruleset(&other).hash(), hash);
}

#[test]
fn comments_are_unique_within_the_table() {
    for text in [
        include_str!("golden/agents.toml"),
        include_str!("golden/redirect.toml"),
        include_str!("golden/guest.toml"),
    ] {
        let chains = ruleset(text).chains;
        let rules = chains.iter().flat_map(|chain| &chain.rules);
        let mut comments: Vec<_> = rules.map(|rule| &rule.comment).collect();
        let count = comments.len();
        assert!(comments.iter().all(|comment| comment.len() < 128));
        comments.sort();
        comments.dedup();
        assert_eq!(comments.len(), count);
    }
}
