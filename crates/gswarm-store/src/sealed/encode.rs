//! Entries to Parquet.

use std::collections::HashMap;
use std::sync::Arc;

use gswarm_types::{Body, Incarnation, NodeId, StorageId, TableDigest, TimeQuality};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};

use super::SealError;
use super::numbers::{self, Mode};
use crate::entry::{Entry, StoredRecord, TableEntry};

/// The layout that this version writes; older ones are read, newer ones refused.
pub(super) const FORMAT: u32 = 2;
/// Cells in one row group: what a writer or reader holds in memory at a time.
const GROUP_CELLS_MAX: usize = 1024 * 1024;
/// Rows in one row group, where they have few cells.
pub(super) const GROUP_ROWS_MAX: usize = 16_384;
/// Rows in one row group, where they have many: fewer would not compress.
const GROUP_ROWS_MIN: usize = 1_024;
/// Key of our own description in the file's metadata.
pub(super) const META_KEY: &str = "gswarm";
/// Key of the modes of all columns in each row group.
pub(super) const MODES_KEY: &str = "gswarm_modes";
/// Columns of numbers in front of the cells, before the one of JSON. Times stand as what they differ
/// by: `since_boot` is the node's own clock, `time` and `wall` are counted from it, `receipt` from `time`.
pub(super) const ENVELOPE: [&str; 9] =
    ["ordinal", "source", "seq", "since_boot", "time", "wall", "receipt", "quality", "crc"];

/// What the file says about itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileMeta {
    pub(super) format: u32,
    pub(super) storage: StorageId,
    /// Where the segment before this one ends; its lines may still be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prev_valid_bytes: Option<u64>,
    pub(super) sources: Vec<SourceMeta>,
    /// Columns of cells.
    pub(super) width: usize,
}

/// Rows with this source number hold values of one table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SourceMeta {
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) table: TableDigest,
    pub(super) cells: usize,
}

/// One row on its way into columns.
struct Row<'a> {
    ordinal: i64,
    /// -1 for entries kept as JSON.
    source: i64,
    record: Option<&'a StoredRecord>,
    json: Option<ByteArray>,
}

/// A sealed file on its way, one row group at a time.
pub(super) struct Encoder {
    writer: SerializedFileWriter<Vec<u8>>,
    meta: FileMeta,
    index: HashMap<(NodeId, Incarnation, TableDigest), usize>,
    /// For each row group one letter per column of numbers.
    modes: Vec<String>,
}

impl Encoder {
    pub(super) fn new(
        sources: Sources,
        storage: StorageId,
        prev_valid_bytes: Option<u64>,
    ) -> Result<Self, SealError> {
        let width = sources.list.iter().map(|source| source.cells).max().unwrap_or(0);
        let Sources { list: sources, index } = sources;
        let meta = FileMeta { format: FORMAT, storage, prev_valid_bytes, sources, width };
        let schema = Arc::new(parse_message_type(&schema_text(width))?);
        let properties = Arc::new(properties(&meta)?);
        let writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
        Ok(Self { writer, meta, index, modes: Vec::new() })
    }

    /// Entries that make a good row group.
    pub(super) fn group_rows(&self) -> usize {
        let rows = GROUP_CELLS_MAX / self.meta.width.max(1);
        rows.clamp(GROUP_ROWS_MIN, GROUP_ROWS_MAX)
    }

    /// Adds entries with their ordinals, at most `group_rows`.
    pub(super) fn group(&mut self, entries: &[(i64, Entry)]) -> Result<(), SealError> {
        let mut rows = Vec::with_capacity(entries.len());
        for (ordinal, entry) in entries {
            rows.push(row(entry, *ordinal, &self.index, &self.meta.sources)?);
        }
        let mut group = self.writer.next_row_group()?;
        let mut modes = String::with_capacity(ENVELOPE.len() + self.meta.width);
        write_envelope(&mut group, &rows, &mut modes)?;
        write_json(&mut group, &rows)?;
        for number in 0..self.meta.width {
            modes.push(write_cells(&mut group, &rows, number)?.letter());
        }
        group.close()?;
        self.modes.push(modes);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, SealError> {
        let modes = serde_json::to_string(&self.modes)?;
        self.writer.append_key_value_metadata(KeyValue::new(MODES_KEY.to_owned(), modes));
        Ok(self.writer.into_inner()?)
    }
}

/// Numbers the tables that records refer to.
#[derive(Default)]
pub(super) struct Sources {
    list: Vec<SourceMeta>,
    index: HashMap<(NodeId, Incarnation, TableDigest), usize>,
}

impl Sources {
    pub(super) fn add(&mut self, table: &TableEntry) {
        let Some(node) = table.node else { return };
        let (incarnation, digest) = (table.incarnation, table.digest);
        let key = (node, incarnation, digest);
        if self.index.contains_key(&key) {
            return;
        }
        self.index.insert(key, self.list.len());
        let cells = table.columns.len();
        self.list.push(SourceMeta { node, incarnation, table: digest, cells });
    }
}

fn schema_text(width: usize) -> String {
    let mut text = String::from("message gswarm_segment {");
    for name in ENVELOPE {
        text.push_str(&format!("required int64 {name};"));
    }
    text.push_str("optional binary json (UTF8);");
    for number in 0..width {
        text.push_str(&format!("optional int64 v{number};"));
    }
    text.push('}');
    text
}

fn properties(meta: &FileMeta) -> Result<WriterProperties, SealError> {
    let described = KeyValue::new(META_KEY.to_owned(), serde_json::to_string(meta)?);
    // The bytes of a number apart from each other: those that seldom change compress to nothing.
    let builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(vec![described]))
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::BYTE_STREAM_SPLIT)
        .set_column_encoding(ColumnPath::from("json"), Encoding::PLAIN);
    Ok(builder.build())
}

/// Beyond it a tenth of a percent costs half as much time again.
const ZSTD_LEVEL: i32 = 3;

/// Values whose cells fit their table go into columns; everything else stays JSON.
fn row<'a>(
    entry: &'a Entry,
    ordinal: i64,
    index: &HashMap<(NodeId, Incarnation, TableDigest), usize>,
    sources: &[SourceMeta],
) -> Result<Row<'a>, SealError> {
    if let Entry::Record(record) = entry
        && let Body::Values(values) = &record.body
        && let Some(at) = index.get(&(record.node, record.incarnation, values.table))
        && sources.get(*at).is_some_and(|s| s.cells == values.cells.as_slice().len())
        && let Ok(source) = i64::try_from(*at)
    {
        return Ok(Row { ordinal, source, record: Some(record), json: None });
    }
    let json = ByteArray::from(serde_json::to_vec(entry)?);
    Ok(Row { ordinal, source: -1, record: None, json: Some(json) })
}

fn quality_number(quality: TimeQuality) -> i64 {
    match quality {
        TimeQuality::Measured => 0,
        TimeQuality::Wall => 1,
        TimeQuality::Receipt => 2,
    }
}

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn write_envelope(
    group: &mut Group<'_>,
    rows: &[Row<'_>],
    modes: &mut String,
) -> Result<(), SealError> {
    let of = |number: &dyn Fn(&StoredRecord) -> i64| -> Vec<i64> {
        rows.iter().map(|row| row.record.map_or(0, number)).collect()
    };
    // In the order of `ENVELOPE`. Differences wrap: also nonsense comes back as it was.
    let columns = [
        rows.iter().map(|row| row.ordinal).collect(),
        rows.iter().map(|row| row.source).collect(),
        of(&|record| record.seq.cast_signed()),
        of(&|record| record.mono.0),
        of(&|record| record.time.0.wrapping_sub(record.mono.0)),
        of(&|record| record.wall.0.wrapping_sub(record.mono.0)),
        of(&|record| record.receipt.0.wrapping_sub(record.time.0)),
        of(&|record| quality_number(record.quality)),
        of(&|record| i64::from(record.crc)),
    ];
    for mut values in columns {
        modes.push(numbers::pack_whole(&mut values).letter());
        let mut column = next_column(group)?;
        column.typed::<Int64Type>().write_batch(&values, None, None)?;
        column.close()?;
    }
    Ok(())
}

fn write_json(group: &mut Group<'_>, rows: &[Row<'_>]) -> Result<(), SealError> {
    let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.json.is_some())).collect();
    let texts: Vec<ByteArray> = rows.iter().filter_map(|row| row.json.clone()).collect();
    let mut column = next_column(group)?;
    column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None)?;
    column.close()?;
    Ok(())
}

fn write_cells(group: &mut Group<'_>, rows: &[Row<'_>], number: usize) -> Result<Mode, SealError> {
    let mut levels = Vec::with_capacity(rows.len());
    let mut cells = Vec::with_capacity(rows.len());
    for row in rows {
        let cell = cell(row, number);
        levels.push(i16::from(cell.is_some()));
        cells.extend(cell);
    }
    let (values, mode) = numbers::pack(&cells);
    let mut column = next_column(group)?;
    column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
    column.close()?;
    Ok(mode)
}

fn cell(row: &Row<'_>, number: usize) -> Option<f64> {
    let Body::Values(values) = &row.record?.body else { return None };
    *values.cells.as_slice().get(number)?
}

fn next_column<'g>(
    group: &'g mut Group<'_>,
) -> Result<parquet::file::writer::SerializedColumnWriter<'g>, SealError> {
    group.next_column()?.ok_or(SealError::Damaged("fewer columns than the schema has"))
}
