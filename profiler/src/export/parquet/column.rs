//! The values of one column of a row group.

use flowtrace_schema::{Kind, Value};
use parquet::data_type::ByteArray;

/// A column and the values added to it so far.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// 1 for each row that has a value, 0 for NULL.
    pub(super) levels: Vec<i16>,
    pub(super) values: Values,
}

/// The values that are not NULL.
#[derive(Debug)]
pub(super) enum Values {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

impl Column {
    pub(super) fn new(name: String, kind: Kind) -> Column {
        Column {
            name,
            kind,
            levels: Vec::new(),
            values: match kind {
                Kind::Integer => Values::Integers(Vec::new()),
                Kind::Real => Values::Reals(Vec::new()),
                Kind::Text | Kind::Blob => Values::Bytes(Vec::new()),
            },
        }
    }

    /// A column of the same kind without values.
    pub(super) fn emptied(&self) -> Column {
        Column::new(self.name.clone(), self.kind)
    }

    /// Removes the values and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Integers(values) => values.clear(),
            Values::Reals(values) => values.clear(),
            Values::Bytes(values) => values.clear(),
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.levels.len()
    }

    /// Adds an integer to a column of integers.
    pub(super) fn integer(&mut self, value: Option<i64>) {
        self.levels.push(i16::from(value.is_some()));
        if let (Some(value), Values::Integers(values)) = (value, &mut self.values) {
            values.push(value);
        }
    }

    /// Adds a text to a column of texts.
    pub(super) fn text(&mut self, value: Option<ByteArray>) {
        self.levels.push(i16::from(value.is_some()));
        if let (Some(value), Values::Bytes(values)) = (value, &mut self.values) {
            values.push(value);
        }
    }

    /// Adds a value, or returns it if the column's type does not allow it.
    pub(super) fn push(&mut self, value: Value) -> Result<(), Value> {
        match (value, &mut self.values) {
            (Value::Null, _) => {
                self.levels.push(0);
                return Ok(());
            }
            (Value::Integer(value), Values::Integers(values)) => values.push(value),
            (Value::Integer(value), Values::Reals(values)) => values.push(value as f64),
            (Value::Real(value), Values::Reals(values)) => values.push(value),
            (Value::Text(text), Values::Bytes(values)) => values.push(text.into_bytes().into()),
            (Value::Blob(bytes), Values::Bytes(values)) if self.kind == Kind::Blob => {
                values.push(bytes.into());
            }
            // A text that is not valid UTF-8.
            (Value::Blob(bytes), Values::Bytes(values)) => {
                values.push(
                    String::from_utf8_lossy(&bytes)
                        .into_owned()
                        .into_bytes()
                        .into(),
                );
            }
            (value, _) => return Err(value),
        }
        self.levels.push(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_given_back() {
        let mut column = Column::new("n".into(), Kind::Integer);
        assert_eq!(column.push(Value::Integer(7)), Ok(()));
        assert_eq!(column.push(Value::Null), Ok(()));
        let text = Value::Text("x".into());
        assert_eq!(column.push(text.clone()), Err(text));
        assert_eq!(column.levels, [1, 0]);
        assert!(matches!(&column.values, Values::Integers(values) if values == &[7]));
    }

    #[test]
    fn a_real_column_takes_whole_numbers() {
        let mut column = Column::new("x".into(), Kind::Real);
        column.push(Value::Integer(2)).unwrap();
        column.push(Value::Real(0.5)).unwrap();
        assert!(matches!(&column.values, Values::Reals(values) if values == &[2.0, 0.5]));
    }
}
