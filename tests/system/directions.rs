//! The direction of data through sockets, whether the layer records bytes, packets, or only waits.

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{
    FLOWTRACE, PYTHON, Scratch, need_fuse, need_kernel_layer, need_python, need_root, run_in,
};

/// Connects and accepts in turn; each process waits for the other now and then, so that samples can show it.
const COMMON: &str = "
import os, socket, sys, threading, time
def connected(address):
    for _ in range(400):
        try:
            s = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX)
            s.connect(address)
            return s
        except OSError: time.sleep(0.02)
def listening(address):
    s = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(address); s.listen()
    return s
def address(n): return ('127.0.0.1', int(sys.argv[2]) + n) if sys.argv[1] == 'tcp' else f's{n}'
";

/// A program in several processes: name and code of each. The first ones are older.
struct Case {
    name: &'static str,
    parts: &'static [(&'static str, &'static str)],
    /// Direction between each pair: `>` one way and `=` both.
    expected: &'static [&'static str],
    /// Bytes in both directions of each pair, where they are counted.
    bytes: &'static [(i64, i64)],
}

const CASES: [Case; 3] = [
    Case {
        name: "chain",
        parts: &[
            (
                "receiver",
                "c = listening(address(2)).accept()[0]\nwhile c.recv(65536): pass",
            ),
            (
                "middle",
                "c = listening(address(1)).accept()[0]; o = connected(address(2))
while True:
    block = c.recv(4000, socket.MSG_WAITALL)
    if not block: break
    o.sendall(block[:1000])",
            ),
            (
                "source",
                "o = connected(address(1))\nfor _ in range(10): time.sleep(0.06); o.sendall(b'x' * 4000)",
            ),
        ],
        expected: &["middle>receiver", "source>middle"],
        bytes: &[(10_000, 0), (40_000, 0)],
    },
    Case {
        name: "fan-in",
        parts: &[
            (
                "sink",
                "l = listening(address(3))
def take(c):
    while c.recv(65536): pass
for _ in range(3): threading.Thread(target=take, args=(l.accept()[0],)).start()",
            ),
            (
                "one",
                "o = connected(address(3))\nfor _ in range(10): time.sleep(0.06); o.sendall(b'x' * 3000)",
            ),
            (
                "two",
                "o = connected(address(3))\nfor _ in range(14): time.sleep(0.06); o.sendall(b'x' * 1000)",
            ),
            (
                "three",
                "o = connected(address(3))\nfor _ in range(18): time.sleep(0.06); o.sendall(b'x' * 500)",
            ),
        ],
        expected: &["one>sink", "three>sink", "two>sink"],
        bytes: &[(30_000, 0), (9000, 0), (14_000, 0)],
    },
    Case {
        name: "request and response",
        parts: &[
            (
                "server",
                "c = listening(address(4)).accept()[0]
while c.recv(100, socket.MSG_WAITALL): time.sleep(0.06); c.sendall(b'y' * 2000)",
            ),
            (
                "client",
                "o = connected(address(4))
for _ in range(8): o.sendall(b'q' * 100); o.recv(2000, socket.MSG_WAITALL); time.sleep(0.06)",
            ),
        ],
        expected: &["server=client"],
        bytes: &[(16_000, 800)],
    },
];

/// Directions in the graph, with the bytes forth and back.
fn drawn(trace: &std::path::Path) -> Vec<(String, (i64, i64))> {
    let asked = ["dag", "--by", "rule", "--format", "cytoscape"];
    let mut command = std::process::Command::new(FLOWTRACE);
    let done = finish(command.args(asked).arg(trace)).expect(0);
    let graph: serde_json::Value = serde_json::from_str(&done.stdout_text()).unwrap();
    let elements = &graph["elements"];
    let name = |id: &serde_json::Value| {
        let nodes = elements["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["data"]["id"] == *id).unwrap();
        let text = node["data"]["rule"].as_str().unwrap();
        text.trim_end_matches(".py").to_owned()
    };
    let mut found = Vec::new();
    for edge in elements["edges"].as_array().unwrap() {
        let data = &edge["data"];
        if data["kind"] != "socket" {
            continue;
        }
        let sign = match data["way"].as_str().unwrap() {
            "forth" => '>',
            "both" => '=',
            _ => '?',
        };
        let all = data["bytes"].as_i64().unwrap_or(-1);
        let back = data["back_bytes"].as_i64().unwrap_or(0);
        let names = format!("{}{sign}{}", name(&data["source"]), name(&data["target"]));
        found.push((names, (all - back, back)));
    }
    found.sort();
    found
}

/// Runs a case. `port` is a number below the ports that the system uses, for this test alone.
fn trace_of(scratch: &Scratch, case: &Case, options: &[&str], (kind, port): (&str, u16)) -> Drawn {
    let job = scratch.dir("job");
    let mut script = String::new();
    for (name, body) in case.parts {
        let text = format!("#!{PYTHON}\n{COMMON}\n{body}\n");
        std::fs::write(job.join(format!("{name}.py")), text).unwrap();
        script += &format!("{PYTHON} {name}.py {kind} {port} & ");
    }
    let trace = scratch.join("trace.db");
    let mut run = run_in(&job, &trace);
    run.args(options).args(["--", "sh", "-c"]);
    finish(run.arg(script + "wait")).expect(0);
    Trace::open_complete(&trace);
    drawn(&trace).into_iter().unzip()
}

/// Directions, and the bytes forth and back.
type Drawn = (Vec<String>, Vec<(i64, i64)>);

fn counted(options: &[&str], sockets: (&str, u16)) {
    for case in &CASES {
        let (ways, bytes) = trace_of(&Scratch::new(), case, options, sockets);
        assert_eq!(ways, case.expected, "{} {sockets:?} {options:?}", case.name);
        assert_eq!(bytes, case.bytes, "{} {sockets:?} {options:?}", case.name);
    }
}

/// On a busy machine samples may miss the waits of a socket: its direction is then unknown, but never wrong.
fn seen(sockets: (&str, u16)) {
    const TRIES: usize = 3;
    for case in &CASES {
        let is_right = |_: &usize| {
            let (ways, bytes) = trace_of(
                &Scratch::new(),
                case,
                &["--layer", "fuse", "--sample", "100"],
                sockets,
            );
            assert!(bytes.iter().all(|&bytes| bytes == (-1, 0)), "{bytes:?}");
            for way in ways.iter().filter(|way| !way.contains('?')) {
                // Of two directions only one may have been seen.
                let (from, to) = way.split_once('>').unwrap_or(("", ""));
                let may_be = [way.clone(), format!("{from}={to}"), format!("{to}={from}")];
                let is_true = may_be.iter().any(|way| case.expected.contains(&&**way));
                assert!(is_true, "{}: {ways:?}", case.name);
            }
            ways == case.expected
        };
        assert!(
            (0..TRIES).any(|at| is_right(&at)),
            "{} {sockets:?}",
            case.name
        );
    }
}

#[test]
fn waits_show_the_direction_of_data() {
    if need_fuse() && need_python("socket") {
        seen(("tcp", 48300));
        seen(("unix", 0));
    }
}

#[test]
fn counted_bytes_show_the_direction_and_amount_of_data() {
    if need_kernel_layer() && need_python("socket") {
        counted(&["--layer", "kernel"], ("tcp", 48310));
        counted(&["--layer", "kernel"], ("unix", 0));
    }
}

#[test]
fn packets_show_the_direction_and_amount_of_data() {
    if need_root() && need_fuse() && need_python("socket") {
        counted(&["--net"], ("tcp", 48320));
    }
}
