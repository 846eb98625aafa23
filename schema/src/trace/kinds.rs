//! Types of the columns of the views, for formats that need them before the first row.

use super::{Error, Result, Trace};

/// Type of the values of a column that are not NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers of 64 bits.
    Integer,
    /// Floating point numbers.
    Real,
    /// Texts.
    Text,
    /// Bytes.
    Blob,
}

/// For an expression SQLite knows an affinity at most, which is BLOB if there is no better one. The columns
/// named here are texts; any other such column is an integer.
const TEXTS: [&str; 8] = [
    "dst_kind", "evidence", "kind", "part", "reason", "relation", "side", "src_kind",
];
/// Columns of real numbers.
const REALS: [&str; 1] = ["confidence"];

fn kind(name: &str, declared: &str) -> Kind {
    match declared {
        _ if name.ends_with("_raw") => Kind::Blob,
        _ if TEXTS.contains(&name) => Kind::Text,
        _ if REALS.contains(&name) => Kind::Real,
        "TEXT" => Kind::Text,
        _ => Kind::Integer,
    }
}

impl Trace {
    /// The columns of view `view` in order, with their types.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn column_kinds(&self, view: &str) -> Result<Vec<(String, Kind)>> {
        let read = || -> rusqlite::Result<Vec<(String, Kind)>> {
            let mut statement = self
                .db
                .prepare("SELECT name, type FROM pragma_table_info(?1) ORDER BY cid")?;
            let columns = statement.query_map([view], |row| {
                let (name, declared): (String, String) = (row.get(0)?, row.get(1)?);
                Ok((kind(&name, &declared), name))
            })?;
            columns
                .map(|column| column.map(|(kind, name)| (name, kind)))
                .collect()
        };
        read().map_err(|source| -> Error { self.unreadable(source) })
    }
}
