//! Records of the activity of threads.

use serde::{Deserialize, Serialize};

use crate::carried::{self, Constant};
use crate::{Activity, ChannelId, FileId, Tid, Upid};

/// Side of a channel at which a thread waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    /// It waited for something to read, or a connection to accept.
    Read,
    /// It waited for space to write, or a connection to be made.
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

/// The object of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitObject {
    /// Inode of the pipe, FIFO, socket or file; the pid of the child.
    pub object: u64,
    /// Side of a channel.
    pub side: Option<Side>,
    /// The channel, when it is known.
    pub channel: Option<ChannelId>,
}

/// The thread that woke another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Waker {
    /// Its process image.
    pub upid: Upid,
    /// The thread.
    pub tid: Tid,
}

/// The activity of a thread over an interval (table `sample`). A record with the id of an earlier one
/// replaces its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Its activity.
    pub activity: Activity,
    /// System call it was in.
    #[serde(deserialize_with = "carried::optional_constant")]
    pub op: Option<Constant>,
    /// The objects of the wait; several if any of them ends it.
    pub objects: Vec<WaitObject>,
    /// File.
    pub file: Option<FileId>,
    /// Samples that agree; of an exact interval its length in steps of 0.1 ms.
    pub samples: u32,
    /// True if the scheduler reported the interval; otherwise samples did.
    pub exact: bool,
    /// The thread that ended the wait.
    pub waker: Option<Waker>,
}

/// Totals of all samples of a process image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledTotals {
    /// Process image.
    pub upid: Upid,
    /// Samples of its threads.
    pub samples: u64,
    /// Thread time they stand for.
    pub sampled_ns: u64,
    /// The part of it in any wait.
    pub waiting_ns: u64,
    /// The part of that in waits for storage.
    pub storage_ns: u64,
    /// The part of that while requests of the thread itself were in a queue; `None`: not reported.
    pub queue_ns: Option<u64>,
    /// The same while a device had them.
    pub device_ns: Option<u64>,
    /// Time in stops by the tracer.
    pub tracer_ns: u64,
    /// True if the scheduler reported all of it; otherwise these are samples.
    pub exact: bool,
}
