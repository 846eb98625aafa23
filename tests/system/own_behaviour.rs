//! The command finds the world as if nobody were watching: streams, directory, environment,
//! descriptors, signal dispositions, limits.

use std::process::Command;

use crate::support::process::{finish, finish_with_input};
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, Scratch, need_fuse, run_in};

/// Bytes of all values, in no order.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn streams_are_untouched() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let mut command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    command.args([
        "--",
        "sh",
        "-c",
        "tee copy; printf 'for the\\nother\\001' >&2",
    ]);
    let input = noise(3_000_000);
    let finished = finish_with_input(&mut command, input.clone()).expect(0);
    assert!(
        finished.stdout == input,
        "standard output differs from the input"
    );
    assert_eq!(finished.stderr, "for the\nother\u{1}", "standard error");
    let copy = std::fs::read(scratch.join("job/copy")).unwrap();
    assert!(copy == input, "the file differs from the input");
    Trace::open_complete(&scratch.join("trace.db"));
}

/// The summary goes to standard error: standard output belongs to the command in any case.
#[test]
fn summary_stays_off_standard_output() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let mut command = Command::new(FLOWTRACE);
    command
        .args(["run", "-o", "../trace.db", "--", "echo", "only this"])
        .current_dir(scratch.dir("job"));
    let finished = finish(&mut command).expect(0);
    assert_eq!(finished.stdout_text(), "only this\n");
    assert!(finished.stderr.contains("trace.db"), "{}", finished.stderr);
}

/// Each is run natively and traced, from the same parent, and must print the same. Only that there is
/// a seccomp filter can be seen, and without it not even that.
const PROBES: &[&str] = &[
    "pwd; pwd -P; ls -di . ..; ls -a",
    "env | grep -v '^_=' | sort",
    "for fd in /proc/self/fd/*; do echo ${fd##*/}; done",
    "grep -E '^(Sig(Blk|Ign|Cgt)|ShdPnd|NoNewPrivs|Cap|Uid|Gid|Groups)' /proc/self/status",
    "umask; ulimit -a; nice",
    "id",
    "cat /proc/self/oom_score_adj /proc/self/cgroup",
    "stat -c '%a %u %g %s %h %F' file; stat -f -c '%S %l' .",
    "[ -w file ] && [ ! -x file ] && echo modes; readlink -f .",
];

#[test]
fn surroundings_are_the_same() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("job");
    std::fs::write(work.join("file"), "twelve bytes").unwrap();
    let mut different = Vec::new();
    let unfiltered = (Some("--no-topology"), "grep Seccomp /proc/self/status");
    let probes = PROBES.iter().map(|&probe| (None, probe));
    for (option, probe) in probes.chain([unfiltered]) {
        let native = finish(Command::new("sh").args(["-c", probe]).current_dir(&work));
        let mut command = run_in(&work, &scratch.join("trace.db"));
        command.args(option);
        let traced = finish(command.args(["--force", "--", "sh", "-c", probe]));
        if native.stdout != traced.stdout || native.code() != traced.code() {
            different.push(format!(
                "{probe}\n--- native, exit {}\n{}--- traced, exit {}\n{}{}",
                native.code(),
                native.stdout_text(),
                traced.code(),
                traced.stdout_text(),
                traced.stderr
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// What file systems owe to programs beyond reading and writing.
#[test]
fn files_behave_the_same() {
    if !need_fuse() {
        return;
    }
    let script = "set -e
        mkdir -p d/e; echo one > d/a; ln d/a d/b; ln -s a d/s; chmod 640 d/a; mv d/b d/c
        echo two >> d/s; cp -p d/a d/e/copy; truncate -s 5 d/e/copy; mkfifo d/fifo
        (echo through > d/fifo &); cat d/fifo > d/e/out; touch -d @1000000000 d/e/out
        (flock -n 9 || exit 1; ! flock -n d/lock true) 9> d/lock
        dd if=/dev/zero of=d/sparse bs=1 count=1 seek=100000 2> /dev/null
        mv d/e d/f; rmdir d/e 2> /dev/null || echo gone > d/f/gone; rm d/c
        exec 3> d/unlinked; rm d/unlinked; echo still >&3
        printf '#!/bin/sh\\necho ran > d/ran\\n' > d/prog; chmod +x d/prog; d/prog
        stat -c '%n %a %s %h %F' d/* d/f/* > stat.txt; stat -c %Y d/f/out >> stat.txt";
    let scratch = Scratch::new();
    let (native, traced) = (scratch.dir("native"), scratch.dir("traced"));
    finish(
        Command::new("bash")
            .args(["-c", script])
            .current_dir(&native),
    )
    .expect(0);
    let trace = scratch.join("trace.db");
    finish(run_in(&traced, &trace).args(["--", "bash", "-c", script])).expect(0);
    for dir in [&native, &traced] {
        std::fs::remove_file(dir.join("d/fifo")).expect("a fifo");
    }
    crate::support::tree::assert_same(&native, &traced);
    Trace::open_complete(&trace);
}

/// Files among the arguments are looked into, through the view, for whether they are scripts.
#[test]
fn own_looks_at_files_leave_no_calls() {
    if !need_fuse() {
        return;
    }
    for options in [&[][..], &["--ptrace"]] {
        let scratch = Scratch::new();
        let (job, path) = (scratch.dir("job"), scratch.join("trace.db"));
        std::fs::write(job.join("one"), "1").unwrap();
        std::fs::write(job.join("two"), "2").unwrap();
        let script =
            "echo 3 | sh -c 'ls -l one two; cat' | sort > out; echo 4 | cat one two - > more";
        let mut command = run_in(&job, &path);
        finish(command.args(options).args(["--", "sh", "-c", script])).expect(0);
        let trace = Trace::open_complete(&path);
        let nobodys = trace.rows("SELECT op, path FROM calls WHERE upid IS NULL");
        assert_eq!(nobodys, Vec::<Vec<String>>::new(), "{options:?}");
    }
}
