//! Parents of processes, when parents have ended and pids are reused.

use std::process::Command;

use crate::support::process::start;
use crate::support::trace::Trace;
use crate::support::{need_kernel_layer, need_root};

use super::{LIMIT, Stage};

/// Daemons are followed until they end, and keep their original parent.
#[test]
fn a_daemon_is_followed_to_its_end() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["daemonize", "400"], 12);
    let middle = &played.images_of(played.said("middle"))[0];
    let daemon = &played.images_of(played.said("daemon"))[0];
    assert_eq!(middle.parent, Some(1));
    assert_eq!(daemon.parent, Some(middle.upid));
    assert_eq!((middle.exit_code, daemon.exit_code), (Some(10), Some(11)));
    assert!(daemon.end_ns > played.first().end_ns, "{daemon:?}");
    let life = daemon.end_ns.unwrap() - daemon.start_ns.unwrap();
    assert!(life >= 400_000_000, "{daemon:?}");
}

/// The process that reaps an orphan is not its parent.
#[test]
fn a_subreaper_is_not_the_parent() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["subreaper"], 0);
    let middle = &played.images_of(played.said("middle"))[0];
    let orphan = &played.images_of(played.said("orphan"))[0];
    assert_eq!(orphan.parent, Some(middle.upid));
    assert_eq!(orphan.exit_code, Some(21));
}

/// With `CLONE_PARENT` the kernel's parent of a process is not its maker; the trace has the maker.
#[test]
fn a_sibling_is_the_child_of_its_maker() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["sibling"], 0);
    let maker = &played.images_of(played.said("maker"))[0];
    let sibling = &played.images_of(played.said("sibling"))[0];
    assert_eq!((maker.parent, sibling.parent), (Some(1), Some(maker.upid)));
    assert_eq!((maker.exit_code, sibling.exit_code), (Some(22), Some(23)));
}

/// SIGKILL ends a process in the very stop in which it would have reported its child.
#[test]
fn children_of_makers_that_are_killed() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["kill-makers", "150"], 0);
    assert_eq!(played.count("parent_upid = 1 AND exit_signal = 9"), 150);
    // The children of those processes, and no others, end with 0, unless they never ran.
    let made = played.count("parent_upid <> 1 AND (exit_code = 0 OR exit_signal = 9)");
    assert!(made > 150, "only {made} grandchildren");
    assert_eq!(played.count("TRUE"), 1 + 150 + made);
    assert_eq!(played.count("parent_upid IS NULL"), 1);
}

/// One pid, many processes: each life is a process of its own.
#[test]
fn pids_come_back() {
    let Some(stage) = Stage::new() else { return };
    if !need_root() {
        return;
    }
    // flowtrace itself runs in the namespace: the pids that it sees must be reused.
    let run = stage.run(&[]);
    let mut command = Command::new("unshare");
    command
        .args(["-p", "-f", "--mount-proc"])
        .arg(run.get_program())
        .args(run.get_args());
    command.current_dir(stage.scratch.dir("job"));
    command.arg(&stage.program).args(["reuse-pids", "600"]);
    let finished = start(&mut command).wait(LIMIT).expect(0);
    let same = finished.stdout_text();
    let same: i64 = same.trim().strip_prefix("same ").unwrap().parse().unwrap();
    assert!(
        same > 300,
        "only {same} of 600 processes had the pid of the one before"
    );
    let trace = Trace::open_complete(&stage.trace_path());
    let wrong: i64 = trace.one(
        "SELECT COUNT(*) FROM processes WHERE parent_upid = 1 AND exit_code IS NOT (upid - 2) % 251",
    );
    assert_eq!(wrong, 0);
    let children: i64 = trace.one("SELECT COUNT(*) FROM processes WHERE parent_upid = 1");
    assert_eq!(children, 600);
    let overlaps: i64 = trace.one(
        "SELECT COUNT(*) FROM processes AS a JOIN processes AS b
           ON a.pid = b.pid AND a.upid < b.upid AND a.end_ns > b.start_ns",
    );
    assert_eq!(overlaps, 0, "two processes of one pid at a time");
}

/// The pid of a reaped process is reused at once, while ends of processes are reported in no particular
/// order.
#[test]
fn a_number_that_comes_back_at_once() {
    let Some(stage) = Stage::new() else { return };
    if !need_root() {
        return;
    }
    let mut ways = vec![&[][..], &["--ptrace"], &["--no-mount"]];
    if need_kernel_layer() {
        ways.push(&["--layer", "kernel"]);
    }
    for way in ways {
        let _ = std::fs::remove_dir_all(stage.scratch.join("job"));
        let mut command = stage.run(way);
        command.arg(&stage.program).args(["number-again", "200"]);
        let played = stage.finish(&mut command, 0);
        let number = played.said("number");
        assert_eq!(played.count(&format!("pid = {number}")), 201, "{way:?}");
        let again: i64 = played.trace.one(&format!(
            "SELECT COUNT(*) FROM (SELECT exit_code, (ROW_NUMBER() OVER (ORDER BY upid) - 2) % 251 AS nth
               FROM processes WHERE pid = {number}) WHERE exit_code = MAX(nth, 0)"
        ));
        assert_eq!(again, 201, "exit codes, {way:?}");
        let made = "SELECT COUNT(*) FROM calls WHERE op = 'create' AND path LIKE '%/again.%'";
        assert_eq!(played.trace.one::<i64>(made), 200, "{way:?}");
    }
}

/// In a pid namespace without a /proc of its own, every pid in /proc belongs to another process.
#[test]
fn a_foreign_proc_is_refused() {
    let Some(stage) = Stage::new() else { return };
    if !need_root() {
        return;
    }
    let run = stage.run(&[]);
    let mut command = Command::new("unshare");
    command
        .args(["-p", "-f"])
        .arg(run.get_program())
        .args(run.get_args())
        .arg("true");
    let finished = start(command.current_dir(&*stage.scratch))
        .wait(LIMIT)
        .expect(125);
    assert!(
        finished.stderr.contains("--mount-proc"),
        "{}",
        finished.stderr
    );
}
