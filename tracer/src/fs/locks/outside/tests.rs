use super::*;
use crate::fs::locks::testing::{RECORD, lock, read, write};
use crate::fs::locks::{Ended, Locks, Subject};
use nix::Result;
use proptest::prelude::*;
use std::os::fd::AsFd;

const WHOLE: Subject = Subject {
    node: 1,
    space: Space::Whole,
};

/// A file as an application has it open, and once more opened by a process outside.
fn files() -> (File, File) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = |write| File::options().read(true).write(write).open(file.path());
    (open(true).unwrap(), open(true).unwrap())
}

/// Result of a lock that is requested without the mount.
fn set(file: &File, kind: Option<Kind>, start: u64, end: u64) -> Result<()> {
    let lock = record(kind, start, end);
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
}

fn granted() -> Ended<()> {
    vec![((), Ok(()))]
}

fn refused() -> Ended<()> {
    vec![((), Err(Errno::EAGAIN))]
}

#[test]
fn processes_outside_see_the_locks() {
    let (real, other) = files();
    let locks = Locks::default();
    let acquire = |wanted| locks.acquire(RECORD, wanted, (), None, Some(real.as_fd()));
    assert_eq!(acquire(write(1, 0, 9)), granted());
    assert_eq!(acquire(read(2, 20, END)), granted());
    assert_eq!(set(&other, Some(Kind::Read), 9, 9), Err(Errno::EAGAIN));
    assert_eq!(
        set(&other, Some(Kind::Write), 1000, 1000),
        Err(Errno::EAGAIN)
    );
    assert_eq!(set(&other, Some(Kind::Read), 20, 30), Ok(()));
    assert_eq!(set(&other, Some(Kind::Write), 10, 19), Ok(()));
    // In the end the change weakens the lock.
    assert_eq!(acquire(read(1, 0, 9)), granted());
    assert_eq!(set(&other, Some(Kind::Read), 0, 9), Ok(()));
    locks.release(RECORD, |held| held.owner == 2);
    assert_eq!(set(&other, Some(Kind::Write), 20, END), Ok(()));
}

#[test]
fn those_outside_are_in_the_way_until_they_are_not() {
    let (real, other) = files();
    let locks = Locks::default();
    set(&other, Some(Kind::Read), 5, 5).unwrap();
    let acquire = |wanted, wait| locks.acquire(RECORD, wanted, (), wait, Some(real.as_fd()));
    assert_eq!(acquire(read(1, 0, 9), None), granted());
    assert_eq!(acquire(write(1, 0, 9), None), refused());
    assert_eq!(acquire(write(1, 0, 9), Some(7)), Ended::new());
    let conflict = |wanted: Lock| locks.conflict(RECORD, &wanted, Some(real.as_fd()));
    assert_eq!(conflict(read(3, 0, 0)), None);
    let found = conflict(write(1, 0, 9)).unwrap();
    assert_eq!(
        (found.kind, found.start, found.end),
        (Some(Kind::Read), 5, 5)
    );
    assert!(locks.must_be_retried());
    assert_eq!(locks.retry(), Ended::new());
    set(&other, None, 5, 5).unwrap();
    assert_eq!(locks.retry(), granted());
    assert!(!locks.must_be_retried());
    assert_eq!(set(&other, Some(Kind::Read), 5, 5), Err(Errno::EAGAIN));
}

#[test]
fn whole_files_are_locked_by_flock() {
    let (real, other) = files();
    let locks = Locks::default();
    let acquire = |wanted, wait| locks.acquire(WHOLE, wanted, (), wait, Some(real.as_fd()));
    assert_eq!(acquire(read(1, 0, END), None), granted());
    assert_eq!(acquire(read(2, 0, END), None), granted());
    other.try_lock_shared().unwrap();
    assert_eq!(acquire(write(1, 0, END), Some(7)), Ended::new());
    // The request waits for the lock inside, and then for the one outside.
    assert!(!locks.must_be_retried());
    locks.release(WHOLE, |held| held.owner == 2);
    assert!(locks.must_be_retried());
    other.unlock().unwrap();
    assert_eq!(locks.retry(), granted());
    assert!(other.try_lock_shared().is_err());
    locks.release(WHOLE, |held| held.owner == 1);
    other.try_lock().unwrap();
}

#[test]
fn a_file_that_is_open_for_reading_makes_way_for_one_that_is_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (real, other) = (file.reopen().unwrap(), file.reopen().unwrap());
    let reader = File::open(file.path()).unwrap();
    let locks = Locks::default();
    let acquire = |wanted, file: &File| locks.acquire(RECORD, wanted, (), None, Some(file.as_fd()));
    assert_eq!(acquire(read(1, 0, 9), &reader), granted());
    assert_eq!(acquire(write(2, 20, 29), &real), granted());
    assert_eq!(set(&other, Some(Kind::Write), 0, 9), Err(Errno::EAGAIN));
    assert_eq!(set(&other, Some(Kind::Read), 20, 29), Err(Errno::EAGAIN));
    drop(locks);
    // The applications' files are still open.
    assert_eq!(set(&other, Some(Kind::Write), 0, END), Ok(()));
}

proptest! {
    /// Each byte is locked outside with the strongest lock inside.
    #[test]
    fn agrees_with_a_lock_for_each_byte(
        calls in prop::collection::vec((0u64..4, 0u8..3, 0u64..16, 0u64..16), 1..40),
    ) {
        let (real, other) = files();
        let locks = Locks::default();
        let mut model: Vec<Vec<(u64, Kind)>> = vec![Vec::new(); 16];
        for (owner, kind, a, b) in calls {
            let (start, end) = (a.min(b), a.max(b));
            let kind = [None, Some(Kind::Read), Some(Kind::Write)][usize::from(kind)];
            let wanted = lock(owner, kind, start, end);
            let outcome = locks.acquire(RECORD, wanted, (), None, Some(real.as_fd()));
            if outcome == granted() {
                for byte in &mut model[start as usize..=end as usize] {
                    byte.retain(|&(other, _)| other != owner);
                    byte.extend(kind.map(|kind| (owner, kind)));
                }
            }
            for (at, byte) in (0..).zip(&model) {
                let seen = |kind| {
                    let mut lock = record(Some(kind), at, at);
                    fcntl(&other, FcntlArg::F_OFD_GETLK(&mut lock)).unwrap();
                    i32::from(lock.l_type) != libc::F_UNLCK
                };
                prop_assert_eq!(seen(Kind::Write), !byte.is_empty());
                let written = byte.iter().any(|&(_, kind)| kind == Kind::Write);
                prop_assert_eq!(seen(Kind::Read), written);
            }
        }
    }
}
