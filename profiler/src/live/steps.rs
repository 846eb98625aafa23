//! The steps of a run as it grows, and the data that leads from one to another.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::rates::Rate;
use crate::managers::runner_of;

/// Most steps; images of others count for the last one.
const MOST: usize = 2_000;

/// The steps in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) rows: Vec<Step>,
    of: HashMap<Arc<str>, usize>,
    /// Edges by their ends.
    pub(super) edges: BTreeMap<(usize, usize), Edge>,
    /// Edges that would close a cycle.
    pub(super) dropped: std::collections::BTreeSet<(usize, usize)>,
}

/// A step.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) name: Arc<str>,
    pub(super) is_runner: bool,
    /// Images that have not ended.
    pub(super) running: usize,
    /// Processes that ended as this step.
    pub(super) done: usize,
    pub(super) failed: usize,
    /// CPU time of the images that have ended, ns.
    pub(super) cpu_ns: i64,
    pub(super) read_bytes: i64,
    pub(super) write_bytes: i64,
    pub(super) reading: Rate,
    pub(super) writing: Rate,
}

/// Data from one step to another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edge {
    pub(super) files: i64,
    pub(super) channels: i64,
    pub(super) is_socket: bool,
    pub(super) bytes: i64,
}

impl Steps {
    /// The step of that name.
    pub(super) fn named(&mut self, name: &str, exe: Option<&str>) -> usize {
        if let Some(&known) = self.of.get(name) {
            return known;
        }
        if self.rows.len() >= MOST {
            return MOST - 1;
        }
        let name: Arc<str> = match self.rows.len() + 1 < MOST {
            true => name.into(),
            false => "(other steps)".into(),
        };
        self.of.insert(Arc::clone(&name), self.rows.len());
        self.rows.push(Step {
            is_runner: runner_of(exe, &name).is_some(),
            name,
            ..Step::default()
        });
        self.rows.len() - 1
    }

    /// The number of the step of that name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.of.get(name).copied()
    }

    pub(super) fn begin(&mut self, step: usize) {
        self.rows[step].running += 1;
    }

    pub(super) fn end(&mut self, step: usize, is_process: bool, has_failed: bool, cpu_ns: i64) {
        let step = &mut self.rows[step];
        step.running = step.running.saturating_sub(1);
        step.done += usize::from(is_process);
        step.failed += usize::from(has_failed);
        step.cpu_ns = step.cpu_ns.saturating_add(cpu_ns);
    }

    /// Notes a pipe or socket.
    pub(super) fn connect(&mut self, from: usize, to: usize, is_socket: bool) {
        if let Some(edge) = self.edge(from, to) {
            edge.channels += 1;
            edge.is_socket |= is_socket && edge.files == 0;
        }
    }

    /// The edge from one step to another; `None`: there can be none, or it would close a cycle.
    pub(super) fn edge(&mut self, from: usize, to: usize) -> Option<&mut Edge> {
        if from == to || self.dropped.contains(&(from, to)) {
            return None;
        }
        if !self.edges.contains_key(&(from, to)) && self.leads(to, from) {
            self.dropped.insert((from, to));
            return None;
        }
        Some(self.edges.entry((from, to)).or_default())
    }

    /// True if data leads from one step to another.
    fn leads(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.rows.len()];
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            if at == to {
                return true;
            }
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            next.extend(
                self.edges
                    .range((at, 0)..=(at, usize::MAX))
                    .map(|(&(_, to), _)| to),
            );
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_that_would_close_a_cycle_is_counted_and_left_out() {
        let mut steps = Steps::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| steps.named(name, None));
        assert_eq!(steps.named("b", None), b);
        for (from, to) in [(a, b), (b, c), (c, a), (a, a), (c, a), (a, c)] {
            steps.connect(from, to, false);
        }
        let edges: Vec<_> = steps.edges.keys().copied().collect();
        assert_eq!(edges, [(a, b), (a, c), (b, c)]);
        assert_eq!(steps.dropped.len(), 1);
    }
}
