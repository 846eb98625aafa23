//! A table with units, aligned for people and exact for programs.

use std::io::{self, Write};

use flowtrace_render::units::{self, Unit};
use flowtrace_schema::{Table, Value};

use super::rows::{Csv, Json};

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// Title of the table, one line.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Sum of the rows, if the table has one. People see it below the rows. Programs get it as the last
    /// row, and with it a column `is_total`, which is 1 for this row alone.
    pub total: Option<Vec<Cell>>,
    /// Remarks below the table, for people.
    pub notes: Vec<String>,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name for programs, with the unit.
    pub name: &'static str,
    /// Name for people, to whom the unit is shown with the values. Empty if the column is not shown to
    /// them.
    pub label: &'static str,
    /// Unit of the values.
    pub unit: Unit,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value, or an unknown one.
    Null,
    /// Text.
    Text(String),
    /// Whole number.
    Integer(i64),
    /// Real number.
    Real(f64),
}

impl From<i64> for Cell {
    fn from(n: i64) -> Self {
        Cell::Integer(n)
    }
}

impl From<f64> for Cell {
    fn from(x: f64) -> Self {
        Cell::Real(x)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// Widest column of text, in characters. The last column may be wider.
const WIDEST: usize = 28;

impl Sheet {
    /// A table without rows. Columns are (name, label, unit).
    pub fn new(title: impl Into<String>, columns: &[(&'static str, &'static str, Unit)]) -> Sheet {
        let column = |&(name, label, unit)| Column { name, label, unit };
        Sheet {
            title: title.into(),
            columns: columns.iter().map(column).collect(),
            ..Sheet::default()
        }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// The table for people: at most `most` rows, and the number of further rows.
    pub fn text(&self, width: usize, most: usize) -> String {
        let mut text = format!("{}\n", self.title);
        if self.rows.is_empty() {
            text += "  none\n";
        } else {
            text += &self.lines(width, most);
        }
        for note in &self.notes {
            text += &format!("  {note}\n");
        }
        text
    }

    fn lines(&self, width: usize, most: usize) -> String {
        let columns: Vec<usize> = (0..self.columns.len())
            .filter(|&i| !self.columns[i].label.is_empty())
            .collect();
        let last = columns.len().saturating_sub(1);
        let cells = |row: &Vec<Cell>| {
            let cell = |&i: &usize| self.shown(&row[i], self.columns[i].unit);
            columns.iter().map(cell).collect()
        };
        let rows: Vec<Vec<String>> = self.rows.iter().take(most).map(cells).collect();
        let total: Option<Vec<String>> = self.total.as_ref().map(cells);
        let columns: Vec<Column> = columns.iter().map(|&i| self.columns[i]).collect();
        let widths: Vec<usize> = (0..=last)
            .map(|i| {
                let cells = rows.iter().chain(&total);
                let cells = cells.map(|row| row[i].chars().count()).max();
                let widest = if i == last { usize::MAX } else { WIDEST };
                cells
                    .unwrap_or(0)
                    .min(widest)
                    .max(columns[i].label.chars().count())
            })
            .collect();
        let labels: Vec<String> = columns.iter().map(|c| c.label.to_string()).collect();
        let mut text = line(&columns, &labels, &widths, width);
        for row in &rows {
            text += &line(&columns, row, &widths, width);
        }
        let left = self.rows.len() - rows.len();
        if left > 0 {
            text += &format!("  +{} more\n", units::count(left as i64));
        }
        if let Some(total) = &total {
            text += &line(&columns, total, &widths, width);
        }
        text
    }

    fn shown(&self, cell: &Cell, unit: Unit) -> String {
        match (cell, unit) {
            (Cell::Null, _) => "-".into(),
            (Cell::Text(text), _) => units::plain(text),
            (Cell::Integer(n), Unit::Ns) => units::duration(*n),
            (Cell::Integer(n), Unit::At(begins)) => units::since_begin(*n, begins),
            (Cell::Integer(0), Unit::Bytes) => "-".into(),
            (Cell::Integer(n), Unit::Bytes) => units::bytes(*n),
            (Cell::Integer(n), Unit::Rate) => format!("{}/s", units::bytes(*n)),
            (Cell::Integer(n), _) => units::count(*n),
            (Cell::Real(x), Unit::Share) => units::share(*x),
            (Cell::Real(x), Unit::Ns) => units::duration(x.round() as i64),
            (Cell::Real(x), Unit::Bytes) => units::bytes(x.round() as i64),
            (Cell::Real(x), Unit::Rate) => format!("{}/s", units::bytes(x.round() as i64)),
            (Cell::Real(x), _) => format!("{x:.3}"),
        }
    }

    /// Writes the rows for programs.
    ///
    /// # Errors
    /// When `table` refuses.
    pub fn write(&self, table: &mut dyn Table) -> io::Result<()> {
        let mark = self.total.as_ref().map(|_| "is_total");
        let names = self.columns.iter().map(|c| c.name).chain(mark);
        let names: Vec<String> = names.map(String::from).collect();
        table.columns(&names)?;
        for (at, row) in self.rows.iter().chain(&self.total).enumerate() {
            let is_total = Value::Integer(i64::from(at == self.rows.len()));
            let value = |cell: &Cell| match cell {
                Cell::Null => Value::Null,
                Cell::Text(text) => Value::Text(text.clone()),
                Cell::Integer(n) => Value::Integer(*n),
                Cell::Real(x) => Value::Real(*x),
            };
            let row = row.iter().map(value);
            table.row(row.chain(mark.map(|_| is_total)).collect())?;
        }
        Ok(())
    }

    /// Writes CSV.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn csv(&self, out: impl Write) -> io::Result<()> {
        self.write(&mut Csv::new(out))
    }

    /// Writes a JSON array of objects.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn json(&self, out: impl Write) -> io::Result<()> {
        let mut json = Json::new(out);
        self.write(&mut json)?;
        json.finish()
    }
}

fn line(columns: &[Column], cells: &[String], widths: &[usize], width: usize) -> String {
    let mut line = String::new();
    for (i, (cell, &wide)) in cells.iter().zip(widths).enumerate() {
        line += "  ";
        line += &match columns[i].unit {
            Unit::Path if i + 1 == cells.len() => {
                let space = width.saturating_sub(line.chars().count()).max(16);
                units::shorten_path(cell, space)
            }
            Unit::Path => units::left(&units::shorten_path(cell, wide), wide),
            Unit::Text => units::left(&units::shorten(cell, wide.max(8)), wide),
            _ => units::right(cell, wide),
        };
    }
    format!("{}\n", units::shorten(line.trim_end(), width.max(40)))
}
