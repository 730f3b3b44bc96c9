//! Waiting for a condition with a deadline, instead of sleeping and hoping.

use std::time::{Duration, Instant};

/// How long anything may take on a loaded machine before the test gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls `condition` until it yields a value; panics with `what` after `patience`.
pub fn until_within<T>(
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "waited {patience:?} in vain for: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// [`until_within`] the usual [`PATIENCE`].
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, condition)
}

/// Waits until `condition` holds.
pub fn until_true(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}
