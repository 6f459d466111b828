//! Times as exports write them.

use gswarm_types::Micros;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// UTC with microseconds.
pub(crate) fn rfc3339(time: Micros) -> String {
    match Timestamp::from_microsecond(time.0) {
        Ok(timestamp) => format!("{timestamp:.6}"),
        Err(_) => format!("{}us", time.0),
    }
}

/// As the earlier tools wrote it: UTC clock time without saying so.
pub(crate) fn local_without_zone(time: Micros) -> String {
    Timestamp::from_microsecond(time.0).map_or_else(
        |_| format!("{}us", time.0),
        |timestamp| timestamp.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S%.6f").to_string(),
    )
}
