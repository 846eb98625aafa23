//! What is not known because the kernel dropped records.

use flowtrace_schema::Loss;

use super::super::dropped::Dropped;
use super::super::sample::{Sample, What};
use super::super::syscalls::is_foreign;
use super::Follower;

/// A counter and what it counted.
pub(in super::super) type Counted = (Loss, u64);

impl Follower {
    /// The kernel dropped records of whoever: where the next read or write of any open file begins is not
    /// known any more, nor quite which file it is; of those that are opened until that moment, too, for in between more may have been
    /// dropped.
    pub(in super::super) fn lost(&mut self, records: u64, until: u64) {
        self.dropped += records;
        self.lossy_until = self.lossy_until.max(until);
        for process in self.processes.values() {
            process.counts.sums.borrow_mut().lossy = true;
            let mut table = process.table.borrow_mut();
            table.doubt();
            for open in table.open_files() {
                open.position.set(None);
                open.lossy.set(true);
            }
        }
    }

    /// A call with the numbers of another architecture: of what it does nothing is followed.
    pub(super) fn by_other_numbers(&self, sample: &Sample) {
        let thread = self.threads.get(&sample.tid).filter(|t| !t.foreign);
        if let Some(thread) = thread
            && is_foreign(sample.number)
            && matches!(sample.what, What::Enters(_))
        {
            thread.counts.is_partial.set(true);
            thread.counts.by_other_numbers.set(true);
            thread.table.borrow_mut().set_unreported();
        }
    }

    /// What was not seen, where the kernel dropped these entries of calls. Of calls that move data those are
    /// counted, the ones of which only the return was dropped, and the ones that have no row because of what was
    /// dropped before them.
    pub(in super::super) fn losses(&mut self, entries: Dropped) -> [Counted; 5] {
        let is_lossy = self.dropped > 0 || entries.any();
        // Without a loss a call that never returned was cut off, and with one they cannot agree.
        let (without_rows, unreconciled) = match is_lossy {
            false => (0, self.unreconciled),
            true => (
                self.halves + self.unplaced + self.strangers.rows_dropped(),
                0,
            ),
        };
        [
            (Loss::CallsDropped, entries.data + without_rows),
            (Loss::OtherCallsDropped, entries.others),
            (Loss::Excluded, self.excluded),
            (Loss::CallsUnreconciled, unreconciled),
            (Loss::DescriptorsNotFollowed, self.strangers.not_followed()),
        ]
    }
}
