//! Many rows of integers by one statement. Beginning and ending a statement costs as much as half
//! a row, and binding a value that is bound already as much as a quarter.

use rusqlite::{Connection, Result, Statement, ffi};

/// Rows of one statement; the largest that can be filled is used.
pub(super) const ROWS: [usize; 3] = [64, 8, 1];

pub(super) type Row<const N: usize> = [Option<i64>; N];

/// The inserts into one table, in the order of [`ROWS`], each prepared when first needed.
#[derive(Default)]
pub(super) struct Inserts<'db, const N: usize> {
    inserts: [Option<Insert<'db, N>>; ROWS.len()],
}

/// A statement and the values that it is bound to.
pub(super) struct Insert<'db, const N: usize> {
    pub(super) statement: Statement<'db>,
    bound: Vec<Row<N>>,
}

impl<'db, const N: usize> Inserts<'db, N> {
    /// The statement for the largest number of rows that is at most `most`, and that number.
    pub(super) fn of(
        &mut self,
        db: &'db Connection,
        table: &str,
        columns: &[&str; N],
        most: usize,
    ) -> Result<(&mut Insert<'db, N>, usize)> {
        let size = ROWS.iter().position(|&rows| rows <= most);
        let size = size.unwrap_or(ROWS.len() - 1);
        let rows = ROWS[size];
        let place = &mut self.inserts[size];
        if place.is_none() {
            *place = Some(Insert::prepare(db, table, columns, rows)?);
        }
        let insert = place.as_mut().expect("just prepared");
        Ok((insert, rows))
    }
}

impl<'db, const N: usize> Insert<'db, N> {
    fn prepare(
        db: &'db Connection,
        table: &str,
        columns: &[&str; N],
        rows: usize,
    ) -> Result<Insert<'db, N>> {
        let row = format!("({})", ["?"; N].join(", "));
        let sql = format!(
            // With FAIL the rows before the one that fails stay, so that SQLite need not remember
            // how to undo them.
            "INSERT OR FAIL INTO {table} ({}) VALUES {}",
            columns.join(", "),
            vec![row; rows].join(", ")
        );
        Ok(Insert {
            statement: db.prepare(&sql)?,
            bound: vec![[None; N]; rows],
        })
    }

    pub(super) fn bind(&mut self, place: usize, row: Row<N>) -> Result<()> {
        let first = place * N + 1;
        let bound = &mut self.bound[place];
        for (column, (value, bound)) in row.into_iter().zip(bound).enumerate() {
            // Most columns of most rows repeat; comparing is cheaper than binding.
            if *bound != value {
                self.statement.raw_bind_parameter(first + column, value)?;
                *bound = value;
            }
        }
        Ok(())
    }
}

/// True if there is a row with that key already.
pub(super) fn is_taken(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
}
