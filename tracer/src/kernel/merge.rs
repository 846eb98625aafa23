//! Merges the samples of all CPUs in the order of time.

use super::sample::Sample;

/// A record may enter its ring this long after the time that it carries: the kernel cannot be preempted in
/// between, but interrupted.
const LATE_NS: u64 = 1_000_000;

/// Samples that wait for earlier ones of other CPUs.
#[derive(Debug, Default)]
pub(super) struct Merge {
    waiting: Vec<Sample>,
}

impl Merge {
    /// Buffer for samples from the rings.
    pub(super) fn waiting(&mut self) -> &mut Vec<Sample> {
        &mut self.waiting
    }

    /// Takes out, in order, the samples that no other one can precede any more. All rings were read after
    /// `read_ns`; `None`: no more samples will come.
    pub(super) fn ready(&mut self, read_ns: Option<u64>) -> std::vec::Drain<'_, Sample> {
        // Those of one CPU are in order already: a few runs, which this sort joins.
        self.waiting.sort_by_key(|sample| sample.at);
        let horizon = read_ns.map_or(u64::MAX, |at| at.saturating_sub(LATE_NS));
        let ready = self.waiting.partition_point(|sample| sample.at <= horizon);
        self.waiting.drain(..ready)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::What;
    use super::*;

    #[test]
    fn what_may_have_forerunners_waits() {
        let sample = |at| Sample {
            at,
            tid: 1,
            number: 0,
            what: What::Moved(0),
        };
        let mut merge = Merge::default();
        let times = |samples: std::vec::Drain<'_, Sample>| -> Vec<u64> {
            samples.map(|sample| sample.at).collect()
        };
        merge.waiting().extend([10, 30, 50].map(sample));
        merge.waiting().extend([20, 40].map(sample));
        assert_eq!(times(merge.ready(Some(LATE_NS + 35))), [10, 20, 30]);
        merge.waiting().push(sample(35));
        assert_eq!(times(merge.ready(None)), [35, 40, 50]);
    }
}
