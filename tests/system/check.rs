//! `flowtrace check`: what a Makefile declares against what its commands read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{Finished, finish};
use crate::support::{FLOWTRACE, Scratch, need_fuse, need_program, run_in};

/// A program of two sources, a header, and a header that is made.
const CORRECT: &str = "prog: a.o b.o\n\tcc -o $@ a.o b.o\na.o: a.c gen.h\n\tcc -c a.c -o $@\n\
                       b.o: b.c own.h\n\tcc -c b.c -o $@\n\
                       gen.h: list\n\tsort list > gen.tmp\n\tmv gen.tmp gen.h\n";

fn build(makefile: &str) -> Option<(Scratch, PathBuf)> {
    if !(need_fuse() && need_program("cc") && need_program("make")) {
        return None;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    fs::write(work.join("Makefile"), makefile).unwrap();
    fs::write(work.join("list"), "#define TWO 2\n").unwrap();
    fs::write(work.join("own.h"), "#define ONE 1\n").unwrap();
    let a = "#include <stdio.h>\n#include \"gen.h\"\nint one(void);\n\
             int main(void) { return printf(\"%d\\n\", one() + TWO) < 0; }\n";
    fs::write(work.join("a.c"), a).unwrap();
    fs::write(
        work.join("b.c"),
        "#include \"own.h\"\nint one(void) { return ONE; }\n",
    )
    .unwrap();
    // In an order that works whatever is declared.
    let mut run = run_in(&work, &scratch.join("trace.db"));
    run.args(["--", "make", "gen.h", "prog"]);
    finish(&mut run).expect(0);
    Some((scratch, work))
}

fn check(scratch: &Scratch, directory: &Path, options: &[&str]) -> Finished {
    let mut command = Command::new(FLOWTRACE);
    command
        .arg("check")
        .arg(scratch.join("trace.db"))
        .args(options)
        .current_dir(directory);
    finish(&mut command)
}

#[test]
fn a_correct_build_has_no_finding() {
    if let Some((scratch, work)) = build(CORRECT) {
        let checked = check(&scratch, &work, &[]).expect(0);
        let text = checked.stdout_text();
        assert!(
            text.contains("nothing is missing: all that was read for 4 rules"),
            "{text}"
        );
        assert!(
            !text.contains("not read") && !text.contains("undeclared"),
            "{text}"
        );
    }
}

#[test]
fn what_is_missing_is_found_exactly() {
    let makefile = CORRECT
        .replace("a.c gen.h", "a.c own.h")
        .replace("b.c own.h", "b.c")
        .replace("\tmv gen.tmp gen.h", "\tcp gen.tmp gen.h");
    let Some((scratch, work)) = build(&makefile) else {
        return;
    };
    let json = check(&scratch, &work, &["--format", "json"]).expect(1);
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let missing: Vec<_> = found["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| {
            (
                m["target"].as_str().unwrap(),
                m["needs"].as_str().unwrap(),
                m["is_race"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(missing, [("a.o", "gen.h", true), ("b.o", "own.h", false)]);
    let unused = &found["unused"];
    assert_eq!(unused.as_array().unwrap().len(), 1, "{unused}");
    assert_eq!(
        (&unused[0]["target"], &unused[0]["needs"]),
        (&"a.o".into(), &"own.h".into())
    );
    let outputs = &found["undeclared_outputs"];
    assert_eq!(outputs.as_array().unwrap().len(), 1, "{outputs}");
    assert_eq!(outputs[0]["path"], "gen.tmp");
    // The same by hand, from a list.
    let edges = "a.o prog\nb.o prog\na.c a.o\nb.c b.o\nlist gen.h\n";
    fs::write(work.join("edges"), edges).unwrap();
    let text = check(&scratch, &work, &["--declared", "edges", "--kind", "edges"])
        .expect(1)
        .stdout_text();
    assert!(
        text.starts_with("flowtrace: 2 dependencies are missing in 4 rules checked\n"),
        "{text}"
    );
}

#[test]
fn nothing_checked_is_no_pass() {
    let Some((scratch, work)) = build(CORRECT) else {
        return;
    };
    fs::write(work.join("edges"), "x y\n").unwrap();
    let none = check(&scratch, &work, &["--declared", "edges", "--kind", "edges"]).expect(2);
    assert!(
        none.stderr.contains("nothing was checked"),
        "{}",
        none.stderr
    );
    fs::write(work.join("Makefile"), "prog: $(error broken)\n").unwrap();
    let failed = check(&scratch, &work, &[]).expect(2);
    assert!(
        failed.stderr.contains("make gen.h prog -pn failed") && failed.stderr.contains("broken"),
        "{}",
        failed.stderr
    );
    fs::write(work.join("empty"), "").unwrap();
    let empty = check(&scratch, &work, &["--declared", "empty", "--kind", "make"]).expect(2);
    assert!(
        empty.stderr.contains("no line \"# Files\""),
        "{}",
        empty.stderr
    );
}
