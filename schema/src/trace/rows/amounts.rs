//! Checks of the numbers of a trace: others can write one, and sums and differences of its values must not
//! overflow.

use std::sync::Arc;

use rusqlite::types::{FromSql, Type};
use rusqlite::{Error, Result, Row};

/// A value that a recording can have made.
pub(in super::super) trait Sound {
    fn is_sound(&self) -> bool {
        true
    }
}

impl Sound for String {}
impl Sound for Option<String> {}
impl Sound for Arc<str> {}
impl Sound for Option<Arc<str>> {}
impl Sound for Vec<u8> {}
impl Sound for bool {}

/// The greatest time, size and count: 9 years or 0.3 EB. Differences and sums of several of them are numbers, too.
const MOST: i64 = 1 << 58;

impl Sound for i64 {
    fn is_sound(&self) -> bool {
        (-MOST..=MOST).contains(self)
    }
}

impl Sound for Option<i64> {
    fn is_sound(&self) -> bool {
        self.is_none_or(|value| value.is_sound())
    }
}

/// True if a column of this name is a time of the run, a size or a count; other columns are names, ids and
/// values chosen by programs.
pub(super) const fn is_amount(name: &str) -> bool {
    let name = name.as_bytes();
    !begins(name, b"started_unix")
        && !begins(name, b"epoch_unix")
        && (ends(name, b"_ns")
            || ends(name, b"bytes")
            || ends(name, b"packets")
            || ends(name, b"calls")
            || ends(name, b"samples")
            || ends(name, b"faults")
            || ends(name, b"switches")
            || ends(name, b"threads")
            || ends(name, b"waits"))
}

const fn begins(name: &[u8], with: &[u8]) -> bool {
    match name.split_at_checked(with.len()) {
        Some((begin, _)) => same(begin, with),
        None => false,
    }
}

const fn ends(name: &[u8], with: &[u8]) -> bool {
    match name.len().checked_sub(with.len()) {
        Some(at) => same(name.split_at(at).1, with),
        None => false,
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < b.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The error of a column whose value is no time, size or count.
fn impossible(place: usize, name: &str) -> Error {
    let what = format!("{name} is greater than any recording has it");
    Error::FromSqlConversionFailure(place, Type::Integer, what.into())
}

/// The value of a column.
pub(in super::super) fn read<T: FromSql + Sound>(
    row: &Row<'_>,
    place: usize,
    name: &str,
    is_amount: bool,
) -> Result<T> {
    let value = row.get(place)?;
    match is_amount {
        true => checked(value, place, name),
        false => Ok(value),
    }
}

/// A time, size or count, if it can be one.
/// If no recording has it.
/// # Errors
/// When no recording has it.
pub(in super::super) fn checked<T: Sound>(value: T, place: usize, name: &str) -> Result<T> {
    match value.is_sound() {
        true => Ok(value),
        false => Err(impossible(place, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_known_by_their_names() {
        for name in ["start_ns", "bytes", "read_bytes", "packets", "calls"] {
            assert!(is_amount(name), "{name}");
        }
        for name in [
            "started_unix_ns",
            "inode",
            "offset",
            "result",
            "_n",
            "value",
        ] {
            assert!(!is_amount(name), "{name}");
        }
        assert!((-MOST).is_sound() && !i64::MIN.is_sound() && !(MOST + 1).is_sound());
        assert!(None::<i64>.is_sound() && !Some(i64::MAX).is_sound());
    }
}
