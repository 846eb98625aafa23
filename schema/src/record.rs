//! What a recorder hands to the writer: one struct per table, no behaviour.
//!
//! Times are nanoseconds since the start of the run on the monotonic clock, sizes bytes.

use std::sync::mpsc::SyncSender;

use crate::{Activity, ChannelId, Fidelity, FileId, HostId, Loss, Op, RunId, Text, Tid, Upid};

mod network;

pub use network::{
    CaptureEnd, CaptureRecord, CaptureSource, End, Evidence, FlowOptions, FlowOwner, FlowRecord,
    FlowSample, FlowSeen, Packet, SocketEnd, TcpFields, Way, marks,
};

/// A row, or the completion of one. Everything but [`Call`] and [`Packet`], which travel through
/// rings of their own ([`crate::CallRing`], [`crate::PacketRing`]).
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
    /// What else a program began with.
    Setting {
        /// Process image that began by an exec.
        upid: Upid,
        /// File mode creation mask.
        umask: Option<u32>,
        /// Equal for equal environments within the run.
        environment: Option<u64>,
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
    /// A process image is at an end of a flow.
    FlowOwner(Box<FlowOwner>),
    /// The addresses of an end of a channel are known.
    SocketEnd(Box<SocketEnd>),
    /// What the kernel says of a connection.
    FlowSample(Box<FlowSample>),
    /// Everything handed over before is to be committed now; the sender is told when it is.
    Settle(SyncSender<()>),
    /// Something was lost.
    Lost {
        /// Which counter.
        loss: Loss,
        /// By how much it grows.
        count: u64,
    },
}

/// A machine (table `host`).
#[derive(Clone, Debug)]
pub struct HostRecord {
    /// Its id.
    pub id: HostId,
    /// Node name.
    pub name: String,
    /// Id of this boot.
    pub boot_id: Option<String>,
    /// Kernel name, release and machine.
    pub system: String,
    /// Processors available to the recording.
    pub cpus: Option<u32>,
    /// Physical memory.
    pub memory_bytes: Option<u64>,
    /// Wall clock at time 0, ns since 1970.
    pub epoch_unix_ns: i64,
}

/// What relates the clock of a recording to others (table `host`).
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    /// Which machine.
    pub host: HostId,
    /// `CLOCK_MONOTONIC` of this boot at time 0, whatever a time namespace adds to it.
    pub monotonic_ns: i64,
    /// Bound of the error of the wall clock, as the kernel knows it; `None`: not synchronised.
    pub wall_error_ns: Option<i64>,
}

/// As what a launcher started the recording (table `run`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchRecord {
    /// Which run.
    pub run: RunId,
    /// Name of the launcher.
    pub launcher: String,
    /// Its job.
    pub job: Option<String>,
    /// The number in that job.
    pub rank: Option<i64>,
}

/// How file calls are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLayer {
    /// FUSE direct I/O plus kernel passthrough: exact reads and writes, coherent mappings.
    DirectPassthrough,
    /// The kernel serves the data by itself, and tracepoints tell of reads and writes: exact.
    Kernel,
    /// FUSE direct I/O that allows mappings: exact reads and writes, mappings seen as pages.
    DirectMmap,
    /// FUSE direct I/O on a kernel that then refuses shared mappings.
    Direct,
    /// Through the page cache of the mount: writes are exact, reads are what the cache lacked.
    Cached,
    /// File calls are not seen.
    None,
}

impl FileLayer {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            FileLayer::DirectPassthrough => "direct-passthrough",
            FileLayer::Kernel => "kernel",
            FileLayer::DirectMmap => "direct-mmap",
            FileLayer::Direct => "direct",
            FileLayer::Cached => "cached",
            FileLayer::None => "none",
        }
    }
}

/// How processes are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessLayer {
    /// By ptrace events: every process, however short.
    Ptrace,
    /// By the kernel's announcements of forks, execs and exits, which may be dropped.
    Connector,
    /// By looks into /proc: only those that live long enough.
    Scan,
    /// By the file requests they make: only those that make one.
    Requests,
    /// Not seen.
    None,
}

impl ProcessLayer {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            ProcessLayer::Ptrace => "ptrace",
            ProcessLayer::Connector => "connector",
            ProcessLayer::Scan => "scan",
            ProcessLayer::Requests => "requests",
            ProcessLayer::None => "none",
        }
    }
}

/// A recording (table `run`).
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// Host that records.
    pub host: HostId,
    /// What is run, quoted for a shell.
    pub command: Option<Text>,
    /// Working directory.
    pub cwd: Text,
    /// Version of flowtrace.
    pub version: &'static str,
    /// How file calls are seen.
    pub file_layer: FileLayer,
    /// How processes are seen.
    pub process_layer: ProcessLayer,
}

/// The end of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd {
    /// Which one.
    pub id: RunId,
    /// When.
    pub end_ns: u64,
    /// Exit code of the command.
    pub exit_code: Option<i32>,
    /// Signal that ended the command.
    pub exit_signal: Option<i32>,
}

/// A directory under trace (table `traced_directory`).
#[derive(Clone, Debug)]
pub struct TracedDirectory {
    /// Run that it belongs to.
    pub run: RunId,
    /// Path under which the workflow sees it.
    pub path: Text,
    /// Real directory, when it lies elsewhere.
    pub source: Option<Text>,
    /// How its file calls are seen.
    pub file_layer: FileLayer,
    /// FUSE INIT flags granted.
    pub fuse_flags: Option<u64>,
    /// How long the kernel answers by itself.
    pub attribute_ttl_ns: u64,
}

/// How a process image began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The begin of a process image (table `process`).
#[derive(Clone, Debug)]
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
    /// How it began.
    pub origin: Origin,
    /// Executable.
    pub exe: Option<Text>,
    /// Exact arguments, each ended by a NUL, as `/proc/PID/cmdline` gives them.
    pub argv: Option<Vec<u8>>,
    /// Working directory.
    pub cwd: Option<Text>,
    /// Image whose recorded environment variables this one has, too, itself or an earlier one;
    /// `None`: it has none that are recorded.
    pub environment: Option<Upid>,
    /// When.
    pub start_ns: u64,
}

/// A descriptor that a program began with (table `descriptor`).
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What a process image used, its own threads only, never its children. `None`: not readable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user_ns: Option<u64>,
    /// CPU time in the kernel.
    pub sys_ns: Option<u64>,
    /// Time on a CPU.
    pub on_cpu_ns: Option<u64>,
    /// Time runnable but waiting for a CPU.
    pub run_queue_ns: Option<u64>,
    /// Time held in stops by the tracer.
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
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnd {
    /// Which one.
    pub upid: Upid,
    /// When; `None` when only its usage is known.
    pub end_ns: Option<u64>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub exit_signal: Option<i32>,
    /// Process id in the innermost pid namespace that it lived in, when that is a nested one.
    pub inner_pid: Option<u32>,
    /// What it used.
    pub usage: Usage,
}

/// A thread beside the first (table `thread`), written when it ends.
#[derive(Clone, Copy, Debug)]
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
    /// Samples that agree.
    pub samples: u32,
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
}

/// A counter of a machine (table `counter`).
#[derive(Clone, Debug)]
pub struct CounterRecord {
    /// Its number in this file.
    pub id: u32,
    /// Name, with the device in it.
    pub name: String,
    /// Unit of its values.
    pub unit: &'static str,
    /// What it counts.
    pub meaning: &'static str,
}

/// The value of a counter at one moment (table `host_sample`).
#[derive(Clone, Copy, Debug)]
pub struct HostSample {
    /// When.
    pub t_ns: u64,
    /// Machine.
    pub host: HostId,
    /// Number of the counter.
    pub counter: u32,
    /// Its value.
    pub value: u64,
}

/// A machine that an agent watched (table `node`).
#[derive(Clone, Copy, Debug)]
pub struct NodeRecord {
    /// Which machine.
    pub host: HostId,
    /// Samples that came in time.
    pub received: u64,
    /// Samples that were sent.
    pub expected: u64,
    /// Samples that came twice or too late.
    pub ignored: u64,
    /// Sessions.
    pub sessions: u64,
    /// Time between samples, ms.
    pub period_ms: u32,
    /// Whether its last totals are exact.
    pub is_final: bool,
    /// Bound of the error of its moments, ns.
    pub error_ns: Option<u64>,
    /// Drift of its clock, parts per billion.
    pub drift_ppb: i32,
}

/// Type of an inode. The numbers are those of the table `file_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    File = 0,
    /// Looked for and not found.
    Absent = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    /// FIFO.
    Fifo = 4,
    /// UNIX socket.
    Socket = 5,
    /// Character device.
    Char = 6,
    /// Block device.
    Block = 7,
}

impl FileKind {
    /// All kinds in the order of their numbers.
    pub const ALL: &'static [FileKind] = &[
        FileKind::File,
        FileKind::Absent,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::Char,
        FileKind::Block,
    ];

    /// Name shown by the view `files`.
    pub const fn name(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Absent => "absent",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::Char => "char",
            FileKind::Block => "block",
        }
    }
}

/// The least exact way in which a file was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Coverage {
    /// Every call.
    Exact = Fidelity::Exact as u8,
    /// Calls that the page cache did not answer.
    Cached = Fidelity::Cached as u8,
    /// That it was opened.
    Open = Fidelity::Open as u8,
}

/// A file (table `file`).
#[derive(Clone, Debug)]
pub struct FileRecord {
    /// Its id.
    pub id: FileId,
    /// Host on which it was seen.
    pub host: HostId,
    /// `st_dev` and `st_ino`; `None` when absent.
    pub inode: Option<(u64, u64)>,
    /// Type.
    pub kind: FileKind,
    /// Size at first sight.
    pub size_bytes: Option<u64>,
    /// First sight.
    pub first_ns: u64,
    /// How it is seen.
    pub coverage: Coverage,
}

/// A name of a file in a directory (table `file_name`).
#[derive(Clone, Debug)]
pub struct NameRecord {
    /// The file.
    pub file: FileId,
    /// The directory; `None`: `name` is a full path.
    pub directory: Option<FileId>,
    /// Last component.
    pub name: Text,
    /// Since when.
    pub from_ns: u64,
}

/// A file call (table `call`). Plain data without owned memory: it is written on the path of a
/// waiting application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Arrival of the request.
    pub start_ns: u64,
    /// Until the reply.
    pub duration_ns: u64,
    /// Process image; `None`: the kernel itself, or not known.
    pub upid: Option<Upid>,
    /// Thread; `None`: the first of the process.
    pub tid: Option<Tid>,
    /// Operation.
    pub op: Op,
    /// File.
    pub file: Option<FileId>,
    /// Position of data calls.
    pub offset: Option<u64>,
    /// Bytes asked for, or the value set.
    pub length: Option<u64>,
    /// Open flags, rename flags or mode.
    pub flags: Option<u32>,
    /// Bytes or value; negative errno on failure.
    pub result: i64,
    /// How exactly it stands for what the application did.
    pub fidelity: Fidelity,
}

/// What carries data between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// A pipe without a name.
    Pipe,
    /// A pipe that is opened by its name.
    Fifo,
    /// Two connected UNIX sockets without a name.
    Socketpair,
    /// UNIX sockets.
    Unix,
    /// A TCP connection.
    Tcp,
    /// UDP sockets.
    Udp,
}

impl ChannelKind {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            ChannelKind::Pipe => "pipe",
            ChannelKind::Fifo => "fifo",
            ChannelKind::Socketpair => "socketpair",
            ChannelKind::Unix => "unix",
            ChannelKind::Tcp => "tcp",
            ChannelKind::Udp => "udp",
        }
    }
}

/// A channel (table `channel`).
#[derive(Clone, Debug)]
pub struct ChannelRecord {
    /// Its id.
    pub id: ChannelId,
    /// Host on which it was seen.
    pub host: HostId,
    /// What it is.
    pub kind: ChannelKind,
    /// Inode of the pipe, or of the socket that was seen first.
    pub inode: u64,
    /// Path or addresses.
    pub name: Option<Text>,
    /// Size of its buffer.
    pub capacity_bytes: Option<u64>,
}

/// What a descriptor allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both, as a socket does.
    Both,
}

impl Direction {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Both => "both",
        }
    }
}

/// An image begins to hold an end of a channel (table `channel_end`).
#[derive(Clone, Copy, Debug)]
pub struct ChannelEndRecord {
    /// Row id.
    pub id: u32,
    /// The channel.
    pub channel: ChannelId,
    /// Process image.
    pub upid: Upid,
    /// The lowest descriptor.
    pub fd: i32,
    /// What it allows.
    pub direction: Direction,
    /// When it was first seen there.
    pub from_ns: u64,
}

/// What became of a row of `channel_end`.
#[derive(Clone, Copy, Debug)]
pub struct ChannelEndClosed {
    /// Row id.
    pub id: u32,
    /// When it was found closed; `None`: held to the end of the image.
    pub to_ns: Option<u64>,
    /// Whether data moved through it; `None`: it may have.
    pub used: Option<bool>,
    /// Bytes moved through it, where that is certain.
    pub bytes: Option<u64>,
    /// No more than these.
    pub at_most_bytes: Option<u64>,
}
