//! What the lines of the journal and of a spool say.

use gswarm_types::{
    Body, Event, Incarnation, Micros, NodeId, Record, SessionSpec, StorageId, Table, TableDigest,
    TimeQuality,
};
use serde::{Deserialize, Serialize};

use crate::line;

/// The format that this version writes; older ones are read, newer ones refused.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// First line of every segment.
    Header(Header),
    /// Everything before this many bytes of the segment was on stable storage.
    Sync(SyncMark),
    Table(TableEntry),
    Record(StoredRecord),
    /// A session was created or changed.
    Session(Box<SessionSpec>),
    /// Something happened on the host itself.
    HostEvent(HostEvent),
    /// A spool names the incarnation whose records follow.
    Incarnation(IncarnationEntry),
}

impl Entry {
    /// Reads a checked line. The first key after the checksum names the kind.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        use serde::de::Error;
        let (kind, value) =
            line::tagged(line).ok_or_else(|| serde_json::Error::custom("the line is no entry"))?;
        Ok(match kind {
            b"record" => Self::Record(serde_json::from_slice(value)?),
            b"table" => Self::Table(serde_json::from_slice(value)?),
            b"sync" => Self::Sync(serde_json::from_slice(value)?),
            b"header" => Self::Header(serde_json::from_slice(value)?),
            b"session" => Self::Session(serde_json::from_slice(value)?),
            b"host_event" => Self::HostEvent(serde_json::from_slice(value)?),
            b"incarnation" => Self::Incarnation(serde_json::from_slice(value)?),
            _ => {
                return Err(serde_json::Error::custom(
                    "an entry of a kind this version does not know",
                ));
            },
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    pub storage: StorageId,
    pub segment: u64,
    /// Where the segment before this one ends, whatever its file holds.
    pub prev_valid_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncMark {
    #[serde(rename = "b")]
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// Absent in a spool, which belongs to one node.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    #[serde(rename = "d")]
    pub digest: TableDigest,
    pub devices: Vec<gswarm_types::DeviceInfo>,
    pub columns: Vec<gswarm_types::Column>,
}

impl TableEntry {
    pub fn new(node: Option<NodeId>, incarnation: Incarnation, table: &Table) -> Self {
        Self {
            node,
            incarnation,
            digest: table.digest(),
            devices: table.devices.clone(),
            columns: table.columns.clone(),
        }
    }

    pub fn into_table(self) -> Table {
        Table { devices: self.devices, columns: self.columns }
    }
}

/// A record as the host stored it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRecord {
    #[serde(rename = "n")]
    pub node: NodeId,
    /// Host time of the record; windows and frames use it.
    #[serde(rename = "t")]
    pub time: Micros,
    /// Host time of receipt.
    #[serde(rename = "r")]
    pub receipt: Micros,
    #[serde(rename = "q", default = "measured", skip_serializing_if = "is_measured")]
    pub quality: TimeQuality,
    /// The agent's checksum of the record in its spool.
    #[serde(rename = "c")]
    pub crc: u32,
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    #[serde(rename = "s")]
    pub seq: u64,
    #[serde(rename = "m")]
    pub mono: Micros,
    #[serde(rename = "w")]
    pub wall: Micros,
    #[serde(rename = "b")]
    pub body: Body,
}

fn measured() -> TimeQuality {
    TimeQuality::Measured
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_measured(quality: &TimeQuality) -> bool {
    *quality == TimeQuality::Measured
}

impl StoredRecord {
    /// The record with what the host adds to it.
    pub fn new(record: Record, stamp: Stamp) -> Self {
        Self {
            node: stamp.node,
            time: stamp.time,
            receipt: stamp.receipt,
            quality: stamp.quality,
            crc: stamp.crc,
            incarnation: record.incarnation,
            seq: record.seq,
            mono: record.mono,
            wall: record.wall,
            body: record.body,
        }
    }
}

/// What the host adds to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub node: NodeId,
    pub time: Micros,
    pub receipt: Micros,
    pub quality: TimeQuality,
    pub crc: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEvent {
    #[serde(rename = "t")]
    pub time: Micros,
    /// The node it concerns, if one.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    pub event: Event,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncarnationEntry {
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    pub boot_id: String,
}
