use super::*;

fn shipped() -> Prices {
    Prices::load(None, Unknown::Refuse).unwrap()
}

fn usage(input: u64, cached: u64, output: u64) -> Usage {
    Usage {
        input,
        cached,
        output,
        ..Usage::default()
    }
}

#[test]
fn the_shipped_table_is_dated_and_prices_what_agents_ask() {
    let prices = shipped();
    assert_eq!(prices.date().len(), "2026-11-30".len());
    for (provider, model) in [
        (Provider::Anthropic, "claude-sonnet-4-5-20250929"),
        (Provider::Anthropic, "claude-opus-5-5"),
        (Provider::Openai, "gpt-5"),
        (Provider::Openai, "gpt-6.2-sol"),
        (Provider::Google, "models/gemini-2.5-pro"),
        (Provider::Openrouter, "anthropic/claude-sonnet-4.5"),
        (Provider::Ollama, "llama3.2:3b"),
    ] {
        assert!(prices.find(provider, model).is_some(), "{provider} {model}");
    }
    for (provider, model) in [
        (Provider::Anthropic, "gpt-5"),
        (Provider::Openai, "gpt-99"),
        (Provider::Openrouter, "nobody/knows"),
        (Provider::Compatible, "anything"),
    ] {
        assert!(prices.find(provider, model).is_none(), "{provider} {model}");
    }
}

#[test]
fn costs_are_whole_numbers_rounded_up_and_a_long_request_costs_more_of_every_token() {
    let sonnet = shipped()
        .find(Provider::Anthropic, "claude-sonnet-4-5")
        .unwrap();
    let million = sonnet.of(&usage(1_000_000, 0, 0));
    assert_eq!(million.to_string(), "3.00");
    assert_eq!(sonnet.of(&usage(0, 0, 1_000_000)).to_string(), "15.00");
    assert_eq!(sonnet.of(&usage(0, 1, 0)).nano(), 300);
    let haiku = shipped()
        .find(Provider::Anthropic, "claude-haiku-5-5")
        .unwrap();
    assert_eq!(haiku.of(&usage(100_000, 0, 1000)).micro(), 10_500);
    assert_eq!(haiku.of(&usage(100_001, 0, 1000)).micro(), 52_501);
    let written = Usage {
        cache_write: 1_000_000,
        cache_write_hour: 1_000_000,
        ..Usage::default()
    };
    assert_eq!(sonnet.of(&written).to_string(), "9.75");
}

#[test]
fn an_unknown_model_is_refused_or_costs_as_much_as_the_dearest() {
    let high = Prices::load(None, Unknown::High).unwrap();
    let price = high.find(Provider::Openai, "gpt-99").unwrap();
    for provider in Provider::ALL {
        for model in ["claude-opus-4-1", "gpt-6-astra", "gemini-2.5-pro"] {
            if let Some(known) = high.known(provider, model) {
                let some = usage(1000, 1000, 1000);
                assert!(known.of(&some) <= price.of(&some), "{provider} {model}");
            }
        }
    }
    assert!(
        shipped().find(Provider::Openai, "gpt-99").is_none(),
        "control"
    );
}

#[test]
fn the_operators_own_table_comes_first_and_says_where_it_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.toml");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write(
        "version = 1\ndate = \"2026-11-30\"\n[[price]]\nprovider = \"openai\"\nmodels = [\"gpt-5\", \"own-*\"]\n\
         input = \"1\"\noutput = \"2\"\n",
    );
    let prices = Prices::load(Some(&path), Unknown::Refuse).unwrap();
    let cost = |model: &str| {
        let price = prices.find(Provider::Openai, model);
        price.map(|price| price.of(&usage(1_000_000, 0, 0)).to_string())
    };
    assert_eq!(cost("gpt-5").as_deref(), Some("1.00"));
    assert_eq!(cost("own-7").as_deref(), Some("1.00"));
    assert_eq!(
        cost("gpt-5-mini").as_deref(),
        Some("0.25"),
        "control: shipped"
    );
    for (text, wanted) in [
        (
            "version = 1\ndate = \"x\"\n[[price]]\nprovider = \"acme\"\n",
            ":4:",
        ),
        ("version = 2\ndate = \"x\"\n", "version"),
        (
            "version = 1\ndate = \"x\"\n[[price]]\nprovider = \"openai\"\nmodels = [\"a\"]\ninput = \"-1\"\noutput = \"1\"\n",
            "dollars",
        ),
        ("version = 1\ndate = \"x\"\nnonsense = 1\n", "nonsense"),
    ] {
        write(text);
        let problem = Prices::load(Some(&path), Unknown::Refuse).unwrap_err();
        let problem = problem.to_string();
        assert!(problem.contains(wanted), "{wanted}: {problem}");
        assert!(problem.contains("hint: "), "{problem}");
    }
}
