//! The command has the same environment as without tracing: streams, directory, environment variables,
//! descriptors, signal dispositions, limits.

use std::process::Command;

use crate::support::process::{finish, finish_with_input};
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, Scratch, need_fuse, need_program, need_root, run_in};

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

/// The summary goes to standard error: standard output always belongs to the command.
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

/// Each of these runs natively and traced, from the same parent, and must print the same. The only visible
/// difference is a seccomp filter, and a run without that filter has none.
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

/// Behaviour of a filesystem beyond reading and writing.
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

/// flowtrace reads files among the arguments, through the mount, to see if they are scripts. These reads are
/// not recorded.
#[test]
fn own_reads_of_files_leave_no_calls() {
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

/// The kernel releases a file without waiting when its last descriptor is closed, and with it the locks made
/// through it. A process that knows of the close, its own or that of a child that has ended, gets the lock.
#[test]
fn locks_end_with_the_last_descriptor() {
    const LOCKS: &str = "import fcntl, os, struct
def refused(attempt):
    try: attempt()
    except OSError: return 1
    return 0
def ofd(fd, kind): fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', kind, 0, 0, 1, 0))
def both(): fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(own, fcntl.LOCK_UN)
def record(): ofd(own, fcntl.F_WRLCK); ofd(own, fcntl.F_UNLCK)
opened = lambda: os.open('lock', os.O_RDWR | os.O_CREAT)
own = opened()
counts = [0, 0, 0]
for i in range(200):
    if not (child := os.fork()):
        fcntl.flock(opened(), fcntl.LOCK_EX)
        os._exit(0)
    os.waitpid(child, 0)
    counts[0] += refused(both)
    other = opened(); fcntl.flock(other, fcntl.LOCK_SH); os.close(other)
    counts[1] += refused(both)
    other = opened(); ofd(other, fcntl.F_WRLCK); os.close(other)
    counts[2] += refused(record)
other = opened(); fcntl.flock(other, fcntl.LOCK_EX); os.close(os.dup(other))
print(*counts, refused(both))";
    if !(need_fuse() && need_program("python3")) {
        return;
    }
    for options in [&[][..], &["--ptrace"], &["--transport", "device"]] {
        let scratch = Scratch::new();
        let mut command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
        command.args(options).args(["--", "python3", "-c", LOCKS]);
        let finished = finish(&mut command).expect(0);
        assert_eq!(finished.stdout_text(), "0 0 0 1\n", "{options:?}");
    }
}

/// A write by a user other than the owner clears set-user-id and set-group-id, also in the mode that
/// flowtrace keeps.
#[test]
fn modes_change_with_the_data() {
    const WRITES: &str = "import os, sys
user = 54321
for change in [
    lambda: os.write(os.open('file', os.O_WRONLY), b'x'),
    lambda: os.close(os.open('file', os.O_WRONLY | os.O_TRUNC)),
    lambda: os.posix_fallocate(os.open('file', os.O_WRONLY), 0, 10),
    lambda: os.copy_file_range(os.open('from', os.O_RDONLY), os.open('file', os.O_WRONLY), 4),
]:
    os.chmod('file', 0o6777)
    before = os.stat('file').st_mode
    if not (child := os.fork()):
        os.setgroups([]); os.setgid(user); os.setuid(user)
        change()
        os._exit(0)
    os.waitpid(child, 0)
    print(oct(before), oct(os.stat('file').st_mode))";
    if !(need_fuse() && need_root() && need_program("python3")) {
        return;
    }
    for options in [&[][..], &["--fidelity", "cached"]] {
        let scratch = Scratch::new();
        let job = scratch.dir("job");
        std::fs::write(job.join("from"), "text").unwrap();
        std::fs::write(job.join("file"), "text").unwrap();
        let mut command = run_in(&job, &scratch.join("trace.db"));
        command.args(options).args(["--", "python3", "-c", WRITES]);
        let finished = finish(&mut command).expect(0);
        assert_eq!(
            finished.stdout_text(),
            "0o106777 0o100777\n".repeat(4),
            "{options:?}"
        );
    }
}

/// A child created with CLONE_UNTRACED is traced all the same, so that its calls do not fail, and is
/// recorded.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_child_without_a_tracer_is_followed() {
    const UNTRACED: &str = "import ctypes, os
libc = ctypes.CDLL(None)
CLONE_UNTRACED, SIGCHLD, SYS_clone = 0x800000, 17, 56
child = libc.syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0)
if child == 0: os.execvp('sh', ['sh', '-c', 'echo text > made; exit 4'])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))";
    if !(need_fuse() && need_program("python3")) {
        return;
    }
    for options in [&[][..], &["--ptrace"]] {
        let scratch = Scratch::new();
        let trace = scratch.join("trace.db");
        let mut command = run_in(&scratch.dir("job"), &trace);
        command
            .args(options)
            .args(["--", "python3", "-c", UNTRACED]);
        let finished = finish(&mut command).expect(0);
        assert_eq!(finished.stdout_text(), "4\n", "{options:?}");
        let made: i64 = Trace::open_complete(&trace).one(
            "SELECT COUNT(*) FROM processes JOIN file_access USING (upid) JOIN files USING (file_id)
             WHERE command LIKE 'sh -c%' AND path LIKE '%/made' AND relation = 'create'",
        );
        assert_eq!(made, 1, "{options:?}");
    }
}
