//! Blame for waits whose other side is not known directly: an event loop that waits for many, a connection
//! that is not accepted yet, children of other processes.

use serde_json::Value;

use super::{Traced, traced};
use crate::support::{PYTHON, Scratch, need_fuse, need_python, prints, skip};

/// `flowtrace waits` of a Python program.
fn waits(program: &str) -> Option<Value> {
    waits_by("auto", program)
}

fn waits_by(layer: &str, program: &str) -> Option<Value> {
    if !need_fuse() || !need_python("asyncio") {
        return None;
    }
    let run = Traced::by(layer, PYTHON, &["-c", program]);
    let found = prints(&run.scratch, &["waits", "--format", "json", "trace.db"]);
    Some(serde_json::from_str(&found).unwrap())
}

/// Seconds charged to this blocker and activity.
fn charged(waits: &Value, blocker: Option<&str>, it: &str) -> f64 {
    let causes = waits["root_causes"].as_array().unwrap().iter();
    let these = causes.filter(|cause| cause["culprit"].as_str() == blocker && cause["it"] == it);
    these.map(|cause| cause["ns"].as_f64().unwrap() / 1e9).sum()
}

#[test]
fn an_event_loop_waits_for_the_program_that_it_started() {
    let program = "
import asyncio
async def one():
    child = await asyncio.create_subprocess_exec('sleep', '1', stdout=asyncio.subprocess.PIPE)
    await child.communicate()
asyncio.run(one())";
    if let Some(waits) = waits(program) {
        assert!(charged(&waits, Some("sleep"), "slept") > 0.7, "{waits:#}");
        assert!(
            charged(&waits, None, "outside of the run") < 0.1,
            "{waits:#}"
        );
    }
}

#[test]
fn who_is_in_the_backlog_waits_for_who_accepts() {
    let program = "
import os, socket, time
server = socket.create_server(('127.0.0.1', 0))
clients = []
for _ in range(3):
    clients.append(os.fork())
    if clients[-1] == 0:
        client = socket.create_connection(server.getsockname())
        client.recv(1)
        os._exit(0)
for _ in clients:
    client, _ = server.accept()
    time.sleep(0.4)
    client.send(b'x')
for client in clients: os.waitpid(client, 0)";
    // The scheduler's events do not name who will accept.
    if let Some(waits) = waits_by("fuse", program) {
        let (first, second, third) = (0.4, 0.8, 1.2);
        let slept = charged(&waits, Some("python3 -c"), "slept");
        assert!(slept > 0.8 * (first + second + third), "{waits:#}");
        assert!(
            charged(&waits, None, "outside of the run") < 0.1,
            "{waits:#}"
        );
    }
}

#[test]
fn who_adopts_an_orphan_waits_for_it() {
    let program = "
import ctypes, os, subprocess
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
subprocess.run(['sh', '-c', 'sleep 1 &'])
os.wait()";
    if let Some(waits) = waits(program) {
        assert!(charged(&waits, Some("sleep"), "slept") > 0.7, "{waits:#}");
        assert!(charged(&waits, None, "unknown cause") < 0.1, "{waits:#}");
    }
}

#[test]
fn who_waits_at_a_barrier_waits_for_who_is_not_there_yet() {
    let program = "
import multiprocessing, time
def rank(barrier, sleep):
    for _ in range(4):
        time.sleep(sleep)
        barrier.wait()
barrier = multiprocessing.Barrier(3)
ranks = [multiprocessing.Process(target=rank, args=(barrier, s)) for s in (0.3, 0, 0)]
for one in ranks: one.start()
for one in ranks: one.join()";
    if let Some(waits) = waits(program) {
        let barrier = 2.0 * 4.0 * 0.3;
        let slept = charged(&waits, Some("python3 -c"), "slept");
        assert!(slept > 0.75 * barrier, "{waits:#}");
        let locks = charged(&waits, Some("python3 -c"), "waited for a lock");
        assert!(locks < 0.2 * barrier, "{waits:#}");
    }
}

#[test]
fn of_the_clients_of_one_datagram_socket_none_waits_for_another() {
    let program = "
import os, socket, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 0))
address = server.getsockname()
clients = []
for _ in range(2):
    clients.append(os.fork())
    if clients[-1] == 0:
        server.close()
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.connect(address)
        for _ in range(3):
            client.send(b'x')
            client.recv(1)
        os._exit(0)
for _ in range(6):
    _, client = server.recvfrom(1)
    time.sleep(0.2)
    server.sendto(b'x', client)
for client in clients: os.waitpid(client, 0)";
    if let Some(waits) = waits(program) {
        let slept = charged(&waits, Some("python3 -c"), "slept");
        assert!(slept > 0.8 * (1.0 + 1.2), "{waits:#}");
        let each_other = charged(&waits, Some("python3 -c"), "they waited for each other");
        assert!(each_other < 0.2, "{waits:#}");
    }
}

/// The time there is spent on the way of the data through flowtrace, and not on a disk.
#[test]
fn a_writer_into_memory_waits_for_no_storage() {
    if !need_fuse() {
        return;
    }
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return skip("no /dev/shm to write to");
    };
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let (_, trace) = traced(memory.path(), &path, |command| {
        command.args(["dd", "if=/dev/zero", "of=file", "bs=1M", "count=400"])
    });
    let filesystem: Option<String> = trace.one("SELECT filesystem FROM traced_directories");
    if filesystem.as_deref() != Some("tmpfs") {
        return skip("/dev/shm is no tmpfs");
    }
    let path = path.to_str().unwrap();
    let found = prints(&scratch, &["bottlenecks", "--format", "json", path]);
    assert!(!found.contains("\"disk\""), "{found}");
    let summary = prints(&scratch, &["summary", path]);
    assert!(!summary.contains("waits for storage"), "{summary}");
}
