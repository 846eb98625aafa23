//! With `--no-mount` the command uses its own filesystem, and the facts that the kernel reports are recorded.

use std::fs;
use std::process::Command;

use crate::support::process::{Finished, finish};
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, PYTHON, Scratch, need_kernel_layer, need_program, prints, run_in};

fn text(finished: &Finished) -> &str {
    str::from_utf8(&finished.stdout).unwrap()
}

#[test]
fn the_command_stays_where_it_is() {
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    let path = scratch.join("t.db");
    let script = "readlink /proc/self/ns/mnt; echo x > made; cat made > copy; mv copy moved";
    let mut command = run_in(&job, &path);
    let finished = finish(command.args(["--no-mount", "--", "sh", "-c", script])).expect(0);
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    assert_eq!(text(&finished), format!("{}\n", own.display()));
    let trace = Trace::open_complete(&path);
    let layer: String = trace.one("SELECT file_layer FROM runs");
    let directories: i64 = trace.one("SELECT COUNT(*) FROM traced_directories");
    // By ptrace only opens and names are recorded.
    let expected = match layer.as_str() {
        "kernel" => 1,
        _ => 0,
    };
    assert_eq!(directories, expected, "{layer}");
}

/// GCC opens sources and headers in a way of its own. Where nothing is mounted these opens are all there is.
#[test]
fn sources_and_headers_are_inputs() {
    if !need_program("gcc") {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    fs::write(job.join("common.h"), "int one(void);\n").unwrap();
    let source = "#include \"common.h\"\nint one(void) { return 1; }\n";
    fs::write(job.join("one.c"), source).unwrap();
    let path = scratch.join("t.db");
    let mut command = run_in(&job, &path);
    command.args(["--ptrace", "--no-mount", "--", "gcc", "-c", "one.c"]);
    finish(&mut command).expect(0);
    let arguments = ["dag", "t.db", "--descendants-of", "common.h"];
    let graph = prints(&scratch, &arguments);
    assert!(graph.contains("one.o"), "{graph}");
    let opened = "SELECT DISTINCT replace(path, rtrim(path, replace(path, '/', '')), '') FROM calls
        WHERE path LIKE '%/job/%' AND op = 'open' ORDER BY 1";
    let opened = Trace::open_complete(&path).rows(opened).concat();
    assert!(
        opened.starts_with(&["common.h".into(), "one.c".into()]),
        "{opened:?}"
    );
}

#[test]
fn a_file_that_is_renamed_is_one_file() {
    if !need_kernel_layer() {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    let path = scratch.join("t.db");
    let script = "printf hello > x.tmp; mv x.tmp x; cat x > y; rm y";
    let mut command = run_in(&job, &path);
    let ways = ["--layer", "kernel", "--no-mount", "--"];
    finish(command.args(ways).args(["sh", "-c", script])).expect(0);
    let summary = finish(Command::new(FLOWTRACE).arg("summary").arg(&path)).expect(0);
    let seen = "every file call, every process, recorded by eBPF";
    assert!(text(&summary).contains(seen), "{}", text(&summary));
    let trace = Trace::open_complete(&path);
    let names = "SELECT replace(path, rtrim(path, replace(path, '/', '')), ''), to_ns IS NULL
         FROM file_names WHERE path LIKE '%/job/%' ORDER BY from_ns";
    let expected = [["x.tmp", "0"], ["x", "1"], ["y", "0"]];
    assert_eq!(trace.rows(names), expected);
    let edges =
        "SELECT DISTINCT f.path LIKE '%/job/x' FROM file_access JOIN files AS f USING (file_id)
         WHERE f.path LIKE '%/job/x%' AND write_bytes = 5 AND reads = 0";
    assert_eq!(trace.rows(edges), [["1"]]);
}

/// Files of the system are reported when they have been opened, or before. Each read belongs to the file that
/// was opened.
#[test]
fn system_files_are_not_taken_for_each_other() {
    if !need_kernel_layer() {
        return;
    }
    let script = "
import glob, os
for path in sorted(glob.glob(os.path.dirname(os.__file__) + '/[a-d]*.py'))[:9]:
    file = os.open(path, os.O_RDONLY)
    print(path, len(os.read(file, 1000000)), sep='|')
    os.close(file)";
    let scratch = Scratch::new();
    let path = scratch.join("t.db");
    let mut command = run_in(&scratch.dir("job"), &path);
    command.args(["--layer", "kernel", "--no-mount"]);
    let finished = finish(command.args(["--", PYTHON, "-S", "-c", script])).expect(0);
    let printed = finished.stdout_text();
    let truth: Vec<&str> = printed.lines().collect();
    assert!(truth.len() > 3, "{truth:?}");
    let trace = Trace::open_complete(&path);
    let rows = trace.rows(
        "SELECT path || '|' || result FROM calls
         WHERE op = 'read' AND length = 1000000 ORDER BY start_ns",
    );
    assert_eq!(rows.concat(), truth);
}

/// Of a descriptor that came over a socket the kernel names file and offset.
#[test]
fn a_descriptor_that_was_sent_is_followed() {
    if !need_kernel_layer() {
        return;
    }
    let script = "
import os, socket, sys, time
ours, theirs = socket.socketpair()
file = os.open('sent', os.O_RDWR | os.O_CREAT)
os.write(file, bytes(500))
os.lseek(file, 100, os.SEEK_SET)
if os.fork() == 0:
    os.close(file)
    _, (got,), _, _ = socket.recv_fds(theirs, 1, 1)
    os.read(got, 26)
    theirs.send(b'x')
    if sys.argv[1] == 'stay': time.sleep(1)
    os._exit(0)
socket.send_fds(ours, [b'x'], [file])
ours.recv(1)
os.read(file, 27)
os.wait()
os.pread(file, 28, 5)";
    for how in ["stay", "end"] {
        let scratch = Scratch::new();
        let path = scratch.join("t.db");
        let mut command = run_in(&scratch.dir("job"), &path);
        command.args(["--layer", "kernel", "--no-mount", "--"]);
        finish(command.args([PYTHON, "-S", "-c", script, how])).expect(0);
        let rows = Trace::open_complete(&path).rows(
            "SELECT length, offset FROM calls
             WHERE op = 'read' AND path LIKE '%/job/sent' ORDER BY start_ns",
        );
        assert_eq!(rows, [["26", "100"], ["27", "126"], ["28", "5"]], "{how}");
    }
}

#[test]
fn streams_that_were_open_before_are_files() {
    if !need_kernel_layer() {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    let path = scratch.join("t.db");
    fs::write(job.join("in"), "skipped\nread\n").unwrap();
    // Standard error is the same open file as standard output, so both have one position.
    let outer = r#"{ read skipped; "$@"; } < in > out 2>&1; cat out"#;
    let inner = "echo a; echo bb >&2; cat; echo c";
    let mut command = Command::new("sh");
    command.args(["-c", outer, "sh", FLOWTRACE, "run", "--quiet", "-o"]);
    command.arg(&path).current_dir(&job);
    let ways = ["--layer", "kernel", "--no-mount", "--"];
    let finished = finish(command.args(ways).args(["sh", "-c", inner])).expect(0);
    assert_eq!(text(&finished), "a\nbb\nread\nc\n");
    let trace = Trace::open_complete(&path);
    let rows = trace.rows(
        "SELECT substr(op, 1, 4) <> 'read' AND op <> 'copy_from', offset, result FROM calls
         WHERE path LIKE '%/job/%' AND result > 0 ORDER BY start_ns, op",
    );
    let expected = [
        ["1", "0", "2"],
        ["1", "2", "3"],
        ["0", "8", "5"],
        ["1", "5", "5"],
        ["1", "10", "2"],
    ];
    assert_eq!(rows, expected);
}

#[test]
fn directories_and_no_mount_contradict_each_other() {
    let mut command = Command::new(FLOWTRACE);
    command.args(["run", "--no-mount", "--dir", ".", "-o", "/nonexistent/t.db"]);
    let finished = finish(command.args(["--", "true"])).expect(125);
    let expected = "'--no-mount' cannot be used with '--dir <DIR>'";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
}

/// Files that the kernel does not report are counted.
#[test]
fn files_that_were_open_before_are_counted() {
    if !need_kernel_layer() {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    let path = scratch.join("t.db");
    let mut command = Command::new("sh");
    let traced = "exec \"$0\" run --quiet --layer kernel --no-mount -o \"$1\" -- sh -c 'echo x >&9' 9> before";
    command.args(["-c", traced, FLOWTRACE]).arg(&path);
    finish(command.current_dir(&job)).expect(0);
    assert_eq!(fs::read_to_string(job.join("before")).unwrap(), "x\n");
    let counted = "SELECT value FROM losses WHERE counter = 'inherited_unseen'";
    assert_eq!(Trace::open_complete(&path).rows(counted), [["1"]]);
}
