//! The one writer of a trace, which is a thread or a process of its own, and the ways of records to it.
//!
//! Recorders never wait for SQLite itself. They wait only when the ring between them and the writer is full, so
//! no file call is ever dropped while the disk accepts rows. Rows are committed at most [`COMMIT_INTERVAL`] or
//! [`COMMIT_ROWS`] after they arrived: a `kill -9` costs no more than that. When the writer is gone, records
//! are dropped, and nobody waits.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::store;
use crate::{Call, ChannelCall, Error, Loss, Older, Packet, Record, Result, RunEnd, Unrecorded};

mod batch;
mod bulk;
mod calls;
mod channel_calls;
mod channels;
mod commands;
mod ends;
mod insert;
mod network;
mod packets;
mod ring;
mod stacks;
mod summary;

use batch::{Batches, COMMIT_ROWS, ReservedSpace};
use ends::{Begun, IDLE, Order, Sender, receive, send};
pub use ends::{RecordingEnd, WritingEnd, pair};
pub(crate) use packets::PACKET_BITS;
use ring::{Message, Plain};
pub use summary::{Displaced, Summary};

/// Longest time between the arrival of a row and its commit, without the time of the commit itself.
const COMMIT_INTERVAL: Duration = Duration::from_millis(200);

/// The writing end of a trace. [`Writer::finish`] completes the file; dropping the writer
/// without it leaves a file that reads as cut short.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    sender: Arc<Sender>,
    /// Waits for the end of the writer.
    watch: Option<JoinHandle<std::result::Result<Summary, Unrecorded>>>,
    file: File,
    older: Older,
}

/// Gives records to the writer. Cheap to clone; usable from any thread.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// `None`: records go nowhere.
    sender: Option<Arc<Sender>>,
}

impl Writer {
    /// Makes a new trace at `path` and starts a thread that writes it. An older one there is kept under the
    /// name of [`crate::kept_path`], or removed if `replace` is set.
    ///
    /// # Errors
    /// If the file there is not a trace, if the new one cannot be made, or if its disk is full.
    pub fn create(path: &Path, replace: bool) -> Result<(Writer, Recorder)> {
        let fail = |source| Error::Create {
            path: path.to_owned(),
            source,
        };
        let (recording, writing) = pair().map_err(fail)?;
        let thread = thread::Builder::new().name("trace-store".into());
        let thread = thread.spawn(|| writing.serve()).map_err(fail)?;
        recording.begin(path, replace, move || {
            let _ = thread.join();
            None
        })
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
        let mut summary = match self.stop() {
            Ok(summary) => summary,
            Err(note) => {
                let note = note.ended(end.exit_code, end.exit_signal);
                // The first one is there.
                let _ = note.write(&self.path);
                let db = store::open_to_store(&self.path);
                Summary {
                    not_folded: db.map_or_else(|e| Some(e.to_string()), |db| batch::fold(&db)),
                    ..Summary::default()
                }
            }
        };
        summary.displaced = displaced(&self.file, &self.path);
        self.older.settle();
        summary.kept = self.older.kept();
        summary
    }

    /// Gives up a recording that never began, and removes its file; an older trace gets its name again.
    pub fn discard(mut self) {
        let _ = self.stop();
        let _ = std::fs::remove_file(&self.path);
        let _ = crate::beside::remove_companions(&self.path);
        self.older.put_back();
    }

    /// Makes the writer end; waits for its end.
    fn stop(&mut self) -> std::result::Result<Summary, Unrecorded> {
        self.sender.stop();
        let watch = self.watch.take().expect("it is stopped once");
        watch.join().unwrap_or_else(|_| Err(Unrecorded::now()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.sender.leave();
            let _ = watch.join();
        }
    }
}

impl Recorder {
    /// A recorder that drops its records: for running the same code without a trace.
    pub fn nowhere() -> Recorder {
        Recorder { sender: None }
    }

    /// Passwords and keys in command lines are stored as they are, from now on.
    pub fn keep_secrets(&self) {
        if let Some(sender) = &self.sender {
            sender.keep_secrets();
        }
    }

    /// Gives a record to the writer; waits while there is no space for it.
    pub fn record(&self, mut record: Record) {
        let Some(sender) = &self.sender else { return };
        // Cut here, so that a record has a bound.
        if record.cut_arguments() {
            self.lost(Loss::ArgumentsCut, 1);
        }
        sender.record(&record);
    }

    /// Waits until all earlier records are committed, or could not be. False if some record since the begin
    /// could not be stored, or if the writer is gone.
    pub fn settle(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.settle())
    }

    /// Counts a loss.
    pub fn lost(&self, loss: Loss, count: u64) {
        if count > 0 {
            self.record(Record::Lost { loss, count });
        }
    }

    /// Gives a file call to the writer; waits while there is no space for it.
    #[inline]
    pub fn call(&self, call: &Call) {
        self.row(call);
    }

    /// Gives a call on a pipe or socket to the writer, likewise.
    #[inline]
    pub fn channel_call(&self, call: &ChannelCall) {
        self.row(call);
    }

    /// Gives a packet to the writer, likewise.
    #[inline]
    pub fn packet(&self, packet: &Packet) {
        self.row(packet);
    }

    #[inline]
    fn row<T: Plain>(&self, row: &T) {
        if let Some(sender) = &self.sender {
            sender.row(row);
        }
    }
}

impl RecordingEnd {
    /// Makes the writer make a new trace at `path`, an absolute path if the writer is another process. An older
    /// one there is kept under the name of [`crate::kept_path`], or removed if `replace` is set. `ended` waits
    /// for the end of a writer that has no more to do, and returns the signal that killed it.
    ///
    /// # Errors
    /// As [`Writer::create`], or if the writer is gone.
    pub fn begin(
        self,
        path: &Path,
        replace: bool,
        ended: impl FnOnce() -> Option<i32> + Send + 'static,
    ) -> Result<(Writer, Recorder)> {
        let fail = |source| Error::Create {
            path: path.to_owned(),
            source,
        };
        let RecordingEnd(sender) = self;
        let mut stream = sender.stream.try_clone().map_err(fail)?;
        let order = Order {
            path: path.to_owned(),
            replace,
            recording: std::process::id(),
        };
        if let Err(error) = send(&mut stream, &order) {
            sender.leave();
            ended();
            return Err(fail(error));
        }
        let older = match receive::<Begun>(&mut stream) {
            Some(Ok((place, after))) => Older::of(place, after),
            Some(Err(error)) => {
                ended();
                return Err(error);
            }
            None => {
                ended();
                let reason = "the process that was to write it has ended";
                return Err(fail(io::Error::other(reason)));
            }
        };
        let file = File::open(path).map_err(fail)?;
        let sender = Arc::new(sender);
        let watch = thread::Builder::new().name("trace-writer".into()).spawn({
            let (sender, path) = (Arc::clone(&sender), path.to_owned());
            move || watch(&mut stream, &sender, &path, ended)
        });
        let recorder = Recorder {
            sender: Some(Arc::clone(&sender)),
        };
        let writer = Writer {
            path: path.to_owned(),
            sender,
            watch: Some(watch.map_err(fail)?),
            file,
            older,
        };
        Ok((writer, recorder))
    }
}

/// Waits for the end of the writer. If that comes too early, from then on nobody waits for the writer, and a note
/// beside the trace says so.
fn watch(
    stream: &mut UnixStream,
    sender: &Sender,
    path: &Path,
    ended: impl FnOnce() -> Option<i32>,
) -> std::result::Result<Summary, Unrecorded> {
    let summary = receive(stream);
    let was_left = sender.is_over.swap(true, Ordering::AcqRel);
    let now = Unrecorded::now();
    let signal = ended();
    summary.ok_or_else(|| {
        let note = now.because(signal);
        if !was_left {
            // Without the note the trace reads as cut short.
            let _ = note.write(path);
        }
        note
    })
}

impl WritingEnd {
    /// Writes the trace that the other end asks for, until that has enough, or is gone. Then all that came is
    /// committed, and the trace reads as cut short.
    pub fn serve(mut self) {
        let Some(order) = receive(&mut self.stream) else {
            return;
        };
        let (reserved, db, lock, older) = match open(&order) {
            Ok(opened) => opened,
            Err(error) => {
                let _ = send(&mut self.stream, &Begun::Err(error));
                return;
            }
        };
        let _ = self.stream.set_read_timeout(Some(IDLE));
        let _ = send(&mut self.stream, &Begun::Ok(older.parts()));
        match run(&db, reserved, &mut self) {
            Some(summary) => {
                drop(db);
                // Closing the file is not enough: a process that was just forked has the descriptor, too.
                let _ = lock.unlock();
                let _ = send(&mut self.stream, &summary);
            }
            // Closing it would look up names, which may lead to a mount that nobody serves any more.
            None => std::mem::forget(db),
        }
    }
}

fn open(order: &Order) -> Result<(ReservedSpace, Connection, File, Older)> {
    // First, so that a full disk costs no older trace.
    let reserved = ReservedSpace::beside(&order.path).map_err(|source| Error::Create {
        path: order.path.clone(),
        source,
    })?;
    let (db, lock, older) = store::create_for(&order.path, order.replace, order.recording)?;
    Ok((reserved, db, lock, older))
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

/// The writer: take, store, commit, sleep; until it is to stop. `None`: nobody is there any more to stop it.
fn run(db: &Connection, reserved: batch::ReservedSpace, end: &mut WritingEnd) -> Option<Summary> {
    let mut batches = Batches::new(db, reserved);
    let mut calls = Vec::new();
    let mut channel_calls = Vec::new();
    let mut packets = Vec::new();
    let mut last_commit = Instant::now();
    let mut is_alone = false;
    loop {
        // Read before the rest is taken, so that all records before the flag are.
        let stopping = end.state().stop.load(Ordering::Acquire);
        end.state().is_woken.store(false, Ordering::Release);
        let keeps_secrets = end.state().keeps_secrets.load(Ordering::Relaxed);
        let mut is_asked = false;
        let (count, position) = end.receiver().take(|message| match message {
            Message::Record(encoded) => record(&mut batches, encoded, keeps_secrets),
            Message::Settle => is_asked = true,
            Message::Call(call) => calls.push(call),
            Message::ChannelCall(call) => channel_calls.push(call),
            Message::Packet(packet) => packets.push(packet),
        });
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
            || is_asked
            || is_alone
        {
            batches.commit();
            last_commit = Instant::now();
            let (state, failed) = (end.state(), batches.has_failed());
            state.has_failed.store(failed, Ordering::Relaxed);
            state.settled.0.store(position, Ordering::Release);
        }
        // One pass after the flag takes all records before the flag. Waiting until no record comes could be
        // waiting for a busy process.
        if stopping {
            return Some(batches.finish());
        }
        if is_alone {
            return None;
        }
        if count == 0 {
            is_alone = !end.wait();
        }
    }
}

/// Puts a record into the open transaction.
fn record(batches: &mut Batches<'_>, encoded: &[u8], keeps_secrets: bool) {
    let Ok(mut record) = postcard::from_bytes::<Record>(encoded) else {
        // Of the same program this is a bug; what follows can be read all the same.
        return batches.record(&Record::Lost {
            loss: Loss::RowsDropped,
            count: 1,
        });
    };
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
    if batches.pending() >= COMMIT_ROWS {
        batches.commit();
    }
}

#[cfg(test)]
mod tests;
