//! What a model's answer says that it took, read while it streams.
//!
//! The counts are told apart by their names, so that an answer is read the same whoever gives it; what
//! the names mean is each provider's own, and every token is counted once:
//!
//! - Anthropic messages: `input_tokens`, `cache_read_input_tokens` and `cache_creation_input_tokens` add
//!   up; `output_tokens` holds what was thought. The counts of a stream are cumulative.
//!   <https://platform.claude.com/docs/en/build-with-claude/streaming>,
//!   <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>
//! - OpenAI chat and responses, OpenRouter and most that call themselves compatible: `prompt_tokens` or
//!   `input_tokens` holds the cached ones (`..._details.cached_tokens`, `.cache_write_tokens`), and
//!   `completion_tokens` or `output_tokens` the reasoning ones (`..._details.reasoning_tokens`).
//!   <https://platform.openai.com/docs/guides/prompt-caching>,
//!   <https://openrouter.ai/docs/guides/administration/usage-accounting>
//! - Google: `promptTokenCount` holds `cachedContentTokenCount`; `candidatesTokenCount`,
//!   `thoughtsTokenCount` and `toolUsePromptTokenCount` stand beside. Each part of a stream repeats the
//!   counts so far. <https://ai.google.dev/api/generate-content#UsageMetadata>
//! - Ollama: `prompt_eval_count` and `eval_count` of the last line.
//!   <https://github.com/ollama/ollama/blob/main/docs/api.md>
//!
//! A count that is stated again replaces a smaller one: it is the same count, further on.

pub mod events;
pub mod scan;

use self::events::Events;
use self::scan::Scalar;

/// Of the text that a model writes, about so many bytes are a token; it is but a guess until the answer
/// says what it was.
const BYTES_OF_A_TOKEN: u64 = 4;

/// Tokens of one answer, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Read, and neither taken from a cache nor put into one.
    pub input: u64,
    /// Read from a cache.
    pub cached: u64,
    /// Put into a cache for the usual time.
    pub cache_write: u64,
    /// Put into a cache for an hour.
    pub cache_write_hour: u64,
    /// Written, with what was thought.
    pub output: u64,
}

impl Usage {
    /// All that was read.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.input
            .saturating_add(self.cached)
            .saturating_add(self.cache_write)
            .saturating_add(self.cache_write_hour)
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.read().saturating_add(self.output)
    }
}

/// Counts by their names.
#[derive(Debug, Clone, Copy)]
enum Count {
    Input,
    Output,
    CacheRead,
    CacheCreated,
    CacheCreatedHour,
    Prompt,
    Completion,
    CachedOfPrompt,
    WrittenOfPrompt,
    Total,
    GooglePrompt,
    GoogleCached,
    GoogleCandidates,
    GoogleThoughts,
    GoogleToolUse,
    OllamaPrompt,
    OllamaOutput,
}

const COUNTS: usize = 17;

/// Reads one answer. What it keeps is bounded.
#[derive(Debug, Default)]
pub struct Reader {
    events: Events,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    counts: [Option<u64>; COUNTS],
    model: Option<String>,
    /// The counts are those of the end.
    last: bool,
    /// They are where the part of the answer that holds them is whole.
    closing: bool,
    /// A part of the answer says that it is the last one.
    finished: bool,
    /// What it cost as the provider says, as it was written.
    cost: Option<String>,
    /// Bytes of what the model wrote.
    written: u64,
}

impl Reader {
    /// Reads more of the answer's decoded text.
    pub fn push(&mut self, text: &[u8]) {
        let seen = &mut self.seen;
        self.events
            .push(text, &mut |path, scalar| seen.note(path, scalar));
    }

    /// Nothing more comes.
    pub fn end(&mut self) {
        let seen = &mut self.seen;
        self.events.end(&mut |path, scalar| seen.note(path, scalar));
    }

    /// What the answer has said so far; nothing before it says anything.
    #[must_use]
    pub fn stated(&self) -> Option<Usage> {
        self.seen.usage()
    }

    /// Whether what it has said is what it took in the end. `whole` says whether the answer came to
    /// its end.
    #[must_use]
    pub fn is_final(&self, whole: bool) -> bool {
        let running = self.seen.is_running();
        self.seen.usage().is_some() && (self.seen.last || (whole && (running || self.seen.closing)))
    }

    /// What it will have taken at least, as far as it can be told from what has gone by.
    #[must_use]
    pub fn guess(&self) -> Usage {
        let mut usage = self.seen.usage().unwrap_or_default();
        if !self.seen.last {
            usage.output = usage.output.max(self.seen.written / BYTES_OF_A_TOKEN);
        }
        usage
    }

    /// The model that says that it answered.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.seen.model.as_deref()
    }

    /// What it cost in US dollars, as the provider says it.
    #[must_use]
    pub fn cost(&self) -> Option<&str> {
        self.seen.cost.as_deref()
    }
}

impl Seen {
    fn get(&self, count: Count) -> Option<u64> {
        self.counts[count as usize]
    }

    fn or_zero(&self, count: Count) -> u64 {
        self.get(count).unwrap_or(0)
    }

    fn note(&mut self, path: &str, scalar: Scalar<'_>) {
        match scalar {
            Scalar::Number(text) => self.number(path, text),
            Scalar::Text(text, length) => self.text(path, text, length),
            Scalar::Word(_) => {}
            Scalar::Root => {
                self.last |= self.closing || (self.finished && self.is_running());
            }
        }
    }

    /// Each part of the answer repeats the counts so far.
    fn is_running(&self) -> bool {
        self.get(Count::GooglePrompt).is_some()
    }

    fn number(&mut self, path: &str, text: &str) {
        let (name, closing) = match path {
            "prompt_eval_count" | "eval_count" => (path, true),
            _ => {
                let inside = |prefix: &str| path.strip_prefix(prefix);
                if let Some(name) = inside("usage.").or_else(|| inside("response.usage.")) {
                    (name, true)
                } else if let Some(name) = inside("message.usage.")
                    .or_else(|| inside("usageMetadata."))
                    .or_else(|| inside("response.usageMetadata."))
                {
                    (name, false)
                } else {
                    return;
                }
            }
        };
        if name == "cost" {
            self.cost = Some(text.to_owned());
            return;
        }
        let Some(count) = count_of(name) else {
            return;
        };
        // Some write whole numbers as `5.0`.
        let whole = text.split_once(".0").map_or(text, |(whole, _)| whole);
        let Ok(value) = whole.parse::<u64>() else {
            return;
        };
        let place = &mut self.counts[count as usize];
        *place = Some(place.map_or(value, |before| before.max(value)));
        self.closing |= closing;
    }

    fn text(&mut self, path: &str, text: &str, length: u64) {
        let leaf = path.rsplit('.').next().unwrap_or(path);
        match path {
            "model"
            | "message.model"
            | "response.model"
            | "modelVersion"
            | "response.modelVersion"
                if self.model.is_none() && !text.is_empty() =>
            {
                self.model = Some(text.replace("\\/", "/"));
            }
            "candidates[].finishReason" | "response.candidates[].finishReason" => {
                self.finished = true;
            }
            _ if WRITTEN.contains(&leaf) && !self.last => {
                self.written = self.written.saturating_add(length);
            }
            _ => {}
        }
    }

    fn usage(&self) -> Option<Usage> {
        let has = |count| self.get(count).is_some();
        let of = |count| self.or_zero(count);
        if has(Count::GooglePrompt) || has(Count::GoogleCandidates) {
            let cached = of(Count::GoogleCached);
            let read = of(Count::GooglePrompt).saturating_add(of(Count::GoogleToolUse));
            return Some(Usage {
                input: read.saturating_sub(cached),
                cached,
                output: of(Count::GoogleCandidates).saturating_add(of(Count::GoogleThoughts)),
                ..Usage::default()
            });
        }
        let (cached, written) = (of(Count::CachedOfPrompt), of(Count::WrittenOfPrompt));
        let within = |read: u64, output: u64| Usage {
            input: read.saturating_sub(cached).saturating_sub(written),
            cached,
            cache_write: written,
            cache_write_hour: 0,
            output,
        };
        if has(Count::Prompt) || has(Count::Completion) {
            return Some(within(of(Count::Prompt), of(Count::Completion)));
        }
        if has(Count::Input) || has(Count::Output) {
            if has(Count::CachedOfPrompt) || has(Count::WrittenOfPrompt) {
                return Some(within(of(Count::Input), of(Count::Output)));
            }
            let hour = of(Count::CacheCreatedHour);
            return Some(Usage {
                input: of(Count::Input),
                cached: of(Count::CacheRead),
                cache_write: of(Count::CacheCreated).saturating_sub(hour),
                cache_write_hour: hour,
                output: of(Count::Output),
            });
        }
        if has(Count::OllamaPrompt) || has(Count::OllamaOutput) {
            return Some(Usage {
                input: of(Count::OllamaPrompt),
                output: of(Count::OllamaOutput),
                ..Usage::default()
            });
        }
        self.get(Count::Total).map(|total| Usage {
            input: total,
            ..Usage::default()
        })
    }
}

/// Members that hold what a model writes.
const WRITTEN: [&str; 9] = [
    "text",
    "thinking",
    "partial_json",
    "content",
    "reasoning_content",
    "reasoning",
    "arguments",
    "delta",
    "response",
];

fn count_of(name: &str) -> Option<Count> {
    Some(match name {
        "input_tokens" => Count::Input,
        "output_tokens" => Count::Output,
        "cache_read_input_tokens" => Count::CacheRead,
        "cache_creation_input_tokens" => Count::CacheCreated,
        "cache_creation.ephemeral_1h_input_tokens" => Count::CacheCreatedHour,
        "prompt_tokens" => Count::Prompt,
        "completion_tokens" => Count::Completion,
        "prompt_tokens_details.cached_tokens"
        | "input_tokens_details.cached_tokens"
        | "prompt_cache_hit_tokens" => Count::CachedOfPrompt,
        "prompt_tokens_details.cache_write_tokens" | "input_tokens_details.cache_write_tokens" => {
            Count::WrittenOfPrompt
        }
        "total_tokens" => Count::Total,
        "promptTokenCount" => Count::GooglePrompt,
        "cachedContentTokenCount" => Count::GoogleCached,
        "candidatesTokenCount" => Count::GoogleCandidates,
        "thoughtsTokenCount" => Count::GoogleThoughts,
        "toolUsePromptTokenCount" => Count::GoogleToolUse,
        "prompt_eval_count" => Count::OllamaPrompt,
        "eval_count" => Count::OllamaOutput,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
