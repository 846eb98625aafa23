//! Descriptors in messages that processes of the tree send and receive.

use super::super::sample::{Carried, Sample};
use super::super::syscalls::Does;
use super::Follower;
use super::thread::Thread;
use super::under_way::UnderWay;
use crate::proc::sampler::objects::Target;

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
        match (self.passing.get(&carried.open), carried.mode & libc::S_IFMT) {
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
