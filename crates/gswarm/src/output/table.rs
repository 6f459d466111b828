//! Tables without borders: two spaces between columns, one heading line.

use comfy_table::{CellAlignment, Table as ComfyTable, TableStyle};

use super::clean;
use crate::units::ABSENT;

/// Rows under a heading.
#[derive(Debug)]
pub(crate) struct Table {
    heading: Option<Vec<String>>,
    /// Columns whose cells stand on the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

/// How much attention a cell asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Warning,
    Bad,
    Quiet,
}

// Zero-width marks stand for colours until the columns are laid out, because the layout counts
// characters. They cannot come from outside: `clean` escapes them.
const END: char = '\u{2060}';
const TONES: [(Tone, char, &str); 4] = [
    (Tone::Good, '\u{2061}', "\x1b[32m"),
    (Tone::Warning, '\u{2062}', "\x1b[33m"),
    (Tone::Bad, '\u{2063}', "\x1b[31m"),
    (Tone::Quiet, '\u{2064}', "\x1b[2m"),
];

impl Tone {
    /// A cell in this tone; the text is escaped.
    pub(crate) fn paint(self, text: &str) -> String {
        let text = clean(text);
        TONES
            .iter()
            .find(|(tone, ..)| *tone == self)
            .map_or_else(|| text.to_string(), |(_, mark, _)| format!("{mark}{text}{END}"))
    }
}

impl Table {
    /// A heading that ends in `>` stands on the right, with its cells.
    pub(crate) fn new<'a>(heading: impl IntoIterator<Item = &'a str>) -> Self {
        let (right, heading) = heading
            .into_iter()
            .map(|name| (name.ends_with('>'), name.trim_end_matches('>').to_owned()))
            .unzip();
        Self { heading: Some(heading), right, rows: Vec::new() }
    }

    /// Two columns, no heading.
    pub(crate) fn facts() -> Self {
        Self { heading: None, right: vec![false, false], rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| clean_cell(&cell)).collect());
    }

    /// Without the columns that hold nothing in any row.
    #[must_use]
    pub(crate) fn without_empty_columns(mut self) -> Self {
        let empty =
            |cell: Option<&String>| cell.is_none_or(|cell| cell.is_empty() || cell == ABSENT);
        let keep: Vec<bool> = (0..self.right.len())
            .map(|column| !self.rows.iter().all(|row| empty(row.get(column))))
            .collect();
        for cells in self.rows.iter_mut().chain(self.heading.as_mut()) {
            retain(cells, &keep);
        }
        retain(&mut self.right, &keep);
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table without a newline at its end.
    pub(crate) fn text(&self, colour: bool) -> String {
        let mut table = ComfyTable::new();
        table.load_style(TableStyle::default());
        if let Some(heading) = &self.heading {
            table.add_row(heading);
        }
        for row in &self.rows {
            table.add_row(row);
        }
        for (column, right) in table.column_iter_mut().zip(&self.right) {
            column.set_padding((0, 2));
            if *right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines: Vec<String> = table
            .lines()
            .enumerate()
            .map(|(number, line)| {
                let is_heading = number == 0 && self.heading.is_some();
                finish(line.trim_end(), is_heading, colour)
            })
            .collect();
        lines.join("\n")
    }
}

fn retain<T>(items: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    items.retain(|_| keep.next().copied().unwrap_or(true));
}

/// Escapes a cell unless `Tone::paint` already did.
fn clean_cell(cell: &str) -> String {
    let painted = TONES.iter().any(|(_, mark, _)| cell.starts_with(*mark)) && cell.ends_with(END);
    if painted { cell.to_owned() } else { clean(cell).into_owned() }
}

/// Turns marks into colours, or takes them out.
fn finish(line: &str, is_heading: bool, colour: bool) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        let code = if c == END {
            Some("\x1b[0m")
        } else {
            TONES.iter().find(|(_, mark, _)| *mark == c).map(|(.., code)| *code)
        };
        match code {
            Some(code) if colour => out.push_str(code),
            Some(_) => {},
            None => out.push(c),
        }
    }
    if is_heading && colour { format!("\x1b[1m{out}\x1b[0m") } else { out }
}
