//! The file calls and computing times of a trace as a workload that runs again, as a benchmark of a
//! filesystem or machine: same sizes, offsets, order and parallelism, other data.
//!
//! [`plan()`] makes a list of the calls of each process; [`play`] executes it, with one thread per process. A
//! process begins when its parent has come to the place where it forked it, and a parent goes on after its
//! children where it did so in the run. A call waits for the calls that were over when it began and that it
//! needs (`order`).

mod calls;
mod order;
mod plan;
mod play;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use plan::plan;
pub use play::{Failed, Played, Used, play};
use serde::{Deserialize, Serialize};

use crate::argv::unquote;
use crate::model::Workflow;

/// The calls to play, and their order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Workload {
    /// Directories and files that are there at the begin: path below the root, size.
    pub(crate) files: BTreeMap<String, u64>,
    pub(crate) directories: Vec<String>,
    pub(crate) actors: Vec<Actor>,
    /// Number of counters that the order of calls needs.
    pub(crate) counters: usize,
    /// Sums over the recorded calls.
    pub recorded: Totals,
    /// Duration of the recorded run, ns.
    pub recorded_ns: i64,
    /// Recorded calls that are not played: of kinds that have no effect on data, such as attributes
    /// and locks, and on files that cannot be placed.
    pub left_out: u64,
    /// Recorded time that is not played.
    pub not_played: NotPlayed,
    /// Warnings about the trace, such as that it is not complete.
    pub warnings: Vec<String>,
}

/// Time of the recorded processes that is not played, because it was no work; sums over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotPlayed {
    /// Time ready to run and waiting for a CPU, ns.
    pub run_queue_ns: i64,
    /// Time stopped by the tracer, ns.
    pub tracer_ns: i64,
    /// CPU time of the processes, for comparison, ns.
    pub cpu_ns: i64,
}

/// Sums over calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Calls of all kinds that are played.
    pub calls: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// A process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Actor {
    pub(crate) parent: Option<usize>,
    pub(crate) acts: Vec<Act>,
}

/// One action of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Act {
    /// Passes time, ns, of which it computes until it has used its share of the CPU time; the CPU time of its
    /// calls counts towards that.
    Think { compute_ns: u64, gap_ns: u64 },
    /// Starts another process.
    Fork(usize),
    /// Waits for another process to end.
    Wait(usize),
    /// Makes a file call.
    Call(Call),
}

/// A file call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    /// Number of the file among all.
    pub(crate) file: usize,
    pub(crate) path: String,
    /// Counters that must be reached before the call.
    pub(crate) after: Vec<After>,
    /// Counters that it advances.
    pub(crate) advances: Vec<usize>,
}

/// A counter and the value that it must have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct After {
    pub(crate) counter: usize,
    pub(crate) count: u32,
}

/// Effect of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CallKind {
    Open {
        write: bool,
        truncate: bool,
        create: bool,
    },
    /// Makes a file without a name, in a directory.
    MakeUnnamed,
    /// A descriptor was closed; others may lead to the same open file.
    Flush,
    /// An open file was closed for good.
    Close,
    Read {
        offset: u64,
        length: usize,
    },
    Write {
        offset: u64,
        length: usize,
    },
    Truncate(u64),
    Sync,
    MakeDirectory,
    MakeFile,
    MakeFifo,
    /// Makes a symbolic link, which leads nowhere: its target is not recorded, and calls are played on the
    /// files that they reached.
    MakeLink,
    RemoveDirectory,
    Remove,
    Rename(String),
    Link(String),
    /// Gives a file a name that has none, and is open.
    Name,
    List,
    Stat,
}

/// The directory in which a run played another trace, if that is what the run did:
/// `flowtrace replay … --into DIR`.
pub fn played_into(workflow: &Workflow) -> Option<PathBuf> {
    let run = workflow.runs.first()?;
    let mut words = unquote(run.command.as_deref()?).into_iter();
    let program = words.next()?;
    if Path::new(&program).file_name()? != "flowtrace" || words.next()? != "replay" {
        return None;
    }
    while let Some(word) = words.next() {
        let into = match word.strip_prefix("--into") {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        if let Some(into) = into {
            return Some(Path::new(&run.cwd).join(into));
        }
    }
    None
}

/// The path at which a path is played: below the directory of the replay; several traced directories get
/// separate ones. `None`: it lies in none of them.
pub(crate) fn place(roots: &[&str], path: &str) -> Option<String> {
    let (at, rest) = roots
        .iter()
        .enumerate()
        .find_map(|(at, root)| Some((at, path.strip_prefix(*root)?)))?;
    if !(rest.is_empty() || rest.starts_with('/') || roots[at] == "/") {
        return None;
    }
    let rest = rest.trim_start_matches('/');
    let rest = if rest.is_empty() { "." } else { rest };
    // A name that leads out of the directory was never recorded; a damaged trace must not lead out either.
    let is_safe = !rest.split('/').any(|part| part == "..");
    is_safe.then(|| match roots.len() {
        1 => rest.to_owned(),
        _ => format!("{at}/{rest}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_known_by_its_command() {
        let into = |command: &str| {
            let workflow = Workflow {
                runs: vec![flowtrace_schema::RunRow {
                    command: Some(command.into()),
                    cwd: "/w".into(),
                    ..Default::default()
                }],
                ..Workflow::default()
            };
            played_into(&workflow)
        };
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(into("/bin/flowtrace replay t.db --into /w/x"), at("/w/x"));
        assert_eq!(into("flowtrace replay --into=x t.db"), at("/w/x"));
        assert_eq!(into("flowtrace replay t.db"), None);
        assert_eq!(into("make replay --into x"), None);
    }

    #[test]
    fn several_traced_directories_are_played_apart() {
        assert_eq!(place(&["/a"], "/a/b/c"), Some("b/c".into()));
        assert_eq!(place(&["/a", "/b"], "/b/c"), Some("1/c".into()));
        assert_eq!(place(&["/a"], "/ab/c"), None);
        assert_eq!(place(&["/a"], "/a/../c"), None);
        assert_eq!(place(&["/"], "/c"), Some("c".into()));
    }
}
