//! The view `calls` has the same reads and writes as strace, which observes the same run.
//!
//! A process cannot have two tracers. The run is therefore traced by `flowtrace mount`, which knows processes
//! from their requests, and by `strace` inside of the mount.

mod comparison;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::process::finish;
use crate::support::strace::data;
use crate::support::{self, Scratch, checkout, need_program, need_python, scripts, tree};

use super::mount::Mount;
use comparison::Seen;

/// A directory prepared for a run in it.
struct Run {
    mounted: Mount,
}

impl Run {
    /// Prepares a run. `None`, with a message, if it is not possible here or a program is missing.
    fn prepare(programs: &[&str]) -> Option<Self> {
        let mut all = ["strace"].iter().chain(programs);
        let here = all.all(|program| need_program(program));
        here.then(Mount::open)?.map(|mounted| Run { mounted })
    }

    fn source(&self) -> &Path {
        &self.mounted.source
    }

    /// Runs a shell script in the mount under both observers, and compares. There must be at least `least`
    /// reads and writes.
    #[track_caller]
    fn agrees(self, script: &str, least: usize) {
        let mut command = Command::new("sh");
        command.args(["-euc", script]);
        self.command_agrees(&command, least);
    }

    #[track_caller]
    fn command_agrees(mut self, command: &Command, least: usize) {
        let mounted = &mut self.mounted;
        let mut sizes = HashMap::new();
        sizes_below(&mounted.source, &mounted.point, &mut sizes);
        let log = mounted.scratch.join("strace.log");
        data::record(command, &mounted.point, &log);
        finish(&mut mounted.unmount()).expect(0);
        let trace = mounted.complete_trace();
        let mut seen = Seen::in_trace(&trace);
        let mut opened = |tid, path: &str| seen.opened(tid, path);
        let files = data::Files {
            directory: &mounted.point,
            opened: &mut opened,
            sizes: &sizes,
            sent: false,
        };
        let calls = data::read(&log, files);
        let compared = comparison::assert_same(&calls, &seen);
        eprintln!("{compared} calls are the same");
        assert!(compared >= least, "only {compared} calls to compare");
    }
}

/// Sizes of the files below `source`, by their paths below `point`.
fn sizes_below(source: &Path, point: &Path, sizes: &mut HashMap<String, u64>) {
    for entry in fs::read_dir(source).expect("a directory") {
        let entry = entry.expect("an entry");
        let (path, seen) = (entry.path(), point.join(entry.file_name()));
        let data = path.symlink_metadata().expect("an entry that is there");
        if data.is_dir() {
            sizes_below(&path, &seen, sizes);
        } else {
            sizes.insert(seen.to_string_lossy().into_owned(), data.len());
        }
    }
}

#[test]
fn word_count() {
    let Some(run) = Run::prepare(&["awk", "gzip"]) else {
        return;
    };
    let mut command = Command::new(checkout("examples/wordcount.sh"));
    command.env("WORDS", "50000");
    run.command_agrees(&command, 200);
}

#[test]
fn montage() {
    let Some(workload) = support::shared("workloads/montage") else {
        return;
    };
    if !(need_program("mProjectPP") && need_python("astropy")) {
        return;
    }
    let Some(run) = Run::prepare(&["make", "mDiffFit"]) else {
        return;
    };
    let scratch = Scratch::new();
    let copy = scratch.join("workload");
    tree::copy(&workload, &copy);
    let mut data = Command::new(copy.join("data.sh"));
    finish(data.arg(run.source()).env("PYTHON", support::PYTHON)).expect(0);
    let mut command = Command::new(copy.join("run.sh"));
    command.args([".", "2"]).env("PROJECT", "mProjectPP");
    run.command_agrees(&command, 10_000);
}

#[test]
fn git() {
    let Some(run) = Run::prepare(&["git"]) else {
        return;
    };
    run.agrees(&scripts::git(300, 200_000), 1000);
}

#[test]
fn sqlite() {
    let Some(run) = Run::prepare(&["sqlite3"]) else {
        return;
    };
    run.agrees(&scripts::sqlite("delete truncate persist wal"), 1000);
}

#[test]
fn python() {
    if !need_python("zipfile") {
        return;
    }
    let Some(run) = Run::prepare(&[]) else {
        return;
    };
    fs::write(
        run.source().join("main.py"),
        include_str!("calls_equal_strace/main.py"),
    )
    .unwrap();
    fs::create_dir(run.source().join("package")).unwrap();
    for name in ["__init__", "one", "two"] {
        let module = run.source().join(format!("package/{name}.py"));
        fs::write(module, format!("NAME = {name:?}\n")).unwrap();
    }
    run.agrees(&format!("{} main.py && {0} main.py", support::PYTHON), 1000);
}

#[test]
fn compiler() {
    let Some(run) = Run::prepare(&["gcc", "make", "ar"]) else {
        return;
    };
    let source = run.source();
    for n in 0..6 {
        let text = format!(
            "#include <stdio.h>\n#include \"all.h\"\n\
             int f{n}(int x) {{ printf(\"%d\\n\", x); return x + {n}; }}\n"
        );
        fs::write(source.join(format!("f{n}.c")), text).unwrap();
    }
    let all: String = (0..6).map(|n| format!("int f{n}(int);\n")).collect();
    fs::write(source.join("all.h"), all).unwrap();
    let main = "#include \"all.h\"\nint main(void) { return f0(f1(f2(f3(f4(f5(0)))))) - 15; }\n";
    fs::write(source.join("main.c"), main).unwrap();
    let makefile = "CFLAGS = -O1 -g\n\
        objects = f0.o f1.o f2.o f3.o f4.o f5.o\n\
        program: main.o libf.a ; gcc -g -o $@ $^ && ./$@\n\
        libf.a: $(objects) ; ar rcs $@ $^\n\
        $(objects) main.o: all.h\n";
    fs::write(source.join("Makefile"), makefile).unwrap();
    // Temporary files of the compiler, too.
    run.agrees(
        "export TMPDIR=$PWD; make -j2 > log; touch f3.c; make -j2 >> log",
        300,
    );
}

#[test]
fn large_and_scattered() {
    if !need_python("mmap") {
        return;
    }
    let Some(run) = Run::prepare(&["dd"]) else {
        return;
    };
    fs::write(
        run.source().join("large.py"),
        include_str!("calls_equal_strace/large.py"),
    )
    .unwrap();
    let script = format!(
        "{} large.py
         dd if=data of=copy bs=5M 2> log
         dd if=data of=copy bs=1M oflag=append conv=notrunc 2>> log
         dd if=data of=copy bs=3000000 iflag=direct oflag=seek_bytes seek=77 conv=notrunc 2>> log
         cat data copy > both
         cp both again
         head -c 10000000 both | tail -c 5000000 > part
         cmp data copy > difference || true",
        support::PYTHON
    );
    run.agrees(&script, 200);
}
