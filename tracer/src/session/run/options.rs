//! Options of a run.

use std::ffi::OsString;
use std::path::PathBuf;

use flowtrace_schema::LaunchRecord;

use super::super::seeing::{Layer, Seeing};
use crate::net::live::LiveOptions;
use crate::proc::environment::Wanted;
use crate::stacks::StackOptions;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The command and its arguments; at least one.
    pub command: Vec<OsString>,
    /// Directories to trace; if empty, the working directory.
    pub directories: Vec<PathBuf>,
    /// False to mount nothing, whatever the layer. Without [`Layer::Kernel`] only opens and names of files are then
    /// recorded.
    pub mount: bool,
    /// The trace to write.
    pub output: PathBuf,
    /// True if an older trace there is removed; otherwise it is kept beside the new one.
    pub replace: bool,
    /// Rank and job under which a launcher started this recording.
    pub launch: Option<LaunchRecord>,
    /// Layer and settings for file calls.
    pub seeing: Seeing,
    /// Samples of each thread a second; 0: none.
    pub sample_hertz: u32,
    /// Samples of the machine's counters a second; 0: none.
    pub host_hertz: u32,
    /// True if system calls on names and channels are stopped: files outside the directories, and
    /// channels that open and close between two execs.
    pub topology: bool,
    /// The environment variables to record.
    pub environment: Wanted,
    /// Store passwords and keys of command lines, instead of masking them.
    pub keep_secrets: bool,
    /// Detach from processes that outlive the command, instead of following them to their end.
    pub detach: bool,
    /// Make the same mounts and record nothing: a baseline for the cost of recording.
    pub bare: bool,
    /// Record the processes and no file call: a baseline for the cost of recording the calls.
    pub without_calls: bool,
    /// Mechanism that follows processes.
    pub following: Following,
    /// Capture packets, too.
    pub net: Option<LiveOptions>,
    /// Source of file calls.
    pub layer: Layer,
    /// KiB of the ring of each CPU for records of calls. `None`: as memory allows.
    pub ring_kib: Option<u32>,
    /// Call stacks to sample, if any.
    pub stacks: Option<StackOptions>,
    /// Record every call on pipes and sockets, not their sums alone; with [`Layer::Kernel`].
    pub channel_calls: bool,
}

/// Mechanism that follows the processes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Following {
    /// By eBPF programs where these report as much as ptrace does, else by ptrace.
    #[default]
    Best,
    /// By ptrace: each process is stopped shortly when it begins, runs a program and ends.
    ByPtrace,
    /// Without ptrace, by any available layer.
    WithoutPtrace,
    /// By the kernel's announcements (proc connector), or by reading /proc.
    Announced,
}

impl Following {
    /// True if ptrace is allowed to follow processes.
    pub(super) fn may_use_ptrace(self) -> bool {
        matches!(self, Following::Best | Following::ByPtrace)
    }
}
