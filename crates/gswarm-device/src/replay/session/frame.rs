//! One frame of a session, whose numbers may be numbers or text.

use std::fmt;

use gswarm_types::Micros;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// What is played of a frame; other keys are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Frame {
    #[serde(deserialize_with = "time")]
    pub(super) time: Micros,
    #[serde(default)]
    pub(super) gpu_id: Vec<String>,
    gpu_util: Option<Vec<Number>>,
    gpu_memory: Option<Vec<Number>>,
    /// GB/s, as `dram_bandwidth_tx`.
    dram_bandwidth_rx: Option<Vec<Number>>,
    dram_bandwidth_tx: Option<Vec<Number>>,
}

/// A number, a number as text, or something else, which is absent.
#[derive(Debug, Clone, Copy)]
struct Number(Option<f64>);

impl Frame {
    /// Utilisation, memory, PCIe rx and tx of the GPU at a position of `gpu_id`.
    pub(super) fn numbers(&self, position: usize) -> [Option<f64>; 4] {
        [&self.gpu_util, &self.gpu_memory, &self.dram_bandwidth_rx, &self.dram_bandwidth_tx]
            .map(|numbers| numbers.as_ref()?.get(position)?.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor).map(|value| match value {
            NumberOrText::Number(number) => Self(Some(number).filter(|number| number.is_finite())),
            NumberOrText::Text(text) => {
                let number = text.trim().trim_end_matches('%').trim_end().parse().ok();
                Self(number.filter(|number: &f64| number.is_finite()))
            },
            NumberOrText::Nothing => Self(None),
        })
    }
}

/// Seconds, milliseconds or microseconds since 1970, or RFC 3339 with or without a zone. Without
/// one the time is taken for UTC: only differences count.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Micros, D::Error> {
    let micros = match deserializer.deserialize_any(NumberVisitor)? {
        NumberOrText::Number(number) => number_time(number),
        NumberOrText::Text(text) => text_time(&text),
        NumberOrText::Nothing => None,
    };
    micros.map(Micros).ok_or_else(|| D::Error::custom("a frame has no usable time"))
}

fn number_time(number: f64) -> Option<i64> {
    // The year 5138 in seconds, 1973 in milliseconds; then the same step again.
    let micros = match number {
        _ if !(0.0..1e17).contains(&number) => return None,
        ..1e11 => number * 1e6,
        ..1e14 => number * 1e3,
        _ => number,
    };
    #[expect(clippy::cast_possible_truncation, reason = "checked to be below 1e17")]
    Some(micros.round() as i64)
}

fn text_time(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_microsecond());
    }
    if let Ok(time) = text.parse::<jiff::civil::DateTime>() {
        let time = jiff::tz::Offset::UTC.to_timestamp(time).ok()?;
        return Some(time.as_microsecond());
    }
    number_time(text.parse().ok()?)
}

enum NumberOrText {
    Number(f64),
    Text(String),
    Nothing,
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = NumberOrText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, as itself or as text")
    }

    fn visit_f64<E>(self, number: f64) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Number(number))
    }

    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 no number here means anything")]
    fn visit_u64<E>(self, number: u64) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Number(number as f64))
    }

    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 no number here means anything")]
    fn visit_i64<E>(self, number: i64) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Number(number as f64))
    }

    fn visit_str<E>(self, text: &str) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<NumberOrText, E> {
        Ok(NumberOrText::Nothing)
    }
}
