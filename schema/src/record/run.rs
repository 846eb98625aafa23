//! The machine, the run, and what counts on the machine as a whole.

use crate::{HostId, RunId, Text};

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
    /// By programs in the kernel, which also tell what each process has open: nobody waits.
    Ebpf,
    /// By programs in the kernel, of lifetimes alone.
    Tracepoints,
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
            ProcessLayer::Ebpf => "ebpf",
            ProcessLayer::Tracepoints => "tracepoints",
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
    /// Type of the filesystem that the real directory is on.
    pub filesystem: Option<String>,
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
