//! The program and arguments of an image are exactly those at its exec.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::process::finish;
use crate::support::programs::program;
use crate::support::trace::Trace;
use crate::support::{Scratch, need_fuse, need_process_tracepoints, need_root, run_in, skip};

use super::Stage;

/// `command` of the last image, and its exact arguments where they are not UTF-8.
fn last(trace: &Trace) -> (String, Vec<Vec<u8>>) {
    let last = "(SELECT MAX(upid) FROM process)";
    let command: String = trace.one(&format!(
        "SELECT command FROM processes WHERE upid = {last}"
    ));
    let raw = trace.blobs(&format!(
        "SELECT argv_raw FROM process WHERE argv_raw IS NOT NULL
         AND upid = (SELECT COALESCE(command_upid, upid) FROM process WHERE upid = {last})"
    ));
    (command, raw)
}

#[test]
fn arguments_are_kept_byte_by_byte() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["odd-arguments", "empty"], 3);
    assert_eq!(
        last(&played.trace),
        ("'' exit 3 '' 'a b'".into(), Vec::new())
    );

    let played = stage.play(&["odd-arguments", "bytes"], 3);
    let (command, raw) = last(&played.trace);
    assert!(
        command.contains('\u{fffd}') && command.contains("café"),
        "{command}"
    );
    let exact = [
        played.program.as_bytes(),
        b"exit",
        b"3",
        b"\xff\xfe",
        "café".as_bytes(),
        b"",
    ];
    assert_eq!(raw, [exact.join(&0)]);

    let played = stage.play(&["odd-arguments", "huge"], 3);
    let (command, _) = last(&played.trace);
    // There are 21 of them, of which one fits into the stored length.
    let arguments: Vec<&str> = command.split(' ').skip(3).collect();
    assert_eq!(arguments, ["d".repeat(100_000).as_str(), "…"]);
}

/// Each of many programs gets 1.6 MB of arguments: the first 128 KiB are stored, and only once.
#[test]
fn long_arguments_take_space_once() {
    if !need_fuse() {
        return;
    }
    const SCRIPT: &str = "set -- $(seq -f %0100.0f 15000)
        for n in 1 2 3 4 5 6 7 8 9 10 11 12; do /bin/true \"$@\"; done";
    for options in [&[][..], &["--ptrace"], &["--no-ptrace"]] {
        let scratch = Scratch::new();
        let path = scratch.join("trace.db");
        let mut run = run_in(&scratch.dir("job"), &path);
        finish(run.args(options).args(["--", "sh", "-c", SCRIPT])).expect(0);
        let trace = Trace::open(&path);
        let cut: i64 = trace.one(
            "SELECT COUNT(*) FROM processes WHERE command LIKE '/bin/true 00% …'
             AND LENGTH(command) BETWEEN 130000 AND 131072",
        );
        let counted: i64 =
            trace.one("SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'arguments_cut'");
        // Without ptrace and eBPF programs, short programs are missed.
        let is_all = options != ["--no-ptrace"] || need_root() && need_process_tracepoints();
        assert!(
            cut == counted && (cut == 12 || !is_all),
            "{options:?}: {cut}, {counted}"
        );
        let stored: i64 = trace.one("SELECT SUM(LENGTH(command)) FROM process");
        assert!(stored < 2 * 131_072, "{options:?}: {stored}");
        let dropped: i64 =
            trace.one("SELECT COUNT(*) FROM losses WHERE counter = 'events_dropped'");
        assert_eq!(dropped, 0, "{options:?}");
    }
}

/// A title that a process gives itself later does not change its command.
#[test]
fn a_changed_title_changes_nothing() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["odd-arguments", "renamed"], 3);
    let commands = played
        .trace
        .rows("SELECT command, exit_code FROM processes WHERE upid > 1");
    let ran = format!("{} rename-yourself", played.program);
    assert_eq!(commands, [[ran.clone(), "3".into()], [ran, "0".into()]]);
}

#[test]
fn an_exec_that_fails_is_a_life_without_it() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["exec-missing"], 0);
    let images = played.images_of(played.said("pid"));
    assert_eq!(images.len(), 1, "{images:?}");
    assert_eq!(
        (images[0].origin.as_str(), images[0].exit_code),
        ("fork", Some(127))
    );
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A script is recorded as its interpreter with the script's name, even if a library had to find the
/// interpreter.
#[test]
fn scripts_are_named() {
    let Some(stage) = Stage::new() else { return };
    let job = stage.scratch.dir("job");
    script(&job.join("with"), "#!/bin/sh -e\nexit 4\n");
    script(&job.join("without"), "exit 5\n");
    let played = stage.shell("./with; env ./without; bash -c './without; exit 0'", 0);
    let rows = played.trace.rows(
        "SELECT command, exit_code FROM processes
         WHERE origin = 'exec' AND exit_code > 0 ORDER BY upid",
    );
    assert_eq!(rows[0], ["/bin/sh -e ./with", "4"]);
    assert_eq!(rows[1], ["/bin/sh ./without", "5"]);
    // bash itself runs a script without a first line, in a process without an exec.
    assert_eq!(played.count("origin = 'fork' AND exit_code = 5"), 1);
}

#[test]
fn static_programs_are_no_different() {
    let Some(stage) = Stage::new() else { return };
    let Some(program) = program("lifetimes", &["-static"]) else {
        return;
    };
    let mut command = stage.run(&[]);
    command.arg(&program).args(["storm", "vfork", "20"]);
    let played = stage.finish(&mut command, 0);
    assert_eq!(played.count("origin = 'exec' AND parent_upid = 1"), 20);
}

#[test]
fn programs_of_32_bits_are_no_different() {
    let Some(stage) = Stage::new() else { return };
    if !cfg!(target_arch = "x86_64") {
        return skip("32-bit programs are those of x86");
    }
    let options = ["-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie"];
    let Some(program) = program("small", &options) else {
        return;
    };
    if finish(&mut std::process::Command::new(&program)).code() != 6 {
        return skip("this kernel runs no 32-bit programs");
    }
    let mut command = stage.run(&[]);
    let played = stage.finish(command.arg(&program), 6);
    let ends = played
        .trace
        .rows("SELECT exit_code FROM processes ORDER BY upid");
    assert_eq!(ends, [["6"], ["5"]]);
}
