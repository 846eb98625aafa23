//! A pipeline in which every stage waits for the compressor.

use super::{Traced, inodes};
use crate::support::{PYTHON, need_fuse, need_program, prints};

#[test]
fn the_compressor_is_the_blocker() {
    if !need_fuse() || !need_program("gzip") {
        return;
    }
    let run = Traced::shell(
        "yes | (echo 1 $(readlink /proc/self/fd/0) >&2; exec head -c 300M) |
         (echo 2 $(readlink /proc/self/fd/0) >&2; exec 3>&1
          echo 3 $(readlink /proc/self/fd/3) >&2; exec gzip -1 3>&-) | wc -c",
    );
    // The stages print as they start, in any order, and the numbers of pipes do not always grow.
    let pipe = |number: &str| {
        let mut lines = run.finished.stderr.lines();
        let line = lines.find(|line| line.starts_with(number));
        let inode = line.and_then(|line| inodes(line).pop());
        inode.unwrap_or_else(|| panic!("{}", run.finished.stderr))
    };
    let (first, second, third) = (&pipe("1 "), &pipe("2 "), &pipe("3 "));
    let trace = &run.trace;
    let waited = |command: &str, inode: &str| {
        trace.sampled_ms(command, &format!("reason = 'channel' AND object = {inode}"))
    };
    let (yes, head, wc) = (
        waited("yes", first),
        waited("head%", second),
        waited("wc%", third),
    );
    let gzip = waited("gzip%", second) + waited("gzip%", third);
    let all = || trace.all_samples();
    for (name, time) in [("yes", yes), ("head", head), ("wc", wc)] {
        assert!(
            time > gzip,
            "{name} waited {time} ms, gzip {gzip}\n{}",
            all()
        );
    }
    // On a busy machine gzip waits for the others, too, whenever they wait for a CPU, and samples find it in
    // its queue. But it wants a CPU most of all stages, and has it most of all, which is exact.
    let computed = |command: &str| {
        trace.one::<i64>(&format!(
            "SELECT SUM(on_cpu_ns) / 1000000 FROM processes WHERE command LIKE '{command}'"
        ))
    };
    let busy = |command: &str| trace.sampled_ms(command, "s.state IN ('running', 'runnable')");
    for other in ["yes", "head%", "wc%"] {
        for (what, gzip, other) in [
            ("computed", computed("gzip%"), computed(other)),
            ("was busy", busy("gzip%"), busy(other)),
        ] {
            assert!(
                gzip > other,
                "gzip {what} {gzip} ms, another {other}\n{}",
                all()
            );
        }
    }
    if trace.knows_channels() {
        let waiters = trace.rows(
            "SELECT p.command FROM waits AS w JOIN processes AS p USING (upid)
             JOIN processes AS q ON q.upid = w.counterpart_upid
             WHERE q.command = 'gzip -1' AND w.reason = 'channel'
             GROUP BY p.command HAVING SUM(w.overlap_ns) > 100000000 ORDER BY 1",
        );
        assert_eq!(
            waiters,
            [["head -c 300M"], ["wc -c"]],
            "wait for gzip\n{}",
            all()
        );
    }
}

/// A wrapper in Python reads more files than the stage that it execs; the pipeline still consists of the
/// stages.
#[test]
fn stages_behind_a_wrapper_are_stages() {
    if !need_fuse() {
        return;
    }
    let stage = "import sys, time
def compute(ms):
    end = time.process_time() + ms / 1000
    while time.process_time() < end: pass
ms = float(sys.argv[2])
if sys.argv[1] == 'first':
    for _ in range(60):
        compute(ms); sys.stdout.write('x' * 16384)
else:
    while block := sys.stdin.read(16384):
        compute(ms); sys.stdout.write(block)
";
    let wrap = "import json, os, subprocess, sys
os.execvp(sys.executable, [sys.executable, 'stage.py', *sys.argv[1:]])
";
    let run = Traced::shell(&format!(
        "cat > stage.py <<'E'\n{stage}E\ncat > wrap.py <<'E'\n{wrap}E
         {PYTHON} wrap.py first 0.1 | {PYTHON} wrap.py middle 15 | {PYTHON} wrap.py last 0.1 > /dev/null"
    ));
    let path = run.scratch.join("trace.db");
    let arguments = ["bottlenecks", "--format", "json", path.to_str().unwrap()];
    let found: serde_json::Value = serde_json::from_str(&prints(&run.scratch, &arguments)).unwrap();
    assert_eq!(
        found["causes"][0]["step"], "stage.py (stage 2 of 3)",
        "{found:#}"
    );
}
