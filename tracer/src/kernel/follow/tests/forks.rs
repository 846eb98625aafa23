//! What other threads do with descriptors while a fork copies them.

use super::*;

/// The table is copied at some time before the fork is told.
#[test]
fn what_another_thread_changes_during_a_fork_is_not_guessed() {
    const CHILD: u32 = 5_000_000;
    for (by, expected) in [(ROOT, 1), (11, 0)] {
        let mut stage = Stage::new();
        stage.change(Change::Thread(tracee(11, ROOT, 1)));
        stage.open(ROOT, 5, 3, libc::O_RDONLY);
        stage.call(by, libc::SYS_close, &[3], 0);
        stage.open(by, 6, 3, libc::O_RDONLY);
        stage.change(Change::Forked {
            by: ROOT,
            thread: ROOT,
            child: tracee(CHILD, CHILD, 2),
            shares: false,
        });
        stage.read(CHILD, 3, 10);
        assert_eq!(stage.rows().len(), expected);
        let lost = stage.follower.losses(Dropped::default())[4].1;
        assert_eq!(lost, 1 - expected as u64);
        stage.read(ROOT, 3, 10);
        assert_eq!(stage.rows()[0].2, 6);
    }
    let mut stage = Stage::new();
    stage.change(Change::Thread(tracee(11, ROOT, 1)));
    stage.enter(11, libc::SYS_openat, [0; 6]);
    stage.change(Change::Forked {
        by: ROOT,
        thread: ROOT,
        child: tracee(CHILD, CHILD, 2),
        shares: false,
    });
    stage.read(ROOT, 7, 1);
    stage.exit(11, libc::SYS_openat, 4);
    stage.read(CHILD, 4, 10);
    assert_eq!(stage.follower.losses(Dropped::default())[4].1, 1);
}

/// Nor does what others did before the maker took the descriptor, or long before it began to fork, matter.
#[test]
fn what_another_thread_did_before_a_fork_is_over() {
    const CHILD: u32 = 5_000_000;
    let forked = || Change::Forked {
        by: ROOT,
        thread: ROOT,
        child: tracee(CHILD, CHILD, 2),
        shares: false,
    };
    for is_own in [true, false] {
        let mut stage = Stage::new();
        stage.change(Change::Thread(tracee(11, ROOT, 1)));
        stage.open(11, 5, 3, libc::O_RDONLY);
        if is_own {
            stage.call(11, libc::SYS_close, &[3], 0);
            stage.open(ROOT, 6, 3, libc::O_RDONLY);
        } else {
            stage.at += 20_000_000;
        }
        stage.enter(ROOT, libc::SYS_clone, [0; 6]);
        stage.at += 50_000_000;
        stage.change(forked());
        stage.read(CHILD, 3, 10);
        assert_eq!(stage.rows().len(), 1, "{is_own}");
        assert_eq!(stage.follower.losses(Dropped::default())[4].1, 0);
    }
    let mut stage = Stage::new();
    stage.change(Change::Thread(tracee(11, ROOT, 1)));
    stage.open(ROOT, 6, 3, libc::O_RDONLY);
    stage.enter(ROOT, libc::SYS_clone, [0; 6]);
    stage.call(11, libc::SYS_close, &[3], 0);
    stage.at += 50_000_000;
    stage.change(forked());
    stage.read(CHILD, 3, 10);
    assert_eq!(stage.rows(), [], "while it forked");
}
