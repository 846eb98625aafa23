//! With the kernel layer a trace has the calls on files that move no data as strace sees them in the same run: file,
//! operation and result of each. (Those that move data: `kernel_equals_strace`.)

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::names::Names;
use crate::support::process::finish;
use crate::support::strace::acts::{self, Act};
use crate::support::trace::Trace;
use crate::support::{
    PYTHON, Scratch, need_kernel_layer, need_program, need_python, run_in, scripts,
};

/// The calls, with one of the names of each file.
fn merge(names: &Names<PathBuf>, acts: BTreeMap<Act, usize>) -> BTreeMap<Act, usize> {
    let mut merged = BTreeMap::new();
    for ((path, op, result), count) in acts {
        *merged
            .entry((names.find(&path).clone(), op, result))
            .or_insert(0) += count;
    }
    merged
}

/// The calls in a trace, but those of strace itself, and the names of files.
fn traced(trace: &Trace, directory: &Path) -> (BTreeMap<Act, usize>, Names<PathBuf>) {
    let mut names = Names::default();
    let mut path_of: HashMap<String, PathBuf> = HashMap::new();
    for row in trace.rows("SELECT file_id, path FROM file_names") {
        let path = PathBuf::from(&row[1]);
        if path.starts_with(directory) {
            let first = path_of.entry(row[0].clone()).or_insert(path.clone());
            names.join(first, &path);
        }
    }
    // strace has no open of a program by its exec (`__FMODE_EXEC`).
    let rows = trace.rows(
        "SELECT file_id, op, result FROM calls WHERE op NOT IN ('read', 'write', 'copy_from', 'copy_to', 'lookup')
         AND (op <> 'open' OR NOT flags & 32)
         AND upid NOT IN (SELECT upid FROM processes WHERE command LIKE 'strace%')",
    );
    let mut found = BTreeMap::new();
    for row in rows {
        let Some(path) = path_of.get(&row[0]) else {
            continue;
        };
        let result: i64 = row[2].parse().expect("a result");
        let op = match row[1].as_str() {
            "create" | "opendir" => "open",
            "flush" | "releasedir" => "close",
            "fsyncdir" => "fsync",
            other => OPS
                .iter()
                .find(|op| **op == other)
                .expect("a known operation"),
        };
        let result = match op {
            // The size that it set.
            "truncate" => result.min(0),
            _ => result,
        };
        *found.entry((path.clone(), op, result)).or_insert(0) += 1;
    }
    (found, names)
}

/// Operations of calls that are the same in both.
const OPS: &[&str] = &[
    "open",
    "getattr",
    "access",
    "readlink",
    "chmod",
    "chown",
    "utimens",
    "truncate",
    "mkdir",
    "mknod",
    "rmdir",
    "symlink",
    "link",
    "unlink",
    "rename",
    "readdir",
    "fsync",
    "flock",
    "fallocate",
    "statfs",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "mmap",
    "ioctl",
    "setlk",
    "getlk",
    "lseek",
];

/// Runs a shell script under strace in a traced run, and compares what both saw. There must be at least `least` calls.
#[track_caller]
fn agrees(script: &str, least: usize) {
    agrees_with(script, least, &[]);
}

/// The same; strace knows the first name of each pair, which is a link to the second one.
#[track_caller]
fn agrees_with(script: &str, least: usize, links: &[(&str, &str)]) {
    if !(need_kernel_layer() && need_program("strace")) {
        return;
    }
    let scratch = Scratch::new();
    let (job, log, path) = (
        scratch.dir("job"),
        scratch.join("strace.log"),
        scratch.join("t.db"),
    );
    let mut run = run_in(&job, &path);
    run.args([
        "--layer", "kernel", "--", "strace", "-f", "-qq", "-y", "-s", "4096", "-o",
    ]);
    run.arg(&log).args(["--", "sh", "-euc", script]);
    finish(&mut run).expect(0);
    let trace = Trace::open_complete(&path);
    let (ours, mut names) = traced(&trace, &job);
    for (link, target) in links {
        names.join(&job.join(link), &job.join(target));
    }
    let theirs = merge(&names, acts::read(&log, &job));
    let ours = merge(&names, ours);
    let total: usize = theirs.values().sum();
    assert!(total >= least, "only {total} calls to compare");
    let keys = theirs.keys().chain(ours.keys());
    let count = |of: &BTreeMap<Act, usize>, act: &Act| of.get(act).copied().unwrap_or(0);
    let mut different: Vec<_> = keys
        .filter(|act| count(&theirs, act) != count(&ours, act))
        .map(|act| {
            format!(
                "{act:?}: strace {}, flowtrace {}",
                count(&theirs, act),
                count(&ours, act)
            )
        })
        .collect();
    different.sort();
    different.dedup();
    assert!(
        different.is_empty(),
        "{} of {total}:\n{}",
        different.len(),
        different.join("\n")
    );
    eprintln!("{total} calls are the same");
}

#[test]
fn tools_of_the_shell() {
    let script = "
        mkdir d; echo hello > d/a; cat d/a d/a > d/twice; ls -laR > list; stat d/a > /dev/null; stat nope || true
        chmod 600 d/a; mv d/a d/b; ln d/b d/c; ln -s b d/l; readlink d/l; touch d/b; touch -h d/l; truncate -s 3 d/b
        rm d/c; cat missing || true; test -e gone || test -d d; (cd d; ls .. > /dev/null; cat b > /dev/null)
        mkdir -p a/b/c; for i in 1 2 3 4 5; do echo $i > a/b/$i; ln -s ../b/$i a/b/c/l$i; done; ln a/b/1 a/hard
        tar cf x.tar a; mkdir y; tar xf x.tar -C y; cp -a a z; diff -r a z || true; find . -name '*1' -newer a/b/2 > found
        chmod -R u+w a; du -s . > size; rm -rf z; mv y w; install -m 700 a/b/1 installed; rm -r d
    ";
    agrees(script, 600);
}

#[test]
fn git() {
    if !need_program("git") {
        return;
    }
    agrees(&scripts::git(30, 1_000), 5_000);
}

#[test]
fn sqlite() {
    if !need_program("sqlite3") {
        return;
    }
    agrees(&scripts::sqlite("delete wal"), 500);
}

#[test]
fn a_program_is_built() {
    if !(need_program("gcc") && need_program("make") && need_program("ar")) {
        return;
    }
    // The linker looks for libraries of the machine in its working directory: not these names.
    let script = r#"
        mkdir job; cd job
        for n in 0 1 2; do
          printf '#include <stdio.h>\n#include "all.h"\nint f%d(int x) { printf("%%d", x); return x; }\n' $n > f$n.c
        done
        echo 'int f0(int), f1(int), f2(int);' > all.h
        echo '#include "all.h"
        int main(void) { return f0(f1(f2(0))); }' > main.c
        printf 'CFLAGS = -O1 -g\nobjects = f0.o f1.o f2.o\nprogram: main.o libf.a ; gcc -static -g -o $@ $^ && ./$@\n' > Makefile
        printf 'libf.a: $(objects) ; ar rcs $@ $^\n$(objects) main.o: all.h\n' >> Makefile
        make -j2 > log
        touch f1.c
        make -j2 >> log
    "#;
    agrees(script, 200);
}

#[test]
fn python() {
    if !need_python("mmap") {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.join("acts.py");
    fs::write(&program, include_str!("names_equal_strace/acts.py")).unwrap();
    let script = format!("{PYTHON} {}", program.display());
    agrees_with(&script, 1_000, &[("d/l", "d/a")]);
}
