//! A workflow that runs flowtrace itself ends as it does untraced.

use std::path::Path;
use std::process::Command;

use crate::support::process::{Finished, finish};
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{
    FLOWTRACE, Scratch, need_fuse, need_kernel_layer, need_process_tracepoints, need_root, run_in,
};

/// Runs flowtrace ($0) with the other arguments on a command that makes a file and fails, and goes on with
/// both results.
const WORKFLOW: &str =
    "cd work; $0 run \"$@\" -- sh -c 'echo result > made; exit 3'; echo $?; cat made";
const PRINTED: &str = "3\nresult\n";

/// Lets an outer run of `directory`, which contains `work`, run an inner one.
fn nested(outer: &[&str], inner: &[&str], scratch: &Scratch) -> Finished {
    let directory = scratch.dir("outer");
    scratch.dir("outer/work");
    let mut command = run_in(&directory, &scratch.join("outer.db"));
    command
        .args(outer)
        .args(["--", "sh", "-c", WORKFLOW, FLOWTRACE]);
    finish(command.args(inner)).expect(0)
}

/// Modes of a run as root, without those that are not available here.
fn modes() -> Vec<&'static [&'static str]> {
    let mut modes: Vec<&[&str]> = vec![
        &[],
        &["--layer", "fuse"],
        &["--ptrace"],
        &["--no-mount", "--ptrace"],
    ];
    if need_process_tracepoints() {
        modes.push(&["--no-ptrace"]);
    }
    if need_kernel_layer() {
        modes.push(&["--layer", "kernel"]);
    }
    modes
}

/// Checks that the trace of an inner run has the traced program and the file that it made.
fn assert_seen(trace: &Path, what: &str) {
    let trace = Trace::open(trace);
    let seen: bool = trace.one(
        "SELECT EXISTS (SELECT * FROM processes WHERE command LIKE '%exit 3%' AND exit_code = 3)
            AND EXISTS (SELECT * FROM files WHERE path LIKE '%/work/made' AND kind = 'file')",
    );
    assert!(seen, "{what}");
}

#[test]
fn each_mode_runs_in_each() {
    if !(need_root() && need_fuse()) {
        return;
    }
    for outer in modes() {
        for inner in modes() {
            let scratch = Scratch::new();
            let trace = scratch.join("inner.db");
            let mut options = vec!["--quiet", "-o", trace.to_str().expect("a plain path")];
            options.extend(inner);
            let finished = nested(outer, &options, &scratch);
            let what = format!("{inner:?} in {outer:?}");
            assert_eq!(finished.stdout_text(), PRINTED, "{what}");
            assert_eq!(finished.stderr, "", "{what}");
            assert_seen(&trace, &what);
            assert_seen(&scratch.join("outer.db"), &what);
        }
    }
}

#[test]
fn an_inner_run_reports_that_it_mounts_nothing_twice() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let trace = scratch.join("inner.db");
    let trace = trace.to_str().expect("a plain path");
    let options = ["--no-summary", "--layer", "fuse", "-o", trace];
    let finished = nested(&["--layer", "fuse"], &options, &scratch);
    assert_eq!(finished.stdout_text(), PRINTED);
    let notices: Vec<&str> = finished.stderr.lines().collect();
    let said = |notice: &&str| notice.contains("no second mount is made");
    assert_eq!(
        notices.iter().filter(|notice| said(notice)).count(),
        1,
        "{notices:?}"
    );
}

/// Outer and inner run name the same trace: it stays that of the outer run.
#[test]
fn the_trace_of_the_outer_run_is_not_replaced() {
    if !need_fuse() {
        return;
    }
    for outer in [&[] as &[_], &["--layer", "fuse"], &["--ptrace"]] {
        for force in [&[] as &[&str], &["--force"]] {
            let scratch = Scratch::new();
            let trace = scratch.join("outer/work/trace.db");
            scratch.dir("outer/work");
            let mut command = run_in(&scratch.join("outer"), &trace);
            command
                .args(outer)
                .args(["--", "sh", "-c", WORKFLOW, FLOWTRACE]);
            let finished = finish(command.arg("--no-summary").args(force)).expect(0);
            assert_eq!(finished.stdout_text(), PRINTED, "{outer:?} {force:?}");
            let said = finished
                .stderr
                .matches("is the trace of an outer run")
                .count();
            assert_eq!(said, 1, "{}", finished.stderr);
            assert_seen(&trace, &format!("{outer:?} {force:?}"));
        }
    }
}

#[test]
fn an_ordinary_user_may_nest_runs() {
    if !need_fuse() {
        return;
    }
    for outer in [&[] as &[&str], &["--no-mount"], &["--no-ptrace"]] {
        for inner in [
            &[] as &[&str],
            &["--no-mount"],
            &["--no-ptrace"],
            &["--ptrace"],
        ] {
            let scratch = Scratch::new();
            let user = User::new(&scratch);
            let mut make = user.command("mkdir");
            finish(make.arg("work")).expect(0);
            let mut command = user.command(&user.flowtrace);
            command.args(["run", "-q", "-o", "outer.db"]).args(outer);
            command
                .args(["--", "sh", "-c", WORKFLOW])
                .arg(&user.flowtrace);
            command.args(["-q", "-o"]).arg(user.home.join("inner.db"));
            let finished = finish(command.args(inner)).expect(0);
            assert_eq!(finished.stdout_text(), PRINTED, "{inner:?} in {outer:?}");
            assert_eq!(finished.stderr, "", "{inner:?} in {outer:?}");
        }
    }
}

/// A directory served by a mount session is not mounted a second time either.
#[test]
fn a_run_in_a_mount_works() {
    let Some(mounted) = crate::mount::Mount::open() else {
        return;
    };
    let trace = mounted.trace.with_file_name("run.db");
    let mut command = Command::new(FLOWTRACE);
    command
        .args(["run", "--no-summary", "--layer", "fuse", "-o"])
        .arg(&trace);
    command.args(["--", "sh", "-c", "echo result > made; cat made"]);
    let finished = finish(command.current_dir(&mounted.point)).expect(0);
    assert_eq!(finished.stdout_text(), "result\n");
    assert!(
        finished.stderr.contains("no second mount"),
        "{}",
        finished.stderr
    );
    finish(&mut mounted.unmount()).expect(0);
}
