//! Pipes between programs.

use super::{assert_wires, traced};
use crate::support::{PYTHON, need_kernel_layer, need_process_tracepoints, need_program, skip};

fn shell(script: &str) -> Option<super::Traced> {
    traced(&[], &["sh", "-ec", script])
}

fn bash(script: &str) -> Option<super::Traced> {
    if !need_program("bash") {
        return None;
    }
    traced(&[], &["bash", "-ec", script])
}

const PIPELINE: &str = "dd if=/dev/zero bs=64k count=64 status=none | gzip -1 | wc -c > size";

#[test]
fn a_pipeline_leads_from_program_to_program_and_not_through_the_shell() {
    let Some(run) = shell(PIPELINE) else { return };
    assert_wires(&run.trace, &["dd > gzip", "gzip > wc"]);
    // Bounds: all of the data went through the first pipe, the output of wc through the second.
    let at_most = |program: &str, direction: &str| -> i64 {
        run.trace.one(&format!(
            "SELECT MAX(at_most_bytes) FROM channel_ends JOIN processes USING (upid)
             WHERE command LIKE '{program} %' AND direction = '{direction}' AND used IS NOT 0"
        ))
    };
    let counted = std::fs::read_to_string(run.scratch.join("job/size")).unwrap();
    assert_eq!(at_most("dd", "write"), 64 << 16);
    assert!(at_most("gzip", "read") >= 64 << 16);
    assert_eq!(
        at_most("gzip", "write"),
        counted.trim().parse::<i64>().unwrap()
    );
    let capacity = "SELECT DISTINCT capacity_bytes FROM channels JOIN edges
        ON dst_kind = 'channel' AND dst_id = channel_id
        JOIN processes ON upid = src_id WHERE command LIKE 'dd %'";
    assert_eq!(run.trace.one::<i64>(capacity), 65536);
}

/// An argument that could be the name of a script may be that of a FIFO, which no other process must open.
#[test]
fn fifos_that_programs_are_given_are_theirs_alone() {
    let script = "mkfifo q; seq 5 | tee q > /dev/null & cat q; wait
        (seq 3 > q) & echo x | cat - q; wait; { sleep 0.2; seq 2; } | cat - > q & cat q";
    let Some(run) = shell(script) else { return };
    assert_eq!(
        run.finished.stdout_text(),
        "1\n2\n3\n4\n5\nx\n1\n2\n3\n1\n2\n"
    );
    let wires = [
        "(sh) > cat",
        "cat > cat",
        "seq > cat",
        "seq > tee",
        "tee > cat",
    ];
    assert_wires(&run.trace, &wires);
}

/// The kernel keeps a table as long as the highest number needs. Programs that end at once are reported
/// before flowtrace can read the table.
#[test]
fn programs_with_high_descriptors_are_connected_like_others() {
    for high in [255, 256, 700, 5000] {
        let script =
            format!("ulimit -n 6000; exec {high}< /dev/null; /bin/echo text | /bin/cat > text");
        let Some(run) = bash(&script) else { return };
        assert_wires(&run.trace, &["echo > cat"]);
    }
    let many = "
import os, subprocess
null = os.open('/dev/null', os.O_RDONLY)
for n in range(900): os.dup2(null, 100 + n)
subprocess.run('/bin/echo text | /bin/cat > text', shell=True, close_fds=False)";
    let Some(run) = traced(&[], &[PYTHON, "-c", many]) else {
        return;
    };
    assert_wires(&run.trace, &["echo > cat"]);
}

/// A program that starts others may forget to close the ends that are not theirs.
#[test]
fn a_program_uses_its_standard_input_though_it_has_the_other_end_too() {
    let finite = "
import os
r, w = os.pipe()
for end in (r, w): os.set_inheritable(end, True)
os.write(w, b'123456')
if os.fork() == 0:
    os.dup2(r, 0)
    os.execv('/usr/bin/head', ['head', '-c', '3'])
os.wait()";
    let seq = "
import os
r, w = os.pipe()
for end in (r, w): os.set_inheritable(end, True)
if os.fork() == 0:
    os.dup2(w, 1)
    os.execv('/usr/bin/seq', ['seq', '1000'])
if os.fork() == 0:
    os.dup2(r, 0); os.close(w)
    os.execv('/usr/bin/wc', ['wc', '-c'])
os.close(r); os.close(w)
os.wait(); os.wait()";
    for (script, wire) in [(seq, "seq > wc"), (finite, "python3 > head")] {
        let Some(run) = traced(&[], &[PYTHON, "-c", script]) else {
            return;
        };
        assert_wires(&run.trace, &[wire]);
    }
}

/// An eBPF program reports about a thousand of them. If a process ended before the others were read, some are
/// unknown.
#[test]
fn ends_beyond_the_limit_are_counted_as_missing() {
    if !need_process_tracepoints() {
        return;
    }
    let script = "
import os, subprocess
null = os.open('/dev/null', os.O_RDONLY)
for n in range(3000): os.dup2(null, 100 + n)
subprocess.run('/bin/true', close_fds=False)";
    let command = format!("ulimit -n 6000; exec {PYTHON} -c \"{script}\"");
    let Some(run) = bash(&command) else { return };
    if run.trace.one::<String>("SELECT process_layer FROM runs") != "ebpf" {
        // All descriptors of a stopped process are read, however many it has.
        return;
    }
    let missing =
        "SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'descriptors_unreadable'";
    assert!(run.trace.one::<i64>(missing) >= 1);
}

/// Where calls are recorded one by one, they show that a process has used an end, however it got that end.
#[test]
fn a_process_that_moved_data_had_an_end() {
    if !need_kernel_layer() {
        return;
    }
    // The first child has a side of the pipe `a` open, but writes to `b`, of which it has both sides.
    let script = "
import os
a, b = os.pipe(), os.pipe()
os.dup2(a[1], 60)
def child(act):
    if os.fork() == 0:
        act()
        os._exit(0)
def write():
    os.close(a[0]); os.close(a[1])
    os.write(b[1], b'hello')
child(write)
child(lambda: os.read(b[0], 9))
os.wait(); os.wait()
print(os.fstat(b[0]).st_ino)";
    let options = ["--layer", "kernel", "--no-mount"];
    let Some(run) = traced(&options, &[PYTHON, "-c", script]) else {
        return;
    };
    let inode = run.finished.stdout_text();
    let ends = run.trace.rows(&format!(
        "SELECT direction, bytes FROM channel_ends JOIN channels USING (channel_id)
         WHERE inode = {} AND used ORDER BY direction",
        inode.trim()
    ));
    assert_eq!(ends, [["read", "5"], ["write", "5"]]);
}

#[test]
fn without_stopping_calls_a_pipeline_is_found_at_its_execs() {
    let Some(run) = traced(&["--no-topology"], &["sh", "-ec", PIPELINE]) else {
        return;
    };
    assert_wires(&run.trace, &["dd > gzip", "gzip > wc"]);
}

/// Notifications stop a process that makes a pipe, forks, execs or ends, as ptrace does.
#[test]
fn without_ptrace_pipes_and_files_elsewhere_are_seen() {
    if !need_process_tracepoints() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    let script = format!(
        "{PIPELINE}; cd {0}; printf 'b\na\n' > in; sort in > out; mv out kept; rm in; sort <<END > $OLDPWD/last
x
END
cat kept >> $OLDPWD/last",
        outside.display()
    );
    let Some(run) = traced(&["--no-ptrace"], &["bash", "-ec", &script]) else {
        return;
    };
    let layer: String = run.trace.one("SELECT process_layer FROM runs");
    assert_eq!(layer, "ebpf");
    assert_wires(&run.trace, &["dd > gzip", "gzip > wc", "(bash) > sort"]);
    let here: String = run
        .trace
        .one("SELECT CAST(content AS TEXT) FROM here_document");
    assert_eq!(here, "x\n");
    let calls = run.trace.rows(&format!(
        "SELECT substr(command, 1, instr(command || ' ', ' ') - 1), op, path FROM calls
           JOIN processes USING (upid) WHERE path LIKE '{}/%' ORDER BY call_id",
        outside.display()
    ));
    let kept = format!("{}/kept", outside.display());
    let wrote = ["sort", "write", &kept].map(str::to_owned);
    let read = ["cat", "open", &kept].map(str::to_owned);
    assert!(
        calls.contains(&wrote.to_vec()) && calls.contains(&read.to_vec()),
        "{calls:#?}"
    );
    let last = "SELECT target FROM descriptor WHERE fd = 1 AND target LIKE '%/last'";
    assert_eq!(run.trace.rows(last).len(), 2);
    let waits = "SELECT COUNT(*) FROM processes WHERE wait_ns IS NOT NULL";
    assert!(run.trace.one::<i64>(waits) > 5);
}

#[test]
fn a_part_of_a_pipeline_may_be_a_shell_itself() {
    let script =
        "(echo a; echo b) | sort > one; seq 3 | while read l; do echo $l; done | sort > two";
    let Some(run) = bash(script) else { return };
    let wires = ["(bash) > sort", "seq > (bash)"];
    assert_wires(&run.trace, &wires);
}

#[test]
fn nested_substitution_leads_to_the_shell_that_asked() {
    let Some(run) = bash("x=$(echo $(seq 3) | tr 1 9); echo $x > out") else {
        return;
    };
    // seq to the inner shell, which echoes into the pipe to tr; tr to the outer one.
    let wires = ["seq > (bash)", "(bash) > tr", "tr > bash"];
    assert_wires(&run.trace, &wires);
}

#[test]
fn process_substitution_and_tee() {
    let script = "diff <(seq 5) <(seq 6 | cat) | wc -l > one || true
        seq 100 | tee >(gzip > two.gz) | tail -n 1 > three; wait";
    let Some(run) = bash(script) else { return };
    let wires = [
        "seq > diff",
        "seq > cat",
        "cat > diff",
        "diff > wc",
        "seq > tee",
        "tee > gzip",
        "tee > tail",
    ];
    assert_wires(&run.trace, &wires);
}

#[test]
fn a_here_document_comes_from_the_shell() {
    let Some(run) = bash("cat > out << END\none line\nEND") else {
        return;
    };
    let found = super::wires(&run.trace);
    // Older versions of bash use a file instead of a pipe.
    assert!(
        found.is_empty() || found.iter().eq(["(bash) > cat"]),
        "{found:?}"
    );
}

#[test]
fn who_left_a_pipe_as_it_was_has_not_read_it() {
    let script =
        "{ expr 1 + 1; read first; expr 2 + 2; sort; expr 3 + 3; } > out << END\nb\na\nd\nc\nEND";
    let Some(run) = shell(script) else { return };
    let out = std::fs::read_to_string(run.scratch.join("job/out")).unwrap();
    assert_eq!(out, "2\n4\na\nc\nd\n6\n");
    let is_pipe = run
        .trace
        .one::<i64>("SELECT COUNT(*) FROM channels WHERE kind = 'pipe'")
        > 0;
    if !is_pipe {
        return skip("this shell keeps here-documents in files");
    }
    assert_wires(&run.trace, &["sh > sort"]);
    let unread = "SELECT COUNT(*) FROM channel_ends JOIN processes USING (upid)
        WHERE command LIKE 'expr %' AND direction = 'read' AND used = 0 AND bytes = 0";
    assert_eq!(run.trace.one::<i64>(unread), 3);
}

/// The shell reads the line byte by byte, as shells do, and execs another program, whose headers the kernel
/// reads meanwhile.
#[test]
fn a_shell_that_reads_a_line_and_becomes_another_program_has_read() {
    let at_most = "SELECT at_most_bytes FROM channel_ends JOIN processes USING (upid)
        WHERE direction = 'read' AND origin = 'fork' AND used IS NOT 0";
    let script = "seq 3 | { read x; exec expr $x + 1; } > f";
    for run in [shell(script), bash(script)].into_iter().flatten() {
        assert_eq!(run.trace.rows(at_most), [["2"]]);
    }
    // The shell reads a script in one piece.
    let script = "printf '#!/bin/sh\\necho 1\\n' > s; chmod +x s; seq 3 | { exec ./s; } > f";
    if let Some(run) = bash(script) {
        assert!(run.trace.rows(at_most).is_empty());
    }
}

#[test]
fn a_fifo_has_a_name() {
    let Some(run) = shell("mkfifo queue; seq 1000 > queue & wc -l < queue > out; wait") else {
        return;
    };
    assert_wires(&run.trace, &["seq > wc"]);
    let name = run.scratch.join("job/queue").display().to_string();
    let named = "SELECT name FROM channels WHERE kind = 'fifo'";
    assert_eq!(run.trace.rows(named), [[name]]);
}

#[test]
fn python_sends_to_its_children_and_reads_from_them() {
    let script = "
import os, subprocess as s
assert s.run(['seq', '9'], stdout=s.PIPE).stdout
p = s.Popen(['gzip'], stdin=s.PIPE, stdout=s.DEVNULL)
for _ in range(300): p.stdin.write(os.urandom(1000))
p.stdin.close(); p.wait()
a = s.Popen(['dd', 'if=/dev/zero', 'bs=1k', 'count=9', 'status=none'], stdout=s.PIPE)
b = s.Popen(['tr', '0', '1'], stdin=a.stdout, stdout=s.PIPE)
a.stdout.close()
assert len(b.communicate()[0]) == 9216
";
    let Some(run) = traced(&[], &[PYTHON, "-c", script]) else {
        return;
    };
    let wires = ["seq > python3", "python3 > gzip", "dd > tr", "tr > python3"];
    assert_wires(&run.trace, &wires);
}

/// A process that goes on with the program that made a pipe, and closes neither end, may have used either
/// end, as far as it read and wrote.
#[test]
fn a_fork_with_both_ends_of_its_makers_pipe_may_have_used_them() {
    let up = "
if os.fork() == 0:
    os.write(out, b'x' * 100)
    os._exit(0)
assert len(os.read(into, 200)) == 100
";
    let down = "
os.write(out, b'x' * 100)
if os.fork() == 0:
    if os.fork() == 0:
        assert len(os.read(into, 200)) == 100
        os._exit(0)
    os.wait()
    os._exit(0)
";
    let both = "
back, answer = os.pipe()
if os.fork() == 0:
    os.write(answer, os.read(into, 200))
    os._exit(0)
os.write(out, b'x' * 100)
assert len(os.read(back, 200)) == 100
";
    // A pipe of another program, like a jobserver's, has no user here.
    let inherited = "
import subprocess
script = 'x() { echo $1; }; (x 1; x 2) > f'
subprocess.run(['sh', '-c', script], pass_fds=(into, out))
os.fork() or os._exit(0)
";
    // The output of the test itself has no reader in the trace.
    let used =
        "SELECT DISTINCT direction, at_most_bytes FROM channel_ends JOIN processes USING (upid)
        WHERE origin = 'fork' AND used IS NOT 0
          AND channel_id IN (SELECT channel_id FROM channel_ends WHERE direction = 'read')
        ORDER BY direction";
    let (there, back) = ("python3 > (python3)", "(python3) > python3");
    for (part, wires, ends) in [
        (up, &[back][..], &[["write", "100"]][..]),
        (down, &[there], &[["read", "100"]]),
        (both, &[there, back], &[["read", "100"], ["write", "100"]]),
        (inherited, &[], &[]),
    ] {
        let script = format!("import os\ninto, out = os.pipe()\n{part}\nos.wait()");
        let Some(run) = traced(&[], &[PYTHON, "-c", &script]) else {
            return;
        };
        assert_wires(&run.trace, wires);
        assert_eq!(run.trace.rows(used), ends);
    }
}

#[test]
fn the_pipe_of_a_jobserver_is_no_wire_between_jobs() {
    if !need_program("make") {
        return;
    }
    let makefile = "all: a b c\n%:\n\t@seq 20 | sort -r > $@.out\n";
    let script = format!(
        "printf '{}' > Makefile; make -s -j2",
        makefile.replace('\n', "\\n")
    );
    let script = script.replace("\\n%", "\\n%%").replace('\t', "\\t");
    let Some(run) = shell(&script) else { return };
    assert_wires(&run.trace, &["seq > sort"]);
}

#[test]
fn xargs_starts_several_writers_of_one_pipe() {
    let Some(run) = shell("seq 6 | xargs -P3 -n1 echo | sort > out") else {
        return;
    };
    assert_wires(&run.trace, &["seq > xargs", "echo > sort"]);
    let writers = "SELECT COUNT(*) FROM edges JOIN processes ON upid = src_id
        WHERE dst_kind = 'channel' AND command LIKE '%echo %' AND origin = 'exec'
          AND dst_id IN (SELECT src_id FROM edges JOIN processes ON upid = dst_id
                         WHERE src_kind = 'channel' AND command = 'sort')";
    assert_eq!(run.trace.one::<i64>(writers), 6);
}

/// The process made a pipe, so its descriptors are read before it ends. Its output is closed by then, as it
/// is by many programs.
#[test]
fn a_process_that_wrote_nothing_and_closed_its_output_is_no_writer() {
    let closes = "import os; os.pipe(); os.close(1); os._exit(0)";
    let Some(run) = shell(&format!("{PYTHON} -c '{closes}' | cat > out")) else {
        return;
    };
    assert_wires(&run.trace, &[]);
}

#[test]
fn gnu_parallel_and_mpi_where_they_are_installed() {
    let installed = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|d| d.join(program).is_file());
        if !found {
            skip(&format!("no program {program}"));
        }
        found
    };
    if installed("parallel")
        && let Some(run) = shell("parallel --will-cite -j2 seq ::: 3 4 5 < /dev/null | sort > out")
    {
        let found = super::wires(&run.trace);
        assert!(found.contains("perl > sort"), "{found:?}");
    }
    if installed("mpirun") {
        let options = "--oversubscribe --allow-run-as-root";
        let script = format!("mpirun {options} -n 2 seq 3 | sort > out");
        if let Some(run) = shell(&script) {
            let found = super::wires(&run.trace);
            assert!(
                found.iter().any(|wire| wire.ends_with("> sort")),
                "{found:?}"
            );
        }
    }
}
