//! Forms in which values travel to another process of this program, and back.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use rusqlite::ffi;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One of the few texts that the program itself contains, or that were made for its whole life.
pub type Constant = &'static str;

/// Reads a [`Constant`]. Each distinct one is kept once, for ever.
pub(crate) fn constant<'de, D: Deserializer<'de>>(from: D) -> Result<Constant, D::Error> {
    Ok(kept(String::deserialize(from)?))
}

/// Reads a [`Constant`] that may be missing.
pub(crate) fn optional_constant<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Constant>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(kept))
}

fn kept(text: String) -> Constant {
    static KEPT: Mutex<Option<HashSet<Constant>>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(known) = kept.get(text.as_str()) {
        return known;
    }
    let text = text.leak();
    kept.insert(text);
    text
}

/// Paths: their bytes, which need not be UTF-8.
pub(crate) mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use super::*;

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        Ok(OsString::from_vec(bytes).into())
    }
}

/// Errors of the system: number, if there is one, or text.
pub(crate) mod io_error {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(error: &io::Error, to: S) -> Result<S::Ok, S::Error> {
        (error.raw_os_error(), error.to_string()).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<io::Error, D::Error> {
        let (number, text) = <(Option<i32>, String)>::deserialize(from)?;
        Ok(number.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error))
    }
}

/// Errors of SQLite: extended code, if there is one, and text.
pub(crate) mod sqlite_error {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        error: &rusqlite::Error,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let code = error.sqlite_error().map(|error| error.extended_code);
        (code.unwrap_or(ffi::SQLITE_ERROR), error.to_string()).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<rusqlite::Error, D::Error> {
        let (code, text) = <(i32, String)>::deserialize(from)?;
        let code = ffi::Error::new(code);
        Ok(rusqlite::Error::SqliteFailure(code, Some(text)))
    }
}
