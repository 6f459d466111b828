//! What the lines of a spool say, and how they are read back.

use gswarm_store::entry::TableEntry;
use gswarm_types::{Incarnation, Record};
use serde::{Deserialize, Serialize};

/// `{"crc":"xxxxxxxx",`
const BODY_AT: usize = 18;
/// The digits of the checksum.
const CRC_AT: std::ops::Range<usize> = 8..16;

/// A line to be written: `{"crc":...,"record":{...}}` and so on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LineOut<'a> {
    Incarnation(&'a IncarnationMark),
    Table(&'a TableEntry),
    Record(&'a Record),
}

/// A line that was read.
#[derive(Debug)]
pub(super) enum LineIn {
    Incarnation(IncarnationMark),
    Table(TableEntry),
    Record(Record),
}

/// First line of a segment after its header: whose records follow, from which seq on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IncarnationMark {
    #[serde(rename = "i")]
    pub(super) incarnation: Incarnation,
    pub(super) boot_id: String,
    /// The first seq that may stand in the segment; lets recovery name what is missing in front.
    pub(super) next: u64,
}

/// Reads a line whose checksum is good; `None` when this version does not understand it.
pub(super) fn parse(line: &[u8]) -> Option<LineIn> {
    let body = line.get(BODY_AT..)?.strip_suffix(b"}")?;
    let value = |key: &[u8]| body.strip_prefix(key);
    if let Some(json) = value(b"\"record\":") {
        serde_json::from_slice(json).ok().map(LineIn::Record)
    } else if let Some(json) = value(b"\"table\":") {
        serde_json::from_slice(json).ok().map(LineIn::Table)
    } else if let Some(json) = value(b"\"incarnation\":") {
        serde_json::from_slice(json).ok().map(LineIn::Incarnation)
    } else {
        None
    }
}

/// True when the line is what was written.
pub(super) fn is_checked_line(line: &[u8]) -> bool {
    let digits = line.get(CRC_AT).and_then(|digits| std::str::from_utf8(digits).ok());
    let told = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    line.get(BODY_AT..).map(crc32c::crc32c).is_some_and(|crc| told == Some(crc))
}

/// The record of a line read back by position; `None` when the bytes are not what was written.
pub(super) fn read_back(line: &[u8], crc: u32) -> Option<Record> {
    if crc32c::crc32c(line.get(BODY_AT..)?) != crc {
        return None;
    }
    match parse(line)? {
        LineIn::Record(record) => Some(record),
        LineIn::Incarnation(_) | LineIn::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use gswarm_store::LineBuffer;
    use gswarm_types::{Body, Micros};

    use super::*;

    #[test]
    fn the_shape_on_disk() {
        let record = Record {
            incarnation: Incarnation(1),
            seq: 7,
            mono: Micros(10),
            wall: Micros(20),
            body: Body::End,
        };
        let mark =
            IncarnationMark { incarnation: Incarnation(1), boot_id: "b".to_owned(), next: 7 };
        let mut lines = LineBuffer::new();
        lines.push(&LineOut::Incarnation(&mark)).unwrap();
        let crc = lines.push(&LineOut::Record(&record)).unwrap();
        let text = std::str::from_utf8(lines.as_bytes()).unwrap();
        let bodies: Vec<&str> = text.lines().map(|line| line.split_at(BODY_AT).1).collect();
        assert_eq!(
            bodies,
            [
                r#""incarnation":{"i":"0000000000000001","boot_id":"b","next":7}}"#,
                r#""record":{"i":"0000000000000001","s":7,"m":10,"w":20,"b":"end"}}"#,
            ]
        );
        let line = text.lines().nth(1).unwrap().as_bytes();
        assert_eq!(read_back(line, crc), Some(record));
        assert_eq!(read_back(line, crc ^ 1), None);
    }
}
