//! Entries to Parquet.

use std::collections::HashMap;
use std::sync::Arc;

use gswarm_types::metric::Storage;
use gswarm_types::{Body, Incarnation, NodeId, StorageId, TableDigest, TimeQuality};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};

use super::SealError;
use crate::entry::{Entry, FORMAT, StoredRecord, TableEntry};

/// Entries in one row group: what a reader holds in memory at a time.
pub(super) const GROUP_ROWS_MAX: usize = 4_096;
/// Key of our own description in the file's metadata.
pub(super) const META_KEY: &str = "gswarm";
/// Columns in front of the cells.
pub(super) const ENVELOPE: [&str; 10] =
    ["ordinal", "source", "seq", "time", "receipt", "quality", "crc", "mono", "wall", "json"];

/// What the file says about itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileMeta {
    pub(super) format: u32,
    pub(super) storage: StorageId,
    /// Where the segment before this one ends; its lines may still be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prev_valid_bytes: Option<u64>,
    pub(super) sources: Vec<SourceMeta>,
    pub(super) integers: usize,
    pub(super) floats: usize,
}

/// Rows with this source number hold values of one table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SourceMeta {
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) table: TableDigest,
    /// For each cell: true when it is kept as an integer.
    pub(super) is_integer: Vec<bool>,
}

/// One row on its way into columns.
struct Row<'a> {
    ordinal: i64,
    /// -1 for entries kept as JSON.
    source: i32,
    record: Option<&'a StoredRecord>,
    json: Option<ByteArray>,
}

/// A sealed file on its way, one row group at a time.
pub(super) struct Encoder {
    writer: SerializedFileWriter<Vec<u8>>,
    meta: FileMeta,
    index: HashMap<(NodeId, Incarnation, TableDigest), i32>,
}

impl Encoder {
    pub(super) fn new(
        sources: Sources,
        storage: StorageId,
        prev_valid_bytes: Option<u64>,
    ) -> Result<Self, SealError> {
        let meta = FileMeta {
            format: FORMAT,
            storage,
            prev_valid_bytes,
            integers: sources.width(true),
            floats: sources.width(false),
            sources: sources.list,
        };
        let schema = Arc::new(parse_message_type(&schema_text(&meta))?);
        let properties = Arc::new(properties(&meta)?);
        let writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
        Ok(Self { writer, meta, index: sources.index })
    }

    /// Adds entries with their ordinals, at most `GROUP_ROWS_MAX`.
    pub(super) fn group(&mut self, entries: &[(i64, Entry)]) -> Result<(), SealError> {
        let mut rows = Vec::with_capacity(entries.len());
        for (ordinal, entry) in entries {
            rows.push(row(entry, *ordinal, &self.index, &self.meta.sources)?);
        }
        let mut group = self.writer.next_row_group()?;
        write_envelope(&mut group, &rows)?;
        write_cells(&mut group, &rows, &self.meta)?;
        group.close()?;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, SealError> {
        Ok(self.writer.into_inner()?)
    }
}

/// Numbers the tables that records refer to.
#[derive(Default)]
pub(super) struct Sources {
    list: Vec<SourceMeta>,
    index: HashMap<(NodeId, Incarnation, TableDigest), i32>,
}

impl Sources {
    pub(super) fn add(&mut self, table: &TableEntry) {
        let Some(node) = table.node else { return };
        let key = (node, table.incarnation, table.digest);
        let Ok(number) = i32::try_from(self.list.len()) else { return };
        if self.index.contains_key(&key) {
            return;
        }
        self.index.insert(key, number);
        self.list.push(SourceMeta {
            node,
            incarnation: table.incarnation,
            table: table.digest,
            is_integer: table
                .columns
                .iter()
                .map(|column| column.metric.storage() == Storage::Integer)
                .collect(),
        });
    }

    fn width(&self, integer: bool) -> usize {
        self.list
            .iter()
            .map(|source| source.is_integer.iter().filter(|is| **is == integer).count())
            .max()
            .unwrap_or(0)
    }
}

fn schema_text(meta: &FileMeta) -> String {
    let mut text = String::from(
        "message gswarm_segment {\
         required int64 ordinal; required int32 source;\
         optional int64 seq; optional int64 time; optional int64 receipt;\
         optional int32 quality; optional int32 crc; optional int64 mono; optional int64 wall;\
         optional binary json (UTF8);",
    );
    for number in 0..meta.integers {
        text.push_str(&format!("optional int64 i{number};"));
    }
    for number in 0..meta.floats {
        text.push_str(&format!("optional double f{number};"));
    }
    text.push('}');
    text
}

fn properties(meta: &FileMeta) -> Result<WriterProperties, SealError> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(vec![KeyValue::new(
            META_KEY.to_owned(),
            serde_json::to_string(meta)?,
        )]));
    for name in ["ordinal", "seq", "time", "receipt", "mono", "wall"] {
        let path = ColumnPath::from(name);
        builder = builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    builder = builder.set_column_dictionary_enabled(ColumnPath::from("crc"), false);
    Ok(builder.build())
}

/// Values whose cells fit their table go into columns; everything else stays JSON.
fn row<'a>(
    entry: &'a Entry,
    ordinal: i64,
    index: &HashMap<(NodeId, Incarnation, TableDigest), i32>,
    sources: &[SourceMeta],
) -> Result<Row<'a>, SealError> {
    if let Entry::Record(record) = entry
        && let Body::Values(values) = &record.body
        && let Some(source) = index.get(&(record.node, record.incarnation, values.table))
        && let Some(meta) = usize::try_from(*source).ok().and_then(|at| sources.get(at))
        && fits(values.cells.as_slice(), &meta.is_integer)
        && i64::try_from(record.seq).is_ok()
    {
        return Ok(Row { ordinal, source: *source, record: Some(record), json: None });
    }
    let json = ByteArray::from(serde_json::to_vec(entry)?);
    Ok(Row { ordinal, source: -1, record: None, json: Some(json) })
}

fn fits(cells: &[Option<f64>], is_integer: &[bool]) -> bool {
    cells.len() == is_integer.len()
        && cells.iter().zip(is_integer).all(|(cell, integer)| match cell {
            #[expect(clippy::float_cmp, reason = "wholeness is an exact question")]
            Some(value) if *integer => {
                value.trunc() == *value && value.abs() <= 9_007_199_254_740_992.0
            },
            _ => true,
        })
}

fn quality_number(quality: TimeQuality) -> i32 {
    match quality {
        TimeQuality::Measured => 0,
        TimeQuality::Wall => 1,
        TimeQuality::Receipt => 2,
    }
}

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn write_envelope(group: &mut Group<'_>, rows: &[Row<'_>]) -> Result<(), SealError> {
    let ordinals: Vec<i64> = rows.iter().map(|row| row.ordinal).collect();
    required_i64(group, &ordinals)?;
    let sources: Vec<i32> = rows.iter().map(|row| row.source).collect();
    let mut column = next_column(group)?;
    column.typed::<Int32Type>().write_batch(&sources, None, None)?;
    column.close()?;
    #[expect(clippy::cast_possible_wrap, reason = "row() keeps larger seqs as JSON")]
    optional_i64(group, rows.iter().map(|row| row.record.map(|r| r.seq as i64)))?;
    optional_i64(group, rows.iter().map(|row| row.record.map(|r| r.time.0)))?;
    optional_i64(group, rows.iter().map(|row| row.record.map(|r| r.receipt.0)))?;
    optional_i32(group, rows.iter().map(|row| row.record.map(|r| quality_number(r.quality))))?;
    optional_i32(group, rows.iter().map(|row| row.record.map(|r| r.crc.cast_signed())))?;
    optional_i64(group, rows.iter().map(|row| row.record.map(|r| r.mono.0)))?;
    optional_i64(group, rows.iter().map(|row| row.record.map(|r| r.wall.0)))?;
    let (levels, texts) = split(rows.iter().map(|row| row.json.clone()));
    let mut column = next_column(group)?;
    column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None)?;
    column.close()?;
    Ok(())
}

fn write_cells(group: &mut Group<'_>, rows: &[Row<'_>], meta: &FileMeta) -> Result<(), SealError> {
    // Position of the k-th integer (or float) cell of each source.
    let places = |integer: bool| -> Vec<Vec<usize>> {
        meta.sources
            .iter()
            .map(|source| {
                let cells = source.is_integer.iter().enumerate();
                cells.filter(|(_, is)| **is == integer).map(|(place, _)| place).collect()
            })
            .collect()
    };
    let integer_places = places(true);
    for number in 0..meta.integers {
        #[expect(clippy::cast_possible_truncation, reason = "fits() checked whole and small")]
        optional_i64(
            group,
            rows.iter().map(|r| cell(r, &integer_places, number).map(|v| v as i64)),
        )?;
    }
    let float_places = places(false);
    for number in 0..meta.floats {
        let (levels, values) = split(rows.iter().map(|row| cell(row, &float_places, number)));
        let mut column = next_column(group)?;
        column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

fn cell(row: &Row<'_>, places: &[Vec<usize>], number: usize) -> Option<f64> {
    let Body::Values(values) = &row.record?.body else { return None };
    let place = *places.get(usize::try_from(row.source).ok()?)?.get(number)?;
    *values.cells.as_slice().get(place)?
}

fn split<T>(cells: impl Iterator<Item = Option<T>>) -> (Vec<i16>, Vec<T>) {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    for cell in cells {
        levels.push(i16::from(cell.is_some()));
        values.extend(cell);
    }
    (levels, values)
}

fn required_i64(group: &mut Group<'_>, values: &[i64]) -> Result<(), SealError> {
    let mut column = next_column(group)?;
    column.typed::<Int64Type>().write_batch(values, None, None)?;
    column.close()?;
    Ok(())
}

fn optional_i64(
    group: &mut Group<'_>,
    cells: impl Iterator<Item = Option<i64>>,
) -> Result<(), SealError> {
    let (levels, values) = split(cells);
    let mut column = next_column(group)?;
    column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
    column.close()?;
    Ok(())
}

fn optional_i32(
    group: &mut Group<'_>,
    cells: impl Iterator<Item = Option<i32>>,
) -> Result<(), SealError> {
    let (levels, values) = split(cells);
    let mut column = next_column(group)?;
    column.typed::<Int32Type>().write_batch(&values, Some(&levels), None)?;
    column.close()?;
    Ok(())
}

fn next_column<'g>(
    group: &'g mut Group<'_>,
) -> Result<parquet::file::writer::SerializedColumnWriter<'g>, SealError> {
    group.next_column()?.ok_or(SealError::Damaged("fewer columns than the schema has"))
}
