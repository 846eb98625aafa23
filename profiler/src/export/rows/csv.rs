//! CSV as in RFC 4180: a header, lines ended by CR LF, quotes doubled. NULL is an empty field, while an
//! empty text is `""`.

use std::io::{Result, Write};

use flowtrace_schema::{Table, Value};

use super::{hex, real};

/// Writes CSV.
#[derive(Debug)]
pub struct Csv<W> {
    out: W,
}

impl<W: Write> Csv<W> {
    /// A writer to `out`.
    pub fn new(out: W) -> Self {
        Csv { out }
    }

    fn line(&mut self, fields: impl Iterator<Item = String>) -> Result<()> {
        let fields: Vec<String> = fields.collect();
        write!(self.out, "{}\r\n", fields.join(","))
    }
}

impl<W: Write> Table for Csv<W> {
    fn columns(&mut self, names: &[String]) -> Result<()> {
        self.line(names.iter().map(|name| quoted(name)))
    }

    fn row(&mut self, values: Vec<Value>) -> Result<()> {
        // A line of one empty field would be read as an empty line.
        if values == [Value::Null] {
            return self.line(std::iter::once("\"\"".into()));
        }
        self.line(values.into_iter().map(|value| match value {
            Value::Null => String::new(),
            Value::Integer(n) => n.to_string(),
            Value::Real(x) => real(x),
            Value::Text(text) => quoted(&text),
            Value::Blob(bytes) => format!("x'{}'", hex(&bytes)),
        }))
    }
}

fn quoted(text: &str) -> String {
    if text.is_empty() || text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_rfc_4180() {
        let mut out = Vec::new();
        let mut csv = Csv::new(&mut out);
        csv.columns(&["a".into(), "b,c".into()]).unwrap();
        csv.row(vec![Value::Null, Value::Text(String::new())])
            .unwrap();
        csv.row(vec![Value::Text("x\"y\nz".into()), Value::Real(1.0)])
            .unwrap();
        csv.row(vec![Value::Blob(vec![0, 255]), Value::Integer(-1)])
            .unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "a,\"b,c\"\r\n,\"\"\r\n\"x\"\"y\nz\",1.0\r\nx'00ff',-1\r\n"
        );
    }
}
