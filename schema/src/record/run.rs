//! The machine, the run, and counters of the machine as a whole.

use serde::{Deserialize, Serialize};

use crate::carried::{self, Constant};
use crate::{HostId, RunId, Text};

/// A machine (table `host`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    /// Its id.
    pub id: HostId,
    /// Node name.
    pub name: String,
    /// Id of this boot.
    pub boot_id: Option<String>,
    /// Kernel name, release and machine.
    pub system: String,
    /// CPUs available to the recording.
    pub cpus: Option<u32>,
    /// Physical memory.
    pub memory_bytes: Option<u64>,
    /// Wall clock at time 0, ns since 1970.
    pub epoch_unix_ns: i64,
}

/// Relation of the clock of a recording to others (table `host`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HostClock {
    /// The machine.
    pub host: HostId,
    /// `CLOCK_MONOTONIC` of this boot at time 0, whatever a time namespace adds to it.
    pub monotonic_ns: i64,
    /// Bound of the error of the wall clock, as the kernel knows it; `None`: not synchronised.
    pub wall_error_ns: Option<i64>,
}

/// Launcher, job and rank of a recording that a launcher started (table `run`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// The run.
    pub run: RunId,
    /// Name of the launcher.
    pub launcher: String,
    /// Its job.
    pub job: Option<String>,
    /// The number in that job.
    pub rank: Option<i64>,
}

/// The layer of file calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileLayer {
    /// FUSE direct I/O plus kernel passthrough: exact reads and writes, coherent mappings.
    DirectPassthrough,
    /// eBPF programs report the calls, and nothing is mounted: exact.
    Kernel,
    /// FUSE direct I/O that allows mappings: exact reads and writes, mappings seen as pages.
    DirectMmap,
    /// FUSE direct I/O on a kernel that then refuses shared mappings.
    Direct,
    /// Through the page cache of the mount: writes are exact, reads are only those that the cache could not
    /// answer.
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

/// The layer of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessLayer {
    /// By ptrace events: every process, however short.
    Ptrace,
    /// By eBPF programs, which also report the open descriptors of each process: nothing waits.
    Ebpf,
    /// By eBPF programs, lifetimes only.
    Tracepoints,
    /// By the kernel's announcements of forks, execs and exits, which may be dropped.
    Connector,
    /// By reading /proc at intervals: only processes that live long enough.
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// Host that records.
    pub host: HostId,
    /// The command, quoted for a shell.
    pub command: Option<Text>,
    /// Working directory.
    pub cwd: Text,
    /// Version of flowtrace.
    #[serde(deserialize_with = "carried::constant")]
    pub version: Constant,
    /// Layer of file calls.
    pub file_layer: FileLayer,
    /// Layer of processes.
    pub process_layer: ProcessLayer,
}

/// The end of a recording.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    /// The run.
    pub id: RunId,
    /// Time of the end.
    pub end_ns: u64,
    /// Exit code of the command.
    pub exit_code: Option<i32>,
    /// Signal that ended the command.
    pub exit_signal: Option<i32>,
}

/// A traced directory (table `traced_directory`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TracedDirectory {
    /// Run that it belongs to.
    pub run: RunId,
    /// Path under which the workflow sees it.
    pub path: Text,
    /// Real directory, when it lies elsewhere.
    pub source: Option<Text>,
    /// Layer of its file calls.
    pub file_layer: FileLayer,
    /// FUSE INIT flags granted.
    pub fuse_flags: Option<u64>,
    /// Time for which the kernel answers attributes from its cache, ns.
    pub attribute_ttl_ns: u64,
    /// Type of the filesystem that the real directory is on.
    pub filesystem: Option<String>,
}

/// A counter of a machine (table `counter`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CounterRecord {
    /// Its number in this file.
    pub id: u32,
    /// Name, with the device in it.
    pub name: String,
    /// Unit of its values.
    #[serde(deserialize_with = "carried::constant")]
    pub unit: Constant,
    /// Meaning of the values.
    #[serde(deserialize_with = "carried::constant")]
    pub meaning: Constant,
}

/// The value of a counter at one instant (table `host_sample`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HostSample {
    /// Time of the sample.
    pub t_ns: u64,
    /// Machine.
    pub host: HostId,
    /// Number of the counter.
    pub counter: u32,
    /// Its value.
    pub value: u64,
}

/// A machine that an agent watched (table `node`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The machine.
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
    /// True if its last totals are exact.
    pub is_final: bool,
    /// Bound of the error of its times, ns.
    pub error_ns: Option<u64>,
    /// Drift of its clock, parts per billion.
    pub drift_ppb: i32,
}
