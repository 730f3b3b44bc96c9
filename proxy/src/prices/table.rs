//! One table of prices as TOML.

use policy::money::Usd;
use policy::{ModelGlob, Provider};
use serde::Deserialize;

use super::{Price, PricesError, Rates};

/// One table, read whole.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) date: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    provider: Provider,
    models: Vec<ModelGlob>,
    price: Price,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    version: u32,
    /// The day on which the sources were looked at.
    date: String,
    #[serde(default)]
    price: Vec<RawPrice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrice {
    provider: Provider,
    models: Vec<String>,
    #[serde(flatten)]
    rates: RawRates,
}

#[derive(Deserialize)]
struct RawRates {
    input: Usd,
    cached: Option<Usd>,
    cache_write: Option<Usd>,
    cache_write_hour: Option<Usd>,
    output: Usd,
    long: Option<RawLong>,
    /// For people: where it is written.
    #[serde(rename = "source")]
    _source: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLong {
    above: u64,
    input: Usd,
    cached: Option<Usd>,
    cache_write: Option<Usd>,
    cache_write_hour: Option<Usd>,
    output: Usd,
}

const HINT: &str =
    "docs/policy.md shows a table; prices are dollars for a million tokens, in quotes";

impl Table {
    /// Reads a table; `file` is what problems call it.
    pub(super) fn parse(text: &str, file: &str) -> Result<Self, PricesError> {
        let wrong = |line, problem: String| PricesError::Wrong {
            file: file.to_owned(),
            line,
            problem,
            hint: HINT,
        };
        let raw: RawTable = toml::from_str(text).map_err(|problem| {
            let at = problem.span().map_or(0, |span| span.start);
            let before = text.get(..at).unwrap_or(text);
            wrong(
                before.matches('\n').count() + 1,
                problem.message().to_owned(),
            )
        })?;
        if raw.version != 1 {
            return Err(wrong(1, "version: this gate reads version 1".to_owned()));
        }
        let mut entries = Vec::new();
        for price in raw.price {
            let models = price.models.iter().map(|text| ModelGlob::parse(text));
            let models = models
                .collect::<Result<Vec<_>, _>>()
                .map_err(|(problem, _)| {
                    wrong(1, format!("price.models of {}: {problem}", price.provider))
                })?;
            entries.push(price.rates.entry(price.provider, models));
        }
        Ok(Self {
            date: raw.date,
            entries,
        })
    }

    /// The price of the pattern that says most of the model's name.
    pub(super) fn find(&self, provider: Provider, model: &str) -> Option<Price> {
        let entries = self.entries.iter().filter(|one| one.provider == provider);
        let patterns = entries.flat_map(|entry| entry.models.iter().map(move |it| (it, entry)));
        patterns
            .filter(|(pattern, _)| pattern.matches(model))
            .max_by_key(|(pattern, _)| pattern.weight())
            .map(|(_, entry)| entry.price)
    }

    /// Every rate that stands in it.
    pub(super) fn rates(&self) -> impl Iterator<Item = Rates> {
        self.entries.iter().flat_map(|entry| {
            let long = entry.price.long.map(|(_, rates)| rates);
            std::iter::once(entry.price.rates).chain(long)
        })
    }
}

impl RawRates {
    fn entry(self, provider: Provider, models: Vec<ModelGlob>) -> Entry {
        let raw = self;
        let of =
            |input: Usd, cached, write, hour, output| rates(input, [cached, write, hour], output);
        let long = raw.long.map(|long| {
            let rates = of(
                long.input,
                long.cached,
                long.cache_write,
                long.cache_write_hour,
                long.output,
            );
            (long.above, rates)
        });
        Entry {
            provider,
            models,
            price: Price {
                rates: of(
                    raw.input,
                    raw.cached,
                    raw.cache_write,
                    raw.cache_write_hour,
                    raw.output,
                ),
                long,
            },
        }
    }
}

/// What no price is said of costs what plain input does; an hour at least what the usual time does.
fn rates(input: Usd, [cached, write, hour]: [Option<Usd>; 3], output: Usd) -> Rates {
    // Dollars for a million tokens are millionths of a dollar for one.
    let pico = |usd: Usd| usd.nano() / 1000;
    let write = write.unwrap_or(input);
    Rates {
        input: pico(input),
        cached: pico(cached.unwrap_or(input)),
        cache_write: pico(write),
        cache_write_hour: pico(hour.unwrap_or(write)),
        output: pico(output),
    }
}
