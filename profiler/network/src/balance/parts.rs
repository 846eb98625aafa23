//! The parts of a process's load by partner: its delays above those that it would have without load.
//!
//! The text has equal programs on all hosts (4.4.2). There the delays of a partner towards others are
//! those of a process without load. A partner that does other work has no such delays: a coordinator
//! answers at once, however long its workers compute. There the delays of the processes that do the
//! same work are compared, towards the same partner. These work at the same time and the partner
//! waits for the slowest. So only what a process takes longer than all of them is a loss of the run.

use super::{End, Range, reference, significant};
use crate::matrix::Matrix;

/// The pairs of processes that do the same work, so that their delays compare.
#[derive(Clone, Debug)]
pub struct Roles(Option<Matrix<bool>>);

impl Roles {
    /// All processes do the same work, as the text assumes.
    pub fn equal() -> Roles {
        Roles(None)
    }

    /// The roles of a number of processes, by a symmetric relation.
    pub fn new(processes: usize, are_alike: impl Fn(usize, usize) -> bool) -> Roles {
        let mut found = Matrix::new(processes);
        for i in 0..processes {
            for j in 0..processes {
                *found.at_mut(i, j) = are_alike(i, j);
            }
        }
        Roles(Some(found))
    }

    /// True if both do the same work.
    pub fn are_alike(&self, a: usize, b: usize) -> bool {
        self.0.as_ref().is_none_or(|found| *found.at(a, b))
    }

    /// True if all of so many processes do the same work.
    pub fn are_all_alike(&self, processes: usize) -> bool {
        (0..processes).all(|a| (0..a).all(|b| self.are_alike(a, b)))
    }

    /// True if another of so many processes does the same work.
    pub fn has_peer(&self, process: usize, processes: usize) -> bool {
        (0..processes).any(|other| other != process && self.are_alike(process, other))
    }

    /// The process with the longest time among those that have a peer, and its peers; empty if none has one.
    pub fn about_longest(&self, times: &[f64]) -> Vec<usize> {
        let all = 0..times.len();
        let compared = all.clone().filter(|&i| self.has_peer(i, times.len()));
        let longest = compared.max_by(|&a, &b| times[a].total_cmp(&times[b]));
        longest.map_or(Vec::new(), |longest| {
            all.filter(|&i| self.are_alike(longest, i)).collect()
        })
    }
}

/// The load of a process that one partner shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// The partner.
    pub partner: usize,
    /// Delay of the pair without load, s.
    pub reference_s: f64,
    /// Delays above the reference, s.
    pub excess_s: f64,
    /// Time that the run gains without the excess, s; at most the excess.
    pub gain_s: f64,
}

/// The parts of a process, one for each significant partner towards which its delays compare with
/// those of another process.
pub fn parts(table: &Matrix<f64>, roles: &Roles, process: usize, end: End) -> Vec<Part> {
    let part = |partner: usize| {
        if roles.are_alike(process, partner) {
            Some(beside_partner(table, process, partner, end))
        } else {
            beside_others(table, roles, process, partner, end)
        }
    };
    let of = significant(table, process).into_iter();
    of.filter_map(part).collect()
}

/// Compared with the partner, which does the same work: the rule of the worked examples in 4.4.2 and
/// 4.5.2. The delays of both towards each other above the partner's reference.
fn beside_partner(table: &Matrix<f64>, process: usize, partner: usize, end: End) -> Part {
    let reference_s = reference(table, partner, end);
    let excess = |delay: &f64| (delay - reference_s).max(0.0);
    let excess_s = excess(table.at(process, partner)) + excess(table.at(partner, process));
    Part {
        partner,
        reference_s,
        excess_s,
        gain_s: excess_s,
    }
}

/// Compared with the others that do the same work for the partner; `None` if there are none.
fn beside_others(
    table: &Matrix<f64>,
    roles: &Roles,
    process: usize,
    partner: usize,
    end: End,
) -> Option<Part> {
    let others = (0..table.size())
        .filter(|&other| other != process && other != partner && roles.are_alike(process, other))
        .map(|other| *table.at(other, partner))
        .filter(|delay| *delay > 0.0);
    let delays: Vec<f64> = others.collect();
    let longest = delays.iter().copied().reduce(f64::max)?;
    let reference_s = match end {
        End::Pessimistic => delays.iter().copied().fold(longest, f64::min),
        End::Optimistic => delays.iter().sum::<f64>() / delays.len() as f64,
    };
    let above = |most: f64| (table.at(process, partner) - most).max(0.0);
    Some(Part {
        partner,
        reference_s,
        excess_s: above(reference_s),
        gain_s: above(longest),
    })
}

/// The gain of balancing a process by its [`parts`], s, for both ends.
pub fn pair_local(table: &Matrix<f64>, roles: &Roles, loaded: usize) -> Range {
    let sum = |end: End| {
        let parts = parts(table, roles, loaded, end);
        parts.iter().map(|part| part.gain_s).sum()
    };
    Range {
        low: sum(End::Optimistic),
        high: sum(End::Pessimistic),
    }
}
