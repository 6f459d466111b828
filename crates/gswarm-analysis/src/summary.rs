//! Average, extremes and percentiles in constant memory, and integrals over time.

use gswarm_types::Micros;

/// A GPU at or below this utilisation counts as idle.
pub const IDLE_UTIL_MAX_PERCENT: f64 = 1.0;

/// Bins per percent: percentiles are exact to a tenth of a percent.
const BINS_PER_PERCENT: f64 = 10.0;
const BINS: usize = 1_001;

/// Statistics of values between 0 and 100.
#[derive(Debug, Clone, Default)]
pub struct Stat {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    idle: u64,
    bins: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Stat {
    pub fn add(&mut self, value: f64) {
        if self.count == 0 {
            self.min = value;
            self.max = value;
            self.bins = vec![0; BINS];
        }
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.idle += u64::from(value <= IDLE_UTIL_MAX_PERCENT);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let bin = (value * BINS_PER_PERCENT).round().clamp(0.0, 1_000.0) as usize;
        if let Some(bin) = self.bins.get_mut(bin) {
            *bin = bin.saturating_add(1);
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn average(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min)
    }

    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }

    /// Share of values that are idle, 0 to 1.
    pub fn idle_share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        (self.count > 0).then(|| self.idle as f64 / self.count as f64)
    }

    pub fn percentiles(&self) -> Option<Percentiles> {
        (self.count > 0).then(|| Percentiles {
            p50: self.rank(50),
            p95: self.rank(95),
            p99: self.rank(99),
        })
    }

    /// The smallest value that `percent` of all values do not exceed.
    fn rank(&self, percent: u64) -> f64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (bin, count) in self.bins.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
                return (bin as f64 / BINS_PER_PERCENT).clamp(self.min, self.max);
            }
        }
        self.max
    }
}

/// A rate summed over time, each value held until the next or for `hold_max`.
#[derive(Debug, Clone, Default)]
pub struct Integral {
    last: Option<(Micros, f64)>,
    total: f64,
}

impl Integral {
    /// Values come in the order of time.
    pub fn add(&mut self, time: Micros, value: f64, hold_max: Micros) {
        if let Some((before, rate)) = self.last {
            let held = (time - before).min(hold_max).max(Micros::ZERO);
            self.total += rate * held.as_secs_f64();
        }
        self.last = Some((time, value));
    }

    /// `None` before the second value.
    pub fn total(&self) -> Option<f64> {
        (self.total > 0.0).then_some(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_known_values() {
        let mut stat = Stat::default();
        assert_eq!(stat.average(), None);
        for value in 1..=100 {
            stat.add(f64::from(value));
        }
        let percentiles = stat.percentiles().unwrap();
        assert_eq!((stat.average(), stat.min(), stat.max()), (Some(50.5), Some(1.0), Some(100.0)));
        assert_eq!((percentiles.p50, percentiles.p95, percentiles.p99), (50.0, 95.0, 99.0));
        assert_eq!(stat.idle_share(), Some(0.01));
    }

    #[test]
    fn energy_stops_at_gaps() {
        let mut energy = Integral::default();
        for second in [0, 1, 2, 100] {
            energy.add(Micros::from_secs(second), 10.0, Micros::from_secs(2));
        }
        assert_eq!(energy.total(), Some(40.0));
    }
}
