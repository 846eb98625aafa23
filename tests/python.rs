//! The Python package in `python/` and the notebook in `examples/`, in a virtual environment of their own.

#[path = "support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use support::{FLOWTRACE, PYTHON, checkout, need_python, skip};

/// Runs a program of the environment in `python/`; its whole output is the error if it fails.
fn run(environment: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(environment.join("bin").join(program))
        .args(arguments)
        .current_dir(checkout("python"))
        .env("FLOWTRACE", FLOWTRACE)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&said).into_owned()),
    }
}

#[test]
fn the_package_is_typed_and_works_and_the_notebook_runs() {
    if !need_python("ensurepip") {
        return;
    }
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let made = Command::new(PYTHON)
        .args(["-m", "venv"])
        .arg(&environment)
        .status()
        .unwrap();
    assert!(made.success());
    if let Err(error) = run(
        &environment,
        "pip",
        &["install", "--retries=1", "hatchling"],
    ) {
        let why = error.lines().last().unwrap_or_default();
        return skip(&format!("pip cannot reach its registry: {why}"));
    }
    let notebook = checkout("tests/notebook");
    for (program, arguments) in [
        ("pip", &["install", "--quiet", ".[test]"][..]),
        ("mypy", &["--cache-dir=/dev/null"]),
        ("pytest", &["-q", "-p", "no:cacheprovider"]),
        ("python3", &[notebook.to_str().unwrap(), FLOWTRACE]),
    ] {
        run(&environment, program, arguments)
            .unwrap_or_else(|error| panic!("{program} {arguments:?}:\n{error}"));
    }
}
