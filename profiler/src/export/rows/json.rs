//! JSON: an array of objects, or one object per line. Columns keep their order. If two columns have one
//! name, the second gets `_2`. Blobs are strings of hexadecimal digits; infinities are the strings
//! `Infinity` and `-Infinity`.

use std::io::{Result, Write};

use flowtrace_schema::{Table, Value};

use super::{hex, real};

/// Writes one JSON array. [`Json::finish`] closes it.
#[derive(Debug)]
pub struct Json<W> {
    out: W,
    keys: Vec<String>,
    is_first: bool,
}

/// Writes one JSON object per line.
#[derive(Debug)]
pub struct JsonLines<W> {
    out: W,
    keys: Vec<String>,
}

impl<W: Write> Json<W> {
    /// A writer to `out`.
    pub fn new(out: W) -> Self {
        Json {
            out,
            keys: Vec::new(),
            is_first: true,
        }
    }

    /// Closes the array.
    ///
    /// # Errors
    /// When the output fails.
    pub fn finish(mut self) -> Result<()> {
        self.out
            .write_all(if self.is_first { b"[]\n" } else { b"\n]\n" })
    }
}

impl<W: Write> JsonLines<W> {
    /// A writer to `out`.
    pub fn new(out: W) -> Self {
        JsonLines {
            out,
            keys: Vec::new(),
        }
    }
}

impl<W: Write> Table for Json<W> {
    fn columns(&mut self, names: &[String]) -> Result<()> {
        self.keys = keys(names);
        Ok(())
    }

    fn row(&mut self, values: Vec<Value>) -> Result<()> {
        self.out
            .write_all(if self.is_first { b"[\n  " } else { b",\n  " })?;
        self.is_first = false;
        object(&mut self.out, &self.keys, values)
    }
}

impl<W: Write> Table for JsonLines<W> {
    fn columns(&mut self, names: &[String]) -> Result<()> {
        self.keys = keys(names);
        Ok(())
    }

    fn row(&mut self, values: Vec<Value>) -> Result<()> {
        object(&mut self.out, &self.keys, values)?;
        self.out.write_all(b"\n")
    }
}

/// The names as JSON strings, made unique.
fn keys(names: &[String]) -> Vec<String> {
    let mut unique: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        let mut key = name.clone();
        let mut n = 2;
        while unique.contains(&key) {
            key = format!("{name}_{n}");
            n += 1;
        }
        unique.push(key);
    }
    unique.iter().map(|key| string(key)).collect()
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn object(out: &mut impl Write, keys: &[String], values: Vec<Value>) -> Result<()> {
    let mut separator = "{";
    for (key, value) in keys.iter().zip(values) {
        let value = match value {
            Value::Null => "null".into(),
            Value::Integer(n) => n.to_string(),
            Value::Real(x) if x.is_finite() => real(x),
            Value::Real(x) => string(&real(x)),
            Value::Text(text) => string(&text),
            Value::Blob(bytes) => string(&hex(&bytes)),
        };
        write!(out, "{separator}{key}:{value}")?;
        separator = ",";
    }
    out.write_all(b"}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_as_json() {
        let mut out = Vec::new();
        let mut json = Json::new(&mut out);
        json.columns(&["a".into(), "a".into()]).unwrap();
        json.row(vec![
            Value::Integer(i64::MAX),
            Value::Text("\"\u{1}".into()),
        ])
        .unwrap();
        json.row(vec![Value::Real(f64::INFINITY), Value::Blob(vec![1])])
            .unwrap();
        json.finish().unwrap();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read[0]["a"], i64::MAX);
        assert_eq!(read[0]["a_2"], "\"\u{1}");
        assert_eq!(
            (&read[1]["a"], &read[1]["a_2"]),
            (&"Infinity".into(), &"01".into())
        );
    }

    #[test]
    fn no_row_is_an_empty_array() {
        let mut out = Vec::new();
        Json::new(&mut out).finish().unwrap();
        assert_eq!(out, b"[]\n");
    }
}
