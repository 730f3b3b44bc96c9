//! The services, and what the gate says of itself: policies, authority, credentials tried now, the store's scope.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{Finding, Verdict, bounded, first_line};
use crate::control::{self, Health};
use crate::instance::Instance;
use crate::site::Site;
use crate::{file, service};

/// An authority with fewer days left should have a successor.
const AUTHORITY_DAYS: i64 = 30;
/// A clock that differs from a far end's by more makes tokens and certificates look too old or too new.
const CLOCK_SECONDS: i64 = 60;

/// Runs `portcullis-proxy` on this instance.
fn ask(instance: &Instance, words: &[&str]) -> Result<(Option<i32>, String, String), String> {
    let layout = &instance.layout;
    bounded(|call| {
        call.arg(layout.binary("portcullis-proxy"))
            .args(words.iter().copied())
            .arg("--config")
            .arg(layout.config("proxy"))
    })
    .map_err(|problem| crate::output::chain(&problem))
}

/// What a command of the gate answers in JSON, whatever it finds; else what it said instead.
fn json(instance: &Instance, words: &[&str]) -> Result<Value, String> {
    let (code, out, err) = ask(instance, words)?;
    if code.is_none() {
        return Err("it did not answer in time".to_owned());
    }
    serde_json::from_str(&out).map_err(|_| first_line(&err))
}

pub(super) fn checks(instance: &Instance) -> Vec<Finding> {
    let mut found = services(instance);
    let status = json(instance, &["status", "--json"]);
    found.push(gate(&status));
    let tried = match &status {
        Ok(_) => json(instance, &["canary", "--json"]),
        Err(problem) => Err(problem.clone()),
    };
    found.push(clock(instance, &tried));
    found.push(authority(json(instance, &["ca", "status", "--json"])));
    let sources = Sources::of(instance);
    found.extend(credentials(&tried, &sources));
    found.push(store(instance, &sources));
    found
}

fn services(instance: &Instance) -> Vec<Finding> {
    let by_systemd = Site::host_has_systemd();
    let of = |service: service::Service| {
        let found = match control::health(instance, by_systemd, service.key) {
            Health::Up(up) => match control::not_ready(instance, service.key) {
                None => (
                    Verdict::Ok,
                    format!("up since {}, pid {}", up.since, up.pid),
                ),
                Some(problem) => (Verdict::Bad, problem),
            },
            Health::Down(problem) => (Verdict::Bad, problem),
        };
        Finding::new("service", found.0, found.1, "portcullis up").of(service.key)
    };
    service::services(instance).into_iter().map(of).collect()
}

/// What keeps the gate from letting a permitted request pass, and what it warns of.
fn gate(status: &Result<Value, String>) -> Finding {
    let found = |verdict, fact: String, repair: &str| Finding::new("gate", verdict, fact, repair);
    let status = match status {
        Ok(status) => status,
        Err(problem) => return found(Verdict::Bad, problem.clone(), "portcullis up"),
    };
    for (profile, policy) in status["policies"].as_object().into_iter().flatten() {
        if !policy["stale"].is_null() {
            let path = policy["path"].as_str().unwrap_or("its file");
            let fact = format!("profile {profile} keeps an old policy: {path} is broken");
            let repair = format!("portcullis policy check {path} && portcullis reload");
            return found(Verdict::Bad, fact, &repair);
        }
    }
    if let Some(problem) = status["boundary"]["problem"].as_str() {
        return found(Verdict::Bad, problem.to_owned(), "portcullis up");
    }
    if status["audit"]["ok"] != Value::Bool(true) {
        let problem = status["audit"]["problem"].as_str().unwrap_or("not ok");
        let fact = format!(
            "its log cannot be written, so that nothing with a credential leaves: {problem}"
        );
        return found(Verdict::Bad, fact, "df -h; portcullis status --json");
    }
    // Credentials have lines of their own, and so has the authority.
    let warnings = status["warnings"].as_array().into_iter().flatten();
    let mut warnings = warnings
        .filter_map(Value::as_str)
        .filter(|text| !text.starts_with("credential ") && !text.contains("certificate authority"));
    if let Some(first) = warnings.next() {
        let more = match warnings.count() {
            0 => String::new(),
            more => format!(", and {more} more warnings"),
        };
        let repair = "portcullis gate status";
        return found(Verdict::Note, format!("{first}{more}"), repair);
    }
    let runs = &status["runs"];
    let fact = format!("it would let a permitted request pass; {runs} runs are open");
    found(Verdict::Ok, fact, "portcullis gate status")
}

/// The clock against what this machine wrote before, and against the far ends that canaries reached.
fn clock(instance: &Instance, tried: &Result<Value, String>) -> Finding {
    let layout = &instance.layout;
    let log = layout.proxy_state().join("audit/audit.jsonl");
    let written = [layout.binary("portcullis"), log]
        .into_iter()
        .filter_map(|path| {
            let at = std::fs::metadata(&path).ok()?.modified().ok()?;
            Some((path.display().to_string(), Timestamp::try_from(at).ok()?))
        });
    let far = credentials_of(tried).iter().filter_map(|credential| {
        let ahead = credential["canary"]["clock_ahead_seconds"].as_i64()?;
        Some((credential["name"].as_str()?.to_owned(), ahead))
    });
    judge_clock(
        Timestamp::now(),
        &written.collect::<Vec<_>>(),
        &far.collect(),
    )
}

/// `written` are moments that are over; `far` says by how many seconds the clock of whom is ahead of ours.
fn judge_clock(
    now: Timestamp,
    written: &[(String, Timestamp)],
    far: &BTreeMap<String, i64>,
) -> Finding {
    let repair = "timedatectl set-ntp true, or set the host's clock";
    let found = |verdict, fact| Finding::new("clock", verdict, fact, repair);
    for (what, at) in written {
        let back = at.as_second() - now.as_second();
        if back > CLOCK_SECONDS {
            let fact =
                format!("{now:.0}: it is {back} s behind the time at which {what} was written");
            return found(Verdict::Bad, fact);
        }
    }
    if let Some((whose, ahead)) = far.iter().find(|(_, ahead)| ahead.abs() > CLOCK_SECONDS) {
        let (by, way) = (ahead.abs(), if *ahead > 0 { "behind" } else { "ahead of" });
        let fact =
            format!("{now:.0}: it is {by} s {way} the host that answers for credential {whose}");
        return found(Verdict::Bad, fact);
    }
    let fact = match far.len() {
        0 => format!("{now:.0}; no far end was there to compare it with"),
        _ => format!("{now:.0}, as the hosts of {} say too", names(far)),
    };
    found(Verdict::Ok, fact)
}

fn names(far: &BTreeMap<String, i64>) -> String {
    let names: Vec<&str> = far.keys().map(String::as_str).collect();
    names.join(", ")
}

fn authority(view: Result<Value, String>) -> Finding {
    let repair = "portcullis ca rotate && portcullis up";
    let found = |verdict, fact| Finding::new("authority", verdict, fact, repair);
    let view = match view {
        Ok(view) => view,
        Err(problem) => return found(Verdict::Unknown, problem),
    };
    let current = &view["current"];
    let (Some(days), Some(expires)) = (current["days_left"].as_i64(), current["expires"].as_str())
    else {
        return found(Verdict::Unknown, "nobody says when it ends".to_owned());
    };
    let fact = format!("the authority ends {expires}, in {days} days");
    if days < 0 {
        return found(
            Verdict::Bad,
            format!("the authority ended {expires}: no client trusts the gate"),
        );
    }
    match (days < AUTHORITY_DAYS, view["next"]["from"].as_str()) {
        (true, None) => found(Verdict::Bad, format!("{fact}, and has no successor")),
        (_, Some(from)) => found(
            Verdict::Ok,
            format!("{fact}; its successor signs from {from}"),
        ),
        (false, None) => found(Verdict::Ok, fact),
    }
}

/// Where each credential lies, and the store, as `proxy.toml` says.
struct Sources {
    places: BTreeMap<String, String>,
    store: Option<toml::Table>,
    user: String,
}

impl Sources {
    fn of(instance: &Instance) -> Self {
        let text = file::read(&instance.layout.config("proxy")).unwrap_or_default();
        // What the gate cannot read either is said by its own line.
        let config: toml::Table = text.parse().unwrap_or_default();
        let table = |key: &str| config.get(key).and_then(toml::Value::as_table);
        let place = |(name, section): (&String, &toml::Value)| {
            let entry = section.get("entry").and_then(toml::Value::as_str);
            let file = section.get("file").and_then(toml::Value::as_str);
            let user = instance.layout.user("proxy");
            let repair = match (entry, file) {
                (Some(entry), _) => format!("portcullis secret rotate {entry}"),
                (None, Some(file)) => format!("install -o {user} -m 600 /dev/stdin {file}"),
                (None, None) => "give the gate's unit another descriptor".to_owned(),
            };
            (name.clone(), repair)
        };
        Self {
            places: table("credential")
                .into_iter()
                .flatten()
                .map(place)
                .collect(),
            store: table("store").cloned(),
            user: instance.layout.user("proxy"),
        }
    }
}

fn credentials_of(tried: &Result<Value, String>) -> &[Value] {
    let list = tried
        .as_ref()
        .ok()
        .and_then(|tried| tried["credentials"].as_array());
    list.map(Vec::as_slice).unwrap_or_default()
}

/// Each credential, after its canary was sent.
fn credentials(tried: &Result<Value, String>, sources: &Sources) -> Vec<Finding> {
    if let Err(problem) = tried {
        let fact = format!("none was tried: {problem}");
        return vec![Finding::new(
            "credential",
            Verdict::Unknown,
            fact,
            "portcullis up",
        )];
    }
    let of = |credential: &Value| {
        let name = credential["name"].as_str().unwrap_or("-");
        let replace = sources
            .places
            .get(name)
            .map_or("portcullis secret check", String::as_str);
        let (verdict, fact, repair) = judge(name, credential, replace);
        Finding::new("credential", verdict, fact, repair).of(name)
    };
    credentials_of(tried).iter().map(of).collect()
}

fn judge(name: &str, credential: &Value, replace: &str) -> (Verdict, String, String) {
    let replace = replace.to_owned();
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let problem = credential["problem"].as_str().map(first);
    if credential["ok"] != Value::Bool(true) {
        let problem = problem.unwrap_or_else(|| "it is not loaded".to_owned());
        return (Verdict::Bad, problem, replace);
    }
    let canary = &credential["canary"];
    let said = canary["text"].as_str().unwrap_or_default();
    let found = canary["verdict"].as_str();
    if let Some(word @ ("format" | "scope" | "expired" | "refused")) = found {
        return (Verdict::Bad, format!("canary {word}: {said}"), replace);
    }
    if let Some(problem) = problem {
        return (
            Verdict::Bad,
            format!("an older value is in use: {problem}"),
            replace,
        );
    }
    let sick = &credential["sick"];
    if let (Some(by), Some(since)) = (sick["by"].as_str(), sick["since"].as_str()) {
        let times = match sick["refusals"].as_u64() {
            Some(1) => "once".to_owned(),
            times => format!("{} times", times.unwrap_or_default()),
        };
        let fact = format!("sick: {by} answers 401 to it since {since} ({times})");
        return (Verdict::Bad, fact, replace);
    }
    match found {
        Some("works") => (Verdict::Ok, format!("works: {said}"), replace),
        Some(word) => {
            let fact = format!("canary {word}: {said}");
            (Verdict::Unknown, fact, "portcullis canary".to_owned())
        }
        None => {
            let fact = "loaded; nobody has tried it, since its section names no canary".to_owned();
            let repair = format!(
                "write canary = \"GET /PATH\" under [credential.{name}] in proxy.toml, then portcullis up"
            );
            (Verdict::Note, fact, repair)
        }
    }
}

/// Whether the store's key reads no more than it should, and every entry holds a value.
fn store(instance: &Instance, sources: &Sources) -> Finding {
    let repair = "portcullis secret check";
    let found = |verdict, fact: String| Finding::new("store", verdict, fact, repair);
    let Some(store) = &sources.store else {
        let fact = format!(
            "none is configured: credentials are files that {} alone reads",
            sources.user
        );
        return found(Verdict::Ok, fact);
    };
    match ask(instance, &["secret", "check"]) {
        Err(problem) => found(Verdict::Unknown, problem),
        Ok((None, _, _)) => found(Verdict::Unknown, "it was not read in time".to_owned()),
        Ok((Some(0), out, err)) => match store
            .get("no_operator_entries")
            .and_then(toml::Value::as_str)
        {
            Some(reason) => found(
                Verdict::Note,
                format!("nothing proves the key's scope: {reason}"),
            ),
            None => match err.lines().find(|line| line.starts_with("warning: ")) {
                Some(warning) => found(Verdict::Note, warning.to_owned()),
                None => found(Verdict::Ok, first_line(&out)),
            },
        },
        Ok((Some(1), _, err)) => found(Verdict::Bad, first_line(&err)),
        Ok((Some(_), _, err)) => found(Verdict::Unknown, first_line(&err)),
    }
}

#[cfg(test)]
mod tests;
