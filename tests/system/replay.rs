//! `flowtrace replay`: the file calls of a script are repeated elsewhere, with the same sums.

use std::fs;
use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, PYTHON, Scratch, need_fuse, run_in};

#[test]
fn the_same_bytes_and_calls_in_a_new_directory() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    let numbers: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    fs::write(work.join("in"), &numbers).unwrap();
    // Two processes write at one position. They are not `cat`, whose copy_file_range(2) does not lock it, so
    // that bytes may get lost.
    let script = "sort -r in > t; mkdir d; mv t d/fin; cat d/fin in > both; head -c 1000 both > d/part; \
                  rm both; mkdir -p e/f; cp in e/f/g; mv e e2; mv e2 d/e3; (sort in & head -c 1000 d/part & wait) > mixed; ln mixed linked; : > empty";
    let recorded = scratch.join("trace.db");
    finish(run_in(&work, &recorded).args(["--", "sh", "-c", script])).expect(0);
    let before = fs::read(work.join("d/fin")).unwrap();

    let into = scratch.join("again");
    let mut replay = Command::new(FLOWTRACE);
    replay.arg("replay").arg(&recorded).arg("--into").arg(&into);
    replay
        .args(["--format", "json", "--trace"])
        .arg(scratch.join("again.db"));
    let report = finish(&mut replay).expect(0);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["failed"], 0, "{report}");
    assert_eq!(report["out_of_order"], 0, "{report}");
    assert_eq!(
        report["played"]["read_bytes"],
        report["recorded"]["read_bytes"]
    );
    assert!(report["left_out"].as_u64().unwrap() > 0, "{report}");
    assert!(
        report["recorded_held"]["cpu_ns"].as_i64().unwrap() > 0,
        "{report}"
    );
    assert!(
        report["played_held"]["cpu_ns"].as_i64().unwrap() > 0,
        "{report}"
    );
    assert_eq!(report["warnings"], serde_json::json!([]), "{report}");
    assert_eq!(
        report["played"]["write_bytes"],
        report["recorded"]["write_bytes"]
    );

    // The second trace has the same sums as the first one, without the files that the replay itself makes
    // before.
    let sum = |trace: &Trace, sql: &str| {
        trace.one::<i64>(&format!("SELECT COALESCE(SUM({sql}), 0) FROM calls"))
    };
    let (first, second) = (
        Trace::open_complete(&recorded),
        Trace::open_complete(&scratch.join("again.db")),
    );
    let read = "CASE WHEN op IN ('read', 'copy_from') AND path LIKE '%/in' THEN result ELSE 0 END";
    assert_eq!(sum(&first, read), sum(&second, read));
    let written =
        "CASE WHEN op IN ('write', 'copy_to') AND path NOT LIKE '%/in' THEN result ELSE 0 END";
    assert_eq!(sum(&first, written), sum(&second, written));
    let of_trace = "path LIKE '%/trace.db%'";
    assert_eq!(
        sum(&second, of_trace),
        0,
        "the trace is no file of the replay"
    );
    for op in ["rename", "unlink", "mkdir", "link"] {
        let count = format!("op = '{op}' AND result >= 0");
        assert_eq!(
            sum(&first, &count),
            sum(&second, &count) - i64::from(op == "mkdir"),
            "{op}"
        );
    }
    assert_eq!(
        fs::metadata(into.join("d/fin")).unwrap().len(),
        before.len() as u64
    );
    assert_eq!(
        fs::metadata(into.join("linked")).unwrap().len(),
        numbers.len() as u64 + 1000
    );
    assert!(!into.join("both").exists() && into.join("empty").exists());
    assert_eq!(
        fs::read(work.join("d/fin")).unwrap(),
        before,
        "the original is as it was"
    );

    // The files of the replay are those of the original, in another directory.
    let mut compare = Command::new(FLOWTRACE);
    compare.arg("compare").arg(&recorded);
    let compared = finish(compare.arg(scratch.join("again.db"))).expect(0);
    let compared = compared.stdout_text();
    assert!(compared.contains("again.db is a replay"), "{compared}");

    // An existing directory is not changed, and neither is an existing trace.
    let mut again = Command::new(FLOWTRACE);
    again.arg("replay").arg(&recorded).arg("--into").arg(&into);
    assert!(
        finish(&mut again)
            .expect(2)
            .stderr
            .contains("name a directory that is not there yet")
    );
    let mut wrong = Command::new(FLOWTRACE);
    wrong
        .arg("replay")
        .arg(&recorded)
        .arg("--into")
        .arg(scratch.join("x"))
        .arg("--trace")
        .arg(&recorded);
    assert!(
        finish(&mut wrong)
            .expect(2)
            .stderr
            .contains("--trace names the new trace")
    );
}

/// A directory that one process made and another uses is made first, and a name is removed when no process
/// needs it any more, however the threads are scheduled.
#[test]
fn names_are_made_and_taken_away_in_order() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    let script = "for n in 1 2 3 4 5 6 7 8; do \
                    (mkdir d$n; touch d$n/ready) & \
                    (until test -e d$n/ready; do sleep .01; done; mkdir d$n/sub; cp $0 d$n/sub/x; touch d$n/done) & \
                    (until test -e d$n/done; do sleep .01; done; cat d$n/sub/x; rm d$n/sub/x; rmdir d$n/sub) & \
                  done; wait; rm -r d*; mkdir d1; touch d1/x";
    let recorded = scratch.join("trace.db");
    let mut run = run_in(&work, &recorded);
    finish(run.args(["--", "bash", "-c", script, "/etc/passwd"])).expect(0);
    for attempt in 0..3 {
        let into = scratch.join(format!("again{attempt}"));
        let mut replay = Command::new(FLOWTRACE);
        replay.args(["replay", "--json"]).arg(&recorded);
        let report = finish(replay.arg("--into").arg(&into)).expect(0);
        let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["failed"], 0, "{report}");
        assert_eq!(report["out_of_order"], 0, "{report}");
        let left = fs::read_dir(&into).unwrap().count();
        assert_eq!((left, into.join("d1/x").exists()), (1, true));
    }
}

/// The exit status reports failed calls, also in `flowtrace replay … | head -1`.
#[test]
fn a_reader_that_is_gone_changes_no_exit_status() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let recorded = scratch.join("trace.db");
    let script = "head -c 100000 /dev/zero > out";
    finish(run_in(&scratch.dir("work"), &recorded).args(["--", "sh", "-c", script])).expect(0);
    // The limit is some blocks of 512 bytes for each file, so the write fails.
    for (limit, code) in [("ulimit -f 4; trap '' XFSZ;", 1), ("", 0)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut replay = Command::new("sh");
        replay.args(["-c", &format!("{limit} exec \"$@\""), "sh", FLOWTRACE]);
        replay.arg("replay").arg(&recorded);
        replay
            .arg("--into")
            .arg(scratch.join(format!("into{code}")));
        let output = replay.stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.status.code(), Some(code));
    }
}

/// Open files are not names: a file may be open twice, have no name yet, or be of a kind that cannot be read.
#[test]
fn what_is_open_twice_has_no_name_or_is_no_file_is_played() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    std::os::unix::fs::symlink("nowhere", work.join("old")).unwrap();
    fs::create_dir_all(work.join("tree/below")).unwrap();
    fs::write(work.join("tree/below/x"), "x").unwrap();
    let script = "
import os
def link(file, name):
    os.link('/proc/self/fd/%d' % file, name, src_dir_fd=0, follow_symlinks=True)
a = os.open('f', os.O_RDWR | os.O_CREAT); b = os.open('f', os.O_RDONLY)
os.write(a, b'x' * 100); os.read(b, 50)
os.rename('f', 'g'); os.close(b); os.pwrite(a, b'h', 50); os.remove('g'); os.pwrite(a, b'i', 200)
c = os.dup(a); os.close(a); os.write(c, b'j')
t = os.open('tree', os.O_RDWR | os.O_TMPFILE); os.write(t, b'abc')
link(t, 'one'); link(t, 'two'); os.write(t, b'def')
u = os.open('.', os.O_RDWR | os.O_TMPFILE); os.write(u, b'gone')
os.rename('old', 'old2'); os.remove('old2')
os.symlink('f', 'l'); os.rename('l', 'l2'); os.remove('l2'); os.symlink('f', 'stays')
os.mkfifo('p'); os.rename('p', 'p2'); os.remove('p2'); os.mkfifo('q')
os.rename('tree', 'forest'); print(open('forest/below/x').read()); os.rename('forest/below', 'below')
";
    let recorded = scratch.join("trace.db");
    let mut run = run_in(&work, &recorded);
    // Without a mount a link is not known to have been there before it was renamed.
    run.args(["--layer", "fuse"]);
    finish(run.args(["--", PYTHON, "-S", "-c", script])).expect(0);
    let into = scratch.join("again");
    let mut replay = Command::new(FLOWTRACE);
    replay.args(["replay", "--json"]).arg(&recorded);
    let report = finish(replay.arg("--into").arg(&into));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["failed"], 0, "{report}");
    for counted in ["read_bytes", "write_bytes"] {
        assert_eq!(
            report["played"][counted], report["recorded"][counted],
            "{report}"
        );
    }
    let mut left: Vec<_> = fs::read_dir(&into)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["below", "forest", "one", "q", "stays", "two"]);
    assert_eq!(fs::metadata(into.join("two")).unwrap().len(), 6);
}
