//! What a recorder hands to the writer: one struct per table, no behaviour.
//!
//! Times are nanoseconds since the start of the run on the monotonic clock, sizes bytes.

use std::borrow::Cow;
use std::sync::mpsc::SyncSender;

use crate::{ChannelId, FileId, Loss, Text, Upid, secrets};

mod channel;
mod file;
mod network;
mod process;
mod run;
mod sample;

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

/// A row, or the completion of one. Everything but [`Call`], [`ChannelCall`] and [`Packet`], which travel
/// through rings of their own ([`crate::CallRing`], [`crate::ChannelCallRing`], [`crate::PacketRing`]).
#[derive(Clone, Debug)]
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
    /// What a thread did over some time, or that it went on for longer.
    Sample(Box<SampleRecord>),
    /// How much of a process image was sampled.
    Sampled(SampledTotals),
    /// A counter of a machine is recorded from now on.
    Counter(Box<CounterRecord>),
    /// A counter of a machine has another value.
    HostSample(HostSample),
    /// As [`Record::HostSample`], but not measured: between its neighbours.
    Interpolated(HostSample),
    /// What a collector knows of a machine that it watched; replaces what it knew before.
    Node(NodeRecord),
    /// An environment variable that was asked for by name.
    Environment {
        /// Process image that had it at its exec, when the image before it had others.
        upid: Upid,
        /// Variable.
        name: Text,
        /// Its value.
        value: Text,
    },
    /// What a program began with as one of its descriptors.
    Descriptor(Box<DescriptorRecord>),
    /// A program began with a here-document of a shell.
    HereDocument {
        /// Process image that began by an exec.
        upid: Upid,
        /// Its descriptor.
        fd: i32,
        /// The pipe.
        channel: ChannelId,
        /// What nobody had read by then.
        bytes: u32,
        /// That itself; `None`: it is the end of what was recorded for that pipe before.
        content: Option<String>,
    },
    /// What else a program began with.
    Setting {
        /// Process image that began by an exec.
        upid: Upid,
        /// File mode creation mask.
        umask: Option<u32>,
        /// Equal for equal environments within the run.
        environment: Option<u64>,
        /// CPUs that its affinity mask allows, as `0-3,8`; `None`: all.
        cpus: Option<String>,
        /// CPU time that its control groups allow in each second; `None`: no quota.
        cpu_quota_ns: Option<u64>,
    },
    /// A file is seen for the first time.
    File(FileRecord),
    /// The size of a file is known anew.
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
        /// The directory that held the name.
        directory: FileId,
        /// The name.
        name: Text,
        /// When it ended.
        at_ns: u64,
    },
    /// A directory has a path from now on.
    DirectoryPath {
        /// The directory.
        directory: FileId,
        /// Its absolute path.
        path: Text,
        /// Since when.
        from_ns: u64,
    },
    /// The path of a directory ends.
    DirectoryPathEnd {
        /// The directory.
        directory: FileId,
        /// When it ended.
        at_ns: u64,
    },
    /// A channel is seen for the first time.
    Channel(Box<ChannelRecord>),
    /// A process image holds one end of a channel from now on.
    ChannelEnd(ChannelEndRecord),
    /// It holds it no more, or has ended.
    ChannelEndClosed(ChannelEndClosed),
    /// What a process image that is over moved through one side of a channel.
    ChannelTraffic(Box<ChannelTraffic>),
    /// There is a [`Record::ChannelTraffic`] for all that this process image, which is over, moved through channels.
    AllTraffic(Upid),
    /// Packets are captured at a place from now on.
    Capture(Box<CaptureRecord>),
    /// A capture ends.
    CaptureEnd(Box<CaptureEnd>),
    /// A flow is seen for the first time.
    Flow(Box<FlowRecord>),
    /// An end of a TCP connection announced something in its SYN.
    FlowOptions(FlowOptions),
    /// What a capture saw of a flow, or what it saw more of it.
    FlowSeen(Box<FlowSeen>),
    /// A process image is at an end of a flow, or was.
    FlowOwner(Box<FlowOwner>),
    /// The addresses of an end of a channel are known.
    SocketEnd(Box<SocketEnd>),
    /// What the kernel says of a connection.
    FlowSample(Box<FlowSample>),
    /// Everything handed over before is to be committed now; the sender is told when it is, and
    /// whether all could be stored.
    Settle(SyncSender<bool>),
    /// Something was lost.
    Lost {
        /// Which counter.
        loss: Loss,
        /// By how much it grows.
        count: u64,
    },
}

impl Record {
    /// Takes off what a process was called with beyond [`MOST_ARGUMENTS`]; says whether there was more.
    pub(crate) fn cut_arguments(&mut self) -> bool {
        match self {
            Record::ProcessStart(start) => start.argv.as_mut().is_some_and(process::cut_arguments),
            _ => false,
        }
    }

    /// Masks passwords and keys in what a process was called with; says how many there were.
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
