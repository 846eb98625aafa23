//! Joins the samples of system calls to files.
//!
//! Each process has a table of its descriptors, which follows from its calls alone. A call's
//! descriptor is looked up when it begins, for another thread may close it meanwhile; a close counts
//! from its beginning on, for its number may be given again before it returns.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use flowtrace_schema::{Call, Fidelity, Loss, Op, Tid, Upid};

use super::feed::Change;
use super::opens::Note;
use super::reader::Counted;
use super::sample::{Sample, What};
use super::syscalls::{At, Data, Does, Moves, Numbers};
use super::table::{OpenFile, Table};
use crate::proc::observer::Tracee;

mod data;

type SharedTable = Rc<RefCell<Table>>;

/// What is known of the tree.
pub(super) struct Follower {
    numbers: Numbers,
    threads: HashMap<u32, Thread>,
    processes: HashMap<u32, Process>,
    changes: VecDeque<(u64, Change)>,
    /// Files opened by calls that have not returned yet.
    notes: HashMap<u32, Vec<Note>>,
    /// Records that the kernel dropped.
    dropped: u64,
    /// Calls of which one of the two records was among those.
    halves: u64,
    excluded: u64,
}

struct Process {
    table: SharedTable,
    tids: Vec<u32>,
    /// Its calls have other numbers.
    foreign: bool,
}

struct Thread {
    pid: u32,
    upid: Upid,
    foreign: bool,
    table: SharedTable,
    under_way: Option<UnderWay>,
}

/// A call that has not returned.
struct UnderWay {
    number: u32,
    does: Does,
    at: u64,
    arguments: [u64; 6],
    /// What its descriptor was; for [`Does::Moves`] that which is read.
    open: Option<Rc<OpenFile>>,
    /// That which [`Does::Moves`] writes to.
    to: Option<Rc<OpenFile>>,
}

impl Follower {
    pub(super) fn new() -> Follower {
        Follower {
            numbers: Numbers::new(),
            threads: HashMap::new(),
            processes: HashMap::new(),
            changes: VecDeque::new(),
            notes: HashMap::new(),
            dropped: 0,
            halves: 0,
            excluded: 0,
        }
    }

    /// Files were opened.
    pub(super) fn opened(&mut self, notes: Vec<Note>) {
        for note in notes {
            self.notes.entry(note.tid).or_default().push(note);
        }
    }

    /// The tree changed, or will have at the time that is told with each change.
    pub(super) fn announce(&mut self, changes: Vec<(u64, Change)>) {
        self.changes.extend(changes);
    }

    /// The kernel dropped records of whoever: where the next read or write of any file begins is not
    /// known any more.
    pub(super) fn lost(&mut self, records: u64) {
        self.dropped += records;
        for process in self.processes.values() {
            for open in process.table.borrow().open_files() {
                open.position.set(None);
            }
        }
    }

    /// What was not seen. Of a call both records may be lost, or one.
    pub(super) fn losses(&self) -> [Counted; 2] {
        let calls = match self.dropped {
            0 => 0,
            dropped => dropped.saturating_add(self.halves.min(dropped)).div_ceil(2),
        };
        [(Loss::CallsDropped, calls), (Loss::Excluded, self.excluded)]
    }

    /// The next sample in the order of time.
    pub(super) fn sample(&mut self, sample: &Sample, emit: &mut impl FnMut(Call)) {
        while self.changes.front().is_some_and(|(at, _)| *at <= sample.at) {
            if let Some((at, change)) = self.changes.pop_front() {
                self.change(at, change);
            }
        }
        let Some(does) = self.numbers.does(sample.number) else {
            return;
        };
        match sample.what {
            What::Enters(arguments) => self.enters(sample, does, arguments),
            What::Returns(result) => self.returns(sample, result, emit),
        }
    }

    fn change(&mut self, at: u64, change: Change) {
        match change {
            Change::Begins(tracee, native) => self.begin(tracee, SharedTable::default(), !native),
            Change::Forked { by, child, shares } => {
                let Some(parent) = self.processes.get(&by) else {
                    return self.begin(child, SharedTable::default(), false);
                };
                let table = match shares {
                    true => Rc::clone(&parent.table),
                    false => own(&parent.table),
                };
                let foreign = parent.foreign;
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
            Change::Over(pid) => {
                self.forget_notes(pid, at);
                self.over(pid);
            }
        }
    }

    fn begin(&mut self, tracee: Tracee, table: SharedTable, foreign: bool) {
        let process = Process {
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
            pid: tracee.pid,
            upid: tracee.upid,
            foreign: process.foreign,
            table: Rc::clone(&process.table),
            under_way: None,
        };
        self.threads.insert(tracee.tid, thread);
    }

    /// All threads of a process are over.
    fn over(&mut self, pid: u32) -> Option<Process> {
        let process = self.processes.remove(&pid)?;
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
            call.give_up();
        }
        Some(thread.pid)
    }

    fn enters(&mut self, sample: &Sample, does: Does, arguments: [u64; 6]) {
        let Some(thread) = self.threads.get_mut(&sample.tid) else {
            return;
        };
        if thread.foreign {
            return;
        }
        if let Some(call) = thread.under_way.take() {
            // Its return was lost.
            self.halves += u64::from(call.moves_data());
            call.give_up();
        }
        let mut table = thread.table.borrow_mut();
        let find = |argument: usize| table.get(arguments[argument]).map(Rc::clone);
        let (mut open, mut to) = (None, None);
        match does {
            Does::Data(_) | Does::Seeks | Does::Duplicates(_) | Does::Controls => open = find(0),
            Does::Moves(moves) => (open, to) = (find(moves.from), find(moves.to)),
            Does::Opens(_) | Does::Requests | Does::Unshares => {}
            Does::Closes => return table.close(arguments[0]),
            Does::ClosesRange => {
                const UNSHARE: u64 = 1 << 1;
                const CLOEXEC: u64 = 1 << 2;
                let [first, last, flags, ..] = arguments;
                if flags & UNSHARE != 0 {
                    drop(table);
                    self.unshare(sample.tid);
                    if let Some(thread) = self.threads.get(&sample.tid) {
                        let mut table = thread.table.borrow_mut();
                        table.close_range(first, last, flags & CLOEXEC != 0);
                    }
                } else {
                    table.close_range(first, last, flags & CLOEXEC != 0);
                }
                return;
            }
        }
        drop(table);
        let call = UnderWay {
            number: sample.number,
            does,
            at: sample.at,
            arguments,
            open,
            to,
        };
        call.enter();
        thread.under_way = Some(call);
    }

    fn returns(&mut self, sample: &Sample, result: i64, emit: &mut impl FnMut(Call)) {
        let Some(thread) = self.threads.get_mut(&sample.tid) else {
            return;
        };
        if thread.foreign {
            return;
        }
        let call = match thread.under_way.take() {
            Some(call) if call.number == sample.number => call,
            other => {
                let moves = matches!(
                    self.numbers.does(sample.number),
                    Some(Does::Data(_) | Does::Moves(_))
                );
                self.halves += u64::from(moves && self.dropped > 0);
                if let Some(other) = other {
                    other.give_up();
                }
                return;
            }
        };
        let [first, command, third, ..] = call.arguments;
        let fd = result.cast_unsigned();
        match call.does {
            Does::Data(data) => {
                self.excluded +=
                    data::transferred(thread.row(sample, &call, result), &call, data, emit);
            }
            Does::Moves(moves) => {
                self.excluded += data::moved(thread.row(sample, &call, result), &call, moves, emit);
            }
            Does::Seeks => {
                if let Some(open) = &call.open {
                    let alone = open.leave();
                    if result >= 0 {
                        open.position.set(alone.then_some(fd));
                    }
                }
            }
            _ if result < 0 => {}
            Does::Opens(_) => {
                let note = take_note(&mut self.notes, sample.tid, call.at, sample.at);
                let open = note.map(|note| Rc::new(OpenFile::new(note.file, note.by_fuse)));
                let close_on_exec = note
                    .is_some_and(|note| note.flags & libc::O_CLOEXEC as u32 != 0)
                    || call.flags_say_close();
                thread.table.borrow_mut().set(fd, open, close_on_exec);
            }
            Does::Duplicates(flags) => {
                if first as u32 != fd as u32 {
                    let close =
                        flags.is_some_and(|at| call.arguments[at] & libc::O_CLOEXEC as u64 != 0);
                    thread.table.borrow_mut().set(fd, call.open, close);
                }
            }
            Does::Controls => match command as i32 {
                libc::F_DUPFD => thread.table.borrow_mut().set(fd, call.open, false),
                libc::F_DUPFD_CLOEXEC => thread.table.borrow_mut().set(fd, call.open, true),
                libc::F_SETFD => {
                    let close = third & libc::FD_CLOEXEC as u64 != 0;
                    thread.table.borrow_mut().set_close_on_exec(first, close);
                }
                libc::F_SETFL => {
                    if let Some(open) = &call.open {
                        open.appends.set(third & libc::O_APPEND as u64 != 0);
                    }
                }
                _ => {}
            },
            Does::Requests => {
                let close = match command as u32 {
                    request if request == libc::FIOCLEX as u32 => true,
                    request if request == libc::FIONCLEX as u32 => false,
                    _ => return,
                };
                thread.table.borrow_mut().set_close_on_exec(first, close);
            }
            Does::Unshares => {
                if first & libc::CLONE_FILES as u64 != 0 {
                    self.unshare(sample.tid);
                }
            }
            Does::Closes | Does::ClosesRange => {}
        }
    }

    /// The thread has a table of its own from here on.
    fn unshare(&mut self, tid: u32) {
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

/// Takes out what thread `tid` was noted to open between two moments, and what was before.
fn take_note(notes: &mut HashMap<u32, Vec<Note>>, tid: u32, from: u64, to: u64) -> Option<Note> {
    let own = notes.get_mut(&tid)?;
    let during = |note: &&Note| (from..=to).contains(&note.at);
    let found = own.iter().rfind(during).copied();
    own.retain(|note| note.at > to);
    found
}

/// A table of one's own, with the same open files.
fn own(table: &SharedTable) -> SharedTable {
    Rc::new(RefCell::new(table.borrow().clone()))
}

impl Thread {
    /// The part of a row that is the same for all.
    fn row(&self, sample: &Sample, call: &UnderWay, result: i64) -> Call {
        Call {
            start_ns: call.at,
            duration_ns: sample.at.saturating_sub(call.at),
            upid: Some(self.upid),
            tid: (sample.tid != self.pid).then_some(Tid(sample.tid)),
            op: Op::Read,
            file: None,
            offset: None,
            length: None,
            flags: None,
            result,
            fidelity: Fidelity::Exact,
        }
    }
}

impl UnderWay {
    /// The open files whose position it uses.
    fn positions(&self) -> [Option<&Rc<OpenFile>>; 2] {
        let uses = |offset: Option<usize>| offset.is_none_or(|at| self.arguments[at] == 0);
        match self.does {
            Does::Data(data) if self.at_position(data.at) => [self.open.as_ref(), None],
            Does::Seeks => [self.open.as_ref(), None],
            Does::Moves(Moves {
                from_offset,
                to_offset,
                ..
            }) => [
                self.open.as_ref().filter(|_| uses(from_offset)),
                self.to.as_ref().filter(|_| uses(to_offset)),
            ],
            _ => [None, None],
        }
    }

    fn at_position(&self, at: At) -> bool {
        match at {
            At::Position => true,
            At::Argument(_) => false,
            At::ArgumentOrPosition(argument) => self.arguments[argument] == u64::MAX,
        }
    }

    fn enter(&self) {
        self.positions()
            .into_iter()
            .flatten()
            .for_each(|open| open.enter());
    }

    /// It will not be seen to return.
    fn give_up(&self) {
        for open in self.positions().into_iter().flatten() {
            open.leave();
            open.position.set(None);
        }
    }

    fn moves_data(&self) -> bool {
        matches!(self.does, Does::Data(Data { .. }) | Does::Moves(_))
    }

    fn flags_say_close(&self) -> bool {
        match self.does {
            Does::Opens(Some(flags)) => self.arguments[flags] & libc::O_CLOEXEC as u64 != 0,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
