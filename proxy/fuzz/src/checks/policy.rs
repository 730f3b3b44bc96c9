//! Policy texts, of which a run may bring its own.

use policy::Policy;
use policy::authority::{Authority, Scheme};

/// A policy spelt out is a policy, spelt out already; a broken one has a problem to show.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Policy::parse(text, "p.toml") {
        Ok(policy) => {
            let expanded = policy.expanded();
            let again = Policy::parse(&expanded, "e.toml");
            let again = again.unwrap_or_else(|problems| panic!("{problems}\n{expanded}"));
            assert_eq!(again.expanded(), expanded);
            if let Ok(authority) = Authority::parse("a.example:443") {
                let routed = policy.route(Scheme::Https, &authority);
                let as_spelt_out = again.route(Scheme::Https, &authority);
                let same = std::mem::discriminant(&routed) == std::mem::discriminant(&as_spelt_out);
                assert!(same, "{expanded}");
            }
        }
        Err(problems) => {
            let shown = problems.to_string();
            assert!(shown.starts_with("p.toml"), "{shown}");
        }
    }
}
