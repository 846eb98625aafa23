//! The rows of a trace that grows.

use std::sync::Arc;

use rusqlite::{Result, Row};

use super::FromRow;
use crate::Op;

rows! {
    /// A process image as it began.
    BeganRow {
        /// Own id.
        upid: i64,
        /// Process id.
        pid: i64,
        /// Image that forked it.
        parent_upid: Option<i64>,
        /// Image before its exec.
        prev_upid: Option<i64>,
        /// exec, fork or seen.
        origin: Arc<str>,
        /// Executable file.
        exe: Option<Arc<str>>,
        /// Arguments, quoted for a shell.
        command: Option<Arc<str>>,
        /// Working directory.
        cwd: Option<Arc<str>>,
        /// Name of the step, if the recording has ended.
        rule: Option<Arc<str>>,
        /// Begin.
        start_ns: i64,
        /// End; `None`: it goes on.
        end_ns: Option<i64>,
        /// As in [`EndedRow`].
        exit_code: Option<i64>,
        /// As in [`EndedRow`].
        exit_signal: Option<i64>,
        /// As in [`EndedRow`].
        cpu_ns: Option<i64>,
    }

    /// The end of a process image.
    EndedRow {
        /// Time.
        end_ns: i64,
        /// Exit code; `None`: it ended by an exec or a signal.
        exit_code: Option<i64>,
        /// Signal that ended it.
        exit_signal: Option<i64>,
        /// Time on a CPU.
        cpu_ns: Option<i64>,
    }

    /// The activity of a thread, as it is known by now.
    GrowingSampleRow {
        /// Own id.
        sample_id: i64,
        /// Begin.
        t_ns: i64,
        /// End by now.
        end_ns: i64,
        /// Process image.
        upid: i64,
        /// Thread.
        tid: i64,
        /// Number of the activity.
        activity: i64,
        /// System call it is blocked in.
        op: Option<Arc<str>>,
        /// Side of the channel.
        side: Option<Arc<str>>,
        /// Inode of the channel, or pid of the child.
        object: Option<i64>,
        /// Channel that it waits for.
        channel_id: Option<i64>,
        /// File that it waits for.
        file_id: Option<i64>,
    }

    /// An end of a pipe or socket that an image has, or had, open.
    EndRow {
        /// Own id.
        end_id: i64,
        /// The channel.
        channel_id: i64,
        /// Process image.
        upid: i64,
        /// `read`, `write` or `both`.
        direction: Arc<str>,
        /// Kind of channel.
        kind: Arc<str>,
        /// Inode of the channel.
        inode: Option<i64>,
    }

    /// A counter of a machine at one instant.
    MeasuredRow {
        /// Place in the table.
        row_id: i64,
        /// Machine.
        host_id: i64,
        /// Name, as in the view `counters`.
        counter: Arc<str>,
        /// Time of the sample.
        t_ns: i64,
        /// Its value.
        value: i64,
    }
}

/// A successful file call that moved data, opened or made a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRow {
    /// Begin, ns.
    pub start_ns: i64,
    /// Process image.
    pub upid: i64,
    /// File.
    pub file_id: i64,
    /// Operation.
    pub op: Op,
    /// Open flags.
    pub flags: Option<i64>,
    /// Result: of a read or write the bytes.
    pub bytes: i64,
}
