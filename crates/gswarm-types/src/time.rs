//! Time as integer microseconds, sampling periods, and the clock that is passed in.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time or a span, in microseconds. Points count from the Unix epoch or from boot.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub i64);

impl Micros {
    pub const ZERO: Self = Self(0);

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The span as a `Duration`; negative spans are empty.
    pub fn to_duration(self) -> Duration {
        Duration::from_micros(u64::try_from(self.0).unwrap_or(0))
    }

    /// The span as seconds, for people and for rates.
    pub fn as_secs_f64(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "microseconds of 285 years fit in 2^53")]
        let micros = self.0 as f64;
        micros / 1e6
    }
}

impl From<Duration> for Micros {
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
    }
}

impl Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Micros {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// The clocks of one machine, passed to everything that needs to know the time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Time since boot, including sleep (`CLOCK_BOOTTIME`): never steps.
    fn mono(&self) -> Micros;
    /// Time since the Unix epoch as the machine believes it: may step.
    fn wall(&self) -> Micros;
}

/// The time between two samples, 100 ms to 1 h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Period(Micros);

/// The period is outside the supported range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sampling period is between 100 and 3600000 milliseconds, not {millis}")]
pub struct PeriodError {
    millis: i64,
}

impl Period {
    /// The recorder's own rate when no session asks for more.
    pub const BASE: Self = Self(Micros::from_secs(1));
    /// What sessions sample at unless told otherwise.
    pub const SESSION: Self = Self(Micros::from_millis(500));
    /// The shortest period: GPM counters move every 100 ms.
    pub const MIN: Self = Self(Micros::from_millis(100));
    const MAX: Self = Self(Micros::from_secs(3_600));

    pub fn from_millis(millis: i64) -> Result<Self, PeriodError> {
        let period = Self(Micros::from_millis(millis));
        if (Self::MIN..=Self::MAX).contains(&period) {
            Ok(period)
        } else {
            Err(PeriodError { millis })
        }
    }

    pub const fn micros(self) -> Micros {
        self.0
    }

    pub const fn millis(self) -> i64 {
        self.0.0 / 1_000
    }
}

impl TryFrom<i64> for Period {
    type Error = PeriodError;

    fn try_from(millis: i64) -> Result<Self, PeriodError> {
        Self::from_millis(millis)
    }
}

impl From<Period> for i64 {
    fn from(period: Period) -> Self {
        period.millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_limits() {
        assert_eq!(Period::from_millis(200).unwrap().micros(), Micros(200_000));
        for millis in [-1, 0, 99, 3_600_001, i64::MAX] {
            assert!(Period::from_millis(millis).is_err(), "{millis}");
        }
    }
}
