//! Work on several threads at a time, whose results are all needed.

use std::collections::VecDeque;
use std::iter::from_fn;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle, available_parallelism, scope};

/// Results of the functions, in their order. There are at most as many threads as CPUs, this one among them,
/// and each takes the next function that is left: the slowest are best given first.
pub(crate) fn side_by_side<T: Send>(
    acts: impl IntoIterator<Item = impl FnOnce() -> T + Send>,
) -> Vec<T> {
    let acts: VecDeque<_> = acts.into_iter().enumerate().collect();
    let cpus = available_parallelism().map_or(1, NonZero::get);
    let others = cpus.min(acts.len()).saturating_sub(1);
    let waiting = Mutex::new(acts);
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    };
    let work = || {
        from_fn(next)
            .map(|(at, act)| (at, act()))
            .collect::<Vec<_>>()
    };
    let mut done = scope(|threads| {
        let begun: Vec<_> = (0..others).map(|_| threads.spawn(work)).collect();
        let mut done = work();
        done.extend(begun.into_iter().flat_map(joined));
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Results of both functions; the second runs on this thread.
pub(crate) fn both<A: Send, B>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B,
) -> (A, B) {
    scope(|threads: &Scope<'_, '_>| {
        let first = threads.spawn(first);
        let second = second();
        (joined(first), second)
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    let result = thread.join();
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let squares = side_by_side((0..9).map(|n| move || n * n));
        assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49, 64]);
        assert!(side_by_side([] as [fn() -> u8; 0]).is_empty());
        assert_eq!(both(|| 1, || "b"), (1, "b"));
    }
}
