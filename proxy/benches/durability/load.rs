//! What came of so many clients in so long.

use std::time::{Duration, Instant};

use super::processors::processor_time;

pub(crate) struct Load {
    /// How many.
    pub(crate) requests: f64,
    seconds: f64,
    /// Microseconds of the proxy's threads for each request.
    pub(crate) cpu_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Load {
    /// Requests in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests / self.seconds
    }
}

/// Since when it has been going on.
pub(crate) struct Clock {
    begun: Instant,
    cpu: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            begun: Instant::now(),
            cpu: processor_time(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Until now, with how long each request took.
    pub(crate) fn stop(&self, mut took: Vec<Duration>) -> Load {
        let (seconds, cpu) = (
            self.elapsed().as_secs_f64(),
            processor_time().saturating_sub(self.cpu),
        );
        took.sort_unstable();
        let at = |part: usize| took[(took.len() - 1) * part / 100].as_secs_f64() * 1e6;
        let requests = f64::from(u32::try_from(took.len()).unwrap());
        Load {
            requests,
            seconds,
            cpu_us: cpu.as_secs_f64() * 1e6 / requests,
            p50_us: at(50),
            p99_us: at(99),
        }
    }
}

/// Of one figure over the rounds.
pub(crate) fn median<T>(rounds: &[T], figure: &dyn Fn(&T) -> f64) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
