//! The effects of `--dir`, `--fidelity`, `--stat`, `--include` and `--exclude` on a trace.

use std::path::Path;
use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{
    FLOWTRACE, PYTHON, Scratch, need_fuse, need_python, need_root, run_in, unwrapped,
};

/// Runs `script` with `options` in a directory with a file of 1 MiB named `data`.
fn traced(options: &[&str], script: &str) -> Option<(Scratch, Trace)> {
    if !need_fuse() {
        return None;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    std::fs::write(job.join("data"), vec![7; 1 << 20]).unwrap();
    let mut command = run_in(&job, &scratch.join("trace.db"));
    command.args(options).args(["--", "sh", "-ec", script]);
    finish(&mut command).expect(0);
    let trace = Trace::open_complete(&scratch.join("trace.db"));
    Some((scratch, trace))
}

const READ_TWICE: &str = "dd if=data of=copy bs=64k 2> /dev/null; dd if=data of=copy bs=64k 2> /dev/null; stat data data data > /dev/null";

#[test]
fn exact_sees_every_read_and_cached_what_the_cache_lacks() {
    let reads = "SELECT fidelity, SUM(result) FROM calls WHERE op = 'read' AND path LIKE '%/data'
        GROUP BY fidelity";
    let Some((_scratch, exact)) = traced(&[], READ_TWICE) else {
        return;
    };
    assert_eq!(exact.rows(reads), [["exact", "2097152"]]);
    let Some((_scratch, cached)) = traced(&["--fidelity", "cached"], READ_TWICE) else {
        return;
    };
    assert_eq!(cached.rows(reads), [["cached", "1048576"]]);
    let written = "SELECT fidelity, SUM(result) FROM calls WHERE op = 'write' GROUP BY fidelity";
    assert_eq!(cached.rows(written), [["exact", "2097152"]]);
    let layer: String = cached.one("SELECT file_layer FROM runs");
    assert_eq!(layer, "cached");
}

#[test]
fn repeated_stats_are_seen_unless_the_kernel_may_answer() {
    let lookups = "SELECT COUNT(*) FROM calls WHERE op IN ('lookup', 'getattr')
        AND path LIKE '%/data'";
    let Some((_scratch, exact)) = traced(&["--fidelity", "cached", "--stat", "exact"], READ_TWICE)
    else {
        return;
    };
    let Some((_scratch, cached)) = traced(&["--stat", "cached"], READ_TWICE) else {
        return;
    };
    let (exact, cached): (i64, i64) = (exact.one(lookups), cached.one(lookups));
    assert!(exact >= 5, "{exact} of five opens and stats");
    assert!(cached < exact, "{cached} of {exact}");
}

#[test]
fn patterns_choose_what_is_recorded_and_the_rest_is_counted() {
    let script = "mkdir sub; cp data sub/a.fits; cp data b.fits; cp data sub/a.log; cat sub/a.log \
        > /dev/null; mv b.fits sub/c.fits; rm sub/a.log";
    let options = ["--include", "*.fits", "--exclude", "./b.*"];
    let Some((scratch, trace)) = traced(&options, script) else {
        return;
    };
    let path = |name: &str| scratch.join(name).display().to_string();
    let named = "SELECT DISTINCT path FROM calls WHERE result >= 0 ORDER BY path";
    assert_eq!(trace.rows(named), [[path("job/sub/a.fits")]]);
    let written = "SELECT SUM(result) FROM calls WHERE op IN ('write', 'copy_to')";
    assert_eq!(trace.one::<i64>(written), 1 << 20);
    let excluded = "SELECT value FROM losses WHERE counter = 'excluded_calls'";
    assert!(trace.one::<i64>(excluded) > 10);
    // Calls that are not recorded worked all the same.
    assert_eq!(
        std::fs::metadata(scratch.join("job/sub/c.fits"))
            .unwrap()
            .len(),
        1 << 20
    );
}

#[test]
fn patterns_with_a_slash_begin_in_the_traced_directory() {
    let script =
        "mkdir -p sub/deep other/sub; for d in sub sub/deep other/sub; do echo x > $d/a; done
        cat sub/a sub/deep/a other/sub/a > copy";
    for pattern in ["sub/**", "./sub", "sub/", "/**/job/sub/*"] {
        let Some((scratch, trace)) = traced(&["--include", pattern, "--exclude", "other"], script)
        else {
            return;
        };
        let read =
            "SELECT DISTINCT path FROM calls WHERE op = 'open' AND (flags & 3) = 0 ORDER BY path";
        let path = |name: &str| vec![scratch.join(name).display().to_string()];
        let expected = [path("job/sub/a"), path("job/sub/deep/a")];
        assert_eq!(trace.rows(read), expected, "{pattern}");
    }
}

#[test]
fn a_pattern_that_is_none_is_refused() {
    let scratch = Scratch::new();
    for (pattern, reason) in [("[", "unclosed"), ("", "empty")] {
        let mut command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
        command.args(["--include", pattern, "--", "true"]);
        let said = finish(&mut command).expect(125).stderr;
        assert!(
            said.contains("--include") && said.contains(reason),
            "{said}"
        );
    }
}

/// A program that stores through a mapping may get no error for a full disk; the trace records it.
#[test]
fn pages_that_a_full_disk_refuses_are_a_loss() {
    if !(need_fuse() && need_root() && need_python("mmap")) {
        return;
    }
    let scratch = Scratch::new();
    let (small, trace) = (scratch.dir("small"), scratch.join("trace.db"));
    let store = "import mmap, os
f = os.open('mapped', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 4 << 20)
m = mmap.mmap(f, 4 << 20); os.close(f); m[:] = b'x' * (4 << 20); m.close()";
    // In a mount namespace of its own, so that nothing stays mounted.
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" && cd \"$1\" || exit 99
        exec \"$2\" run --quiet --fidelity cached -o \"$3\" -- \"$4\" -c \"$5\"";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([small.as_os_str(), FLOWTRACE.as_ref(), trace.as_os_str()])
        .args([PYTHON, store]);
    finish(&mut command);
    let refused = "SELECT COALESCE(SUM(value), 0) FROM losses
        WHERE counter = 'writeback_refused' AND severity = 'data_loss'";
    assert!(Trace::open(&trace).one::<i64>(refused) > 0);
    let mut summary = Command::new(FLOWTRACE);
    let summary = finish(summary.arg("summary").arg(&trace)).expect(0);
    let text = unwrapped(&summary.stdout_text());
    assert!(text.contains("the real filesystem refused"), "{text}");
}

#[test]
fn two_directories_are_one_trace() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (one, other) = (scratch.dir("one"), scratch.dir("other"));
    let mut command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    let script = "echo x > ../one/a; cp ../one/a ../other/b; cat ../other/b > outside";
    command
        .args(["--layer", "fuse", "--dir", "../one", "--dir"])
        .arg(&other);
    command.args(["--", "sh", "-c", script]);
    finish(&mut command).expect(0);
    let trace = Trace::open_complete(&scratch.join("trace.db"));
    let written = "SELECT path FROM files JOIN file_access USING (file_id)
        WHERE relation = 'create' AND coverage = 'exact' ORDER BY path";
    let path = |directory: &Path, name: &str| vec![directory.join(name).display().to_string()];
    assert_eq!(trace.rows(written), [path(&one, "a"), path(&other, "b")]);
}

/// With the root directory traced, programs, libraries and configuration are seen; devices, sockets and FIFOs
/// behave as without tracing.
#[test]
fn the_root_directory_stands_for_all() {
    if !(need_fuse() && need_root()) {
        return;
    }
    let scratch = Scratch::new();
    let mut command: Command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    let script = "head -c 8 /dev/urandom > random; echo x > /dev/null; cat /proc/self/stat > stat
        mkfifo pipe; cat pipe > through & echo 'by pipe' > pipe; wait; cat through
        ls /etc > /dev/null; cat /etc/passwd > copy";
    command.args(["--dir", "/", "--", "sh", "-ec", script]);
    let finished = finish(&mut command).expect(0);
    assert_eq!(finished.stdout_text(), "by pipe\n");
    let trace = Trace::open_complete(&scratch.join("trace.db"));
    let seen = |sql: &str| trace.one::<i64>(sql) > 0;
    assert!(seen(
        "SELECT COUNT(*) FROM calls WHERE op = 'read' AND path = '/etc/passwd'"
    ));
    assert!(seen(
        "SELECT COUNT(*) FROM calls WHERE op = 'open' AND path LIKE '/usr/%/libc.so.6'"
    ));
    assert!(seen(
        "SELECT COUNT(*) FROM files WHERE path LIKE '%/job/pipe' AND kind = 'fifo'"
    ));
    assert!(!seen(
        "SELECT COUNT(*) FROM files WHERE path LIKE '/proc/%' OR path LIKE '/dev/%'"
    ));
}
