//! Descriptors on their way from process to process, in messages (`SCM_RIGHTS` of unix(7)).

use std::collections::HashMap;

use super::super::sample::{Carried, OpenId, Sample};
use super::super::syscalls::Does;
use super::super::table::Sent;
use super::{Follower, Thread, UnderWay};
use crate::proc::sampler::objects::Target;

/// So many are remembered: whoever sends more, and receives none, has them looked at when they are used.
const MOST: usize = 1 << 16;

/// What is under way, as its sender knew it. That it was received is no end: somebody may have looked at the message alone
/// (`MSG_PEEK`), or sent it to others as well.
#[derive(Debug, Default)]
pub(super) struct Passing(HashMap<OpenId, Sent>);

impl Passing {
    /// This open file is sent. `None`: its sender does not know what it is.
    fn send(&mut self, open: OpenId, sent: Option<Sent>) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        match sent {
            Some(sent) => self.0.insert(open, sent),
            None => self.0.remove(&open),
        };
    }
}

impl Follower {
    /// A message carries a descriptor.
    pub(super) fn carries(&mut self, sample: &Sample, does: Does, carried: Carried) {
        let Does::Data(data) = does else {
            return;
        };
        if data.writes {
            // Where it is gone by now its receiver's is looked at.
            let _ = self.meet_one(sample.tid, carried.fd);
        }
        let Some(thread) = self.threads.get(&sample.tid).filter(|t| !t.foreign) else {
            return;
        };
        let mut table = thread.table.borrow_mut();
        if data.writes {
            self.passing.send(carried.open, table.send(carried.fd));
            return;
        }
        table.touched(sample.at, sample.tid, carried.fd..=carried.fd);
        let close_on_exec = thread.receives_to_close();
        match (
            self.passing.0.get(&carried.open),
            carried.mode & libc::S_IFMT,
        ) {
            (Some(sent), _) => table.receive(carried.fd, sent.clone(), close_on_exec),
            (None, libc::S_IFIFO | libc::S_IFSOCK) => {
                let channel = Target::Channel(carried.open.inode);
                table.hold(carried.fd, channel, close_on_exec);
            }
            // From somebody who is not followed: it is looked at when it is used.
            (None, _) => {
                table.receives = true;
                table.close(carried.fd);
            }
        }
    }
}

impl Thread {
    /// Whether a new program will not have what the call that is under way receives.
    fn receives_to_close(&self) -> bool {
        let call = self.under_way.as_ref();
        call.is_some_and(UnderWay::receives_to_close)
    }
}
