//! A finding, and the least that one is worth.

use flowtrace_render::units;
use serde::Serialize;

use crate::analysis::findings::{Bottlenecks, Cause};
use crate::analysis::phrases::{percent, want, who};
use crate::timeline::Timeline;

/// A finding must promise this share of the run.
pub(super) const LEAST: f64 = 0.04;

/// And this time, ns: below it a run is over before one has read about it.
pub(super) const LEAST_NS: f64 = 30e6;

/// Something that could make the run shorter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of thing: cpu, cpu limit, busy machine, disk, memory, lock, sleep, network, hand-over, serial, late start, straggler,
    /// small calls.
    pub kind: &'static str,
    /// The step that it is about, if it is about one.
    pub step: Option<String>,
    /// What is wrong, in a sentence.
    pub title: String,
    /// How much of the run could be saved at most, ns.
    pub saving_ns: i64,
    /// What it rests on.
    pub evidence: String,
    /// How sure it is: low, medium, high.
    pub confidence: &'static str,
    /// Subcommand that shows more.
    pub command: &'static str,
    /// What it means for the run, as the first line of a summary; `None`: the title.
    #[serde(skip)]
    pub why: Option<String>,
}

/// Which step limited the run for how much of it, and what it lacked.
pub(super) fn limited(result: &Bottlenecks, cause: &Cause, timeline: &Timeline) -> String {
    format!(
        "{} limited the run for {} of it: {}",
        units::shorten(&units::plain(&who(result, cause)), 40),
        percent(cause.share),
        want(cause, timeline.cpus())
    )
}
