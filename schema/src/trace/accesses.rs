//! The view `file_access` from sums that the caller has made already.

use rusqlite::params;

use super::Trace;
use crate::Result;

/// The sums over the calls of a process image on a file: a row of the view `file_access`, whose columns have
/// the same names; the relation follows from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "docs/schema.md has them")]
pub struct AccessRow {
    pub upid: i64,
    pub file_id: i64,
    pub opens: i64,
    pub creates: i64,
    /// Calls that changed data.
    pub changes: i64,
    pub reads: i64,
    pub read_bytes: i64,
    pub read_ns: i64,
    pub writes: i64,
    pub write_bytes: i64,
    pub write_ns: i64,
    pub first_ns: i64,
    pub last_ns: i64,
    pub read_opens: i64,
    pub write_opens: i64,
    pub calls: i64,
}

impl AccessRow {
    fn relation(&self) -> &'static str {
        match self {
            row if row.creates > 0 => "create",
            row if row.changes > 0 || row.write_opens > 0 => "write",
            row if row.reads > 0 || row.read_opens > 0 => "read",
            _ => "none",
        }
    }
}

/// The columns of the view, in its order.
const COLUMNS: &str = "upid, file_id, relation, opens, creates, reads, read_bytes, read_ns, writes,
    write_bytes, write_ns, first_ns, last_ns, read_opens, write_opens, calls";

impl Trace {
    /// Makes queries of this connection see `rows` as the view `file_access`, and `edges` made from them. The
    /// file stays as it is. Does nothing for a trace whose view has other columns, as one of another version.
    ///
    /// # Errors
    /// If the file cannot be read, or there is no space for a temporary table.
    pub fn sum_accesses(&self, rows: &[AccessRow]) -> Result<()> {
        let mut columns = COLUMNS.split(',').map(str::trim);
        let kinds = self.column_kinds("file_access")?;
        let is_same = kinds.len() == columns.clone().count()
            && kinds.iter().all(|(name, _)| columns.next() == Some(name));
        if !is_same {
            return Ok(());
        }
        let write = || -> rusqlite::Result<()> {
            let edges: String = self.db.query_row(
                "SELECT sql FROM main.sqlite_master WHERE type = 'view' AND name = 'edges'",
                [],
                |row| row.get(0),
            )?;
            self.db.execute_batch(&format!(
                "PRAGMA query_only = OFF; BEGIN; CREATE TEMP TABLE file_access ({COLUMNS});"
            ))?;
            {
                let mut insert = self.db.prepare(
                    "INSERT INTO temp.file_access
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
                )?;
                for row in rows {
                    insert.execute(params![
                        row.upid,
                        row.file_id,
                        row.relation(),
                        row.opens,
                        row.creates,
                        row.reads,
                        row.read_bytes,
                        row.read_ns,
                        row.writes,
                        row.write_bytes,
                        row.write_ns,
                        row.first_ns,
                        row.last_ns,
                        row.read_opens,
                        row.write_opens,
                        row.calls,
                    ])?;
                }
            }
            // The same text, in which the name now means the table.
            let edges = edges.replacen("CREATE VIEW", "CREATE TEMP VIEW", 1);
            self.db.execute_batch(&format!("{edges}; COMMIT;"))
        };
        let written = write();
        // A failure leaves the views as they were.
        let restored = self.db.execute_batch(match self.db.is_autocommit() {
            true => "PRAGMA query_only = ON",
            false => "ROLLBACK; PRAGMA query_only = ON",
        });
        written
            .and(restored)
            .map_err(|source| self.unreadable(source))
    }
}
