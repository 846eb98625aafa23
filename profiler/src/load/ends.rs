//! Ends of a channel by process, while the streams are joined.

use std::collections::BTreeMap;

use crate::load::end_use::EndUse;
use crate::load::other_reads::OtherReads;
use crate::model::ProcessId;
/// Who held the ends of one channel.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) channel_id: i64,
    pub(super) writers: BTreeMap<ProcessId, EndUse>,
    pub(super) readers: BTreeMap<ProcessId, EndUse>,
    pub(super) is_socket: bool,
    /// It has a name: by one descriptor a process may read and write.
    pub(super) is_fifo: bool,
}

impl Ends {
    /// Whether it may be that a process read all of a pipe. Not one that has the writing end, too: it would talk to itself, while
    /// the workers that it started wait.
    pub(super) fn may_have_read_all(&self, id: ProcessId) -> bool {
        self.is_fifo || !self.writers.contains_key(&id)
    }

    /// What went in at most, bytes; `None`: not known.
    pub(super) fn written(&self, aside: &OtherReads) -> Option<i64> {
        let mut sides = self.writers.iter();
        sides.try_fold(0, |sum: i64, (&id, side)| {
            let elsewhere = aside.files(id).1;
            Some(sum.saturating_add(side.at_most_bytes?.saturating_sub(elsewhere).max(0)))
        })
    }
}
