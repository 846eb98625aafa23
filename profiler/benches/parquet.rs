//! How fast the calls of a trace become a Parquet dataset, and how large that is.
//!
//! `cargo bench -p flowtrace-profiler --bench parquet` makes a trace of 50 million calls, of 100 000
//! processes and 300 000 files, with durations, sizes and moments that differ from call to call
//! as real ones do, and exports it; `-- N` one of N calls, `-- N FILE` keeps that; `-- FILE` exports a trace that is there. The bars:
//! at least a million rows a second, at most a third of the size.
//! Writing is timed until the last file has its name; nothing is synced to the disk, as nothing that
//! flowtrace writes is. `tests/truth/engines.py` asks DuckDB, Polars and Spark for what SQLite says.

use std::path::Path;
use std::time::Instant;

use flowtrace_profiler::export::parquet;
use flowtrace_schema::{Call, Fidelity, FileId, FileKind, Op, Tid, Trace, Upid};
use nix::sys::resource::{UsageWho, getrusage};

#[path = "../tests/support/script.rs"]
mod script;

use script::Script;

/// Rows a second, and the share of the trace's size.
const BARS: (f64, f64) = (1e6, 1.0 / 3.0);

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let directory = tempfile::tempdir().expect("a place for the trace");
    let kept = words.get(1).map(std::path::PathBuf::from);
    let made = kept.unwrap_or_else(|| directory.path().join("calls.db"));
    let path = match words.first() {
        Some(word) if word.parse::<u64>().is_err() => Path::new(word),
        word => {
            let calls = word.map_or(50_000_000, |n| n.parse().expect("a number of calls"));
            let begin = Instant::now();
            generate(&made, calls);
            println!(
                "{calls} calls generated in {:.1} s",
                begin.elapsed().as_secs_f64()
            );
            &made
        }
    };
    let trace = Trace::open(path).expect("a trace");
    let dataset = directory.path().join("dataset");
    let (begin, cpu_before) = (Instant::now(), cpu());
    let written = parquet::write(&trace, &dataset).expect("a dataset");
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = cpu() - cpu_before;
    let size = path.metadata().map_or(0, |file| file.len());
    let (rate, share) = (
        written.rows as f64 / seconds,
        written.bytes as f64 / size as f64,
    );
    let rows = written.rows as f64;
    println!(
        "{} rows in {} files in {seconds:.1} s: {:.2} million a second, {:.2} µs of CPU time each",
        written.rows,
        written.files,
        rate / 1e6,
        cpu * 1e6 / rows
    );
    println!(
        "{:.1} bytes a row, SQLite {:.1}: {:.0} %; {} MiB of memory",
        written.bytes as f64 / rows,
        size as f64 / rows,
        share * 100.0,
        peak_kib() / 1024
    );
    let is_fast = rate >= BARS.0;
    let is_small = share <= BARS.1;
    for (is_good, what) in [(is_fast, "rows a second"), (is_small, "size")] {
        if !is_good {
            println!("over the bar: {what}");
        }
    }
    // Who gave a file asks for its figures, whatever its size.
    if words.is_empty() && !(is_fast && is_small) {
        std::process::exit(1);
    }
}

/// Seconds of CPU time of this process.
fn cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("own usage");
    [usage.user_time(), usage.system_time()]
        .iter()
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6)
        .sum()
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|p| p.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// A source of numbers that are the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// About `scale`, now and then ten or a hundred times as much.
    fn skewed(&mut self, scale: u64) -> u64 {
        let tail = match self.next() % 1000 {
            0..2 => 100,
            2..50 => 10,
            _ => 1,
        };
        (scale / 2 + self.next() % scale) * tail
    }
}

/// Jobs, 32 at a time, each of which opens two files, reads one in order and the other here and there, writes a
/// third, and closes them.
fn generate(path: &Path, calls: u64) {
    const AT_ONCE: u64 = 32;
    const EACH: u64 = 500;
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut s = Script::new(path, "make -j32");
    let make = s.root(("/usr/bin/make", &["make", "-j32"]), 0);
    let mut now = 1_000_000_000u64;
    let jobs = calls.div_ceil(EACH);
    let mut left = calls;
    for first in (0..jobs).step_by(AT_ONCE as usize) {
        let at = now / 1_000_000;
        let mut running = Vec::new();
        for job in first..(first + AT_ONCE).min(jobs) {
            let exe = format!("/usr/bin/step{}", job % 7);
            let argument = format!("part/{job}.in");
            let program = (exe.as_str(), &[exe.as_str(), argument.as_str()][..]);
            let image = s.fork(make, program, at);
            let mut file = |what: &str| {
                let name = format!("/data/project/run-{}/{what}/{job}.dat", job % 13);
                s.file(&name, FileKind::File, 1 << 20, at)
            };
            running.push((image, [file("in"), file("index"), file("out")], [0u64; 3]));
        }
        for round in 0..EACH {
            for (image, files, offsets) in &mut running {
                if left == 0 {
                    break;
                }
                left -= 1;
                // As 32 programs come to call: no two steps are the same.
                now += 1 + chance.skewed(3_000);
                let which = (chance.next() % 3) as usize;
                let size = [65536, 4096, 1 << (9 + chance.next() % 8)][which];
                let (op, offset, length) = match (round, which) {
                    (0..3, _) => (Op::Open, None, None),
                    (497.., _) => (Op::Release, None, None),
                    (_, 1) => (Op::Read, Some(chance.next() % 4096 * 4096), Some(size)),
                    (_, 0) => (Op::Read, Some(offsets[0]), Some(size)),
                    (_, _) => (Op::Write, Some(offsets[2]), Some(size)),
                };
                let is_short = chance.next().is_multiple_of(50);
                let result = length.map_or(0, |n| if is_short { n / 3 } else { n });
                offsets[which] += result;
                s.call_of(Call {
                    start_ns: now,
                    duration_ns: chance.skewed(if op == Op::Write { 9_000 } else { 2_500 }),
                    upid: Some(Upid(*image)),
                    tid: round.is_multiple_of(9).then(|| Tid(100_000 + *image)),
                    op,
                    file: Some(FileId(files[which])),
                    offset,
                    length,
                    flags: (op == Op::Open).then_some(0o100_000),
                    result: result as i64,
                    fidelity: Fidelity::Exact,
                });
            }
        }
        for (image, ..) in running {
            s.end(image, now / 1_000_000, Some(0), None, 5);
        }
    }
    let end = now / 1_000_000 + 1;
    s.end(make, end, Some(0), None, 10);
    s.finish(end, 0);
}
