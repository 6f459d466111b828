//! What people and scripts see: lines, tables, JSON, colours and progress.

mod table;
mod progress;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

pub(crate) use progress::Progress;
pub(crate) use table::{Table, Tone};

use crate::tool::spelled;

/// Where answers go: data to standard output, everything else to standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) json: bool,
    colour: bool,
}

impl Output {
    /// Colours only on a terminal, and not when `NO_COLOR` or a dumb terminal forbids them.
    pub(crate) fn new(json: bool, colour_permitted: bool) -> Self {
        Self { json, colour: colour_permitted && io::stdout().is_terminal() }
    }

    /// The body as the host sent it, or what `render` makes of it.
    pub(crate) fn show<T: Serialize>(
        &self,
        body: &T,
        render: impl FnOnce(&T) -> Page,
    ) -> anyhow::Result<()> {
        if self.json { self.json(body) } else { self.page(&render(body)) }
    }

    /// One JSON value: on one line for scripts, indented for a terminal.
    pub(crate) fn json<T: Serialize>(&self, body: &T) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if io::stdout().is_terminal() {
            serde_json::to_writer_pretty(&mut out, body).map_err(io::Error::from)?;
        } else {
            serde_json::to_writer(&mut out, body).map_err(io::Error::from)?;
        }
        writeln!(out)?;
        Ok(())
    }

    /// Bytes as they are.
    #[expect(clippy::unused_self, reason = "everything printed goes through here")]
    pub(crate) fn raw(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()?;
        Ok(())
    }

    pub(crate) fn page(&self, page: &Page) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(page.text(self.colour).as_bytes())?;
        out.flush()?;
        Ok(())
    }
}

/// A remark for people, on standard error.
pub(crate) fn remark(text: &str) {
    // Nobody is left to tell when standard error is gone.
    let _gone = writeln!(io::stderr().lock(), "{}", spelled(text));
}

/// Something to read from top to bottom: lines and tables.
#[derive(Debug, Default)]
pub(crate) struct Page {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Line(String),
    Table(Table),
}

impl Page {
    /// A line; what came from outside in it is escaped.
    #[must_use]
    pub(crate) fn line(mut self, text: impl Into<String>) -> Self {
        let text: String = text.into();
        self.parts.push(Part::Line(clean(&text).into_owned()));
        self
    }

    #[must_use]
    pub(crate) fn blank(mut self) -> Self {
        self.parts.push(Part::Line(String::new()));
        self
    }

    #[must_use]
    pub(crate) fn table(mut self, table: Table) -> Self {
        self.parts.push(Part::Table(table));
        self
    }

    /// This page, then another.
    #[must_use]
    pub(crate) fn then(mut self, mut other: Self) -> Self {
        self.parts.append(&mut other.parts);
        self
    }

    /// Lines of `name  value`, aligned.
    #[must_use]
    pub(crate) fn facts<const N: usize>(self, facts: [(&str, String); N]) -> Self {
        let mut table = Table::facts();
        for (name, value) in facts {
            table.row([name.to_owned(), value]);
        }
        self.table(table)
    }

    pub(crate) fn text(&self, colour: bool) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Line(line) => text.push_str(&spelled(line)),
                Part::Table(table) => text.push_str(&table.text(colour)),
            }
            text.push('\n');
        }
        text
    }
}

/// The text without anything that moves the cursor, recolours or reorders a terminal.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unsafe) {
        Cow::Owned(text.chars().fold(String::new(), |mut out, c| {
            if is_unsafe(c) {
                out.extend(c.escape_default())
            } else {
                out.push(c)
            }
            out
        }))
    } else {
        Cow::Borrowed(text)
    }
}

/// Control characters, and the invisible ones that reorder text or that `table` uses as marks.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_text_cannot_reach_the_terminal() {
        assert_eq!(clean("plain größe"), "plain größe");
        assert_eq!(clean("a\x1b[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(clean("a\u{202e}b\u{2061}"), "a\\u{202e}b\\u{2061}");
    }

    #[test]
    fn pages_read_from_top_to_bottom() {
        let mut table = Table::new(["NODE", "GPUS>"]);
        table.row(["node1".to_owned(), "8".to_owned()]);
        table.row(["a\x07".to_owned(), "16".to_owned()]);
        let page = Page::default().line("2 nodes").table(table).facts([("data", "/x".to_owned())]);
        assert_eq!(
            page.text(false),
            "2 nodes\nNODE    GPUS\nnode1      8\na\\u{7}    16\ndata  /x\n"
        );
    }

    #[test]
    fn columns_without_values_are_left_out() {
        let mut table = Table::new(["A", "B>", "C>"]);
        table.row(["x".to_owned(), "-".to_owned(), "1".to_owned()]);
        table.row(["y".to_owned(), "-".to_owned(), "-".to_owned()]);
        assert_eq!(table.without_empty_columns().text(false), "A  C\nx  1\ny  -");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let mut table = Table::new(["NODE", "STATE", "GPUS>"]);
        table.row(["n1".to_owned(), Tone::Bad.paint("down"), "8".to_owned()]);
        assert_eq!(table.text(false), "NODE  STATE  GPUS\nn1    down      8");
        assert_eq!(
            table.text(true),
            "\x1b[1mNODE  STATE  GPUS\x1b[0m\nn1    \x1b[31mdown\x1b[0m      8"
        );
    }
}
