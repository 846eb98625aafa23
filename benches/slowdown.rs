//! How much slower does a workflow run when it is traced?
//!
//!     cargo bench --bench slowdown                 all workloads, 7 rounds
//!     cargo bench --bench slowdown -- --quick      one round of the small ones: does it run at all?
//!     cargo bench --bench slowdown -- --rounds 15 spawn metadata      some workloads
//!
//! Every workload is run in four ways:
//!
//! - `native`: as it is;
//! - `bare`: `flowtrace run --bare`, the same filesystem mounted in the same way with nothing
//!   recorded and no process traced, which is what any FUSE passthrough costs;
//! - `flowtrace`: `flowtrace run`, everything recorded;
//! - `strace`: `strace -f -o /dev/null`, what people use today.
//!
//! Machines get faster and slower while one measures. So the four ways follow each other
//! immediately, the order rotates from round to round, ratios are taken within a round, and the
//! table shows their medians (the columns of seconds are medians too, so their quotients need not
//! equal the ratios). Every run has a fresh directory, made outside the measured time. The spread
//! in the last column, half the distance between the quartiles of flowtrace/native, says how much
//! a ratio is worth. Workloads whose programs or files are not there are listed as left out.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

const FLOWTRACE: &str = env!("CARGO_BIN_EXE_flowtrace");
const WAYS: [&str; 4] = ["native", "bare", "flowtrace", "strace"];
/// Argument with which this program is its own workload.
const STORM: &str = "--metadata-storm";
const STORM_FILES: usize = 5_000;
/// Where the distribution's Python is, which has the packages from apt.
const PYTHON: &str = "/usr/bin/python3";

/// Something to run.
struct Workload {
    name: &'static str,
    /// The command, started in a copy of `input`.
    argv: Vec<String>,
    variables: Vec<(&'static str, String)>,
    input: PathBuf,
    /// Part of `--quick`.
    quick: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == STORM) {
        metadata_storm();
        return ExitCode::SUCCESS;
    }
    let mut quick = false;
    let mut rounds = 7;
    let mut names: Vec<&str> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--bench" => {} // from cargo
            "--quick" => (quick, rounds) = (true, 1),
            "--rounds" => {
                let Some(number) = rest.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0)
                else {
                    eprintln!("slowdown: --rounds needs a number above 0");
                    return ExitCode::from(2);
                };
                rounds = number;
            }
            name if !name.starts_with('-') => names.push(name),
            unknown => {
                eprintln!("slowdown: unknown option {unknown}");
                return ExitCode::from(2);
            }
        }
    }
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let root = scratch.path().canonicalize().expect("just made");
    let (mut workloads, left_out) = workloads(&root, quick);
    workloads.retain(|w| (!quick || w.quick) && (names.is_empty() || names.contains(&w.name)));
    for (name, reason) in &left_out {
        println!("left out: {name}: {reason}");
    }
    if workloads.is_empty() {
        eprintln!("slowdown: no such workload here");
        return ExitCode::from(2);
    }
    let strace = in_path("strace");
    if !strace {
        println!("left out: strace: no such program");
    }
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cpus} processors, {rounds} rounds, medians\n");
    println!(
        "{:<12} {:>9} {:>9} {:>9} {:>9}   {:>14} {:>16} {:>13} {:>7}",
        "",
        "native s",
        "bare s",
        "flowtr. s",
        "strace s",
        "flowtrace/bare",
        "flowtrace/native",
        "strace/native",
        "spread"
    );
    for workload in &workloads {
        match measure(workload, &root, rounds, strace) {
            Ok(times) => report(workload.name, &times),
            Err(message) => {
                eprintln!("slowdown: {}: {message}", workload.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Seconds of each way, per round; None: the way does not exist here.
type Round = [Option<f64>; WAYS.len()];

fn measure(
    workload: &Workload,
    root: &Path,
    rounds: usize,
    strace: bool,
) -> Result<Vec<Round>, String> {
    let mut times = Vec::new();
    for round in 0..rounds {
        let mut seconds = [None; WAYS.len()];
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            if WAYS[way] == "strace" && !strace {
                continue;
            }
            seconds[way] = Some(run(workload, root, WAYS[way])?);
        }
        times.push(seconds);
    }
    Ok(times)
}

/// Seconds of one run, from start to exit.
fn run(workload: &Workload, root: &Path, way: &str) -> Result<f64, String> {
    let work = root.join("work");
    copy(&workload.input, &work).map_err(|e| format!("cannot prepare: {e}"))?;
    let trace = root.join("trace.db");
    let mut command = match way {
        "native" => Command::new(&workload.argv[0]),
        "bare" => {
            let mut command = Command::new(FLOWTRACE);
            command.args(["run", "--bare", "--", &workload.argv[0]]);
            command
        }
        "flowtrace" => {
            let mut command = Command::new(FLOWTRACE);
            command.args(["run", "--quiet", "--no-summary", "-o"]);
            command.arg(&trace).args(["--", &workload.argv[0]]);
            command
        }
        _ => {
            let mut command = Command::new("strace");
            command.args(["-f", "-o", "/dev/null", "--", &workload.argv[0]]);
            command
        }
    };
    command
        .args(&workload.argv[1..])
        .envs(workload.variables.iter().map(|(n, v)| (n, v)))
        .current_dir(&work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let output = command
        .spawn()
        .and_then(std::process::Child::wait_with_output);
    let seconds = start.elapsed().as_secs_f64();
    let output = output.map_err(|e| format!("{way}: cannot start: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{way}: {}: {}", output.status, said.trim_end()));
    }
    let _ = fs::remove_file(&trace);
    fs::remove_dir_all(&work).map_err(|e| format!("{way}: cannot clean up: {e}"))?;
    Ok(seconds)
}

fn report(name: &str, times: &[Round]) {
    let column = |way: usize| quartiles(times.iter().filter_map(|t| t[way]).collect());
    let ratio =
        |a: usize, b: usize| quartiles(times.iter().filter_map(|t| Some(t[a]? / t[b]?)).collect());
    let show = |values: Option<[f64; 3]>, digits: usize| {
        values.map_or_else(
            || "-".to_owned(),
            |[_, median, _]| format!("{median:.digits$}"),
        )
    };
    let spread = ratio(2, 0).map_or(0.0, |[low, _, high]| (high - low) / 2.0);
    println!(
        "{name:<12} {:>9} {:>9} {:>9} {:>9}   {:>14} {:>16} {:>13} {:>7}",
        show(column(0), 3),
        show(column(1), 3),
        show(column(2), 3),
        show(column(3), 3),
        show(ratio(2, 1), 2),
        show(ratio(2, 0), 2),
        show(ratio(3, 0), 2),
        format!("±{spread:.2}")
    );
    let _ = std::io::stdout().flush();
}

/// Lower quartile, median, upper quartile, interpolated; None of nothing.
fn quartiles(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)? as f64;
    Some([0.25, 0.5, 0.75].map(|share| {
        let place = share * last;
        let (below, above) = (
            values[place.floor() as usize],
            values[place.ceil() as usize],
        );
        below + (above - below) * place.fract()
    }))
}

/// The workloads that can be run here, and why others cannot.
fn workloads(root: &Path, quick: bool) -> (Vec<Workload>, Vec<(&'static str, String)>) {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let empty = root.join("empty");
    fs::create_dir(&empty).expect("a directory in scratch");
    let own = std::env::current_exe().expect("the path of this program");
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let small = |name, argv: Vec<String>, variables| Workload {
        name,
        argv,
        variables,
        input: empty.clone(),
        quick: true,
    };
    let words = if quick { "200000" } else { "1000000" };
    let spawn = "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done";
    let mut found = vec![
        small(
            "wordcount",
            vec![text(&checkout.join("examples/wordcount.sh"))],
            vec![("WORDS", words.to_owned())],
        ),
        small("metadata", vec![text(&own), STORM.to_owned()], vec![]),
        small(
            "spawn",
            ["sh", "-c", spawn].map(str::to_owned).to_vec(),
            vec![],
        ),
    ];
    let mut left_out = Vec::new();
    let mut reference = |name, folder: &str, program, variables: Vec<(&'static str, String)>| {
        let folder = checkout.join("../shared/workloads").join(folder);
        let prepared = prepare(&folder, &root.join(format!("input-{name}")), program);
        match prepared {
            Ok((script, input)) => found.push(Workload {
                name,
                argv: vec![text(&script), ".".to_owned(), "2".to_owned()],
                variables,
                input,
                quick: false,
            }),
            Err(reason) => left_out.push((name, reason)),
        }
    };
    if !quick {
        reference("cbuild", "cbuild", "gcc", vec![]);
        let fast = vec![("PROJECT", "mProjectPP".to_owned())];
        reference("montage-pp", "montage", "mProjectPP", fast);
        reference("montage", "montage", "mProject", vec![]);
    }
    (found, left_out)
}

/// Makes the input of a reference workload; its script and the input.
fn prepare(folder: &Path, input: &Path, program: &str) -> Result<(PathBuf, PathBuf), String> {
    let folder = folder
        .canonicalize()
        .map_err(|_| "no ../shared/workloads beside the checkout".to_owned())?;
    for needed in [program, "make"] {
        if !in_path(needed) {
            return Err(format!("no program {needed}"));
        }
    }
    let made = Command::new(folder.join("data.sh"))
        .arg(input)
        .env("PYTHON", PYTHON)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    match made {
        Ok(output) if output.status.success() => Ok((folder.join("run.sh"), input.to_owned())),
        Ok(output) => Err(format!(
            "its data.sh failed: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        )),
        Err(e) => Err(format!("its data.sh cannot be started: {e}")),
    }
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Calls that move no data, in the current directory: the worst case of a filesystem in user space.
fn metadata_storm() {
    let name = |i: usize| PathBuf::from(format!("d{}/f{i}", i % 10));
    for d in 0..10 {
        fs::create_dir(format!("d{d}")).expect("mkdir");
    }
    for i in 0..STORM_FILES {
        fs::File::create(name(i)).expect("create");
    }
    for i in 0..STORM_FILES {
        assert_eq!(fs::metadata(name(i)).expect("stat").len(), 0);
        assert!(fs::metadata(format!("absent{i}")).is_err());
    }
    for d in 0..10 {
        let listed = fs::read_dir(format!("d{d}")).expect("readdir").count();
        assert_eq!(listed, STORM_FILES / 10);
    }
    for i in 0..STORM_FILES {
        fs::remove_file(name(i)).expect("unlink");
    }
    for d in 0..10 {
        fs::remove_dir(format!("d{d}")).expect("rmdir");
    }
}
