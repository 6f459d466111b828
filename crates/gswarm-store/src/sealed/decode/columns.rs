//! The columns of a row group, one after the other.

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::reader::RowGroupReader;

use super::SealError;

/// Rows of a group that this version reads; it writes fewer.
const GROUP_ROWS_READ_MAX: usize = 65_536;

/// Takes the columns of a row group one after the other.
pub(super) struct Columns<'a> {
    group: &'a dyn RowGroupReader,
    next: usize,
    rows: usize,
}

macro_rules! read_optional {
    ($name:ident, $variant:ident, $value:ty) => {
        pub(super) fn $name(&mut self) -> Result<Vec<Option<$value>>, SealError> {
            let ColumnReader::$variant(mut reader) = self.column()? else {
                return Err(SealError::Damaged("a column of an unexpected type"));
            };
            let (levels, values) = read_all(&mut reader, self.rows)?;
            Ok(spread(&levels, values))
        }
    };
}

macro_rules! read_required {
    ($name:ident, $variant:ident, $value:ty) => {
        pub(super) fn $name(&mut self) -> Result<Vec<$value>, SealError> {
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

impl<'a> Columns<'a> {
    /// The columns of a group that has as many as expected.
    pub(super) fn new(group: &'a dyn RowGroupReader, expected: usize) -> Result<Self, SealError> {
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
        if rows > GROUP_ROWS_READ_MAX || group.num_columns() != expected {
            return Err(SealError::Damaged("row group of an unexpected shape"));
        }
        Ok(Self { group, next: 0, rows })
    }

    fn column(&mut self) -> Result<ColumnReader, SealError> {
        let reader = self.group.get_column_reader(self.next)?;
        self.next += 1;
        Ok(reader)
    }

    read_required!(required_i64, Int64ColumnReader, i64);
    read_required!(required_i32, Int32ColumnReader, i32);
    read_optional!(i64s, Int64ColumnReader, i64);
    read_optional!(i32s, Int32ColumnReader, i32);
    read_optional!(f64s, DoubleColumnReader, f64);
    read_optional!(texts, ByteArrayColumnReader, ByteArray);

    /// What is kept of the cells of one column, and in which rows they stand.
    pub(super) fn kept(&mut self) -> Result<(Vec<i16>, Vec<i64>), SealError> {
        let ColumnReader::Int64ColumnReader(mut reader) = self.column()? else {
            return Err(SealError::Damaged("a column of an unexpected type"));
        };
        read_all(&mut reader, self.rows)
    }
}

/// The values of a column, and a level for each row: 1 where there is one.
fn read_all<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
) -> Result<(Vec<i16>, Vec<T::T>), SealError> {
    let mut levels = Vec::with_capacity(rows);
    let mut values = Vec::with_capacity(rows);
    while levels.len() < rows {
        let want = rows - levels.len();
        let (records, _, _) = reader.read_records(want, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            return Err(SealError::Damaged("a column ends early"));
        }
    }
    Ok((levels, values))
}

/// Values in the rows where there are any.
fn spread<T>(levels: &[i16], values: Vec<T>) -> Vec<Option<T>> {
    let mut values = values.into_iter();
    levels.iter().map(|level| if *level == 1 { values.next() } else { None }).collect()
}
