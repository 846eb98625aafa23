//! Processes: their images, threads, costs.

use serde::{Deserialize, Serialize};

use crate::{HostId, Text, Tid, Upid};

/// The way in which a process image began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// By an exec.
    Exec,
    /// By a fork; it runs its parent's image until an exec.
    Fork,
    /// It was found running.
    Seen,
}

impl Origin {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Exec => "exec",
            Origin::Fork => "fork",
            Origin::Seen => "seen",
        }
    }
}

/// Limit of the stored arguments of a process, in bytes, with their ends: as many as xargs(1) gives to a
/// program, and as the longest argument has. A reader of arguments needs no more than one byte beyond.
pub const MOST_ARGUMENTS: usize = 128 << 10;

/// The last argument of those that were cut to [`MOST_ARGUMENTS`].
pub const CUT: &str = "…";

/// Removes the arguments beyond [`MOST_ARGUMENTS`], and puts [`CUT`] in their place; true if there were any.
pub(super) fn cut_arguments(argv: &mut Vec<u8>) -> bool {
    if argv.len() <= MOST_ARGUMENTS {
        return false;
    }
    let last_end = argv[..MOST_ARGUMENTS].iter().rposition(|&b| b == 0);
    argv.truncate(last_end.unwrap_or(MOST_ARGUMENTS - 1));
    argv.push(0);
    argv.extend_from_slice(CUT.as_bytes());
    argv.push(0);
    argv.shrink_to_fit();
    true
}

/// The begin of a process image (table `process`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessStart {
    /// Its id.
    pub upid: Upid,
    /// Host on which it runs.
    pub host: HostId,
    /// Process id.
    pub pid: u32,
    /// Image that forked the process.
    pub parent: Option<Upid>,
    /// Image before the exec.
    pub prev: Option<Upid>,
    /// Event that began it.
    pub origin: Origin,
    /// Executable.
    pub exe: Option<Text>,
    /// Exact arguments, each ended by a NUL, as `/proc/PID/cmdline` gives them; of more than [`MOST_ARGUMENTS`] bytes those
    /// that fit are stored.
    pub argv: Option<Vec<u8>>,
    /// Working directory.
    pub cwd: Option<Text>,
    /// Image whose recorded environment variables this one has, too: this image itself or an earlier one;
    /// `None`: the image has no recorded variables.
    pub environment: Option<Upid>,
    /// Begin.
    pub start_ns: u64,
}

/// A descriptor that a program began with (table `descriptor`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptorRecord {
    /// Process image that began by an exec.
    pub upid: Upid,
    /// Its number.
    pub fd: i32,
    /// A path, or the kernel's text, such as `pipe:[7]`.
    pub target: Text,
    /// Open flags that are still in force.
    pub flags: u32,
    /// Position in the file.
    pub position: u64,
}

/// Costs of a process image, of its own threads only, never of its children. `None`: not readable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode.
    pub user_ns: Option<u64>,
    /// CPU time in the kernel.
    pub sys_ns: Option<u64>,
    /// Time on a CPU.
    pub on_cpu_ns: Option<u64>,
    /// Time runnable but waiting for a CPU.
    pub run_queue_ns: Option<u64>,
    /// Time in stops by the tracer.
    pub tracer_ns: Option<u64>,
    /// Sum of the lifetimes of its threads.
    pub thread_ns: Option<u64>,
    /// Time for which the kernel's delay accounting saw its threads wait for a block device.
    pub block_io_ns: Option<u64>,
    /// Peak resident memory.
    pub max_rss_bytes: Option<u64>,
    /// Page faults without I/O.
    pub minor_faults: Option<u64>,
    /// Page faults with I/O.
    pub major_faults: Option<u64>,
    /// Context switches by waiting.
    pub voluntary_switches: Option<u64>,
    /// Context switches by preemption.
    pub involuntary_switches: Option<u64>,
    /// Read-like calls.
    pub read_calls: Option<u64>,
    /// Write-like calls.
    pub write_calls: Option<u64>,
    /// Bytes they returned.
    pub read_bytes: Option<u64>,
    /// Bytes they wrote.
    pub write_bytes: Option<u64>,
    /// Threads that lived.
    pub threads: Option<u32>,
}

/// The end of a process image.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// The process image.
    pub upid: Upid,
    /// Time of the end; `None` when only its usage is known.
    pub end_ns: Option<u64>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub exit_signal: Option<i32>,
    /// Process id in the innermost pid namespace that it lived in, when that is a nested one.
    pub inner_pid: Option<u32>,
    /// Its costs.
    pub usage: Usage,
}

/// A thread beside the first (table `thread`), written when it ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ThreadRecord {
    /// Image it was created in.
    pub upid: Upid,
    /// Its id.
    pub tid: Tid,
    /// Creation.
    pub start_ns: u64,
    /// End.
    pub end_ns: Option<u64>,
}
