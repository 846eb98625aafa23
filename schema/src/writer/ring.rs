//! A ring of bytes in memory that this process shares with its children.
//!
//! The threads of one process send, one receiver takes. The receiver may be another process, as long as that
//! runs the same program: if either process ends, at any instant, the other one finds all that was sent
//! completely.
//!
//! A message is a byte for its kind and its content: the bytes of a row as they are in memory, or the length of
//! an encoded record and its bytes.
#![expect(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::{Call, ChannelCall, Packet};

/// Bytes that may wait before a sender waits. Several times what a receiver finds that takes all every 30 ms,
/// even of many calls; and little to lose with it.
const CAPACITY: usize = 1 << 20;
/// Place of the bytes in the mapping.
const BYTES_AT: usize = 4096;

/// Bytes that need not all have a value, as the padding of a structure.
type Bytes = [MaybeUninit<u8>];

/// State that both processes share. All zero at the begin. Positions are numbers of bytes since then.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct State {
    /// Bytes that were sent.
    sent: AtomicU64,
    /// Bytes that were taken.
    taken: Apart<AtomicU64>,
    /// Position up to which all is stored, or could not be.
    pub(super) settled: Apart<AtomicU64>,
    /// Something could not be stored.
    pub(super) has_failed: AtomicBool,
    /// The receiver was woken, and has not begun to take yet.
    pub(super) is_woken: AtomicBool,
    /// The receiver is to take what is there, and to end.
    pub(super) stop: AtomicBool,
    /// Passwords and keys are stored as they are.
    pub(super) keeps_secrets: AtomicBool,
}

/// A value in a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct Apart<T>(pub(super) T);

/// The memory, for senders.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    /// Bytes that were sent, as the one that sends knows them.
    sending: Mutex<u64>,
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Receiver {
    ring: Arc<Ring>,
    /// Bytes that were taken and not used.
    bytes: Vec<MaybeUninit<u8>>,
}

/// A message.
pub(super) enum Message<'a> {
    /// An encoded record.
    Record(&'a [u8]),
    /// All earlier messages are to be stored now.
    Settle,
    Call(Call),
    ChannelCall(ChannelCall),
    Packet(Packet),
}

const RECORD: u8 = 0;
const SETTLE: u8 = 1;

/// A row that is sent as it is in memory.
///
/// # Safety
/// It contains no pointer, so that its bytes mean the same in another process of this program; and no other
/// type has its number.
pub(super) unsafe trait Plain: Copy + 'static {
    /// Kind of the message.
    const KIND: u8;
}

// SAFETY: numbers and enums only; 2 is its own.
unsafe impl Plain for Call {
    const KIND: u8 = 2;
}
// SAFETY: numbers and enums only; 3 is its own.
unsafe impl Plain for ChannelCall {
    const KIND: u8 = 3;
}
// SAFETY: numbers and enums only; 4 is its own.
unsafe impl Plain for Packet {
    const KIND: u8 = 4;
}

// SAFETY: the state consists of atomics. Of the bytes, those between `taken` and `sent` belong to the one
// receiver, the others to the thread that has `sending`.
unsafe impl Send for Ring {}
// SAFETY: likewise.
unsafe impl Sync for Ring {}

impl Ring {
    /// An empty ring.
    ///
    /// # Errors
    /// If the system has no memory for it.
    pub(super) fn new() -> io::Result<(Arc<Ring>, Receiver)> {
        const { assert!(size_of::<State>() <= BYTES_AT) };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                BYTES_AT + CAPACITY,
                access,
                MapFlags::SHARED,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = Arc::new(Ring {
            start,
            sending: Mutex::new(0),
        });
        let receiver = Receiver {
            ring: Arc::clone(&ring),
            bytes: Vec::new(),
        };
        Ok((ring, receiver))
    }

    pub(super) fn state(&self) -> &State {
        // SAFETY: the mapping begins with a state, for which zeros are valid, and lives as long as `self`.
        unsafe { self.start.cast().as_ref() }
    }

    /// Sends a row. While there is no space, `wait` is called; if that returns false, the rest is not sent, and
    /// nothing may be sent after it. Returns the position after the message.
    #[inline]
    pub(super) fn send_row<T: Plain>(&self, row: &T, wait: impl FnMut() -> bool) -> u64 {
        // SAFETY: any value is a sequence of bytes, which need not be initialised.
        let row = unsafe { std::slice::from_raw_parts(ptr::from_ref(row).cast(), size_of::<T>()) };
        self.send(&[initialised(&[T::KIND]), row], wait)
    }

    /// Sends an encoded record, likewise.
    pub(super) fn send_record(&self, record: &[u8], wait: impl FnMut() -> bool) -> u64 {
        let length = record.len().to_ne_bytes();
        let parts = [&[RECORD], &length[..], record];
        self.send(&parts.map(initialised), wait)
    }

    /// Sends that all earlier messages are to be stored now, likewise.
    pub(super) fn send_settle(&self, wait: impl FnMut() -> bool) -> u64 {
        self.send(&[initialised(&[SETTLE])], wait)
    }

    /// Sends a message of these parts: no part of another one gets between them.
    fn send(&self, parts: &[&Bytes], mut wait: impl FnMut() -> bool) -> u64 {
        let state = self.state();
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts {
            let mut left: &Bytes = part;
            while !left.is_empty() {
                let (start, free) = place(state.taken.0.load(Ordering::Acquire), *sending);
                let length = left.len().min(free).min(CAPACITY - start);
                // SAFETY: these bytes of the mapping are free, so the thread that has `sending` owns them.
                unsafe {
                    let to = self.start.add(BYTES_AT + start).as_ptr();
                    ptr::copy_nonoverlapping(left.as_ptr().cast(), to, length);
                }
                *sending += length as u64;
                left = &left[length..];
                if free == length && !left.is_empty() {
                    // The receiver puts the parts of a long message together.
                    state.sent.store(*sending, Ordering::Release);
                    if !wait() {
                        return *sending;
                    }
                }
            }
        }
        state.sent.store(*sending, Ordering::Release);
        *sending
    }

    /// True if more than half of the ring waits at a position that was just sent.
    pub(super) fn is_half_full(&self, sent: u64) -> bool {
        let taken = self.state().taken.0.load(Ordering::Relaxed);
        sent.saturating_sub(taken) > CAPACITY as u64 / 2
    }
}

/// The place of the next byte, and the number of free ones.
fn place(taken: u64, sent: u64) -> (usize, usize) {
    let start = sent as usize % CAPACITY;
    (start, CAPACITY - (sent - taken) as usize)
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), BYTES_AT + CAPACITY) };
    }
}

impl Receiver {
    pub(super) fn state(&self) -> &State {
        self.ring.state()
    }

    /// Takes all that was sent, and calls `each` with every message that is complete. Returns the number of these
    /// messages, and the position after what was taken.
    pub(super) fn take(&mut self, mut each: impl FnMut(Message<'_>)) -> (usize, u64) {
        let taken = self.fetch();
        let (mut left, mut count) = (&*self.bytes, 0);
        while let Some((message, rest)) = split(left) {
            each(message);
            left = rest;
            count += 1;
        }
        let used = self.bytes.len() - left.len();
        self.bytes.drain(..used);
        (count, taken)
    }

    /// Moves the waiting bytes out of the ring, so that it has space while they are used.
    fn fetch(&mut self) -> u64 {
        let state = self.ring.state();
        let sent = state.sent.load(Ordering::Acquire);
        let mut taken = state.taken.0.load(Ordering::Relaxed);
        while taken < sent {
            let start = taken as usize % CAPACITY;
            let length = ((sent - taken) as usize).min(CAPACITY - start);
            // SAFETY: the bytes between `taken` and `sent` belong to the one receiver.
            self.bytes.extend_from_slice(unsafe {
                let from = self.ring.start.add(BYTES_AT + start).cast().as_ptr();
                std::slice::from_raw_parts(from, length)
            });
            taken += length as u64;
        }
        state.taken.0.store(taken, Ordering::Release);
        taken
    }
}

/// The first message, and the bytes after it; `None`: it is not complete.
fn split(bytes: &Bytes) -> Option<(Message<'_>, &Bytes)> {
    let (kind, rest) = known(bytes, 1)?;
    match kind[0] {
        Call::KIND => row(rest).map(|(call, rest)| (Message::Call(call), rest)),
        ChannelCall::KIND => row(rest).map(|(call, rest)| (Message::ChannelCall(call), rest)),
        Packet::KIND => row(rest).map(|(packet, rest)| (Message::Packet(packet), rest)),
        SETTLE => Some((Message::Settle, rest)),
        _ => {
            let (length, rest) = known(rest, size_of::<usize>())?;
            let length = usize::from_ne_bytes(length.try_into().ok()?);
            let (record, rest) = known(rest, length)?;
            Some((Message::Record(record), rest))
        }
    }
}

/// A row of a message of its kind, and the bytes after it.
fn row<T: Plain>(bytes: &Bytes) -> Option<(T, &Bytes)> {
    let (row, rest) = bytes.split_at_checked(size_of::<T>())?;
    // SAFETY: after a byte with its kind these are the bytes of a row of this type.
    Some((unsafe { row.as_ptr().cast::<T>().read_unaligned() }, rest))
}

/// Bytes of a message that are no row, and the bytes after them.
fn known(bytes: &Bytes, length: usize) -> Option<(&[u8], &Bytes)> {
    let (known, rest) = bytes.split_at_checked(length)?;
    // SAFETY: of all that is sent, only rows have bytes that are not initialised.
    let known = unsafe { std::slice::from_raw_parts(known.as_ptr().cast(), length) };
    Some((known, rest))
}

fn initialised(bytes: &[u8]) -> &Bytes {
    // SAFETY: the layout is the same, and bytes with values are allowed.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

#[cfg(test)]
mod tests;
