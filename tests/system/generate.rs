//! `flowtrace generate`: a traced script is turned into a Makefile and a script. Their runs in a copy of the
//! inputs leave the same files, with the same modes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::finish;
use crate::support::{FLOWTRACE, Scratch, need_fuse, run_in};

mod again;
mod come_back;
mod engines;
mod given;
mod real;
mod refused;
mod unseen;

/// A traced run and a fresh copy of its inputs.
struct Traced {
    scratch: Scratch,
    original: PathBuf,
}

fn inputs(directory: &Path) {
    let numbers = |count: u32| (1..=count).map(|n| format!("{n}\n")).collect::<String>();
    fs::write(directory.join("in"), numbers(100)).unwrap();
    fs::write(directory.join("in2"), numbers(50)).unwrap();
    fs::write(directory.join("list"), "a\nb\nc\n").unwrap();
    fs::create_dir(directory.join("d")).unwrap();
}

/// Runs `command` under trace in a directory with the inputs and this script.
fn traced(script: &str, options: &[&str], command: &[&str]) -> Option<Traced> {
    traced_into(None, script, options, command)
}

/// The same, with this file as the output of the whole run.
fn traced_into(
    output: Option<&Path>,
    script: &str,
    options: &[&str],
    command: &[&str],
) -> Option<Traced> {
    if !need_fuse() {
        return None;
    }
    let scratch = Scratch::new();
    let original = scratch.dir("original");
    inputs(&original);
    fs::write(original.join("script"), script).unwrap();
    let mut run = run_in(&original, &scratch.join("trace.db"));
    run.args(options).arg("--").args(command);
    if let Some(output) = output {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" > \"$0\""]).arg(output);
        shell.arg(run.get_program()).args(run.get_args());
        finish(shell.current_dir(&original)).expect(0);
    } else {
        finish(&mut run);
    }
    Some(Traced { scratch, original })
}

impl Traced {
    fn generate(&self, format: &str, options: &[&str]) -> (i32, String) {
        let mut command = Command::new(FLOWTRACE);
        command
            .args(["generate", "--format", format, "-o"])
            .arg(self.scratch.join(format))
            .arg(self.scratch.join("trace.db"))
            .args(options);
        let output = command.output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    fn summary(&self) -> String {
        let mut command = Command::new(FLOWTRACE);
        command.arg("summary").arg(self.scratch.join("trace.db"));
        String::from_utf8(finish(&mut command).expect(0).stdout).unwrap()
    }

    fn text(&self, format: &str) -> String {
        fs::read_to_string(self.scratch.join(format)).unwrap()
    }

    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.scratch.dir(name);
        inputs(&copy);
        fs::copy(self.original.join("script"), copy.join("script")).unwrap();
        copy
    }

    /// Generates for make and for bash, runs both in copies, and compares.
    fn comes_back(&self) {
        for (format, program) in [("make", &["make", "-j2", "-f"][..]), ("shell", &["bash"])] {
            let (code, errors) = self.generate(format, &[]);
            assert_eq!(code, 0, "{errors}");
            let copy = self.copy(&format!("copy-{format}"));
            let mut again = Command::new(program[0]);
            again
                .args(&program[1..])
                .arg(self.scratch.join(format))
                .current_dir(&copy);
            finish(&mut again).expect(0);
            assert_eq!(
                listed(&self.original),
                listed(&copy),
                "by {format}:\n{}",
                self.text(format)
            );
            if format == "make" {
                // All lasting files are up to date.
                let mut question = Command::new("make");
                question.arg("-qf").arg(self.scratch.join(format));
                finish(question.current_dir(&copy)).expect(0);
            }
        }
    }
}

/// Names and contents only, because CWL stages copies.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = listed(directory).into_iter();
    let files = files.filter(|(name, ..)| directory.join(name).is_file());
    files.map(|(name, _, _, data)| (name, data)).collect()
}

/// Names, modes, link counts and contents below a directory.
fn listed(directory: &Path) -> Vec<(PathBuf, u32, u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().to_owned();
            if name == Path::new(".flowtrace") {
                continue;
            }
            let data = fs::symlink_metadata(&path).unwrap();
            let mode = data.permissions().mode();
            if data.is_dir() {
                found.push((name, mode, 0, Vec::new()));
                left.push(path);
            } else {
                found.push((name, mode, data.nlink(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
