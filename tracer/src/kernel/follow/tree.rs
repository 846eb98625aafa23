//! What becomes of the tree: whose threads, and whose table of descriptors.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::super::feed::{Change, Inherited};
use super::super::table::Table;
use super::{Follower, OpenedFile, Process, SharedTable, TOLERANCE, Thread, opened_now};
use crate::proc::observer::Tracee;

impl Follower {
    pub(super) fn change(&mut self, at: u64, change: Change) {
        match change {
            Change::Begins(tracee, native) => {
                let table = Rc::new(RefCell::new(Table::inherited()));
                self.begin(tracee, table, !native);
            }
            Change::Forked {
                by,
                thread,
                child,
                shares,
            } => {
                let Some(parent) = self.processes.get(&by) else {
                    return self.begin(child, SharedTable::default(), false);
                };
                let foreign = parent.foreign;
                let maker = self.threads.get(&thread);
                let table = maker.map_or(&parent.table, |maker| &maker.table);
                let table = match shares {
                    true => Rc::clone(table),
                    false => {
                        // It is copied in the call that forks.
                        let since = maker.and_then(|maker| maker.forks_at).unwrap_or(at);
                        Rc::new(RefCell::new(table.borrow().forked(since, thread)))
                    }
                };
                if !shares {
                    self.copied(by, thread, &table);
                }
                self.begin(child, table, foreign);
            }
            Change::Thread(tracee) => self.add(tracee),
            Change::Executed(tracee, native) => {
                let before = self.over(tracee.pid);
                // What was shared with another process is the program's own from here on.
                let table = before.map_or_else(SharedTable::default, |before| own(&before.table));
                table.borrow_mut().exec();
                self.begin(tracee, table, !native);
            }
            Change::Ended(tid) => {
                self.forget_notes(tid, at);
                if let Some(pid) = self.ends(tid)
                    && let Some(process) = self.processes.get_mut(&pid)
                {
                    process.tids.retain(|other| *other != tid);
                }
            }
            Change::Streams { pid, targets } => {
                if let Some(process) = self.processes.get(&pid) {
                    let mut table = process.table.borrow_mut();
                    for (fd, target) in (0..).zip(targets) {
                        if let Some(target) = target {
                            table.know(fd, target);
                        }
                    }
                }
            }
            Change::Descriptor {
                tid,
                fd,
                target,
                close_on_exec,
            } => {
                if let Some(thread) = self.threads.get(&tid) {
                    thread
                        .table
                        .borrow_mut()
                        .hold(fd as u64, target, close_on_exec);
                }
            }
            Change::Opened {
                tid,
                fd,
                file,
                flags,
            } => {
                if let Some(thread) = self.threads.get(&tid) {
                    let opened = OpenedFile {
                        file: Some(file),
                        flags,
                        by_fuse: false,
                        number: None,
                    };
                    let open = opened_now(opened, at <= self.lossy_until);
                    let close_on_exec = flags & libc::O_CLOEXEC as u32 != 0;
                    let mut table = thread.table.borrow_mut();
                    table.set(fd as u64, Some(open), close_on_exec);
                }
            }
            Change::Inherited { tid, file } => {
                if let Some(thread) = self.threads.get(&tid) {
                    hold_inherited(&mut thread.table.borrow_mut(), file);
                }
            }
            Change::Ring(pid) => {
                if let Some(process) = self.processes.get(&pid) {
                    process.table.borrow_mut().set_unreported();
                }
            }
            Change::AsyncIo(pid) => {
                if let Some(process) = self.processes.get(&pid) {
                    process.counts.is_partial.set(true);
                }
            }
            Change::Stopped(_) | Change::Continued(_) => {}
            Change::CallCounts { pid, reads, writes } => self.reconcile(pid, reads, writes),
            Change::Over(pid) => {
                self.forget_notes(pid, at);
                self.over(pid);
            }
        }
    }

    /// A table was copied by a fork. What other threads of the process are just making may be in it.
    fn copied(&mut self, pid: u32, by: u32, copy: &SharedTable) {
        let tids = self.processes.get(&pid).map(|process| &process.tids);
        for tid in tids.into_iter().flatten().filter(|tid| **tid != by) {
            let thread = self.threads.get_mut(tid);
            let call = thread.and_then(|thread| thread.under_way.as_mut());
            if let Some(call) = call.filter(|call| call.makes_descriptor()) {
                call.copies.push(Rc::clone(copy));
            }
        }
    }

    /// Compares what was seen of an image with what /proc counted.
    fn reconcile(&mut self, pid: u32, reads: u64, writes: u64) {
        let Some(process) = self.processes.get(&pid) else {
            return;
        };
        let counts = &process.counts;
        let tolerance = TOLERANCE + process.tids.len() as u64;
        let agrees = |seen: &Cell<u64>, told: u64| seen.get().abs_diff(told) <= tolerance;
        let agree = agrees(&counts.reads, reads) && agrees(&counts.writes, writes);
        if !agree || counts.by_other_numbers.get() {
            self.unreconciled += 1;
        }
    }

    fn begin(&mut self, tracee: Tracee, table: SharedTable, foreign: bool) {
        let process = Process {
            counts: Rc::default(),
            upid: tracee.upid,
            table,
            tids: Vec::new(),
            foreign,
        };
        self.processes.insert(tracee.pid, process);
        self.add(tracee);
    }

    fn add(&mut self, tracee: Tracee) {
        let Some(process) = self.processes.get_mut(&tracee.pid) else {
            return;
        };
        process.tids.push(tracee.tid);
        let thread = Thread {
            counts: Rc::clone(&process.counts),
            pid: tracee.pid,
            upid: tracee.upid,
            foreign: process.foreign,
            table: Rc::clone(&process.table),
            under_way: None,
            forks_at: None,
        };
        self.threads.insert(tracee.tid, thread);
    }

    /// All threads of a process are over.
    pub(super) fn over(&mut self, pid: u32) -> Option<Process> {
        let process = self.processes.remove(&pid)?;
        let is_partial = self.dropped > 0
            || process.foreign
            || process.counts.is_partial.get()
            || process.table.borrow().is_untold();
        let mut sums = process.counts.sums.borrow_mut();
        self.accounts.close(process.upid, &mut sums, !is_partial);
        drop(sums);
        for tid in &process.tids {
            self.ends(*tid);
        }
        Some(process)
    }

    /// Of a thread that is over no open will return. The number may be another's by now, who has noted
    /// something already.
    fn forget_notes(&mut self, tid: u32, until: u64) {
        if let Some(notes) = self.notes.get_mut(&tid) {
            notes.retain(|note| note.at > until);
            if notes.is_empty() {
                self.notes.remove(&tid);
            }
        }
    }

    /// A thread is over; returns its process.
    fn ends(&mut self, tid: u32) -> Option<u32> {
        let thread = self.threads.remove(&tid)?;
        if let Some(call) = thread.under_way {
            // Also a call that a signal ends returns: its return was lost.
            self.halves += u64::from(call.moves_data());
            call.give_up();
        }
        Some(thread.pid)
    }

    /// The thread has a table of its own from here on.
    pub(super) fn unshare(&mut self, tid: u32) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.table = own(&thread.table);
        if let Some(process) = self.processes.get_mut(&thread.pid)
            && thread.pid == tid
        {
            process.table = Rc::clone(&thread.table);
        }
    }
}

/// A descriptor stands for a file that was open before the run.
fn hold_inherited(table: &mut Table, inherited: Inherited) {
    let same = inherited
        .same_as
        .and_then(|fd| table.get(fd as u64).cloned());
    let open = same.unwrap_or_else(|| {
        let opened = OpenedFile {
            file: Some(inherited.file),
            flags: inherited.flags,
            by_fuse: false,
            number: None,
        };
        let open = opened_now(opened, false);
        open.seek(Some(inherited.position));
        open
    });
    table.set(inherited.fd as u64, Some(open), false);
}

/// A table of one's own, with the same open files.
fn own(table: &SharedTable) -> SharedTable {
    Rc::new(RefCell::new(table.borrow().clone()))
}
