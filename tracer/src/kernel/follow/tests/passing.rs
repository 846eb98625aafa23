//! Descriptors that messages carry.

use super::super::super::sample::{Carried, OpenId};
use super::*;

const SENDER: u32 = ROOT;
const RECEIVER: u32 = 20;
const REGULAR: u32 = libc::S_IFREG;

fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.change(Change::Forked {
        by: SENDER,
        thread: SENDER,
        child: tracee(RECEIVER, RECEIVER, 2),
        shares: false,
    });
    stage
}

/// A message is sent that carries descriptor `fd`, or is received with it.
fn pass(stage: &mut Stage, tid: u32, number: libc::c_long, fd: u64, (address, mode): (u64, u32)) {
    let flags = match number {
        libc::SYS_recvmsg => libc::MSG_CMSG_CLOEXEC as u64,
        _ => 0,
    };
    stage.enter(tid, number, [100_000, 0, flags, 0, 0, 0]);
    let open = OpenId {
        address,
        inode: address + 1,
    };
    stage.put(tid, number, What::Carries(Carried { fd, open, mode }));
    stage.exit(tid, number, 1);
}

#[test]
fn what_is_received_is_what_was_sent_whoever_closed_it_since() {
    let mut stage = stage();
    stage.open(SENDER, 5, 3, libc::O_RDONLY);
    stage.open(SENDER, 6, 4, libc::O_RDONLY);
    stage.read(SENDER, 3, 10);
    pass(&mut stage, SENDER, libc::SYS_sendmsg, 3, (0xa, REGULAR));
    pass(&mut stage, SENDER, libc::SYS_sendmsg, 4, (0xb, REGULAR));
    stage.call(SENDER, libc::SYS_close, &[3], 0);
    pass(&mut stage, RECEIVER, libc::SYS_recvmsg, 7, (0xa, REGULAR));
    stage.read(RECEIVER, 7, 20);
    pass(&mut stage, RECEIVER, libc::SYS_recvmsg, 8, (0xb, REGULAR));
    stage.read(RECEIVER, 8, 5);
    stage.read(SENDER, 4, 6);
    stage.call(RECEIVER, libc::SYS_close, &[7], 0);
    stage.read(RECEIVER, 7, 20);
    let rows = [
        (1, Op::Read, 5, Some(0), 10),
        (2, Op::Read, 5, Some(10), 20),
        (2, Op::Read, 6, Some(0), 5),
        (1, Op::Read, 6, Some(5), 6),
    ];
    assert_eq!(stage.rows(), rows);
    // It was to be closed by an exec (`MSG_CMSG_CLOEXEC`).
    let image = tracee(RECEIVER, RECEIVER, 3);
    stage.change(Change::Executed(image, true));
    stage.read(RECEIVER, 8, 5);
    assert_eq!(stage.rows(), []);
}

#[test]
fn an_address_that_was_given_to_another_one_is_that() {
    let mut stage = stage();
    stage.open(SENDER, 5, 3, libc::O_RDONLY);
    pass(&mut stage, SENDER, libc::SYS_sendmsg, 3, (0xa, REGULAR));
    stage.open(SENDER, 6, 3, libc::O_RDONLY);
    pass(&mut stage, SENDER, libc::SYS_sendmsg, 3, (0xa, REGULAR));
    pass(&mut stage, RECEIVER, libc::SYS_recvmsg, 7, (0xa, REGULAR));
    stage.read(RECEIVER, 7, 20);
    assert_eq!(stage.rows(), [(2, Op::Read, 6, Some(0), 20)]);
    // Its sender does not know what it is.
    pass(
        &mut stage,
        SENDER,
        libc::SYS_sendmsg,
        99_999,
        (0xa, REGULAR),
    );
    pass(&mut stage, RECEIVER, libc::SYS_recvmsg, 8, (0xa, REGULAR));
    stage.read(RECEIVER, 8, 20);
    assert_eq!(stage.rows(), []);
}

#[test]
fn a_pipe_is_known_by_its_inode_whoever_sent_it() {
    let mut stage = stage();
    let pipe = (0x300, libc::S_IFIFO);
    pass(&mut stage, RECEIVER, libc::SYS_recvmsg, 7, pipe);
    stage.call(RECEIVER, libc::SYS_write, &[7, 0, 30], 30);
    stage.follower.finish(&mut |_| {});
    let calls = stage.channel_calls.borrow();
    let rows: Vec<_> = calls
        .iter()
        .map(|c| (c.upid.0, c.inode, c.result))
        .collect();
    assert!(rows.contains(&(2, 0x301, 30)), "{rows:?}");
}

/// What is read of a number that stands for nothing is nobody's.
#[test]
fn who_has_received_may_still_use_closed_numbers() {
    let mut stage = stage();
    stage.open(SENDER, 5, 3, libc::O_RDONLY);
    stage.read(SENDER, 3, 10);
    // From somebody who is not followed.
    pass(&mut stage, RECEIVER, libc::SYS_recvmsg, 7, (0xa, REGULAR));
    let bad = -i64::from(libc::EBADF);
    for tid in [SENDER, RECEIVER] {
        stage.read(tid, 100_003, bad);
        stage.call(tid, libc::SYS_lseek, &[100_004, 0, 0], bad);
    }
    assert_eq!(stage.follower.losses(Dropped::default())[4].1, 0);
    stage.read(SENDER, 3, 10);
    let row = |offset| (1, Op::Read, 5, Some(offset), 10);
    assert_eq!(stage.rows(), [row(0), row(10)]);
    stage.read(RECEIVER, 100_005, 10);
    assert_eq!(stage.follower.losses(Dropped::default())[4].1, 1);
}

/// What is told of a message may be among the records that were dropped.
#[test]
fn after_a_loss_any_message_may_have_carried_something() {
    let mut stage = stage();
    for (missed, fd) in [(0, 100_003), (1, 100_004)] {
        stage.call(RECEIVER, libc::SYS_recvmsg, &[100_000, 0, 0], 1);
        stage.read(RECEIVER, fd, 10);
        assert_eq!(
            stage.follower.losses(Dropped::default())[4].1,
            missed,
            "{fd}"
        );
        stage.follower.lost(1, stage.at);
    }
}
