//! Texts that many rows share. A view repeats the text of another row, such as the command of a parent, in
//! any number of rows. In memory there is one copy, so that a small trace of one long text and many rows
//! needs little.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Result, Row};

/// The texts of the rows that have been read.
#[derive(Debug, Default)]
pub(in super::super) struct Texts(HashSet<Arc<str>>);

impl Texts {
    /// The text of a column, if another row had it.
    fn known(&self, row: &Row<'_>, place: usize) -> Result<Option<Arc<str>>> {
        let ValueRef::Text(bytes) = row.get_ref(place)? else {
            return Ok(None);
        };
        let text = str::from_utf8(bytes).ok();
        Ok(text.and_then(|text| self.0.get(text)).cloned())
    }

    fn add(&mut self, text: Arc<str>) -> Arc<str> {
        self.0.insert(Arc::clone(&text));
        text
    }
}

/// A value of a row.
pub(in super::super) trait Column: Sized {
    /// Reads the value.
    fn read(row: &Row<'_>, place: usize, texts: &mut Texts) -> Result<Self>;
}

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl Column for $type {
            fn read(row: &Row<'_>, place: usize, _: &mut Texts) -> Result<Self> {
                row.get(place)
            }
        }
    )*};
}

plain!(i64 Option<i64> bool String Option<String> Vec<u8>);

impl Column for Arc<str> {
    fn read(row: &Row<'_>, place: usize, texts: &mut Texts) -> Result<Self> {
        match texts.known(row, place)? {
            Some(text) => Ok(text),
            None => Ok(texts.add(row.get(place)?)),
        }
    }
}

impl Column for Option<Arc<str>> {
    fn read(row: &Row<'_>, place: usize, texts: &mut Texts) -> Result<Self> {
        match texts.known(row, place)? {
            Some(text) => Ok(Some(text)),
            None => Ok(row.get::<_, Self>(place)?.map(|text| texts.add(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn equal_texts_are_in_memory_once() {
        let db = Connection::open_in_memory().unwrap();
        let mut texts = Texts::default();
        let mut read = |sql: &str| {
            db.query_row(sql, [], |row| {
                let whole: Arc<str> = Column::read(row, 0, &mut texts)?;
                let other: Option<Arc<str>> = Column::read(row, 1, &mut texts)?;
                Ok((whole, other))
            })
        };
        let (first, none) = read("SELECT 'a', NULL").unwrap();
        let (second, third) = read("SELECT 'b', 'a'").unwrap();
        assert_eq!((&*first, &*second, none), ("a", "b", None));
        assert!(Arc::ptr_eq(&first, &third.unwrap()));
        for wrong in ["SELECT NULL, 'a'", "SELECT 1, 'a'", "SELECT 'a', x'61'"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
