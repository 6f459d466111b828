//! Parquet for data frames: every record, one row per cell, with names instead of positions.

use std::io::Write;
use std::sync::Arc;

use gswarm_types::{Body, Scope, Table};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::collect::{Order, collect};
use super::json::gaps;
use super::{ExportError, ExportFacts, ExportInput};
use crate::entry::StoredRecord;
use crate::reader::Reader;
use crate::sealed::SealError;

/// Rows per row group.
const GROUP_ROWS_MAX: usize = 262_144;

/// Key of the gaps in the file's metadata.
const GAPS_KEY: &str = "gswarm_gaps";

const SCHEMA: &str = "message gswarm_records {
    required int64 time (TIMESTAMP(MICROS,true));
    required int64 node_time (TIMESTAMP(MICROS,true));
    required int64 offset_us;
    required binary node (UTF8);
    required binary node_id (UTF8);
    required binary incarnation (UTF8);
    required int64 seq;
    required binary kind (UTF8);
    optional binary scope (UTF8);
    optional int32 device_index;
    optional binary device_id (UTF8);
    optional binary device_name (UTF8);
    optional binary metric (UTF8);
    optional double value;
    optional binary body (JSON);
}";

/// A column whose cells may be absent.
struct Cells<T> {
    present: Vec<i16>,
    values: Vec<T>,
}

impl<T> Default for Cells<T> {
    fn default() -> Self {
        Self { present: Vec::new(), values: Vec::new() }
    }
}

impl<T> Cells<T> {
    fn push(&mut self, value: Option<T>) {
        self.present.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

#[derive(Default)]
struct Rows {
    time: Vec<i64>,
    node_time: Vec<i64>,
    offset: Vec<i64>,
    node: Vec<ByteArray>,
    node_id: Vec<ByteArray>,
    incarnation: Vec<ByteArray>,
    seq: Vec<i64>,
    kind: Vec<ByteArray>,
    scope: Cells<ByteArray>,
    index: Cells<i32>,
    device_id: Cells<ByteArray>,
    device_name: Cells<ByteArray>,
    metric: Cells<ByteArray>,
    value: Cells<f64>,
    body: Cells<ByteArray>,
}

/// What is the same in all rows of a record.
struct Front {
    stored: StoredRecord,
    node: ByteArray,
    node_id: ByteArray,
    incarnation: ByteArray,
    kind: &'static str,
}

pub(super) fn write(
    reader: &Reader,
    input: &ExportInput,
    out: &mut (dyn Write + Send),
) -> Result<ExportFacts, ExportError> {
    let mut collected = collect(reader, input, Order::Source)?;
    let level = ZstdLevel::try_new(3).map_err(parquet_error)?;
    // What is missing belongs to the records, but is none.
    let gaps = serde_json::to_string(&gaps(input))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_key_value_metadata(Some(vec![KeyValue::new(GAPS_KEY.to_owned(), gaps)]))
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(parquet_error)?);
    let mut writer =
        SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(parquet_error)?;
    let mut rows = Rows::default();
    let mut records = 0;
    while let Some((_, payload)) = collected.merge.next().map_err(ExportError::Sort)? {
        let stored: StoredRecord = serde_json::from_slice(&payload)?;
        records += 1;
        let front = Front {
            node: ByteArray::from(input.name_of(stored.node).as_str()),
            node_id: ByteArray::from(stored.node.to_string().as_str()),
            incarnation: ByteArray::from(stored.incarnation.to_string().as_str()),
            kind: kind(&stored.body),
            stored,
        };
        let table = match &front.stored.body {
            Body::Values(values) => {
                let key = (front.stored.node, front.stored.incarnation, values.table);
                collected.tables.get(&key).map(|table| (values, table))
            },
            _ => None,
        };
        let before = rows.time.len();
        if let Some((values, table)) = table {
            rows.values(&front, input, table, values.cells.as_slice());
        }
        // Every record has a row: events, process lists and the like as JSON, and values that show
        // nothing here with their numbers left out.
        if rows.time.len() == before {
            let body = match &front.stored.body {
                Body::Values(_) if table.is_some() => None,
                body => Some(ByteArray::from(serde_json::to_vec(body)?)),
            };
            rows.begin(&front, body);
            rows.no_cell();
        }
        if rows.time.len() >= GROUP_ROWS_MAX {
            flush(&mut writer, &mut rows).map_err(parquet_error)?;
        }
    }
    flush(&mut writer, &mut rows).map_err(parquet_error)?;
    writer.close().map_err(parquet_error)?;
    Ok(ExportFacts { records, frames: 0 })
}

const fn kind(body: &Body) -> &'static str {
    match body {
        Body::Values(_) => "values",
        Body::Event(_) => "event",
        Body::Processes(_) => "processes",
        Body::Topology(_) => "topology",
        Body::Mark(_) => "mark",
        Body::Loss(_) => "loss",
        Body::End => "end",
        Body::Opaque { .. } => "opaque",
        Body::Rejected { .. } => "rejected",
    }
}

impl Rows {
    fn begin(&mut self, front: &Front, body: Option<ByteArray>) {
        let stored = &front.stored;
        self.time.push(stored.time.0);
        self.node_time.push(stored.wall.0);
        self.offset.push((stored.time - stored.wall).0);
        self.node.push(front.node.clone());
        self.node_id.push(front.node_id.clone());
        self.incarnation.push(front.incarnation.clone());
        self.seq.push(i64::try_from(stored.seq).unwrap_or(i64::MAX));
        self.kind.push(ByteArray::from(front.kind));
        self.body.push(body);
    }

    fn no_cell(&mut self) {
        self.scope.push(None);
        self.index.push(None);
        self.device_id.push(None);
        self.device_name.push(None);
        self.metric.push(None);
        self.value.push(None);
    }

    /// One row per cell of the GPUs that the session selects, and of everything that is no GPU.
    fn values(&mut self, front: &Front, input: &ExportInput, table: &Table, cells: &[Option<f64>]) {
        for (column, cell) in table.columns.iter().zip(cells) {
            let Some(info) = table.device_of(column) else { continue };
            if info.scope == Scope::Gpu && !input.spec.selection.has_gpu(info.index) {
                continue;
            }
            self.begin(front, None);
            self.scope.push(Some(ByteArray::from(info.scope.as_str())));
            self.index.push(Some(i32::try_from(info.index).unwrap_or(i32::MAX)));
            self.device_id.push(Some(ByteArray::from(info.id.0.as_str())));
            self.device_name.push(Some(ByteArray::from(info.name.as_str())));
            self.metric.push(Some(ByteArray::from(column.metric.as_str())));
            self.value.push(*cell);
        }
    }
}

type Writer<'a> = SerializedFileWriter<&'a mut (dyn Write + Send)>;

/// Writes a row group; its columns stand in the order of the schema.
fn flush(writer: &mut Writer<'_>, rows: &mut Rows) -> Result<(), ParquetError> {
    if rows.time.is_empty() {
        return Ok(());
    }
    let rows = std::mem::take(rows);
    let mut group = writer.next_row_group()?;
    column::<Int64Type>(&mut group, &rows.time, None)?;
    column::<Int64Type>(&mut group, &rows.node_time, None)?;
    column::<Int64Type>(&mut group, &rows.offset, None)?;
    column::<ByteArrayType>(&mut group, &rows.node, None)?;
    column::<ByteArrayType>(&mut group, &rows.node_id, None)?;
    column::<ByteArrayType>(&mut group, &rows.incarnation, None)?;
    column::<Int64Type>(&mut group, &rows.seq, None)?;
    column::<ByteArrayType>(&mut group, &rows.kind, None)?;
    column::<ByteArrayType>(&mut group, &rows.scope.values, Some(&rows.scope.present))?;
    column::<Int32Type>(&mut group, &rows.index.values, Some(&rows.index.present))?;
    column::<ByteArrayType>(&mut group, &rows.device_id.values, Some(&rows.device_id.present))?;
    column::<ByteArrayType>(&mut group, &rows.device_name.values, Some(&rows.device_name.present))?;
    column::<ByteArrayType>(&mut group, &rows.metric.values, Some(&rows.metric.present))?;
    column::<DoubleType>(&mut group, &rows.value.values, Some(&rows.value.present))?;
    column::<ByteArrayType>(&mut group, &rows.body.values, Some(&rows.body.present))?;
    group.close()?;
    Ok(())
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut (dyn Write + Send)>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, levels, None)?;
        column.close()?;
    }
    Ok(())
}

fn parquet_error(error: ParquetError) -> ExportError {
    ExportError::Read(SealError::Parquet(error))
}
