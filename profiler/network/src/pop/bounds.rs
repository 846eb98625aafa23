//! Bounds of the efficiencies of programs whose work packets do not show.
//!
//! A process's computing time in a step (from one send to the next) is at most the time of the quickest
//! repetition of that step, if it computes alike in all of them. It may be longer by the time after the
//! last sign of the library only. It is at least the time after that sign in the quickest repetition,
//! less the time that the library takes to send.

use super::{Basis, Pop, Share};

/// Bounds of the computing time of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) least_s: f64,
    /// Most time, if work varies as that of all processes does. Holds for the sum over processes.
    pub(super) most_s: f64,
    /// Most time, if work varies as that of this process may.
    pub(super) most_alone_s: f64,
}

/// The efficiencies of processes with these bounds in a run of `run_s`; `None` if none worked.
pub(super) fn shares(bounds: &[Bound], run_s: f64) -> Option<Pop> {
    let top = |of: fn(&Bound) -> f64| bounds.iter().map(of).fold(0.0, f64::max);
    let mean = |of: fn(&Bound) -> f64| bounds.iter().map(of).sum::<f64>() / bounds.len() as f64;
    let most = top(|bound| bound.most_alone_s);
    if run_s <= 0.0 || most <= 0.0 {
        return None;
    }
    let least = top(|bound| bound.least_s);
    let parallel = (mean(|bound| bound.least_s), mean(|bound| bound.most_s));
    Some(Pop {
        basis: Basis::Bounds,
        run_s,
        ideal_s: None,
        load_balance: load_balance(bounds),
        communication: Share::of(least / run_s, most / run_s),
        serialisation: None,
        transfer: None,
        parallel: Share::of(parallel.0 / run_s, parallel.1 / run_s),
        work_s: bounds.iter().map(|b| (b.least_s, b.most_s)).collect(),
    })
}

/// The range of the mean over the largest of values that each lie within bounds.
fn load_balance(bounds: &[Bound]) -> Share {
    let balance = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, top) = values.fold((0.0, 0.0f64), |(sum, top), v| (sum + v, top.max(v)));
        if top > 0.0 {
            sum / top / bounds.len() as f64
        } else {
            1.0
        }
    };
    // The worst case: one process has all the work that it may have, the others the least.
    let one_apart = |busiest: usize| {
        let value = |(i, bound): (usize, &Bound)| {
            if i == busiest {
                bound.most_alone_s
            } else {
                bound.least_s
            }
        };
        balance(&mut bounds.iter().enumerate().map(value))
    };
    let worst = (0..bounds.len()).map(one_apart).fold(1.0, f64::min);
    // The best case: all processes have the largest of the least values.
    let level = bounds.iter().map(|bound| bound.least_s).fold(0.0, f64::max);
    let best = balance(&mut bounds.iter().map(|bound| bound.most_s.min(level)));
    Share::of(worst, best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_balance_is_the_best_and_the_worst_within_the_bounds() {
        let load_balance = |bounds: &[(f64, f64)]| {
            let bound = |&(least_s, most_s): &(f64, f64)| Bound {
                least_s,
                most_s,
                most_alone_s: most_s,
            };
            load_balance(&bounds.iter().map(bound).collect::<Vec<_>>())
        };
        let exact = load_balance(&[(1.0, 1.0), (2.0, 2.0)]);
        assert_eq!((exact.low, exact.high), (0.75, 0.75));
        let open = load_balance(&[(0.0, 1.0), (0.0, 2.0)]);
        assert_eq!((open.low, open.high), (0.5, 1.0));
        let half = load_balance(&[(1.0, 3.0), (2.0, 4.0)]);
        assert_eq!((half.low, half.high), (0.625, 1.0));
    }
}
