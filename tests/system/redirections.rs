//! `flowtrace run -- command < in > out` with files of the traced directory: the command has the same streams
//! as without flowtrace, and its reads and writes are seen.

use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, Scratch, need_fuse};

/// Runs `script` in a new directory twice, as it is and with `$R` tracing; both directories must then have
/// the same content. Returns the last trace.
fn same_with_and_without(script: &str) -> Option<Trace> {
    if !need_fuse() {
        return None;
    }
    let scratch = Scratch::new();
    for fidelity in ["exact", "cached"] {
        let traced = format!("{FLOWTRACE} run -q --force --fidelity {fidelity} -o ../trace.db --");
        let run = |name: String, with: &str| {
            let directory = scratch.dir(&name);
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).env("R", with);
            finish(shell.current_dir(&directory)).expect(0);
            let mut diff = Command::new("diff");
            diff.arg("-r")
                .arg(scratch.join("plain-".to_owned() + fidelity));
            finish(diff.arg(directory)).expect(0);
        };
        run(format!("plain-{fidelity}"), "env");
        run(format!("traced-{fidelity}"), &traced);
    }
    Some(Trace::open_complete(&scratch.join("trace.db")))
}

#[test]
fn input_and_output_are_seen() {
    let script = "seq 1000 > in; $R sort -r < in > out";
    let Some(trace) = same_with_and_without(script) else {
        return;
    };
    let bytes = |op: &str, name: &str| {
        trace.one::<i64>(&format!(
            "SELECT SUM(result) FROM calls WHERE op = '{op}' AND path LIKE '%/{name}'"
        ))
    };
    assert_eq!((bytes("read", "in"), bytes("write", "out")), (3893, 3893));
    let lost = "SELECT COALESCE(SUM(value), 0) FROM losses
        WHERE counter IN ('inherited_unseen', 'unknown_caller')";
    assert_eq!(trace.one::<i64>(lost), 0);
}

/// The Rust runtime opens closed streams, and ignores SIGPIPE.
#[test]
fn closed_streams_and_ignored_signals_stay_so() {
    same_with_and_without(
        "$R sh -c 'echo x 2> /dev/null; exit $?' >&-; echo $? > output
         $R sh -c 'cat; exit $?' <&- 2>&-; echo $? > input
         $R sh -c 'cat /dev/null; ls /proc/self/fd' <&- 2>&- | wc -l > descriptors
         $R grep SigIgn /proc/self/status > usual
         (trap '' PIPE HUP; $R grep SigIgn /proc/self/status) > ignored
         ! cmp -s usual ignored",
    );
}

/// Programs compare the file that they read with the one that they write.
#[test]
fn output_is_known_as_the_same_file() {
    same_with_and_without(
        "echo text > one; echo text > two
         $R sh -c 'cat *; true' > all 2> errors
         $R sh -c '[ /dev/stdin -ef one ] && echo same' < one > answer",
    );
}

/// A script and the programs that it starts share the position in a file.
#[test]
fn positions_are_shared() {
    same_with_and_without(
        "seq 1000 > in
         { echo 1; $R echo 2; echo 3; } > log
         { echo 1; $R sh -c 'echo 2; echo 3 >&2; echo 4'; echo 5; } > both 2>&1
         { head -n 3 > /dev/null; $R sh -c 'read a; echo $a'; read b; echo $b; } < in > read
         { $R sh -c 'head -n 2; read a; echo $a'; head -n 2; } < in > parts
         echo 1 > end; $R sh -c 'echo 2; echo 3' >> end; echo 4 >> end
         $R dd bs=100 count=3 skip=1 < in > blocks 2> /dev/null
         $R sh -c 'printf 12345; exec 2>&1; printf 6 >&2' > short
         { $R true; echo after; } > nothing",
    );
}

/// Other processes write to the same open file at the same time as the command.
#[test]
fn writers_outside_lose_nothing() {
    same_with_and_without(
        "lines() { i=0; while [ $i -lt 300 ]; do echo $1 $i; i=$((i + 1)); done; }
         { lines outer & $R sh -c 'i=0; while [ $i -lt 300 ]; do echo inner $i; i=$((i + 1)); done'
           wait; } > mixed
         sort mixed > sorted; rm mixed",
    );
}

/// A lock that a script has also belongs to its command.
#[test]
fn other_descriptors_stay_and_are_counted() {
    let script = "exec 9> lock; flock 9
                  $R sh -c 'flock -n 9 && echo ours; echo text >&9' > out";
    let Some(trace) = same_with_and_without(script) else {
        return;
    };
    let lost = "SELECT value FROM losses WHERE counter = 'inherited_unseen'";
    assert_eq!(trace.one::<i64>(lost), 1);
}
