//! Parquet for data frames: one row per cell, with names instead of positions.

use std::io::Write;
use std::sync::Arc;

use gswarm_types::Body;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::collect::{Order, collect};
use super::{ExportError, ExportFacts, ExportInput};
use crate::entry::StoredRecord;
use crate::reader::Reader;
use crate::sealed::SealError;

/// Rows per row group.
const GROUP_ROWS_MAX: usize = 262_144;

const SCHEMA: &str = "message gswarm_cells {
    required int64 time (TIMESTAMP(MICROS,true));
    required binary node (UTF8);
    required int64 seq;
    required binary scope (UTF8);
    required int32 device_index;
    required binary device_id (UTF8);
    required binary device_name (UTF8);
    required binary metric (UTF8);
    optional double value;
}";

#[derive(Default)]
struct Rows {
    time: Vec<i64>,
    node: Vec<ByteArray>,
    seq: Vec<i64>,
    scope: Vec<ByteArray>,
    index: Vec<i32>,
    id: Vec<ByteArray>,
    name: Vec<ByteArray>,
    metric: Vec<ByteArray>,
    present: Vec<i16>,
    value: Vec<f64>,
}

pub(super) fn write(
    reader: &Reader,
    input: &ExportInput,
    out: &mut (dyn Write + Send),
) -> Result<ExportFacts, ExportError> {
    let mut collected = collect(reader, input, Order::Source)?;
    let level = ZstdLevel::try_new(3).map_err(parquet_error)?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(parquet_error)?);
    let mut writer =
        SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(parquet_error)?;
    let mut rows = Rows::default();
    let mut records = 0;
    while let Some((_, payload)) = collected.merge.next().map_err(ExportError::Sort)? {
        let stored: StoredRecord = serde_json::from_slice(&payload)?;
        records += 1;
        let Body::Values(values) = &stored.body else { continue };
        let key = (stored.node, stored.incarnation, values.table);
        let Some(table) = collected.tables.get(&key) else { continue };
        rows.push(&input.name_of(stored.node), &stored, table, values.cells.as_slice());
        if rows.time.len() >= GROUP_ROWS_MAX {
            flush(&mut writer, &mut rows).map_err(parquet_error)?;
        }
    }
    flush(&mut writer, &mut rows).map_err(parquet_error)?;
    writer.close().map_err(parquet_error)?;
    Ok(ExportFacts { records, frames: 0 })
}

impl Rows {
    fn push(
        &mut self,
        node: &str,
        stored: &StoredRecord,
        table: &gswarm_types::Table,
        cells: &[Option<f64>],
    ) {
        for (column, cell) in table.columns.iter().zip(cells) {
            let Some(info) = table.device_of(column) else { continue };
            self.time.push(stored.time.0);
            self.node.push(ByteArray::from(node));
            self.seq.push(i64::try_from(stored.seq).unwrap_or(i64::MAX));
            self.scope.push(ByteArray::from(info.scope.as_str()));
            self.index.push(i32::try_from(info.index).unwrap_or(i32::MAX));
            self.id.push(ByteArray::from(info.id.0.as_str()));
            self.name.push(ByteArray::from(info.name.as_str()));
            self.metric.push(ByteArray::from(column.metric.as_str()));
            self.present.push(i16::from(cell.is_some()));
            self.value.extend(*cell);
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
    column::<ByteArrayType>(&mut group, &rows.node, None)?;
    column::<Int64Type>(&mut group, &rows.seq, None)?;
    column::<ByteArrayType>(&mut group, &rows.scope, None)?;
    column::<Int32Type>(&mut group, &rows.index, None)?;
    column::<ByteArrayType>(&mut group, &rows.id, None)?;
    column::<ByteArrayType>(&mut group, &rows.name, None)?;
    column::<ByteArrayType>(&mut group, &rows.metric, None)?;
    column::<DoubleType>(&mut group, &rows.value, Some(&rows.present))?;
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
