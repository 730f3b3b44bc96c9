//! One record as one line for a person.
//!
//! ```text
//! 08:00:00.123 allow  POST github.com:443/acme/web.git/git-receive-pack  coder T-7 rule=github-1 credential=github create refs/heads/agent/x
//! 08:00:00.911 end    POST github.com:443/acme/web.git/git-receive-pack  200 in=3.1M out=412 788ms
//! 08:00:01.004 REFUSE CONNECT evil.example:443  coder T-7 destination_not_listed: evil.example:443 is not listed
//! ```
//! Whatever an agent could have put into a record is shown without control characters: a log is
//! read on terminals.

use std::fmt::Write;

use policy::record::{Record, RecordKind, RefOp};

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// For a terminal.
    Colour,
    /// For anything else.
    Plain,
}

/// The line, without its end.
#[must_use]
pub fn render(record: &Record, paint: Paint) -> String {
    let (word, colour) = match record.kind {
        RecordKind::Request => ("allow ", "32"),
        RecordKind::Response => ("end   ", "2"),
        RecordKind::Refusal => ("REFUSE", "31"),
        RecordKind::Event => ("event ", "36"),
        RecordKind::Checkpoint => ("check ", "2"),
    };
    let mut line = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = match paint {
        Paint::Colour => write!(line, "{} \x1b[{colour}m{word}\x1b[0m", clock(&record.time)),
        Paint::Plain => write!(line, "{} {word}", clock(&record.time)),
    };
    let target = [record.method.as_deref(), record.authority.as_deref()];
    for text in target.into_iter().flatten() {
        let _ = write!(line, " {}", clean(text));
    }
    if let Some(path) = &record.path {
        line.push_str(&clean(path));
    }
    let mut details = Vec::new();
    match record.kind {
        RecordKind::Request | RecordKind::Refusal => who(record, &mut details),
        RecordKind::Event => run(record, &mut details),
        RecordKind::Response => traffic(record, &mut details),
        RecordKind::Checkpoint => committed(record, &mut details),
    }
    held(record, &mut details);
    if let Some(code) = record.code {
        details.push(code.as_str().to_owned());
    }
    if let Some(reason) = &record.reason {
        details.push(clean(reason));
    }
    if !details.is_empty() {
        line.push_str("  ");
        line.push_str(&details.join(" "));
    }
    line
}

fn run(record: &Record, details: &mut Vec<String>) {
    if let Some(run) = &record.run {
        details.push(format!("run={run}"));
    }
    for label in [&record.agent, &record.ticket].into_iter().flatten() {
        details.push(clean(label));
    }
}

fn committed(record: &Record, details: &mut Vec<String>) {
    let Some(checkpoint) = &record.checkpoint else {
        return;
    };
    details.push(format!("up to {}", record.seq.saturating_sub(1)));
    details.push(match &checkpoint.key {
        Some(key) => format!("signed by {}", clean(key)),
        None => "not signed".to_owned(),
    });
    if checkpoint.closing {
        details.push("closed".to_owned());
    }
}

fn who(record: &Record, details: &mut Vec<String>) {
    for label in [&record.agent, &record.ticket].into_iter().flatten() {
        details.push(clean(label));
    }
    if let Some(rule) = &record.rule {
        details.push(format!("rule={}", rule.as_str()));
    }
    if let Some(credential) = &record.credential {
        details.push(format!("credential={credential}"));
    }
    for push in record.facts.iter().flat_map(|facts| &facts.push) {
        let op = match push.op {
            RefOp::Create => "create",
            RefOp::Update => "update",
            RefOp::Delete => "delete",
        };
        details.push(format!("{op} {}", clean(&push.name)));
    }
    if let Some(facts) = &record.facts {
        details.extend(
            facts
                .model
                .iter()
                .map(|model| format!("model={}", clean(model))),
        );
        details.extend(facts.graphql.iter().map(|field| clean(field)));
    }
    if let Some(facts) = record.facts.as_ref().filter(|facts| facts.left_out > 0) {
        details.push(format!("and {} more", facts.left_out));
    }
}

fn traffic(record: &Record, details: &mut Vec<String>) {
    if let Some(status) = record.status {
        details.push(status.to_string());
    }
    for (label, bytes) in [("in", record.bytes_in), ("out", record.bytes_out)] {
        if let Some(bytes) = bytes {
            details.push(format!("{label}={}", amount(bytes)));
        }
    }
    if let Some(ms) = record.ms {
        details.push(format!("{ms}ms"));
    }
    for (label, tokens) in [("read", record.tokens_in), ("wrote", record.tokens_out)] {
        if let Some(tokens) = tokens {
            details.push(format!("{label}={tokens}"));
        }
    }
    if let Some(cost) = record.cost_microusd {
        details.push(format!(
            "cost=${}.{:06}",
            cost / 1_000_000,
            cost % 1_000_000
        ));
    }
}

/// Which hold it waited for, and who decided.
fn held(record: &Record, details: &mut Vec<String>) {
    for (label, text) in [("hold", &record.hold), ("decided-by", &record.decider)] {
        if let Some(text) = text {
            details.push(format!("{label}={}", clean(text)));
        }
    }
}

/// `08:00:00.123` of an RFC 3339 time; the whole text if it is something else.
fn clock(time: &str) -> String {
    let clock = time.split_once('T').map_or(time, |(_, clock)| clock);
    clean(clock.get(..12).unwrap_or(clock))
}

fn amount(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["K", "M", "G", "T"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut tenths = bytes.saturating_mul(10) / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
}

/// The text without characters that a terminal would act on.
#[must_use]
pub fn clean(text: &str) -> String {
    // Also the characters that turn the direction of what follows.
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(hidden) {
        return text.to_owned();
    }
    text.chars()
        .flat_map(|c| {
            let escaped = hidden(c).then(|| c.escape_unicode());
            let plain = (!hidden(c)).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}
