use super::place::Place;
use super::*;

const AGENT: u32 = 1_400_000_001;
const GATE: u32 = 1_400_000_002;
type Attempt = fn(&World) -> Result<usize, String>;

const THREE: [(&str, Attempt); 3] = [
    ("older flow", World::older_flow),
    ("reload", World::reload),
    ("forwarded", World::forwarded),
];

fn ruleset(scope: &str) -> Ruleset {
    let agents = format!("agents = [\"{AGENT}-{AGENT}\"]\n");
    let text = format!(
        "scope = \"{scope}\"\ntable = \"prove-scratch\"\ngate_port = 3128\nproxy = {GATE}\nstatus = \"/nowhere\"\n{}",
        if scope == "agents" { &agents } else { "" }
    );
    let config = Config::parse(&text, "boundary.toml").unwrap();
    let accounts = Accounts::from_texts("root:x:0:0::/:/bin/sh\n", "", "").unwrap();
    Ruleset::build(&config, &accounts, jiff::Timestamp::now()).unwrap()
}

/// What passes these rules, in a world of its own that goes with its thread.
fn passed(ruleset: Ruleset, what: Attempt) -> usize {
    let place = Place::new().unwrap();
    let world = place.run(move || what(&World::make(ruleset, AGENT, GATE)?));
    world.unwrap().unwrap()
}

#[test]
fn nothing_passes_these_rules_and_without_a_chain_of_them_something_does() {
    for scope in ["agents", "guest"] {
        for (name, what) in THREE {
            assert_eq!(passed(ruleset(scope), what), 0, "{scope}: {name}");
            let mut spoilt = ruleset(scope);
            let chain = if name == "forwarded" {
                "forward"
            } else {
                "output"
            };
            let count = spoilt.chains.len();
            spoilt.chains.retain(|own| own.name != chain);
            assert_eq!(spoilt.chains.len(), count - 1, "{scope}: {chain}");
            assert!(passed(spoilt, what) > 0, "{scope}: {name} without {chain}");
        }
    }
}
