//! Records of several CPUs in the order of time.

/// A record with a time.
pub(crate) trait Timed {
    /// Time, ns.
    fn time(&self) -> u64;
}

/// Records that wait for earlier ones of other CPUs.
#[derive(Debug)]
pub(crate) struct Merge<T>(Vec<T>);

impl<T> Default for Merge<T> {
    fn default() -> Merge<T> {
        Merge(Vec::new())
    }
}

impl<T: Timed> Merge<T> {
    /// Buffer for records from the rings; those of one time and CPU in their order.
    pub(crate) fn waiting(&mut self) -> &mut Vec<T> {
        &mut self.0
    }

    /// Takes out, in order, the records before a time, which no other one can precede any more.
    pub(crate) fn before(&mut self, until: u64) -> std::vec::Drain<'_, T> {
        // Those of one CPU are in order already, or nearly so: a few runs, which this sort joins.
        self.0.sort_by_key(Timed::time);
        let ready = self.0.partition_point(|record| record.time() < until);
        self.0.drain(..ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for u64 {
        fn time(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn what_may_have_forerunners_waits() {
        let mut merge = Merge::default();
        let times = |records: std::vec::Drain<'_, u64>| records.collect::<Vec<_>>();
        merge.waiting().extend([10, 30, 50]);
        merge.waiting().extend([20, 40]);
        assert_eq!(times(merge.before(36)), [10, 20, 30]);
        merge.waiting().push(35);
        assert_eq!(times(merge.before(u64::MAX)), [35, 40, 50]);
    }

    #[test]
    fn a_record_that_comes_late_in_its_ring_is_put_in_its_place() {
        let mut merge = Merge::default();
        merge.waiting().extend([10, 30, 20, 15, 40]);
        assert_eq!(merge.before(30).collect::<Vec<u64>>(), [10, 15, 20]);
        assert_eq!(merge.before(u64::MAX).collect::<Vec<u64>>(), [30, 40]);
    }
}
