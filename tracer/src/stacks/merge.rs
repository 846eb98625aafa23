//! Records of several CPUs in the order of time.

use std::collections::VecDeque;

use super::records::Record;

/// Records that wait for those of other CPUs. Those of one CPU come in order, or nearly so.
pub(super) struct Merge {
    queues: Vec<VecDeque<Record>>,
}

impl Merge {
    pub(super) fn new(cpus: usize) -> Merge {
        Merge {
            queues: (0..cpus).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Adds a record of a CPU.
    pub(super) fn add(&mut self, cpu: usize, record: Record) {
        let queue = &mut self.queues[cpu];
        // An interrupt within the writing of a record puts a later time before it.
        let after = queue
            .iter()
            .rev()
            .take_while(|other| other.time > record.time);
        let place = queue.len() - after.count();
        queue.insert(place, record);
    }

    /// Calls `with` with all records before `until`, in the order of time.
    pub(super) fn take(&mut self, until: u64, mut with: impl FnMut(Record)) {
        loop {
            let heads = self.queues.iter().enumerate();
            let heads = heads.filter_map(|(cpu, queue)| Some((queue.front()?.time, cpu)));
            let Some((time, cpu)) = heads.min() else {
                return;
            };
            if time >= until {
                return;
            }
            if let Some(record) = self.queues[cpu].pop_front() {
                with(record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::What;
    use super::*;

    #[test]
    fn records_come_in_the_order_of_time_and_not_too_early() {
        let record = |time| Record {
            time,
            pid: 1,
            tid: 1,
            what: What::Exit,
        };
        let mut merge = Merge::new(2);
        for time in [10, 30, 20] {
            merge.add(0, record(time));
        }
        for time in [15, 40] {
            merge.add(1, record(time));
        }
        let mut times = Vec::new();
        merge.take(30, |record| times.push(record.time));
        assert_eq!(times, [10, 15, 20]);
        merge.take(u64::MAX, |record| times.push(record.time));
        assert_eq!(times, [10, 15, 20, 30, 40]);
    }
}
