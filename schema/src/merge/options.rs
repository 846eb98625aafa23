//! Options of a merge, and its report.

use std::path::PathBuf;

use crate::{ClockCorrection, Error};

/// Options of a merge.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// The traces; the first one's clock is what the errors of the others refer to.
    pub inputs: Vec<PathBuf>,
    /// The trace to write.
    pub output: PathBuf,
    /// True if an older trace there may be replaced.
    pub replace: bool,
    /// Directories that all machines share: a path below one of them is one file everywhere.
    pub shared: Vec<PathBuf>,
    /// True if traces are taken that were not closed.
    pub unfinished: bool,
    /// True if recordings of different jobs of one launcher are put into one file.
    pub mixed_jobs: bool,
    /// Relations of the clocks by packets; see [`packets_alone`](super::packets_alone).
    pub clocks: Option<KernelClocks>,
    /// True if only packets and their flows are copied, to relate clocks.
    pub packets_only: bool,
}

/// A machine in a merged trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedHost {
    /// Its name.
    pub name: String,
    /// Method by which its clock was related to that of the first file.
    pub method: String,
    /// Bound of the error of this relation, ns; `None`: not known.
    pub error_ns: Option<i64>,
}

/// Result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeReport {
    /// Recordings in the merged trace.
    pub runs: u64,
    /// Its machines.
    pub hosts: Vec<MergedHost>,
    /// File calls.
    pub calls: u64,
    /// Files that were seen in several traces, and are one.
    pub joined_files: u64,
    /// Pipes and connections, likewise.
    pub joined_channels: u64,
    /// Flows, likewise.
    pub joined_flows: u64,
    /// The directories of [`MergeOptions::shared`] below which no trace has a file.
    pub unmatched: Vec<PathBuf>,
    /// True if an interrupted merge was continued.
    pub is_resumed: bool,
}

pub(super) fn refuse(what: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::Merge {
        what: what.into(),
        hint: hint.into(),
    }
}

/// Method by which the clock of a machine was related to the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMethod {
    /// The clock of the first file, or of the same boot.
    SameBoot,
    /// By the wall clocks of both.
    WallClock,
    /// By exchanged times, as agents ask the collector.
    Exchange,
    /// By packets that both captured.
    Packets,
}

/// Relations of the clocks of kernels by packets, on the scale of a merge without these relations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelClocks {
    /// The kernel that the others are related to: its boot, or the name of its machine.
    pub reference: String,
    /// The other kernels, named likewise, each with the correction that brings its times to those of the
    /// reference.
    pub others: Vec<(String, ClockCorrection)>,
}

impl ClockMethod {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            ClockMethod::SameBoot => "same boot",
            ClockMethod::WallClock => "wall clock",
            ClockMethod::Exchange => "exchange",
            ClockMethod::Packets => "packets",
        }
    }
}
