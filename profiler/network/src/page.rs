//! A result as lines and rows: with fitting units for people, exact for programs.

use flowtrace_schema::Value;

use super::run::{Coverage, Known, Mode, Run, Unknown};
use super::wording::{listed, number, seconds};
use flowtrace_render::plot::Picture;
use flowtrace_render::units;

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(String),
    /// A count.
    Count(u64),
    /// Bytes.
    Bytes(f64),
    /// A duration, s.
    Seconds(f64),
    /// An instant, ns since the start of the trace.
    Instant(i64),
    /// A rate, per second.
    PerSecond(f64),
    /// Bytes per second.
    BytesPerSecond(f64),
    /// A frequency.
    Hertz(f64),
    /// A number without unit.
    Number(f64),
    /// A share, 0 to 1.
    Share(f64),
    /// Yes or no.
    Flag(bool),
    /// An unknown value.
    Unknown,
}

impl Cell {
    /// Text for people.
    pub fn shown(&self) -> String {
        match self {
            Cell::Text(text) => units::plain(text),
            Cell::Count(n) => units::count(*n as i64),
            Cell::Bytes(b) => units::bytes(b.round() as i64),
            Cell::Seconds(s) => seconds(*s),
            Cell::Instant(ns) => seconds(*ns as f64 / 1e9),
            Cell::PerSecond(rate) => format!("{}/s", number(*rate)),
            Cell::BytesPerSecond(rate) => format!("{}/s", units::bytes(rate.round() as i64)),
            Cell::Hertz(hz) => format!("{} Hz", number(*hz)),
            Cell::Number(x) => number(*x),
            Cell::Share(share) => format!("{:.1} %", share * 100.0),
            Cell::Flag(flag) => if *flag { "yes" } else { "no" }.into(),
            Cell::Unknown => "unknown".into(),
        }
    }

    /// Value for programs.
    pub fn value(&self) -> Value {
        let real = |x: f64| {
            if x.is_finite() {
                Value::Real(x)
            } else {
                Value::Null
            }
        };
        match self {
            Cell::Text(text) => Value::Text(text.clone()),
            Cell::Count(n) => Value::Integer(*n as i64),
            Cell::Bytes(b) => Value::Integer(b.round() as i64),
            Cell::Instant(ns) => Value::Integer(*ns),
            Cell::Flag(flag) => Value::Integer(i64::from(*flag)),
            Cell::Seconds(x)
            | Cell::PerSecond(x)
            | Cell::BytesPerSecond(x)
            | Cell::Hertz(x)
            | Cell::Number(x)
            | Cell::Share(x) => real(*x),
            Cell::Unknown => Value::Null,
        }
    }

    fn is_number(&self) -> bool {
        !matches!(self, Cell::Text(_) | Cell::Flag(_))
    }
}

/// Number of rows shown to people unless all are wanted. Programs get every row.
const SHOWN: usize = 100;

/// Rows with the names of their columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Names of the columns, with units.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// A result ready to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The answer, in lines.
    pub lines: Vec<String>,
    /// Names of the columns for programs, with units.
    pub columns: Vec<&'static str>,
    /// Rows.
    pub rows: Vec<Vec<Cell>>,
    /// A picture and rows for people, if there are too many rows to read.
    pub for_people: Option<(String, Rows)>,
    /// Notes on the limits of the answer.
    pub notes: Vec<String>,
    /// The answer as a drawing, if wanted.
    pub picture: Option<Picture>,
    /// The interval, ns.
    pub span_ns: (i64, i64),
    /// The reason why there is no answer.
    pub unknown: Option<String>,
    /// Packets on which the answer is based.
    pub coverage: Coverage,
    /// Mode of the analysis.
    pub mode: Mode,
}

impl Page {
    /// An empty page about a run.
    pub fn new(run: &Run, columns: &[&'static str]) -> Page {
        Page {
            columns: columns.to_vec(),
            span_ns: run.span_ns(),
            coverage: run.coverage(),
            mode: run.settings.mode,
            ..Page::default()
        }
    }

    /// A page with the reason why there is no answer.
    pub fn unknown(run: &Run, unknown: &Unknown) -> Page {
        Page {
            lines: vec![unknown.to_string()],
            unknown: Some(unknown.reason.clone()),
            ..Page::new(run, &[])
        }
    }

    /// Sets the interval and the coverage from an answer.
    #[must_use]
    pub fn about<T>(mut self, known: &Known<T>) -> Page {
        self.span_ns = (known.t0_ns, known.t1_ns);
        self.coverage = known.coverage.clone();
        self
    }

    /// The page as text: answer, table, notes. If there are many rows, the first are shown, or the
    /// picture in their place, unless `full` is set.
    pub fn text(&self, full: bool) -> String {
        let mut text = String::new();
        for line in &self.lines {
            text += line;
            text.push('\n');
        }
        if !self.rows.is_empty() && !self.lines.is_empty() {
            text.push('\n');
        }
        let (columns, rows) = match &self.for_people {
            Some((picture, few)) if !full => {
                text += picture;
                (&few.columns, &few.rows)
            }
            _ => (&self.columns, &self.rows),
        };
        let shown = if full { rows.len() } else { SHOWN };
        text += &table(columns, &rows[..rows.len().min(shown)]);
        if self.for_people.is_some() && !full {
            let count = units::count(self.rows.len() as i64);
            text += &format!("  all {count} rows: --full, or --format csv\n");
        } else if rows.len() > shown {
            let more = units::count((rows.len() - shown) as i64);
            text += &format!("  +{more} more rows: --full, or --format csv\n");
        }
        let notes = self.notes.iter().cloned().chain(self.coverage_notes());
        for note in notes {
            text += &format!("note: {note}\n");
        }
        text
    }

    fn coverage_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let coverage = &self.coverage;
        if !coverage.without_capture.is_empty() && self.unknown.is_none() {
            notes.push(format!(
                "without a capture of their own, seen from their partners: {}",
                listed(&coverage.without_capture, ", ")
            ));
        }
        notes
    }
}

/// Rows under the names of their columns; empty if there are no rows.
fn table(columns: &[&'static str], rows: &[Vec<Cell>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let shown: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(Cell::shown).collect())
        .collect();
    let headers: Vec<String> = columns.iter().map(|name| header(name)).collect();
    let width = |column: usize| {
        let cells = shown.iter().filter_map(|row| row.get(column));
        cells
            .chain([&headers[column]])
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let is_right = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        cells.any(|cell| cell.is_number() && *cell != Cell::Unknown)
    };
    let are_right: Vec<bool> = (0..headers.len()).map(is_right).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if are_right[column] {
                units::right(cell, width)
            } else {
                units::left(cell, width)
            }
        });
        let joined: Vec<String> = padded.collect();
        format!("  {}\n", joined.join("  ")).trim_end().to_owned() + "\n"
    };
    let mut text = line(&headers);
    for row in &shown {
        text += &line(row);
    }
    text
}

/// A column's name for people: without the unit, which each value has.
fn header(name: &str) -> String {
    let units = ["_s", "_ns", "_bytes", "_hz", "_per_s", "_bytes_per_s"];
    let mut bare = name;
    for unit in units {
        if let Some(rest) = name.strip_suffix(unit)
            && rest.len() < bare.len()
        {
            bare = rest;
        }
    }
    bare.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_fitting_units() {
        for (cell, text) in [
            (Cell::Seconds(0.000_001_5), "1.500 µs"),
            (Cell::Seconds(0.0123), "12.30 ms"),
            (Cell::Seconds(-1.5), "-1.500 s"),
            (Cell::Seconds(125.0), "2 min 05 s"),
            (Cell::Bytes(1_500_000.0), "1.5 MB"),
            (Cell::Hertz(0.244), "0.2440 Hz"),
            (Cell::Share(0.5), "50.0 %"),
            (Cell::Unknown, "unknown"),
            (Cell::Number(f64::INFINITY), "∞"),
        ] {
            assert_eq!(cell.shown(), text);
        }
        assert_eq!(Cell::Number(f64::NAN).value(), Value::Null);
    }

    #[test]
    fn a_table_stands_in_columns() {
        let page = Page {
            lines: vec!["answer".into()],
            columns: vec!["src", "time_s"],
            rows: vec![
                vec![Cell::Text("a".into()), Cell::Seconds(1.0)],
                vec![Cell::Text("long".into()), Cell::Unknown],
            ],
            notes: vec!["careful".into()],
            ..Page::default()
        };
        let expected =
            "answer\n\n  src      time\n  a     1.000 s\n  long  unknown\nnote: careful\n";
        assert_eq!(page.text(false), expected);
        let many = Page {
            rows: vec![vec![Cell::Text("a".into()), Cell::Unknown]; 150],
            ..page
        };
        let lines = |full| many.text(full).lines().count();
        assert_eq!((lines(false), lines(true)), (105, 154));
        assert!(many.text(false).contains("+50 more rows: --full"));
    }
}
