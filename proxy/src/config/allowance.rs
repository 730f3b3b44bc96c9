//! `[allowance]`: what askers may take, and what models cost.

use std::path::PathBuf;

use policy::grant::{Limit, Scope};
use policy::money::Usd;

use super::document::Section;
use super::parse::path_key;
use crate::allowance::ConfiguredLimit;
use crate::prices::Unknown;

/// `[allowance]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowanceConfig {
    /// `directory`: where what was taken is kept; beside the audit log's directory if it is not said.
    pub directory: Option<PathBuf>,
    /// `prices`: a table that is looked at before the shipped one.
    pub prices: Option<PathBuf>,
    /// `unknown_model`: `refuse` or `high`.
    pub unknown_model: Unknown,
    /// `[[allowance.limit]]`
    pub limits: Vec<ConfiguredLimit>,
}

const SPANS: [(&str, u64); 4] = [
    ("minute", 60),
    ("hour", 3600),
    ("day", 86_400),
    ("week", 604_800),
];

impl AllowanceConfig {
    pub(super) fn read(section: Option<Section<'_, '_>>) -> Self {
        let Some(mut section) = section else {
            return Self::default();
        };
        let directory = path_key(&mut section, "directory", false);
        let prices = path_key(&mut section, "prices", false);
        let unknown_model = match section.string("unknown_model") {
            None => Unknown::default(),
            Some(word) => match word.value.as_str() {
                "refuse" => Unknown::Refuse,
                "high" => Unknown::High,
                other => {
                    section.problem(
                        word.at,
                        "unknown_model",
                        format!("is {other}"),
                        "write \"refuse\", or \"high\" to count it as the dearest that is known",
                    );
                    Unknown::default()
                }
            },
        };
        let limits = section.sections("limit").into_iter().filter_map(limit);
        let limits = limits.collect();
        section.close();
        Self {
            directory,
            prices,
            unknown_model,
            limits,
        }
    }
}

fn limit(mut section: Section<'_, '_>) -> Option<ConfiguredLimit> {
    let per = section.required_string("per", "\"run\"");
    let scope = per.as_ref().and_then(|per| {
        let scope = Scope::ALL.into_iter().find(|one| one.as_str() == per.value);
        if scope.is_none() {
            section.problem(
                per.at,
                "per",
                format!("is {}", per.value),
                "write one of: run, ticket, agent, project, company",
            );
        }
        scope
    });
    let usd = section.string("usd").and_then(|text| {
        let usd = Usd::parse(&text.value);
        if let Err(problem) = &usd {
            section.problem(text.at, "usd", problem.to_string(), "write usd = \"5.00\"");
        }
        usd.ok()
    });
    let window = section.string("window").and_then(|word| {
        let span = SPANS.iter().find(|(name, _)| *name == word.value);
        if span.is_none() {
            section.problem(
                word.at,
                "window",
                format!("is {}", word.value),
                "write one of: minute, hour, day, week; without it nothing is renewed",
            );
        }
        span.map(|(_, seconds)| *seconds)
    });
    let mut number = |key| section.integer(key).map(|number| number.value);
    let limit = Limit {
        per: scope.unwrap_or(Scope::Run),
        usd,
        tokens: number("tokens"),
        requests: number("requests"),
        bytes: number("bytes"),
        seconds: number("seconds"),
        window_seconds: window,
    };
    let bounds = [limit.tokens, limit.requests, limit.bytes, limit.seconds];
    if limit.usd.is_none() && bounds.iter().all(Option::is_none) {
        section.problem(
            section.at(),
            "",
            "limits nothing",
            "add usd, tokens, requests, bytes or seconds",
        );
    }
    let mut text = |key| section.string(key).map(|text| text.value);
    let configured = ConfiguredLimit {
        agent: text("agent"),
        company: text("company"),
        project: text("project"),
        ticket: text("ticket"),
        limit,
    };
    section.close();
    scope.map(|_| configured)
}
