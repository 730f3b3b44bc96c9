//! What models cost: a dated table that ships with the product, and the operator's own before it.
//!
//! All of it is whole numbers: a rate is picodollars for a token, which is a millionth of the number
//! of dollars for a million of them that tables write.

mod table;

use std::fmt;
use std::path::Path;

use policy::Provider;
use policy::money::Usd;

use crate::inspect::usage::Usage;
use table::Table;

/// The table that ships with the product.
const SHIPPED: &str = include_str!("../prices.toml");
const SHIPPED_NAME: &str = "the prices that ship with the gate";

/// What is done about a model that no table names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// Where money is limited, nobody may ask it.
    #[default]
    Refuse,
    /// It costs as much as the dearest that is known, each kind of token for itself.
    High,
}

/// Picodollars for a token of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    pub(crate) input: u64,
    pub(crate) cached: u64,
    pub(crate) cache_write: u64,
    pub(crate) cache_write_hour: u64,
    pub(crate) output: u64,
}

/// What one model costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub(crate) rates: Rates,
    /// Requests that read more tokens than this cost that, every token of them.
    pub(crate) long: Option<(u64, Rates)>,
}

/// All that is known.
#[derive(Debug, Clone)]
pub struct Prices {
    /// Looked through in this order.
    tables: Vec<Table>,
    unknown: Unknown,
    dearest: Price,
}

/// A table that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PricesError {
    /// The file cannot be read.
    #[error("cannot read the prices {path}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It was read and is wrong.
    #[error("{file}:{line}: {problem}\n  hint: {hint}")]
    Wrong {
        /// The file.
        file: String,
        /// From 1.
        line: usize,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        hint: &'static str,
    },
}

impl Rates {
    const ALL: [fn(&mut Self) -> &mut u64; 5] = [
        |rates| &mut rates.input,
        |rates| &mut rates.cached,
        |rates| &mut rates.cache_write,
        |rates| &mut rates.cache_write_hour,
        |rates| &mut rates.output,
    ];

    fn of(&self, usage: &Usage) -> Usd {
        let parts = [
            (self.input, usage.input),
            (self.cached, usage.cached),
            (self.cache_write, usage.cache_write),
            (self.cache_write_hour, usage.cache_write_hour),
            (self.output, usage.output),
        ];
        let pico: u128 = parts
            .iter()
            .map(|(rate, tokens)| u128::from(*rate) * u128::from(*tokens))
            .fold(0, u128::saturating_add);
        Usd::from_nano(u64::try_from(pico.div_ceil(1000)).unwrap_or(u64::MAX))
    }

    /// The dearer of each two.
    fn or_dearer(mut self, mut other: Self) -> Self {
        for rate in Self::ALL {
            *rate(&mut self) = (*rate(&mut self)).max(*rate(&mut other));
        }
        self
    }
}

impl Price {
    /// What so many tokens cost, rounded up.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> Usd {
        match self.long {
            Some((above, rates)) if usage.read() > above => rates.of(usage),
            Some(_) | None => self.rates.of(usage),
        }
    }
}

impl Prices {
    /// The shipped table, and before it the operator's own, if there is one.
    ///
    /// # Errors
    /// [`PricesError`].
    pub fn load(own: Option<&Path>, unknown: Unknown) -> Result<Self, PricesError> {
        let mut tables = Vec::new();
        if let Some(path) = own {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|source| PricesError::Unreadable {
                path: name.clone(),
                source,
            })?;
            tables.push(Table::parse(&text, &name)?);
        }
        tables.push(Table::parse(SHIPPED, SHIPPED_NAME)?);
        let all = tables.iter().flat_map(Table::rates);
        let rates = all.fold(Rates::default(), Rates::or_dearer);
        Ok(Self {
            tables,
            unknown,
            dearest: Price { rates, long: None },
        })
    }

    /// What a model of a provider costs; nothing where that is unknown and such a model is refused.
    #[must_use]
    pub fn find(&self, provider: Provider, model: &str) -> Option<Price> {
        self.known(provider, model).or(match self.unknown {
            Unknown::High => Some(self.dearest),
            Unknown::Refuse => None,
        })
    }

    /// What a model costs that a table names.
    #[must_use]
    pub fn known(&self, provider: Provider, model: &str) -> Option<Price> {
        let model = model.strip_prefix("models/").unwrap_or(model);
        let here = |provider| {
            let mut tables = self.tables.iter();
            move |model: &str| tables.find_map(|table| table.find(provider, model))
        };
        here(provider)(model).or_else(|| {
            // OpenRouter passes on what `vendor/model` costs at its vendor.
            let (vendor, name) = model.split_once('/')?;
            let vendor = Provider::parse(vendor).filter(|_| provider == Provider::Openrouter)?;
            let name = name.split(':').next().unwrap_or(name);
            here(vendor)(name).or_else(|| here(vendor)(&name.replace('.', "-")))
        })
    }

    /// As dear as the dearest, each kind of token for itself.
    #[must_use]
    pub fn dearest(&self) -> Price {
        self.dearest
    }

    /// The day of the shipped table.
    #[must_use]
    pub fn date(&self) -> &str {
        self.tables.last().map_or("", |table| &table.date)
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refuse => "refuse",
            Self::High => "high",
        })
    }
}

#[cfg(test)]
mod tests;
