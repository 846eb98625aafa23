//! A small table for people: a header, columns as wide as they need to be.

use crate::units;

/// Greatest number of characters shown of a cell: the widest cell decides the width of its column in every
/// row.
const WIDEST: usize = 240;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows that are written when all are known.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        Table {
            columns: columns
                .iter()
                .map(|&(name, align)| (name.into(), align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        let shown = |cell: String| units::shorten(&units::plain(&cell), WIDEST);
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// True if the table has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table, each line begun by `indent`. Columns that are empty throughout are left out.
    pub fn finish(&self, indent: &str) -> String {
        let cell = |row: &Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default();
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|&at| self.rows.iter().any(|row| !cell(row, at).is_empty()))
            .collect();
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| cell(row, at).chars().count());
            cells
                .chain([self.columns[at].0.chars().count()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = shown.iter().map(|&at| width(at)).collect();
        let line = |cells: Vec<String>| {
            let mut text = String::from(indent);
            for (i, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                if i > 0 {
                    text += "  ";
                }
                text += &match self.columns[shown[i]].1 {
                    Align::Left => units::left(cell, *width),
                    Align::Right => units::right(cell, *width),
                };
            }
            format!("{}\n", text.trim_end())
        };
        let mut text = line(shown.iter().map(|&at| self.columns[at].0.clone()).collect());
        for row in &self.rows {
            text += &line(shown.iter().map(|&at| cell(row, at)).collect());
        }
        text
    }
}

/// The line under a table of `shown` rows with the number of rows that are not shown; empty where all are.
pub fn more(rows: usize, shown: usize) -> String {
    match rows.saturating_sub(shown) {
        0 => String::new(),
        n => format!("  +{n} more: --format json\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_needed_and_empty_ones_left_out() {
        let columns = [
            ("step", Align::Left),
            ("none", Align::Left),
            ("n", Align::Right),
        ];
        let mut table = Table::new(&columns);
        table.row(vec!["a".into(), String::new(), "100".into()]);
        table.row(vec!["long".into(), String::new(), "7".into()]);
        assert_eq!(table.finish(" "), " step    n\n a     100\n long    7\n");
    }

    #[test]
    fn a_cell_of_any_length_and_content_is_shown() {
        let mut table = Table::new(&[("step", Align::Left), ("n", Align::Right)]);
        table.row(vec!["x".repeat(100_000), "\u{1b}[2J\n".into()]);
        let text = table.finish("");
        assert!(text.contains("x…  \u{fffd}[2J\u{fffd}\n"), "{text}");
        assert_eq!(text.lines().count(), 2);
        assert!(text.len() < 1000);
    }
}
