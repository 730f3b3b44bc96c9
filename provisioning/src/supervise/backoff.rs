//! How long a supervisor waits before it starts a program again.

use std::time::Duration;

/// A program that ran at least this long was well; its end starts the row of pauses anew.
const WELL: Duration = Duration::from_secs(10);
/// Whole seconds: the pause is kept by `alarm`.
const PAUSES: [u64; 7] = [0, 1, 2, 4, 8, 15, 30];

/// The row of pauses: none, 1 s, 2 s … 30 s; a good spell goes back to none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: usize,
}

impl Backoff {
    /// The pause after a program that ran for `ran`.
    pub fn after(&mut self, ran: Duration) -> Duration {
        if ran >= WELL {
            self.failures = 0;
        }
        let pause = PAUSES[self.failures.min(PAUSES.len() - 1)];
        self.failures += 1;
        Duration::from_secs(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(spells: &[u64]) -> Vec<u64> {
        let mut backoff = Backoff::default();
        spells
            .iter()
            .map(|ran| backoff.after(Duration::from_secs(*ran)).as_secs())
            .collect()
    }

    #[test]
    fn a_program_that_keeps_falling_waits_longer_and_longer_up_to_half_a_minute() {
        assert_eq!(pauses(&[0; 9]), [0, 1, 2, 4, 8, 15, 30, 30, 30]);
    }

    #[test]
    fn a_good_spell_starts_the_row_anew() {
        assert_eq!(pauses(&[0, 0, 0, 60, 0]), [0, 1, 2, 0, 1]);
    }
}
