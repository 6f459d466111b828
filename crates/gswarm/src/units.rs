//! Sizes, spans and shares in the units people read and type.

use gswarm_api::timestamp::{parse_rfc3339, parse_span};
use gswarm_types::{Micros, Period, PeriodError};

/// What stands where a number is absent.
pub(crate) const ABSENT: &str = "-";

/// The text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write a size such as 500MB, 10GB, 64GiB or plain bytes")]
pub(crate) struct BytesError;

/// The text is not a sampling period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PeriodTextError {
    #[error("write milliseconds (500) or a span (500ms, 1s)")]
    Text,
    #[error(transparent)]
    Range(PeriodError),
}

/// `10GB` (thousands), `10GiB` (1024s), `10G` (thousands) or plain bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, BytesError> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let each: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(BytesError),
    };
    let number: u64 = digits.parse().map_err(|_| BytesError)?;
    number.checked_mul(each).ok_or(BytesError)
}

/// Milliseconds (`500`) or a span (`500ms`, `1s`).
pub(crate) fn parse_period(text: &str) -> Result<Period, PeriodTextError> {
    let millis = match text.parse::<i64>() {
        Ok(millis) => millis,
        Err(_) => parse_span(text).map_err(|_| PeriodTextError::Text)?.0 / 1_000,
    };
    Period::from_millis(millis).map_err(PeriodTextError::Range)
}

/// A limit that somebody chose: `64 KiB`, `1 MiB`.
pub(crate) fn binary(number: u64) -> String {
    if number >= 1 << 20 {
        format!("{} MiB", number >> 20)
    } else {
        format!("{} KiB", number >> 10)
    }
}

/// `1.4 GB`: thousands, as disks and drivers count.
pub(crate) fn bytes(number: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let number = number as f64;
    scaled(number, &["B", "kB", "MB", "GB", "TB", "PB"], 1_000.0)
}

/// `79.6 GiB`: 1024s, as GPU and main memory are sold.
pub(crate) fn memory(number: f64) -> String {
    scaled(number, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1_024.0)
}

/// `12.3 GB/s`.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], 1_000.0)
}

fn scaled(mut number: f64, units: &[&str], step: f64) -> String {
    let mut unit = 0;
    while number.abs() >= step - 0.05 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{number:.0} {name}") } else { format!("{number:.1} {name}") }
}

/// `3.2s`, `4m 10s`, `2h 5m`, `3d 4h`, `24h`.
pub(crate) fn span(span: Micros) -> String {
    let seconds = span.0.max(0) / 1_000_000;
    match seconds {
        0..10 => format!("{:.1}s", span.as_secs_f64().max(0.0)),
        10..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..=86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// Two units; the smaller one only where it says something.
fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit} {small}{small_unit}")
    }
}

/// Seconds as they stand in a body.
pub(crate) fn seconds(number: f64) -> String {
    let whole = std::time::Duration::try_from_secs_f64(number.max(0.0)).unwrap_or_default();
    span(Micros::from(whole))
}

/// `2026-11-15 04:00:00Z` from the RFC 3339 of a body; other text stays as it is.
pub(crate) fn time(text: &str) -> String {
    match parse_rfc3339(text).map(|time| jiff::Timestamp::from_microsecond(time.0)) {
        Ok(Ok(timestamp)) => timestamp.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        _ => text.to_owned(),
    }
}

/// An absent number is a dash.
pub(crate) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), show)
}

/// `node` or `nodes`.
pub(crate) fn count(number: u64, singular: &str) -> String {
    if number == 1 { format!("1 {singular}") } else { format!("{number} {singular}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_bytes(text: &str, expected: Option<u64>) {
        assert_eq!(parse_bytes(text).ok(), expected, "{text}");
    }

    #[test]
    fn sizes_as_people_type_them() {
        check_bytes("100GB", Some(100_000_000_000));
        check_bytes("64GiB", Some(64 << 30));
        check_bytes("512", Some(512));
        check_bytes("5 mb", Some(5_000_000));
        for bad in ["", "GB", "-1", "1.5GB", "10XB", "99999999999TB"] {
            check_bytes(bad, None);
        }
    }

    #[test]
    fn periods_as_people_type_them() {
        for (text, millis) in [("500", 500), ("500ms", 500), ("1s", 1_000), ("2m", 120_000)] {
            assert_eq!(parse_period(text).map(Period::millis), Ok(millis), "{text}");
        }
        for bad in ["", "fast", "50", "0", "-1", "1.5s"] {
            assert!(parse_period(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_440_000_000), "1.4 GB");
        assert_eq!(memory(85_520_809_984.0), "79.6 GiB");
        assert_eq!(rate(999_990.0), "1.0 MB/s");
        assert_eq!(span(Micros(3_200_000)), "3.2s");
        assert_eq!(span(Micros::from_secs(250)), "4m 10s");
        assert_eq!(span(Micros::from_secs(7_500)), "2h 5m");
        assert_eq!(span(Micros::from_secs(86_400)), "24h");
        assert_eq!(span(Micros::from_secs(-4)), "0.0s");
        assert_eq!(time("2026-11-15T04:00:00.123456Z"), "2026-11-15 04:00:00Z");
        assert_eq!(time("?"), "?");
    }
}
