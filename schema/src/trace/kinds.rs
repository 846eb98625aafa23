//! What the columns of the views hold, for formats that want to know before the first row.

use super::{Error, Result, Trace};

/// What a column holds beside NULL.
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

/// Of an expression SQLite knows at most an affinity, which is BLOB for want of a better one. These are
/// texts, and what is not named here is an integer.
const TEXTS: [&str; 8] = [
    "dst_kind", "evidence", "kind", "part", "reason", "relation", "side", "src_kind",
];
/// And these are real numbers.
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
    /// The columns of view `view` in order, and what each holds.
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
