//! How long to wait before dialling again.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// Waits differ by up to this share both ways, so that nodes do not come back all at once.
const JITTER: f64 = 0.25;

/// Doubles from 1 s to 60 s until an acknowledgement resets it.
#[derive(Debug)]
pub(super) struct Backoff {
    random: StdRng,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(random: StdRng) -> Self {
        Self { random, failures: 0 }
    }

    /// The attempt that comes next, from 1.
    pub(super) fn attempt(&self) -> u32 {
        self.failures.saturating_add(1)
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait after one more failure.
    pub(super) fn next(&mut self) -> Duration {
        let doublings = self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        self.jittered(FIRST.saturating_mul(1 << doublings).min(LONGEST))
    }

    /// The wait after a refusal, which time alone seldom cures.
    pub(super) fn longest(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.jittered(LONGEST)
    }

    fn jittered(&mut self, wait: Duration) -> Duration {
        wait.mul_f64(self.random.random_range(1.0 - JITTER..=1.0 + JITTER))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn doubles_to_a_minute_and_starts_over_after_an_ack() {
        let mut backoff = Backoff::new(StdRng::seed_from_u64(1));
        for round in 0..2 {
            for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
                let wait = backoff.next().as_secs_f64();
                assert!((0.75..=1.25).contains(&(wait / expected)), "{round}: {wait} {expected}");
            }
            assert_eq!(backoff.attempt(), 9);
            backoff.reset();
        }
        for _ in 0..100 {
            assert!(backoff.next() <= LONGEST.mul_f64(1.25));
        }
    }

    #[test]
    fn waits_differ_between_nodes() {
        let wait = |seed| Backoff::new(StdRng::seed_from_u64(seed)).next();
        assert_ne!(wait(1), wait(2));
    }
}
