//! With `--layer kernel` a trace has the reads and writes that strace sees, call by call, recorded by
//! eBPF programs. Long: see tests/long.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::support::names::Names;
use crate::support::process::finish;
use crate::support::programs::program;
use crate::support::strace::data::{self, Kind};
use crate::support::trace::Trace;
use crate::support::{
    PYTHON, Scratch, need_fuse, need_kernel_layer, need_program, need_python, run_in, shared, tree,
};

/// Offset, result and length of a call.
type Call = (Option<u64>, String, Option<u64>);
/// The calls on each file, by its name and their kind.
type Calls = BTreeMap<(String, &'static str), Vec<Call>>;

/// A command and its working directory.
struct Work<'a> {
    argv: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
    prepare: &'a dyn Fn(&Path),
}

impl Work<'_> {
    /// A new directory for one run; the last part of its path is always the same.
    fn place(&self, scratch: &Scratch, name: &str) -> PathBuf {
        let job = scratch.dir(name).join("job");
        fs::create_dir(&job).unwrap();
        (self.prepare)(&job);
        job
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.argv[0]);
        command.args(&self.argv[1..]);
        command.envs(self.variables.iter().copied());
        command
    }

    /// Duration of the command without tracing, once its programs are in the page cache.
    fn native(&self, scratch: &Scratch) -> Duration {
        let took = ["before", "native"].map(|name| {
            let job = self.place(scratch, name);
            let mut command = self.command();
            finish(command.current_dir(&job)).expect(0).duration
        });
        took[1]
    }

    fn by_strace(&self, scratch: &Scratch) -> (Calls, Duration) {
        let job = self.place(scratch, "strace");
        let log = scratch.join("strace.log");
        let mut sizes = HashMap::new();
        sizes_below(&job, &mut sizes);
        let begin = Instant::now();
        data::record(&self.command(), &job, &log);
        let took = begin.elapsed();
        let mut numbers: HashMap<String, i64> = HashMap::new();
        let mut opened = |_, path: &str| {
            let next = numbers.len() as i64;
            Some(*numbers.entry(path.to_owned()).or_insert(next))
        };
        let files = data::Files {
            directory: &job,
            opened: &mut opened,
            sizes: &sizes,
            sent: true,
        };
        let seen = data::read(&log, files);
        let names: HashMap<i64, &String> = numbers.iter().map(|(path, n)| (*n, path)).collect();
        let mut calls = Calls::new();
        for call in seen {
            let kind = match call.kind {
                Kind::Read => "read",
                Kind::Write | Kind::Fill => "write",
                Kind::CopyFrom => "copy_from",
                Kind::CopyTo => "copy_to",
            };
            let name = relative(names[&call.file], &job).expect("below the directory");
            let of = calls.entry((name, kind)).or_default();
            of.push((Some(call.offset), call.result, Some(call.length)));
        }
        (calls, took)
    }

    fn by_flowtrace(&self, scratch: &Scratch) -> (Calls, Names<String>, Duration) {
        // As long as the other names, because compilers write the name into their output.
        let job = self.place(scratch, "kernel");
        let path = scratch.join("kernel.db");
        let mut run = run_in(&job, &path);
        run.args(["--layer", "kernel", "--"]).args(self.argv);
        run.envs(self.variables.iter().copied());
        let took = finish(&mut run).expect(0).duration;
        let trace = Trace::open_complete(&path);
        let mut names = Names::default();
        let mut of_file: HashMap<String, String> = HashMap::new();
        for row in trace.rows("SELECT file_id, path FROM file_names") {
            if let Some(name) = relative(&row[1], &job) {
                let first = of_file.entry(row[0].clone()).or_insert(name.clone());
                names.join(first, &name);
            }
        }
        let rows = trace.rows(
            "SELECT file_id, op, offset, result, length FROM calls
             WHERE op IN ('read', 'write', 'copy_from', 'copy_to') AND fidelity = 'exact'",
        );
        let mut calls = Calls::new();
        for row in rows {
            let Some(name) = of_file.get(&row[0]) else {
                continue;
            };
            let kind = match row[1].as_str() {
                "read" => "read",
                "write" => "write",
                "copy_from" => "copy_from",
                _ => "copy_to",
            };
            let result: i64 = row[3].parse().expect("a result");
            let result = match Errno::from_raw((-result).clamp(0, 4095) as i32) {
                _ if result >= 0 => result.to_string(),
                // No filesystem sees those.
                Errno::EISDIR | Errno::EINVAL | Errno::ESPIPE => continue,
                error => format!("{error:?}"),
            };
            let of = calls.entry((name.clone(), kind)).or_default();
            of.push((row[2].parse().ok(), result, row[4].parse().ok()));
        }
        (calls, names, took)
    }

    /// Runs the command in each way and compares. There must be at least `least` calls.
    #[track_caller]
    fn agrees(&self, what: &str, least: usize) {
        if !(need_fuse() && need_kernel_layer() && need_program("strace")) {
            return;
        }
        let scratch = Scratch::new();
        let native = self.native(&scratch).as_secs_f64();
        let (theirs, strace) = self.by_strace(&scratch);
        let count: usize = theirs.values().map(Vec::len).sum();
        assert!(count >= least, "only {count} calls to compare");
        let (ours, names, took) = self.by_flowtrace(&scratch);
        let lengths = ours.values().flatten().map(|(_, _, length)| length);
        let unknown = lengths.filter(|length| length.is_none()).count();
        assert_eq!(unknown, 0, "{what}: lengths are not known");
        let differences = differences(&merge(&names, &theirs), &merge(&names, &ours));
        assert!(
            differences.is_empty(),
            "{what}:\n{}",
            differences.join("\n")
        );
        eprintln!(
            "{what}: {count} calls are the same; native {native:.2} s, flowtrace {:.2}, strace {:.2} times that",
            took.as_secs_f64() / native,
            strace.as_secs_f64() / native
        );
    }
}

/// The calls, with one of the names of each file.
fn merge(names: &Names<String>, calls: &Calls) -> Calls {
    let mut merged = Calls::new();
    for ((name, kind), list) in calls {
        let key = (names.find(name).clone(), *kind);
        merged.entry(key).or_default().extend(list.iter().cloned());
    }
    merged.values_mut().for_each(|list| list.sort());
    merged
}

/// A path below the directory, with a fixed name in place of one that a compiler chose.
fn relative(path: &str, directory: &Path) -> Option<String> {
    let name = Path::new(path).strip_prefix(directory).ok()?.to_str()?;
    let (parent, last) = name.rsplit_once('/').unwrap_or(("", name));
    let made_up =
        |random: &str| random.len() == 6 && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let stem = last.split_once('.').map_or(last, |(stem, _)| stem);
    let is_temporary = ["cc", "st"]
        .iter()
        .any(|prefix| stem.strip_prefix(prefix).is_some_and(made_up));
    Some(match is_temporary {
        true => format!("{parent}/temporary{}", &last[stem.len()..]),
        false => name.to_owned(),
    })
}

/// Some of the differences; both lists are in order.
fn differences(strace: &Calls, seen: &Calls) -> Vec<String> {
    let mut found = Vec::new();
    let keys: std::collections::BTreeSet<_> = strace.keys().chain(seen.keys()).collect();
    for key in keys {
        let theirs = strace.get(key).map_or(&[][..], Vec::as_slice);
        let ours = seen.get(key).map_or(&[][..], Vec::as_slice);
        // A copy requests no more of a filesystem than the file has.
        let is_copy = key.1.starts_with("copy");
        if let Some(difference) = differ(theirs, ours, is_copy) {
            let (theirs, ours) = (theirs.len(), ours.len());
            found.push(format!(
                "{key:?} (strace {theirs}, flowtrace {ours}): {difference}"
            ));
        }
    }
    found.truncate(10);
    found
}

/// Pairs calls of one offset and result; only strace knows the length of some of them.
fn differ(theirs: &[Call], ours: &[Call], is_copy: bool) -> Option<String> {
    let by_place = |calls: &[Call]| {
        let mut map: BTreeMap<(Option<u64>, String), Vec<Option<u64>>> = BTreeMap::new();
        for (offset, result, length) in calls {
            let key = (*offset, result.clone());
            map.entry(key).or_default().push(*length);
        }
        map
    };
    let (theirs, ours) = (by_place(theirs), by_place(ours));
    for key in theirs.keys().chain(ours.keys()) {
        let (theirs, ours) = (theirs.get(key), ours.get(key));
        let mut rest = theirs.cloned().unwrap_or_default();
        let ours = ours.map_or(&[][..], Vec::as_slice);
        let count = (rest.len(), ours.len());
        let agree = count.0 == count.1
            && ours.iter().flatten().all(|length| {
                let same = rest.iter().position(|other| *other == Some(*length));
                same.map(|at| rest.swap_remove(at)).is_some() || is_copy
            });
        if !agree {
            return Some(format!("{key:?}: strace {theirs:?}, flowtrace {ours:?}"));
        }
    }
    None
}

/// Sizes of the files below a directory.
fn sizes_below(directory: &Path, sizes: &mut HashMap<String, u64>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let data = path.symlink_metadata().expect("an entry that is there");
        if data.is_dir() {
            sizes_below(&path, sizes);
        } else {
            sizes.insert(path.to_string_lossy().into_owned(), data.len());
        }
    }
}

#[test]
#[ignore = "long: see tests/long"]
fn a_storm() {
    let Some(program) = program("descriptors", &[]) else {
        return;
    };
    let work = Work {
        argv: &[program.to_str().unwrap(), "storm", "300000", "1"],
        variables: &[],
        prepare: &|_| {},
    };
    work.agrees("storm", 300_000);
}

#[test]
#[ignore = "long: see tests/long"]
fn videos() {
    if !need_program("ffmpeg") {
        return;
    }
    let script = "f='ffmpeg -v error -nostdin -threads 1'
        $f -f lavfi -i testsrc=d=9:s=640x480 -f lavfi -i sine=d=9 -c:v mjpeg -c:a pcm_s16le -threads 1 a.avi
        $f -i a.avi -c:v mpeg4 -c:a aac -threads 1 -movflags faststart b.mp4
        $f -i b.mp4 -r 5 -threads 1 'p%03d.png'; $f -i 'p%03d.png' -c:v mjpeg -threads 1 c.mkv";
    let work = Work {
        argv: &["sh", "-ec", script],
        variables: &[],
        prepare: &|_| {},
    };
    work.agrees("ffmpeg", 200);
}

#[test]
#[ignore = "long: see tests/long"]
fn a_program_is_built() {
    if !(need_program("cc") && need_program("ar")) {
        return;
    }
    let script = "for i in $(seq 12); do
          printf '#include <stdio.h>\n#include <stdlib.h>\nint f%d(int n) { return printf(\"%%d\", n); }\n' $i > f$i.c
          cc -O1 -c f$i.c -o f$i.o
        done
        ar rc lib.a f*.o; ranlib lib.a; echo 'int f3(int); int main(void) { return f3(1) - 1; }' > m.c
        cc -g m.c lib.a -o m; ./m; strip m -o n; nm m > names; cc -S m.c; cc -shared -fPIC f1.c f2.c -o l.so";
    let work = Work {
        argv: &["sh", "-ec", script],
        variables: &[("TMPDIR", ".")],
        prepare: &|_| {},
    };
    work.agrees("gcc", 300);
}

#[test]
#[ignore = "long: see tests/long"]
fn a_mosaic() {
    let Some(workload) = shared("workloads/montage") else {
        return;
    };
    if !(need_program("mProjectPP") && need_program("make") && need_python("astropy")) {
        return;
    }
    let scratch = Scratch::new();
    let (copy, input) = (scratch.join("workload"), scratch.dir("input"));
    tree::copy(&workload, &copy);
    let mut data = Command::new(copy.join("data.sh"));
    finish(data.arg(&input).env("PYTHON", PYTHON)).expect(0);
    let script = copy.join("run.sh");
    let work = Work {
        argv: &[script.to_str().unwrap(), ".", "2"],
        variables: &[("PROJECT", "mProjectPP")],
        prepare: &|job| {
            fs::remove_dir(job).unwrap();
            tree::copy(&input, job);
        },
    };
    work.agrees("montage", 10_000);
}

#[test]
#[ignore = "long: see tests/long"]
fn a_benchmark_of_files() {
    if !need_program("fio") {
        return;
    }
    let script = "for engine in psync sync vsync pvsync pvsync2; do
          for rw in write read randrw; do
            fio --name=$engine --filename=data --rw=$rw --bs=4k --size=4m --ioengine=$engine --randseed=7 \\
              --output-format=terse > /dev/null
          done
        done
        fio --name=direct --filename=data --rw=randrw --bs=4k --size=2m --ioengine=psync --direct=1 --randseed=7 > /dev/null
        fio --name=many --filename=more --rw=randread --bs=16k --size=4m --ioengine=psync --numjobs=3 --thread > /dev/null";
    let work = Work {
        argv: &["sh", "-ec", script],
        variables: &[],
        prepare: &|_| {},
    };
    work.agrees("fio", 10_000);
}
