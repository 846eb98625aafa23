use super::testing::{RECORD, lock, read, write};
use super::*;
use proptest::prelude::*;
use std::time::Duration;

/// A call that ended.
fn ended(name: &str, result: Result<()>) -> Ended<&str> {
    vec![(name, result)]
}

fn granted(name: &str) -> Ended<&str> {
    ended(name, Ok(()))
}

fn refused(name: &str) -> Ended<&str> {
    ended(name, Err(Errno::EAGAIN))
}

#[test]
fn readers_share_and_writers_do_not() {
    let locks = Locks::default();
    assert_eq!(
        locks.acquire(RECORD, read(1, 0, 9), "1", None, None),
        granted("1")
    );
    assert_eq!(
        locks.acquire(RECORD, read(2, 5, 20), "2", None, None),
        granted("2")
    );
    assert_eq!(
        locks.acquire(RECORD, write(3, 9, 9), "3", None, None),
        refused("3")
    );
    assert_eq!(
        locks.conflict(RECORD, &write(3, 10, 30), None).unwrap().pid,
        2
    );
    assert_eq!(
        locks.acquire(RECORD, write(3, 21, 30), "3", None, None),
        granted("3")
    );
}

#[test]
fn whole_file_locks_and_records_do_not_meet() {
    let whole = Subject {
        space: Space::Whole,
        ..RECORD
    };
    let locks = Locks::default();
    assert_eq!(
        locks.acquire(RECORD, write(1, 0, 9), "1", None, None),
        granted("1")
    );
    assert_eq!(
        locks.acquire(whole, write(2, 0, 9), "2", None, None),
        granted("2")
    );
}

#[test]
fn a_whole_file_lock_is_given_up_before_it_is_changed() {
    let whole = Subject {
        space: Space::Whole,
        ..RECORD
    };
    let locks = Locks::default();
    locks.acquire(whole, read(1, 0, 9), "1", None, None);
    locks.acquire(whole, read(2, 0, 9), "2", None, None);
    let upgrade = |owner, name| locks.acquire(whole, write(owner, 0, 9), name, Some(owner), None);
    assert_eq!(upgrade(1, "1"), Ended::new());
    assert_eq!(upgrade(2, "2"), vec![("2", Ok(()))]);
    assert_eq!(locks.release(whole, |held| held.owner == 2), granted("1"));
}

/// A descriptor was closed: the kernel reports later if it was the last one of its open file.
#[test]
fn a_refusal_waits_for_an_open_file_that_is_being_closed() {
    let locks = Locks::default();
    let ask = |owner, name| locks.acquire(RECORD, write(owner, 0, 9), name, None, None);
    let close = |fh| locks.close(RECORD, fh, Instant::now() + Duration::from_secs(3600));
    assert_eq!(ask(1, "1"), granted("1"));
    close(7);
    assert_eq!(ask(2, "2"), refused("2"), "another open file was closed");
    close(1);
    assert_eq!(ask(2, "2"), Ended::new());
    assert!(locks.must_be_retried());
    assert_eq!(locks.retry(), Ended::new());
    assert_eq!(locks.release(RECORD, |held| held.fh == 1), granted("2"));
    assert!(!locks.must_be_retried());
    assert_eq!(ask(3, "3"), refused("3"), "its new holder is open");
}

#[test]
fn a_refusal_waits_a_short_time_only() {
    let locks = Locks::default();
    let ask = |owner, name| locks.acquire(RECORD, read(owner, 0, 9), name, None, None);
    let change = || locks.acquire(RECORD, write(3, 0, 9), "3", None, None);
    let until = Instant::now() + Duration::from_secs(1);
    assert_eq!(ask(1, "1"), granted("1"));
    assert_eq!(ask(2, "2"), granted("2"));
    locks.close(RECORD, 1, until);
    assert_eq!(change(), refused("3"), "the other one is open");
    locks.close(RECORD, 2, until);
    assert_eq!(change(), Ended::new());
    std::thread::sleep(until - Instant::now());
    assert_eq!(locks.retry(), refused("3"));
    assert_eq!(change(), refused("3"), "they were not the last descriptors");
}

#[test]
fn a_range_can_be_given_up_in_the_middle() {
    let locks = Locks::default();
    locks.acquire(RECORD, write(1, 0, 99), "1", None, None);
    locks.acquire(RECORD, lock(1, None, 40, 59), "1", None, None);
    assert_eq!(
        locks.acquire(RECORD, write(2, 40, 59), "2", None, None),
        granted("2")
    );
    for (start, end) in [(39, 39), (60, 60)] {
        let wanted = write(2, start, end);
        assert_eq!(locks.acquire(RECORD, wanted, "2", None, None), refused("2"));
    }
}

#[test]
fn who_waits_is_served_in_order() {
    let locks = Locks::default();
    locks.acquire(RECORD, write(1, 0, 9), "1", None, None);
    let wait = |owner, name| locks.acquire(RECORD, write(owner, 0, 9), name, Some(owner), None);
    assert_eq!(wait(2, "2"), Ended::new());
    assert_eq!(wait(3, "3"), Ended::new());
    assert_eq!(locks.release(RECORD, |held| held.owner == 1), granted("2"));
    assert_eq!(
        locks.acquire(RECORD, lock(2, None, 0, 9), "2", None, None),
        vec![("2", Ok(())), ("3", Ok(()))]
    );
    assert_eq!(locks.release(RECORD, |held| held.fh == 3), Ended::new());
    assert_eq!(locks.used.load(Ordering::Relaxed), 0);
}

#[test]
fn who_is_interrupted_waits_no_more() {
    let locks = Locks::default();
    locks.acquire(RECORD, write(1, 0, 9), "1", None, None);
    locks.acquire(RECORD, write(2, 0, 9), "2", Some(22), None);
    assert_eq!(locks.interrupt(22), Some("2"));
    assert_eq!(locks.release(RECORD, |held| held.owner == 1), Ended::new());
}

#[test]
fn an_interrupt_may_come_first() {
    let locks = Locks::default();
    locks.acquire(RECORD, write(1, 0, 9), "1", None, None);
    assert_eq!(locks.interrupt(22), None);
    assert_eq!(
        locks.acquire(RECORD, write(2, 0, 9), "2", Some(22), None),
        ended("2", Err(Errno::EINTR))
    );
}

#[test]
fn a_circle_of_waiting_is_refused() {
    let locks = Locks::default();
    let wait = |owner, at: u64| {
        let wanted = write(owner, at, at);
        locks.acquire(RECORD, wanted, "", Some(owner * 100 + at), None)
    };
    for owner in 1..=3 {
        assert_eq!(wait(owner, owner), granted(""));
    }
    assert_eq!(wait(1, 2), Ended::new());
    assert_eq!(wait(2, 3), Ended::new());
    assert_eq!(wait(3, 1), ended("", Err(Errno::EDEADLK)));
}

/// Bytes of a small file, with the owners and kinds of the locks of each.
type Model = Vec<Vec<(u64, Kind)>>;

proptest! {
    /// Equals a table with an entry for each byte.
    #[test]
    fn agrees_with_a_lock_for_each_byte(
        calls in prop::collection::vec((0u64..4, 0u8..3, 0u64..16, 0u64..16), 1..60),
    ) {
        let locks = Locks::default();
        let mut model: Model = vec![Vec::new(); 16];
        for (owner, kind, a, b) in calls {
            let (start, end) = (a.min(b), a.max(b));
            let kind = [None, Some(Kind::Read), Some(Kind::Write)][usize::from(kind)];
            let range = start as usize..=end as usize;
            let blocked = kind.is_some_and(|kind| {
                model[range.clone()].iter().flatten().any(|&(other, held)| {
                    other != owner && (kind == Kind::Write || held == Kind::Write)
                })
            });
            let outcome = locks.acquire(RECORD, lock(owner, kind, start, end), "", None, None);
            let expected = if blocked { refused("") } else { granted("") };
            prop_assert_eq!(outcome, expected);
            if !blocked {
                for byte in &mut model[range] {
                    byte.retain(|&(other, _)| other != owner);
                    byte.extend(kind.map(|kind| (owner, kind)));
                }
            }
        }
        for owner in 0..4 {
            locks.release(RECORD, |held| held.owner == owner);
        }
        prop_assert_eq!(locks.used.load(Ordering::Relaxed), 0);
    }
}
