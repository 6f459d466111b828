//! Pure maths over recorded values.

mod summary;

pub use summary::{IDLE_UTIL_MAX_PERCENT, Integral, Percentiles, Stat};
