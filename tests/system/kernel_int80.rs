//! Programs that make the calls of 32-bit x86: the files that they open elsewhere, and under `--layer kernel`
//! their rows.

use std::path::{Path, PathBuf};

use crate::support::process::finish;
use crate::support::programs::program;
use crate::support::trace::Trace;
use crate::support::{Scratch, need_fuse, need_kernel_layer, run_in, skip};

const BY_ITSELF: [&str; 5] = [
    "-nostdlib",
    "-static",
    "-fno-pic",
    "-no-pie",
    "-fno-stack-protector",
];

/// Path of the compiled program, if it runs here.
fn runs_here(scratch: &Scratch, bits: &str) -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        skip("32-bit calls are those of x86");
        return None;
    }
    let mut options = vec![bits];
    options.extend(BY_ITSELF);
    let program = program("int80", &options)?;
    let alone = scratch.dir("alone");
    let mut command = std::process::Command::new(&program);
    // Where the kernel has no such calls, the program is killed or gets ENOSYS.
    if finish(command.current_dir(alone)).status.code() != Some(0) {
        skip("this kernel has no 32-bit calls");
        return None;
    }
    Some(program)
}

fn traced(scratch: &Scratch, options: &[&str], program: &Path) -> Trace {
    let path = scratch.join("trace.db");
    let job = scratch.dir("job");
    let mut command = run_in(&job, &path);
    command.args(["--layer", "kernel"]).args(options);
    finish(command.arg("--").arg(program)).expect(0);
    assert_eq!(std::fs::metadata(job.join("data")).unwrap().len(), 20_000);
    Trace::open_complete(&path)
}

fn moved(trace: &Trace) -> Vec<Vec<String>> {
    trace.rows(
        "SELECT op, COUNT(*), SUM(result), fidelity FROM calls
         WHERE op IN ('read', 'write') AND path LIKE '%data' GROUP BY op, fidelity ORDER BY op",
    )
}

#[test]
fn calls_of_32_bits_are_seen() {
    if !need_fuse() || !need_kernel_layer() {
        return;
    }
    for bits in ["-m32", "-m64"] {
        for options in [&[][..], &["--no-mount"]] {
            let scratch = Scratch::new();
            let Some(program) = runs_here(&scratch, bits) else {
                return;
            };
            let trace = traced(&scratch, options, &program);
            let expected = [
                ["read", "200", "20000", "exact"],
                ["write", "200", "20000", "exact"],
            ];
            assert_eq!(moved(&trace), expected, "{bits} {options:?}");
            let unreconciled =
                "SELECT value FROM losses WHERE counter = 'calls_unreconciled' AND value > 0";
            assert!(trace.rows(unreconciled).is_empty(), "{bits} {options:?}");
        }
    }
}

#[test]
fn files_that_32_bit_calls_open_elsewhere_are_seen() {
    if !need_fuse() {
        return;
    }
    for bits in ["-m32", "-m64"] {
        let scratch = Scratch::new();
        let Some(program) = runs_here(&scratch, bits) else {
            return;
        };
        let (job, elsewhere) = (scratch.dir("job"), scratch.dir("elsewhere"));
        let path = scratch.join("trace.db");
        let mut command = run_in(&job, &path);
        command.args(["--", "sh", "-c", "cd ../elsewhere && $0"]);
        finish(command.arg(&program)).expect(0);
        let trace = Trace::open_complete(&path);
        let opened = trace.rows(
            "SELECT op, path FROM calls WHERE op IN ('open', 'create') AND path LIKE '%/data'",
        );
        let made = elsewhere.join("data").display().to_string();
        assert_eq!(opened, [["create".to_owned(), made]], "{bits}");
    }
}

#[test]
fn a_call_by_other_numbers_is_no_other_call() {
    if !need_kernel_layer() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let scratch = Scratch::new();
    let Some(program) = program("int80_between", &["-no-pie", "-fno-pic"]) else {
        return;
    };
    let (job, path) = (scratch.dir("job"), scratch.join("trace.db"));
    std::fs::write(job.join("data"), [7; 2_000]).unwrap();
    let mut alone = std::process::Command::new(&program);
    if finish(alone.current_dir(&job)).status.code() != Some(0) {
        return skip("this kernel has no 32-bit calls");
    }
    let mut command = run_in(&job, &path);
    let command = command.args(["--layer", "kernel", "--no-mount", "--"]);
    finish(command.arg(program)).expect(0);
    let trace = Trace::open_complete(&path);
    let rows = trace.rows(
        "SELECT op, offset, length, result, fidelity FROM calls
         WHERE op IN ('read', 'write') AND path LIKE '%data' ORDER BY start_ns",
    );
    let row = |offset: usize, length: usize| {
        let [offset, length] = [offset, length].map(|number| number.to_string());
        [
            "read".into(),
            offset,
            length.clone(),
            length,
            "exact".into(),
        ]
    };
    let mut expected = vec![row(0, 10), row(10, 20)];
    expected.extend((0..7).map(|n| row(30 + 10 * n, 10)));
    expected.extend((1_000..1_006).map(|offset| row(offset, 5)));
    assert_eq!(rows, expected);
    let unreconciled =
        "SELECT value FROM losses WHERE counter = 'calls_unreconciled' AND value > 0";
    assert!(trace.rows(unreconciled).is_empty());
}
