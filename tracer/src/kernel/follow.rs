//! Joins the samples of system calls to files.
//!
//! Each process has a table of its descriptors, which follows from its calls alone. A call's
//! descriptor is looked up when it begins, for another thread may close it meanwhile; a close counts
//! from its beginning on, for its number may be given again before it returns.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use flowtrace_schema::{Call, Op, Record, Upid};

use super::by_id::ById;
use super::channel_rows::{ChannelRows, Sink};
use super::feed::Change;
use super::open_file::OpenFile;
use super::sample::{Sample, What};
use super::strangers::Strangers;
use super::syscalls::{Does, Numbers};
use super::table::{SharedTable, Table};
use super::traffic::Accounts;
use crate::clock::Clock;
use crate::opens::{Note, Noted, OpenedFile};
use crate::proc::observer::ChannelLookup;
use crate::proc::sampler::objects::Target;

mod channels;
mod counts;
mod data;
mod losses;
mod meeting;
mod messages;
mod notes;
mod passing;
mod thread;
mod tree;
mod under_way;

use channels::Done;
use counts::Counts;
use notes::{take_announced, take_note};
use passing::Passing;
use thread::Thread;
use under_way::UnderWay;

/// What is known of the tree.
pub(super) struct Follower {
    numbers: Numbers,
    threads: ById<Thread>,
    processes: ById<Process>,
    changes: VecDeque<(u64, Change)>,
    /// What FUSE did for calls that have not returned yet.
    notes: ById<Vec<Note>>,
    /// Records that the kernel dropped.
    dropped: u64,
    /// What is opened until then may be another file soon, unheard.
    lossy_until: u64,
    /// Calls of which the return was among those, and the entry was not.
    halves: u64,
    /// Calls on descriptors of which records were dropped, and nobody knows any more what they were.
    unplaced: u64,
    excluded: u64,
    strangers: Strangers,
    /// Open files that messages carry.
    passing: Passing,
    accounts: Accounts,
    channel_rows: ChannelRows,
    /// Images of which /proc counted other calls than were seen.
    unreconciled: u64,
}

/// The kernel reads by itself, too, a program that it runs for one; and a call may be cut off by a
/// signal between its count and its return.
const TOLERANCE: u64 = 8;

struct Process {
    counts: Rc<Counts>,
    /// The image that it runs.
    upid: Upid,
    table: SharedTable,
    tids: Vec<u32>,
    /// Its calls have other numbers.
    foreign: bool,
}

impl Follower {
    pub(super) fn new(
        clock: Clock,
        views: Vec<PathBuf>,
        channels: Arc<dyn ChannelLookup>,
        channel_calls: Option<Sink>,
    ) -> Follower {
        Follower {
            numbers: Numbers::new(),
            threads: ById::default(),
            processes: ById::default(),
            changes: VecDeque::new(),
            notes: ById::default(),
            dropped: 0,
            lossy_until: 0,
            halves: 0,
            unplaced: 0,
            excluded: 0,
            strangers: Strangers::new(clock, views),
            passing: Passing::default(),
            channel_rows: ChannelRows::new(Arc::clone(&channels), channel_calls),
            accounts: Accounts::new(channels),
            unreconciled: 0,
        }
    }

    /// FUSE did something for calls.
    pub(super) fn noted(&mut self, notes: Vec<Note>) {
        for note in notes {
            if let Noted::Opened(opened) = note.what {
                self.strangers.opened(opened);
            }
            self.notes.entry(note.tid).or_default().push(note);
        }
    }

    /// The tree changed, or will have at the time that is told with each change.
    pub(super) fn announce(&mut self, changes: Vec<(u64, Change)>) {
        self.changes.extend(changes);
        // Where nobody is held, two processors may tell of theirs in another order.
        self.changes.make_contiguous().sort_by_key(|(at, _)| *at);
    }

    /// What went through pipes and sockets, of the images that are over since the last call.
    pub(super) fn traffic(&mut self) -> Vec<Record> {
        self.channel_rows.settle(false);
        self.accounts.take()
    }

    /// No more is told: whoever lives still has moved what was seen.
    pub(super) fn finish(&mut self, emit: &mut impl FnMut(Call)) {
        self.strangers.judge(u64::MAX, emit);
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.over(pid);
        }
        self.channel_rows.settle(true);
    }

    /// Takes in the next change until a moment, and tells it.
    pub(super) fn next_change(&mut self, until: u64) -> Option<(u64, Change)> {
        let (at, change) = self.changes.pop_front_if(|(at, _)| *at <= until)?;
        self.change(at, change);
        Some((at, change))
    }

    /// The next sample in the order of time.
    pub(super) fn sample(&mut self, sample: &Sample, emit: &mut impl FnMut(Call)) {
        self.strangers.judge(sample.at, emit);
        while self.next_change(sample.at).is_some() {}
        let Some(does) = self.numbers.does(sample.number) else {
            return self.by_other_numbers(sample);
        };
        match sample.what {
            What::Enters(arguments) => self.enters(sample, does, arguments),
            What::Returns(result) => self.returns(sample, result, emit),
            What::Carries(carried) => self.carries(sample, does, carried),
            What::Moved(bytes) => {
                let thread = self.threads.get_mut(&sample.tid);
                let call = thread.and_then(|thread| thread.under_way.as_mut());
                if let Some(call) = call.filter(|call| call.number == sample.number) {
                    call.moved = Some(bytes);
                }
            }
            What::In(_)
            | What::InNoCall
            | What::Leaves { .. }
            | What::Woken { .. }
            | What::Request { .. } => {}
        }
        if !matches!(does, Does::Data(_) | Does::Seeks) {
            self.admit_mistakes(sample.tid);
        }
    }

    fn enters(&mut self, sample: &Sample, does: Does, arguments: [u64; 6]) {
        let gone = self.meet(sample.tid, does, arguments);
        let Some(thread) = self.threads.get_mut(&sample.tid) else {
            return;
        };
        if thread.foreign {
            return;
        }
        if let Some(call) = thread.under_way.take() {
            // Its return was lost.
            self.halves += u64::from(call.moves_data());
            if call.gone {
                self.strangers.missed();
            }
            call.give_up();
        }
        let mut table = thread.table.borrow_mut();
        let find = |argument: usize| table.get(arguments[argument]).map(Rc::clone);
        let channel = |argument: usize| table.channel(arguments[argument]);
        let (mut open, mut to, mut outside) = (None, None, None);
        let mut unplaced = false;
        let mut channels = [None; 2];
        match does {
            Does::Data(_) | Does::Duplicates(_) | Does::Controls => {
                open = find(0);
                channels[0] = channel(0);
                unplaced = matches!(does, Does::Data(_)) && table.is_lost(arguments[0]);
            }
            Does::Seeks => open = find(0),
            Does::Moves(moves) => {
                (open, to) = (find(moves.from), find(moves.to));
                channels = [moves.from, moves.to].map(channel);
                unplaced = [moves.from, moves.to]
                    .iter()
                    .any(|at| table.is_lost(arguments[*at]));
            }
            Does::Obscures(descriptors) => {
                for (place, &argument) in channels.iter_mut().zip(descriptors) {
                    *place = channel(argument);
                }
            }
            Does::Opens(_) => outside = take_announced(&mut self.notes, sample.tid, sample.at),
            Does::Requests | Does::Unshares | Does::Makes | Does::Takes => {}
            Does::Closes => {
                table.touched(sample.at, sample.tid, arguments[0]..=arguments[0]);
                return table.close(arguments[0]);
            }
            Does::Forks => {
                thread.forks_at = Some(sample.at);
                return;
            }
            Does::ClosesRange => {
                drop(table);
                return self.closes_range(sample, arguments);
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
            channels,
            moved: None,
            outside,
            unplaced,
            gone,
            copies: Vec::new(),
        };
        call.enter();
        thread.under_way = Some(call);
    }

    /// close_range(2), of which only what it refuses is known to be without effect.
    fn closes_range(&mut self, sample: &Sample, [first, last, flags, ..]: [u64; 6]) {
        const UNSHARE: u64 = 1 << 1;
        const CLOEXEC: u64 = 1 << 2;
        if flags as u32 as u64 & !(UNSHARE | CLOEXEC) != 0 || first as u32 > last as u32 {
            return;
        }
        if flags & UNSHARE != 0 {
            self.unshare(sample.tid);
        }
        if let Some(thread) = self.threads.get(&sample.tid) {
            let mut table = thread.table.borrow_mut();
            table.touched(sample.at, sample.tid, first..=last);
            table.close_range(first, last, flags & CLOEXEC != 0);
        }
    }

    fn returns(&mut self, sample: &Sample, result: i64, emit: &mut impl FnMut(Call)) {
        let Some(thread) = self.threads.get_mut(&sample.tid) else {
            return;
        };
        if thread.foreign {
            return;
        }
        let mut call = match thread.under_way.take() {
            Some(call) if call.number == sample.number => call,
            other => {
                // Its entry was lost, and is counted as that; of the one before it the return was.
                if let Some(other) = other {
                    self.halves += u64::from(other.moves_data());
                    other.give_up();
                }
                return;
            }
        };
        thread.counts.add(call.does, result);
        self.unplaced += u64::from(call.unplaced);
        self.meet_returned(sample.tid, &mut call, result);
        let Some(thread) = self.threads.get_mut(&sample.tid) else {
            return;
        };
        let [first, command, third, ..] = call.arguments;
        let fd = result.cast_unsigned();
        if call.makes_descriptor() && result >= 0 {
            let mut table = thread.table.borrow_mut();
            table.touched(sample.at, sample.tid, fd..=fd);
            for copy in &call.copies {
                copy.borrow_mut().doubt_unknown(fd);
            }
        }
        let done = Done {
            call: &call,
            sample,
            result,
            rows: &mut self.channel_rows,
        };
        match call.does {
            Does::Data(data) => {
                thread.count_data(done, data);
                let is_told = self.dropped == 0;
                if data.receives_descriptors() && result >= 0 && !is_told {
                    thread.table.borrow_mut().receives = true;
                }
                self.excluded +=
                    data::transferred(thread.row(sample, &call, result), &call, data, emit);
            }
            Does::Moves(moves) => {
                let note = take_note(&mut self.notes, sample.tid, call.at, sample.at);
                let copied = note.is_some_and(|note| note.what == Noted::Copied);
                // FUSE is not asked for a copy from the end of a file, or to another kind of it.
                let by_fuse = copied || moves.ops.0 == Op::CopyFrom && result <= 0;
                if !copied {
                    thread.count_moved(done, moves);
                }
                let row = thread.row(sample, &call, result);
                self.excluded += data::moved(row, &call, moves, by_fuse, emit);
            }
            Does::Seeks => {
                if let Some(open) = &call.open {
                    let alone = open.leave();
                    if result >= 0 {
                        open.seek(alone.then_some(fd));
                    }
                }
            }
            _ if result < 0 => {}
            Does::Obscures(_) => thread.count_obscured(done),
            makes @ (Does::Makes | Does::Takes) => {
                let mut table = thread.table.borrow_mut();
                table.receives |= makes == Does::Takes;
                table.close(fd);
            }
            Does::Opens(_) => {
                let note = take_note(&mut self.notes, sample.tid, call.at, sample.at);
                let opened = note.and_then(|note| match note.what {
                    Noted::Opened(opened) => Some(opened),
                    Noted::Copied | Noted::Opens(_) => None,
                });
                let opened = opened.or(call.outside);
                let is_lossy = sample.at <= self.lossy_until;
                let open = opened.map(|opened| opened_now(opened, is_lossy));
                let close_on_exec = opened
                    .is_some_and(|opened| opened.flags & libc::O_CLOEXEC as u32 != 0)
                    || call.flags_say_close();
                let mut table = thread.table.borrow_mut();
                table.opened(fd, open, close_on_exec);
            }
            Does::Duplicates(flags) => {
                if first as u32 != fd as u32 {
                    let close =
                        flags.is_some_and(|at| call.arguments[at] & libc::O_CLOEXEC as u64 != 0);
                    let mut table = thread.table.borrow_mut();
                    table.set(fd, call.open, close);
                    hold(&mut table, fd, call.channels[0], close);
                }
            }
            Does::Controls => match command as i32 {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                    let mut table = thread.table.borrow_mut();
                    let close = command as i32 == libc::F_DUPFD_CLOEXEC;
                    table.set(fd, call.open, close);
                    hold(&mut table, fd, call.channels[0], close);
                }
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
            Does::Closes | Does::ClosesRange | Does::Forks => {}
        }
    }
}

/// An open file, just made.
fn opened_now(opened: OpenedFile, is_lossy: bool) -> Rc<OpenFile> {
    let open = OpenFile::new(opened.file, opened.by_fuse);
    open.lossy.set(is_lossy);
    // Where those end up FUSE knows, and nobody outside of the views.
    open.appends
        .set(!opened.by_fuse && opened.flags & libc::O_APPEND as u32 != 0);
    Rc::new(open)
}

/// Descriptor `fd` is the pipe or socket with that inode, if there is one.
fn hold(table: &mut Table, fd: u64, inode: Option<u64>, close_on_exec: bool) {
    if let Some(inode) = inode {
        table.hold(fd, Target::Channel(inode), close_on_exec);
    }
}

#[cfg(test)]
mod tests;
