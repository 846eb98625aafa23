use std::cell::RefCell;

use flowtrace_schema::{ChannelCall, ChannelId, Fidelity, FileId, Loss, Side};

use super::*;
use crate::kernel::dropped::Dropped;
use crate::opens::OpenedFile;
use crate::proc::observer::Tracee;

mod channels;
mod forks;
mod meeting;
mod passing;

/// A tree that is driven by hand.
struct Stage {
    follower: Follower,
    at: u64,
    calls: Vec<Call>,
    /// Rows of calls on channels.
    channel_calls: Rc<RefCell<Vec<ChannelCall>>>,
}

const ROOT: u32 = 10;

/// Channels have the numbers of their inodes.
struct Numbered;

impl ChannelLookup for Numbered {
    fn of_inode(&self, inode: u64) -> Option<ChannelId> {
        Some(ChannelId(inode as u32))
    }
}

impl Stage {
    fn new() -> Stage {
        let channel_calls = Rc::<RefCell<Vec<ChannelCall>>>::default();
        let into = Rc::clone(&channel_calls);
        let sink: Sink = Box::new(move |call| into.borrow_mut().push(call));
        let (clock, channels) = (Clock::start().0, Arc::new(Numbered));
        let mut stage = Stage {
            follower: Follower::new(clock, Vec::new(), channels, Some(sink)),
            channel_calls,
            at: 100,
            calls: Vec::new(),
        };
        stage.change(Change::Begins(tracee(ROOT, ROOT, 1), true));
        stage
    }

    fn change(&mut self, change: Change) {
        self.at += 1;
        self.follower.announce(vec![(self.at, change)]);
    }

    fn enter(&mut self, tid: u32, number: libc::c_long, arguments: [u64; 6]) {
        self.put(tid, number, What::Enters(arguments));
    }

    fn exit(&mut self, tid: u32, number: libc::c_long, result: i64) {
        self.put(tid, number, What::Returns(result));
    }

    fn put(&mut self, tid: u32, number: libc::c_long, what: What) {
        self.at += 1;
        let sample = Sample {
            at: self.at,
            tid,
            number: number as u32,
            what,
        };
        let calls = &mut self.calls;
        self.follower.sample(&sample, &mut |call| calls.push(call));
    }

    fn call(&mut self, tid: u32, number: libc::c_long, arguments: &[u64], result: i64) {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.enter(tid, number, all);
        self.exit(tid, number, result);
    }

    fn open(&mut self, tid: u32, file: u32, fd: i64, flags: i32) {
        self.enter(tid, libc::SYS_openat, [0, 0, flags as u64, 0, 0, 0]);
        self.at += 1;
        let note = opened(self.at, tid, file, flags);
        self.follower.noted(vec![note]);
        self.exit(tid, libc::SYS_openat, fd);
    }

    fn read(&mut self, tid: u32, fd: u64, result: i64) {
        self.call(tid, libc::SYS_read, &[fd, 0, 100], result);
    }

    /// Upid, operation, file, offset, result of the rows since the last look.
    fn rows(&mut self) -> Vec<(u32, Op, u32, Option<u64>, i64)> {
        let rows = self.calls.drain(..).map(|call| {
            let upid = call.upid.unwrap().0;
            (
                upid,
                call.op,
                call.file.unwrap().0,
                call.offset,
                call.result,
            )
        });
        rows.collect()
    }
}

fn opened(at: u64, tid: u32, file: u32, flags: i32) -> Note {
    let opened = OpenedFile {
        file: Some(FileId(file)),
        flags: flags as u32,
        by_fuse: false,
        number: None,
    };
    Note {
        at,
        tid,
        what: Noted::Opened(opened),
    }
}

fn tracee(tid: u32, pid: u32, upid: u32) -> Tracee {
    Tracee {
        tid,
        pid,
        upid: Upid(upid),
    }
}

#[test]
fn reads_and_writes_move_the_position_that_forks_share() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDWR);
    stage.read(ROOT, 3, 60);
    stage.change(Change::Forked {
        by: ROOT,
        thread: ROOT,
        child: tracee(20, 20, 2),
        shares: false,
    });
    stage.read(20, 3, 40);
    stage.call(ROOT, libc::SYS_pwrite64, &[3, 0, 7, 1000], 7);
    stage.call(ROOT, libc::SYS_lseek, &[3, 30, 0], 30);
    stage.call(20, libc::SYS_write, &[3, 0, 9], 9);
    stage.call(20, libc::SYS_close, &[3], 0);
    stage.read(20, 3, 1);
    stage.read(ROOT, 3, -i64::from(libc::EIO));
    assert_eq!(
        stage.rows(),
        [
            (1, Op::Read, 5, Some(0), 60),
            (2, Op::Read, 5, Some(60), 40),
            (1, Op::Write, 5, Some(1000), 7),
            (2, Op::Write, 5, Some(30), 9),
            (1, Op::Read, 5, Some(39), -5),
        ]
    );
}

#[test]
fn descriptors_are_duplicated_marked_and_closed_by_an_exec() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDONLY | libc::O_CLOEXEC);
    #[cfg(target_arch = "x86_64")]
    stage.call(ROOT, libc::SYS_dup2, &[3, 0], 0);
    #[cfg(not(target_arch = "x86_64"))]
    stage.call(ROOT, libc::SYS_dup3, &[3, 0, 0], 0);
    stage.call(
        ROOT,
        libc::SYS_fcntl,
        &[3, libc::F_DUPFD_CLOEXEC as u64, 10],
        10,
    );
    stage.call(ROOT, libc::SYS_fcntl, &[10, libc::F_SETFD as u64, 0], 0);
    stage.call(ROOT, libc::SYS_dup, &[3], 4);
    stage.call(ROOT, libc::SYS_ioctl, &[4, libc::FIOCLEX], 0);
    stage.change(Change::Executed(tracee(ROOT, ROOT, 2), true));
    for fd in [0, 3, 4, 10] {
        stage.read(ROOT, fd, 10);
    }
    assert_eq!(
        stage.rows(),
        [
            (2, Op::Read, 5, Some(0), 10),
            (2, Op::Read, 5, Some(10), 10)
        ]
    );
}

#[test]
fn threads_share_a_table_until_one_leaves_it() {
    let mut stage = Stage::new();
    stage.change(Change::Thread(tracee(11, ROOT, 1)));
    stage.open(11, 5, 3, libc::O_RDONLY);
    stage.read(ROOT, 3, 10);
    stage.call(11, libc::SYS_unshare, &[libc::CLONE_FILES as u64], 0);
    stage.call(11, libc::SYS_close, &[3], 0);
    stage.read(ROOT, 3, 10);
    stage.read(11, 3, 10);
    assert_eq!(stage.rows().len(), 2);
}

#[test]
fn who_was_first_is_not_guessed() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDONLY);
    stage.change(Change::Thread(tracee(11, ROOT, 1)));
    stage.enter(ROOT, libc::SYS_read, [3, 0, 100, 0, 0, 0]);
    stage.enter(11, libc::SYS_read, [3, 0, 100, 0, 0, 0]);
    stage.exit(11, libc::SYS_read, 30);
    stage.exit(ROOT, libc::SYS_read, 20);
    stage.read(ROOT, 3, 10);
    let offsets: Vec<_> = stage.rows().iter().map(|row| row.3).collect();
    assert_eq!(offsets, [None, None, Some(50)]);
}

#[test]
fn a_number_that_is_given_again_is_the_new_file() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDONLY);
    // A pipe took the place of the file: nothing that is followed.
    stage.call(ROOT, libc::SYS_openat, &[0, 0, 0], 3);
    stage.read(ROOT, 3, 10);
    stage.open(ROOT, 6, 3, libc::O_RDONLY);
    // Failed, so nothing changes; and a note of an exec that nobody waits for.
    stage.call(ROOT, libc::SYS_openat, &[0, 0, 0], -2);
    stage.read(ROOT, 3, 10);
    assert_eq!(stage.rows(), [(1, Op::Read, 6, Some(0), 10)]);
}

/// Notes come much earlier than the samples of the calls that they belong to.
#[test]
fn a_note_waits_for_its_call() {
    let mut stage = Stage::new();
    let note = |at, file| opened(at, ROOT, file, 0);
    stage.follower.noted(vec![note(215, 5), note(315, 6)]);
    stage.change(Change::Executed(tracee(ROOT, ROOT, 2), true));
    stage.change(Change::Ended(ROOT));
    stage.change(Change::Forked {
        by: 7,
        thread: 7,
        child: tracee(ROOT, ROOT, 3),
        shares: false,
    });
    for (start, fd) in [(100, 3), (200, 4), (300, 5)] {
        stage.at = start + 10;
        stage.enter(ROOT, libc::SYS_openat, [0; 6]);
        stage.at = start + 20;
        stage.exit(ROOT, libc::SYS_openat, fd);
    }
    for fd in [3, 4, 5] {
        stage.read(ROOT, fd, 10);
    }
    let files: Vec<u32> = stage.rows().iter().map(|row| row.2).collect();
    assert_eq!(files, [5, 6]);
}

#[test]
fn what_moves_between_descriptors_is_a_read_and_a_write() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDONLY);
    stage.open(ROOT, 6, 4, libc::O_WRONLY);
    stage.call(ROOT, libc::SYS_sendfile, &[4, 3, 0, 500], 300);
    stage.call(ROOT, libc::SYS_splice, &[3, 0xff, 9, 0, 50, 0], 50);
    stage.call(ROOT, libc::SYS_splice, &[3, u64::MAX, 9, 0, 60, 0], 60);
    let copy = [3, 0, 4, 0, 80, 0];
    stage.enter(ROOT, libc::SYS_copy_file_range, copy);
    stage.at += 1;
    let note = Note {
        at: stage.at,
        tid: ROOT,
        what: Noted::Copied,
    };
    stage.follower.noted(vec![note]);
    stage.exit(ROOT, libc::SYS_copy_file_range, 80);
    // Between two views FUSE is not asked.
    stage.call(ROOT, libc::SYS_copy_file_range, &copy, 20);
    stage.call(ROOT, libc::SYS_copy_file_range, &copy, 0);
    stage.call(ROOT, libc::SYS_write, &[4, 0, 1], 1);
    assert_eq!(
        stage.rows(),
        [
            (1, Op::Read, 5, Some(0), 300),
            (1, Op::Write, 6, Some(0), 300),
            (1, Op::Read, 5, Some(254), 50),
            (1, Op::Read, 5, None, 60),
            (1, Op::CopyFrom, 5, Some(380), 20),
            (1, Op::CopyTo, 6, Some(380), 20),
            (1, Op::Write, 6, Some(400), 1),
        ]
    );
}

#[test]
fn after_a_loss_positions_are_unknown_until_a_seek() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDONLY);
    stage.read(ROOT, 3, 10);
    stage.enter(ROOT, libc::SYS_read, [3, 0, 100, 0, 0, 0]);
    stage.follower.lost(5, stage.at);
    stage.read(ROOT, 3, 10);
    stage.call(ROOT, libc::SYS_lseek, &[3, 7, 0], 7);
    stage.read(ROOT, 3, 10);
    let offsets: Vec<_> = stage.calls.iter().map(|call| call.offset).collect();
    assert_eq!(offsets, [Some(0), None, Some(7)]);
    // Only what was open at that moment may be mistaken.
    stage.open(ROOT, 6, 3, libc::O_RDONLY);
    stage.read(ROOT, 3, 10);
    let labels: Vec<_> = stage.calls.iter().map(|call| call.fidelity).collect();
    let (exact, lossy) = (Fidelity::Exact, Fidelity::Lossy);
    assert_eq!(labels, [exact, lossy, lossy, exact]);
    // And what is opened before it is known how much was dropped.
    stage.follower.lost(1, stage.at + 100);
    stage.open(ROOT, 8, 4, libc::O_RDONLY);
    stage.read(ROOT, 4, 10);
    assert_eq!(stage.calls.last().unwrap().fidelity, lossy);
    // Two calls of which nothing is left, and one of which the return was missed.
    assert_eq!(
        stage.follower.losses(Dropped { data: 2, others: 9 })[0],
        (Loss::CallsDropped, 3)
    );
}

#[test]
fn after_a_loss_every_call_is_a_row_or_counted() {
    let mut stage = Stage::new();
    stage.follower.lost(3, stage.at);
    // Its open is among what was dropped, and nobody has that descriptor when it is looked at.
    let missing = 900_001;
    stage.read(ROOT, missing, 10);
    stage.call(ROOT, libc::SYS_sendfile, &[missing, missing, 0, 500], 300);
    stage.open(ROOT, 5, missing as i64, libc::O_RDONLY);
    stage.read(ROOT, missing, 10);
    assert_eq!(stage.rows(), [(1, Op::Read, 5, Some(0), 10)]);
    // The return of one and the entry of the next are missing.
    stage.enter(ROOT, libc::SYS_pwrite64, [missing, 0, 100, 0, 0, 0]);
    stage.exit(ROOT, libc::SYS_pread64, 1);
    // Also a call that a signal ends returns.
    stage.enter(ROOT, libc::SYS_read, [missing, 0, 100, 0, 0, 0]);
    stage.change(Change::Over(ROOT));
    stage.call(ROOT, libc::SYS_close, &[9], 0);
    let dropped = Dropped { data: 1, others: 2 };
    let losses = &stage.follower.losses(dropped)[..2];
    let expected = [(Loss::CallsDropped, 5), (Loss::OtherCallsDropped, 2)];
    assert_eq!(losses, expected);
}

#[test]
fn lengths_are_told_of_what_is_in_pieces() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDWR);
    for (told, count) in [(71, 2), (u64::MAX, 2), (1, 0), (u64::MAX, 1025)] {
        stage.call(ROOT, libc::SYS_preadv, &[3, told, count, 9], 7);
    }
    let lengths: Vec<_> = stage.calls.iter().map(|call| call.length).collect();
    assert_eq!(lengths, [Some(70), None]);
}

#[test]
fn what_the_kernel_counted_must_agree() {
    let mut stage = Stage::new();
    for _ in 0..30 {
        stage.read(ROOT, 0, 5);
    }
    let unreconciled = |stage: &mut Stage| stage.follower.losses(Dropped::default())[3].1;
    for (reads, writes, found) in [(33, 0, 0), (50, 0, 1), (30, 20, 2)] {
        stage.change(Change::CallCounts {
            pid: ROOT,
            reads,
            writes,
        });
        stage.call(ROOT, libc::SYS_close, &[9], 0);
        assert_eq!(unreconciled(&mut stage), found, "{reads} {writes}");
    }
}

#[test]
fn programs_of_another_architecture_are_not_read() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDONLY);
    stage.change(Change::Executed(tracee(ROOT, ROOT, 2), false));
    stage.read(ROOT, 3, 10);
    stage.change(Change::Over(ROOT));
    stage.read(ROOT, 3, 10);
    assert!(stage.rows().is_empty());
}

#[test]
fn what_never_reaches_a_file_is_no_row() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDONLY);
    for errno in [libc::EBADF, libc::EFAULT, 512] {
        stage.read(ROOT, 3, -i64::from(errno));
    }
    stage.call(ROOT, libc::SYS_read, &[3, 0, 0], 0);
    stage.call(ROOT, libc::SYS_pread64, &[3, 0, 5, u64::MAX], -22);
    assert!(stage.rows().is_empty());
    stage.read(ROOT, 3, 0);
    assert_eq!(stage.rows().len(), 1, "the end of a file is seen");
}

#[test]
fn a_range_that_is_refused_is_not_closed() {
    let mut stage = Stage::new();
    stage.open(ROOT, 5, 3, libc::O_RDONLY);
    let refused = -i64::from(libc::EINVAL);
    for arguments in [[3, u64::from(u32::MAX), 8], [3, 2, 0], [3, 2, 2]] {
        stage.call(ROOT, libc::SYS_close_range, &arguments, refused);
    }
    stage.read(ROOT, 3, 10);
    assert_eq!(stage.rows(), [(1, Op::Read, 5, Some(0), 10)]);
    stage.call(ROOT, libc::SYS_close_range, &[3, 3, 0], 0);
    stage.read(ROOT, 3, 10);
    assert_eq!(stage.rows(), []);
}

/// As `cp` ends each copy.
#[test]
fn a_copy_from_the_end_is_not_counted() {
    let mut stage = Stage::new();
    for _ in 0..100 {
        let copy = [3, 0, 4, 0, 80, 0];
        stage.call(ROOT, libc::SYS_copy_file_range, &copy, 80);
        stage.call(ROOT, libc::SYS_copy_file_range, &copy, 0);
    }
    stage.change(Change::CallCounts {
        pid: ROOT,
        reads: 100,
        writes: 100,
    });
    stage.read(ROOT, 3, 1);
    assert_eq!(stage.follower.losses(Dropped::default())[3].1, 0);
}
