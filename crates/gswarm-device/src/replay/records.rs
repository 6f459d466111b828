//! Reads a record export: one JSON object on each line, tables before the records that use them.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

use gswarm_types::{Column, DeviceInfo, Micros, Scope, Table, TableDigest, Values};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::recording::{Recording, RecordingBuilder, TooLong};
use super::{LINE_BYTES_MAX, NODES_NAMED_MAX, ReplayError, ReplaySpec};

/// What a file of one node, which names none, is called.
const UNNAMED_NODE: &str = "unnamed";

/// Lines and keys that are not named here are ignored.
#[derive(Debug, Deserialize)]
struct Line {
    table: Option<TableLine>,
    record: Option<RecordLine>,
}

#[derive(Debug, Deserialize)]
struct TableLine {
    /// Absent in the spool of a node.
    n: Option<String>,
    d: TableDigest,
    devices: Vec<DeviceInfo>,
    columns: Vec<Column>,
}

#[derive(Debug, Deserialize)]
struct RecordLine {
    n: Option<String>,
    /// The host's time; a spool has only the node's own.
    t: Option<Micros>,
    w: Option<Micros>,
    b: BodyLine,
}

/// The body of a record, as far as it is played.
#[derive(Debug)]
struct BodyLine(Option<Values>);

/// What has been read so far.
#[derive(Debug)]
struct Reader<'s> {
    wanted: Option<&'s str>,
    /// Nodes with GPUs, in the order of the file; one more than an error can name, at most.
    nodes: Vec<String>,
    tables: HashMap<TableDigest, PlayedTable>,
    recording: RecordingBuilder,
}

/// A table without what is not played.
#[derive(Debug)]
struct PlayedTable {
    table: usize,
    /// Positions in the recorded rows.
    positions: Vec<usize>,
}

pub(super) fn read(spec: &ReplaySpec, mut file: impl BufRead) -> Result<Recording, ReplayError> {
    let mut reader = Reader {
        wanted: spec.node.as_deref(),
        nodes: Vec::new(),
        tables: HashMap::new(),
        recording: RecordingBuilder::default(),
    };
    let mut text = Vec::new();
    let mut line = 0;
    loop {
        text.clear();
        line += 1;
        let read = file.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text);
        let read = read.map_err(|source| ReplayError::Read { path: spec.path.clone(), source })?;
        if read == 0 {
            return reader.finish(&spec.path);
        }
        if text.last() != Some(&b'\n')
            && u64::try_from(read).is_ok_and(|read| read >= LINE_BYTES_MAX)
        {
            return Err(ReplayError::LineTooLong { path: spec.path.clone(), line });
        }
        if !text.trim_ascii().is_empty() {
            reader.take(&spec.path, line, &text)?;
        }
    }
}

impl Reader<'_> {
    fn take(&mut self, path: &Path, number: u64, text: &[u8]) -> Result<(), ReplayError> {
        let line: Line = serde_json::from_slice(text).map_err(|source| ReplayError::Line {
            path: path.to_owned(),
            line: number,
            source,
        })?;
        if let Some(table) = line.table {
            let node = table.n.clone().unwrap_or_else(|| UNNAMED_NODE.to_owned());
            let digest = table.d;
            let table = Table { devices: table.devices, columns: table.columns };
            if !table.is_consistent() {
                return Err(ReplayError::Table { path: path.to_owned(), line: number });
            }
            self.take_table(node, digest, &table);
        }
        if let Some(record) = line.record {
            self.take_record(&record)
                .map_err(|_| ReplayError::TooLong { path: path.to_owned() })?;
        }
        Ok(())
    }

    fn take_table(&mut self, node: String, digest: TableDigest, recorded: &Table) {
        if recorded.devices_of(Scope::Gpu).next().is_none() {
            return;
        }
        let plays = self.plays(&node);
        if !self.nodes.contains(&node) && self.nodes.len() <= NODES_NAMED_MAX {
            self.nodes.push(node);
        }
        if plays && !self.tables.contains_key(&digest) {
            let (table, positions) = played(recorded);
            let table = self.recording.add_table(table);
            self.tables.insert(digest, PlayedTable { table, positions });
        }
    }

    /// Values of a table that the file does not hold are skipped: the window began later.
    fn take_record(&mut self, record: &RecordLine) -> Result<(), TooLong> {
        let BodyLine(Some(values)) = &record.b else {
            return Ok(());
        };
        let Some(time) = record.t.or(record.w) else {
            return Ok(());
        };
        if !self.plays(record.n.as_deref().unwrap_or(UNNAMED_NODE)) {
            return Ok(());
        }
        let Some(table) = self.tables.get(&values.table) else {
            return Ok(());
        };
        let cells = values.cells.as_slice();
        let played = table.positions.iter().map(|at| cells.get(*at).copied().flatten());
        self.recording.add_row(time, table.table, played)
    }

    /// Whether a node is the one to play: the wanted one, or else the first.
    fn plays(&self, node: &str) -> bool {
        match self.wanted {
            Some(wanted) => wanted == node,
            None => self.nodes.first().is_none_or(|first| first == node),
        }
    }

    fn finish(self, path: &Path) -> Result<Recording, ReplayError> {
        let path = path.to_owned();
        match self.wanted {
            None if self.nodes.len() > 1 => {
                return Err(ReplayError::SeveralNodes { path, nodes: self.nodes });
            },
            Some(wanted) if !self.nodes.is_empty() && self.tables.is_empty() => {
                let node = wanted.to_owned();
                return Err(ReplayError::UnknownNode { path, node, nodes: self.nodes });
            },
            None | Some(_) => {},
        }
        self.recording.build().ok_or(ReplayError::Empty { path })
    }
}

/// Keeps GPUs and links, labelled as simulated, and says where their cells are.
fn played(recorded: &Table) -> (Table, Vec<usize>) {
    let mut table = Table::default();
    // Where each recorded device went; `None` for those that are not played.
    let mut moved = Vec::with_capacity(recorded.devices.len());
    for device in &recorded.devices {
        let plays = matches!(device.scope, Scope::Gpu | Scope::Link);
        moved.push(plays.then(|| u32::try_from(table.devices.len()).unwrap_or(u32::MAX)));
        if plays {
            table.devices.push(DeviceInfo { simulated: true, ..device.clone() });
        }
    }
    let mut positions = Vec::new();
    for (position, column) in recorded.columns.iter().enumerate() {
        let device = usize::try_from(column.device).ok().and_then(|at| *moved.get(at)?);
        if let Some(device) = device {
            table.columns.push(Column { device, metric: column.metric.clone() });
            positions.push(position);
        }
    }
    (table, positions)
}

impl<'de> Deserialize<'de> for BodyLine {
    /// A body is an object with one key, or a word; of newer versions it may be anything.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BodyVisitor;

        impl<'de> Visitor<'de> for BodyVisitor {
            type Value = BodyLine;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the body of a record")
            }

            fn visit_str<E>(self, _: &str) -> Result<BodyLine, E> {
                Ok(BodyLine(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BodyLine, A::Error> {
                let mut values = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key == "values" {
                        values = Some(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(BodyLine(values))
            }
        }

        deserializer.deserialize_any(BodyVisitor)
    }
}
