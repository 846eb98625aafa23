use std::cell::RefCell;

use flowtrace_schema::{ChannelCall, ChannelId, Fidelity, FileId, Loss, Side};

use super::*;

/// A tree that is driven by hand.
struct Stage {
    calls: Calls,
    at: u64,
    rows: Vec<Call>,
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

fn tracee(tid: u32, pid: u32, upid: u32) -> Tracee {
    Tracee {
        tid,
        pid,
        upid: Upid(upid),
    }
}

/// The use of a file, pipe or socket at its position, where 100 bytes are asked for.
fn used(mode: u32, number: u64, position: u64) -> FileUse {
    FileUse {
        file: 0xffff_0000 + number,
        inode: Inode { device: 1, number },
        mode,
        at_position: true,
        appends: false,
        offset: Some(position),
        length: Some(100),
        flags: 0,
        descriptor: 1 << 20,
    }
}

fn file(number: u64, position: u64) -> FileUse {
    used(libc::S_IFREG, number, position)
}

fn pipe(number: u64) -> FileUse {
    used(libc::S_IFIFO, number, 0)
}

impl Stage {
    /// Files 5 and 6 are those of inodes 5 and 6; 9 is no file of the run.
    fn new() -> Stage {
        let channel_calls = Rc::<RefCell<Vec<ChannelCall>>>::default();
        let into = Rc::clone(&channel_calls);
        let sink: Sink = Box::new(move |call| into.borrow_mut().push(call));
        let mut stage = Stage {
            calls: Calls::new(Arc::new(Numbered), Some(sink)),
            channel_calls,
            at: 100,
            rows: Vec::new(),
        };
        stage.change(Change::Begins(tracee(ROOT, ROOT, 1)));
        for number in [5, 6] {
            stage.finds(number, number as u32);
        }
        stage
    }

    fn finds(&mut self, number: u64, file: u32) {
        let inode = Inode { device: 1, number };
        self.change(Change::File(inode, FileId(file)));
    }

    fn change(&mut self, change: Change) {
        self.at += 1;
        self.calls.announce(vec![(self.at, change)]);
    }

    fn fork(&mut self, child: u32, upid: u32) {
        let child = tracee(child, child, upid);
        self.change(Change::Forked { by: ROOT, child });
    }

    fn put(&mut self, tid: u32, number: libc::c_long, what: What) {
        self.at += 1;
        let sample = Sample {
            at: self.at,
            tid,
            number: number as u32,
            what,
        };
        while self.calls.next_change(self.at).is_some() {}
        let rows = &mut self.rows;
        self.calls.sample(&sample, &mut |call| rows.push(call));
    }

    fn enter(&mut self, tid: u32, number: libc::c_long, file: FileUse) {
        self.put(tid, number, What::Enters(file));
    }

    fn exit(&mut self, tid: u32, number: libc::c_long, result: i64) {
        let position = None;
        self.put(tid, number, What::Returns(Returned { result, position }));
    }

    fn call(&mut self, tid: u32, number: libc::c_long, file: FileUse, result: i64) {
        self.enter(tid, number, file);
        self.exit(tid, number, result);
    }

    fn moves(&mut self, number: libc::c_long, from: FileUse, to: FileUse, result: i64) {
        self.enter(ROOT, number, from);
        self.put(ROOT, number, What::AlsoUses(to));
        self.exit(ROOT, number, result);
    }

    fn read(&mut self, tid: u32, file: FileUse, result: i64) {
        self.call(tid, libc::SYS_read, file, result);
    }

    /// Upid, operation, file, offset, result of the rows so far.
    fn rows(&mut self) -> Vec<(u32, Op, u32, Option<u64>, i64)> {
        let row = |call: Call| {
            let (upid, file) = (call.upid.unwrap().0, call.file.unwrap().0);
            (upid, call.op, file, call.offset, call.result)
        };
        self.rows.drain(..).map(row).collect()
    }

    /// Channel, image, side, calls, bytes and exactness of the traffic so far.
    fn traffic(&mut self) -> Vec<(u32, u32, Side, u64, Option<u64>, bool)> {
        while self.calls.next_change(u64::MAX).is_some() {}
        let rows = self.calls.traffic().into_iter();
        let rows = rows.filter_map(|record| match record {
            Record::ChannelTraffic(r) => {
                Some((r.channel.0, r.upid.0, r.side, r.calls, r.bytes, r.exact))
            }
            _ => None,
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|row| (row.0, row.1, row.2.name()));
        rows
    }
}

#[test]
fn a_row_has_the_file_and_the_place_that_the_kernel_named() {
    let mut stage = Stage::new();
    stage.fork(20, 2);
    stage.read(ROOT, file(5, 60), 40);
    let at_offset = FileUse {
        at_position: false,
        ..file(6, 1000)
    };
    stage.call(20, libc::SYS_pwrite64, at_offset, 7);
    stage.read(ROOT, file(9, 0), 10);
    // By 32-bit programs, too.
    #[cfg(target_arch = "x86_64")]
    stage.call(20, 512 + 4, file(6, 3), 9);
    let mut expected = vec![
        (1, Op::Read, 5, Some(60), 40),
        (2, Op::Write, 6, Some(1000), 7),
    ];
    #[cfg(target_arch = "x86_64")]
    expected.push((2, Op::Write, 6, Some(3), 9));
    assert_eq!(stage.rows(), expected);
}

#[test]
fn an_inode_may_become_another_file() {
    let mut stage = Stage::new();
    stage.read(ROOT, file(5, 0), 10);
    stage.finds(5, 8);
    stage.read(ROOT, file(5, 0), 10);
    let files: Vec<u32> = stage.rows().iter().map(|row| row.2).collect();
    assert_eq!(files, [5, 8]);
}

#[test]
fn an_appending_write_began_before_the_position_that_it_left() {
    let mut stage = Stage::new();
    let log = FileUse {
        appends: true,
        ..file(5, 3)
    };
    let mut append = |number, file, result, position| {
        stage.enter(ROOT, number, file);
        stage.put(ROOT, number, What::Returns(Returned { result, position }));
    };
    append(libc::SYS_write, log, 30, Some(130));
    append(libc::SYS_read, log, 30, None);
    append(libc::SYS_write, log, -5, Some(130));
    let at_offset = FileUse {
        at_position: false,
        ..log
    };
    append(libc::SYS_pwrite64, at_offset, 30, Some(130));
    let flagged = FileUse {
        flags: 0x10,
        ..file(5, 3)
    };
    append(libc::SYS_pwritev2, flagged, 30, None);
    let offsets: Vec<_> = stage.rows().iter().map(|row| row.3).collect();
    assert_eq!(offsets, [Some(100), Some(3), None, None, None]);
}

#[test]
fn the_order_of_calls_at_one_position_is_not_guessed() {
    let mut stage = Stage::new();
    stage.change(Change::Thread(tracee(11, ROOT, 1)));
    stage.enter(ROOT, libc::SYS_read, file(5, 0));
    stage.enter(11, libc::SYS_read, file(5, 0));
    stage.exit(11, libc::SYS_read, 30);
    stage.exit(ROOT, libc::SYS_read, 20);
    stage.read(ROOT, file(5, 50), 10);
    // Another open file of the same inode has a position of its own.
    stage.enter(ROOT, libc::SYS_read, file(5, 60));
    let other = FileUse {
        file: 7,
        ..file(5, 0)
    };
    stage.read(11, other, 5);
    stage.exit(ROOT, libc::SYS_read, 10);
    let offsets: Vec<_> = stage.rows().iter().map(|row| row.3).collect();
    assert_eq!(offsets, [None, None, Some(50), Some(0), Some(60)]);
}

#[test]
fn a_move_between_descriptors_is_a_read_and_a_write() {
    let mut stage = Stage::new();
    stage.moves(libc::SYS_sendfile, file(5, 0), file(6, 0), 300);
    stage.moves(libc::SYS_splice, file(5, 254), pipe(70), 50);
    let copy = libc::SYS_copy_file_range;
    stage.moves(copy, file(5, 380), file(6, 380), 20);
    stage.moves(copy, file(5, 400), file(6, 400), 0);
    assert_eq!(
        stage.rows(),
        [
            (1, Op::Read, 5, Some(0), 300),
            (1, Op::Write, 6, Some(0), 300),
            (1, Op::Read, 5, Some(254), 50),
            (1, Op::CopyFrom, 5, Some(380), 20),
            (1, Op::CopyTo, 6, Some(380), 20),
        ]
    );
    stage.change(Change::Over(ROOT));
    assert_eq!(stage.traffic(), [(70, 1, Side::Write, 1, Some(50), true)]);
}

#[test]
fn a_call_that_reaches_no_file_has_no_row() {
    let mut stage = Stage::new();
    for errno in [libc::EBADF, libc::EFAULT, 512] {
        stage.read(ROOT, file(5, 0), -i64::from(errno));
    }
    let none = FileUse {
        length: Some(0),
        ..file(5, 0)
    };
    stage.read(ROOT, none, 0);
    let negative = FileUse {
        at_position: false,
        ..file(5, 1 << 63)
    };
    let refused = -i64::from(libc::EINVAL);
    stage.call(ROOT, libc::SYS_pread64, negative, refused);
    let too_many = FileUse {
        length: None,
        ..file(5, 0)
    };
    stage.call(ROOT, libc::SYS_readv, too_many, refused);
    assert_eq!(stage.rows(), []);
    stage.read(ROOT, file(5, 0), 0);
    assert_eq!(stage.rows().len(), 1, "the end of a file is seen");
}

#[test]
fn every_call_has_a_row_or_is_counted() {
    let mut stage = Stage::new();
    stage.enter(ROOT, libc::SYS_pwrite64, file(5, 0));
    // The return of this one and the entry of the next were dropped.
    stage.exit(ROOT, libc::SYS_pread64, 1);
    stage.enter(ROOT, libc::SYS_read, file(5, 0));
    stage.enter(ROOT, libc::SYS_read, file(5, 10));
    stage.calls.lost(3, stage.at);
    stage.exit(ROOT, libc::SYS_read, 10);
    stage.read(ROOT, file(5, 20), 10);
    let labels: Vec<_> = stage.rows.iter().map(|call| call.fidelity).collect();
    assert_eq!(labels, [Fidelity::Lossy, Fidelity::Exact]);
    let offsets: Vec<_> = stage.rows().iter().map(|row| row.3).collect();
    assert_eq!(offsets, [None, Some(20)], "two were at the position");
    // Also a call that a signal ends returns.
    stage.enter(ROOT, libc::SYS_read, file(5, 0));
    stage.change(Change::Over(ROOT));
    while stage.calls.next_change(u64::MAX).is_some() {}
    assert_eq!(stage.calls.losses(1)[0], (Loss::CallsDropped, 4));
}

#[test]
fn counts_of_the_kernel_must_agree() {
    let mut stage = Stage::new();
    for _ in 0..30 {
        stage.read(ROOT, pipe(7), 5);
        // A copy ends by one from the end of the file, which the kernel does not count.
        stage.moves(libc::SYS_copy_file_range, file(5, 0), file(6, 0), 0);
    }
    for (reads, writes, found) in [(33, 0, 0), (50, 0, 1), (30, 20, 2)] {
        let pid = ROOT;
        stage.change(Change::CallCounts { pid, reads, writes });
        while stage.calls.next_change(u64::MAX).is_some() {}
        assert_eq!(
            stage.calls.losses(0)[1],
            (Loss::CallsUnreconciled, found),
            "{reads} {writes}"
        );
    }
}

#[test]
fn calls_on_channels_are_counted_and_have_rows() {
    let mut stage = Stage::new();
    let socket = |length, flags| FileUse {
        length,
        flags,
        ..used(libc::S_IFSOCK, 80, 0)
    };
    stage.call(ROOT, libc::SYS_sendto, socket(Some(50), 0), 50);
    let peek = socket(Some(50), libc::MSG_PEEK as u32);
    stage.call(ROOT, libc::SYS_recvfrom, peek, 40);
    stage.call(ROOT, libc::SYS_recvmsg, socket(None, 0), 40);
    stage.call(ROOT, libc::SYS_sendmmsg, socket(None, 0), 3);
    stage.enter(ROOT, libc::SYS_recvmmsg, socket(None, 0));
    stage.put(ROOT, libc::SYS_recvmmsg, What::Moved(70));
    stage.exit(ROOT, libc::SYS_recvmmsg, 2);
    stage.call(ROOT, libc::SYS_vmsplice, pipe(90), 10);
    let gone = -i64::from(libc::ENOTSOCK);
    stage.call(ROOT, libc::SYS_sendto, socket(Some(9), 0), gone);
    stage.change(Change::Executed(tracee(ROOT, ROOT, 2)));
    stage.call(ROOT, libc::SYS_write, pipe(90), -512);
    stage.calls.finish();
    assert_eq!(
        stage.traffic(),
        [
            (80, 1, Side::Read, 3, Some(110), true),
            (80, 1, Side::Write, 2, None, true),
            (90, 1, Side::Read, 1, None, true),
            (90, 1, Side::Write, 1, None, true),
            (90, 2, Side::Write, 1, Some(0), true),
        ]
    );
    let rows = stage.channel_calls.take().into_iter();
    let rows: Vec<_> = rows
        .map(|c| (c.inode, c.side, c.length, c.result, c.bytes))
        .collect();
    let interrupted = -i64::from(libc::EINTR);
    assert_eq!(
        rows,
        [
            (80, Side::Write, Some(50), 50, Some(50)),
            (80, Side::Read, Some(50), 40, Some(0)),
            (80, Side::Read, None, 40, Some(40)),
            (80, Side::Write, None, 3, None),
            (80, Side::Read, None, 2, Some(70)),
            (90, Side::Read, None, 10, None),
            (90, Side::Write, None, 10, None),
            (90, Side::Write, Some(100), interrupted, Some(0)),
        ]
    );
}

/// Images of which all traffic is known.
fn all_known(stage: &mut Stage) -> Vec<u32> {
    while stage.calls.next_change(u64::MAX).is_some() {}
    let records = stage.calls.traffic().into_iter();
    let all = records.filter_map(|record| match record {
        Record::AllTraffic(upid) => Some(upid.0),
        _ => None,
    });
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all
}

#[test]
fn all_traffic_is_known_of_images_that_move_data_by_calls_alone() {
    let mut stage = Stage::new();
    for (pid, upid) in [(20, 2), (30, 3)] {
        stage.fork(pid, upid);
    }
    stage.change(Change::MovesWithoutCalls(30));
    for pid in [20, 30, ROOT] {
        stage.change(Change::Over(pid));
    }
    assert_eq!(all_known(&mut stage), [1, 2]);
    let mut stage = Stage::new();
    stage.calls.lost(1, 0);
    stage.change(Change::Over(ROOT));
    assert!(all_known(&mut stage).is_empty());
}
