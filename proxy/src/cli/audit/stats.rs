//! `audit stats`: what the log adds up to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use clap::Args;
use policy::record::{Record, RecordKind};
use serde::Serialize;

use super::super::output::{Exit, say, say_pretty};
use super::{FilterArgs, SourceArg, unreadable};
use crate::audit::query::{Reader, host_of};
use crate::audit::tail::clean;

/// Different hosts that are told apart; an agent can ask for any number of them.
const MOST_HOSTS: usize = 10_000;
const OTHER: &str = "(other)";

#[derive(Debug, Args)]
pub(in crate::cli) struct StatsArgs {
    #[command(flatten)]
    source: SourceArg,
    #[command(flatten)]
    filter: FilterArgs,
    /// How many hosts to show
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
struct Traffic {
    requests: u64,
    refused: u64,
    bytes_in: u64,
    bytes_out: u64,
    tokens_in: u64,
    tokens_out: u64,
    cost_microusd: u64,
}

#[derive(Debug, Default, Serialize)]
struct Stats {
    total: Traffic,
    hosts: BTreeMap<String, Traffic>,
    refused_by_code: BTreeMap<String, u64>,
    refused_by_rule: BTreeMap<String, u64>,
}

impl Traffic {
    fn add(&mut self, record: &Record) {
        match record.kind {
            RecordKind::Request => self.requests += 1,
            RecordKind::Refusal => self.refused += 1,
            RecordKind::Response => {
                self.bytes_in += record.bytes_in.unwrap_or(0);
                self.bytes_out += record.bytes_out.unwrap_or(0);
                self.tokens_in += record.tokens_in.unwrap_or(0);
                self.tokens_out += record.tokens_out.unwrap_or(0);
                self.cost_microusd += record.cost_microusd.unwrap_or(0);
            }
            RecordKind::Event | RecordKind::Checkpoint => {}
        }
    }
}

impl Stats {
    fn add(&mut self, record: &Record) {
        self.total.add(record);
        if let Some(authority) = &record.authority {
            let host = host_of(authority);
            let known = self.hosts.contains_key(host) || self.hosts.len() < MOST_HOSTS;
            let host = if known { host } else { OTHER };
            self.hosts.entry(host.to_owned()).or_default().add(record);
        }
        if record.kind == RecordKind::Refusal {
            let code = record.code.map_or("(none)", |code| code.as_str());
            *self.refused_by_code.entry(code.to_owned()).or_default() += 1;
            let rule = record.rule.as_ref().map_or("(none)", |rule| rule.as_str());
            *self.refused_by_rule.entry(rule.to_owned()).or_default() += 1;
        }
    }

    fn keep_top(&mut self, top: usize) {
        let mut hosts: Vec<(String, Traffic)> =
            std::mem::take(&mut self.hosts).into_iter().collect();
        hosts.sort_by_key(|(_, traffic)| std::cmp::Reverse(traffic.requests + traffic.refused));
        hosts.truncate(top);
        self.hosts = hosts.into_iter().collect();
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let line = |name: &str, traffic: &Traffic| {
            format!(
                "{name:<40} {:>9} {:>9} {:>14} {:>14} {:>11} {:>11} {:>10}.{:06}",
                traffic.requests,
                traffic.refused,
                traffic.bytes_in,
                traffic.bytes_out,
                traffic.tokens_in,
                traffic.tokens_out,
                traffic.cost_microusd / 1_000_000,
                traffic.cost_microusd % 1_000_000
            )
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            text,
            "{:<40} {:>9} {:>9} {:>14} {:>14} {:>11} {:>11} {:>17}",
            "host",
            "requests",
            "refused",
            "bytes in",
            "bytes out",
            "tokens in",
            "tokens out",
            "cost USD"
        );
        let mut hosts: Vec<_> = self.hosts.iter().collect();
        hosts.sort_by_key(|(_, traffic)| std::cmp::Reverse(traffic.requests + traffic.refused));
        for (host, traffic) in hosts {
            let _ = writeln!(text, "{}", line(&clean(host), traffic));
        }
        let _ = writeln!(text, "{}", line("all", &self.total));
        for (title, counts) in [
            ("refused by code", &self.refused_by_code),
            ("refused by rule", &self.refused_by_rule),
        ] {
            let _ = writeln!(text, "{title}");
            for (name, count) in counts {
                let _ = writeln!(text, "  {name:<38} {count:>9}");
            }
        }
        text
    }
}

/// 0 when something was counted, 1 when nothing matched.
pub(super) fn stats(args: &StatsArgs) -> Exit {
    let files = match args.source.files() {
        Ok(files) => files,
        Err(exit) => return exit,
    };
    let filter = args.filter.filter();
    let (mut stats, mut exit) = (Stats::default(), Exit::No);
    let mut reader = Reader::new(&files, &filter);
    let read = reader.each(|_, record| {
        stats.add(record);
        exit = Exit::Yes;
        ControlFlow::Continue(())
    });
    let exit = super::remark(&reader, exit);
    if let Err(problem) = read {
        return unreadable(&args.source.shown(), &problem);
    }
    stats.keep_top(args.top);
    if args.json {
        if let Err(exit) = say_pretty(&stats) {
            return exit;
        }
    } else {
        say(stats.text().trim_end());
    }
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_bytes_and_refusals_are_counted_by_host() {
        let mut stats = Stats::default();
        let record = |kind, host: &str| {
            let mut record = Record::new(kind, "x", "t");
            record.authority = Some(format!("{host}:443"));
            record
        };
        stats.add(&record(RecordKind::Request, "a.example"));
        let mut end = record(RecordKind::Response, "a.example");
        (end.bytes_out, end.cost_microusd) = (Some(7), Some(1_500_000));
        stats.add(&end);
        let mut refusal = record(RecordKind::Refusal, "b.example");
        refusal.code = Some(policy::Code::ALL[0]);
        stats.add(&refusal);
        stats.add(&refusal);
        assert_eq!(stats.hosts["a.example"].bytes_out, 7);
        assert_eq!((stats.total.requests, stats.total.refused), (1, 2));
        assert_eq!(stats.refused_by_code[policy::Code::ALL[0].as_str()], 2);
        assert!(stats.text().contains("1.500000"), "{}", stats.text());
        let mut model = record(RecordKind::Response, "a.example");
        (model.tokens_in, model.tokens_out) = (Some(77_001), Some(88_002));
        stats.add(&model);
        assert_eq!(stats.total.tokens_out, 88_002);
        let text = stats.text();
        let line = text
            .lines()
            .find(|line| line.starts_with("a.example"))
            .unwrap();
        assert!(
            line.contains(" 77001 ") && line.contains(" 88002 "),
            "{text}"
        );
        stats.keep_top(1);
        assert!(stats.hosts.contains_key("b.example") && stats.hosts.len() == 1);
    }
}
