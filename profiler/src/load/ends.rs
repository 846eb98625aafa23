//! Ends of a channel by process, while the streams are joined.

use std::collections::BTreeMap;

use crate::load::end_use::EndUse;
use crate::load::other_reads::OtherReads;
use crate::model::ProcessId;
/// Processes at the ends of one channel.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) channel_id: i64,
    pub(super) writers: BTreeMap<ProcessId, EndUse>,
    pub(super) readers: BTreeMap<ProcessId, EndUse>,
    pub(super) is_socket: bool,
    /// True if the channel has a name: a process may read and write by one descriptor.
    pub(super) is_fifo: bool,
}

impl Ends {
    /// Returns true if the process may have read all of a pipe. A process that also has the writing end has
    /// not: it would send data to itself, while the workers that it started wait.
    pub(super) fn may_have_read_all(&self, id: ProcessId) -> bool {
        self.is_fifo || !self.writers.contains_key(&id)
    }

    /// Greatest number of bytes written; `None`: not known.
    pub(super) fn written(&self, other_reads: &OtherReads) -> Option<i64> {
        let mut sides = self.writers.iter();
        sides.try_fold(0, |sum: i64, (&id, side)| {
            let elsewhere = other_reads.files(id).1;
            Some(sum.saturating_add(side.at_most_bytes?.saturating_sub(elsewhere).max(0)))
        })
    }
}
