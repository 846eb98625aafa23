//! How much slower does work get when it is traced?
//!
//!     cargo bench --bench slowdown                 all workloads, 7 rounds
//!     cargo bench --bench slowdown -- --quick      one round of the small ones: does it run at all?
//!     cargo bench --bench slowdown -- --rounds 15 spawn metadata      some workloads
//!     cargo bench --bench slowdown -- --ways native,bare,bindfs fio   some ways to run them
//!     cargo bench --bench slowdown -- --files 50000 metadata          a larger metadata storm
//!     cargo bench --bench slowdown -- --fio-dir /data fio             fio on the disk of /data
//!     TMPDIR=/dev/shm cargo bench --bench slowdown -- metadata cbuild others without the disk
//!
//! Every workload is run in several ways:
//!
//! - `native`: as it is;
//! - `bare`: `flowtrace run --bare`, the same filesystem mounted in the same way with nothing
//!   recorded and no process traced, which is what any FUSE passthrough costs;
//! - `unlogged`: `flowtrace run` with the filesystem mounted and the processes recorded, but no
//!   file call: what is left to `fuse` is the cost of recording calls alone;
//! - `fuse`: `flowtrace run --layer fuse`, everything recorded through a mount;
//! - `flowtrace`: `flowtrace run`, everything recorded: as root by eBPF programs, with nothing mounted;
//! - `cached`: `flowtrace run --fidelity cached --stat cached`, what the kernel answers by itself
//!   is not seen;
//! - `device`, `cached-device`: `fuse` and `cached` with file calls by `/dev/fuse` where they would come over
//!   io_uring;
//! - `stops`: a tracer that stops every process where flowtrace does, but for system calls, and does
//!   nothing there: what following processes by ptrace costs at least;
//! - `ptrace`: `flowtrace run --no-mount --ptrace`, the processes followed by ptrace and of files their opens alone;
//!   `reported`: with `--no-ptrace --no-topology`, lifetimes alone, by eBPF programs;
//! - `bindfs`: Debian's bindfs, multithreaded, mounted over the same directory in a private
//!   namespace: a plain passthrough that people use;
//! - `strace`: `strace -f -o /dev/null`, what people trace with today; `strace-processes` the same of
//!   nothing but calls that make and end processes, by a filter in the kernel; `perf-trace`: perf's.
//!
//! Machines get faster and slower while one measures. So the ways follow each other immediately,
//! the order rotates from round to round, ratios are taken within a round, and the table shows
//! their medians (the column of the native figure is a median too). The spread in the last column,
//! half the distance between the quartiles of flowtrace/native, says how much a ratio is worth.
//!
//! Every ratio is of times for the same work, so above 1 is slower. For fio, which works for a
//! fixed time, that is the native bandwidth divided by the bandwidth of the way, both from fio's
//! own report: starting fio and mounting count nothing. For all others it is the time from start
//! to exit, and each run has a fresh directory under `TMPDIR`, made outside that time; the rows
//! below `metadata` are parts of it, per file, by the storm's own clock. Workloads and ways whose
//! programs or files are not there are listed as left out. Below the table every bar is said to be
//! met or missed, workload by workload; the exit status does not depend on that.

mod bars;
mod fio;
mod measure;
mod options;
mod statistics;
mod stops;
mod storm;
mod table;
mod ways;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tempfile::TempDir;

use options::Options;
use ways::Way;
use workloads::{Places, Workload};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(command) = stops::asked_for(&arguments) {
        return stops::run(command);
    }
    if let Some(files) = storm::asked_for(&arguments) {
        storm::run(files);
        return ExitCode::SUCCESS;
    }
    let result = Options::parse(&arguments).and_then(|options| bench(&options));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("slowdown: {message}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), String> {
    let scratch = scratch_in(&std::env::temp_dir())?;
    let fio_parent = options.fio_dir.clone().unwrap_or_else(fio::default_parent);
    let fio_scratch = scratch_in(&fio_parent)?;
    let places = Places {
        root: real(scratch.path())?,
        fio: real(fio_scratch.path())?,
    };
    let mut left_out = Vec::new();
    let workloads = workloads::find(options, &places, &mut left_out)?;
    let ways = ways::find(&options.ways, &mut left_out);
    for (what, why) in &left_out {
        println!("left out: {what}: {why}");
    }
    if workloads.is_empty() {
        return Err("no such workload here".to_owned());
    }
    say_conditions(options, &places, &workloads);
    let names: Vec<_> = workloads.iter().flat_map(Workload::rows).collect();
    let table = table::Table::new(&ways, &names);
    table.head();
    let mut wholes = Vec::new();
    for workload in &workloads {
        let rows = measure::rounds(workload, &places.root, options.rounds, &ways)
            .map_err(|message| format!("{}: {message}", workload.name))?;
        for row in &rows {
            table.row(row);
        }
        // Parts of a run explain it; the bars are about the whole.
        wholes.extend(rows.into_iter().next().map(|whole| (workload, whole)));
    }
    println!();
    for line in bars::judge(&wholes) {
        println!("{line}");
    }
    Ok(())
}

fn say_conditions(options: &Options, places: &Places, workloads: &[Workload]) {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cpus} CPUs, {} rounds, medians", options.rounds);
    if workloads.iter().any(Workload::is_fio) {
        println!("{}", fio::conditions(&places.fio));
    }
    println!();
}

/// A directory that goes with the benchmark; its name says whose it is if the benchmark is killed.
fn scratch_in(parent: &Path) -> Result<TempDir, String> {
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix("flowtrace-slowdown-").tempdir_in(parent);
    made.map_err(|e| format!("cannot make a directory in {}: {e}", parent.display()))
}

fn real(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize()
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether a program is in PATH.
fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The ways that are not there, and workloads likewise: what, and why.
type LeftOut = Vec<(String, String)>;

/// Every way there is, in the order of the table's columns.
const WAYS: [Way; 15] = [
    Way::Native,
    Way::Bare,
    Way::Unlogged,
    Way::Fuse,
    Way::Flowtrace,
    Way::Cached,
    Way::Device,
    Way::CachedDevice,
    Way::Stops,
    Way::Ptrace,
    Way::Reported,
    Way::Bindfs,
    Way::Strace,
    Way::StraceProcesses,
    Way::PerfTrace,
];
