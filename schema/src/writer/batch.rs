//! Transactions, and what happens when the disk does not take them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::calls::CallTable;
use super::channel_calls::ChannelCallTable;
use super::commands::Commands;
use super::insert;
use super::packets::PacketTable;
use crate::{Call, ChannelCall, Loss, Packet, Record, RunEnd, Summary};

/// Time between attempts to write to a failing disk.
const RETRY: Duration = Duration::from_millis(250);
/// Time allowed for other readers to close the file at the end.
const FOLD_TIMEOUT: Duration = Duration::from_secs(2);

/// Most rows about processes that are kept for later while the disk is full.
const MOST_OWED: usize = 65_536;
/// Number of these rows that are tried at once at the end.
const OWED_AT_ONCE: usize = 8;

/// Disk space reserved for the rows that say that the disk was full, and how the run ended.
///
/// Unlinked files beside the trace: closing one frees its space, and nothing is left behind
/// whatever happens to this process.
#[derive(Default)]
pub(super) struct ReservedSpace {
    /// Freed when the disk is full for the first time; later rows may take the space, too.
    first: Option<File>,
    /// Freed at the end.
    last: Option<File>,
}

impl ReservedSpace {
    const FIRST: i64 = 512 * 1024;
    const LAST: i64 = 128 * 1024;

    /// Empty if the filesystem has neither unnamed files nor allocation; then a full disk is still reported
    /// on the terminal, but maybe not in the trace.
    ///
    /// # Errors
    /// If the disk has not even that space: a trace there could not record its losses.
    pub(super) fn beside(path: &Path) -> io::Result<ReservedSpace> {
        let hold = |bytes| match Self::hold(path, bytes) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Err(error),
                _ => Ok(None),
            },
        };
        Ok(ReservedSpace {
            first: hold(Self::FIRST)?,
            last: hold(Self::LAST)?,
        })
    }

    fn hold(path: &Path, bytes: i64) -> io::Result<File> {
        use std::os::unix::fs::OpenOptionsExt;
        const O_TMPFILE: i32 = 0o20_200_000;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file = File::options()
            .write(true)
            .custom_flags(O_TMPFILE)
            .open(directory)?;
        allocate(&file, bytes)?;
        Ok(file)
    }
}

#[expect(unsafe_code)]
fn allocate(file: &File, bytes: i64) -> io::Result<()> {
    unsafe extern "C" {
        fn posix_fallocate(fd: i32, offset: i64, len: i64) -> i32;
    }
    // SAFETY: the descriptor is open for the duration of the call, which touches no memory.
    match unsafe { posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Rows on their way into transactions.
///
/// When SQLite refuses a transaction its rows are dropped and counted, the recording goes on, and storing is
/// tried again after [`RETRY`]: the traced workflow must not suffer. The few rows about processes matter
/// most: they are kept and come first when there is space again.
pub(super) struct Batches<'db> {
    db: &'db Connection,
    call_table: CallTable<'db>,
    channel_call_table: ChannelCallTable<'db>,
    packet_table: PacketTable<'db>,
    commands: Commands,
    reserved: ReservedSpace,
    /// Ends of runs, kept for the last transaction: a disk that is full until then must not
    /// leave a run without its end.
    ends: Vec<RunEnd>,
    /// Rows about processes in the open transaction, and those of transactions that were refused.
    written: Vec<Record>,
    owed: Vec<Record>,
    open: bool,
    pending: usize,
    pending_calls: u64,
    pending_packets: u64,
    losses: HashMap<Loss, u64>,
    losses_changed: bool,
    retry_at: Option<Instant>,
    summary: Summary,
}

impl<'db> Batches<'db> {
    pub(super) fn new(db: &'db Connection, reserved: ReservedSpace) -> Self {
        Batches {
            db,
            call_table: CallTable::default(),
            channel_call_table: ChannelCallTable::default(),
            packet_table: PacketTable::default(),
            commands: Commands::default(),
            reserved,
            ends: Vec::new(),
            written: Vec::new(),
            owed: Vec::new(),
            open: false,
            pending: 0,
            pending_calls: 0,
            pending_packets: 0,
            losses: HashMap::new(),
            losses_changed: false,
            retry_at: None,
            summary: Summary::default(),
        }
    }

    /// True if something could not be stored.
    pub(super) fn has_failed(&self) -> bool {
        self.summary.write_error.is_some()
    }

    /// Rows in the open transaction.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    pub(super) fn record(&mut self, record: &Record) {
        if let Record::Lost { loss, count } = record {
            self.lose(*loss, *count);
            return;
        }
        if let Record::RunEnd(end) = record {
            self.ends.push(*end);
            return;
        }
        if !matters_most(record) {
            if self.ready(1) {
                self.insert(record, 1);
            }
        } else if self.ready(0) && self.insert(record, 0) {
            self.written.push(record.clone());
        } else {
            self.owe(vec![record.clone()]);
        }
    }

    /// Inserts a row into the open transaction; `lost`: rows that are lost if that fails, beside those
    /// in it.
    fn insert(&mut self, record: &Record, lost: usize) -> bool {
        match insert::record(self.db, record, &mut self.commands) {
            Ok(()) => self.pending += 1,
            Err(error) => self.fail(lost, &error),
        }
        self.open
    }

    /// Keeps rows for later.
    fn owe(&mut self, mut rows: Vec<Record>) {
        self.owed.append(&mut rows);
        let most = self.owed.len().min(MOST_OWED);
        let too_many = self.owed.split_off(most);
        self.drop_rows(too_many.len() as u64);
    }

    /// Stores again the rows that were refused earlier.
    fn pay(&mut self, owed: Vec<Record>) -> bool {
        let mut owed = owed.into_iter();
        while let Some(record) = owed.next() {
            if !self.insert(&record, 0) {
                self.owe(std::iter::once(record).chain(owed).collect());
                return false;
            }
            self.written.push(record);
        }
        true
    }

    /// Stores calls that are in the order of time.
    pub(super) fn calls(&mut self, calls: &[Call]) {
        self.insert_all(calls, |batches, now| {
            batches.call_table.insert(batches.db, now)?;
            batches.pending_calls += now.len() as u64;
            Ok(())
        });
    }

    /// Stores calls on pipes and sockets.
    pub(super) fn channel_calls(&mut self, calls: &[ChannelCall]) {
        self.insert_all(calls, |batches, now| {
            batches.channel_call_table.insert(batches.db, now)
        });
    }

    /// Stores packets, best in the order of time.
    pub(super) fn packets(&mut self, packets: &[Packet]) {
        self.insert_all(packets, |batches, now| {
            batches.packet_table.insert(batches.db, now)?;
            batches.pending_packets += now.len() as u64;
            Ok(())
        });
    }

    /// Stores rows in transactions of [`COMMIT_ROWS`].
    fn insert_all<Row>(
        &mut self,
        mut rows: &[Row],
        insert: impl Fn(&mut Self, &[Row]) -> rusqlite::Result<()>,
    ) {
        while !rows.is_empty() {
            let limit = COMMIT_ROWS.saturating_sub(self.pending).max(1);
            let (now, later) = rows.split_at(limit.min(rows.len()));
            rows = later;
            if !self.ready(now.len()) {
                continue;
            }
            match insert(self, now) {
                Ok(()) => self.pending += now.len(),
                Err(error) => self.fail(now.len(), &error),
            }
            if self.pending >= COMMIT_ROWS {
                self.commit();
            }
        }
    }

    /// Commits what is pending, and the counters of losses with it.
    pub(super) fn commit(&mut self) {
        if self.losses_changed && !self.ready(0) {
            return;
        }
        if !self.open {
            return;
        }
        let store = || {
            if self.losses_changed {
                insert::losses(self.db, &self.losses)?;
            }
            self.db.execute_batch("COMMIT")
        };
        match store() {
            Ok(()) => {
                self.open = false;
                self.losses_changed = false;
                self.written.clear();
                self.summary.rows += self.pending as u64;
                self.summary.calls += self.pending_calls;
                self.summary.packets += self.pending_packets;
                (self.pending, self.pending_calls, self.pending_packets) = (0, 0, 0);
            }
            Err(error) => self.fail(0, &error),
        }
    }

    /// Completes the files and folds the write-ahead log into the file.
    pub(super) fn finish(mut self) -> Summary {
        self.retry_at = None;
        self.commit();
        if self.ready(0) {
            match self.call_table.store_ends(self.db) {
                Ok(()) => self.commit(),
                Err(error) => {
                    self.fail(0, &error);
                    self.retry_at = None;
                    self.commit();
                }
            }
        }
        if self.ready(0) {
            match super::stacks::store_images(self.db) {
                Ok(()) => self.commit(),
                Err(error) => self.fail(0, &error),
            }
        }
        self.store_run_ends();
        self.summary.not_folded = fold(self.db);
        self.summary
    }

    fn store_run_ends(&mut self) {
        self.reserved.last = None;
        self.retry_at = None;
        // The end of the run has to fit before all else.
        let owed = std::mem::take(&mut self.owed);
        for end in std::mem::take(&mut self.ends) {
            if !self.ready(1) {
                continue;
            }
            match insert::record(self.db, &Record::RunEnd(end), &mut self.commands) {
                Ok(()) => self.pending += 1,
                Err(error) => self.fail(1, &error),
            }
        }
        self.commit();
        for rows in owed.chunks(OWED_AT_ONCE) {
            self.retry_at = None;
            // Rows that were refused just now are owed again.
            if !self.owed.is_empty() || !self.ready(0) {
                self.owe(rows.to_vec());
            } else if self.pay(rows.to_vec()) {
                self.commit();
            }
        }
        let unpaid = std::mem::take(&mut self.owed);
        if !unpaid.is_empty() {
            self.drop_rows(unpaid.len() as u64);
            self.retry_at = None;
            self.commit();
        }
    }

    /// Makes sure that a transaction is open; otherwise counts `rows` as dropped.
    fn ready(&mut self, rows: usize) -> bool {
        if self.open {
            return true;
        }
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            self.drop_rows(rows as u64);
            return false;
        }
        match self.db.execute_batch("BEGIN IMMEDIATE") {
            Ok(()) => {
                self.open = true;
                let owed = std::mem::take(&mut self.owed);
                let paid = owed.is_empty() || self.pay(owed);
                if !paid {
                    self.drop_rows(rows as u64);
                }
                paid
            }
            Err(error) => {
                self.fail(rows, &error);
                false
            }
        }
    }

    /// Handles a transaction that could not be stored: `rows` more than those in it are lost.
    fn fail(&mut self, rows: usize, error: &rusqlite::Error) {
        // SQLite rolls back by itself on some errors; a second rollback is then an error of its own.
        let _ = self.db.execute_batch("ROLLBACK");
        self.open = false;
        let kept = std::mem::take(&mut self.written);
        self.drop_rows((self.pending + rows).saturating_sub(kept.len()) as u64);
        self.owe(kept);
        (self.pending, self.pending_calls, self.pending_packets) = (0, 0, 0);
        let full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
        self.lose(
            if full {
                Loss::StoreFull
            } else {
                Loss::StoreFailed
            },
            1,
        );
        self.summary.write_error = Some(error.to_string());
        self.retry_at = Some(Instant::now() + RETRY);
        if self.reserved.first.take().is_some() {
            self.retry_at = None;
            self.commit();
            self.retry_at = Some(Instant::now() + RETRY);
        }
    }

    fn drop_rows(&mut self, rows: u64) {
        if rows > 0 {
            self.summary.dropped += rows;
            self.lose(Loss::RowsDropped, rows);
        }
    }

    fn lose(&mut self, loss: Loss, count: u64) {
        *self.losses.entry(loss).or_default() += count;
        self.losses_changed = true;
    }
}

/// Folds the write-ahead log into the file; returns the reason if that is not possible.
pub(super) fn fold(db: &Connection) -> Option<String> {
    let fold = || {
        db.busy_timeout(FOLD_TIMEOUT)?;
        db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE;")?;
        db.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0))
    };
    match fold() {
        Ok(mode) if mode == "delete" => None,
        Ok(_) => Some("another program has it open".into()),
        Err(error) => Some(error.to_string()),
    }
}

/// True if a row is one of the few without which the others mean nothing.
fn matters_most(record: &Record) -> bool {
    matches!(
        record,
        Record::Host(_)
            | Record::HostClock(_)
            | Record::Run(_)
            | Record::Launch(_)
            | Record::TracedDirectory(_)
            | Record::ProcessStart(_)
            | Record::ProcessEnd(_)
    )
}

#[cfg(test)]
mod tests;

/// Most rows in one transaction.
pub(super) const COMMIT_ROWS: usize = 20_000;
