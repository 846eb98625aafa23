//! The contract of flowtrace: the SQLite database that the tracer writes and the profiler reads.
//!
//! All SQL of the project lives here. The tables, views and the list of operations are `.sql`
//! files with a comment on every column; [`doc`] turns them into `docs/schema.md`.
//!
//! Invariants:
//! - this crate has no behaviour: it stores what it is given, but for [secrets], and returns what is stored;
//! - views use built-in SQL functions only, so that any SQLite client can query a trace;
//! - columns of views are added, never removed and never given another meaning;
//! - a file that is not ours, newer than us, or damaged is refused and never changed.

mod activity;
mod beside;
mod carried;
mod contract;
mod counter;
mod cpu_list;
pub mod doc;
mod error;
mod ids;
mod loss;
pub mod merge;
mod older;
mod op;
pub mod open_flags;
pub mod private;
mod record;
pub mod secrets;
mod store;
mod system;
mod text;
mod trace;
mod unrecorded;
mod writer;

pub use activity::Activity;
pub use carried::Constant;
pub use contract::{APPLICATION_ID, SCHEMA_VERSION};
pub use counter::HostCounter;
pub use cpu_list::{cpu_list, cpus_of_list};
pub use error::{Error, Result};
pub use ids::{CaptureId, ChannelId, FileId, FlowId, HostId, RunId, Tid, Upid};
pub use loss::{Loss, Severity};
pub use older::{Older, kept_path, own_files};
pub use op::{Class, Fidelity, Op};
pub use record::{
    CUT, Call, CaptureEnd, CaptureRecord, CaptureSource, ChannelCall, ChannelEndClosed,
    ChannelEndRecord, ChannelKind, ChannelRecord, ChannelTraffic, CounterRecord, Coverage,
    DescriptorRecord, Direction, End, Evidence, FileKind, FileLayer, FileRecord, FlowOptions,
    FlowOwner, FlowRecord, FlowSample, FlowSeen, HostClock, HostRecord, HostSample, LaunchRecord,
    MOST_ARGUMENTS, NameRecord, NodeRecord, Origin, Packet, ProcessEnd, ProcessLayer, ProcessStart,
    Record, RunEnd, RunRecord, SampleRecord, SampledTotals, Side, SocketEnd, StackRecord,
    StackScope, Symbols, TcpFields, ThreadRecord, TracedDirectory, Usage, WaitObject, Waker, Way,
    marks,
};
pub use store::log_bytes;
pub use system::{is_system_path, may_be_made, system_directories};
pub use text::{Text, quote_argv};
// Results of analyses that are stored in the trace.
pub use trace::ClockCorrection;
// One pass over all calls.
pub use trace::{AccessRow, CallRow, Kind};
// A trace that grows.
pub use trace::{BeganRow, DataRow, EndRow, EndedRow, GrowingSampleRow, Grown, MeasuredRow, Part};
// For reports.
pub use trace::{
    ActionRow, ActivityRow, AppearedRow, ChannelEndRow, CounterRow, DescriptorRow, FileRow,
    HereDocumentRow, LastSampleRow, LockCallRow, LossRow, NameRow, OpenedEndRow, PipeRow,
    PolledRow, ProcessRow, ProgramRow, RawNameRow, ReplayedCallRow, RunRow, SampleRow, SettingRow,
    SocketPortsRow, SocketTrafficRow, SocketWaitsRow, StopRow, StorageRow, Table, TimesRow, Trace,
    TracedDirectoryRow, Value, VariableRow,
};
pub use trace::{
    CaptureRow, ChannelRow, CostRow, FlowBetween, FlowCaptureRow, FlowEnds, FlowMeasure,
    FlowOwnerRow, FlowRow, FrameRow, HostRow, HostSampleRow, NetworkTotals, NodeRow, PacketRow,
    Sequence, StackRow, StackSampleRow, StackWaitRow,
};
pub use unrecorded::{Unrecorded, UnrecordedEnd};
pub use writer::{Displaced, Recorder, RecordingEnd, Summary, Writer, WritingEnd, pair};

/// The file that `flowtrace run` writes and that other commands read, unless another one is named.
pub const DEFAULT_TRACE: &str = "trace.db";
