//! Runs of a generated Makefile with other inputs, after results were removed, and of commands that failed.

use std::fs;
use std::process::Command;

use super::{contents, traced};
use crate::support::process::finish;
use crate::support::{Scratch, need_program};

/// A second run of make in the place of the first one does the necessary steps, and nothing else.
#[test]
fn make_again_gives_what_the_script_would() {
    let script = "wc -l in > log\nwc -l in2 >> log\nsort -r log > out\nsort in > s; gzip -n s\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    let copy = traced.copy("copy");
    let make = || {
        let mut make = Command::new("make");
        make.args(["-j2", "-f"]).arg(traced.scratch.join("make"));
        finish(make.current_dir(&copy)).expect(0);
    };
    make();
    assert_eq!(contents(&traced.original), {
        let mut made = contents(&copy);
        made.retain(|(name, _)| !name.starts_with(".flowtrace"));
        made
    });
    // A file that was changed in place is made from the start if an input of a later change differs.
    fs::write(copy.join("in2"), "1\n2\n3\n").unwrap();
    make();
    let log = fs::read_to_string(copy.join("log")).unwrap();
    assert_eq!(log, "100 in\n3 in2\n");
    assert_eq!(
        fs::read_to_string(copy.join("out")).unwrap(),
        "3 in2\n100 in\n"
    );
    // A missing result is made again; a program that does not overwrite its output does not see the old one.
    fs::remove_file(copy.join("out")).unwrap();
    fs::write(copy.join("in"), "2\n1\n").unwrap();
    make();
    assert_eq!(
        fs::read_to_string(copy.join("out")).unwrap(),
        "3 in2\n2 in\n"
    );
}

/// A writer that ends early because its reader needs no more has not failed. This holds even if its input was
/// so short in the traced run that it came to its end.
#[test]
fn a_writer_may_be_ended_by_its_reader() {
    let script = "cat in | head -n 3 > first\n{ cat in2; false; } | cat > all || true\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    for (format, program) in [("make", &["make", "-f"][..]), ("shell", &["bash"])] {
        let (code, errors) = traced.generate(format, &[]);
        assert_eq!(code, 0, "{errors}");
        let copy = traced.copy(&format!("copy-{format}"));
        fs::write(copy.join("in"), "y\n".repeat(1 << 20)).unwrap();
        let mut again = Command::new(program[0]);
        again.args(&program[1..]).arg(traced.scratch.join(format));
        finish(again.current_dir(&copy)).expect(0);
        let first = fs::read_to_string(copy.join("first")).unwrap();
        assert_eq!(first, "y\ny\ny\n");
    }
}

/// The command with which the run ended fails again.
#[test]
fn a_run_that_failed_fails() {
    let script = "set -e\nsort in > o1\nsort nosuch > o2\nsort in2 > o3\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    assert!(
        errors.contains("and with it the run: it fails here too"),
        "{errors}"
    );
    let mut make = Command::new("make");
    make.arg("-f").arg(traced.scratch.join("make"));
    finish(make.current_dir(traced.copy("copy"))).expect(2);
}

/// If a user removes files, the steps that made them run again, with all steps that these need.
#[test]
fn make_works_from_any_state_that_a_user_leaves() {
    let script = "mkdir out\nmkdir -p out/deep\nsort -r in > out/sorted\ngzip -nc out/sorted > out/deep/z\n\
                  mkdir \"it's \\$5\"\nwc -l in > \"it's \\$5/n\"\n\
                  sort in2 > t\nuniq t > unique\nrm t\n\
                  cat in in2 > made\nmv made moved\nchmod 600 moved\nln -s moved link\ncp -r out out2\n";
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 0, "{errors}");
    let copy = traced.copy("copy");
    let make = |arguments: &[&str]| {
        let mut make = Command::new("make");
        make.args(arguments).arg("-f");
        make.arg(traced.scratch.join("make"));
        finish(make.current_dir(&copy))
    };
    let made = || {
        let mut made = contents(&copy);
        made.retain(|(name, _)| !name.starts_with(".flowtrace"));
        made
    };
    let whole = contents(&traced.original);
    for gone in [
        &[][..],
        &["out"],
        &["out/deep"],
        &["out", "moved"],
        &["it's $5"],
        &["unique"],
        &["moved"],
        &["moved", "link", "unique"],
        &["link"],
        &[".flowtrace"],
        &["out2/sorted", "out2/deep/z"],
        &["out2/deep"],
        &["out", "it's $5", "unique", "moved", "link"],
    ] {
        for name in gone {
            let path = copy.join(name);
            match path.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
        make(&["-j2"]).expect(0);
        assert_eq!(made(), whole, "without {gone:?}:\n{}", traced.text("make"));
        make(&["-q"]).expect(0);
    }
    assert!(copy.join("link").is_symlink());
}

/// Files that GNU parallel keeps for itself (`~/.parallel`) are not results of a step.
#[test]
fn jobs_of_parallel_come_back() {
    if !need_program("parallel") {
        return;
    }
    let jobs = "parallel --will-cite 'sort -r {} > {}.out' ::: in in2";
    for script in [
        format!("{jobs}\n"),
        format!("cat in > all\n{jobs}\ncat in.out in2.out all > res\n"),
    ] {
        // It keeps more files at its first run.
        let home = Scratch::new();
        let home = format!("HOME={}", home.dir("home").display());
        let command = ["env", &home, "bash", "script"];
        let Some(traced) = traced(&script, &[], &command) else {
            return;
        };
        let (code, errors) = traced.generate("make", &["--ignore-environment"]);
        assert_eq!(code, 0, "{errors}");
        let copy = traced.copy("copy");
        let mut make = Command::new("make");
        make.arg("-f").arg(traced.scratch.join("make"));
        make.env("HOME", traced.scratch.dir("home"));
        finish(make.current_dir(&copy)).expect(0);
        let mut made = contents(&copy);
        made.retain(|(name, _)| !name.starts_with(".flowtrace"));
        assert_eq!(made, contents(&traced.original), "{}", traced.text("make"));
    }
}
