//! The result of a query in formats for people and programs. Each format takes rows one by one.

mod csv;
mod json;
mod table;

pub use csv::Csv;
pub use json::{Json, JsonLines};
pub use table::AlignedTable;

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// A real number in the shortest form that reads back as the same number and is never an integer.
fn real(value: f64) -> String {
    match value {
        value if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        value => format!("{value:?}"),
    }
}
