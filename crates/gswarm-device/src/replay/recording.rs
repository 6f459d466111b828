//! Rows of numbers in the order of time.

use std::sync::Arc;

use gswarm_types::{Micros, Table};

/// The most rows of a recording: eleven days at one row a second.
pub(super) const ROWS_MAX: usize = 1_000_000;
/// The most numbers of a recording: 256 MiB.
pub(super) const CELLS_MAX: usize = 16 * 1024 * 1024;
/// How long the last row of a recording of one row lasts.
const PERIOD_DEFAULT: Micros = Micros::from_secs(1);

/// A recording that can be played.
#[derive(Debug)]
pub(super) struct Recording {
    tables: Vec<Arc<Table>>,
    rows: Vec<Row>,
    cells: Vec<Option<f64>>,
    /// From the first row to the end of the last one.
    length: Micros,
}

/// A recording that is being read.
#[derive(Debug, Default)]
pub(super) struct RecordingBuilder {
    tables: Vec<Arc<Table>>,
    rows: Vec<Row>,
    cells: Vec<Option<f64>>,
}

/// The recording does not fit in the limits.
#[derive(Debug)]
pub(super) struct TooLong;

#[derive(Debug, Clone, Copy)]
struct Row {
    time: Micros,
    table: usize,
    first_cell: usize,
}

impl RecordingBuilder {
    /// Adds a table and says how rows refer to it.
    pub(super) fn add_table(&mut self, table: Table) -> usize {
        self.tables.push(Arc::new(table));
        self.tables.len() - 1
    }

    /// Adds a row with one cell for each column of its table.
    pub(super) fn add_row(
        &mut self,
        time: Micros,
        table: usize,
        cells: impl Iterator<Item = Option<f64>>,
    ) -> Result<(), TooLong> {
        let width = self.tables.get(table).map_or(0, |table| table.columns.len());
        if self.rows.len() >= ROWS_MAX || self.cells.len() + width > CELLS_MAX {
            return Err(TooLong);
        }
        let first_cell = self.cells.len();
        self.cells.extend(cells.take(width));
        self.cells.resize(first_cell + width, None);
        self.rows.push(Row { time, table, first_cell });
        Ok(())
    }

    /// `None` without a row.
    pub(super) fn build(mut self) -> Option<Recording> {
        // Exports are ordered by node and seq, which need not be the order of time.
        self.rows.sort_by_key(|row| row.time);
        let span = self.rows.last()?.time - self.rows.first()?.time;
        let gaps = i64::try_from(self.rows.len() - 1).unwrap_or(i64::MAX);
        let period = span.0.checked_div(gaps).filter(|period| *period > 0);
        let length = span + period.map_or(PERIOD_DEFAULT, Micros);
        self.cells.shrink_to_fit();
        Some(Recording { tables: self.tables, rows: self.rows, cells: self.cells, length })
    }
}

impl Recording {
    /// What the recording shows this long after its start, over and over again.
    pub(super) fn at(&self, since_start: Micros) -> (&Arc<Table>, &[Option<f64>]) {
        let first = self.rows.first().map_or(Micros::ZERO, |row| row.time);
        let time = first + Micros(since_start.0.rem_euclid(self.length.0.max(1)));
        let after = self.rows.partition_point(|row| row.time <= time);
        let row = &self.rows[after.saturating_sub(1)];
        let table = &self.tables[row.table];
        (table, &self.cells[row.first_cell..row.first_cell + table.columns.len()])
    }
}
