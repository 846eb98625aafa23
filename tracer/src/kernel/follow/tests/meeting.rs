//! Descriptors that nobody told of. Those of the test itself stand for them.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use super::*;

/// A process that is this one, and a file of a view that it has opened.
fn with_own_file() -> (Stage, u32, tempfile::TempDir, File) {
    let directory = tempfile::tempdir().unwrap();
    let view = directory.path().canonicalize().unwrap();
    let own = std::process::id();
    let channels = Arc::new(Numbered);
    let clock = Clock::start().0;
    let mut stage = Stage {
        follower: Follower::new(clock, vec![view.clone()], channels, None),
        channel_calls: Rc::default(),
        at: clock.now(),
        calls: Vec::new(),
    };
    stage.change(Change::Begins(tracee(own, own, 1), true));
    let path = view.join("x");
    std::fs::write(&path, [0; 100]).unwrap();
    let file = File::open(path).unwrap();
    let mut note = opened(stage.at + 2, own, 7, 0);
    if let Noted::Opened(opened) = &mut note.what {
        opened.number = Some(file.metadata().unwrap().ino());
    }
    stage.follower.noted(vec![note]);
    stage.call(own, libc::SYS_openat, &[0, 0, 0], file.as_raw_fd().into());
    (stage, own, directory, file)
}

/// A message whose record may be among dropped ones.
fn receives_unseen(stage: &mut Stage, own: u32) {
    stage.follower.dropped += 1;
    stage.call(own, libc::SYS_recvmsg, &[100_002, 0, 0], 1);
    stage.follower.dropped -= 1;
}

#[test]
fn one_that_was_sent_shares_the_position_of_the_one_that_was_opened() {
    let (mut stage, own, _directory, file) = with_own_file();
    let sent = file.try_clone().unwrap();
    let (file, sent) = (file.as_raw_fd() as u64, sent.as_raw_fd() as u64);
    stage.read(own, file, 10);
    stage.read(own, sent, 20);
    stage.read(own, file, 5);
    let row = |offset, result| (1, Op::Read, 7, Some(offset), result);
    assert_eq!(stage.rows(), [row(0, 10), row(30, 5)], "one is held");
    stage.at = u64::MAX - 10;
    stage.read(own, sent, 3);
    assert_eq!(stage.rows(), [row(10, 20), row(35, 3)]);
    assert_eq!(stage.follower.losses(Dropped::default())[4].1, 0);
}

#[test]
fn of_one_that_others_may_move_no_position_is_known() {
    let (mut stage, own, _directory, file) = with_own_file();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let other = File::open(path).unwrap();
    let fd = other.as_raw_fd() as u64;
    stage.call(own, libc::SYS_lseek, &[fd, 4], 4);
    stage.read(own, fd, 20);
    stage.call(own, libc::SYS_pread64, &[fd, 0, 9, 4], 9);
    stage.at = u64::MAX - 10;
    stage.call(own, libc::SYS_close, &[999], 0);
    let row = |offset, result| (1, Op::Read, 7, offset, result);
    assert_eq!(stage.rows(), [row(None, 20), row(Some(4), 9)]);
}

#[test]
fn one_that_became_another_is_counted_and_not_told() {
    let (mut stage, own, _directory, file) = with_own_file();
    let sent = file.try_clone().unwrap();
    let fd = sent.as_raw_fd() as u64;
    stage.read(own, fd, 20);
    stage.call(own, libc::SYS_close, &[fd], 0);
    stage.at = u64::MAX - 10;
    stage.call(own, libc::SYS_close, &[999], 0);
    assert_eq!(stage.rows(), []);
    assert_eq!(stage.follower.losses(Dropped::default())[4].1, 1);
    // Gone when it was looked at: counted where descriptors may have been sent.
    stage.read(own, 100_001, 5);
    receives_unseen(&mut stage, own);
    stage.read(own, 100_003, 5);
    assert_eq!(stage.follower.losses(Dropped::default())[4].1, 2);
}

#[test]
fn what_did_not_exist_was_not_met() {
    let (mut stage, own, _directory, file) = with_own_file();
    let later = file.try_clone().unwrap();
    let fd = later.as_raw_fd() as u64;
    let bad = -i64::from(libc::EBADF);
    // As a shell does that redirects its fifth descriptor.
    stage.call(own, libc::SYS_fcntl, &[fd, libc::F_DUPFD as u64, 10], bad);
    stage.read(own, fd, bad);
    stage.call(
        own,
        libc::SYS_dup2,
        &[file.as_raw_fd() as u64, fd],
        fd as i64,
    );
    stage.read(own, fd, 8);
    // And one that does exist, though no call told of it.
    let sent = file.try_clone().unwrap().as_raw_fd() as u64 + 50_000;
    stage.call(own, libc::SYS_dup, &[sent], sent as i64 + 1);
    stage.at = u64::MAX - 10;
    stage.call(own, libc::SYS_close, &[999], 0);
    assert_eq!(stage.rows(), [(1, Op::Read, 7, Some(0), 8)]);
    assert_eq!(stage.follower.losses(Dropped::default())[4].1, 0);
}

#[test]
fn a_duplicate_of_one_that_was_sent_is_the_same() {
    let (mut stage, own, _directory, file) = with_own_file();
    let (sent, copy) = (file.try_clone().unwrap(), file.try_clone().unwrap());
    let (sent, copy) = (sent.as_raw_fd() as u64, copy.as_raw_fd() as u64);
    stage.call(own, libc::SYS_dup, &[sent], copy as i64);
    stage.read(own, copy, 6);
    stage.at = u64::MAX - 10;
    stage.read(own, sent, 4);
    let row = |offset, result| (1, Op::Read, 7, Some(offset), result);
    assert_eq!(stage.rows(), [row(0, 6), row(6, 4)]);
}

#[test]
fn one_that_took_the_place_of_another_is_not_that_one() {
    let (mut stage, own, _directory, _file) = with_own_file();
    let outside = tempfile::tempdir().unwrap();
    let open = |name: &str| -> OwnedFd {
        let path = outside.path().join(name);
        std::fs::write(&path, [0; 100]).unwrap();
        File::open(path).unwrap().into()
    };
    let (sent, mut place) = (open("a"), open("b"));
    let numbers = [sent.as_raw_fd() as u64, place.as_raw_fd() as u64];
    stage.change(Change::Opened {
        tid: own,
        fd: place.as_raw_fd(),
        file: FileId(8),
        flags: 0,
    });
    receives_unseen(&mut stage, own);
    // By the time of the look the program went on.
    nix::unistd::dup2(&sent, &mut place).unwrap();
    stage.read(own, numbers[0], 10);
    stage.call(own, libc::SYS_dup2, &numbers, numbers[1] as i64);
    stage.read(own, numbers[1], 10);
    stage.at = u64::MAX - 10;
    stage.call(own, libc::SYS_close, &[999], 0);
    assert_eq!(stage.rows(), []);
    assert_eq!(stage.follower.losses(Dropped::default())[4].1, 1);
    // Nor is it later.
    stage.read(own, numbers[1], 10);
    assert_eq!(stage.rows(), []);
}
