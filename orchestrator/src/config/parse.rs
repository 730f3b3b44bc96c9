//! From the text of `orchestrator.toml` to a [`Config`].

use std::path::Path;

use nix::unistd::User;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Document, Problem, Problems, kind};
use super::{Config, Limits, hooks, profile};

const KEYS: [&str; 17] = [
    "state",
    "runs",
    "workspaces",
    "rootfs",
    "relay",
    "board_socket",
    "api_socket",
    "control_socket",
    "trust",
    "proxy_user",
    "operators",
    "ids",
    "hooks",
    "limits",
    "profile",
    "concurrent",
    "version",
];
const LIMITS: [&str; 2] = ["memory_mib", "pids"];

/// Resolves an account name to its uid.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<u32>;

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// Every problem of the file, in one pass.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let text = std::fs::read_to_string(path).map_err(|error| Problems {
            path: path.to_owned(),
            list: vec![Problem {
                line: 1,
                key: String::new(),
                problem: format!("cannot be read: {error}"),
                hint: "give the file's place with --config FILE".to_owned(),
            }],
        })?;
        let lookup = |name: &str| User::from_name(name).ok().flatten().map(|u| u.uid.as_raw());
        Self::parse(path, &text, &lookup)
    }

    pub(super) fn parse(path: &Path, text: &str, lookup: Lookup<'_>) -> Result<Self, Problems> {
        let mut document = Document::new(path, text);
        // After a syntax error the table is empty; the keys it lacks would only be noise.
        let Some(table) = document.table() else {
            return Err(document.problems());
        };
        document.unknown("", &table, &KEYS);
        let state = document.path(&table, "state", None);
        let below = |name: &str| Some(state.join(name));
        let config = Self {
            path: path.to_owned(),
            runs: document.path(&table, "runs", below("runs")),
            workspaces: document.path(&table, "workspaces", below("workspaces")),
            rootfs: document.path(&table, "rootfs", below("rootfs")),
            relay: document.path(&table, "relay", None),
            board_socket: document.path(&table, "board_socket", None),
            api_socket: document.path(&table, "api_socket", None),
            control_socket: document.path(&table, "control_socket", None),
            trust: document.path(&table, "trust", None),
            proxy_uid: proxy(&mut document, &table, lookup),
            operators: operators(&mut document, &table, lookup),
            ids: document.text(&table, "ids").map(Spanned::into_inner),
            hooks: hooks::read(&mut document, &table),
            limits: limits(&mut document, &table),
            profiles: profile::all(&mut document, &table),
            concurrent: concurrent(&mut document, &table),
            state: state.clone(),
        };
        document.number(&table, "", "version", 1..=1, 1);
        document.done()?;
        Ok(config)
    }
}

fn proxy(document: &mut Document<'_>, table: &DeTable<'_>, lookup: Lookup<'_>) -> u32 {
    match table.get("proxy_user") {
        Some(value) => account(document, "proxy_user", value, lookup).unwrap_or(u32::MAX),
        None => lookup("portcullis-proxy").unwrap_or_else(|| {
            let problem = "is missing, and there is no account portcullis-proxy";
            document.say(
                0..0,
                "proxy_user",
                problem,
                "add proxy_user = the gate's account or uid",
            );
            u32::MAX
        }),
    }
}

fn operators(document: &mut Document<'_>, table: &DeTable<'_>, lookup: Lookup<'_>) -> Vec<u32> {
    let Some(value) = table.get("operators") else {
        return Vec::new();
    };
    let DeValue::Array(list) = value.get_ref() else {
        let problem = format!("is {}, must be a list", kind(value.get_ref()));
        document.say(
            value.span(),
            "operators",
            problem,
            "write operators = [\"name\", 1000]",
        );
        return Vec::new();
    };
    list.iter()
        .filter_map(|entry| account(document, "operators", entry, lookup))
        .collect()
}

fn account(
    document: &mut Document<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    lookup: Lookup<'_>,
) -> Option<u32> {
    match value.get_ref() {
        DeValue::String(name) => {
            let found = lookup(name);
            if found.is_none() {
                let problem = format!("there is no account `{name}`");
                document.say(
                    value.span(),
                    key,
                    problem,
                    "create it, or give a uid as a number",
                );
            }
            found
        }
        DeValue::Integer(digits) => {
            let uid = u32::from_str_radix(digits.as_str(), digits.radix()).ok();
            if uid.is_none() {
                document.say(value.span(), key, "is no uid", "a uid is 0 to 4294967294");
            }
            uid
        }
        other => {
            let problem = format!("is {}, must be an account", kind(other));
            document.say(value.span(), key, problem, "give a name in quotes or a uid");
            None
        }
    }
}

fn concurrent(document: &mut Document<'_>, table: &DeTable<'_>) -> Option<u32> {
    table.get("concurrent")?;
    let most = document.number(table, "", "concurrent", 1..=1_000_000, 64);
    u32::try_from(most).ok()
}

fn limits(document: &mut Document<'_>, table: &DeTable<'_>) -> Limits {
    let empty = DeTable::new();
    let section = match table
        .get("limits")
        .map(|value| (value.span(), value.get_ref()))
    {
        Some((_, DeValue::Table(section))) => section,
        Some((span, other)) => {
            let problem = format!("is {}, must be a table", kind(other));
            document.say(
                span,
                "limits",
                problem,
                "write [limits] on a line of its own",
            );
            &empty
        }
        None => &empty,
    };
    document.unknown("limits.", section, &LIMITS);
    let mib = document.number(section, "limits.", "memory_mib", 16..=16_777_216, 2048);
    Limits {
        memory_bytes: mib * 1024 * 1024,
        pids: document.number(section, "limits.", "pids", 8..=1_000_000, 512),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
state = "/s"
board_socket = "/r/board.sock"
api_socket = "/r/api.sock"
control_socket = "/r/control.sock"
trust = "/t"
relay = "/l/relay"
proxy_user = "gate"
operators = ["ann", 1000]
[limits]
pids = 99
[profile.deploy]
agent_wakes = "approve"
concurrent = 2
quiet = "22:00-06:00 Europe/Berlin"
"#;

    fn lookup(name: &str) -> Option<u32> {
        match name {
            "gate" => Some(7),
            "ann" => Some(8),
            _ => None,
        }
    }

    fn parse(text: &str) -> Result<Config, Problems> {
        Config::parse(Path::new("o.toml"), text, &lookup)
    }

    #[test]
    fn a_good_file_is_resolved() {
        let config = parse(GOOD).unwrap();
        assert_eq!(config.runs, Path::new("/s/runs"));
        assert_eq!((config.proxy_uid, config.operators), (7, vec![8, 1000]));
        assert_eq!(config.limits.pids, 99);
        assert_eq!(config.concurrent, None);
        let deploy = &config.profiles[0];
        assert_eq!(
            (deploy.name.as_str(), deploy.concurrent),
            ("deploy", Some(2))
        );
        assert_eq!(deploy.agent_wakes.as_str(), "approve");
    }

    #[test]
    fn webhooks_come_in_on_this_machine_alone_or_not_at_all() {
        assert_eq!(parse(GOOD).unwrap().hooks, None);
        let with = |line: &str| parse(&format!("{GOOD}[hooks]\n{line}\n"));
        for good in [
            "socket = \"/r/h.sock\"",
            "listen = \"127.0.0.1:9\"",
            "listen = \"[::1]:9\"",
        ] {
            assert!(with(good).unwrap().hooks.is_some(), "{good}");
        }
        for bad in [
            "",
            "listen = \"0.0.0.0:9\"",
            "listen = \"127.0.0.1\"",
            "listen = \"localhost:9\"",
            "socket = \"h.sock\"",
            "socket = \"/h\"\nlisten = \"127.0.0.1:9\"",
            "socker = \"/h\"",
        ] {
            let text = with(bad).unwrap_err().to_string();
            assert!(text.contains("hint: "), "{bad}: {text}");
        }
    }

    #[test]
    fn every_problem_comes_in_one_pass_with_line_key_and_hint() {
        let bad = GOOD
            .replace("trust = \"/t\"", "trust = \"t\"")
            .replace("relay", "rely")
            .replace("\"ann\"", "\"bob\"")
            .replace("pids = 99", "pids = -1")
            .replace("\"approve\"", "\"ask\"")
            .replace("concurrent = 2", "concurent = 2")
            .replace("Berlin", "Nowhere");
        let text = parse(&bad).unwrap_err().to_string();
        for part in [
            "o.toml:6: trust: `t` is not an absolute path",
            "o.toml:7: rely: unknown key\n  hint: did you mean `relay`?",
            "relay: is missing",
            "o.toml:9: operators: there is no account `bob`",
            "o.toml:11: limits.pids: must be a whole number",
            "o.toml:13: profile.deploy.agent_wakes: `ask` is not one of allow, approve, refuse",
            "o.toml:14: profile.deploy.concurent: unknown key\n  hint: did you mean `concurrent`?",
            "o.toml:15: profile.deploy.quiet: `Europe/Nowhere` is no time zone",
        ] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let text = parse("state = \"/s\"\n= 3\n").unwrap_err().to_string();
        assert!(text.starts_with("o.toml:2: "), "{text}");
    }
}
