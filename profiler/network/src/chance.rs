//! Pseudo-random numbers with fixed seeds, so that the same trace has the same answer.

/// A generator (xorshift) from a state, which must not be 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`, which must not be 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A copy of a list in another order.
    pub(super) fn shuffled<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        let mut all = all.to_vec();
        for i in (1..all.len()).rev() {
            all.swap(i, self.below(i + 1));
        }
        all
    }
}
