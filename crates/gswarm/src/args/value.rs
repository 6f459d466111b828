//! Parsers of single values for the command line.

use gswarm_api::timestamp::parse_span;
use gswarm_types::{Micros, Period};

use crate::units;

/// Milliseconds (`500`) or a span (`500ms`, `1s`).
pub(super) fn period(text: &str) -> Result<Period, String> {
    units::parse_period(text).map_err(|error| error.to_string())
}

/// `10GB`, `512MiB` or plain bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    units::parse_bytes(text).map_err(|error| error.to_string())
}

/// `90s`, `10m`, `2h`, `1d`.
pub(super) fn span(text: &str) -> Result<Micros, String> {
    parse_span(text).map_err(|_| "write a span such as 90s, 10m, 2h or 1d".to_owned())
}
