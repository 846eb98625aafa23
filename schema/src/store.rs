//! Creating, checking and opening the file.
//!
//! The protocol: a new file is complete, `application_id` and `user_version` included, before SQLite opens it.
//! The header is checked before SQLite opens a file, so that a foreign or damaged file is named as such.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::beside::{beside, remove_companions};
use crate::contract::{APPLICATION_ID, SCHEMA_VERSION};
use crate::older::{After, Older, kept_path};
use crate::{Error, Result, private};

/// An empty trace, made from [`crate::contract`].
const BLANK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/blank.db"));

pub(crate) const REPLAYED: &str = include_str!("../sql/replayed.sql");
pub(crate) const ACTIVITY: &str = include_str!("../sql/activity.sql");
/// Queries that are parts of others, which contain the name in parentheses.
const PLACE_MAKERS: (&str, &str) = ("(PLACE_MAKERS)", include_str!("../sql/place_makers.sql"));
const TOKENS: (&str, &str) = ("(TOKEN_PIPES)", include_str!("../sql/token_pipes.sql"));
const CHANNELS: &str = "(CHANNELS)";
const ALL: (&str, &str) = (CHANNELS, "SELECT channel_id, kind FROM channel");
const WAITED_AT: (&str, &str) = (
    CHANNELS,
    "SELECT channel_id, kind FROM channel WHERE channel_id IN (SELECT channel_id FROM waited_at)",
);
pub(crate) static TOKEN_PIPES: LazyLock<String> =
    LazyLock::new(|| with(TOKENS.1, &[PLACE_MAKERS, ALL]));
pub(crate) static INFERRED_ENDS: LazyLock<String> = LazyLock::new(|| {
    let text = include_str!("../sql/inferred_ends.sql");
    with(text, &[TOKENS, PLACE_MAKERS, WAITED_AT])
});

fn with(text: &str, queries: &[(&str, &str)]) -> String {
    let put_in =
        |text: String, (name, query): &(&str, &str)| text.replace(name, &format!("(\n{query})"));
    queries.iter().fold(text.to_owned(), put_in)
}

/// Makes a new trace at `path` and opens it for recording. While the returned file is locked, other processes
/// see that the trace is being recorded. An older trace there goes when the new one has begun; without
/// `replace` it stays under the name of [`kept_path`], in place of an earlier one.
///
/// # Errors
/// If there is a file that is not a trace; [`Error::Recording`] if it is being written; [`Error::Occupied`]
/// if the name for the older trace is taken; [`Error::Dangling`] and [`Error::Create`] if the new one cannot
/// be made; an older trace is still there then.
pub(crate) fn create(path: &Path, replace: bool) -> Result<(Connection, File, Older)> {
    create_for(path, replace, std::process::id())
}

/// The same for the process `recording`, which decides what becomes of an older trace.
pub(crate) fn create_for(
    path: &Path,
    replace: bool,
    recording: u32,
) -> Result<(Connection, File, Older)> {
    let create_error = |source| Error::Create {
        path: path.to_owned(),
        source,
    };
    let is_there = check_place(path, true)?;
    if is_there && !replace {
        check_kept(path)?;
    }
    let older = match (is_there, replace) {
        (false, _) => Older::none(),
        // Renaming fails if the new name is too long, for example.
        (true, true) => Older::move_away(path, After::Remove, recording)
            .or_else(|_| std::fs::remove_file(path).map(|()| Older::none()))
            .map_err(create_error)?,
        (true, false) => Older::move_away(path, After::Keep, recording).map_err(create_error)?,
    };
    match create_new(path) {
        Ok((db, lock)) => Ok((db, lock, older)),
        Err(error) => {
            older.put_back();
            Err(error)
        }
    }
}

fn create_new(path: &Path) -> Result<(Connection, File)> {
    let create_error = |source| Error::Create {
        path: path.to_owned(),
        source,
    };
    remove_companions(path).map_err(create_error)?;
    // SQLite's own message for a missing directory is "unable to open database file".
    let mut lock = private::create_new(path).map_err(create_error)?;
    // Not all filesystems have locks. Without one, a trace being recorded reads as one cut short.
    let _ = lock.try_lock();
    // Half a trace is of no use, and nobody else has it.
    let give_up = || {
        let _ = std::fs::remove_file(path);
    };
    lock.write_all(BLANK).map_err(|error| {
        give_up();
        create_error(error)
    })?;
    let open = || -> rusqlite::Result<Connection> {
        let db = Connection::open(path)?;
        db.execute_batch(LOGGING)?;
        // The first read opens the log: from now on the log shows that the trace is written, and which one.
        db.execute_batch("SELECT COUNT(*) FROM sqlite_schema")?;
        Ok(db)
    };
    open().map(|db| (db, lock)).map_err(|source| {
        give_up();
        Error::Sqlite {
            what: "cannot create",
            path: path.to_owned(),
            source,
        }
    })
}

/// An unsynced commit survives the death of this process, which is all that is promised. A sync would also
/// write out what the workflow wrote to the same disk, and stall the workflow.
pub(crate) const LOGGING: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
     PRAGMA wal_autocheckpoint = 8192; PRAGMA cache_size = -16384;";

/// True if there is a file at `path` that a new trace may replace; false if there is no file.
///
/// # Errors
/// As for [`create`].
pub(crate) fn check_place(path: &Path, replace: bool) -> Result<bool> {
    let create_error = |source| Error::Create {
        path: path.to_owned(),
        source,
    };
    if let Ok(metadata) = path.metadata() {
        if !metadata.is_file() {
            return Err(create_error(io::Error::other("it is no regular file")));
        }
        // A flowtrace that was just killed may still be ending.
        let begin = Instant::now();
        while is_being_recorded(path) {
            if begin.elapsed() > ENDING {
                return Err(Error::Recording(path.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if !replace {
            return Err(Error::Exists(path.to_owned()));
        }
        is_replaceable(path)?;
        return Ok(true);
    }
    match std::fs::read_link(path) {
        Ok(target) => Err(Error::Dangling {
            path: path.to_owned(),
            target,
        }),
        Err(_) => Ok(false),
    }
}

/// Makes sure that the file is a trace, whole or not, of any version.
fn is_replaceable(path: &Path) -> Result<()> {
    match check_header(path) {
        Err(
            Error::Empty(_) | Error::Newer { .. } | Error::Older { .. } | Error::Truncated { .. },
        ) => Ok(()),
        checked => checked,
    }
}

/// Makes sure that the trace at `path` can get the name under which it is kept: no other file than a trace
/// that nobody writes has it.
fn check_kept(path: &Path) -> Result<()> {
    let kept = kept_path(path);
    let is_free = match kept.symlink_metadata() {
        Err(_) => true,
        Ok(metadata) => {
            metadata.is_file() && is_replaceable(&kept).is_ok() && !is_being_recorded(&kept)
        }
    };
    match is_free {
        true => Ok(()),
        false => Err(Error::Occupied {
            path: path.to_owned(),
            kept,
        }),
    }
}

/// Longest time that a killed flowtrace may take to end.
const ENDING: Duration = Duration::from_millis(500);

/// True if a flowtrace is writing the trace now.
pub(crate) fn is_being_recorded(path: &Path) -> bool {
    // The lock is released at once, when the descriptor is closed.
    File::open(path)
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Opens an existing trace for reading only.
///
/// # Errors
/// Names what is wrong with a file that is not a trace of this version.
pub(crate) fn open_read_only(path: &Path) -> Result<Connection> {
    open_as(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY,
        Duration::from_secs(5),
        "PRAGMA query_only = ON;",
    )
}

/// Opens an existing trace to read it and to store results of analyses.
///
/// # Errors
/// Likewise.
pub(crate) fn open_to_store(path: &Path) -> Result<Connection> {
    // Unsynced as in a recording: no need to wait for the disk.
    open_as(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE,
        Duration::from_secs(2),
        "PRAGMA synchronous = OFF;",
    )
}

/// Number of different queries of a summary.
const QUESTIONS: usize = 64;

/// Bytes of the longest value that is read or computed. A statement can make a longer one from nothing, as
/// `zeroblob` does.
const LONGEST: i32 = 16 << 20;

fn open_as(path: &Path, access: OpenFlags, patience: Duration, how: &str) -> Result<Connection> {
    check_header(path)?;
    let error = |source| Error::unreadable(path, source);
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(error)?;
    db.busy_timeout(patience).map_err(error)?;
    db.set_prepared_statement_cache_capacity(QUESTIONS);
    db.execute_batch("PRAGMA cache_size = -65536;")
        .map_err(error)?;
    db.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)
        .map_err(error)?;
    check_version(&db, path)?;
    check_schema(&db, path)?;
    // Only now, for `query_only` also forbids the temporary views made above.
    db.execute_batch(how).map_err(error)?;
    Ok(db)
}

/// Bytes of the write-ahead log beside a trace, which belongs to the trace: SQLite could not move them into
/// the trace yet, or could not at all because the disk was full or the recording was killed.
pub fn log_bytes(path: &Path) -> u64 {
    beside(path, "-wal").metadata().map_or(0, |log| log.len())
}

/// The tables and views of the contract: kind, name and statement, as SQLite stores them.
const STATEMENTS: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/statements.rs"));

/// Makes sure that queries read what this program knows: tables that contain rows and compute nothing, and
/// its own views. Others can write a trace, and a view of theirs may never end or name its columns in bytes
/// that are no text.
fn check_schema(db: &Connection, path: &Path) -> Result<()> {
    let error = |source| Error::unreadable(path, source);
    let damaged = |what: String| Error::Damaged {
        path: path.to_owned(),
        what,
    };
    let found = || -> rusqlite::Result<HashMap<String, (String, String)>> {
        let mut statement = db.prepare(
            "SELECT name, type, sql FROM main.sqlite_schema WHERE type IN ('table', 'view')",
        )?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
        rows.collect()
    };
    let found = found().map_err(error)?;
    let columns = |table: &str, which: &str| -> rusqlite::Result<i64> {
        let count = format!("SELECT COUNT(*) FROM pragma_table_xinfo(?1) WHERE {which}");
        db.query_row(&count, [table], |row| row.get(0))
    };
    for &(kind, name, sql) in STATEMENTS {
        match (kind, found.get(name)) {
            (_, Some((found_kind, found_sql))) if found_kind == kind && found_sql == sql => {}
            ("table", Some((found_kind, found_sql))) => {
                let is_virtual = !found_sql.starts_with("CREATE TABLE");
                if found_kind != kind
                    || is_virtual
                    || columns(name, "hidden <> 0").map_err(error)? > 0
                {
                    return Err(damaged(format!("{name} is no table of rows")));
                }
            }
            // A query of the missing table says that there is none.
            ("table", None) => {}
            _ => {
                let own = sql.replacen("CREATE VIEW", "CREATE TEMP VIEW", 1);
                db.execute_batch(&own).map_err(error)?;
            }
        }
    }
    Ok(())
}

fn check_number(found: i64, path: &Path) -> Result<()> {
    let (path, known) = (path.to_owned(), SCHEMA_VERSION);
    match found.cmp(&known) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::Newer { path, found, known }),
        Ordering::Less => Err(Error::Older { path, found, known }),
    }
}

fn check_version(db: &Connection, path: &Path) -> Result<()> {
    let pragma = |name| {
        db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0))
            .map_err(|source| Error::unreadable(path, source))
    };
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    if application != i64::from(APPLICATION_ID) {
        // application_id is a signed 32-bit field; foreign values may be negative.
        return Err(Error::Foreign {
            path: path.to_owned(),
            found: application as u32,
        });
    }
    check_number(version, path)?;
    Ok(())
}

/// Checks the 100 byte header (<https://www.sqlite.org/fileformat.html>, section 1.3).
fn check_header(path: &Path) -> Result<()> {
    let open_error = |source| Error::Open {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(open_error)?;
    let metadata = file.metadata().map_err(open_error)?;
    if metadata.is_dir() {
        return Err(open_error(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    if !metadata.is_file() {
        return Err(Error::NotDatabase(path.to_owned()));
    }
    if metadata.len() == 0 {
        return Err(Error::Empty(path.to_owned()));
    }
    let mut header = [0; 100];
    let read = read_up_to(&mut file, &mut header).map_err(open_error)?;
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(Error::NotDatabase(path.to_owned()));
    }
    if read < header.len() {
        return Err(Error::Truncated {
            path: path.to_owned(),
            found: metadata.len(),
            expected: header.len() as u64,
        });
    }
    let u32_at = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    if u32_at(68) != APPLICATION_ID {
        return Err(Error::Foreign {
            path: path.to_owned(),
            found: u32_at(68),
        });
    }
    let version = i64::from(u32_at(60));
    check_number(version, path)?;
    let page_size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        size => u64::from(size),
    };
    let expected = page_size * u64::from(u32_at(28));
    // The missing pages may be in the write-ahead log: a full disk can stop the copying of the log halfway.
    if metadata.len() < expected && log_bytes(path) == 0 {
        return Err(Error::Truncated {
            path: path.to_owned(),
            found: metadata.len(),
            expected,
        });
    }
    Ok(())
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        std::fs::write(&path, bytes).unwrap();
        let message = open_read_only(&path).unwrap_err().to_string();
        assert_eq!(
            std::fs::read(&path).unwrap(),
            bytes,
            "a refused file is never changed"
        );
        message.replace(path.to_str().unwrap(), "t.db")
    }

    fn sample() -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        drop(create(&path, false).unwrap());
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn a_new_trace_has_its_log_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let made = create(&path, false).unwrap();
        assert!(directory.path().join("t.db-wal").exists());
        drop(made);
    }

    #[test]
    fn what_is_not_a_trace_is_refused_with_one_line() {
        assert_eq!(
            refused(b""),
            "t.db is empty: its recording ended before anything was stored"
        );
        assert_eq!(
            refused(b"hello"),
            "t.db is not a flowtrace database (no SQLite header)"
        );
        let good = sample();
        let message = refused(&good[..good.len() - 1]);
        assert!(message.starts_with("t.db is truncated: "), "{message}");
        assert!(refused(&good[..50]).starts_with("t.db is truncated: 50 bytes of 100"));
    }

    #[test]
    fn foreign_and_newer_are_distinguished() {
        let mut bytes = sample();
        bytes[60..64].copy_from_slice(&7u32.to_be_bytes());
        assert_eq!(
            refused(&bytes),
            "t.db has schema version 7, this flowtrace knows up to 5"
        );
        bytes[60..64].copy_from_slice(&1u32.to_be_bytes());
        assert_eq!(
            refused(&bytes),
            "t.db has schema version 1, this flowtrace knows 5 and no older ones"
        );
        bytes[68..72].copy_from_slice(&1u32.to_be_bytes());
        assert_eq!(
            refused(&bytes),
            "t.db is a SQLite database, but not of flowtrace (application id 0x00000001)"
        );
    }

    /// Changes a trace by SQL, and returns the answer or error of a query of it.
    fn asked(change: &str, question: &str) -> std::result::Result<i64, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        drop(create(&path, false).unwrap());
        let db = Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
        db.execute_batch(change).unwrap();
        drop(db);
        let name = path.to_str().unwrap().to_owned();
        let db = open_read_only(&path).map_err(|error| error.to_string().replace(&name, "t.db"))?;
        db.query_row(question, [], |row| row.get(0))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn views_are_those_of_the_reader() {
        let count = "SELECT COUNT(*) FROM runs";
        assert_eq!(asked("", count), Ok(0));
        // A view that never ends, and a missing view.
        let endless = "DROP VIEW runs; CREATE VIEW runs AS
            WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS run_id FROM r";
        assert_eq!(asked(endless, count), Ok(0));
        assert_eq!(asked("DROP VIEW runs", count), Ok(0));
        // A name of a column that is no text.
        let broken = "DROP VIEW runs; CREATE VIEW runs AS SELECT 1 AS a;
            PRAGMA writable_schema = ON;
            UPDATE sqlite_schema SET sql = CAST(x'ff' AS TEXT) || sql WHERE name = 'runs'";
        let said = asked(broken, count).unwrap_err();
        assert!(said.starts_with("cannot read t.db: "), "{said}");
    }

    #[test]
    fn tables_hold_rows_and_compute_nothing() {
        let none = "t.db is damaged: losses_of is no table of rows".to_owned();
        let name = STATEMENTS
            .iter()
            .find(|(kind, ..)| *kind == "table")
            .unwrap()
            .1;
        let none = none.replace("losses_of", name);
        for change in [
            format!("ALTER TABLE {name} ADD COLUMN x BLOB AS (zeroblob(1000000000))"),
            format!("DROP TABLE {name}; CREATE VIEW {name} AS SELECT 1 AS a"),
            format!("DROP TABLE {name}; CREATE VIRTUAL TABLE {name} USING dbstat"),
        ] {
            assert_eq!(asked(&change, "SELECT 1"), Err(none.clone()), "{change}");
        }
        assert_eq!(asked(&format!("DROP TABLE {name}"), "SELECT 1"), Ok(1));
    }

    #[test]
    fn only_a_trace_is_ever_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Makefile");
        std::fs::write(&path, "all:").unwrap();
        for replace in [false, true] {
            assert!(matches!(create(&path, replace), Err(Error::NotDatabase(_))));
            assert_eq!(std::fs::read(&path).unwrap(), b"all:");
        }
        let trace = directory.path().join("t.db");
        drop(create(&trace, false).unwrap());
        assert!(matches!(check_place(&trace, false), Err(Error::Exists(_))));
        drop(create(&trace, true).unwrap());
    }

    #[test]
    fn an_older_trace_takes_the_place_of_an_earlier_one_and_of_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let (trace, kept) = (
            directory.path().join("t.db"),
            directory.path().join("t.db.old"),
        );
        drop(create(&trace, false).unwrap());
        for _ in 0..2 {
            let (db, lock, older) = create(&trace, false).unwrap();
            assert!(matches!(create(&trace, false), Err(Error::Recording(_))));
            older.settle();
            assert_eq!(older.kept(), Some(kept.clone()));
            drop((db, lock));
            check_header(&kept).unwrap();
        }
        std::fs::write(&kept, "mine").unwrap();
        assert!(matches!(create(&trace, false), Err(Error::Occupied { .. })));
        assert_eq!(std::fs::read(&kept).unwrap(), b"mine");
        check_header(&trace).unwrap();
        drop(create(&trace, true).unwrap());
        std::fs::remove_file(&kept).unwrap();
        // Nor of a trace that is being recorded.
        let (_db, _lock, _) = create(&kept, false).unwrap();
        assert!(matches!(create(&trace, false), Err(Error::Occupied { .. })));
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink("gone/t.db", &link).unwrap();
        let message = create(&link, true).unwrap_err().to_string();
        assert!(
            message.ends_with("it is a symbolic link to gone/t.db, which does not exist"),
            "{message}"
        );
    }

    #[test]
    fn output_in_a_missing_directory_says_so() {
        let message = create(Path::new("/nonexistent/t.db"), false)
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "cannot create /nonexistent/t.db: No such file or directory (os error 2)"
        );
    }
}
