//! What is behind a descriptor of which no call told.

use std::rc::Rc;

use flowtrace_schema::FileId;

use super::super::open_file::OpenFile;
use super::super::strangers::{Holding, Stranger, are_one};
use super::super::syscalls::Does;
use super::super::table::Found;
use super::super::waits::Descriptors;
use super::{Follower, SharedTable, UnderWay};
use crate::proc::sampler::objects::{Holder, Target};

impl Follower {
    /// A call begins: its descriptors of which nothing is known are looked at, once. Returns whether one was gone by then that may be somebody
    /// else's: it is missed if the call did not find it closed, either.
    pub(super) fn meet(&mut self, tid: u32, does: Does, arguments: [u64; 6]) -> bool {
        let moved;
        let descriptors: &[usize] = match does {
            Does::Data(_) | Does::Seeks => &[0],
            Does::Moves(moves) => {
                moved = [moves.from, moves.to];
                &moved
            }
            Does::Obscures(descriptors) => descriptors,
            _ => &[],
        };
        let mut gone = false;
        for &argument in descriptors {
            gone |= self.meet_one(tid, arguments[argument]);
        }
        gone
    }

    /// As [`Follower::meet`], of a call that returned: shells ask for duplicates of descriptors that do not exist.
    pub(super) fn meet_returned(&mut self, tid: u32, call: &mut UnderWay, result: i64) {
        let first = call.arguments[0];
        let duplicates =
            matches!(call.does, Does::Duplicates(_) | Does::Controls) && call.makes_descriptor();
        if result == -i64::from(libc::EBADF) {
            // It was not what was looked at, which came later.
            if let Some(thread) = self.threads.get(&tid) {
                self.strangers.forget(&thread.table, first);
            }
            return;
        }
        if call.gone {
            self.missed();
        }
        if duplicates && result >= 0 && call.open.is_none() && call.channels[0].is_none() {
            if self.meet_one(tid, first) {
                self.missed();
            }
            if let Some(thread) = self.threads.get(&tid) {
                let table = thread.table.borrow();
                call.open = table.get(first).map(Rc::clone);
                call.channels[0] = table.channel(first);
            }
        }
    }

    /// See [`Follower::meet`].
    pub(super) fn meet_one(&mut self, tid: u32, fd: u64) -> bool {
        let Some(thread) = self.threads.get(&tid).filter(|thread| !thread.foreign) else {
            return false;
        };
        let Found::Unknown = thread.table.borrow().look(fd) else {
            return false;
        };
        thread.counts.is_partial.set(true);
        let (table, pid) = (Rc::clone(&thread.table), thread.pid);
        let is_strange = table.borrow().is_strange(fd);
        match self.strangers.look(pid, tid, fd) {
            Stranger::File(met) => {
                let by = self.held_by_others(&table, (pid, fd), |open| open.file == met.file);
                let by_fuse = by.as_ref().map_or(met.by_fuse, |by| by.open.by_fuse);
                let open = OpenFile::met(met.file, by_fuse, by.as_ref().map(|by| &*by.open));
                self.met(&table, fd, open, by, (met.appends, met.close_on_exec));
            }
            // Others are inherited from before the run, or of the system.
            Stranger::Outside(met) if is_strange => {
                match self.held_by_others(&table, (pid, fd), |_| true) {
                    Some(by) => {
                        let open = OpenFile::met(by.open.file, false, Some(&by.open));
                        self.met(&table, fd, open, Some(by), (met.appends, met.close_on_exec));
                    }
                    None => {
                        self.missed();
                        table.borrow_mut().set(fd, None, met.close_on_exec);
                    }
                }
            }
            Stranger::Outside(met) => table.borrow_mut().set(fd, None, met.close_on_exec),
            Stranger::Unnamed => {
                table.borrow_mut().suspect(fd);
                self.strangers.suspect(&table, fd, None, None);
            }
            // Whether a new program keeps it is not known.
            Stranger::Elsewhere(Some(target)) => table.borrow_mut().know(fd, target),
            Stranger::Elsewhere(None) => table.borrow_mut().set(fd, None, false),
            Stranger::Gone => {
                match self.dropped {
                    0 => table.borrow_mut().set(fd, None, false),
                    _ => table.borrow_mut().lose(fd),
                }
                return is_strange;
            }
        }
        false
    }

    /// Descriptor `fd` of a table is that, if it is what `by` holds.
    fn met(
        &mut self,
        table: &SharedTable,
        fd: u64,
        open: OpenFile,
        by: Option<Holding>,
        (appends, close_on_exec): (bool, bool),
    ) {
        let open = Rc::new(open);
        open.appends.set(open.appends.get() || appends);
        if self.dropped > 0 {
            open.lossy.set(true);
        }
        let same = Some(Rc::clone(&open));
        table.borrow_mut().set(fd, same, close_on_exec);
        self.strangers.suspect(table, fd, Some(open), by);
    }

    /// Of one that came over a socket nothing can be told any more. Whoever has the same open file may be somewhere else in
    /// it now; which that is is not known.
    fn missed(&mut self) {
        self.strangers.missed();
        self.forget_positions();
    }

    /// A call replaced a descriptor that had come by in an unknown way before it was looked at: what was read or written
    /// through it was so in a file that is not known.
    pub(super) fn admit_mistakes(&mut self, tid: u32) {
        let Some(thread) = self.threads.get(&tid) else {
            return;
        };
        if std::mem::take(&mut thread.table.borrow_mut().mistaken) {
            self.forget_positions();
        }
    }

    fn forget_positions(&self) {
        for process in self.processes.values() {
            for (_, open) in process.table.borrow().descriptors() {
                open.seek(None);
            }
        }
    }

    /// The same open file as that descriptor, as another one holds it, of those that `suit`. Whose table is another comes
    /// first: who was sent a descriptor may have put it in the place of one of its own since.
    fn held_by_others(
        &self,
        own: &SharedTable,
        at: (u32, u64),
        suit: impl Fn(&OpenFile) -> bool,
    ) -> Option<Holding> {
        let in_table = |pid: u32, of: &SharedTable| {
            let table = of.borrow();
            let is_itself = |fd: usize| Rc::ptr_eq(of, own) && fd as u64 == at.1;
            let mut held = table.descriptors();
            let same = held
                .find(|(fd, open)| suit(open) && !is_itself(*fd) && are_one(at, (pid, *fd as u64)));
            same.map(|(fd, open)| Holding {
                table: Rc::clone(of),
                fd: fd as u64,
                open: Rc::clone(open),
            })
        };
        let others = self.processes.iter();
        let mut others = others.filter(|(_, other)| !Rc::ptr_eq(&other.table, own));
        let by_others = others.find_map(|(pid, other)| in_table(*pid, &other.table));
        by_others.or_else(|| in_table(at.0, own))
    }
}

impl Descriptors for Follower {
    fn stands_for(&self, tid: u32, fd: i32) -> Option<(Target, Option<FileId>)> {
        let thread = self.threads.get(&tid)?;
        let pid = thread.pid;
        let look = || Holder { pid, tid }.target(fd);
        if thread.foreign {
            // Of its calls nothing is followed.
            return look().map(|target| (target, None));
        }
        let mut table = thread.table.borrow_mut();
        let number = fd as u64;
        let found = table.look(number);
        let (is_new, is_named) = match found {
            Found::Open(open) => return Some((Target::File, open.file)),
            Found::Known(target) => return Some((target, None)),
            Found::Elsewhere => (false, false),
            Found::Named => (false, true),
            Found::Unknown => (true, false),
        };
        let target = match look() {
            // That is what has its number by now.
            Some(Target::Channel(_)) | None if is_named => return Some((Target::File, None)),
            target => target?,
        };
        // Of a file that came by in an unknown way it is yet to be found out whether it is one of a view.
        if !(is_new && target == Target::File) {
            table.know(number, target);
        }
        if is_new {
            thread.counts.is_partial.set(true);
        }
        Some((target, None))
    }
}
