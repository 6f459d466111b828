//! Parquet to entries.

mod columns;
mod first;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use gswarm_types::{Body, Cells, Micros, StorageId, TimeQuality, Values};
use parquet::data_type::ByteArray;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use serde::Deserialize;

use super::SealError;
use super::encode::{ENVELOPE, FORMAT, FileMeta, META_KEY, MODES_KEY, SourceMeta};
use super::numbers::{self, Mode};
use crate::entry::{Entry, StoredRecord};
use columns::Columns;

/// A sealed file that is read one row group at a time.
pub(super) struct Decoder {
    reader: SerializedFileReader<Bytes>,
    layout: Layout,
}

enum Layout {
    First(first::FileMeta),
    Second {
        meta: FileMeta,
        /// For each row group the modes of its columns.
        modes: Vec<Vec<Mode>>,
    },
}

impl Decoder {
    pub(super) fn new(bytes: Bytes) -> Result<Self, SealError> {
        guarded(|| Self::open(bytes))
    }

    fn open(bytes: Bytes) -> Result<Self, SealError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let reader = SerializedFileReader::new(bytes)?;
        let text = described(&reader, META_KEY)?;
        let Format { format } = serde_json::from_str(text)?;
        let layout = match format {
            0 | 1 => Layout::First(serde_json::from_str(text)?),
            FORMAT => Layout::Second { meta: serde_json::from_str(text)?, modes: modes(&reader)? },
            newer => return Err(SealError::Newer(newer)),
        };
        Ok(Self { reader, layout })
    }

    pub(super) fn storage(&self) -> StorageId {
        match &self.layout {
            Layout::First(meta) => meta.storage,
            Layout::Second { meta, .. } => meta.storage,
        }
    }

    pub(super) fn prev_valid_bytes(&self) -> Option<u64> {
        match &self.layout {
            Layout::First(meta) => meta.prev_valid_bytes,
            Layout::Second { meta, .. } => meta.prev_valid_bytes,
        }
    }

    pub(super) fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// The entries of one group with their ordinals.
    pub(super) fn group(&self, number: usize) -> Result<Vec<(i64, Entry)>, SealError> {
        guarded(|| {
            let group = self.reader.get_row_group(number)?;
            match &self.layout {
                Layout::First(meta) => first::read_group(group.as_ref(), meta),
                Layout::Second { meta, modes } => {
                    let modes = modes.get(number).map_or(&[][..], Vec::as_slice);
                    read_group(group.as_ref(), meta, modes)
                },
            }
        })
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

/// The library panics on some content that only looks right: that is damage like any other.
fn guarded<T>(read: impl FnOnce() -> Result<T, SealError>) -> Result<T, SealError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or(Err(SealError::Damaged("its content makes no sense")))
}

/// What the file says about itself under this key.
fn described<'a>(reader: &'a SerializedFileReader<Bytes>, key: &str) -> Result<&'a str, SealError> {
    reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .and_then(|list| list.iter().find(|item| item.key == key))
        .and_then(|item| item.value.as_deref())
        .ok_or(SealError::Damaged("no description of the content"))
}

fn modes(reader: &SerializedFileReader<Bytes>) -> Result<Vec<Vec<Mode>>, SealError> {
    let groups: Vec<String> = serde_json::from_str(described(reader, MODES_KEY)?)?;
    let of = |letters: &String| letters.chars().map(Mode::from_letter).collect();
    let modes: Option<_> = groups.iter().map(of).collect();
    modes.ok_or(SealError::Damaged("a column of an unknown mode"))
}

fn read_group(
    group: &dyn RowGroupReader,
    meta: &FileMeta,
    modes: &[Mode],
) -> Result<Vec<(i64, Entry)>, SealError> {
    let mut columns = Columns::new(group, ENVELOPE.len() + 1 + meta.width)?;
    let (for_envelope, for_cells) = modes
        .split_at_checked(ENVELOPE.len())
        .filter(|(_, cells)| cells.len() == meta.width)
        .ok_or(SealError::Damaged("not every column has a mode"))?;
    let mut envelope = Vec::with_capacity(ENVELOPE.len());
    for mode in for_envelope {
        let mut numbers = columns.required_i64()?;
        numbers::unpack_whole(&mut numbers, *mode).ok_or(NO_NUMBER)?;
        envelope.push(numbers);
    }
    let envelope: [Vec<i64>; 9] =
        envelope.try_into().map_err(|_| SealError::Damaged("too few columns"))?;
    let texts = columns.texts()?;
    let rows = envelope.first().map_or(0, Vec::len);
    // A table with fewer columns than the widest ends before them.
    let width = |row| source(meta, &envelope, row).map_or(0, |source| source.cells.min(meta.width));
    let widths: Vec<usize> = (0..rows).map(width).collect();
    let mut cells: Vec<Vec<Option<f64>>> =
        widths.iter().map(|width| Vec::with_capacity(*width)).collect();
    for (number, mode) in for_cells.iter().enumerate() {
        let (levels, kept) = columns.kept()?;
        let mut numbers = numbers::unpack(kept, *mode).ok_or(NO_NUMBER)?.into_iter();
        for ((row, width), level) in cells.iter_mut().zip(&widths).zip(&levels) {
            let cell = if *level == 1 { numbers.next() } else { None };
            if number < *width {
                row.push(cell);
            }
        }
    }
    let rows = cells.into_iter().enumerate();
    rows.map(|(row, cells)| entry(row, &envelope, meta, &texts, cells)).collect()
}

const NO_NUMBER: SealError = SealError::Damaged("a column that holds no numbers");

fn source<'a>(meta: &'a FileMeta, envelope: &[Vec<i64>; 9], row: usize) -> Option<&'a SourceMeta> {
    let [_, sources, ..] = envelope;
    meta.sources.get(usize::try_from(*sources.get(row)?).ok()?)
}

fn entry(
    row: usize,
    envelope: &[Vec<i64>; 9],
    meta: &FileMeta,
    texts: &[Option<ByteArray>],
    cells: Vec<Option<f64>>,
) -> Result<(i64, Entry), SealError> {
    let short = SealError::Damaged("a column ends early");
    let numbers = envelope.each_ref().map(|column| column.get(row).copied());
    let [
        Some(ordinal),
        Some(source_number),
        Some(seq),
        Some(mono),
        Some(time),
        Some(wall),
        Some(receipt),
        Some(quality_number),
        Some(crc),
    ] = numbers
    else {
        return Err(short);
    };
    if source_number < 0 {
        return Ok((ordinal, entry_of(texts.get(row))?));
    }
    let source = source(meta, envelope, row).ok_or(SealError::Damaged("unknown source"))?;
    let time = time.wrapping_add(mono);
    let record = StoredRecord {
        node: source.node,
        time: Micros(time),
        receipt: Micros(receipt.wrapping_add(time)),
        quality: quality(quality_number)?,
        crc: u32::try_from(crc).map_err(|_| SealError::Damaged("a checksum out of range"))?,
        incarnation: source.incarnation,
        seq: seq.cast_unsigned(),
        mono: Micros(mono),
        wall: Micros(wall.wrapping_add(mono)),
        body: Body::Values(Values { table: source.table, cells: Cells::new(cells) }),
    };
    Ok((ordinal, Entry::Record(record)))
}

fn quality(number: i64) -> Result<TimeQuality, SealError> {
    match number {
        0 => Ok(TimeQuality::Measured),
        1 => Ok(TimeQuality::Wall),
        2 => Ok(TimeQuality::Receipt),
        _ => Err(SealError::Damaged("unknown time quality")),
    }
}

/// An entry that is kept as its JSON.
fn entry_of(text: Option<&Option<ByteArray>>) -> Result<Entry, SealError> {
    let text = text.and_then(Option::as_ref).ok_or(SealError::Damaged("a row without content"))?;
    Ok(serde_json::from_slice(text.data())?)
}
