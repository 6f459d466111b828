//! Parquet to entries.

use bytes::Bytes;
use gswarm_types::{Body, Cells, Micros, StorageId, TimeQuality, Values};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use super::SealError;
use super::encode::{ENVELOPE, FileMeta, META_KEY, SourceMeta};
use crate::entry::{Entry, FORMAT, StoredRecord};

/// A sealed file that is read one row group at a time.
pub(super) struct Decoder {
    reader: SerializedFileReader<Bytes>,
    meta: FileMeta,
}

impl Decoder {
    pub(super) fn new(bytes: Bytes) -> Result<Self, SealError> {
        let reader = SerializedFileReader::new(bytes)?;
        let meta = file_meta(&reader)?;
        Ok(Self { reader, meta })
    }

    pub(super) fn storage(&self) -> StorageId {
        self.meta.storage
    }

    pub(super) fn prev_valid_bytes(&self) -> Option<u64> {
        self.meta.prev_valid_bytes
    }

    pub(super) fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// The entries of one group with their ordinals.
    pub(super) fn group(&self, number: usize) -> Result<Vec<(i64, Entry)>, SealError> {
        let group = self.reader.get_row_group(number)?;
        read_group(group.as_ref(), &self.meta)
    }
}

/// Shows every entry: those that are no records first, then the records of each incarnation, all in
/// their order.
pub(super) fn decode(bytes: Bytes, visit: &mut dyn FnMut(Entry)) -> Result<StorageId, SealError> {
    let decoder = Decoder::new(bytes)?;
    for number in 0..decoder.groups() {
        for (_, entry) in decoder.group(number)? {
            visit(entry);
        }
    }
    Ok(decoder.storage())
}

fn file_meta(reader: &SerializedFileReader<Bytes>) -> Result<FileMeta, SealError> {
    let text = reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .and_then(|list| list.iter().find(|item| item.key == META_KEY))
        .and_then(|item| item.value.as_ref())
        .ok_or(SealError::Damaged("no description of the content"))?;
    let meta: FileMeta = serde_json::from_str(text)?;
    if meta.format > FORMAT {
        return Err(SealError::Newer(meta.format));
    }
    Ok(meta)
}

/// Rows of a group that this version reads; it writes fewer.
const GROUP_ROWS_READ_MAX: usize = 65_536;

fn read_group(group: &dyn RowGroupReader, meta: &FileMeta) -> Result<Vec<(i64, Entry)>, SealError> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
    if rows > GROUP_ROWS_READ_MAX
        || group.num_columns() != ENVELOPE.len() + meta.integers + meta.floats
    {
        return Err(SealError::Damaged("row group of an unexpected shape"));
    }
    let mut columns = Columns { group, next: 0, rows };
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
    let mut entries = Vec::with_capacity(rows);
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
        let quality = match value(&self.quality, row)? {
            0 => TimeQuality::Measured,
            1 => TimeQuality::Wall,
            2 => TimeQuality::Receipt,
            _ => return Err(SealError::Damaged("unknown time quality")),
        };
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
        let text = self.json.get(row).and_then(Option::as_ref);
        let text = text.ok_or(SealError::Damaged("a row without content"))?;
        Ok(serde_json::from_slice(text.data())?)
    }
}

fn value<T: Copy>(column: &[Option<T>], row: usize) -> Result<T, SealError> {
    column.get(row).copied().flatten().ok_or(SealError::Damaged("a record lacks a field"))
}

/// Takes the columns of a row group one after the other.
struct Columns<'a> {
    group: &'a dyn RowGroupReader,
    next: usize,
    rows: usize,
}

macro_rules! read_optional {
    ($name:ident, $variant:ident, $kind:ty, $value:ty) => {
        fn $name(&mut self) -> Result<Vec<Option<$value>>, SealError> {
            let ColumnReader::$variant(mut reader) = self.column()? else {
                return Err(SealError::Damaged("a column of an unexpected type"));
            };
            let mut levels = Vec::with_capacity(self.rows);
            let mut values: Vec<<$kind as parquet::data_type::DataType>::T> = Vec::new();
            while levels.len() < self.rows {
                let want = self.rows - levels.len();
                let (records, _, _) =
                    reader.read_records(want, Some(&mut levels), None, &mut values)?;
                if records == 0 {
                    return Err(SealError::Damaged("a column ends early"));
                }
            }
            let mut values = values.into_iter();
            let cells = levels.iter().map(|level| if *level == 1 { values.next() } else { None });
            Ok(cells.collect())
        }
    };
}

macro_rules! read_required {
    ($name:ident, $variant:ident, $value:ty) => {
        fn $name(&mut self) -> Result<Vec<$value>, SealError> {
            let ColumnReader::$variant(mut reader) = self.column()? else {
                return Err(SealError::Damaged("a column of an unexpected type"));
            };
            let mut values = Vec::with_capacity(self.rows);
            while values.len() < self.rows {
                let want = self.rows - values.len();
                let (records, _, _) = reader.read_records(want, None, None, &mut values)?;
                if records == 0 {
                    return Err(SealError::Damaged("a column ends early"));
                }
            }
            Ok(values)
        }
    };
}

impl Columns<'_> {
    fn column(&mut self) -> Result<ColumnReader, SealError> {
        let reader = self.group.get_column_reader(self.next)?;
        self.next += 1;
        Ok(reader)
    }

    read_required!(required_i64, Int64ColumnReader, i64);
    read_required!(required_i32, Int32ColumnReader, i32);
    read_optional!(i64s, Int64ColumnReader, Int64Type, i64);
    read_optional!(i32s, Int32ColumnReader, Int32Type, i32);
    read_optional!(f64s, DoubleColumnReader, DoubleType, f64);
    read_optional!(texts, ByteArrayColumnReader, ByteArrayType, ByteArray);
}
