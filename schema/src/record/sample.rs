//! What the sampler saw threads do.

use crate::{Activity, ChannelId, FileId, Tid, Upid};

/// Which side of a channel a thread waited at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// For something to read, or a connection to accept.
    Read,
    /// For room to write, or a connection to be made.
    Write,
}

impl Side {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Read => "read",
            Side::Write => "write",
        }
    }
}

/// What a thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitObject {
    /// Inode of the pipe, FIFO, socket or file; the pid of the child.
    pub object: u64,
    /// Side of a channel.
    pub side: Option<Side>,
    /// The channel, when it is known.
    pub channel: Option<ChannelId>,
}

/// The thread that woke another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waker {
    /// Its process image.
    pub upid: Upid,
    /// The thread.
    pub tid: Tid,
}

/// What a thread did over an interval (table `sample`). One with the id of an earlier one
/// replaces its end.
#[derive(Clone, Debug)]
pub struct SampleRecord {
    /// Its id, counted from 1.
    pub id: u64,
    /// Begin: halfway between the first sample and the one before.
    pub start_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
    /// Process image.
    pub upid: Upid,
    /// Thread.
    pub tid: Tid,
    /// What it did.
    pub activity: Activity,
    /// System call it was in.
    pub op: Option<&'static str>,
    /// What it waited for; several when it waited for any of them.
    pub objects: Vec<WaitObject>,
    /// File.
    pub file: Option<FileId>,
    /// Samples that agree; of an exact interval its length in steps of 0.1 ms.
    pub samples: u32,
    /// The scheduler told it; otherwise samples did.
    pub exact: bool,
    /// Who ended the wait.
    pub waker: Option<Waker>,
}

/// What all samples of a process image sum up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledTotals {
    /// Process image.
    pub upid: Upid,
    /// Samples of its threads.
    pub samples: u64,
    /// Thread time they stand for.
    pub sampled_ns: u64,
    /// Of it, waiting for anything.
    pub waiting_ns: u64,
    /// Of that, waiting for storage.
    pub storage_ns: u64,
    /// Of that, while requests of the thread itself waited in a queue; `None`: not told.
    pub queue_ns: Option<u64>,
    /// Likewise, while a device had them.
    pub device_ns: Option<u64>,
    /// Held by the tracer.
    pub tracer_ns: u64,
    /// The scheduler told all of it; otherwise these are samples.
    pub exact: bool,
}
