//! Every command over damaged traces and captures: it gives a result or a clear error. It never panics, runs
//! without end, or uses more memory than its limit.
//!
//! `FLOWTRACE_DAMAGED_TRACES` and `FLOWTRACE_DAMAGED_CAPTURES` are the numbers of damaged files,
//! `FLOWTRACE_DAMAGED_SEED` the first seed; `tests/long damaged` is the long form.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

#[path = "../support/frames.rs"]
mod frames;
#[path = "../../profiler/tests/support/montage.rs"]
mod montage;
#[path = "../support/spoil.rs"]
mod spoil;
#[path = "../support/mod.rs"]
mod support;

use support::{FLOWTRACE, Scratch, prints};

/// Limits of a command: memory in MB that it may write to, besides 4 times the size of the file (stacks of
/// threads and SQLite's cache are part of it), and CPU time in s.
const MEGABYTES: u64 = 128;
const SECONDS: u64 = 60;

/// Every command that reads a trace: `T` is the damaged trace, `W` the same trace before it was damaged, `O` an
/// undamaged trace of another recording.
const COMMANDS: &[&[&str]] = &[
    &["summary", "T"],
    &["summary", "T", "--json"],
    &["tree", "T"],
    &["tree", "T", "--full"],
    &["tree", "T", "--json"],
    &["tree", "T", "--format", "dot"],
    &["dag", "T"],
    &["dag", "T", "--format", "text"],
    &["dag", "T", "--by", "process"],
    &["dag", "T", "--format", "graphml"],
    &["dag", "T", "--reduce", "--width", "rate"],
    &["dag", "T", "--max-nodes", "5"],
    &["dag", "T", "--within", "0..1"],
    &["critical-path", "T"],
    &["critical-path", "T", "--full"],
    &["critical-path", "T", "--json"],
    &["critical-path", "T", "--format", "csv"],
    &["critical-path", "T", "--what-if", "mAdd=0.5"],
    &["bottlenecks", "T"],
    &["bottlenecks", "T", "--json"],
    &["bottlenecks", "T", "--format", "csv"],
    &["bottlenecks", "T", "--cores", "4"],
    &["bottlenecks", "T", "--by", "host", "--window", "0.1"],
    &["bottlenecks", "T", "--format", "svg"],
    &["waits", "T"],
    &["waits", "T", "--json"],
    &["waits", "T", "--format", "csv"],
    &["resources", "T"],
    &["resources", "T", "--json"],
    &["resources", "T", "W"],
    &["resources", "T", "--format", "csv"],
    &["resources", "T", "--format", "svg"],
    &["ideal", "T", "--disk-read", "100", "--disk-write", "100"],
    &["stats", "T"],
    &["stats", "T", "calls"],
    &["stats", "T", "cdf"],
    &["stats", "T", "hist", "--of", "life"],
    &["stats", "T", "hist", "--of", "file-size"],
    &["stats", "T", "hist", "--of", "request-size"],
    &["stats", "T", "hist", "--of", "process-bytes"],
    &["stats", "T", "cdf", "--format", "svg"],
    &["stats", "T", "throughput", "--bins", "100"],
    &["stats", "T", "throughput", "--format", "svg"],
    &["stats", "T", "sequentiality"],
    &["stats", "T", "sequentiality", "--by", "file", "--full"],
    &["stats", "T", "levels"],
    &["stats", "T", "rereads"],
    &["stats", "T", "unread"],
    &["stats", "T", "could-be-pipe"],
    &["stats", "T", "failed"],
    &["stats", "T", "machines"],
    &["query", "T"],
    &["query", "T", "SELECT * FROM processes"],
    &["query", "T", "SELECT * FROM calls", "--format", "csv"],
    &["query", "T", "SELECT * FROM runs", "--json"],
    &["network", "T"],
    &["network", "flows", "T"],
    &["network", "matrix", "T"],
    &["network", "balance", "T"],
    &["network", "period", "T"],
    &["network", "court", "T"],
    &["network", "overview", "T"],
    &["network", "peers", "T"],
    &["network", "topology", "T"],
    &["network", "changes", "T"],
    &["network", "iterations", "T"],
    &["network", "stationary", "T"],
    &["network", "cdf", "T"],
    &["network", "slowdown-cdf", "T", "--at", "100=0.5"],
    &["network", "trigger", "T"],
    &["network", "peaks", "T"],
    &["network", "components", "T"],
    &["network", "records", "T"],
    &["network", "bias", "T"],
    &["network", "multiload", "T"],
    &["network", "imbalance", "T"],
    &["network", "decomposition", "T"],
    &["network", "slowdown", "T"],
    &["network", "pop", "T"],
    &["network", "critical-path", "T"],
    &["network", "what-if", "T", "--no-latency"],
    &["network", "state", "T"],
    &["network", "placement", "T"],
    &["network", "component", "T"],
    &[
        "network", "latency", "T", "--from", "10.0.0.1", "--to", "10.0.0.2",
    ],
    &[
        "network",
        "bandwidth",
        "T",
        "--from",
        "10.0.0.1",
        "--to",
        "10.0.0.2",
    ],
    &["network", "predict", "--base", "W", "T"],
    &["network", "predict", "--base", "T", "W"],
    &["network", "topology", "T", "--format", "dot"],
    &["network", "matrix", "T", "--format", "graphml"],
    &["network", "matrix", "T", "--by", "endpoint"],
    &["network", "peers", "T", "--by", "process"],
    &["network", "series", "T", "--format", "svg"],
    &["network", "cdf", "T", "--format", "svg"],
    &["network", "period", "T", "--within", "0..1"],
    &["network", "overview", "T", "--last", "1"],
    &["network", "messages", "T"],
    &["network", "series", "T"],
    &["network", "spectrum", "T"],
    &["generate", "T"],
    &["generate", "T", "--format", "cwl"],
    &["generate", "T", "--format", "shell"],
    &["generate", "T", "--format", "snakemake"],
    &["generate", "T", "--format", "dagman"],
    &["generate", "T", "--format", "pegasus"],
    &["generate", "T", "--format", "dax"],
    &["check", "T"],
    &["check", "T", "--kind", "edges", "--declared", "edges"],
    &["report", "T", "-o", "o.html", "--force"],
    &["report", "T", "--format", "json", "-o", "o.json", "--force"],
    &["export", "T", "csv", "-o", "csv", "--force"],
    &["export", "T", "parquet", "-o", "parquet", "--force"],
    &["export", "T", "wfformat"],
    &["export", "T", "chrome"],
    &["export", "T", "perfetto", "-o", "o.pftrace", "--force"],
    &["export", "T", "pcapng", "-o", "o.pcapng", "--force"],
    &["export", "T", "speedscope", "-o", "o.speedscope", "--force"],
    &["export", "T", "folded"],
    &["export", "T", "pprof", "-o", "o.pprof", "--force"],
    &["export", "T", "firefox"],
    &["critical-path", "T", "--stacks"],
    &["export", "T", "gml"],
    &["export", "T", "cytoscape"],
    &["replay", "T", "--into", "played"],
    &["merge", "-q", "--force", "-o", "m.db", "T", "O"],
    &["compare", "T", "W"],
    &["compare", "W", "T"],
    &[
        "compare", "T", "W", "--format", "html", "-o", "o.html", "--force",
    ],
];

fn asked(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

/// Runs a command within its limits; fails on a panic, a command that does not end, or too much memory.
#[track_caller]
fn survives(directory: &Path, arguments: &[&str], bytes: u64, what: &str) {
    let kilobytes = MEGABYTES * 1024 + 4 * bytes / 1024;
    // A replay writes files as large as the trace says. Here they get no larger than this limit, as on a full
    // disk.
    // A replay takes as long as the trace says (SECURITY.md), so it is ended after a while.
    let is_replay = arguments[0] == "replay";
    let within = if is_replay { "timeout 20" } else { "" };
    let script = format!(
        "trap '' XFSZ; ulimit -c 0 -f {kilobytes} -d {kilobytes} -t {SECONDS} && exec {within} \"$0\" \"$@\""
    );
    let output = Command::new("bash")
        .args(["-c", &script, FLOWTRACE])
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let is_late = is_replay && output.status.code() == Some(124);
    let is_sound = output.status.signal().is_none()
        && (is_late || matches!(output.status.code(), Some(0..=2)))
        && !error.contains("panicked");
    assert!(
        is_sound,
        "{what}: {arguments:?}: {}: {error}",
        output.status
    );
}

/// Undamaged originals of the damaged traces: a workflow, the same cut short, packets.
fn templates(directory: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for is_cut in [false, true] {
        let (scratch, path) = montage::montage_file(4, is_cut);
        if !is_cut {
            support::store_rules(&path);
        }
        found.push(one_file(&path));
        drop(scratch);
    }
    for capture in [frames::talk(150), frames::ring(40)] {
        fs::write(directory.join("a.pcap"), capture).unwrap();
        prints(
            directory,
            &["import", "-q", "--force", "-o", "packets.db", "a.pcap"],
        );
        found.push(one_file(&directory.join("packets.db")));
    }
    found.extend(build(directory));
    // Traces of real runs, if the variable names a directory of some.
    if let Some(more) = std::env::var_os("FLOWTRACE_DAMAGED_TEMPLATES") {
        let files = fs::read_dir(more)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        found.extend(files.map(|path| fs::read(path).unwrap()));
    }
    found
}

/// A trace as one file, without a write-ahead log next to it.
fn one_file(path: &Path) -> Vec<u8> {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    drop(db);
    fs::read(path).unwrap()
}

/// Trace of a real build, which `generate` and `check` can read; `None` if nothing can be traced here.
fn build(directory: &Path) -> Option<Vec<u8>> {
    let makefile =
        "all: c\na:\n\tseq 99 > a\nb: a\n\tsort -R a > b\nc: b\n\ttail -n 9 b | sort | uniq > c\n";
    fs::write(directory.join("Makefile"), makefile).unwrap();
    let trace = directory.join("build.db");
    let output = support::run_in(directory, &trace)
        .args(["--", "make", "-s"])
        .output()
        .unwrap();
    let is_traced = output.status.success();
    if !is_traced {
        support::skip("a traced build among the damaged traces: no command can be traced");
    }
    is_traced.then(|| one_file(&trace))
}

/// Capture of two machines that talk, in the newer format (pcapng).
fn capture_of_blocks() -> Vec<u8> {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let mut file = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    file.extend(words(&[1, 20, 1, 65535, 20]));
    let classic = frames::talk(150);
    let mut rest = &classic[24..];
    let mut number = 0;
    while let Some((head, body)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(head[8..12].try_into().unwrap());
        let (frame, after) = body.split_at(length as usize);
        let padded = length.next_multiple_of(4);
        file.extend(words(&[
            6,
            32 + padded,
            0,
            0x5_f5e1,
            number * 10_000,
            length,
            length,
        ]));
        file.extend(frame);
        file.resize(file.len() + (padded - length) as usize, 0);
        file.extend(words(&[32 + padded]));
        number += 1;
        rest = after;
    }
    file
}

/// Calls `one` with each number, on two threads, each with a directory of its own.
fn for_each(count: u64, first: u64, one: impl Fn(u64, &Path) + Sync) {
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let scratch = Scratch::new();
                fs::write(scratch.join("edges"), "a\tb\n").unwrap();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first + count {
                        break;
                    }
                    one(number, &scratch);
                }
            });
        }
    });
    eprintln!(
        "{count} damaged files from {first} on: no panic, each ended; 4 times the file and {MEGABYTES} MB sufficed"
    );
}

#[test]
fn every_command_survives_damaged_traces() {
    let scratch = Scratch::new();
    let templates = templates(&scratch);
    let count = asked("FLOWTRACE_DAMAGED_TRACES", 40);
    // Number of commands for each trace; all of them take a second.
    let each = asked("FLOWTRACE_DAMAGED_COMMANDS", 10) as usize;
    let first = asked("FLOWTRACE_DAMAGED_SEED", 1);
    for_each(count, first, |seed, directory| {
        let mut choose = spoil::seeded(seed);
        let template = &templates[choose(templates.len())];
        fs::write(directory.join("whole.db"), template).unwrap();
        let other = &templates[choose(templates.len())];
        fs::write(directory.join("other.db"), other).unwrap();
        let damaged = directory.join("damaged.db");
        fs::write(&damaged, template).unwrap();
        spoil::trace(&damaged, &mut choose);
        let bytes = fs::metadata(&damaged).unwrap().len();
        for _ in 0..each {
            let command = COMMANDS[choose(COMMANDS.len())];
            let _ = fs::remove_dir_all(directory.join("played"));
            survives(
                directory,
                &of_damaged(command),
                bytes,
                &format!("seed {seed}"),
            );
        }
        for made in ["csv", "parquet"] {
            let _ = fs::remove_dir_all(directory.join(made));
        }
    });
}

/// The arguments of a command with the damaged trace in place of `T`.
fn of_damaged(command: &[&'static str]) -> Vec<&'static str> {
    let put = |word: &&'static str| match *word {
        "T" => "damaged.db",
        "W" => "whole.db",
        "O" => "other.db",
        word => word,
    };
    command.iter().map(put).collect()
}

/// Views repeat the command of an image in all rows of that image, and the name of a machine in each of its
/// samples.
#[test]
fn one_text_of_many_rows_is_in_memory_once() {
    let scratch = Scratch::new();
    fs::write(scratch.join("edges"), "a\tb\n").unwrap();
    let template = &templates(&scratch)[0];
    for name in ["whole.db", "other.db"] {
        fs::write(scratch.join(name), template).unwrap();
    }
    let damaged = scratch.join("damaged.db");
    fs::write(&damaged, template).unwrap();
    let db = rusqlite::Connection::open(&damaged).unwrap();
    db.execute_batch(
        "CREATE TEMP TABLE one AS SELECT * FROM process WHERE origin = 'exec' ORDER BY upid LIMIT 1;
         UPDATE process SET command = printf('%.*c', 130000, 'x') WHERE upid = (SELECT upid FROM one);
         UPDATE host SET name = printf('%.*c', 100000, 'x');
         UPDATE one SET command = NULL, argv_raw = NULL, command_upid = upid, parent_upid = upid;
         CREATE TEMP TABLE n AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 2000) SELECT n FROM r;",
    )
    .unwrap();
    let columns = spoil::columns(&db, "process")
        .join(", ")
        .replacen("upid", "100000 + n", 1);
    db.execute(
        &format!("INSERT INTO process SELECT {columns} FROM one JOIN n"),
        [],
    )
    .unwrap();
    drop(db);
    let bytes = fs::metadata(&damaged).unwrap().len();
    // With --full each command line is printed whole, so the answer alone is as long as all of them. A replay
    // takes as long as the run did.
    let fit = |words: &&&[&str]| words[0] != "replay" && !words.contains(&"--full");
    // All of them take four minutes in a debug build.
    let each = asked("FLOWTRACE_DAMAGED_COMMANDS", 10) as usize;
    let step = COMMANDS.len().div_ceil(each.max(1));
    for command in COMMANDS.iter().filter(fit).step_by(step) {
        survives(
            &scratch,
            &of_damaged(command),
            bytes,
            "one text of 2000 rows",
        );
    }
}

/// The damage and what to do are named, whatever the form of the damage; and the advice helps.
#[test]
fn a_damaged_value_is_named_and_the_rest_can_be_saved() {
    let scratch = Scratch::new();
    let (_directory, path) = montage::montage_file(4, false);
    let whole = one_file(&path);
    let kept = "CREATE TEMP TABLE kept AS SELECT * FROM process; DROP TABLE process;
         CREATE TABLE process AS SELECT * FROM kept;";
    let forms = [
        (
            "UPDATE run SET command = CAST(x'61ff62' AS TEXT)",
            "is damaged: a text in it is not UTF-8",
        ),
        (
            &format!("{kept} UPDATE process SET origin = NULL"),
            "is damaged: a value of origin is missing",
        ),
    ];
    for (change, expected) in forms {
        fs::write(scratch.join("damaged.db"), &whole).unwrap();
        let db = rusqlite::Connection::open(scratch.join("damaged.db")).unwrap();
        db.execute_batch(change).unwrap();
        drop(db);
        let output = support::flowtrace(&scratch, &["summary", "damaged.db"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("hint: copy it again, or save"), "{error}");
        if !change.starts_with("UPDATE") {
            continue;
        }
        if !support::need_program("sqlite3") {
            support::skip("the advice on damaged traces: no sqlite3");
            continue;
        }
        let (_, advice) = error.split_once("left with").unwrap();
        let saved = Command::new("sh")
            .args(["-c", &advice.trim().replace("FILE", "damaged.db")])
            .current_dir(&*scratch)
            .output()
            .unwrap();
        assert!(
            saved.status.success() && saved.stderr.is_empty(),
            "{saved:?}"
        );
        prints(&scratch, &["summary", "saved.db"]);
    }
}

#[test]
fn every_command_survives_damaged_captures() {
    let captures = [frames::talk(150), capture_of_blocks()];
    let count = asked("FLOWTRACE_DAMAGED_CAPTURES", 40);
    let first = asked("FLOWTRACE_DAMAGED_SEED", 1);
    for_each(count, first, |seed, directory| {
        let mut choose = spoil::seeded(seed);
        let mut content = captures[choose(captures.len())].clone();
        spoil::bytes(&mut content, &mut choose);
        fs::write(directory.join("c.pcap"), &content).unwrap();
        let bytes = content.len() as u64;
        let what = format!("capture of seed {seed}");
        let import = ["import", "-q", "--force", "-o", "c.db", "c.pcap"];
        survives(directory, &import, bytes, &what);
        if !directory.join("c.db").exists() {
            return;
        }
        let of_packets =
            |command: &&&[&str]| matches!(command[0], "network" | "summary" | "query" | "report");
        let commands: Vec<_> = COMMANDS.iter().filter(of_packets).collect();
        for _ in 0..3 {
            let command = commands[choose(commands.len())];
            let put = |word: &&'static str| match *word {
                "T" | "W" => "c.db",
                word => word,
            };
            let arguments: Vec<&str> = command.iter().map(put).collect();
            survives(directory, &arguments, bytes, &what);
        }
        fs::remove_file(directory.join("c.db")).unwrap();
    });
}
