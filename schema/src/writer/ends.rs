//! The two ends between which records travel: threads that record have one, the writer has the other. The
//! writer may be in a process of its own, forked between [`pair`] and `WritingEnd::serve`.
//!
//! Records are in a [ring](super::ring). A pair of sockets carries the rest: the order to begin and its result, a
//! byte to wake the writer, and the summary. Each end sees by the end of the other socket that nobody has it any
//! more.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ring::{Plain, Receiver, Ring, State};
use crate::carried;
use crate::older::{After, Place};
use crate::{Error, Record};

/// Sleep of the writer when there is nothing to do. The sleep adds to the age of uncommitted rows.
pub(super) const IDLE: Duration = Duration::from_millis(30);
/// Sleep of a recorder when the ring is full.
const FULL: Duration = Duration::from_micros(50);
/// Interval of the checks if all is stored.
const SETTLING: Duration = Duration::from_micros(200);

/// Makes two ends.
///
/// # Errors
/// If the system has no memory or descriptor for them.
pub fn pair() -> io::Result<(RecordingEnd, WritingEnd)> {
    let (ring, receiver) = Ring::new()?;
    let (ours, stream) = UnixStream::pair()?;
    let sender = Sender {
        ring,
        stream: ours,
        is_over: AtomicBool::new(false),
    };
    Ok((RecordingEnd(sender), WritingEnd { receiver, stream }))
}

/// The end that records.
#[derive(Debug)]
pub struct RecordingEnd(pub(super) Sender);

/// The end that writes.
#[derive(Debug)]
pub struct WritingEnd {
    receiver: Receiver,
    pub(super) stream: UnixStream,
}

/// An order to make a trace.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    #[serde(with = "carried::path")]
    pub(super) path: PathBuf,
    pub(super) replace: bool,
    /// The process that records.
    pub(super) recording: u32,
}

/// What became of the order: the place of an older trace.
pub(super) type Begun = std::result::Result<(Place, After), Error>;

impl WritingEnd {
    /// The descriptor that the process of the writer needs.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    pub(super) fn state(&self) -> &State {
        self.receiver.state()
    }

    /// Waits a little, or until the other end wakes this one; false if the other end is gone.
    pub(super) fn wait(&mut self) -> bool {
        match self.stream.read(&mut [0; 8]) {
            Ok(length) => length > 0,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }
}

/// The way of records to the writer, for all threads that record.
#[derive(Debug)]
pub(super) struct Sender {
    ring: Arc<Ring>,
    pub(super) stream: UnixStream,
    /// Nothing is recorded any more.
    pub(super) is_over: AtomicBool,
}

/// True if the record that the writer decodes is the one that was encoded. Debug builds check it for every record
/// of every test.
fn arrives(encoded: &[u8]) -> bool {
    let decoded = postcard::from_bytes::<Record>(encoded);
    decoded.is_ok_and(|record| postcard::to_stdvec(&record).is_ok_and(|again| again == encoded))
}

impl Sender {
    #[inline]
    pub(super) fn row<T: Plain>(&self, row: &T) {
        if !self.is_over() {
            self.sent(self.ring.send_row(row, || self.wait()));
        }
    }

    pub(super) fn record(&self, record: &Record) {
        if self.is_over() {
            return;
        }
        let encoded = postcard::to_stdvec(record).expect("a record consists of values only");
        debug_assert!(arrives(&encoded), "{record:?}");
        self.sent(self.ring.send_record(&encoded, || self.wait()));
    }

    /// Waits until all that was sent is stored, or could not be; false if something could not be.
    pub(super) fn settle(&self) -> bool {
        if self.is_over() {
            return false;
        }
        let sent = self.ring.send_settle(|| self.wait());
        let state = self.ring.state();
        self.wake();
        while state.settled.0.load(Ordering::Acquire) < sent {
            if self.is_over() {
                return false;
            }
            thread::sleep(SETTLING);
        }
        !state.has_failed.load(Ordering::Relaxed)
    }

    /// Makes the writer store all that was sent, and end.
    pub(super) fn stop(&self) {
        self.ring.state().stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Leaves the writer alone, which then ends.
    pub(super) fn leave(&self) {
        self.is_over.store(true, Ordering::Release);
        // Closing the socket is not enough: a process that was just forked has the descriptor, too.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub(super) fn keep_secrets(&self) {
        let state = self.ring.state();
        state.keeps_secrets.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    #[inline]
    fn sent(&self, to: u64) {
        if self.ring.is_half_full(to) {
            self.wake();
        }
    }

    /// Waits for space; false: it will never be there.
    #[cold]
    fn wait(&self) -> bool {
        self.wake();
        thread::sleep(FULL);
        !self.is_over()
    }

    fn wake(&self) {
        let state = self.ring.state();
        // One byte is enough, and never waits for the reader of the other end.
        if !state.is_woken.load(Ordering::Relaxed) && !state.is_woken.swap(true, Ordering::AcqRel) {
            let _ = (&self.stream).write(&[0]);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.leave();
    }
}

pub(super) fn send(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let encoded = postcard::to_stdvec(value).map_err(io::Error::other)?;
    stream.write_all(&(encoded.len() as u32).to_ne_bytes())?;
    stream.write_all(&encoded)
}

/// What the other end sent; `None`: it is gone.
pub(super) fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> Option<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut encoded = vec![0; u32::from_ne_bytes(length) as usize];
    stream.read_exact(&mut encoded).ok()?;
    postcard::from_bytes(&encoded).ok()
}
