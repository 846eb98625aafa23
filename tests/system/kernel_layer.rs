//! With `--layer kernel` a trace has the same rows as with FUSE.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::process::{Finished, finish};
use crate::support::programs::program;
use crate::support::trace::Trace;
use crate::support::{
    FLOWTRACE, PYTHON, Scratch, need_fuse, need_kernel_layer, need_program, need_python, run_in,
};

/// Program, operation, path, offset, result and length of each read and write.
type Row = Vec<String>;

struct Run {
    /// Path of the trace.
    path: PathBuf,
    finished: Finished,
}

const FUSE: &[&str] = &["--layer", "fuse"];
const KERNEL: &[&str] = &["--layer", "kernel"];

/// Runs a command in a new directory, recorded in one way.
fn run(scratch: &Scratch, way: &[&str], command: &[&str], prepare: fn(&Path)) -> Run {
    // The same name for all, so that the rows are the same.
    let name = way.concat();
    let job = scratch.dir(&name).join("job");
    std::fs::create_dir(&job).unwrap();
    prepare(&job);
    let path = scratch.join(format!("{name}.db"));
    let mut run = run_in(&job, &path);
    let finished = finish(run.args(way).arg("--").args(command));
    Run {
        finished: finished.expect(0),
        path,
    }
}

fn rows(trace: &Trace) -> Vec<Row> {
    let found = trace.rows(
        "SELECT p.exe, op, c.path, COALESCE(offset, 'unknown'), result,
           COALESCE(length, '')
         FROM calls AS c JOIN processes AS p USING (upid)
         WHERE op IN ('read', 'write', 'copy_from', 'copy_to') AND c.fidelity = 'exact'",
    );
    // Only the kernel layer has rows for files outside; paths of files without a name do not begin with a
    // slash.
    let inside = |row: &Row| !row[2].starts_with('/') || row[2].contains("/job/");
    let mut rows: Vec<Row> = found
        .into_iter()
        .filter(inside)
        .map(|mut row| {
            // Files without a name have a number in its place.
            let name = row[2]
                .rsplit_once("/job/")
                .map_or("nameless", |(_, name)| name);
            row[2] = name.to_owned();
            row
        })
        .collect();
    rows.sort();
    rows
}

/// Compares the rows of a run by eBPF with those of a run with a mount. Two differences are allowed: the order of calls
/// at one position at the same time is only known to the mount, which makes them one by one; and a mount is requested to
/// copy no more than the file has.
#[track_caller]
fn are_the_same(kernel: Vec<Row>, fuse: &[Row]) {
    const OP: usize = 1;
    const OFFSET: usize = 3;
    const LENGTH: usize = 5;
    let mut left = fuse.to_vec();
    let (contested, known): (Vec<Row>, Vec<Row>) =
        kernel.into_iter().partition(|row| row[OFFSET] == "unknown");
    for row in known.iter().chain(&contested) {
        let is_unknown = |column| match column {
            OFFSET => row[OFFSET] == "unknown",
            LENGTH => row[OP].starts_with("copy_"),
            _ => false,
        };
        let is_same = |other: &Row| (0..row.len()).all(|at| row[at] == other[at] || is_unknown(at));
        let at = left.iter().position(is_same);
        left.swap_remove(at.unwrap_or_else(|| panic!("only by eBPF: {row:?}")));
    }
    assert!(left.is_empty(), "only by FUSE: {left:?}");
}

/// Runs a command in both ways and compares. There must be at least `least` rows.
#[track_caller]
fn agrees(command: &[&str], prepare: fn(&Path), least: usize) {
    if !need_fuse() || !need_kernel_layer() {
        return;
    }
    let scratch = Scratch::new();
    let [kernel, fuse] = [KERNEL, FUSE].map(|way| run(&scratch, way, command, prepare));
    assert_eq!(kernel.finished.stdout, fuse.finished.stdout);
    let [kernel, fuse] = [kernel, fuse].map(|run| Trace::open_complete(&run.path));
    let layer: String = kernel.one("SELECT file_layer FROM runs");
    assert_eq!(layer, "kernel");
    let (seen, expected) = (rows(&kernel), rows(&fuse));
    assert!(
        expected.len() >= least,
        "only {} rows to compare",
        expected.len()
    );
    are_the_same(seen, &expected);
    let changes = "SELECT c.op, COUNT(*) FROM calls AS c JOIN operations AS o ON o.op = c.op
                   WHERE (o.class = 'namespace' OR c.op = 'create') AND c.result >= 0 AND c.path LIKE '%/job/%'
                   GROUP BY 1";
    assert_eq!(kernel.rows(changes), fuse.rows(changes));
    // Without the names: those of temporary files differ. Files that are gone by the end have a size, too.
    let sizes =
        "SELECT size_bytes FROM files WHERE kind = 'file' AND path LIKE '%/job/%' ORDER BY 1";
    assert_eq!(kernel.rows(sizes), fuse.rows(sizes));
}

#[test]
fn descriptors_are_followed_through_all_that_a_process_does() {
    let Some(program) = program("descriptors", &[]) else {
        return;
    };
    agrees(&[program.to_str().unwrap()], |_| {}, 300);
}

#[test]
fn shells_and_their_pipelines() {
    // Data of a pipe comes in pieces of any size, so no command here writes a pipe's data to a file.
    let script = "seq 20000 > a; sort -r -o s a; head -n 100 s > b; cat < a >> c; cat b >> c
        { head -c 100 > /dev/null; cat; } < a > d; dd if=a of=e bs=512 count=50 2> /dev/null
        exec 7<> f; echo x >&7; (echo y >&7; exec 7>&-); cat <&7; tr 0-9 a-j < a > h
        cat a | sort | wc -l; cmp a a; wc -c a; sed -n '5,10p' a; grep -c 7 a; diff a a; md5sum a b c; rm e";
    agrees(&["sh", "-c", script], |_| {}, 200);
}

#[test]
fn databases_and_their_mappings() {
    if !need_program("sqlite3") {
        return;
    }
    let script = "sqlite3 x.db 'PRAGMA journal_mode = WAL; CREATE TABLE t (a);
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
        INSERT INTO t SELECT i FROM n; SELECT COUNT(*) FROM t'
        sqlite3 y.db 'CREATE TABLE t (a); INSERT INTO t VALUES (1); PRAGMA mmap_size = 1000000;
        SELECT * FROM t'";
    agrees(&["sh", "-c", script], |_| {}, 20);
}

#[test]
fn programs_in_python() {
    if !need_python("subprocess") {
        return;
    }
    let script = "
import os, subprocess, zipfile
with open('a', 'w') as f: f.writelines('%d\\n' % i for i in range(20000))
open('b', 'wb').write(open('a', 'rb').read()); os.rename('b', 'c')
with zipfile.ZipFile('z', 'w') as z: z.write('a'); z.write('c')
f = open('a', 'rb'); f.seek(100); f.read(10); f.seek(-5, 2); f.read()
os.set_inheritable(f.fileno(), True); f.seek(0)
subprocess.run(['head', '-c', '10'], stdin=f, check=True)
subprocess.run(['cat'], stdin=open('c'), stdout=open('d', 'w'), check=True)
print(sum(len(line) for line in open('d')))
";
    agrees(&[PYTHON, "-c", script], |_| {}, 30);
}

/// The kernel itself moves the data if source and target are in two mounts.
#[test]
fn copies_between_directories() {
    if !need_fuse() || !need_kernel_layer() || !need_python("os") {
        return;
    }
    let scratch = Scratch::new();
    let [from, to] = ["from", "to"].map(|name| scratch.dir(name));
    std::fs::write(from.join("a"), vec![b'x'; 300_000]).unwrap();
    let script = "
import os, sys
source, target = (os.open(name, flags) for name, flags in zip(sys.argv[1:], (os.O_RDONLY, os.O_WRONLY | os.O_CREAT)))
print(os.copy_file_range(source, target, 200_000), os.copy_file_range(source, target, 50_000, 7))
";
    let [a, b] = [from.join("a"), to.join("b")].map(|path| path.to_str().unwrap().to_owned());
    let path = scratch.join("t.db");
    let mut run = run_in(&from, &path);
    run.arg("--dir").arg(&from).arg("--dir").arg(&to);
    run.args(["--layer", "kernel", "--"]);
    let finished = finish(run.args([PYTHON, "-c", script, &a, &b])).expect(0);
    assert_eq!(finished.stdout, b"200000 50000\n");
    let trace = Trace::open_complete(&path);
    let copies = trace.rows(
        "SELECT op, substr(path, -1), COALESCE(offset, 'unknown'), result FROM calls
         WHERE op IN ('copy_from', 'copy_to') ORDER BY result DESC, op",
    );
    let expected = [
        ["copy_from", "a", "0", "200000"],
        ["copy_to", "b", "0", "200000"],
        ["copy_from", "a", "7", "50000"],
        ["copy_to", "b", "200000", "50000"],
    ];
    assert_eq!(copies, expected);
}

#[test]
fn archives_and_their_contents() {
    if !need_program("tar") || !need_program("gzip") {
        return;
    }
    let script = "mkdir d; for i in 1 2 3 4 5; do seq $((i * 3000)) > d/$i; done
        tar --mtime=@0 -cf a.tar d; gzip -kn a.tar; mkdir e; tar -xf a.tar -C e; gzip -dc a.tar.gz | cmp - a.tar
        tar -rf a.tar d/1; tar --delete -f a.tar d/2; tar -tf a.tar > list; diff -r d e/d && cp -r d f && rm -r d";
    agrees(&["sh", "-c", script], |_| {}, 100);
}

#[test]
fn a_repository_of_git() {
    if !need_program("git") {
        return;
    }
    // Objects depend on names and times, and git reads files again that are as old as the index.
    let script = "export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
        export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0
        git='git -c user.name=a -c user.email=a@b -c gc.auto=0 -c core.fsmonitor=false'
        $git init -q r; cd r; seq 5000 > a; seq 300 > b; touch -d 2020-01-01 a b; $git add a b; $git commit -qm one
        sed -i s/7/8/ b; touch -d 2020-01-02 b; $git commit -qam two; $git log --format=%s; $git show HEAD:b | tail -n 1
        $git checkout -q HEAD~1; $git fsck 2> /dev/null; $git archive HEAD | wc -c; $git diff --stat HEAD HEAD@{1}";
    agrees(&["sh", "-c", script], |_| {}, 50);
}

#[test]
fn a_program_is_compiled_and_linked() {
    if !need_program("cc") {
        return;
    }
    // Programs executed here would be read by the kernel alone, which only FUSE sees.
    let script = "for i in 1 2 3; do echo \"int f$i(void) { return $i; }\" > f$i.c; done
        echo 'int f1(void); int f2(void); int f3(void); int main(void) { return f1() + f2() - f3(); }' > m.c
        for i in f1 f2 f3 m; do cc -pipe -O1 -c $i.c -o $i.o; done; cc f1.o f2.o f3.o m.o -o m; nm m > names";
    agrees(&["sh", "-c", script], |_| {}, 40);
}

/// A number of processes that read byte by byte as fast as they can.
struct Storm<'a> {
    reads: i64,
    processes: i64,
    /// Size of a ring in KiB; `None`: the default.
    ring: Option<&'a str>,
}

impl Storm<'_> {
    /// Checks that every call is a row or counted as dropped. Returns the number of dropped calls; `None` if
    /// the test cannot run here.
    fn is_seen_or_counted(&self) -> Option<i64> {
        let program = program("descriptors", &[])?;
        if !need_fuse() || !need_kernel_layer() {
            return None;
        }
        let scratch = Scratch::new();
        let (reads, processes) = (self.reads, self.processes);
        let path = scratch.join("storm.db");
        let job = scratch.dir("job");
        let mut run = run_in(&job, &path);
        run.args(["--layer", "kernel"]);
        run.args(self.ring.iter().flat_map(|ring| ["--ring", ring]));
        run.arg("--").arg(&program);
        run.args(["storm", &reads.to_string(), &processes.to_string()]);
        let took = finish(&mut run).expect(0).duration;
        let trace = Trace::open(&path);
        let inside = "path LIKE '%/job/storm%'";
        let rows: i64 = trace.one(&format!(
            "SELECT COUNT(*) FROM calls WHERE op IN ('read', 'write') AND {inside}"
        ));
        let lost = |counter: &str| -> i64 {
            trace.one(&format!(
                "SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = '{counter}'"
            ))
        };
        let dropped = lost("calls_dropped");
        let made = processes * (reads + 1);
        eprintln!("{made} calls in {took:?}: {rows} rows, {dropped} dropped");
        // The same rings have other calls of these processes, too, such as closes.
        let others = if dropped > 0 { 100 * processes } else { 0 };
        let counted = made..=made + others;
        assert!(
            counted.contains(&(rows + dropped)),
            "{rows} rows and {dropped} dropped"
        );
        let wrong = trace.rows(&format!(
            "SELECT * FROM calls WHERE op = 'read' AND {inside}
             AND (result <> 1 OR length <> 1 OR offset >= 4096) LIMIT 5"
        ));
        assert_eq!(wrong, Vec::<Vec<String>>::new());
        let exact: i64 = trace.one(&format!(
            "SELECT COUNT(*) FROM calls WHERE op = 'read' AND {inside} AND fidelity = 'exact'"
        ));
        assert!(dropped > 0 || exact == made - processes, "{exact} exact");
        Some(dropped)
    }
}

#[test]
fn a_storm_is_seen_or_counted() {
    for (reads, processes) in [(300_000, 1), (150_000, 6)] {
        let ring = None;
        Storm {
            reads,
            processes,
            ring,
        }
        .is_seen_or_counted();
    }
}

#[test]
fn a_small_ring_drops_what_is_counted() {
    let storm = Storm {
        reads: 100_000,
        processes: 3,
        ring: Some("64"),
    };
    if let Some(dropped) = storm.is_seen_or_counted() {
        assert!(dropped > 0);
    }
}

#[test]
#[ignore = "long: see tests/long"]
fn a_long_storm_is_seen_or_counted() {
    for (reads, processes) in [(20_000_000, 1), (20_000_000, 2), (5_000_000, 4)] {
        for ring in [None, Some("65536")] {
            Storm {
                reads,
                processes,
                ring,
            }
            .is_seen_or_counted();
        }
    }
}

#[test]
fn a_descriptor_that_was_sent_is_followed() {
    let Some(program) = program("descriptors", &[]) else {
        return;
    };
    if !need_fuse() || !need_kernel_layer() {
        return;
    }
    let scratch = Scratch::new();
    let command = [program.to_str().unwrap(), "send"];
    let trace = Trace::open_complete(&run(&scratch, KERNEL, &command, |_| {}).path);
    let rows = trace.rows(
        "SELECT op, offset, result, upid - (SELECT MIN(upid) FROM calls WHERE path LIKE '%/job/sent') FROM calls
         WHERE op IN ('read', 'write') AND path LIKE '%/job/sent' AND fidelity = 'exact' ORDER BY start_ns",
    );
    let expected = [
        ["write", "0", "100", "0"],
        ["read", "0", "50", "1"],
        ["read", "10", "20", "1"],
        ["read", "30", "30", "0"],
    ];
    assert_eq!(rows, expected);
    let counted =
        "SELECT value FROM losses WHERE counter = 'descriptors_not_followed' AND value > 0";
    assert_eq!(trace.rows(counted), Vec::<Vec<String>>::new());
}

#[test]
fn what_contradicts_the_kernel_layer_is_refused() {
    let mut command = Command::new(FLOWTRACE);
    command.args(["run", "--calls", "channels", "-o", "/nonexistent/t.db"]);
    let finished = finish(command.args(["--", "true"])).expect(125);
    let expected = "--calls channels needs --layer kernel";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    for option in [
        &["--fidelity", "cached"][..],
        &["--no-topology"],
        &["--detach"],
    ] {
        let mut command = Command::new(FLOWTRACE);
        command.args(["run", "--layer", "kernel", "-o", "/nonexistent/t.db"]);
        let finished = finish(command.args(option).args(["--", "true"])).expect(125);
        let expected = format!("--layer kernel and {} contradict", option.join(" "));
        assert!(finished.stderr.contains(&expected), "{}", finished.stderr);
    }
}

/// A process reads through a descriptor that it received, and replaces that descriptor by another file at
/// once: the file found there later is not the one that it read. Another process that has the first file open
/// may be at another offset.
#[test]
fn a_descriptor_that_was_sent_and_replaced_makes_no_offset_up() {
    const PROGRAM: &str = "
import os, socket
open('sent', 'wb').write(bytes(4096)); open('other', 'wb').write(bytes(4096))
for i in range(20):
    mine = os.open('sent', os.O_RDONLY)
    os.read(mine, 11)
    a, b = socket.socketpair()
    child = os.fork()
    if child == 0:
        fd = socket.recv_fds(b, 1, 1)[1][0]
        os.read(fd, 22)
        os.dup2(os.open('other', os.O_RDONLY), fd)
        os.read(fd, 5)
        os._exit(0)
    socket.send_fds(a, [b'x'], [mine])
    os.waitpid(child, 0)
    os.read(mine, 33)
    os.close(mine); a.close(); b.close()
";
    if !(need_fuse() && need_kernel_layer() && need_python("socket")) {
        return;
    }
    let scratch = Scratch::new();
    let (work, path) = (scratch.dir("job"), scratch.join("trace.db"));
    for options in [&[][..], &["--no-mount"]] {
        let mut run = run_in(&work, &path);
        let run = run.args(["--force", "--layer", "kernel"]).args(options);
        finish(run.args(["--", PYTHON, "-c", PROGRAM])).expect(0);
        // Reads before the descriptor was resolved are lost, and counted.
        let trace = Trace::open(&path);
        let reads: i64 = trace.one("SELECT COUNT(*) FROM calls WHERE op = 'read' AND length = 33");
        assert_eq!(reads, 20, "{options:?}");
        let wrong: i64 = trace
            .one("SELECT COUNT(*) FROM calls WHERE op = 'read' AND length = 33 AND offset <> 33");
        assert_eq!(wrong, 0, "{options:?}");
    }
}

/// A process that receives a descriptor reads through it and closes it at once, and its sender has closed it:
/// the file is reported with the message.
#[test]
fn a_descriptor_that_was_sent_is_followed_however_short_it_lives() {
    const PROGRAM: &str = "
import os, socket
open('sent', 'wb').write(bytes(100_000))
a, b = socket.socketpair()
child = os.fork()
if child == 0:
    for i in range(50):
        message, got, _, _ = socket.recv_fds(b, 1, 2)
        for fd in got:
            os.read(fd, 7); os.pread(fd, 8, 16); os.read(fd, 9)
            os.close(fd)
    os._exit(0)
for i in range(50):
    both = [os.open('sent', os.O_RDONLY) for n in range(1 + i % 2)]
    for n, fd in enumerate(both): os.lseek(fd, 100 * i + 1000 * n, os.SEEK_SET)
    socket.send_fds(a, [b'x'], both)
    for fd in both: os.close(fd)
os.waitpid(child, 0)
";
    if !(need_fuse() && need_kernel_layer() && need_python("socket")) {
        return;
    }
    let scratch = Scratch::new();
    let (work, path) = (scratch.dir("job"), scratch.join("trace.db"));
    let begins = (0..50).flat_map(|i| (0..=i % 2).map(move |n| 100 * i + 1000 * n));
    let truth: Vec<_> = begins
        .flat_map(|at: u32| [(at, 7), (16, 8), (at + 7, 9)])
        .map(|(offset, length)| vec![offset.to_string(), length.to_string(), "exact".into()])
        .collect();
    for options in [&[][..], &["--no-mount"]] {
        let mut run = run_in(&work, &path);
        let run = run.args(["--force", "--layer", "kernel"]).args(options);
        finish(run.args(["--", PYTHON, "-c", PROGRAM])).expect(0);
        let trace = Trace::open_complete(&path);
        let rows = trace.rows(
            "SELECT offset, result, fidelity FROM calls
             WHERE op = 'read' AND path LIKE '%sent' AND result < 10 ORDER BY start_ns",
        );
        assert_eq!(rows, truth, "{options:?}");
    }
}

/// As pools of threads do: of one that starts programs, the first thread knows nothing.
#[test]
fn programs_that_another_thread_starts_have_their_calls() {
    if !need_fuse() || !need_kernel_layer() || !need_program("python3") {
        return;
    }
    let starts = "import subprocess, threading\n\
                  def jobs():\n    \
                      for i in range(5):\n        \
                          with open('in') as a, open(f'out.{i}', 'w') as b:\n            \
                              subprocess.run(['sed', 's/^/x/'], stdin=a, stdout=b, check=True)\n\
                  one = threading.Thread(target=jobs)\none.start()\none.join()";
    for mode in [
        &["--layer", "kernel"][..],
        &["--no-mount", "--layer", "kernel"],
    ] {
        let scratch = Scratch::new();
        let job = scratch.dir("job");
        std::fs::write(job.join("in"), "1234567\n".repeat(1000)).unwrap();
        let path = scratch.join("trace.db");
        let mut run = run_in(&job, &path);
        run.args(mode).args(["--", "python3", "-c", starts]);
        finish(&mut run).expect(0);
        let written: i64 = Trace::open_complete(&path).one(
            "SELECT SUM(result) FROM calls JOIN files USING (file_id) JOIN processes AS p USING (upid)
             WHERE op = 'write' AND p.rule = 'sed' AND files.path LIKE '%/job/out.%'",
        );
        assert_eq!(written, 5 * 9_000, "{mode:?}");
    }
}

/// A FIFO may get the inode of a file that was just removed; what goes through it is not data of the file.
#[test]
fn a_fifo_is_not_the_removed_file_that_had_its_inode() {
    if !need_fuse() || !need_kernel_layer() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let script = "for i in 1 2 3 4; do
        echo old > old.$i; rm old.$i; mkfifo fifo.$i; echo new > fifo.$i & sort < fifo.$i > out.$i; wait
    done";
    let mut run = run_in(&scratch.dir("job"), &path);
    finish(run.args(["--", "sh", "-c", script])).expect(0);
    let trace = Trace::open_complete(&path);
    let moved: Vec<_> = trace.rows(
        "SELECT op, COUNT(*) FROM calls JOIN files USING (file_id)
         WHERE files.path GLOB '*/job/*.[1-4]' AND op IN ('read', 'write') AND result > 0
         GROUP BY files.path GLOB '*/old.*', op",
    );
    assert_eq!(moved, [["write", "4"], ["write", "4"]]);
}

/// The kernel opens a program that is executed: who made it, and who needs it, is known.
#[test]
fn an_exec_opens_its_program() {
    if !need_fuse() || !need_kernel_layer() {
        return;
    }
    let scratch = Scratch::new();
    let script = "cp /bin/true made; ./made; mv made moved; ./moved; rm moved; /bin/true";
    let opens = |way: &[&str]| {
        let path = scratch.join(format!("{}.db", way.concat()));
        let mut run = run_in(&scratch.dir(&way.concat()), &path);
        finish(run.args(way).args(["--", "sh", "-c", script])).expect(0);
        let trace = Trace::open_complete(&path);
        trace.rows(
            "SELECT f.path, p.command, c.result FROM calls AS c JOIN files AS f USING (file_id)
               JOIN processes AS p USING (upid)
             WHERE c.op = 'open' AND c.flags & 32 AND f.path GLOB '*/mo*ed' ORDER BY c.start_ns",
        )
    };
    let (seen, expected) = (opens(KERNEL), opens(FUSE));
    let names = |rows: &[Row]| -> Vec<Row> {
        let rows = rows.iter();
        rows.map(|row| vec![row[0].rsplit('/').next().unwrap().into(), row[1].clone()])
            .collect()
    };
    assert_eq!(names(&seen), names(&expected));
    assert_eq!(seen.len(), 2);
}
