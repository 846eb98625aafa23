//! Calls whose results are not told. The thread is held when it makes one, and again when it makes the next, or at its end: then
//! the first has returned, and what it did is found where it shows: in the process's memory and descriptors, and under
//! the names of files.

use std::ffi::OsStr;

use flowtrace_schema::Loss;

use super::super::observer::Tracee;
use super::super::outside::{Named, Open};
use super::super::topology::{UNNAMED, bytes_at};
use super::{Pending, Wiring};

impl Wiring {
    /// An open at its entry. A file that is there is taken at its word; what will be made is looked for later.
    pub(super) fn open_unseen(
        &mut self,
        tracee: Tracee,
        directory: Option<i32>,
        path: &OsStr,
        flags: u32,
        now: u64,
    ) -> Option<Pending> {
        let has = |flag: i32| flags & flag as u32 == flag as u32;
        let elsewhere = self.elsewhere.contains(&tracee.pid);
        let path = self.outside.place(tracee, directory, path, elsewhere)?;
        let mut open = Open {
            flags,
            creates: flags & UNNAMED != 0,
            start_ns: now,
        };
        match self.outside.look(&path) {
            _ if flags & UNNAMED != 0 => Some(Pending::Open(open, Some(path))),
            Some(Named::Fifo) => Some(Pending::Accept),
            Some(Named::File(found)) if !has(libc::O_CREAT | libc::O_EXCL) => {
                self.outside.takes(tracee, &open, &found, now);
                None
            }
            Some(_) => None,
            None if has(libc::O_CREAT) => {
                open.creates = true;
                Some(Pending::Open(open, Some(path)))
            }
            None => None,
        }
    }

    /// What the last call of this thread did.
    pub(super) fn find_out(&mut self, tracee: Tracee, now: u64) {
        let Some((pending, entered)) = self.pending.remove(&tracee.tid) else {
            return;
        };
        match pending {
            Pending::Pair(address) => {
                if let Some(pair) = bytes_at::<8>(tracee.tid, address) {
                    let (one, other) = pair.split_at(4);
                    let fd = |half: &[u8]| half.try_into().map(i32::from_ne_bytes);
                    if let (Ok(one), Ok(other)) = (fd(one), fd(other)) {
                        self.made(tracee, &[one, other], entered);
                    }
                }
            }
            Pending::Accept => self.channels.made_some(tracee, now),
            Pending::Bind(fd) | Pending::Connect(fd, _) => self.made(tracee, &[fd], entered),
            Pending::Open(open, Some(_)) if open.flags & UNNAMED != 0 => {
                self.outside.find_unnamed(tracee, &open);
            }
            Pending::Open(open, Some(path)) => {
                if let Some(Named::File(found)) = self.outside.look(&path) {
                    self.outside.takes(tracee, &open, &found, entered);
                }
            }
            Pending::Open(..) => {}
            Pending::Names(change) => {
                if self.outside.has_changed(&change) {
                    self.outside.changed(change, entered);
                }
            }
            Pending::Mount => self.recorder.lost(Loss::MountsInside, 1),
        }
    }
}
