//! RFC 3339 times and the spans people type.

use gswarm_types::Micros;
use jiff::Timestamp;

/// UTC with microseconds, such as `2026-11-15T04:00:00.123456Z`.
pub fn rfc3339(time: Micros) -> String {
    match Timestamp::from_microsecond(time.0) {
        Ok(timestamp) => format!("{timestamp:.6}"),
        // Outside the years -9999..9999: show the number rather than nothing.
        Err(_) => format!("{}us", time.0),
    }
}

/// A time as RFC 3339 (`2026-11-15T04:00:00Z`); the zone is required.
pub fn parse_rfc3339(text: &str) -> Result<Micros, TimeError> {
    text.parse::<Timestamp>()
        .map(|timestamp| Micros(timestamp.as_microsecond()))
        .map_err(|_| TimeError { text: text.chars().take(64).collect() })
}

/// A span such as `500ms`, `90s`, `10m`, `2h`, `1d`.
pub fn parse_span(text: &str) -> Result<Micros, TimeError> {
    let wrong = || TimeError { text: text.chars().take(64).collect() };
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (digits, unit) = text.split_at(digits_end);
    let number: i64 = digits.parse().map_err(|_| wrong())?;
    let micros_each = match unit {
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(micros_each).map(Micros).ok_or_else(wrong)
}

/// A moment: RFC 3339, or a span before `now`.
pub fn parse_moment(text: &str, now: Micros) -> Result<Micros, TimeError> {
    parse_span(text).map(|span| now - span).or_else(|_| parse_rfc3339(text))
}

/// The text is neither a time nor a span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is neither a span (90s, 10m, 2h) nor an RFC 3339 time (2026-11-15T04:00:00Z)")]
pub struct TimeError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(parse_moment(text, Micros::from_secs(100_000)).ok().map(|t| t.0), expected);
    }

    #[test]
    fn moments() {
        check("90s", Some(99_910_000_000));
        check("10m", Some(99_400_000_000));
        check("2h", Some(92_800_000_000));
        check("1970-01-01T00:00:01Z", Some(1_000_000));
        check("1970-01-01T01:00:01.5+01:00", Some(1_500_000));
        for bad in ["", "10", "m", "-5m", "1.5h", "10 m", "yesterday", "99999999999999999h"] {
            check(bad, None);
        }
        assert_eq!(rfc3339(Micros(1_000_000)), "1970-01-01T00:00:01.000000Z");
    }
}
