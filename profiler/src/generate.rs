//! From a trace to a specification that runs again: the steps of the workflow's script, the files that each
//! needs and makes, and the steps that must come before it.
//!
//! - `steps` finds the steps: the commands that the script or make started, a pipeline being one;
//! - `command` writes each as a line of shell;
//! - `compiled` replaces Python's caches of compiled modules by these modules;
//! - `effects` lists what each step did to names, contents and directories;
//! - `order` puts a step before another wherever both touched the same thing and one changed it;
//! - [`make`], [`shell`] and the other writers turn the [`Plan`] into text.
//!
//! A fact that the trace does not have (such as what a builtin of the shell printed into a pipe) makes a
//! step's [`Step::script`] an error, which every writer shows; nothing is made up.

mod ast;
mod command;
mod compiled;
mod drivers;
mod effects;
mod files;
mod free;
mod order;
mod own;
mod plan;
mod read;
mod redirect;
mod said;
mod source;
mod step;
mod steps;
mod substituted;
mod touch;
mod touched;
mod unit;
mod words;
mod writer;

pub mod cwl;
pub mod dagman;
pub mod make;
pub mod pegasus;
pub mod shell;
pub mod snakemake;

use std::sync::Arc;

pub use files::{Reading, StepFiles, files_of_steps};
pub use plan::plan;
pub use source::Unfit;
pub use words::Place;

/// Options for reading the trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// True: a step whose environment differs from that of the first program is accepted all the same.
    pub ignore_environment: bool,
}

/// A workflow as steps.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Directory in which the run was started; the specification is to run in its place.
    pub root: String,
    /// Command line of the run.
    pub command: String,
    /// The steps in the order of their start. A step only comes after steps before it.
    pub steps: Vec<Step>,
    /// Directories that the run made and left, relative to the root.
    pub last_directories: Vec<String>,
    /// Symbolic links that steps made and that the run left, where it is known to which file they lead,
    /// relative to the root. Their targets are not in the trace: the links were read when the plan was made.
    pub last_links: std::collections::BTreeMap<String, String>,
    /// Directories that steps listed, that were there before the run, and that cannot be read now, with the
    /// reason: their other entries are not known.
    pub unreadable: std::collections::BTreeMap<String, String>,
    /// Reservations that a reader should know before trusting the plan.
    pub notes: Vec<String>,
}

/// A step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Unique, of letters, digits and `_`, a letter first.
    pub id: String,
    /// Name of the kind of step.
    pub rule: Arc<str>,
    /// One line for bash, run in the root directory; or the reason why there is none.
    pub script: Result<String, String>,
    /// Files that it needs.
    pub inputs: Vec<Input>,
    /// Files that it made or changed and left behind.
    pub outputs: Vec<Output>,
    /// Files that were there before the step and that it read, changed, renamed or removed, or whose
    /// attributes it read.
    pub takes: Vec<Take>,
    /// Symbolic links below the root that were there before the step and that it followed or read.
    pub links: Vec<Link>,
    /// Symbolic links below the root that it made and left behind.
    pub made_links: Vec<String>,
    /// Directories, symbolic links and FIFOs below the root that the step made, and that the run left as this
    /// step did.
    pub leaves: Vec<Leaf>,
    /// True if it did nothing but make directories, all of which are in `leaves`.
    pub makes_directories_only: bool,
    /// Directories below the root that were there before it, and that it read, ran in or leaves files in.
    pub directories: Vec<String>,
    /// True if it renamed or removed a directory that was there before.
    pub moves_directory: bool,
    /// True if its lasting `outputs` alone do not show that it is done: it removed, renamed or changed
    /// something of another step, or made a directory only.
    pub needs_mark: bool,
    /// Steps that must be over before it begins, without those that others imply.
    pub after: Vec<After>,
    /// Duration of the step, ns.
    pub duration_ns: i64,
    /// CPU time of all its processes, ns.
    pub cpu_ns: i64,
    /// Peak resident memory of the largest of its processes.
    pub max_rss_bytes: Option<i64>,
}

/// A file that a step needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Path of the file.
    pub place: Place,
    /// Step that made it; `None`: it was there before the run.
    pub from: Option<usize>,
    /// True if no step changes the file after `from`, so that it is the same whenever it is read.
    pub lasts: bool,
}

/// A file that a step leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Path of the file.
    pub place: Place,
    /// True if the file was there at the end of the run, as this step left it, and as new as the step: then
    /// its time shows that the step was done.
    pub lasts: bool,
    /// True if the file was there at the end of the run, as this step left it.
    pub stays: bool,
}

/// A file that a step finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Path of the file.
    pub place: Place,
    /// Step that made it, or changed it last before this one; `None`: it was so before the run.
    pub from: Option<usize>,
    /// True if the step changes, renames or removes the file.
    pub changes: bool,
}

/// A directory, symbolic link or FIFO that a step leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Path, relative to the root.
    pub path: String,
    /// True for a directory.
    pub is_directory: bool,
    /// True if nothing had this name before the step.
    pub is_new: bool,
}

/// A symbolic link that a step finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Path, relative to the root.
    pub path: String,
    /// Step that made it; `None`: it was there before the run.
    pub from: Option<usize>,
    /// For a link that was there before the run: true if it leads to a directory now; `None`: it leads
    /// nowhere.
    pub to_directory: Option<bool>,
}

/// An earlier step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// Its place in [`Plan::steps`].
    pub step: usize,
    /// True if data goes from the earlier step; else only the order matters, as for a file that is removed
    /// later.
    pub is_data: bool,
}

impl Step {
    /// Returns true if a file of this name was there when the step began.
    pub fn finds(&self, place: &Place) -> bool {
        self.takes.iter().any(|take| take.place == *place)
    }
}

impl Plan {
    /// The steps that cannot be written down, with the reasons.
    pub fn refused(&self) -> impl Iterator<Item = (&Step, &str)> {
        let steps = self.steps.iter();
        steps.filter_map(|step| Some((step, step.script.as_ref().err()?.as_str())))
    }

    /// The files that last and that no other step needs: the results.
    pub fn results(&self) -> Vec<&Place> {
        let needed: std::collections::HashSet<&Place> = self
            .steps
            .iter()
            .flat_map(|step| step.inputs.iter().map(|input| &input.place))
            .collect();
        let outputs = self.steps.iter().flat_map(|step| &step.outputs);
        let mut results: Vec<&Place> = outputs
            .filter(|output| output.lasts && !needed.contains(&output.place))
            .map(|output| &output.place)
            .collect();
        results.sort();
        results.dedup();
        results
    }
}
