//! What goes through pipes and sockets, and files outside of the views.

use super::*;

/// Channel, image, side, calls, bytes and exactness of what went through channels since the last look.
fn traffic(stage: &mut Stage) -> Vec<(u32, u32, Side, u64, Option<u64>, bool)> {
    let rows = stage
        .follower
        .traffic()
        .into_iter()
        .filter_map(|record| match record {
            Record::ChannelTraffic(r) => {
                Some((r.channel.0, r.upid.0, r.side, r.calls, r.bytes, r.exact))
            }
            Record::AllTraffic(_) => None,
            other => panic!("{other:?}"),
        });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| (row.0, row.1, row.2.name()));
    rows
}

/// Image, channel, side, length, result and bytes of each call on channels since the last look.
#[expect(clippy::type_complexity)]
fn channel_rows(stage: &mut Stage) -> Vec<(u32, u32, Side, Option<u64>, i64, Option<u64>)> {
    let rows = stage.channel_calls.take().into_iter();
    let rows = rows.map(|c| {
        let channel = c.channel.unwrap().0;
        (c.upid.0, channel, c.side, c.length, c.result, c.bytes)
    });
    rows.collect()
}

/// A pipe whose ends thread `tid` holds as 3 and 4.
fn pipe(stage: &mut Stage, tid: u32, inode: u64) {
    for fd in [3, 4] {
        let target = Target::Channel(inode);
        let close_on_exec = false;
        stage.change(Change::Descriptor {
            tid,
            fd,
            target,
            close_on_exec,
        });
    }
}

#[test]
fn pipes_are_followed_through_forks_duplicates_and_programs() {
    let mut stage = Stage::new();
    pipe(&mut stage, ROOT, 70);
    stage.change(Change::Forked {
        by: ROOT,
        thread: ROOT,
        child: tracee(20, 20, 2),
        shares: false,
    });
    stage.call(20, libc::SYS_dup2, &[4, 1], 1);
    stage.call(20, libc::SYS_close, &[3], 0);
    stage.change(Change::Executed(tracee(20, 20, 3), true));
    stage.call(20, libc::SYS_write, &[1, 0, 500], 500);
    stage.call(20, libc::SYS_writev, &[1, 0, 2], 20);
    stage.call(20, libc::SYS_write, &[1, 0, 9], -i64::from(libc::EPIPE));
    stage.read(ROOT, 3, 300);
    stage.read(ROOT, 3, 220);
    stage.read(ROOT, 3, 0);
    // The number is another thing from here on.
    stage.call(ROOT, libc::SYS_socket, &[1, 1, 0], 3);
    stage.call(ROOT, libc::SYS_fcntl, &[4, libc::F_DUPFD as u64, 5], 6);
    stage.call(ROOT, libc::SYS_write, &[6, 0, 1], 1);
    stage.change(Change::Over(20));
    stage.change(Change::Over(ROOT));
    while stage.follower.next_change(u64::MAX).is_some() {}
    assert_eq!(
        traffic(&mut stage),
        [
            (70, 1, Side::Read, 3, Some(520), true),
            (70, 1, Side::Write, 1, Some(1), true),
            (70, 3, Side::Write, 3, Some(520), true),
        ]
    );
    assert_eq!(stage.rows(), []);
    let rows = channel_rows(&mut stage);
    let of_child: Vec<_> = rows.iter().filter(|row| row.0 == 3).collect();
    let epipe = -i64::from(libc::EPIPE);
    assert_eq!(
        of_child,
        [
            &(3, 70, Side::Write, Some(500), 500, Some(500)),
            &(3, 70, Side::Write, None, 20, Some(20)),
            &(3, 70, Side::Write, Some(9), epipe, Some(0)),
        ]
    );
    assert_eq!(rows.len(), 7);
}

#[test]
fn sockets_tell_what_they_received_and_sent() {
    let mut stage = Stage::new();
    pipe(&mut stage, ROOT, 80);
    stage.call(ROOT, libc::SYS_sendto, &[3, 0, 50, 0], 50);
    stage.call(
        ROOT,
        libc::SYS_recvfrom,
        &[3, 0, 50, libc::MSG_PEEK as u64],
        40,
    );
    stage.call(ROOT, libc::SYS_recvmsg, &[3, 0, 0], 40);
    stage.call(ROOT, libc::SYS_sendmmsg, &[4, 0, 3, 0], 3);
    stage.enter(ROOT, libc::SYS_recvmmsg, [4, 0, 3, 0, 0, 0]);
    stage.put(ROOT, libc::SYS_recvmmsg, What::Moved(70));
    stage.exit(ROOT, libc::SYS_recvmmsg, 2);
    stage.follower.finish(&mut |call| panic!("{call:?}"));
    assert_eq!(
        traffic(&mut stage),
        [
            (80, 1, Side::Read, 3, Some(110), true),
            (80, 1, Side::Write, 2, None, true),
        ]
    );
    assert_eq!(
        channel_rows(&mut stage),
        [
            (1, 80, Side::Write, Some(50), 50, Some(50)),
            (1, 80, Side::Read, Some(50), 40, Some(0)),
            (1, 80, Side::Read, None, 40, Some(40)),
            (1, 80, Side::Write, None, 3, None),
            (1, 80, Side::Read, None, 2, Some(70)),
        ]
    );
}

#[test]
fn what_was_dropped_may_be_missing_from_sums() {
    let mut stage = Stage::new();
    pipe(&mut stage, ROOT, 90);
    stage.read(ROOT, 3, 7);
    stage.follower.lost(3, stage.at);
    stage.call(ROOT, libc::SYS_splice, &[3, 0, 5, 0, 100], 60);
    stage.call(ROOT, libc::SYS_tee, &[3, 4, 100], 10);
    stage.follower.finish(&mut |call| panic!("{call:?}"));
    assert_eq!(
        traffic(&mut stage),
        [
            (90, 1, Side::Read, 3, None, false),
            (90, 1, Side::Write, 1, None, false),
        ]
    );
}

#[test]
fn files_outside_have_rows_like_those_of_a_view() {
    let mut stage = Stage::new();
    // One that is settled by its name before the call begins, and fails once.
    let announce = |stage: &mut Stage| {
        stage.at += 1;
        let what = Noted::Opens(OpenedFile {
            file: Some(FileId(7)),
            flags: 0,
            by_fuse: false,
            number: None,
        });
        let (at, tid) = (stage.at, ROOT);
        stage.follower.noted(vec![Note { at, tid, what }]);
    };
    announce(&mut stage);
    stage.call(ROOT, libc::SYS_openat, &[0, 0, 0], -i64::from(libc::EMFILE));
    stage.call(ROOT, libc::SYS_openat, &[0, 0, 0], 3);
    stage.read(ROOT, 3, 5);
    announce(&mut stage);
    stage.call(ROOT, libc::SYS_openat, &[0, 0, 0], 3);
    stage.read(ROOT, 3, 60);
    stage.call(ROOT, libc::SYS_pread64, &[3, 0, 9, 4], 9);
    assert_eq!(
        stage.rows(),
        [(1, Op::Read, 7, Some(0), 60), (1, Op::Read, 7, Some(4), 9),]
    );
    // And one that is looked at after its open returned.
    stage.call(ROOT, libc::SYS_openat, &[0, 0, libc::O_WRONLY as u64], 4);
    stage.change(Change::Opened {
        tid: ROOT,
        fd: 4,
        file: FileId(8),
        flags: libc::O_WRONLY as u32,
    });
    stage.call(ROOT, libc::SYS_write, &[4, 0, 30], 30);
    stage.call(ROOT, libc::SYS_openat, &[0, 0, libc::O_APPEND as u64], 5);
    stage.change(Change::Opened {
        tid: ROOT,
        fd: 5,
        file: FileId(9),
        flags: (libc::O_WRONLY | libc::O_APPEND) as u32,
    });
    stage.call(ROOT, libc::SYS_write, &[5, 0, 30], 30);
    assert_eq!(
        stage.rows(),
        [(1, Op::Write, 8, Some(0), 30), (1, Op::Write, 9, None, 30),]
    );
}

/// Images of which all traffic is known.
fn all_told(stage: &mut Stage) -> Vec<u32> {
    let records = stage.follower.traffic().into_iter();
    let all = records.filter_map(|record| match record {
        Record::AllTraffic(upid) => Some(upid.0),
        _ => None,
    });
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    all
}

#[test]
fn what_came_by_unheard_leaves_open_what_an_image_moved() {
    let mut stage = Stage::new();
    pipe(&mut stage, ROOT, 70);
    let fork = |stage: &mut Stage, pid, upid| {
        stage.change(Change::Forked {
            by: ROOT,
            thread: ROOT,
            child: tracee(pid, pid, upid),
            shares: false,
        });
    };
    for (pid, upid) in [(20, 2), (30, 3), (40, 4), (50, 5), (60, 6)] {
        fork(&mut stage, pid, upid);
    }
    stage.call(20, libc::SYS_write, &[4, 0, 5], 5);
    // Nobody has told what this is.
    stage.call(30, libc::SYS_recvfrom, &[77, 0, 5, 0], 5);
    stage.change(Change::Ring(40));
    stage.change(Change::AsyncIo(50));
    stage.change(Change::Executed(tracee(60, 60, 7), false));
    for pid in [20, 30, 40, 50, 60, ROOT] {
        stage.change(Change::Over(pid));
    }
    while stage.follower.next_change(u64::MAX).is_some() {}
    // 3 to 5 did such things, and 7 is a program of another architecture.
    assert_eq!(all_told(&mut stage), [1, 2, 6]);
}

#[test]
fn after_a_loss_nobodys_traffic_is_all_known() {
    let mut stage = Stage::new();
    stage.follower.lost(1, 0);
    stage.change(Change::Over(ROOT));
    while stage.follower.next_change(u64::MAX).is_some() {}
    assert_eq!(all_told(&mut stage), []);
}
