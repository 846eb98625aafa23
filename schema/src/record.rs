//! The records that a recorder gives to the writer: one struct per table, no behaviour.
//!
//! Times are nanoseconds since the start of the run on the monotonic clock, sizes bytes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{ChannelId, FileId, Loss, Text, Upid, secrets};

mod channel;
mod file;
mod network;
mod process;
mod run;
mod sample;
mod stack;

pub use channel::{
    ChannelCall, ChannelEndClosed, ChannelEndRecord, ChannelKind, ChannelRecord, ChannelTraffic,
    Direction,
};
pub use file::{Call, Coverage, FileKind, FileRecord, NameRecord};
pub use network::{
    CaptureEnd, CaptureRecord, CaptureSource, End, Evidence, FlowOptions, FlowOwner, FlowRecord,
    FlowSample, FlowSeen, Packet, SocketEnd, TcpFields, Way, marks,
};
pub use process::{
    CUT, DescriptorRecord, MOST_ARGUMENTS, Origin, ProcessEnd, ProcessStart, ThreadRecord, Usage,
};
pub use run::{
    CounterRecord, FileLayer, HostClock, HostRecord, HostSample, LaunchRecord, NodeRecord,
    ProcessLayer, RunEnd, RunRecord, TracedDirectory,
};
pub use sample::{SampleRecord, SampledTotals, Side, WaitObject, Waker};
pub(crate) use stack::STACK_STEP_NS;
pub use stack::{StackRecord, StackScope, Symbols};

/// A row, or the completion of one. Everything but [`Call`], [`ChannelCall`] and [`Packet`], which travel
/// as they are in memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Record {
    /// A machine.
    Host(Box<HostRecord>),
    /// The clocks of a machine at time 0.
    HostClock(HostClock),
    /// The recording begins.
    Run(Box<RunRecord>),
    /// The recording is one of many that a launcher started; comes after [`Record::Run`].
    Launch(Box<LaunchRecord>),
    /// The recording ends.
    RunEnd(RunEnd),
    /// A directory is traced from now on.
    TracedDirectory(Box<TracedDirectory>),
    /// A process image begins.
    ProcessStart(Box<ProcessStart>),
    /// A process image ends.
    ProcessEnd(Box<ProcessEnd>),
    /// A thread lived.
    Thread(ThreadRecord),
    /// The activity of a thread over some time, or a longer end of that time.
    Sample(Box<SampleRecord>),
    /// A part of the samples of call stacks.
    Stack(Box<StackRecord>),
    /// Totals of the samples of a process image.
    Sampled(SampledTotals),
    /// A counter of a machine is recorded from now on.
    Counter(Box<CounterRecord>),
    /// A counter of a machine has another value.
    HostSample(HostSample),
    /// As [`Record::HostSample`], but interpolated between its neighbours, not measured.
    Interpolated(HostSample),
    /// State of a machine that a collector watched; replaces the last one.
    Node(NodeRecord),
    /// An environment variable that was recorded by name.
    Environment {
        /// Process image that had it at its exec, when the image before it had others.
        upid: Upid,
        /// Variable.
        name: Text,
        /// Its value.
        value: Text,
    },
    /// A descriptor that a program had open when it began.
    Descriptor(Box<DescriptorRecord>),
    /// A program began with a here-document of a shell.
    HereDocument {
        /// Process image that began by an exec.
        upid: Upid,
        /// Its descriptor.
        fd: i32,
        /// The pipe.
        channel: ChannelId,
        /// Bytes that were still unread in the pipe.
        bytes: u32,
        /// These bytes; `None`: they are the end of what was recorded for that pipe before.
        content: Option<String>,
    },
    /// Other properties that a program began with.
    Setting {
        /// Process image that began by an exec.
        upid: Upid,
        /// File mode creation mask.
        umask: Option<u32>,
        /// Hash of the environment: equal for equal environments within the run.
        environment: Option<u64>,
        /// CPUs that its affinity mask allows, as `0-3,8`; `None`: all.
        cpus: Option<String>,
        /// CPU time that its control groups allow in each second; `None`: no quota.
        cpu_quota_ns: Option<u64>,
    },
    /// A file is seen for the first time.
    File(FileRecord),
    /// A file has another size.
    FileSize {
        /// The file.
        file: FileId,
        /// Its size.
        size_bytes: u64,
    },
    /// A file has a name from now on.
    Name(Box<NameRecord>),
    /// A name ends: it was renamed away or removed.
    NameEnd {
        /// The file.
        file: FileId,
        /// The directory that has the name.
        directory: FileId,
        /// The name.
        name: Text,
        /// Time of the end.
        at_ns: u64,
    },
    /// A directory has a path from now on.
    DirectoryPath {
        /// The directory.
        directory: FileId,
        /// Its absolute path.
        path: Text,
        /// Begin of the time for which it has the path.
        from_ns: u64,
    },
    /// The path of a directory ends.
    DirectoryPathEnd {
        /// The directory.
        directory: FileId,
        /// Time of the end.
        at_ns: u64,
    },
    /// A channel is seen for the first time.
    Channel(Box<ChannelRecord>),
    /// A process image has one end of a channel open from now on.
    ChannelEnd(ChannelEndRecord),
    /// A process image has closed its end of a channel, or has ended.
    ChannelEndClosed(ChannelEndClosed),
    /// Bytes that a process image, which is over, moved through one side of a channel.
    ChannelTraffic(Box<ChannelTraffic>),
    /// Says that all bytes that this process image, which is over, moved through channels are recorded as
    /// [`Record::ChannelTraffic`].
    AllTraffic(Upid),
    /// Packets are captured at a place from now on.
    Capture(Box<CaptureRecord>),
    /// A capture ends.
    CaptureEnd(Box<CaptureEnd>),
    /// A flow is seen for the first time.
    Flow(Box<FlowRecord>),
    /// An end of a TCP connection announced options in its SYN.
    FlowOptions(FlowOptions),
    /// The packets of a flow that a capture saw, or more of them.
    FlowSeen(Box<FlowSeen>),
    /// A process image is at an end of a flow, or was.
    FlowOwner(Box<FlowOwner>),
    /// The addresses of an end of a channel are known.
    SocketEnd(Box<SocketEnd>),
    /// State of a connection as the kernel reports it.
    FlowSample(Box<FlowSample>),
    /// Something was lost.
    Lost {
        /// The counter.
        loss: Loss,
        /// Added to the counter.
        count: u64,
    },
}

impl Record {
    /// Cuts the arguments of a process at [`MOST_ARGUMENTS`]; true if there were more.
    pub(crate) fn cut_arguments(&mut self) -> bool {
        match self {
            Record::ProcessStart(start) => start.argv.as_mut().is_some_and(process::cut_arguments),
            _ => false,
        }
    }

    /// Masks passwords and keys in the arguments of a process; returns the number of secrets.
    pub(crate) fn mask_secrets(&mut self) -> u64 {
        match self {
            Record::ProcessStart(start) => start.argv.as_mut().map_or(0, secrets::mask_arguments),
            Record::Run(run) => {
                // The arguments of the first process are the same, and counted there.
                if let Some(command) = &run.command
                    && let (Cow::Owned(masked), _) = secrets::masked(command.as_bytes())
                {
                    run.command = Some(Text::from(masked));
                }
                0
            }
            Record::HereDocument {
                content: Some(content),
                ..
            } => {
                let (masked, count) = secrets::masked(content.as_bytes());
                if let Cow::Owned(masked) = masked {
                    *content = String::from_utf8_lossy(&masked).into_owned();
                }
                count
            }
            _ => 0,
        }
    }
}
