//! Runs that `generate` refuses, each with its reason.

use std::fs;
use std::process::Command;

use super::{inputs, traced};
use crate::support::process::finish;
use crate::support::{FLOWTRACE, Scratch, need_fuse, run_in};

/// A step with files above the root is refused, because its run in a copy would change the files of the
/// original.
#[test]
fn what_leaves_files_above_the_root_is_refused() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let outer = scratch.dir("outer");
    let sub = scratch.dir("outer/sub");
    inputs(&outer);
    fs::write(sub.join("script"), "sort ../in > ../res\nwc -l ../in > n\n").unwrap();
    let mut run = run_in(&sub, &scratch.join("trace.db"));
    run.arg("--dir").arg(&outer).args(["--", "bash", "script"]);
    finish(&mut run).expect(0);
    let mut generate = Command::new(FLOWTRACE);
    generate.arg("generate").arg(scratch.join("trace.db"));
    let refused = finish(&mut generate).expect(1).stderr;
    assert!(
        refused.contains("sort_1 cannot be generated: it leaves "),
        "{refused}"
    );
    assert!(!refused.contains("wc_1 cannot"), "{refused}");
}

/// All steps that wrote into one file outside are refused; the output of the run itself may go anywhere.
#[test]
fn what_writes_outside_through_an_inherited_descriptor_is_refused() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (directory, outside) = (scratch.dir("job"), scratch.dir("outside"));
    inputs(&directory);
    let script = format!(
        "{{ sort in; cat in2; }} > {}; wc -l in; sort in > out",
        outside.join("x").display()
    );
    fs::write(directory.join("script"), script).unwrap();
    let mut run = run_in(&directory, &scratch.join("trace.db"));
    run.args(["--", "bash", "script"]);
    run.stdout(fs::File::create(outside.join("log")).unwrap());
    assert!(run.status().unwrap().success());
    let mut generate = Command::new(FLOWTRACE);
    generate.arg("generate").arg(scratch.join("trace.db"));
    let refused = finish(&mut generate).expect(1).stderr;
    let steps: Vec<_> = refused
        .lines()
        .filter_map(|line| {
            line.strip_prefix("flowtrace: ")?
                .split_once(" cannot be generated")
        })
        .map(|(step, _)| step)
        .collect();
    assert_eq!(steps, ["sort_1", "cat_1"], "{refused}");
}

/// A file in a system directory belongs to the workflow if the workflow makes it: a run in a copy would
/// overwrite the file of the original. A file that existed before is read like any other.
#[test]
fn what_makes_files_of_the_machine_is_refused() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (directory, packages) = (scratch.dir("job"), scratch.dir("venv/site-packages"));
    inputs(&directory);
    fs::write(packages.join("old.py"), "1\n").unwrap();
    let script = "cp in $P/new.py; sort -r $P/new.py > out; sort $P/old.py > copy\n\
                  { cat in2; : > $P/empty.py; } | wc -l > n\necho x > $P/own.py\n";
    let script = script.replace("$P", packages.to_str().unwrap());
    fs::write(directory.join("script"), script).unwrap();
    let mut run = run_in(&directory, &scratch.join("trace.db"));
    finish(run.args(["--", "bash", "script"])).expect(0);
    let mut generate = Command::new(FLOWTRACE);
    generate.arg("generate").arg(scratch.join("trace.db"));
    let refused = finish(&mut generate).expect(1).stderr;
    for (step, file) in [
        ("cp_1", "new.py"),
        ("script_1", "empty.py"),
        ("script_2", "own.py"),
    ] {
        let path = packages.join(file);
        let reason = format!("{step} cannot be generated: it wrote {}", path.display());
        assert!(refused.contains(&reason), "{reason}\n{refused}");
    }
    assert!(!refused.contains("sort_2 cannot"), "{refused}");
}

/// Steps that the trace does not fully describe are refused, each with its reason, and the Makefile stops
/// there.
#[test]
fn what_cannot_be_known_is_refused() {
    let script = r#"
A=1 sort < in > variable
printf 'p\nq\n' | xargs -n1 touch
(echo header; cat in) > header
(: > emptied; cat in) > beside
(echo 12345; tr a-z A-Z <<END
abcde
END
) > both
"#;
    let Some(traced) = traced(script, &[], &["bash", "script"]) else {
        return;
    };
    let (code, errors) = traced.generate("make", &[]);
    assert_eq!(code, 1, "{errors}");
    for reason in [
        "sort_1 cannot be generated: sort had another environment than the run",
        "xargs_1 cannot be generated: the shell itself wrote 4 bytes there",
        "cat_1 cannot be generated: the shell itself wrote 7 bytes there",
        "cat_2 cannot be generated: the shell itself made or emptied ",
        "script_1 cannot be generated: the shell itself wrote 6 bytes there",
    ] {
        assert!(errors.contains(reason), "{reason}\n{errors}");
    }
    let mut make = Command::new("make");
    make.arg("-f").arg(traced.scratch.join("make"));
    finish(make.current_dir(traced.copy("copy"))).expect(2);
}

/// A step may depend on files that were not recorded.
#[test]
fn traces_without_some_of_the_files_are_refused() {
    let script = "sort in > o1\nsort -r < o1 > o2\n";
    for (options, reason) in [
        (&["--exclude", "o1"][..], "files were left out of it"),
        (&["--include", "o2"], "files were left out of it"),
    ] {
        let Some(traced) = traced(script, options, &["bash", "script"]) else {
            return;
        };
        let (code, errors) = traced.generate("make", &[]);
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains(reason), "{errors}");
    }
}

/// A step whose arguments are not all in the trace cannot be run again.
#[test]
fn arguments_that_are_not_all_stored_are_refused() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let directory = scratch.dir("job");
    let script = "set -- $(seq 40000); /bin/echo \"$@\" > out; /bin/echo \"$1\" > few";
    fs::write(directory.join("script"), script).unwrap();
    let mut run = run_in(&directory, &scratch.join("trace.db"));
    finish(run.args(["--", "bash", "script"])).expect(0);
    let mut generate = Command::new(FLOWTRACE);
    generate.arg("generate").arg(scratch.join("trace.db"));
    let refused = finish(&mut generate).expect(1).stderr;
    let reason = "had more than 128 KiB of arguments";
    assert_eq!(refused.matches(reason).count(), 1, "{refused}");
}
