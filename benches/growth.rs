//! How the time of the analyses grows with the trace, for traces made to be hard.
//!
//!     cargo bench --bench growth                   each shape at two sizes, n and 4 n
//!     cargo bench --bench growth -- names pipes    some of the shapes
//!
//! No pass over a trace may cost more than n log n of its rows: four times as many rows take at most five times as
//! long. The figures are CPU time of each command in a process of its own; the growth is the exponent e in time ~ n^e,
//! shown where the larger trace takes long enough to see it. `FLOWTRACE=PROGRAM` measures another build.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use flowtrace_schema::{
    Activity, Call, ChannelKind, Direction, Fidelity, FileId, FileKind, Op, Side, Tid, Upid,
};
use nix::sys::resource::{UsageWho, getrusage};

#[path = "../profiler/tests/support/script.rs"]
mod script;

use script::Script;

/// A larger exponent is more than n log n, which is below 1.2 at these sizes, and noise.
const MOST_GROWTH: f64 = 1.4;
/// Where the larger trace takes less, start and noise hide the growth, s.
const LEAST_S: f64 = 0.4;
/// 4 000 files and 40 000 calls must be explained within, s.
const BAR_S: f64 = 1.0;

/// The analyses, by their commands; TRACE stands for the trace.
const ANALYSES: &[&[&str]] = &[
    &["summary"],
    &["tree"],
    &["dag"],
    &["bottlenecks"],
    &["bottlenecks", "--cores", "16"],
    &["critical-path"],
    &["waits"],
    &["ideal"],
    &["check"],
    &["stats"],
    &["resources"],
    &["generate"],
    &["report", "--format", "json"],
    &["export", "TRACE", "chrome"],
    &["export", "TRACE", "wfformat"],
    &["compare", "TRACE"],
];

/// A trace that is hard at a size.
struct Shape {
    name: &'static str,
    what: &'static str,
    size: u64,
    /// Returns when the command ends, ms.
    build: fn(&mut Script, u32, u64) -> u64,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "names",
        what: "files looked for four times in vain, then made by the same process",
        size: 2000,
        build: names,
    },
    Shape {
        name: "polls",
        what: "files looked for in vain while others make them, and children that start meanwhile",
        size: 1000,
        build: polls,
    },
    Shape {
        name: "children",
        what: "jobs of one process that each read one input and write one output",
        size: 2000,
        build: children,
    },
    Shape {
        name: "deep",
        what: "generations of a process that all append to one file, and write it by a child",
        size: 1000,
        build: deep,
    },
    Shape {
        name: "pipes",
        what: "children, each with a pipe to their parent that its elder brother has, too",
        size: 2000,
        build: pipes,
    },
    Shape {
        name: "shared-pipe",
        what: "processes that hold both ends of one pipe",
        size: 2000,
        build: shared_pipe,
    },
    Shape {
        name: "hot-file",
        what: "processes that in turn read and write one file",
        size: 1000,
        build: hot_file,
    },
    Shape {
        name: "back-and-forth",
        what: "processes that read a file which others write at the same time, with one that reads all",
        size: 1000,
        build: back_and_forth,
    },
    Shape {
        name: "locks",
        what: "waits for the lock of one file, and attempts in vain",
        size: 2000,
        build: locks,
    },
    Shape {
        name: "sockets",
        what: "clients of one server",
        size: 1000,
        build: sockets,
    },
    Shape {
        name: "programs",
        what: "programs that are written anew and run, under one name",
        size: 1000,
        build: programs,
    },
    Shape {
        name: "tree-of-files",
        what: "directories within each other, renamed and looked into",
        size: 500,
        build: renames,
    },
];

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let mut is_within = true;
    println!(
        "{:>16}  {:<32}  {:>8}  {:>8}  growth",
        "shape", "analysis", "n", "4 n"
    );
    for shape in SHAPES {
        if names.is_empty() || names.iter().any(|name| name == shape.name) {
            is_within &= measure(shape);
        }
    }
    ExitCode::from(u8::from(!is_within))
}

/// Prints the figures of a shape; says whether they are within the bars.
fn measure(shape: &Shape) -> bool {
    let directory = tempfile::tempdir().expect("a place for the traces");
    println!(
        "{:>16}  {}: {}, then 4 times as many",
        shape.name, shape.what, shape.size
    );
    let traces = [1, 4].map(|factor| {
        let path = directory.path().join(format!("{factor}.db"));
        let mut script = Script::new(&path, "make");
        let root = script.root(("/usr/bin/make", &["make"]), 0);
        let end = (shape.build)(&mut script, root, shape.size * factor);
        script.end(root, end, Some(0), None, 1);
        script.finish(end + 1, 0);
        path
    });
    let mut is_within = true;
    for analysis in ANALYSES {
        let [small, large] = [0, 1].map(|at| seconds(analysis, &traces[at]));
        let growth = (large / small).log(4.0);
        let is_long = large >= LEAST_S;
        let is_good = !is_long || growth <= MOST_GROWTH && large <= BAR_S * 4.0;
        is_within &= is_good;
        println!(
            "{:>16}  {:<32}  {small:>6.2} s  {large:>6.2} s  {}{}",
            "",
            analysis.join(" "),
            if is_long {
                format!("{growth:.2}")
            } else {
                "-".into()
            },
            if is_good { "" } else { "  over the bar" }
        );
    }
    is_within
}

/// CPU time of one analysis, s.
fn seconds(analysis: &[&str], trace: &Path) -> f64 {
    let program = std::env::var_os("FLOWTRACE");
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_flowtrace").into());
    // The command runs in another directory.
    let program = std::path::absolute(program).expect("the current directory");
    let mut arguments: Vec<OsString> = analysis.iter().map(Into::into).collect();
    for argument in &mut arguments {
        if argument == "TRACE" {
            *argument = trace.into();
        }
    }
    if !analysis.contains(&"TRACE") || analysis[0] == "compare" {
        arguments.push(trace.into());
    }
    let before = children_s();
    let status = Command::new(program)
        .args(&arguments)
        .current_dir(trace.parent().expect("a directory"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let status = status.expect("flowtrace runs");
    // 1: an answer that is no, 2: nothing to answer.
    assert!(
        status.code().is_some_and(|code| code <= 2),
        "{analysis:?}: {status}"
    );
    children_s() - before
}

fn children_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("own usage");
    [usage.user_time(), usage.system_time()]
        .iter()
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6)
        .sum()
}

/// A lookup that finds nothing.
fn look(s: &mut Script, image: u32, file: u32, at_ns: u64) {
    s.bare_call(image, file, Op::Lookup, at_ns, -2);
}

/// A name that is absent until a moment, and the file that is there then.
fn appears(s: &mut Script, path: &str, (at, until): (u64, u64)) -> (u32, u32) {
    let absent = s.file(path, FileKind::Absent, 0, at);
    s.name_end(absent, path, until);
    let file = s.file(path, FileKind::File, 10, until);
    (absent, file)
}

fn names(s: &mut Script, root: u32, n: u64) -> u64 {
    const MS: u64 = 1_000_000;
    let ops = [
        Op::Create,
        Op::Write,
        Op::Write,
        Op::Flush,
        Op::Release,
        Op::Getattr,
    ];
    for i in 0..n {
        let at = 2 * i;
        let (absent, file) = appears(s, &format!("/w/f{i}"), (at, at + 1));
        for number in 0..4 {
            look(s, root, absent, at * MS + number * 10_000);
        }
        for (number, op) in (0..).zip(ops) {
            s.bare_call(root, file, op, (at + 1) * MS + number * 5000, 0);
        }
    }
    n * 2 + 10
}

fn polls(s: &mut Script, root: u32, n: u64) -> u64 {
    let end = n + 100;
    let maker = s.program(root, "maker", (0, end), 0);
    let mut files = Vec::new();
    for i in 0..n {
        let until = 60 + i % 40;
        files.push((i, until, appears(s, &format!("/w/f{i}"), (0, until))));
    }
    for look_at in [0, 20, 40] {
        for &(i, _, (absent, _)) in &files {
            look(s, root, absent, look_at * 1_000_000 + i * 1000);
        }
    }
    for i in 0..n {
        let child = s.program(root, "sleep", (1 + i % 50, 60 + i % 40), 5);
        s.sample(child, (2 + i % 50, 59 + i % 40), Activity::Sleep, None);
    }
    for at in 60..100 {
        for &(_, _, (_, file)) in files.iter().filter(|file| file.1 == at) {
            s.call(maker, file, Op::Create, Some(script::O_WRONLY), None, at);
        }
    }
    for &(_, _, (_, file)) in &files {
        s.call(root, file, Op::Open, Some(0), None, 102);
        s.call(root, file, Op::Read, None, Some(10), 103);
    }
    s.sample(root, (0, 100), Activity::Sleep, None);
    end
}

fn children(s: &mut Script, root: u32, n: u64) -> u64 {
    let input = s.file("/w/input", FileKind::File, 100, 0);
    let mut jobs = Vec::new();
    for i in 0..n {
        let argument = format!("job{i}");
        let job = s.job(
            root,
            ("/usr/bin/work", &["work", &argument]),
            i * 2,
            i * 2 + 50,
        );
        let output = s.file(&format!("/w/out{i}"), FileKind::File, 10, i * 2 + 5);
        s.sample(job, (i * 2 + 4, i * 2 + 40), Activity::Running, None);
        jobs.push((job, output, i * 2 + 5));
    }
    for &(job, output, at) in &jobs {
        s.read(job, input, 4, 100, at);
        s.create(job, output, 4, 10, at + 1);
    }
    s.sample(root, (0, n * 2 + 50), Activity::Child, None);
    n * 2 + 60
}

fn deep(s: &mut Script, root: u32, n: u64) -> u64 {
    let end = n * 3 + 100;
    let log = s.file("/w/log", FileKind::File, 100, 0);
    let mut parent = root;
    let mut writers = Vec::new();
    for i in 0..n {
        let shell = s.fork(parent, ("/usr/bin/dash", &["sh", "again.sh"]), i * 3);
        let child = s.program(shell, "echo", (i * 3 + 1, i * 3 + 2), 0);
        writers.push((shell, child, i * 3 + 1));
        parent = shell;
    }
    for &(shell, child, at) in &writers {
        s.call(
            shell,
            log,
            Op::Open,
            Some(script::O_WRONLY | 0o2000),
            None,
            at,
        );
        s.call(child, log, Op::Write, None, Some(10), at);
    }
    for &(shell, ..) in writers.iter().rev() {
        s.sample(shell, (0, end), Activity::Child, None);
        s.end(shell, end, Some(0), None, 1);
    }
    end
}

fn pipes(s: &mut Script, root: u32, n: u64) -> u64 {
    let end = n * 2 + 100;
    let mut before = None;
    for i in 0..n {
        let pipe = s.pipe();
        let until = i * 2 + 40;
        s.holds_at_most(root, pipe, Direction::Read, (i * 2, until + 1), 1000 + i);
        let child = s.program(root, "part", (i * 2, until), 10);
        s.holds_at_most(child, pipe, Direction::Write, (i * 2, until), 1000 + i);
        if let Some(before) = before.replace(pipe) {
            s.holds_at_most(child, before, Direction::Read, (i * 2, until), 0);
        }
        s.sample(
            child,
            (i * 2 + 1, until - 1),
            Activity::Channel,
            Some((pipe, Side::Write)),
        );
        s.sample(
            root,
            (i * 2, i * 2 + 1),
            Activity::Channel,
            Some((pipe, Side::Read)),
        );
    }
    end
}

fn shared_pipe(s: &mut Script, root: u32, n: u64) -> u64 {
    let end = n + 100;
    let pipe = s.pipe();
    s.holds_both(root, pipe, (0, end));
    for i in 0..n {
        let child = s.program(root, "worker", (i, i + 50), 10);
        s.holds_both(child, pipe, (i, i + 50));
        s.sample(
            child,
            (i + 1, i + 40),
            Activity::Channel,
            Some((pipe, Side::Read)),
        );
    }
    end
}

fn hot_file(s: &mut Script, root: u32, n: u64) -> u64 {
    let file = s.file("/w/state", FileKind::File, 100, 0);
    let jobs: Vec<u32> = (0..n)
        .map(|i| s.program(root, "step", (i * 4, i * 4 + 4), 1))
        .collect();
    for (i, &job) in jobs.iter().enumerate() {
        s.read(job, file, 2, 100, i as u64 * 4);
        s.call(
            job,
            file,
            Op::Open,
            Some(script::O_WRONLY),
            None,
            i as u64 * 4 + 3,
        );
        s.call(job, file, Op::Write, None, Some(100), i as u64 * 4 + 3);
    }
    n * 4 + 10
}

fn back_and_forth(s: &mut Script, root: u32, n: u64) -> u64 {
    let end = n * 4 + 100;
    let question = s.file("/w/question", FileKind::File, 100, 0);
    let jobs: Vec<(u32, u32)> = (0..n)
        .map(|i| {
            let job = s.program(root, "answer", (1, end - 1), 1);
            (
                job,
                s.file(&format!("/w/answer{i}"), FileKind::File, 100, 1),
            )
        })
        .collect();
    for (i, &(job, answer)) in jobs.iter().enumerate() {
        let at = i as u64 * 4;
        s.call(root, question, Op::Write, None, Some(10), at);
        s.call(job, question, Op::Read, None, Some(10), at + 1);
        s.call(
            job,
            answer,
            Op::Create,
            Some(script::O_WRONLY),
            None,
            at + 2,
        );
        s.call(job, answer, Op::Write, None, Some(10), at + 2);
        s.call(root, answer, Op::Read, None, Some(10), at + 3);
    }
    end
}

fn locks(s: &mut Script, root: u32, n: u64) -> u64 {
    let lock = s.file("/w/lock", FileKind::File, 0, 0);
    let workers: Vec<u32> = (0..20)
        .map(|_| s.program(root, "worker", (0, n * 2 + 50), 1))
        .collect();
    for i in 0..n {
        let (worker, other) = (workers[i as usize % 20], workers[(i as usize + 1) % 20]);
        let call = |image: u32, op, flags, at_ns, duration_ns, result| Call {
            start_ns: at_ns,
            duration_ns,
            upid: Some(Upid(image)),
            tid: Some(Tid(100 + image)),
            op,
            file: Some(FileId(lock)),
            offset: None,
            length: None,
            flags,
            result,
            fidelity: Fidelity::Exact,
        };
        let at_ns = i * 2_000_000;
        s.call_of(call(other, Op::Flock, Some(2), at_ns, 1000, -11));
        s.call_of(call(
            worker,
            Op::Flock,
            Some(2),
            at_ns + 10_000,
            1_500_000,
            0,
        ));
        s.call_of(call(other, Op::Release, None, at_ns + 1_400_000, 1000, 0));
        s.sample(worker, (i * 2, i * 2 + 1), Activity::Lock, None);
    }
    n * 2 + 60
}

fn sockets(s: &mut Script, root: u32, n: u64) -> u64 {
    let end = n * 2 + 100;
    let server = s.program(root, "server", (0, end), 1);
    for i in 0..n {
        let socket = s.channel(ChannelKind::Tcp);
        let client = s.program(root, "client", (i * 2, i * 2 + 50), 10);
        s.holds(
            server,
            socket,
            Direction::Both,
            (i * 2, i * 2 + 50),
            Some(true),
        );
        s.holds(
            client,
            socket,
            Direction::Both,
            (i * 2, i * 2 + 50),
            Some(true),
        );
        s.sample(
            client,
            (i * 2 + 1, i * 2 + 40),
            Activity::Channel,
            Some((socket, Side::Read)),
        );
    }
    end
}

fn programs(s: &mut Script, root: u32, n: u64) -> u64 {
    let file = s.file("/w/conftest", FileKind::File, 100, 0);
    let mut runs = Vec::new();
    for i in 0..n {
        let compiler = s.program(root, "cc", (i * 10, i * 10 + 4), 0);
        let run = s.fork(root, ("/usr/bin/make", &["make"]), i * 10 + 5);
        let run = s.exec(
            run,
            100 + run,
            Some(root),
            ("/w/conftest", &["./conftest"]),
            i * 10 + 6,
        );
        s.end(run, i * 10 + 9, Some(0), None, 1);
        runs.push((compiler, run, i * 10));
    }
    for &(compiler, run, at) in &runs {
        s.call(
            compiler,
            file,
            Op::Open,
            Some(script::O_WRONLY | 0o1000),
            None,
            at + 1,
        );
        s.call(compiler, file, Op::Write, None, Some(100), at + 2);
        s.call(run, file, Op::Open, Some(0), None, at + 6);
        s.call(run, file, Op::Read, None, Some(100), at + 6);
    }
    n * 10 + 10
}

fn renames(s: &mut Script, root: u32, n: u64) -> u64 {
    let end = n * 2 + 10;
    let mut files = Vec::new();
    for i in 0..n {
        let path = format!("/w/part{i}.tmp");
        let file = s.file(&path, FileKind::File, 10, i * 2);
        s.name_end(file, &path, i * 2 + 1);
        s.name(file, "/w/state", i * 2 + 1);
        s.name_end(file, "/w/state", i * 2 + 2);
        files.push(file);
    }
    for (i, &file) in files.iter().enumerate() {
        let at = i as u64 * 2;
        s.create(root, file, 2, 10, at);
        s.call(root, file, Op::Rename, None, None, at + 1);
        s.read(root, file, 2, 10, at + 1);
    }
    end
}
