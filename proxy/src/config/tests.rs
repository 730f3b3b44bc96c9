use std::path::Path;

use super::*;

const WHOLE: &str = r#"
[listen]
tcp = "127.0.0.1:3128"
[[listen.identity]]
uid = 1500
agent = "ci"
company = "local"
profile = "default"

[control]
socket = "/run/portcullis/proxy/control.sock"
[[control.peer]]
user = "orchestrator"
profiles = ["default"]
[[control.peer]]
user = 0
inline = true
admin = true

[runs]
directory = "/run/portcullis/runs"
[board]
socket = "/run/portcullis/orchestrator/board.sock"
[ca]
directory = "/var/lib/portcullis/proxy/ca"
[audit]
directory = "/var/lib/portcullis/proxy/audit"
[boundary]
status = "/run/portcullis/boundary/status.json"

[profile.default]
policy = "/etc/portcullis/policies/default.toml"

[credential.github]
kind = "github-token"
file = "/etc/portcullis/credentials/github"
hosts = ["github.com", "api.github.com"]
[credential.store]
kind = "basic"
username = "robot"
file = "/etc/portcullis/credentials/store"
hosts = ["*.store.example"]
[credential.key]
kind = "header"
header = "X-Api-Key"
file = "/etc/portcullis/credentials/key"
hosts = ["api.example.com"]
[credential.pve]
kind = "proxmox-token"
id = "agent@pve!ci"
file = "/etc/portcullis/credentials/pve"
hosts = ["pve.example"]

[limits]
leaf_cache = 16
idle_timeout_seconds = 7
"#;

fn uid_of(user: &str) -> Option<u32> {
    match user {
        "orchestrator" => Some(990),
        other => other.parse().ok(),
    }
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    super::parse::parse(text, Path::new("proxy.toml"), &uid_of)
}

fn problems(text: &str) -> String {
    match parse(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(problem) => problem.to_string(),
    }
}

#[test]
fn a_whole_file_is_read() {
    let config = parse(WHOLE).unwrap();
    let listen = config.listen.as_ref().unwrap();
    assert_eq!(listen.tcp.map(|at| at.port()), Some(3128));
    assert_eq!(listen.identities[0].uid, 1500);
    let peer = &config.control.peers[&990];
    assert_eq!(peer.profiles, ["default"]);
    assert!(!peer.inline && !peer.admin);
    assert!(config.control.peers[&0].inline && config.control.peers[&0].admin);
    assert_eq!(config.limits.leaf_cache, 16);
    assert_eq!(config.limits.idle_timeout.as_secs(), 7);
    assert_eq!(
        config.limits.connections_per_run,
        Limits::default().connections_per_run
    );
    assert_eq!(config.credentials.len(), 4);
    let github = &config.credentials[&CredentialName::parse("github").unwrap()];
    assert!(github.may_go_to(&Host::parse("github.com").unwrap()));
    assert!(!github.may_go_to(&Host::parse("evil.github.com").unwrap()));
    assert!(!github.covers(&HostPattern::parse("*.github.com").unwrap()));
    let store = &config.credentials[&CredentialName::parse("store").unwrap()];
    assert!(store.covers(&HostPattern::parse("*.a.store.example").unwrap()));
    assert!(!store.may_go_to(&Host::parse("store.example").unwrap()));
    let all = VisibleUids::parse("0 0 4294967295");
    assert!(config.check_uids(900, &all).is_ok());
    let said = config.check_uids(1500, &all).unwrap_err().to_string();
    assert!(said.contains("1500 is the gate's own uid"), "{said}");
    let alone = VisibleUids::parse("900 900 1");
    let said = config.check_uids(900, &alone).unwrap_err().to_string();
    assert_eq!(said.matches("is not mapped").count(), 3, "{said}");
}

#[test]
fn a_token_entrance_stands_beside_the_loopback_port_or_alone() {
    let digest = "a5".repeat(32);
    let by_token = format!("token_sha256 = \"{digest}\"");
    let port = "tcp = \"127.0.0.1:3128\"";
    let beside = format!("{port}\ntoken = [\"10.20.0.1:3128\", \"[fd20::1]:3128\"]");
    let text = WHOLE.replacen(port, &beside, 1);
    let listen = parse(&text).unwrap().listen.unwrap();
    assert_eq!((listen.token.len(), listen.tokens.len()), (2, 0));
    assert_eq!(listen.identities.len(), 1, "runs have tokens of their own");
    let alone = text
        .replacen(port, "", 1)
        .replacen("uid = 1500", &by_token, 1);
    let listen = parse(&alone).unwrap().listen.unwrap();
    assert_eq!((listen.tcp, listen.identities.len()), (None, 0));
    assert_eq!(listen.tokens[0].digest.to_string(), digest);
    assert_eq!(listen.tokens[0].agent, "ci");

    for (old, new, wanted) in [
        (
            "10.20.0.1:3128",
            "0.0.0.0:3128",
            "would listen on every side",
        ),
        ("[fd20::1]:3128", "[::]:3128", "would listen on every side"),
        ("10.20.0.1:3128", "10.20.0.1", "is not ADDRESS:PORT"),
        (
            "10.20.0.1:3128",
            "10.20.0.1:0",
            "is not an address with a port",
        ),
        (
            "10.20.0.1:3128",
            "127.0.0.1:3128",
            "127.0.0.1:3128 is listed twice",
        ),
        ("[fd20::1]:3128", "10.20.0.1:3128", "is listed twice"),
        (
            "uid = 1500",
            "uid = 1500\ntoken_sha256 = \"TOKEN\"",
            "stands beside a uid",
        ),
        (
            "uid = 1500",
            "token_sha256 = \"my-own-token\"",
            "is not SHA-256",
        ),
        ("uid = 1500", "", "listen.identity[1].uid: is missing"),
    ] {
        let text = text.replacen(old, &new.replace("TOKEN", &digest), 1);
        let said = problems(&text);
        assert!(said.contains(wanted), "{old} -> {new}: {said}");
        assert!(
            !said.contains("my-own-token"),
            "it may be the token itself: {said}"
        );
    }
    for empty in ["token = []", "tcp = \"127.0.0.1:3128\"\ntoken = []"] {
        let said = problems(&WHOLE.replacen(port, empty, 1));
        assert!(said.contains("listen.token: names no address"), "{said}");
    }
    // Entrances that ask for a uid are for nobody without one.
    for asks in ["tcp", "redirected", "resolver"] {
        let value = match asks {
            "tcp" => "\"127.0.0.1:3200\"",
            _ => "[\"127.0.0.1:3200\"]",
        };
        let beside = format!("token = [\"10.20.0.1:3128\"]\n{asks} = {value}");
        let text = WHOLE.replacen(port, &beside, 1);
        assert!(parse(&text).is_ok(), "{asks}: control");
        let said = problems(&text.replacen("uid = 1500", &by_token, 1));
        assert!(
            said.contains("listen.identity: is missing"),
            "{asks}: {said}"
        );
    }
    let nowhere = WHOLE.replacen("uid = 1500", &by_token, 1);
    let said = problems(&nowhere);
    assert!(said.contains("listen.token: is missing"), "{said}");
    let twice = format!(
        "{text}\n[[listen.identity]]\n{by_token}\nagent = \"a\"\ncompany = \"c\"\nprofile = \"default\"\n"
    );
    assert!(parse(&twice).is_ok(), "control");
    let twice = twice.replacen("uid = 1500", &by_token, 1);
    assert!(problems(&twice).contains("is listed twice"));
}

#[test]
fn an_agent_elsewhere_is_known_by_one_address_that_only_it_can_have() {
    let port = "tcp = \"127.0.0.1:3128\"";
    let entrance = "token = [\"10.20.0.1:3128\"]";
    let text =
        WHOLE
            .replacen(port, entrance, 1)
            .replacen("uid = 1500", "address = \"10.20.0.2\"", 1);
    let listen = parse(&text).unwrap().listen.unwrap();
    assert_eq!((listen.identities.len(), listen.tokens.len()), (0, 0));
    assert_eq!(listen.places[0].address.to_string(), "10.20.0.2");
    for (one, canonical) in [("fd20::2", "fd20::2"), ("::ffff:10.20.0.2", "10.20.0.2")] {
        let listen = parse(&text.replacen("10.20.0.2", one, 1)).unwrap().listen;
        assert_eq!(listen.unwrap().places[0].address.to_string(), canonical);
    }
    for (new, wanted) in [
        ("address = \"127.0.0.9\"", "is this machine itself"),
        ("address = \"::1\"", "is this machine itself"),
        ("address = \"::ffff:127.0.0.1\"", "is this machine itself"),
        ("address = \"0.0.0.0\"", "is nobody's address"),
        ("address = \"ff02::1\"", "is nobody's address"),
        ("address = \"10.20.0.0/24\"", "is not one IP address"),
        ("address = \"agent\"", "is not one IP address"),
        (
            "address = \"10.20.0.2\"\nuid = 1500",
            "address: stands beside a uid",
        ),
        (
            "address = \"10.20.0.2\"\ntoken_sha256 = \"a5\"",
            "address: stands beside the token_sha256",
        ),
    ] {
        let said = problems(&text.replacen("address = \"10.20.0.2\"", new, 1));
        assert!(said.contains(wanted), "{new}: {said}");
    }
    let nowhere = text.replacen(entrance, port, 1);
    assert!(problems(&nowhere).contains("listen.token: is missing"));
    let other = |address: &str| {
        format!(
            "{text}\n[[listen.identity]]\naddress = \"{address}\"\nagent = \"a\"\ncompany = \"c\"\nprofile = \"default\"\n"
        )
    };
    assert!(parse(&other("10.20.0.3")).is_ok(), "control");
    for same in ["10.20.0.2", "::ffff:10.20.0.2"] {
        let said = problems(&other(same));
        assert!(said.contains("10.20.0.2 is listed twice"), "{said}");
    }
}

#[test]
fn an_unknown_key_names_its_nearest_and_its_line() {
    let said = problems(&WHOLE.replace("leaf_cache", "leaf_cash"));
    let line = WHOLE
        .lines()
        .position(|line| line.starts_with("leaf_cache"))
        .unwrap()
        + 1;
    let wanted = format!("proxy.toml:{line}: limits.leaf_cash: is not a key we know");
    assert!(said.contains(&wanted), "{said}");
    assert!(said.contains("hint: did you mean leaf_cache?"), "{said}");
}

#[test]
fn all_problems_come_in_one_pass_in_the_order_of_the_file() {
    let text = WHOLE
        .replace("127.0.0.1:3128", "0.0.0.0:3128")
        .replace("uid = 1500", "uid = 0")
        .replace("\"orchestrator\"", "\"nobody-here\"")
        .replace("\"/run/portcullis/runs\"", "\"runs\"")
        .replace("kind = \"github-token\"", "kind = \"github-tokn\"")
        .replace("hosts = [\"pve.example\"]", "hosts = []")
        .replace("leaf_cache = 16", "leaf_cache = \"many\"");
    let said = problems(&text);
    let wanted = [
        "listen.tcp: 0.0.0.0:3128 is not a loopback address",
        "listen.identity[1].uid: uid 0 is never an agent",
        "control.peer[1].user: there is no user nobody-here",
        "runs.directory: runs is not an absolute path",
        "credential.github.kind: github-tokn is not a kind of credential",
        "credential.pve.hosts: is empty",
        "limits.leaf_cache: is a string",
    ];
    let mut from = 0;
    for text in wanted {
        match said[from..].find(text) {
            Some(at) => from += at,
            None => panic!("{text} is missing or out of order in:\n{said}"),
        }
    }
    assert!(said.contains("did you mean github-token?"), "{said}");
    assert_eq!(said.matches("hint:").count(), wanted.len(), "{said}");
}

#[test]
fn each_of_these_is_refused() {
    let cases = [
        ("uid = 1500", "uid = 65534", "unknown users"),
        (
            "profile = \"default\"",
            "profile = \"other\"",
            "there is no profile other",
        ),
        (
            "profiles = [\"default\"]",
            "profiles = [\"x\"]",
            "there is no profile x",
        ),
        ("user = 0", "user = \"990\"", "listed twice"),
        ("user = 0", "user = 65534", "unknown users"),
        ("id = \"agent@pve!ci\"", "id = \"agent\"", "user@realm!name"),
        (
            "header = \"X-Api-Key\"",
            "header = \"Host\"",
            "cannot carry a credential",
        ),
        (
            "header = \"X-Api-Key\"",
            "header = \"a b\"",
            "cannot carry a credential",
        ),
        ("username = \"robot\"", "username = \"a:b\"", "a colon"),
        (
            "username = \"robot\"",
            "",
            "credential.store.username: is missing",
        ),
        (
            "hosts = [\"api.example.com\"]",
            "",
            "credential.key.hosts: is missing",
        ),
        (
            "hosts = [\"api.example.com\"]",
            "hosts = [\"*.com\"]",
            "hint",
        ),
        ("hosts = [\"api.example.com\"]", "hosts = [\"a b\"]", "hint"),
        (
            "id = \"agent@pve!ci\"",
            "header = \"X-A\"",
            "belongs to kind = \"header\"",
        ),
        (
            "[credential.key]",
            "[credential.\"Ke y\"]",
            "credential's name",
        ),
        (
            "[boundary]",
            "[boundary]\nexternal = \"x\"",
            "both status and external",
        ),
        (
            "status = \"/run/portcullis/boundary/status.json\"",
            "",
            "names no proof",
        ),
        ("[board]", "[bored]", "did you mean board?"),
        ("uid = 1500", "", "listen.identity[1].uid: is missing"),
        ("[[listen.identity]]", "[x]", "listen.identity: is missing"),
        ("leaf_cache = 16", "leaf_cache = 0", "not between"),
        ("leaf_cache = 16", "leaf_cache = -1", "whole number"),
    ];
    for (old, new, wanted) in cases {
        let text = WHOLE.replacen(old, new, 1);
        assert_ne!(text, WHOLE, "{old}");
        let said = problems(&text);
        assert!(
            said.contains(wanted),
            "{old} -> {new}: wanted `{wanted}` in:\n{said}"
        );
        assert!(said.starts_with("proxy.toml:"), "{said}");
    }
}

#[test]
fn missing_tables_are_named() {
    let said = problems("");
    for key in ["control", "runs", "ca", "audit", "boundary"] {
        assert!(
            said.contains(&format!(": {key}: is missing")),
            "{key} in:\n{said}"
        );
    }
}

#[test]
fn broken_toml_says_where() {
    let said = problems(&WHOLE.replace("[runs]", "[runs"));
    assert!(said.starts_with("proxy.toml:"), "{said}");
    assert!(said.contains("this is not TOML"), "{said}");
}

#[test]
fn a_missing_file_is_named() {
    let problem = Config::load(Path::new("/nonexistent/proxy.toml")).unwrap_err();
    assert!(problem.to_string().contains("/nonexistent/proxy.toml"));
}

#[test]
fn the_documented_configuration_is_read() {
    let page = include_str!("../../../docs/gate.md");
    let text = page
        .split("```toml")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let text = text.replace("portcullis-orchestrator\"  ", "orchestrator\"  ");
    let config = parse(&text).unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(config.limits, Limits::default());
}
