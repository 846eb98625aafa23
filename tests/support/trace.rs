//! A trace as any SQLite client sees it: read-only, through the public views.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, OpenFlags};

use super::shape::Process;

/// An open trace.
pub(crate) struct Trace(Connection);

/// A row of `processes`.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) upid: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) previous: Option<i64>,
    pub(crate) origin: String,
    pub(crate) command: String,
    pub(crate) start_ns: Option<i64>,
    pub(crate) end_ns: Option<i64>,
    pub(crate) exit_code: Option<i64>,
    pub(crate) exit_signal: Option<i64>,
}

impl Trace {
    #[track_caller]
    pub(crate) fn open(path: &Path) -> Self {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .unwrap_or_else(|e| panic!("cannot open {}: {e}", path.display()));
        let trace = Trace(db);
        let check: String = trace.one("PRAGMA integrity_check");
        assert_eq!(check, "ok", "integrity of {}", path.display());
        trace
    }

    /// Repeats `run` until its trace (`of`) has every switch of the scheduler. On a busy machine the recorder
    /// may read too slowly; the kernel then drops switches, and the trace counts them. Such a trace is not
    /// exact, so the run is repeated, up to five times.
    #[track_caller]
    pub(crate) fn without_gaps<T>(run: impl Fn() -> T, of: impl Fn(&T) -> &Trace) -> T {
        const ATTEMPTS: usize = 5;
        let has_gaps = |trace: &Trace| {
            let dropped = "SELECT COUNT(*) FROM losses WHERE counter = 'switches_dropped'";
            trace.one::<i64>(dropped) > 0
        };
        let mut runs = (0..ATTEMPTS).map(|_| run());
        let found = runs.find(|run| !has_gaps(of(run)));
        found.unwrap_or_else(|| panic!("switches were dropped in each of {ATTEMPTS} runs"))
    }

    /// Opens a trace whose recording ended properly, and checks that nothing is missing: one file, an end,
    /// every process with begin, end and status, no loss of data.
    #[track_caller]
    pub(crate) fn open_complete(path: &Path) -> Self {
        let mut beside = path.as_os_str().to_owned();
        beside.push("-wal");
        assert!(
            !Path::new(&beside).exists(),
            "a finished trace is one file, but there is {beside:?}"
        );
        let trace = Trace::open(path);
        trace.assert_no_loss();
        let open_runs: i64 = trace.one("SELECT COUNT(*) FROM runs WHERE end_ns IS NULL");
        assert_eq!(open_runs, 0, "runs without an end");
        trace.assert_processes_are_complete();
        trace
    }

    /// The one value of a query.
    #[track_caller]
    pub(crate) fn one<T: FromSql>(&self, sql: &str) -> T {
        self.0
            .query_row(sql, [], |row| row.get(0))
            .unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// All rows of a query as text, NULL as an empty one, bytes that are not UTF-8 replaced.
    #[track_caller]
    pub(crate) fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let mut statement = self.0.prepare(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            (0..columns)
                .map(|i| row.get_ref(i).map(as_text))
                .collect::<rusqlite::Result<Vec<_>>>()
        });
        rows.and_then(Iterator::collect)
            .unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// The first column of the rows as blobs.
    #[track_caller]
    pub(crate) fn blobs(&self, sql: &str) -> Vec<Vec<u8>> {
        let mut statement = self.0.prepare(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let rows = statement.query_map([], |row| row.get::<_, Vec<u8>>(0));
        rows.and_then(Iterator::collect)
            .unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    #[track_caller]
    pub(crate) fn assert_no_loss(&self) {
        let losses = self.rows(
            "SELECT source, counter, value, meaning FROM losses
             WHERE severity IN ('data_loss', 'error')",
        );
        assert!(losses.is_empty(), "losses: {losses:#?}");
    }

    pub(crate) fn images(&self) -> Vec<Image> {
        let sql = "SELECT upid, parent_upid, prev_upid, origin, COALESCE(command, ''), start_ns,
                     end_ns, exit_code, exit_signal
                   FROM processes ORDER BY upid";
        let mut statement = self.0.prepare(sql).expect("view processes");
        let rows = statement.query_map([], |row| {
            Ok(Image {
                upid: row.get(0)?,
                parent: row.get(1)?,
                previous: row.get(2)?,
                origin: row.get(3)?,
                command: row.get(4)?,
                start_ns: row.get(5)?,
                end_ns: row.get(6)?,
                exit_code: row.get(7)?,
                exit_signal: row.get(8)?,
            })
        });
        rows.and_then(Iterator::collect).expect("rows of processes")
    }

    /// Every image has begin and end. The last image of a process has a code or a signal; earlier ones have
    /// neither, and end where the next one begins.
    #[track_caller]
    fn assert_processes_are_complete(&self) {
        let images = self.images();
        let next: BTreeMap<i64, &Image> = images
            .iter()
            .filter_map(|i| Some((i.previous?, i)))
            .collect();
        for image in &images {
            assert!(
                image.start_ns.is_some() && image.end_ns.is_some(),
                "{image:?}"
            );
            let statuses =
                usize::from(image.exit_code.is_some()) + usize::from(image.exit_signal.is_some());
            if let Some(next) = next.get(&image.upid) {
                assert_eq!(statuses, 0, "an image that ended by exec: {image:?}");
                assert_eq!(image.end_ns, next.start_ns, "{image:?}\n{next:?}");
                assert_eq!(image.parent, next.parent, "{image:?}\n{next:?}");
            } else {
                assert_eq!(statuses, 1, "the last image of a process: {image:?}");
            }
        }
    }

    /// The processes with the files below `directory`, images of one process merged.
    pub(crate) fn shape(&self, directory: &Path) -> Vec<Process> {
        let images = self.images();
        let mut first: BTreeMap<i64, i64> = BTreeMap::new();
        let mut processes: BTreeMap<i64, Process> = BTreeMap::new();
        for image in &images {
            // In the order of upid an image follows the one that it replaced.
            let head = image.previous.map_or(image.upid, |p| first[&p]);
            first.insert(image.upid, head);
            let process = processes.entry(head).or_default();
            if image.origin == "exec" {
                process.execs.push(image.command.clone());
            }
            match (image.exit_code, image.exit_signal) {
                (Some(code), _) => process.end = format!("exit {code}"),
                (_, Some(signal)) => process.end = format!("signal {signal}"),
                _ => {}
            }
        }
        let prefix = format!("{}/", directory.display());
        // The name at the time of the call, not the last one.
        let opens = self.rows(
            "SELECT c.upid, c.flags & 3, n.path FROM calls AS c JOIN file_names AS n
               ON n.file_id = c.file_id AND n.from_ns <= c.start_ns + c.duration_ns
               AND (n.to_ns IS NULL OR n.to_ns >= c.start_ns)
             WHERE c.op IN ('open', 'create') AND c.result >= 0",
        );
        for open in opens {
            let Some(file) = open[2].strip_prefix(&prefix) else {
                continue;
            };
            let upid: i64 = open[0].parse().expect("an open without its process");
            let process = processes.get_mut(&first[&upid]).expect("listed");
            if open[1] != "0" {
                process.written.insert(file.to_owned());
            }
            if open[1] != "1" {
                process.read.insert(file.to_owned());
            }
        }
        let moves = self.rows(
            "SELECT upid, op, COUNT(*) FROM calls
             WHERE op IN ('rename', 'unlink') AND result >= 0 GROUP BY upid, op",
        );
        for row in moves {
            let upid: i64 = row[0].parse().expect("a call without its process");
            let process = processes.get_mut(&first[&upid]).expect("listed");
            let count: usize = row[2].parse().expect("a number");
            match row[1].as_str() {
                "rename" => process.renames += count,
                _ => process.unlinks += count,
            }
        }
        processes.into_values().collect()
    }
}

fn as_text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(i) => i.to_string(),
        ValueRef::Real(r) => r.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}
