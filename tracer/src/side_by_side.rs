//! Work on several threads at a time, where somebody waits for all of it.

use std::panic::resume_unwind;
use std::thread::{Scope, ScopedJoinHandle, scope};

/// What each of these comes to, in their order.
pub(crate) fn side_by_side<T: Send>(
    acts: impl IntoIterator<Item = impl FnOnce() -> T + Send>,
) -> Vec<T> {
    scope(|threads| {
        let begun: Vec<_> = acts.into_iter().map(|act| threads.spawn(act)).collect();
        begun.into_iter().map(joined).collect()
    })
}

/// What both come to; the second on this thread.
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
        assert_eq!(both(|| 1, || "b"), (1, "b"));
    }
}
