//! The first layout: integers and floats in columns of their own, times as they are.

use gswarm_types::{Body, Cells, Incarnation, Micros, NodeId, StorageId, TableDigest, Values};
use parquet::data_type::ByteArray;
use parquet::file::reader::RowGroupReader;
use serde::Deserialize;

use super::columns::Columns;
use super::{SealError, entry_of, quality};
use crate::entry::{Entry, StoredRecord};

/// Ordinal, source, seq, time, receipt, quality, crc, mono, wall, json.
const ENVELOPE_COLUMNS: usize = 10;

#[derive(Debug, Deserialize)]
pub(super) struct FileMeta {
    pub(super) storage: StorageId,
    pub(super) prev_valid_bytes: Option<u64>,
    sources: Vec<SourceMeta>,
    integers: usize,
    floats: usize,
}

#[derive(Debug, Deserialize)]
struct SourceMeta {
    node: NodeId,
    incarnation: Incarnation,
    table: TableDigest,
    /// For each cell: true when it is kept as an integer.
    is_integer: Vec<bool>,
}

pub(super) fn read_group(
    group: &dyn RowGroupReader,
    meta: &FileMeta,
) -> Result<Vec<(i64, Entry)>, SealError> {
    let mut columns = Columns::new(group, ENVELOPE_COLUMNS + meta.integers + meta.floats)?;
    let ordinals = columns.required_i64()?;
    let sources = columns.required_i32()?;
    let envelope = Envelope {
        seq: columns.i64s()?,
        time: columns.i64s()?,
        receipt: columns.i64s()?,
        quality: columns.i32s()?,
        crc: columns.i32s()?,
        mono: columns.i64s()?,
        wall: columns.i64s()?,
        json: columns.texts()?,
    };
    let integers = (0..meta.integers).map(|_| columns.i64s()).collect::<Result<Vec<_>, _>>()?;
    let floats = (0..meta.floats).map(|_| columns.f64s()).collect::<Result<Vec<_>, _>>()?;
    let mut entries = Vec::with_capacity(ordinals.len());
    for (row, (ordinal, source)) in ordinals.iter().zip(&sources).enumerate() {
        let entry = match usize::try_from(*source) {
            Ok(source) => {
                let source =
                    meta.sources.get(source).ok_or(SealError::Damaged("unknown source"))?;
                let cells = cells(row, source, &integers, &floats);
                envelope.record(row, source, cells)?
            },
            Err(_) => envelope.other(row)?,
        };
        entries.push((*ordinal, entry));
    }
    Ok(entries)
}

fn cells(
    row: usize,
    source: &SourceMeta,
    integers: &[Vec<Option<i64>>],
    floats: &[Vec<Option<f64>>],
) -> Cells {
    let mut next_integer = 0;
    let mut next_float = 0;
    let mut out = Vec::with_capacity(source.is_integer.len());
    for is_integer in &source.is_integer {
        out.push(if *is_integer {
            next_integer += 1;
            let value = integers.get(next_integer - 1).and_then(|c| c.get(row)).copied().flatten();
            #[expect(clippy::cast_precision_loss, reason = "only integers up to 2^53 are written")]
            value.map(|value| value as f64)
        } else {
            next_float += 1;
            floats.get(next_float - 1).and_then(|c| c.get(row)).copied().flatten()
        });
    }
    Cells::new(out)
}

struct Envelope {
    seq: Vec<Option<i64>>,
    time: Vec<Option<i64>>,
    receipt: Vec<Option<i64>>,
    quality: Vec<Option<i32>>,
    crc: Vec<Option<i32>>,
    mono: Vec<Option<i64>>,
    wall: Vec<Option<i64>>,
    json: Vec<Option<ByteArray>>,
}

impl Envelope {
    fn record(&self, row: usize, source: &SourceMeta, cells: Cells) -> Result<Entry, SealError> {
        let quality = quality(i64::from(value(&self.quality, row)?))?;
        Ok(Entry::Record(StoredRecord {
            node: source.node,
            time: Micros(value(&self.time, row)?),
            receipt: Micros(value(&self.receipt, row)?),
            quality,
            crc: value(&self.crc, row)?.cast_unsigned(),
            incarnation: source.incarnation,
            seq: value(&self.seq, row)?.cast_unsigned(),
            mono: Micros(value(&self.mono, row)?),
            wall: Micros(value(&self.wall, row)?),
            body: Body::Values(Values { table: source.table, cells }),
        }))
    }

    fn other(&self, row: usize) -> Result<Entry, SealError> {
        entry_of(self.json.get(row))
    }
}

fn value<T: Copy>(column: &[Option<T>], row: usize) -> Result<T, SealError> {
    column.get(row).copied().flatten().ok_or(SealError::Damaged("a record lacks a field"))
}
