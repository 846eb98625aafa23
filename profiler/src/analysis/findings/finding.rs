//! A finding, and the least saving that makes one.

use flowtrace_render::units;
use serde::Serialize;

use crate::analysis::findings::{Bottlenecks, Cause};
use crate::analysis::phrases::{percent, want, who};
use crate::timeline::Timeline;

/// A finding must promise this share of the run.
pub(super) const LEAST: f64 = 0.04;

/// Something that could make the run shorter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Kind: cpu, cpu limit, busy machine, disk, memory, lock, sleep, network, hand-over, serial, late
    /// start, straggler, small calls, small runs.
    pub kind: &'static str,
    /// The step that the finding is about; `None`: it is about no single step.
    pub step: Option<String>,
    /// The problem and the change, in a sentence.
    pub title: String,
    /// Time that could be saved at most, ns.
    pub saving_ns: i64,
    /// The evidence for the finding.
    pub evidence: String,
    /// Confidence: low, medium, high.
    pub confidence: &'static str,
    /// Subcommand that shows more.
    pub command: &'static str,
    /// What to do and where, as a short command.
    pub action: String,
    /// The first line of a summary with this finding; `None`: the title.
    #[serde(skip)]
    pub why: Option<String>,
}

/// The step that limited the run, for which share of it, and the resource that it lacked, in a line.
pub(super) fn limited(result: &Bottlenecks, cause: &Cause, timeline: &Timeline) -> String {
    format!(
        "{} limited the run for {} of it: {}",
        units::shorten(&units::plain(&who(result, cause)), 40),
        percent(cause.share),
        want(cause, timeline.cpus())
    )
}
