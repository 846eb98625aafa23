//! An aligned table. Numbers are aligned to the right, NULL is `NULL`, and control characters are shown
//! as escapes, so that no file name controls the terminal.

use std::io::{Result, Write};

use flowtrace_render::units;
use flowtrace_schema::{Table, Value};

use super::{hex, real};

/// Number of rows read before the widths are fixed. Later rows that are wider push their columns.
const ROWS_FOR_WIDTHS: usize = 1000;
/// Bytes of waiting rows after which the widths are fixed, however few the rows are.
const WAITING: usize = 8 << 20;
/// Width of the widest column. Longer cells push the rest of their row.
const WIDEST: usize = 80;

/// Writes an aligned table. [`AlignedTable::finish`] writes the rows that still wait.
#[derive(Debug)]
pub struct AlignedTable<W> {
    out: W,
    names: Vec<String>,
    waiting: Vec<Vec<Cell>>,
    waiting_bytes: usize,
    widths: Option<Vec<usize>>,
}

#[derive(Debug)]
struct Cell {
    text: String,
    is_number: bool,
}

impl<W: Write> AlignedTable<W> {
    /// A writer to `out`.
    pub fn new(out: W) -> Self {
        AlignedTable {
            out,
            names: Vec::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            widths: None,
        }
    }

    /// Writes the rows that waited for the widths.
    ///
    /// # Errors
    /// When the output fails.
    pub fn finish(mut self) -> Result<()> {
        self.fix_widths()
    }

    fn fix_widths(&mut self) -> Result<()> {
        if self.widths.is_some() {
            return Ok(());
        }
        let mut widths: Vec<usize> = self.names.iter().map(|name| units::columns(name)).collect();
        // A header is aligned as its values, so to the right if the first value is a number.
        let mut header: Vec<Cell> = Vec::new();
        for (i, name) in self.names.iter().enumerate() {
            let mut column = self.waiting.iter().map(|row| &row[i]);
            let is_number = column.clone().any(|cell| cell.is_number)
                && column.all(|cell| cell.is_number || cell.text == "NULL");
            header.push(Cell {
                text: name.clone(),
                is_number,
            });
        }
        for row in &self.waiting {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(units::columns(&cell.text).min(WIDEST));
            }
        }
        line(&mut self.out, &widths, &header)?;
        let rule: Vec<Cell> = widths
            .iter()
            .map(|&width| Cell {
                text: "-".repeat(width),
                is_number: false,
            })
            .collect();
        line(&mut self.out, &widths, &rule)?;
        for row in self.waiting.drain(..) {
            line(&mut self.out, &widths, &row)?;
        }
        self.widths = Some(widths);
        Ok(())
    }
}

impl<W: Write> Table for AlignedTable<W> {
    fn columns(&mut self, names: &[String]) -> Result<()> {
        self.names = names.iter().map(|name| visible(name)).collect();
        Ok(())
    }

    fn row(&mut self, values: Vec<Value>) -> Result<()> {
        let row: Vec<Cell> = values.into_iter().map(cell).collect();
        if let Some(widths) = &self.widths {
            return line(&mut self.out, widths, &row);
        }
        self.waiting_bytes += row.iter().map(|cell| cell.text.len()).sum::<usize>();
        self.waiting.push(row);
        if self.waiting.len() < ROWS_FOR_WIDTHS && self.waiting_bytes < WAITING {
            return Ok(());
        }
        self.fix_widths()
    }
}

fn cell(value: Value) -> Cell {
    let (text, is_number) = match value {
        Value::Null => ("NULL".into(), false),
        Value::Integer(n) => (n.to_string(), true),
        Value::Real(x) => (real(x), true),
        Value::Text(text) => (visible(&text), false),
        Value::Blob(bytes) => (format!("x'{}'", hex(&bytes)), false),
    };
    Cell { text, is_number }
}

/// Shows the characters that [`units::plain`] would replace as escapes: the cell of a query is a value,
/// not a name in a sentence.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match units::is_hidden(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

fn line(out: &mut impl Write, widths: &[usize], cells: &[Cell]) -> Result<()> {
    let mut text = String::new();
    for (i, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        if i > 0 {
            text.push_str("  ");
        }
        let padding = " ".repeat(width.saturating_sub(units::columns(&cell.text)));
        if cell.is_number {
            text += &padding;
            text += &cell.text;
        } else {
            text += &cell.text;
            text += &padding;
        }
    }
    writeln!(out, "{}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_wait_for_the_widths_where_they_are_long() {
        let mut out = Vec::new();
        let mut table = AlignedTable::new(&mut out);
        table.columns(&["a".to_owned()]).unwrap();
        for _ in 0..9 {
            table.row(vec![Value::Text("x".repeat(1 << 20))]).unwrap();
            assert!(table.waiting_bytes < 2 * WAITING && table.waiting.len() < 8);
        }
        table.finish().unwrap();
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 11);
    }

    #[test]
    fn numbers_stand_right_and_text_left() {
        let mut out = Vec::new();
        let mut table = AlignedTable::new(&mut out);
        table.columns(&["rule".into(), "n".into()]).unwrap();
        table
            .row(vec![Value::Text("a\x1bb".into()), Value::Integer(7)])
            .unwrap();
        table.row(vec![Value::Null, Value::Integer(12345)]).unwrap();
        table.finish().unwrap();
        let expected = "\
rule          n
--------  -----
a\\u{1b}b      7
NULL      12345
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
