//! The kinds of waits that have no other end.

use super::{Traced, layers};
use crate::support::{need_fuse, need_program};

#[test]
fn sleep() {
    if !need_fuse() {
        return;
    }
    let run = Traced::shell("sleep 1; true");
    let condition = "reason = 'sleep' AND op = 'clock_nanosleep'";
    run.trace.assert_sampled("sleep 1", condition, 300);
}

#[test]
fn futex() {
    if !need_fuse() {
        return;
    }
    let script = "
import threading, time
lock = threading.Lock()
def wait():
    with lock: pass
with lock:
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(1)
thread.join()";
    let run = Traced::python(script);
    let own = "s.tid <> p.pid AND reason = 'lock' AND op = 'futex'";
    run.trace.assert_sampled("%", own, 300);
}

/// On the traced mount, which keeps locks itself, and elsewhere, where the kernel does.
#[test]
fn file_locks() {
    if !need_fuse() || !need_program("flock") {
        return;
    }
    let run = Traced::shell(
        "for f in lock /dev/shm/flowtrace-test-$$; do
           flock $f sleep 1 & sleep 0.3; flock $f true; rm $f; wait
         done",
    );
    let condition = "reason = 'lock' AND op = 'flock' AND s.state = 'blocked'";
    run.trace.assert_sampled("flock % true", condition, 600);

    let script = "
import fcntl, os, time
for name in ['lock', f'/dev/shm/flowtrace-test-{os.getpid()}']:
    file = open(name, 'w')
    ready, signal = os.pipe()
    child = os.fork()
    if child == 0:
        fcntl.lockf(file, fcntl.LOCK_EX)
        os.write(signal, b'x')
        time.sleep(1)
        os._exit(0)
    os.read(ready, 1)
    fcntl.lockf(file, fcntl.LOCK_EX)
    os.unlink(name)
    os.wait()";
    let run = Traced::python(script);
    let condition = "reason = 'lock' AND op = 'fcntl'";
    run.trace.assert_sampled("%", condition, 600);
    // A process that waits for a lock does not wait for storage.
    let storage: i64 = run
        .trace
        .one("SELECT SUM(storage_ns) / 1000000 FROM processes");
    let waiting: i64 = run
        .trace
        .one("SELECT SUM(wait_ns) / 1000000 FROM processes");
    assert!(
        storage < 300 && waiting > 600,
        "storage {storage}, other {waiting} ms"
    );
}

#[test]
fn signals() {
    if !need_fuse() {
        return;
    }
    let script = "
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: None)
parent = os.getpid()
if os.fork() == 0:
    time.sleep(1)
    os.kill(parent, signal.SIGUSR1)
    os._exit(0)
signal.pause()
os.wait()";
    let run = Traced::python(script);
    run.trace.assert_sampled("%", "reason = 'signal'", 300);
}

/// The open of a FIFO waits until another process opens the other end.
#[test]
fn opening_a_fifo() {
    if !need_fuse() {
        return;
    }
    let run = Traced::shell("mkfifo fifo; cat fifo & sleep 1; echo x > fifo; wait");
    // If the kernel does not say in which function a thread is, the wait counts as a file call.
    let condition = "reason IN ('channel', 'file') AND op IN ('open', 'openat')";
    run.trace.assert_sampled("cat fifo", condition, 300);
}

/// A process stopped by job control is not stopped by the tracer, and counts as waiting.
#[test]
fn job_control() {
    if !need_fuse() {
        return;
    }
    // The shell sleeps before, between and after, however late it gets to run.
    let script =
        "sleep 100 & sleep 0.3; kill -STOP $!; sleep 1; kill -CONT $!; sleep 1; kill $!; true";
    for layer in layers() {
        stops_and_goes_on(&Traced::by(layer, "bash", &["-c", script]));
    }
}

fn stops_and_goes_on(run: &Traced) {
    run.trace
        .assert_sampled("sleep 100", "s.state = 'stopped'", 300);
    let after: i64 = run.trace.one(
        "SELECT COUNT(*) FROM samples AS s JOIN processes AS p USING (upid)
         WHERE p.command = 'sleep 100' AND s.reason = 'sleep' AND s.t_ns > (
           SELECT MAX(end_ns) - 1 FROM samples AS o WHERE o.upid = s.upid AND o.state = 'stopped')",
    );
    assert!(
        after > 0,
        "it went on sleeping\n{}",
        run.trace.all_samples()
    );
    let (wait, tracer): (i64, i64) = (
        run.trace
            .one("SELECT wait_ns / 1000000 FROM processes WHERE command = 'sleep 100'"),
        run.trace
            .one("SELECT tracer_ns / 1000000 FROM processes WHERE command = 'sleep 100'"),
    );
    assert!(
        wait > 1000 && tracer < 500,
        "wait {wait}, tracer {tracer} ms"
    );
}

/// Calls on the traced mount count as time blocked on storage, even for a process too short for samples.
#[test]
fn files() {
    if !need_fuse() {
        return;
    }
    // Through a mount a read of cached data waits, too.
    let script =
        "dd if=/dev/zero of=file bs=1M count=64 conv=fsync status=none; cat file > /dev/null";
    let run = Traced::by("fuse", "bash", &["-c", script]);
    let rows = run.trace.rows(
        "SELECT command, storage_ns > 0, storage_ns <= duration_ns,
           storage_ns + wait_ns = MAX(0, thread_ns - on_cpu_ns - run_queue_ns - tracer_ns)
         FROM processes WHERE command IN ('cat file')
           OR command LIKE 'dd %' AND origin = 'exec' ORDER BY 1",
    );
    assert!(rows.len() >= 2, "{rows:?}");
    for row in rows.iter().filter(|row| row[0] != "bash") {
        assert_eq!(row[1..], ["1", "1", "1"], "{row:?}");
    }
}

/// A process that waits for a file on the traced mount waits for the file of its current call.
#[test]
fn a_file_is_named_by_its_calls() {
    if !need_fuse() {
        return;
    }
    let script = "
import os
file = open('file', 'wb', buffering=0)
block = bytes(1 << 20)
for _ in range(200):
    file.write(block)
    os.fdatasync(file.fileno())
    file.seek(0)";
    let run = Traced::python(script);
    let others = run.trace.rows(
        "SELECT DISTINCT f.path, w.op FROM waits AS w JOIN files AS f USING (file_id)
         WHERE w.op IN ('write', 'fdatasync') AND f.path NOT LIKE '%/job/file'",
    );
    assert!(others.is_empty(), "{others:?}");
    let named: i64 = run
        .trace
        .one("SELECT COUNT(*) FROM waits WHERE reason = 'file' AND file_id IS NOT NULL");
    assert!(named > 0, "{}", run.trace.all_samples());
}

/// A program of 32 bits has other numbers for its calls: 240 is its futex, 162 its nanosleep.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_of_32_bits() {
    if !need_fuse() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let scratch = crate::support::Scratch::new();
    let program = scratch.dir("job").join("sleeper");
    std::fs::write(&program, sleeper()).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    if std::process::Command::new(&program)
        .status()
        .is_ok_and(|s| s.code() == Some(7))
    {
        for layer in layers() {
            let path = scratch.join(format!("{layer}.db"));
            let mut command = crate::support::run_in(&scratch.join("job"), &path);
            command.args(["--layer", layer, "--", "./sleeper"]);
            crate::support::process::finish(&mut command).expect(7);
            let trace = crate::support::trace::Trace::open_complete(&path);
            trace.assert_sampled("./sleeper", "reason = 'sleep' AND op = 'nanosleep'", 300);
        }
    } else {
        crate::support::skip("this kernel does not run programs of 32 bits");
    }
}

/// An ELF file for i386 that sleeps for a second and exits with 7.
#[cfg(target_arch = "x86_64")]
fn sleeper() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let code = [
        &[0x6a, 0, 0x6a, 1][..],           // push 0; push 1: a timespec of 1 s
        &[0x89, 0xe3, 0x31, 0xc9],         // mov ebx, esp; xor ecx, ecx
        &[0xb8, 162, 0, 0, 0, 0xcd, 0x80], // nanosleep(ebx, 0)
        &[0xb8, 1, 0, 0, 0],               // exit
        &[0xbb, 7, 0, 0, 0, 0xcd, 0x80],   // (7)
    ]
    .concat();
    let size = HEADERS + code.len() as u32;
    let mut file = Vec::new();
    file.extend([0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let short = |file: &mut Vec<u8>, values: &[u16]| {
        file.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    };
    let long = |file: &mut Vec<u8>, values: &[u32]| {
        file.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    };
    short(&mut file, &[2, 3]);
    long(&mut file, &[1, BASE + HEADERS, 52, 0, 0]);
    short(&mut file, &[52, 32, 1, 0, 0, 0]);
    // One segment, readable and executable.
    long(&mut file, &[1, 0, BASE, BASE, size, size, 5, 0x1000]);
    file.extend(code);
    file
}
