//! From a trace to a specification that runs again: what each step of the workflow's script was,
//! which files it needs and makes, and what must come before it.
//!
//! - `steps` finds the steps: what the script or make started, a pipeline being one;
//! - `command` writes each as a line of shell;
//! - `compiled` takes what Python keeps of its modules for these;
//! - `effects` tells what each did to names, contents and directories;
//! - `order` puts a step before another wherever both touched the same thing and one changed it;
//! - [`make`], [`shell`] and the other writers turn the [`Plan`] into text.
//!
//! What cannot be known from the trace (what a builtin of the shell printed into a pipe) makes
//! a step [`Step::script`] an error, which every writer shows; nothing is made up.

mod ast;
mod command;
mod compiled;
mod drivers;
mod effects;
mod files;
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

/// How to read the trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether a step whose environment differs from the first program's is taken all the same.
    pub ignore_environment: bool,
}

/// A workflow as steps.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Directory in which the run was started; the specification is to run in its place.
    pub root: String,
    /// What was run.
    pub command: String,
    /// The steps in the order of their start. A step only comes after steps before it.
    pub steps: Vec<Step>,
    /// Directories that the run made and left, relative to the root.
    pub last_directories: Vec<String>,
    /// Symbolic links that steps made and that the run left, where it is known to which file they lead, relative to
    /// the root. Their targets are not in the trace: the links were looked at when the plan was made.
    pub last_links: std::collections::BTreeMap<String, String>,
    /// Directories that steps listed, that were there before the run, and that cannot be read now, with the reason: what
    /// else they held is not known.
    pub unreadable: std::collections::BTreeMap<String, String>,
    /// What a reader should know before trusting it.
    pub notes: Vec<String>,
}

/// A step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Unique, of letters, digits and `_`, a letter first.
    pub id: String,
    /// Name of the kind of step.
    pub rule: Arc<str>,
    /// One line for bash, run in the root directory; or why there is none.
    pub script: Result<String, String>,
    /// Files that it needs.
    pub inputs: Vec<Input>,
    /// Files that it made or changed and left behind.
    pub outputs: Vec<Output>,
    /// Files that were there before it and that it looked at, read, changed, renamed or removed.
    pub takes: Vec<Take>,
    /// Symbolic links below the root that were there before it and that it went through or looked at.
    pub links: Vec<Link>,
    /// Symbolic links below the root that it made and left behind.
    pub made_links: Vec<String>,
    /// What is no file below the root that it made, and that the run left as this step did.
    pub leaves: Vec<Leaf>,
    /// Whether it did nothing but make directories, all of which are among these.
    pub makes_directories_only: bool,
    /// Directories below the root that were there before it, and that it looked at, ran in or leaves files in.
    pub directories: Vec<String>,
    /// Whether it renamed or removed a directory that was there before.
    pub moves_directory: bool,
    /// Whether anything but `outputs` that last tells that it was done: it removed, renamed or
    /// changed something of another step, or made a directory only.
    pub needs_mark: bool,
    /// Steps that must be over before it begins, without those that others imply.
    pub after: Vec<After>,
    /// How long it took, ns.
    pub duration_ns: i64,
    /// CPU time of all its processes, ns.
    pub cpu_ns: i64,
    /// Peak resident memory of the largest of its processes.
    pub max_rss_bytes: Option<i64>,
}

/// A file that a step needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Where it is.
    pub place: Place,
    /// Step that made it; `None`: it was there before the run.
    pub from: Option<usize>,
    /// Whether no step changes it after that one, so that it is the same whenever it is looked at.
    pub lasts: bool,
}

/// A file that a step leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where it is.
    pub place: Place,
    /// Whether it was there at the end of the run, as this step left it, and as new as the step:
    /// its time tells that the step was done.
    pub lasts: bool,
    /// Whether it was there at the end of the run, as this step left it.
    pub stays: bool,
}

/// A file that a step finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Where it is.
    pub place: Place,
    /// Step that made it, or changed it last before this one; `None`: it was so before the run.
    pub from: Option<usize>,
    /// Whether the step changes, renames or removes it.
    pub changes: bool,
}

/// A directory, symbolic link or FIFO that a step leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Where it is, relative to the root.
    pub path: String,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether nothing had this name before the step.
    pub is_new: bool,
}

/// A symbolic link that a step finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it is, relative to the root.
    pub path: String,
    /// Step that made it; `None`: it was there before the run.
    pub from: Option<usize>,
    /// Of one that was there before the run: whether it leads to a directory now; `None`: it leads nowhere.
    pub to_directory: Option<bool>,
}

/// An earlier step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// Its place in [`Plan::steps`].
    pub step: usize,
    /// Whether data goes from it; else only the order matters, as for what is removed later.
    pub is_data: bool,
}

impl Step {
    /// Whether a file of this name was there when it began.
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
