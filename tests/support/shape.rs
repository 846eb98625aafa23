//! Processes and files of a run in a form that does not depend on the observer or on the run.

use std::collections::BTreeSet;

/// One process from its creation to its end, through all its execs. Paths are relative to the
/// directory that was observed, and only those below it count.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    /// Arguments of each successful exec, quoted for a shell; empty for a subshell.
    pub(crate) execs: Vec<String>,
    /// `exit N` or `signal N`; empty: not seen.
    pub(crate) end: String,
    /// Files opened so that they could be read.
    pub(crate) read: BTreeSet<String>,
    /// Files opened so that they could be written.
    pub(crate) written: BTreeSet<String>,
    pub(crate) renames: usize,
    pub(crate) unlinks: usize,
}

/// Panics unless both lists hold the same processes, in any order.
#[track_caller]
pub(crate) fn assert_same(one: &str, mut left: Vec<Process>, other: &str, mut right: Vec<Process>) {
    left.sort_unstable();
    right.sort_unstable();
    let only = |a: &[Process], b: &[Process]| -> Vec<Process> {
        let mut rest = b.to_vec();
        let mut only = Vec::new();
        for process in a {
            match rest.iter().position(|p| p == process) {
                Some(i) => drop(rest.swap_remove(i)),
                None => only.push(process.clone()),
            }
        }
        only
    };
    let (more, less) = (only(&left, &right), only(&right, &left));
    let show = |list: &[Process]| -> String {
        let first = list.iter().take(5);
        first.map(|p| format!("  {p:#?}\n")).collect()
    };
    assert!(
        more.is_empty() && less.is_empty(),
        "{} processes by {one}, {} by {other}\nonly by {one} ({}):\n{}only by {other} ({}):\n{}",
        left.len(),
        right.len(),
        more.len(),
        show(&more),
        less.len(),
        show(&less)
    );
}
