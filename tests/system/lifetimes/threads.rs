//! Threads: execs by any of them, ends in any order.

use super::Stage;

/// One process with two images, no end in between, and the exit code is that of the second.
#[test]
fn an_exec_by_another_thread_is_one_process() {
    let Some(stage) = Stage::new() else { return };
    for scene in [
        ["threaded-exec", "20"],
        ["threaded-exec", "1000"],
        ["threaded-exec-without-leader", "20"],
    ] {
        let played = stage.play(&scene, 7);
        let images = played.trace.images();
        assert_eq!(images.len(), 2, "{scene:?}: {images:#?}");
        assert_eq!(images[1].command, format!("{} exit 7", played.program));
        assert_eq!(images[1].previous, Some(images[0].upid));
        assert_eq!(images[1].exit_code, Some(7));
        let threads: i64 = scene[1].parse().unwrap();
        let lived: i64 = played
            .trace
            .one("SELECT threads FROM processes WHERE upid = 1");
        assert_eq!(
            lived,
            threads + 2,
            "leader, waiting threads, and the one that execs"
        );
        // Threads other than the leader have rows, each ended by the exec at the latest.
        let rows: i64 = played.trace.one(
            "SELECT COUNT(*) FROM threads JOIN processes AS p USING (upid)
             WHERE upid = 1 AND threads.end_ns BETWEEN threads.start_ns AND p.end_ns
               AND threads.start_ns >= p.start_ns",
        );
        assert_eq!(rows, threads + 1, "{scene:?}");
        // The row of the first thread, which ends because of the exec, has the leader's number by then, and
        // may end shortly before the exec.
        let by = played.said("exec_by");
        let of_it: i64 = played.trace.one(&format!(
            "SELECT COUNT(*) FROM threads JOIN processes AS p USING (upid)
             WHERE tid = {by} AND p.end_ns - threads.end_ns BETWEEN 0 AND 50000000"
        ));
        assert_eq!(of_it, 1, "the thread that became the process");
        // Each thread lives once.
        let too_much: i64 = played.trace.one(
            "SELECT thread_ns - duration_ns
                 - (SELECT SUM(end_ns - start_ns) FROM threads WHERE upid = 1)
             FROM processes WHERE upid = 1",
        );
        assert!(too_much < 5_000_000, "{scene:?}: {too_much}");
    }
}

/// The end of a process is that of its last thread, and the work of all of its threads counts.
#[test]
fn the_leader_may_leave_first() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["leader-first"], 5);
    let images = played.trace.images();
    assert_eq!(images.len(), 1, "{images:#?}");
    let row = &played.trace.rows(
        "SELECT on_cpu_ns, user_ns + sys_ns, write_bytes, write_calls, threads, end_ns,
           (SELECT MAX(end_ns) FROM threads) FROM processes",
    )[0];
    let number = |i: usize| row[i].parse::<i64>().unwrap();
    assert!(number(0) >= 300_000_000, "CPU of both workers: {row:?}");
    assert!(
        number(1) >= 280_000_000,
        "user and system time of both workers: {row:?}"
    );
    assert_eq!((number(2), number(3)), (2_000_000, 2000), "{row:?}");
    assert_eq!(number(4), 3, "{row:?}");
    assert!(
        number(5) >= number(6),
        "the process ends with its last thread: {row:?}"
    );
}

#[test]
fn a_thousand_threads_come_and_go() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["thread-storm", "1000"], 0);
    let rows: i64 = played
        .trace
        .one("SELECT COUNT(*) FROM threads WHERE end_ns IS NOT NULL AND upid = 1");
    assert_eq!(rows, 1000);
    let lived: i64 = played.trace.one("SELECT threads FROM processes");
    assert_eq!(lived, 1001);
}

/// Clones and forks whose makers end by an exec or exit before they can report them, four at a time: the more
/// CPUs are busy, the more new tasks stop before their makers report them.
#[test]
fn execs_and_exits_in_the_middle_of_clones() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.shell(
        "for n in 1 2 3 4; do \"$0\" exec-while-cloning 40 & all=\"$all $!\"; done; for one in $all; do wait $one || exit; done",
        0,
    );
    let program = &played.program;
    assert_eq!(
        played.count(&format!("origin = 'exec' AND command = '{program} exit 0'")),
        80
    );
    let parentless = played.count("parent_upid IS NULL AND upid <> 1");
    assert_eq!(parentless, 0, "processes whose parent is not known");
}
