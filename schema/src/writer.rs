//! The one writer of a trace: a thread behind a bounded queue and one ring per recording thread.
//!
//! Recorders never wait for SQLite itself. They wait only when the queue or their ring is full,
//! so no file call is ever dropped while the disk accepts rows. Rows are committed at most
//! [`COMMIT_INTERVAL`] or [`COMMIT_ROWS`] after they arrived: a `kill -9` costs no more than that.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use rtrb::{Producer, RingBuffer};
use rusqlite::Connection;

use crate::{Call, ChannelCall, Error, Loss, Older, Packet, Record, Result, RunEnd, store};

mod batch;
mod bulk;
mod calls;
mod channel_calls;
mod channels;
mod commands;
mod insert;
mod network;
mod packets;
mod rings;
mod stacks;
mod summary;

use batch::{Batches, COMMIT_ROWS};
pub(crate) use packets::PACKET_BITS;
pub use rings::{CallRing, ChannelCallRing, PacketRing};
use rings::{FULL, Rings};
pub use summary::{Displaced, Summary};

/// Longest time between the arrival of a row and its commit, without the time of the commit itself.
const COMMIT_INTERVAL: Duration = Duration::from_millis(200);
/// Records that may wait in the queue before a recorder waits.
const QUEUE: usize = 8192;
/// Sleep of the writer when there is nothing to do. The sleep adds to the age of uncommitted rows.
const IDLE: Duration = Duration::from_millis(30);

/// The writing end of a trace. [`Writer::finish`] completes the file; dropping the writer
/// without it leaves a file that reads as cut short.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Summary>>,
    lock: File,
    older: Older,
}

#[derive(Debug)]
struct Shared {
    calls: Rings<Call>,
    channel_calls: Rings<ChannelCall>,
    packets: Rings<Packet>,
    stop: AtomicBool,
    keeps_secrets: AtomicBool,
}

impl Shared {
    fn new(is_stopped: bool) -> Arc<Shared> {
        Arc::new(Shared {
            calls: Rings::default(),
            channel_calls: Rings::default(),
            packets: Rings::default(),
            stop: AtomicBool::new(is_stopped),
            keeps_secrets: AtomicBool::new(false),
        })
    }
}

/// Gives records to the writer. Cheap to clone; usable from any thread.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: SyncSender<Record>,
    shared: Arc<Shared>,
    writer: Thread,
}

impl Writer {
    /// Makes a new trace at `path` and starts its writer. An older one there is kept under the name of
    /// [`crate::kept_path`], or removed if `replace` is set.
    ///
    /// # Errors
    /// If the file there is not a trace, if the new one cannot be made, or if its disk is full.
    pub fn create(path: &Path, replace: bool) -> Result<(Writer, Recorder)> {
        let fail = |source| Error::Create {
            path: path.to_owned(),
            source,
        };
        // First, so that a full disk costs no older trace.
        let reserved = batch::ReservedSpace::beside(path).map_err(fail)?;
        let (db, lock, older) = store::create(path, replace)?;
        let shared = Shared::new(false);
        let (queue, records) = sync_channel(QUEUE);
        let thread = thread::Builder::new()
            .name("trace-writer".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || run(&db, reserved, &records, &shared)
            })
            .map_err(fail)?;
        let recorder = Recorder {
            queue,
            shared: Arc::clone(&shared),
            writer: thread.thread().clone(),
        };
        Ok((
            Writer {
                path: path.to_owned(),
                shared,
                thread: Some(thread),
                lock,
                older,
            },
            recorder,
        ))
    }

    /// The older trace whose place this one takes. It can come back until it is settled or the recording is
    /// finished.
    pub fn older(&self) -> Older {
        self.older.clone()
    }

    /// The file that is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores all records so far, closes the run, and leaves one single file. Later records of any thread are
    /// dropped.
    pub fn finish(mut self, recorder: &Recorder, end: RunEnd) -> Summary {
        recorder.record(Record::RunEnd(end));
        self.shared.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("finish consumes the writer");
        thread.thread().unpark();
        let mut summary = thread.join().unwrap_or_else(|_| Summary {
            write_error: Some("the writer thread panicked".into()),
            ..Summary::default()
        });
        summary.displaced = displaced(&self.lock, &self.path);
        self.older.settle();
        summary.kept = self.older.kept();
        // Closing the lock file is not enough: a process that was just forked has the descriptor, too.
        let _ = self.lock.unlock();
        summary
    }

    /// Gives up a recording that never began, and removes its file; an older trace gets its name again.
    pub fn discard(mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
        let _ = crate::beside::remove_logs(&self.path);
        self.older.put_back();
    }
}

impl Recorder {
    /// A recorder that drops its records: for running the same code without a trace.
    pub fn nowhere() -> Recorder {
        // Without its receiving end the queue takes records and drops them.
        let (queue, _) = sync_channel(0);
        let shared = Shared::new(true);
        Recorder {
            queue,
            shared,
            writer: thread::current(),
        }
    }

    /// Passwords and keys in command lines are stored as they are, from now on.
    pub fn keep_secrets(&self) {
        self.shared.keeps_secrets.store(true, Ordering::Relaxed);
    }

    /// Adds a record to the queue; waits while the queue is full.
    pub fn record(&self, mut record: Record) {
        // Cut here, so that the memory of records in the queue has a bound.
        if record.cut_arguments() {
            self.lost(Loss::ArgumentsCut, 1);
        }
        match self.queue.try_send(record) {
            // Disconnected: the writer is gone, and its end was or will be reported by finish.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(record)) => self.wait_and_record(record),
        }
    }

    #[cold]
    fn wait_and_record(&self, mut record: Record) {
        // A blocking send would be woken, and the writer interrupted, for every single place.
        while let Err(TrySendError::Full(back)) = self.queue.try_send(record) {
            record = back;
            self.writer.unpark();
            thread::sleep(FULL);
        }
    }

    /// Waits until all earlier records are committed, or could not be. False if some record since the begin
    /// could not be stored, or if the writer is gone.
    pub fn settle(&self) -> bool {
        let (done, settled) = sync_channel(1);
        self.record(Record::Settle(done));
        self.writer.unpark();
        settled.recv().unwrap_or(false)
    }

    /// Counts a loss.
    pub fn lost(&self, loss: Loss, count: u64) {
        if count > 0 {
            self.record(Record::Lost { loss, count });
        }
    }

    /// A ring for the calls of the calling thread.
    pub fn call_ring(&self) -> CallRing {
        let (producer, consumer) = RingBuffer::new(rings::CALLS);
        // A ring whose other end is gone takes calls and drops them.
        self.shared
            .calls
            .add(consumer, || self.shared.stop.load(Ordering::Acquire));
        self.ring(producer)
    }

    /// A ring for calls on pipes and sockets that the calling thread records.
    pub fn channel_call_ring(&self) -> ChannelCallRing {
        let (producer, consumer) = RingBuffer::new(rings::CALLS);
        self.shared
            .channel_calls
            .add(consumer, || self.shared.stop.load(Ordering::Acquire));
        self.ring(producer)
    }

    /// A ring for the packets of the calling thread.
    pub fn packet_ring(&self) -> PacketRing {
        let (producer, consumer) = RingBuffer::new(rings::PACKETS);
        self.shared
            .packets
            .add(consumer, || self.shared.stop.load(Ordering::Acquire));
        self.ring(producer)
    }

    fn ring<T>(&self, producer: Producer<T>) -> rings::Ring<T> {
        rings::Ring::new(producer, self.writer.clone())
    }
}

/// Fate of the name `path` of the open file `file`; `None`: it still names the file.
fn displaced(file: &File, path: &Path) -> Option<Displaced> {
    let own = file.metadata().ok()?;
    let is_own = |there: Metadata| (there.dev(), there.ino()) == (own.dev(), own.ino());
    match path.metadata() {
        _ if own.nlink() == 0 => Some(Displaced::Deleted),
        Ok(there) => (!is_own(there)).then_some(Displaced::Moved),
        Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(Displaced::Moved),
    }
}

/// The writer thread: drain, store, commit, sleep; until `stop` is set and nothing is left.
fn run(
    db: &Connection,
    reserved: batch::ReservedSpace,
    records: &Receiver<Record>,
    shared: &Shared,
) -> Summary {
    let mut batches = Batches::new(db, reserved);
    let mut calls = Vec::new();
    let mut channel_calls = Vec::new();
    let mut packets = Vec::new();
    let mut settling = Vec::new();
    let mut last_commit = Instant::now();
    loop {
        // Read before draining, so that all records before the flag are drained.
        let stopping = shared.stop.load(Ordering::Acquire);
        // Before the queue, for the queue has the flow of each of these packets.
        shared.packets.drain(&mut packets);
        let keeps_secrets = shared.keeps_secrets.load(Ordering::Relaxed);
        let mut drained = drain_queue(&mut batches, records, &mut settling, keeps_secrets);
        if !settling.is_empty() {
            shared.packets.drain(&mut packets);
        }
        shared.calls.drain(&mut calls);
        shared.channel_calls.drain(&mut channel_calls);
        drained += calls.len() + channel_calls.len() + packets.len();
        calls.sort_by_key(|call: &Call| call.start_ns);
        batches.calls(&calls);
        calls.clear();
        batches.channel_calls(&channel_calls);
        channel_calls.clear();
        packets.sort_by_key(|packet: &Packet| packet.t_ns);
        batches.packets(&packets);
        packets.clear();
        if batches.pending() >= COMMIT_ROWS
            || last_commit.elapsed() >= COMMIT_INTERVAL
            || !settling.is_empty()
        {
            batches.commit();
            last_commit = Instant::now();
        }
        for done in settling.drain(..) {
            let _ = done.send(!batches.has_failed());
        }
        // One pass after the flag takes all records before the flag: the queue is shorter than what one pass
        // takes. Waiting until no record comes could be waiting for a busy process.
        if stopping {
            shared.calls.clear();
            shared.channel_calls.clear();
            shared.packets.clear();
            return batches.finish();
        }
        if drained == 0 {
            thread::park_timeout(IDLE);
        }
    }
}

/// Moves waiting records into the open transaction, at most about one transaction's worth.
fn drain_queue(
    batches: &mut Batches<'_>,
    records: &Receiver<Record>,
    settling: &mut Vec<SyncSender<bool>>,
    keeps_secrets: bool,
) -> usize {
    let mut drained = 0;
    while drained < COMMIT_ROWS {
        match records.try_recv() {
            Ok(Record::Settle(done)) => settling.push(done),
            Ok(mut record) => {
                // Here, where nobody waits for the result.
                let count = if keeps_secrets {
                    0
                } else {
                    record.mask_secrets()
                };
                batches.record(&record);
                if count > 0 {
                    let loss = Loss::SecretsMasked;
                    batches.record(&Record::Lost { loss, count });
                }
                drained += 1;
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
    }
    drained
}

#[cfg(test)]
mod tests;
