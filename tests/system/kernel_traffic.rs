//! With `--layer kernel` a trace has the calls on pipes, sockets and files outside of the traced directories,
//! as strace sees them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{
    FLOWTRACE, PYTHON, Scratch, need_fuse, need_kernel_layer, need_program, need_python, run_in,
};

/// A program whose calls all have a size that does not depend on timing.
const PROGRAM: &str = "
import array, os, socket, subprocess, sys
outside = sys.argv[1]

# A pipe that holds all before anybody reads.
r, w = os.pipe()
if os.fork() == 0:
    os.close(r)
    for i in range(50): os.write(w, b'x' * (100 + i))
    os.writev(w, [b'a' * 10, b'b' * 20])
    os._exit(0)
os.close(w); os.wait()
spare = os.dup(r); os.close(r)
while os.read(spare, 1000): pass
os.close(spare)

# Sockets.
a, b = socket.socketpair()
a.sendall(b'y' * 3000)
b.recv(1000, socket.MSG_PEEK), b.recv(1000), b.recv(2000)
server = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    c = socket.create_connection(server.getsockname())
    c.sendall(b'z' * 500); c.sendmsg([b'1', b'22'])
    assert c.recv(7, socket.MSG_WAITALL) == b'7' * 7
    os._exit(0)
d, _ = server.accept()
d.recv(503, socket.MSG_WAITALL); d.sendall(b'7' * 7)
os.wait()

# Files, and what goes from them into a pipe.
f = os.open(outside + '/a', os.O_RDONLY)
os.read(f, 1000); os.pread(f, 700, 4500); os.lseek(f, 10, 0); os.read(f, 10)
r, w = os.pipe()
os.sendfile(w, f, 100, 300); os.splice(f, w, 200); os.read(r, 1000)
g = os.open(outside + '/b', os.O_WRONLY | os.O_CREAT, 0o600)
os.write(g, b'1' * 70); h = os.dup(g); os.write(h, b'2' * 30); os.close(g); os.write(h, b'3')
i = os.open(outside + '/b', os.O_WRONLY | os.O_APPEND); os.write(i, b'4' * 9)
assert subprocess.run(['cat', outside + '/b'], stdout=subprocess.PIPE, check=True).stdout[-9:] == b'4' * 9
";

/// Kind of a channel, side, calls and bytes of each process, in order.
type Sums = Vec<(String, String, u64, u64)>;
/// Length, result and bytes of each call, in order.
type List = Vec<(Option<u64>, i64, u64)>;
/// Kind of a channel, side and calls that a process made on it.
type Calls = Vec<(String, String, List)>;
/// Operation and result of each read and write, by the name of the file.
type Rows = BTreeMap<String, Vec<(String, i64)>>;

/// Calls on channels in a trace, by process, channel and side.
fn calls_in_trace(trace: &Trace) -> Calls {
    let rows = trace.rows(
        "SELECT pid, channel_id, CASE WHEN kind IN ('pipe', 'fifo') THEN 'pipe' ELSE 'socket' END, side,
           COALESCE(length, ''), result, c.bytes
         FROM channel_calls AS c JOIN channels USING (channel_id) JOIN processes USING (upid)
         WHERE c.fidelity = 'exact' ORDER BY c.start_ns",
    );
    let mut calls: BTreeMap<[String; 4], List> = BTreeMap::new();
    for row in rows {
        let [pid, channel, kind, side, length, result, bytes] =
            <[String; 7]>::try_from(row).expect("seven columns");
        let (result, bytes) = (result.parse().unwrap(), bytes.parse().unwrap());
        let of = calls.entry([kind, side, channel, pid]).or_default();
        of.push((length.parse().ok(), result, bytes));
    }
    let calls = calls
        .into_iter()
        .map(|([kind, side, ..], list)| (kind, side, list));
    let mut calls: Calls = calls.collect();
    calls.sort();
    calls
}

fn in_trace(trace: &Trace, outside: &Path) -> (Sums, Rows) {
    let rows = trace.rows(
        "SELECT CASE WHEN kind IN ('pipe', 'fifo') THEN 'pipe' ELSE 'socket' END, side, SUM(calls),
           COALESCE(SUM(t.bytes), 'unknown')
         FROM channel_traffic AS t JOIN channels USING (channel_id) JOIN processes USING (upid)
         WHERE exact GROUP BY pid, channel_id, side",
    );
    let number = |text: &String| text.parse().unwrap_or_else(|_| panic!("{text}"));
    let sums = rows.iter().map(|row| {
        let [kind, side, calls, bytes] = row.as_slice() else {
            panic!("{row:?}");
        };
        (kind.clone(), side.clone(), number(calls), number(bytes))
    });
    let mut sums: Sums = sums.collect();
    sums.sort();
    let mut files = Rows::new();
    let found = trace.rows(
        "SELECT path, op, result FROM calls WHERE op IN ('read', 'write') AND fidelity = 'exact'
         ORDER BY start_ns",
    );
    for row in found {
        if let Ok(name) = Path::new(&row[0]).strip_prefix(outside) {
            let name = name.to_str().unwrap().to_owned();
            let result = row[2].parse().unwrap();
            files
                .entry(name)
                .or_default()
                .push((row[1].clone(), result));
        }
    }
    (sums, files)
}

/// The descriptor that the argument at `place` names, and its file according to strace.
fn target(arguments: &str, place: usize) -> Option<&str> {
    let one = arguments.split(", ").nth(place)?;
    one.split_once('<')?.1.strip_suffix('>')
}

/// Sum of the lengths of the pieces of a call.
fn in_pieces(arguments: &str) -> u64 {
    let digits = |text: &str| {
        text.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse::<u64>()
            .ok()
    };
    let pieces = arguments.split("iov_len=").skip(1);
    pieces.map(|text| digits(text).expect("a length")).sum()
}

fn in_log(log: &str, outside: &Path) -> (Sums, Calls, Rows) {
    let mut calls: BTreeMap<(u32, String, &str), List> = BTreeMap::new();
    let mut files = Rows::new();
    let mut halves: BTreeMap<u32, String> = BTreeMap::new();
    for line in log.lines() {
        let (pid, text) = line.split_once(' ').expect("a pid");
        let pid: u32 = pid.parse().expect("a pid");
        let mut text = text.trim_start().to_owned();
        if let Some(begin) = text.strip_suffix(" <unfinished ...>") {
            halves.insert(pid, begin.to_owned());
            continue;
        }
        if text.starts_with("<... ") {
            let (_, end) = text.split_once(" resumed>").expect("a second half");
            text = halves.remove(&pid).expect("a first half") + end;
        }
        let Some((head, result)) = text.rsplit_once(" = ") else {
            continue;
        };
        let result = result.split(' ').next().and_then(|r| r.parse::<i64>().ok());
        let (Some((name, arguments)), Some(result)) = (head.split_once('('), result) else {
            continue;
        };
        let sides: &[(usize, &str)] = match name {
            "read" | "pread64" | "recvfrom" | "recvmsg" => &[(0, "read")],
            "write" | "writev" | "sendto" | "sendmsg" => &[(0, "write")],
            "sendfile" => &[(1, "read"), (0, "write")],
            "splice" => &[(0, "read"), (2, "write")],
            other => panic!("no rule for the call {other}"),
        };
        for &(place, side) in sides {
            let Some(target) = target(arguments, place) else {
                continue;
            };
            let moved = if text.contains("MSG_PEEK") {
                0
            } else {
                result.max(0)
            };
            if target.starts_with("pipe:[") || target.starts_with("socket:[") {
                let length = match name {
                    "writev" | "recvmsg" | "sendmsg" => None,
                    "sendfile" => arguments.split(", ").nth(3),
                    "splice" => arguments.split(", ").nth(4),
                    _ => arguments.split(", ").nth(2),
                };
                let length = length.map(|length| {
                    let digits = length.trim_end().trim_end_matches(')');
                    digits
                        .parse()
                        .unwrap_or_else(|_| panic!("a length: {text}"))
                });
                let length = length.or_else(|| Some(in_pieces(arguments)));
                let of = calls.entry((pid, target.to_owned(), side)).or_default();
                of.push((length, result, moved.unsigned_abs()));
            } else if let Ok(name) = Path::new(target).strip_prefix(outside) {
                let name = name.to_str().unwrap().to_owned();
                files
                    .entry(name)
                    .or_default()
                    .push((side.to_owned(), result));
            }
        }
    }
    let calls = calls.into_iter().map(|((_, target, side), list)| {
        let kind = target.split(':').next().unwrap_or_default();
        (kind.to_owned(), side.to_owned(), list)
    });
    let mut calls: Calls = calls.collect();
    calls.sort();
    let sums = calls.iter().map(|(kind, side, list)| {
        let bytes = list.iter().map(|(_, _, bytes)| bytes).sum();
        (kind.clone(), side.clone(), list.len() as u64, bytes)
    });
    let mut sums: Sums = sums.collect();
    sums.sort();
    (sums, calls, files)
}

#[test]
fn channels_and_files_outside_are_what_strace_sees() {
    if !need_fuse() || !need_kernel_layer() || !need_program("strace") || !need_python("socket") {
        return;
    }
    let scratch = Scratch::new();
    let [outside, job] = ["outside", "job"].map(|name| scratch.dir(name));
    std::fs::write(outside.join("a"), vec![b'x'; 5_000]).unwrap();
    let command = [PYTHON, "-c", PROGRAM, outside.to_str().unwrap()];
    let path = scratch.join("t.db");
    let mut run = run_in(&job, &path);
    run.args(["--layer", "kernel", "--calls", "channels", "--"]);
    finish(run.args(command)).expect(0);
    std::fs::remove_file(outside.join("b")).unwrap();
    let log = scratch.join("strace.log");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-q", "-y", "-v", "-s", "0", "-e", "signal=none", "-e"]);
    strace.arg("trace=read,pread64,write,writev,recvfrom,recvmsg,sendto,sendmsg,sendfile,splice");
    strace
        .arg("-o")
        .arg(&log)
        .arg("--")
        .args(command)
        .current_dir(&job);
    finish(&mut strace).expect(0);
    let log = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
    let trace = Trace::open_complete(&path);
    let (seen, expected) = (in_trace(&trace, &outside), in_log(&log, &outside));
    assert_eq!(seen.0, expected.0, "{log}");
    assert_eq!(calls_in_trace(&trace), expected.1, "{log}");
    assert_eq!(seen.1, expected.2, "{log}");
    // The rows and the sums are of the same calls.
    let differ = trace.rows(
        "SELECT channel_id, upid, side, calls, bytes, duration_ns FROM channel_traffic EXCEPT
         SELECT channel_id, upid, side, COUNT(*), SUM(bytes), SUM(duration_ns) FROM channel_calls GROUP BY 1, 2, 3",
    );
    assert_eq!(differ, Vec::<Vec<String>>::new());
    assert!(seen.0.len() >= 8 && seen.1.len() == 2, "{seen:?}");
    // Offsets of the calls in their files.
    let offsets = trace.rows(&format!(
        "SELECT op, offset FROM calls WHERE path = '{}/b' AND op = 'write' ORDER BY start_ns",
        outside.display()
    ));
    let expected = [
        ["write", "0"],
        ["write", "70"],
        ["write", "100"],
        ["write", "101"],
    ];
    let offsets: Vec<[&str; 2]> = offsets.iter().map(|r| [&*r[0], &*r[1]]).collect();
    assert_eq!(offsets, expected);
    // The ends of the channels have the same sums.
    let differ: i64 = trace.one(
        "SELECT COUNT(*) FROM channel_traffic AS t JOIN channel_ends AS e USING (channel_id, upid)
         WHERE t.side = e.direction AND t.bytes <> e.bytes",
    );
    let known: i64 = trace.one(
        "SELECT COUNT(*) FROM channel_ends JOIN channels USING (channel_id)
         WHERE kind = 'pipe' AND bytes > 5000",
    );
    assert_eq!(
        (differ, known),
        (0, 2),
        "one pipe carries more than 5000 bytes"
    );
}

/// A drawn pipe shows the bytes counted on both sides; where they were not counted, it shows a bound.
#[test]
fn a_drawn_pipe_has_the_bytes_that_were_counted() {
    if !need_kernel_layer() {
        return;
    }
    let scratch = Scratch::new();
    let (work, path) = (scratch.dir("job"), scratch.join("trace.db"));
    for (layer, expected) in [
        (&["--layer", "kernel"][..], "50 kB"),
        (&["--layer", "fuse"], "≤ 50 kB"),
    ] {
        let mut run = run_in(&work, &path);
        let run = run.arg("--force").args(layer);
        let pipeline = "head -c 50000 /dev/zero | wc -c";
        finish(run.args(["--", "sh", "-c", pipeline])).expect(0);
        let mut dag = Command::new(FLOWTRACE);
        let drawn = finish(dag.arg("dag").arg(&path)).expect(0).stdout_text();
        let edges: Vec<_> = drawn
            .lines()
            .filter(|line| line.contains("ft_kind=\"pipe\""))
            .collect();
        assert_eq!(edges.len(), 1, "{edges:?}");
        assert!(edges[0].contains(&format!(">{expected}<")), "{edges:?}");
    }
}

/// A child has both pipes open and writes to one of them.
const HOLDS_MORE: &str = "
import os
r, w = os.pipe()
s, x = os.pipe()
if os.fork() == 0:
    os.write(w, b'hello')
    os._exit(0)
os.wait()
assert os.read(r, 9) == b'hello'
os.write(x, b'to myself')
assert os.read(s, 9) == b'to myself'
";

#[test]
fn ends_that_were_not_used_are_known_as_such() {
    if !need_kernel_layer() || !need_python("os") {
        return;
    }
    let scratch = Scratch::new();
    let (work, path) = (scratch.dir("job"), scratch.join("trace.db"));
    let mut run = run_in(&work, &path);
    let run = run.args(["--no-mount", "--layer", "kernel"]);
    finish(run.args(["--", PYTHON, "-c", HOLDS_MORE])).expect(0);
    let trace = Trace::open(&path);
    let ends = trace.rows(
        "SELECT channel_id - MIN(channel_id) OVER (), p.origin, direction, e.used, e.bytes
         FROM channel_ends AS e JOIN channels USING (channel_id) JOIN processes AS p USING (upid)
         WHERE channel_id IN (SELECT channel_id FROM channel_ends JOIN processes USING (upid) WHERE origin = 'fork' AND fd > 2)
         ORDER BY 1, 2, 3",
    );
    let of = |channel: i64, origin: &str, direction: &str, bytes: i64| {
        vec![
            channel.to_string(),
            origin.to_owned(),
            direction.to_owned(),
            i64::from(bytes > 0).to_string(),
            bytes.to_string(),
        ]
    };
    assert_eq!(
        ends,
        [
            of(0, "exec", "read", 5),
            of(0, "exec", "write", 0),
            of(0, "fork", "write", 5),
            of(1, "exec", "read", 9),
            of(1, "exec", "write", 9),
            of(1, "fork", "write", 0),
        ]
    );
}
