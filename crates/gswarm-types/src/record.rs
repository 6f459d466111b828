//! The record: the unit of spool, wire, journal, acknowledgement and deduplication.

use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::id::{Incarnation, TableDigest};
use crate::process::ProcessRow;
use crate::time::Micros;
use crate::topology::PeerLink;

/// The largest encoded record; larger ones are split or cut before the spool.
pub const RECORD_BYTES_MAX: usize = 1024 * 1024;

/// One thing an agent recorded, numbered within its incarnation from 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    #[serde(rename = "s")]
    pub seq: u64,
    /// The node's time since boot.
    #[serde(rename = "m")]
    pub mono: Micros,
    /// The node's wall clock.
    #[serde(rename = "w")]
    pub wall: Micros,
    #[serde(rename = "b")]
    pub body: Body,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    Values(Values),
    Event(Event),
    /// All processes on all devices of the node at this moment.
    Processes(Vec<ProcessRow>),
    /// How the devices of the node reach each other; sent when it changes.
    Topology(Vec<PeerLink>),
    Mark(Mark),
    /// The agent's reason for seqs that never reached the spool or left it unsent.
    Loss(SpoolLoss),
    /// The agent stopped cleanly; nothing follows in this incarnation.
    End,
    /// A body of a newer version, kept as it came.
    Opaque {
        kind: u32,
        #[serde(with = "hex_bytes")]
        bytes: Vec<u8>,
    },
    /// The host could not accept the content; the seq is named and acknowledged.
    Rejected {
        reason: String,
    },
}

/// The numbers of one tick, in the order of the table's columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Values {
    #[serde(rename = "d")]
    pub table: TableDigest,
    #[serde(rename = "v")]
    pub cells: Cells,
}

/// Numbers or their absence; integers are exact up to 2^53.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cells(Vec<Option<f64>>);

impl Cells {
    /// Takes the cells over; what is not a finite number is absent.
    pub fn new(mut cells: Vec<Option<f64>>) -> Self {
        for cell in &mut cells {
            *cell = cell.filter(|value| value.is_finite());
        }
        Self(cells)
    }

    pub fn as_slice(&self) -> &[Option<f64>] {
        &self.0
    }
}

/// The largest magnitude below which every whole number is exact in a float.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

impl Serialize for Cells {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.0.len()))?;
        for cell in &self.0 {
            match cell {
                // Whole numbers without `.0`: a third of the bytes of a journal line.
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "checked to be whole and small"
                )]
                #[expect(clippy::float_cmp, reason = "wholeness is an exact question")]
                Some(value) if value.trunc() == *value && value.abs() <= WHOLE_MAX => {
                    seq.serialize_element(&(*value as i64))?;
                },
                other => seq.serialize_element(other)?,
            }
        }
        seq.end()
    }
}

impl<'de> Deserialize<'de> for Cells {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CellsVisitor;

        impl<'de> Visitor<'de> for CellsVisitor {
            type Value = Cells;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array of numbers and nulls")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Cells, A::Error> {
                let mut cells = Vec::with_capacity(seq.size_hint().unwrap_or(64).min(65_536));
                while let Some(cell) = seq.next_element::<Option<f64>>()? {
                    cells.push(cell);
                }
                Ok(Cells::new(cells))
            }
        }

        deserializer.deserialize_seq(CellsVisitor)
    }
}

/// A named instant or span from user code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub name: String,
    /// Length of a span that ended at the record's time; `None` for an instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Micros>,
}

/// Seqs of an incarnation that the host will never get, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolLoss {
    pub incarnation: Incarnation,
    pub first: u64,
    /// `OPEN_END` where nobody knows how many there were.
    pub last: u64,
    pub reason: GapReason,
}

impl SpoolLoss {
    /// Beyond every seq that an agent mints.
    pub const OPEN_END: u64 = 1 << 53;

    /// True when everything from `first` on may be gone, however much there was.
    pub fn is_open(&self) -> bool {
        self.last >= Self::OPEN_END
    }
}

/// Why records are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// The spool was full and dropped its oldest records.
    SpoolOverflow,
    /// The spool could not take the record.
    SpoolError,
    /// The spool's file was damaged.
    SpoolDamaged,
    /// The node lost power or was killed before the record was safe.
    NodeCrash,
    /// The host does not hold what it once acknowledged (restored or wiped).
    NotOnThisHost,
    /// The host's own file was damaged.
    StoreDamaged,
    /// Retention had already removed it.
    Expired,
    /// No reason was given.
    Unknown,
}

impl GapReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpoolOverflow => "spool_overflow",
            Self::SpoolError => "spool_error",
            Self::SpoolDamaged => "spool_damaged",
            Self::NodeCrash => "node_crash",
            Self::NotOnThisHost => "not_on_this_host",
            Self::StoreDamaged => "store_damaged",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }

    /// True when nobody gave the reason: it is what is likely of a hole without one.
    pub const fn is_guess(self) -> bool {
        matches!(self, Self::NodeCrash | Self::NotOnThisHost | Self::Unknown)
    }
}

/// A hole in what was recorded, as exports show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub incarnation: Incarnation,
    pub first: u64,
    pub last: u64,
    pub reason: GapReason,
}

/// How the host's time of a record came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeQuality {
    /// From the node's monotonic clock and a measured offset.
    Measured,
    /// From the node's wall clock: the record is of an earlier boot.
    Wall,
    /// Stamped at receipt: the peer sends no usable clock.
    Receipt,
}

mod hex_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        use std::fmt::Write;
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            write!(text, "{byte:02x}").map_err(serde::ser::Error::custom)?;
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) {
            return Err(serde::de::Error::custom("odd number of hexadecimal digits"));
        }
        digits
            .chunks_exact(2)
            .map(|pair| {
                std::str::from_utf8(pair)
                    .ok()
                    .filter(|pair| !pair.starts_with('+'))
                    .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                    .ok_or_else(|| serde::de::Error::custom("not a hexadecimal digit"))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(cells: Vec<Option<f64>>) -> Record {
        Record {
            incarnation: Incarnation(1),
            seq: 7,
            mono: Micros(10),
            wall: Micros(20),
            body: Body::Values(Values { table: TableDigest(2), cells: Cells::new(cells) }),
        }
    }

    #[test]
    fn the_shape_on_disk() {
        let record = values(vec![Some(1.0), None, Some(0.5), Some(f64::NAN), Some(-3.0)]);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(
            text,
            r#"{"i":"0000000000000001","s":7,"m":10,"w":20,"b":{"values":{"d":"0000000000000002","v":[1,null,0.5,null,-3]}}}"#
        );
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }

    proptest::proptest! {
        #[test]
        fn cells_round_trip(cells in proptest::collection::vec(proptest::option::of(proptest::num::f64::ANY), 0..40)) {
            let record = values(cells);
            let text = serde_json::to_string(&record).unwrap();
            let back: Record = serde_json::from_str(&text).unwrap();
            // -0.0 comes back as 0: equal by value.
            proptest::prop_assert_eq!(back, record);
        }

        #[test]
        fn opaque_round_trips(kind: u32, bytes: Vec<u8>) {
            let body = Body::Opaque { kind, bytes };
            let text = serde_json::to_string(&body).unwrap();
            proptest::prop_assert_eq!(serde_json::from_str::<Body>(&text).unwrap(), body);
        }
    }
}
