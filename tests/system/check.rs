//! `flowtrace check` compares the declarations of a Makefile with the files that its commands read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{Finished, finish};
use crate::support::{FLOWTRACE, Scratch, need_fuse, need_program, run_in, skip, unwrapped};

/// A program of two sources, a header, and a generated header.
const CORRECT: &str = "prog: a.o b.o\n\tcc -o $@ a.o b.o\na.o: a.c gen.h\n\tcc -c a.c -o $@\n\
                       b.o: b.c own.h\n\tcc -c b.c -o $@\n\
                       gen.h: list\n\tsort list > gen.tmp\n\tmv gen.tmp gen.h\n";

fn build(makefile: &str) -> Option<(Scratch, PathBuf)> {
    // In an order that works whatever the rules declare.
    build_by(makefile, &["make", "gen.h", "prog"])
}

fn build_by(makefile: &str, command: &[&str]) -> Option<(Scratch, PathBuf)> {
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
    let mut run = run_in(&work, &scratch.join("trace.db"));
    run.arg("--").args(command);
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
    // The same dependencies, from a list in a file.
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

/// `clean:` is not a file that the run should have made, with and without a declaration as phony.
#[test]
fn rules_without_files_differ_from_files_that_existed_before() {
    let clean = "clean:\n\trm -f prog *.o gen.h\n";
    let makefile = format!("{CORRECT}{clean}");
    let Some((scratch, work)) = build(&makefile) else {
        return;
    };
    let text = check(&scratch, &work, &[]).expect(0).stdout_text();
    assert!(text.contains("  clean names no file that"), "{text}");
    assert!(!text.contains("trace a build from the beginning"), "{text}");
    // The same after a clean in the same run.
    let Some((scratch, work)) = build_by(&makefile, &["make", "clean", "gen.h", "prog"]) else {
        return;
    };
    let text = check(&scratch, &work, &[]).expect(0).stdout_text();
    assert!(text.contains("read for 4 rules is declared"), "{text}");
    // Only the program is made again.
    fs::remove_file(work.join("prog")).unwrap();
    let mut run = run_in(&work, &scratch.join("again.db"));
    finish(run.args(["--", "make", "prog"])).expect(0);
    let again = Scratch::new();
    fs::rename(scratch.join("again.db"), again.join("trace.db")).unwrap();
    let text = check(&again, &work, &[]).expect(0).stdout_text();
    assert!(
        text.contains("the files of 3 others were there before"),
        "{text}"
    );
    assert!(text.contains("  clean names no file that"), "{text}");
    let twice = ["sh", "-c", "make clean && make gen.h prog"];
    let Some((scratch, work)) = build_by(&makefile, &twice) else {
        return;
    };
    let text = check(&scratch, &work, &[]).expect(0).stdout_text();
    assert!(text.contains("read for 4 rules is declared"), "{text}");
    let other = [
        "sh",
        "-c",
        "make --version && make gen.h && make CC=gcc prog",
    ];
    let Some((scratch, work)) = build_by(&makefile, &other) else {
        return;
    };
    let refused = check(&scratch, &work, &[]).expect(2).stderr;
    assert!(
        refused.contains("it ran several builds, make gen.h and make CC=gcc prog"),
        "{refused}"
    );
}

/// A program that starts make changes nothing: the requested rules are those of make's command line.
#[test]
fn a_build_behind_a_wrapper_is_checked() {
    let makefile = CORRECT.replace("b.c own.h", "b.c");
    for command in [
        &["nice", "make", "gen.h", "prog"][..],
        &["timeout", "600", "make", "gen.h", "prog"],
        &["env", "CC=cc", "make", "gen.h", "prog"],
        &["sh", "-c", "make gen.h prog && echo"],
    ] {
        let Some((scratch, work)) = build_by(&makefile, command) else {
            return;
        };
        let text = check(&scratch, &work, &[]).expect(1).stdout_text();
        let first =
            "flowtrace: 1 dependency is missing in 4 rules checked\n  missing     b.o: own.h ";
        assert!(text.starts_with(first), "{command:?}\n{text}");
        assert!(!text.contains("not read"), "{command:?}\n{text}");
    }
}

/// Shims of pyenv, rbenv and asdf are scripts that look for the program and exec it.
#[test]
fn a_build_behind_a_shim_is_checked() {
    let shims = Scratch::new();
    let script = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        fs::write(
            shims.join(name),
            format!("#!/usr/bin/env bash\nset -e\n{text}"),
        )
        .unwrap();
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(shims.join(name), all).unwrap();
    };
    script("make", "exec \"${0%/*}/finder\" exec \"${0##*/}\" \"$@\"\n");
    // It starts programs, execs another script, and leaves no files.
    script(
        "finder",
        "name=$(printf '%s\\n' \"$2\" | sort)\nshift 2\nsort Makefile > .found\nrm .found\n\
         exec \"${0%/*}/finder-exec\" \"$name\" \"$@\"\n",
    );
    script(
        "finder-exec",
        "path=$(command -pv \"$1\" | head -n 1)\nshift\nexec \"$path\" \"$@\"\n",
    );
    let shim = shims.join("make");
    let makefile = CORRECT.replace("b.c own.h", "b.c");
    for (makefile, missing) in [(CORRECT, false), (&makefile, true)] {
        let command = [shim.to_str().unwrap(), "gen.h", "prog"];
        let Some((scratch, work)) = build_by(makefile, &command) else {
            return;
        };
        let text = check(&scratch, &work, &[]).expect(i32::from(missing));
        let text = text.stdout_text();
        let first = match missing {
            false => "flowtrace: nothing is missing: all that was read for 4 rules",
            true => {
                "flowtrace: 1 dependency is missing in 4 rules checked\n  missing     b.o: own.h "
            }
        };
        assert!(text.starts_with(first), "{text}");
        assert!(
            !text.contains("not read") && !text.contains("undeclared"),
            "{text}"
        );
    }
}

/// True if an optional program is installed.
fn has(program: &str) -> bool {
    let is_there = crate::support::succeeds(program, &["--version"]);
    if !is_there {
        crate::support::skip(&format!("no {program}"));
    }
    is_there && need_fuse()
}

/// The text of `check` after a run of `command` with these files.
fn checked(files: &[(&str, &str)], command: &[&str], code: i32) -> String {
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    for (name, text) in files {
        fs::write(work.join(name), text).unwrap();
    }
    let mut run = run_in(&work, &scratch.join("trace.db"));
    run.arg("--").args(command).env("HOME", scratch.dir("home"));
    finish(&mut run).expect(0);
    let mut checked = Command::new(FLOWTRACE);
    checked.arg("check").arg(scratch.join("trace.db"));
    checked.current_dir(&work).env("HOME", scratch.dir("home"));
    finish(&mut checked).expect(code).stdout_text()
}

#[test]
fn ninja_is_asked_itself() {
    if !(has("ninja") && need_program("cc")) {
        return;
    }
    let rules = "rule cc\n  command = cc -c $in -o $out\nrule link\n  command = cc $in -o $out\n\
                 rule gen\n  command = sort $in > $out\nbuild gen.h: gen list\n\
                 build a.o: cc a.c | gen.h\nbuild b.o: cc b.c | own.h\nbuild prog: link a.o b.o\n";
    let files = |rules: &'static str| {
        [
            ("build.ninja", rules),
            ("list", "#define TWO 2\n"),
            ("own.h", "#define ONE 1\n"),
            (
                "a.c",
                "#include \"gen.h\"\nint one(void);\nint main(void) { return one() + TWO; }\n",
            ),
            ("b.c", "#include \"own.h\"\nint one(void) { return ONE; }\n"),
        ]
    };
    let command = ["ninja", "-j1", "gen.h", "prog"];
    let text = checked(&files(rules), &command, 0);
    assert!(
        text.starts_with("flowtrace: nothing is missing: all that was read for 4 rules"),
        "{text}"
    );
    assert!(
        !text.contains("not read") && !text.contains("undeclared"),
        "{text}"
    );
    let wrong = "rule cc\n  command = cc -c $in -o $out\nrule link\n  command = cc $in -o $out\n\
                 rule gen\n  command = sort $in > $out\nbuild gen.h: gen list\n\
                 build a.o: cc a.c\nbuild b.o: cc b.c\nbuild prog: link a.o b.o\n";
    let text = checked(&files(wrong), &command, 1);
    assert!(
        text.starts_with("flowtrace: 2 dependencies are missing in 4 rules checked\n"),
        "{text}"
    );
    assert!(
        text.contains("  missing     a.o: gen.h   (made in this run")
            && text.contains("  missing     b.o: own.h   (a change"),
        "{text}"
    );
}

#[test]
fn snakemake_is_asked_itself() {
    if !has("snakemake") {
        return;
    }
    let right = "rule all:\n    input: 'total'\n\
                 rule sorted:\n    input: 'in{i}', 'extra{i}'\n    output: 's{i}'\n    \
                 shell: 'cat in{wildcards.i} extra{wildcards.i} | sort > {output}'\n\
                 rule total:\n    input: 's1', 's2'\n    output: 'total'\n    shell: 'cat {input} > {output}'\n";
    let wrong = right.replace(", 'extra{i}'", "");
    let files = |rules| {
        [
            ("Snakefile", rules),
            ("in1", "2\n1\n"),
            ("in2", "4\n3\n"),
            ("extra1", "x\n"),
            ("extra2", "y\n"),
        ]
    };
    let command = ["snakemake", "--quiet", "--cores", "1"];
    let text = checked(&files(right), &command, 0);
    assert!(
        text.starts_with("flowtrace: nothing is missing: all that was read for 3 rules"),
        "{text}"
    );
    let text = checked(&files(&wrong), &command, 1);
    assert!(
        text.starts_with("flowtrace: 2 dependencies are missing in 3 rules checked\n")
            && text.contains("  missing     s1: extra1 ")
            && text.contains("  missing     s2: extra2 "),
        "{text}"
    );
    assert!(text.contains(": cat in1 extra1 | sort > s1"), "{text}");
}

/// Runs a command in a directory with these files, and `check` of its trace.
fn built_and_checked(
    files: &[(&str, &str)],
    command: &[&str],
) -> Option<(Scratch, PathBuf, Finished)> {
    if !(need_fuse() && need_program(command[0])) {
        return None;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    for (name, text) in files {
        let path = work.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut run = run_in(&work, &scratch.join("trace.db"));
    run.arg("--").args(command);
    finish(&mut run).expect(0);
    let found = check(&scratch, &work, &[]);
    Some((scratch, work, found))
}

/// A directory of two builds' files, in which a link leads to the other directory.
fn beside(rules: &str) -> [(&'static str, String); 6] {
    [
        ("b/rules", rules.into()),
        ("b/in", "1\n".into()),
        ("shared/a.csv", "2\n".into()),
        ("shared/conf", "3\n".into()),
        (".settings", "4\n".into()),
        ("shared/script", "#!/bin/sh\nsort \"$@\"\n".into()),
    ]
}

/// The text of `check` after a run of `command` in the directory `from` of those files.
fn checked_beside(rules: &str, from: &str, command: &[&str], code: i32) -> String {
    let scratch = Scratch::new();
    let work = scratch.dir("work");
    for (name, text) in beside(rules) {
        let path = work.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(work.join("shared/script"), all).unwrap();
    fs::create_dir(work.join("shared/bin")).unwrap();
    fs::copy("/usr/bin/sort", work.join("shared/bin/tool")).unwrap();
    symlink("../shared/a.csv", work.join("b/link.csv")).unwrap();
    symlink("in", work.join("b/l2.csv")).unwrap();
    symlink("../shared", work.join("b/dir")).unwrap();
    let from = work.join(from);
    let mut run = run_in(&from, &scratch.join("trace.db"));
    run.arg("--").args(command).env("HOME", scratch.dir("home"));
    finish(&mut run).expect(0);
    let mut checked = Command::new(FLOWTRACE);
    checked.arg("check").arg(scratch.join("trace.db"));
    checked.current_dir(&from).env("HOME", scratch.dir("home"));
    finish(&mut checked).expect(code).stdout_text()
}

/// The same rules, read from the directory of the build and from the one above.
const PLACES: [(&str, &[&str]); 2] = [
    ("b", &["make", "-f", "rules"]),
    ("", &["make", "-C", "b", "-f", "rules"]),
];

#[test]
fn declared_files_count_through_links_and_in_other_directories() {
    if !(need_fuse() && need_program("make")) {
        return;
    }
    let rules = "all: v w x y z dir/made\nv: ../shared/a.csv\n\tcp ../shared/a.csv v\n\
                 w: dir/a.csv\n\tcat < dir/a.csv > w\nx: link.csv\n\tsort link.csv > x\n\
                 y: l2.csv\n\tcat l2.csv > y\nz: in\n\tcat l2.csv > z\n\
                 dir/made: in\n\tcp in dir/made\n";
    for (from, command) in PLACES {
        let text = checked_beside(rules, from, command, 0);
        assert!(
            text.contains("all that was read for 6 rules") && !text.contains("not read"),
            "{text}"
        );
    }
    let rules = "all: x y\nx: link.csv in\n\tsort in > x\ny: in link.csv\n\tcat link.csv > y\n";
    for (from, command) in PLACES {
        let text = checked_beside(rules, from, command, 0);
        let unread: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("not read"))
            .collect();
        let ends = |line: &str, end: &str| line.trim_end().ends_with(end);
        assert!(
            unread.len() == 2 && ends(unread[0], "link.csv") && ends(unread[1], "in"),
            "{text}"
        );
    }
}

#[test]
fn what_is_read_in_other_directories_must_be_declared() {
    if !(need_fuse() && need_program("make")) {
        return;
    }
    // An installed program and the user's settings need no declaration.
    let rules = "all: x y z\nx: in\n\tcat in ../shared/conf > x\ny: in\n\tsort in link.csv > y\n\
                 z: in\n\tPATH=$(CURDIR)/../shared/bin:$$PATH; tool in ../.settings > z; ../shared/script z\n";
    for (from, command) in PLACES {
        let text = checked_beside(rules, from, command, 1);
        let missing: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("  missing "))
            .collect();
        assert!(
            missing.len() == 3
                && missing[0].contains("shared/conf ")
                && missing[1].contains("shared/a.csv ")
                && missing[2].contains("shared/script "),
            "{text}"
        );
    }
}

#[test]
fn snakemake_reads_its_rules_without_a_declaration() {
    if !has("snakemake") {
        return;
    }
    let rules = "include: 'more'\nrule all:\n    input: 'n', 'o', 'p'\n\
                 rule n:\n    input: 'link.csv'\n    output: 'n'\n    shell: 'cat {input} > {output}'\n\
                 rule o:\n    input: '../shared/conf'\n    output: 'o'\n    shell: 'cat {input} > {output}'\n\
                 rule p:\n    input: 'in'\n    output: 'p'\n    run:\n        \
                 open(output[0], 'w').write(open(input[0]).read())\n";
    let command = [
        "sh",
        "-c",
        ": > more; exec snakemake -s rules --quiet --cores 1",
    ];
    let text = checked_beside(rules, "b", &command, 0);
    assert!(
        text.contains("all that was read for 3 rules") && !text.contains("not read"),
        "{text}"
    );
}

#[test]
fn a_side_output_of_another_rule_is_missing() {
    let rules = "all: a b\na: in\n\tcp in a; cp in side\nb: in\n\tcat side in > b\n";
    for (place, command) in [
        ("", &["make"][..]),
        ("d/", &["make", "-C", "d"][..]),
        ("d/", &["sh", "-c", "cd d && make"][..]),
    ] {
        let (makefile, input) = (format!("{place}Makefile"), format!("{place}in"));
        let files = [(&*makefile, rules), (&*input, "1\n")];
        let Some((_scratch, _, found)) = built_and_checked(&files, command) else {
            return;
        };
        let text = found.expect(1).stdout_text();
        let expected = format!("{place}b: {place}side   (made in this run");
        assert!(text.contains(&expected), "{command:?}: {text}");
    }
}

/// The build fails because the side output, which another command makes at that time, is missing, or because
/// of a file that a rule would have made.
#[test]
fn what_a_failed_command_did_not_find_is_missing() {
    if !(need_fuse() && need_program("make")) {
        return;
    }
    for (makefile, needs) in [
        (
            "all: a b\na:\n\tsleep 1; echo > side; echo > a\nb:\n\tcat side > b\n",
            "side",
        ),
        ("all: b c\nb:\n\tcat c > b\nc:\n\tsleep 1; echo > c\n", "c"),
    ] {
        let scratch = Scratch::new();
        let work = scratch.dir("work");
        fs::write(work.join("Makefile"), makefile).unwrap();
        let mut run = run_in(&work, &scratch.join("trace.db"));
        finish(run.args(["--", "make", "-j2", "-k"])).expect(2);
        let checked = check(&scratch, &work, &["--format", "json"]).expect(1);
        let found: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
        let missing = found["missing"].as_array().unwrap();
        assert_eq!(missing.len(), 1, "{found}");
        assert_eq!(
            (
                &missing[0]["target"],
                &missing[0]["needs"],
                &missing[0]["was_absent"]
            ),
            (&"b".into(), &needs.into(), &true.into())
        );
        let text = check(&scratch, &work, &[]).expect(1).stdout_text();
        assert!(text.contains("failed without it"), "{text}");
    }
}

#[test]
fn a_directory_that_another_rule_makes_is_missing() {
    let outputs = "all: dirs out/x out/y\ndirs:\n\tmkdir -p out\n";
    let missing = format!("{outputs}out/x out/y: in\n\tcp in $@\n");
    let files = [("Makefile", &*missing), ("in", "1\n")];
    let Some((.., found)) = built_and_checked(&files, &["make"]) else {
        return;
    };
    let text = found.expect(1).stdout_text();
    assert!(text.contains("2 dependencies are missing"), "{text}");
    assert!(text.contains("out/y: out   (a directory made"), "{text}");
    for rules in [
        format!("{outputs}out/x out/y: in | dirs\n\tcp in $@\n"),
        format!(".PHONY: all dirs\n{outputs}out/x out/y: in | dirs\n\tcp in $@\n"),
        format!("{outputs}out/x out/y: in\n\t@mkdir -p $(@D)\n\tcp in $@\n"),
        format!("{outputs}out/x out/y: in\n\t@test -d out || mkdir out\n\tcp in $@\n"),
        "all: out/x\nout:\n\tmkdir $@\nout/x: in | out\n\tcp in $@\n".into(),
        "_ := $(shell mkdir -p out)\nall: out/x\nout/x: in\n\tcp in $@\n".into(),
        "all: out/x\nout/x: in out/first\n\tcp in $@\nout/first:\n\tmkdir out; touch $@\n".into(),
    ] {
        let files = [("Makefile", &*rules), ("in", "1\n")];
        if let Some((.., found)) = built_and_checked(&files, &["make"]) {
            found.expect(0);
        }
    }
}

/// Configured and built by a script: ninja builds all of its targets, not only those of the default.
#[test]
fn a_build_by_cmake_is_checked() {
    if !(has("ninja") && need_program("cmake") && need_program("cc")) {
        return;
    }
    let lists = "cmake_minimum_required(VERSION 3.10)\nproject(p C)\n\
                 add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/gen.h DEPENDS src.h\n  \
                 COMMAND cp ${CMAKE_SOURCE_DIR}/src.h ${CMAKE_BINARY_DIR}/gen.h)\n\
                 add_custom_target(gen DEPENDS ${CMAKE_BINARY_DIR}/gen.h)\n\
                 include_directories(${CMAKE_BINARY_DIR})\nadd_executable(p main.c)\n";
    let script = |generator: &str| {
        format!(
            "set -e\ncmake -G '{generator}' -S . -B b\ncmake --build b --target gen\ncmake --build b --target p\n"
        )
    };
    let built = |script: &str| {
        let files = [
            ("CMakeLists.txt", lists),
            ("src.h", "int k;\n"),
            (
                "main.c",
                "#include \"gen.h\"\nint main(void) { return k; }\n",
            ),
            ("build.sh", script),
        ];
        built_and_checked(&files, &["sh", "build.sh"])
    };
    // Compared with `ninja -t missingdeps`.
    if let Some((.., found)) = built(&script("Ninja")) {
        let text = found.expect(1).stdout_text();
        assert!(
            text.contains("1 dependency is missing in 3 rules"),
            "{text}"
        );
        assert!(text.contains("main.c.o: b/gen.h   (made in"), "{text}");
    }
    if let Some((.., found)) = built(&script("Unix Makefiles")) {
        let text = found.expect(2).stderr;
        assert!(
            text.contains("each of 2 commands in the run built by itself"),
            "{text}"
        );
    }
}

#[test]
fn what_a_phony_rule_needs_is_declared() {
    let rules = ".PHONY: all first\nall: b\nfirst: a\na: in\n\tcp in a\nb: first\n\tcat a > b\n";
    if let Some((.., found)) = built_and_checked(&[("Makefile", rules), ("in", "1\n")], &["make"]) {
        found.expect(0);
    }
}

#[test]
fn several_outputs_of_one_command_come_together() {
    let rules = "all: t\nq r &: s\n\tcp s q; cp s r\nt: q\n\tcat r > t\n";
    if let Some((.., found)) = built_and_checked(&[("Makefile", rules), ("s", "1\n")], &["make"]) {
        let text = found.expect(0).stdout_text();
        assert!(!text.contains("not read"), "{text}");
    }
}

#[test]
fn what_a_depfile_found_does_not_come_first() {
    let rules = "rule gen\n  command = cp $in $out\nrule cc\n  command = gcc -MMD -MF $out.d -c $in -o $out\n  \
                 depfile = $out.d\n  deps = gcc\nrule list\n  command = cat $out.rsp > $out\n  rspfile = $out.rsp\n  \
                 rspfile_content = $in\nbuild gen.h: gen src.h\nbuild foo.o: cc foo.c\nbuild names: list foo.c\n";
    let files = [
        ("b/build.ninja", rules),
        ("b/src.h", "int k;\n"),
        ("b/foo.c", "#include \"gen.h\"\n"),
    ];
    if !need_program("gcc") {
        return;
    }
    if let Some((.., found)) = built_and_checked(&files, &["ninja", "-j1", "-C", "b"]) {
        let text = found.expect(1).stdout_text();
        assert!(
            text.contains("b/foo.o: b/gen.h   (made in this run"),
            "{text}"
        );
        assert!(
            text.contains("1 dependency is missing") && !text.contains("rsp:"),
            "{text}"
        );
    }
}

#[test]
fn make_j_is_advised_under_a_condition_where_steps_need_each_other() {
    let busy = "i=0; while [ $$i -lt 150000 ]; do i=$$((i+1)); done";
    let rules = format!(
        "all: g a b\ng:\n\techo 7 > g\na:\n\tcat g; {busy}; cp g a\nb:\n\tcat g; {busy}; cp g b\n"
    );
    let Some((scratch, ..)) = built_and_checked(&[("Makefile", &rules)], &["make"]) else {
        return;
    };
    let mut command = Command::new(FLOWTRACE);
    let text = unwrapped(
        &finish(command.arg("summary").arg(scratch.join("trace.db")))
            .expect(0)
            .stdout_text(),
    );
    assert!(!text.contains("make -j would"), "{text}");
    if text.contains("could run side by side") {
        assert!(text.contains("if its rules declare"), "{text}");
    }
}

/// Asking a build for its rules runs a command that the trace names.
#[test]
fn the_build_of_another_users_trace_is_not_run() {
    let Some((scratch, work)) = build(CORRECT) else {
        return;
    };
    let trace = scratch.join("trace.db");
    if std::os::unix::fs::chown(&trace, Some(65_534), None).is_err() {
        return skip("only root can give a file away");
    }
    let refused = check(&scratch, &work, &[]).expect(2);
    assert!(
        refused
            .stderr
            .contains("belongs to another user (uid 65534)"),
        "{}",
        refused.stderr
    );
    fs::write(work.join("rules"), "prog: a.o b.o\n").unwrap();
    let declared = ["--declared", "rules", "--kind", "make"];
    let given = check(&scratch, &work, &declared);
    assert!(!given.stderr.contains("another user"), "{}", given.stderr);
}
