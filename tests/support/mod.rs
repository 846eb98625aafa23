//! Shared parts of the tests that run the binary: prerequisites, scratch directories, processes with a
//! deadline, and readers of a trace and of a log of strace.
//!
//! A test that cannot run here reports that with [`skip`] and returns. `cargo test` captures that line, so it
//! is also appended to the file named by `FLOWTRACE_SKIP_LOG`, from which `tests/run` prints the list. With
//! `FLOWTRACE_REQUIRE_SYSTEM=1` a missing facility of the system is a failure instead; a missing reference
//! workload (`../shared`) never is.
#![allow(dead_code)] // every test target uses only some of it

pub(crate) mod names;
pub(crate) mod page;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod scripts;
pub(crate) mod shape;
pub(crate) mod strace;
pub(crate) mod trace;
pub(crate) mod tree;
pub(crate) mod user;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The binary under test.
pub(crate) const FLOWTRACE: &str = env!("CARGO_BIN_EXE_flowtrace");

/// Runs flowtrace in `directory` to its end.
pub(crate) fn flowtrace(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(FLOWTRACE)
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// A text without its line breaks: lines of a summary are broken between words.
pub(crate) fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs flowtrace in `directory`, which must succeed, and returns its output.
pub(crate) fn prints(directory: &Path, arguments: &[&str]) -> String {
    let output = flowtrace(directory, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// `flowtrace run --quiet --no-summary -o TRACE`, to be started in `cwd`; the caller adds more
/// options, `--` and the command.
pub(crate) fn run_in(cwd: &Path, trace: &Path) -> Command {
    let mut command = Command::new(FLOWTRACE);
    command
        .args(["run", "--quiet", "--no-summary", "-o"])
        .arg(trace)
        .args(by_ptrace().then_some("--ptrace"))
        .current_dir(cwd);
    command
}

/// True if the tests are to follow processes by ptrace, where they ask for nothing else.
fn by_ptrace() -> bool {
    std::env::var_os("FLOWTRACE_TEST_PTRACE").is_some()
}

/// Runs a command line on a terminal of 40 lines and 150 columns.
pub(crate) fn on_terminal(directory: &Path, line: &str) -> String {
    let mut command = Command::new("script");
    command.args([
        "-qec",
        &format!("stty rows 40 cols 150; {line}"),
        "/dev/null",
    ]);
    let output = command.current_dir(directory).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A file of this checkout.
pub(crate) fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A directory that everybody may enter, removed at the end of the test.
pub(crate) struct Scratch {
    _guard: tempfile::TempDir,
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let guard = tempfile::Builder::new()
            .prefix("flowtrace-test-")
            .tempdir()
            .expect("a temporary directory");
        fs::set_permissions(guard.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = guard.path().canonicalize().unwrap();
        Scratch {
            _guard: guard,
            path,
        }
    }

    /// Makes a new directory in this one.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let dir = self.path.join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}

impl Deref for Scratch {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Name of the test that is running: libtest names its threads so.
fn test_name() -> String {
    std::thread::current()
        .name()
        .unwrap_or("unnamed")
        .to_owned()
}

/// Reports that the current test does not run here, and why.
pub(crate) fn skip(reason: &str) {
    let line = format!("skipped: {}: {reason}\n", test_name());
    eprint!("{line}");
    if let Some(log) = std::env::var_os("FLOWTRACE_SKIP_LOG") {
        // The line is written by one call, because other tests append to the same file.
        let appended = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&log)
            .and_then(|mut f| f.write_all(line.as_bytes()));
        appended.unwrap_or_else(|e| panic!("cannot append to FLOWTRACE_SKIP_LOG: {e}"));
    }
}

/// Skips for lack of a facility that a system may have; fails where the system must have it.
pub(crate) fn missing(reason: &str) -> bool {
    let required = std::env::var_os("FLOWTRACE_REQUIRE_SYSTEM").is_some_and(|v| v == "1");
    assert!(!required, "FLOWTRACE_REQUIRE_SYSTEM=1, but: {reason}");
    skip(reason);
    false
}

pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// Returns true if this process is root; otherwise skips the test.
pub(crate) fn need_root() -> bool {
    nix::unistd::geteuid().is_root() || missing("not root")
}

/// Returns true if FUSE can be mounted in a private namespace; otherwise skips the test.
pub(crate) fn need_fuse() -> bool {
    if let Err(e) = File::options().read(true).write(true).open("/dev/fuse") {
        return missing(&format!("cannot open /dev/fuse: {e}"));
    }
    let namespace = if nix::unistd::geteuid().is_root() {
        "-m"
    } else {
        "-Um"
    };
    succeeds("unshare", &[namespace, "true"]) || missing("cannot make a private mount namespace")
}

/// Returns true if `flowtrace doctor` finds that all of these work.
fn doctor_finds(facilities: &[&str]) -> bool {
    let doctor = Command::new(FLOWTRACE).arg("doctor").output();
    let found = String::from_utf8_lossy(&doctor.expect("can run").stdout).into_owned();
    let works = |facility: &&str| {
        let mut lines = found.lines();
        lines.any(|line| line.starts_with("ok") && line.contains(*facility))
    };
    facilities.iter().all(works)
}

/// Returns true if the kernel announces processes and their costs to flowtrace (proc connector, taskstats),
/// as flowtrace itself finds; otherwise skips the test.
pub(crate) fn need_announcements() -> bool {
    doctor_finds(&["(proc connector)", "(taskstats)"])
        || missing("no proc connector or no taskstats")
}

/// Returns true if eBPF programs can report processes, as flowtrace itself finds; otherwise skips the test.
pub(crate) fn need_process_tracepoints() -> bool {
    doctor_finds(&["ptrace (tracepoints)"]) || missing("no programs at the scheduler's tracepoints")
}

/// Returns true if tracepoints can report reads and writes, as flowtrace itself finds; otherwise skips the
/// test. Some systems have everything else but not these tracepoints.
pub(crate) fn need_kernel_layer() -> bool {
    // It is not to be had with ptrace.
    if by_ptrace() {
        return false;
    }
    let works = doctor_finds(&["--layer kernel"]);
    if !works {
        skip("no tracepoints of calls, or no FUSE passthrough");
    }
    works
}

/// Returns true if a program is in PATH; otherwise skips the test.
pub(crate) fn need_program(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|d| d.join(program).is_file())
        || missing(&format!("no program {program}"))
}

/// The distribution's Python, which has the packages from apt. Another Python may come first in PATH.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Returns true if the distribution's Python has a module; otherwise skips the test.
pub(crate) fn need_python(module: &str) -> bool {
    succeeds(PYTHON, &["-c", &format!("import {module}")])
        || missing(&format!("{PYTHON} has no module {module}"))
}

/// A reference workload or tool in `../shared` next to this checkout; skips the test if it is missing.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let root = checkout("../shared");
    let found = root.join(path).canonicalize().ok();
    if found.is_none() {
        skip(&format!("no ../shared/{path} beside the checkout"));
    }
    found
}

/// Upper bound of a wait for something that happens at once on an idle machine. It is large because the
/// machine may be busy with other work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Polls until `condition` gives a value; panics after `limit`.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Infers the rules of a finished trace and stores them in it, as the end of a run does.
pub(crate) fn store_rules(path: &Path) {
    let trace = flowtrace_schema::Trace::open_to_store(path).unwrap();
    let rules = flowtrace_profiler::rules::infer(&trace).unwrap();
    trace.store_rules(rules).unwrap();
}
