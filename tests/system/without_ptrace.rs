//! Processes that flowtrace does not stop: those of a mount session, and of a run without ptrace.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::mount::Mount;
use crate::support::process::{finish, start};
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{
    FLOWTRACE, Scratch, need_announcements, need_fuse, need_process_tracepoints, need_program,
    need_root, run_in,
};

/// Environment variable: flowtrace does without eBPF programs for processes.
const ANNOUNCED: &str = "--announced";

const PROCESSES: usize = 10_000;

/// Forks and execs a number of processes, one after the other, and prints that number; every fourth fails.
fn storm(processes: usize) -> String {
    format!(
        "i=0; while [ $i -lt {processes} ]; do /bin/true; /bin/true; /bin/true; /bin/false; \
         i=$((i+4)); done; echo $i"
    )
}

/// Checks the processes of [`storm`]: each appears once, with its parent, its exec and its exit code. If
/// announcements were dropped, that many may be missing.
fn check_storm(trace: &Trace, spawned: usize) {
    let dropped: i64 =
        trace.one("SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'events_dropped'");
    let images = trace.images();
    let by_id: BTreeMap<i64, _> = images.iter().map(|i| (i.upid, i)).collect();
    let shell = images
        .iter()
        .find(|i| {
            i.command.starts_with("sh -c") && i.command.contains("i=0;") && i.origin == "exec"
        })
        .expect("the shell");
    let of_storm: Vec<_> = images
        .iter()
        .filter(|i| i.parent == Some(shell.upid) && i.previous.is_none())
        .collect();
    let missing = spawned - of_storm.len();
    assert!(
        missing as i64 <= dropped,
        "{missing} missing, {dropped} dropped"
    );
    assert!(dropped > 0 || missing == 0);
    if dropped > 0 {
        return;
    }
    let next: BTreeMap<i64, _> = images
        .iter()
        .filter_map(|i| Some((i.previous?, i)))
        .collect();
    let mut codes = [0; 2];
    let mut named = 0;
    for process in of_storm {
        assert_eq!(process.origin, "fork", "{process:?}");
        let image = next.get(&process.upid).expect("an exec");
        assert_eq!(image.origin, "exec", "{image:?}");
        assert_eq!(image.parent, process.parent, "{image:?}");
        assert!(!next.contains_key(&image.upid), "a second exec: {image:?}");
        assert!(process.start_ns <= process.end_ns, "{process:?}");
        assert!(image.start_ns <= image.end_ns, "{image:?}");
        let code = image.exit_code.expect("a code") as usize;
        codes[code] += 1;
        // At least the program's name, which the kernel reports at its end.
        let name = ["true", "false"][code];
        assert!(image.command.ends_with(name), "{code}: {image:?}");
        named += usize::from(image.command == format!("/bin/{name}"));
    }
    assert_eq!(codes, [spawned * 3 / 4, spawned / 4], "exit codes");
    assert_eq!(by_id.len(), images.len());
    let layer: String = trace.one("SELECT process_layer FROM runs");
    eprintln!("{layer}: {named} of {spawned} with all arguments");
    assert!(named == spawned || layer == "connector");
}

#[test]
fn a_storm_is_recorded_without_ptrace() {
    if need_fuse() && need_process_tracepoints() {
        storm_without_ptrace(&["--no-ptrace"], "ebpf");
        storm_without_ptrace(&["--no-ptrace", "--no-topology"], "tracepoints");
    }
}

#[test]
fn a_storm_is_counted_without_ptrace() {
    if need_fuse() && need_announcements() {
        storm_without_ptrace(&[ANNOUNCED], "connector");
    }
}

fn storm_without_ptrace(options: &[&str], expected: &str) {
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let mut command = run_in(&scratch.dir("job"), &path);
    command.args(options);
    let running = start(command.args(["--", "sh", "-c", &storm(PROCESSES)]));
    let finished = running.wait(Duration::from_secs(300)).expect(0);
    let trace = Trace::open(&path);
    let layer: String = trace.one("SELECT process_layer FROM runs");
    assert_eq!(layer, expected);
    check_storm(&trace, finished.stdout_text().trim().parse().unwrap());
    let open: i64 = trace.one("SELECT COUNT(*) FROM processes WHERE end_ns IS NULL");
    assert_eq!(open, 0, "processes without an end");
}

#[test]
fn a_storm_is_recorded_in_a_mount() {
    if need_process_tracepoints() {
        storm_in_a_mount(&[], "tracepoints");
    }
}

#[test]
fn a_storm_is_counted_in_a_mount() {
    if need_announcements() {
        storm_in_a_mount(&[ANNOUNCED], "connector");
    }
}

fn storm_in_a_mount(options: &[&str], expected: &str) {
    let Some(mut mounted) = Mount::open_with(options) else {
        return;
    };
    let mut command = Command::new("sh");
    let running = start(
        command
            .args(["-c", &storm(PROCESSES)])
            .current_dir(&mounted.point),
    );
    // The shell itself uses no file of the mount, and neither does one of its ancestors.
    let finished = running.wait(Duration::from_secs(300)).expect(0);
    finish(&mut mounted.unmount()).expect(0);
    let trace = mounted.complete_trace();
    let layer: String = trace.one("SELECT process_layer FROM runs");
    assert_eq!(layer, expected);
    check_storm(&trace, finished.stdout_text().trim().parse().unwrap());
}

/// A daemon that was stopped gets all announcements later, but the processes have ended by then.
#[test]
fn a_stopped_daemon_catches_up() {
    if need_announcements() {
        let names = "command IN ('true', 'false')";
        catches_up(&[ANNOUNCED], names);
    }
}

/// All events that eBPF programs reported are in the trace.
#[test]
fn a_stopped_daemon_misses_no_reported_event() {
    if need_process_tracepoints() {
        catches_up(&[], "command IN ('/bin/true', '/bin/false')");
    }
}

fn catches_up(options: &[&str], are_of_storm: &str) {
    let Some(mut mounted) = Mount::open_with(options) else {
        return;
    };
    let go = mounted.scratch.join("go");
    let script = format!(
        "cat before; echo and closed; until [ -e {} ]; do sleep 0.02; done; {}",
        go.display(),
        storm(1000)
    );
    let mut command = Command::new("sh");
    let running = start(command.args(["-c", &script]).current_dir(&mounted.point));
    running.wait_for_output("and closed");
    mounted.signal_daemon(Signal::SIGSTOP);
    std::fs::write(&go, "").unwrap();
    running.wait_for_output("1000\n");
    running.wait(Duration::from_secs(180)).expect(0);
    mounted.signal_daemon(Signal::SIGCONT);
    finish(&mut mounted.unmount()).expect(0);
    let trace = mounted.complete_trace();
    let count = |more: &str| -> i64 {
        let sql = format!("SELECT COUNT(*) FROM processes WHERE {are_of_storm} AND {more}");
        trace.one(&sql)
    };
    let ended = count("exit_code IS NOT NULL");
    assert_eq!(ended, 1000, "known by the names that the kernel reported");
    assert_eq!(count("max_rss_bytes > 4096"), 1000);
}

/// Children of a process, its waits, its costs, and its ancestors.
#[test]
fn processes_of_a_mount_are_whole() {
    if !need_announcements() {
        return;
    }
    let Some(mut mounted) = Mount::open() else {
        return;
    };
    let script = "cat before > copy
        sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 7'
        sh -c 'kill -9 $$'; sleep 0.3; exit 3";
    let mut command = Command::new("sh");
    finish(command.args(["-c", script]).current_dir(&mounted.point)).expect(3);
    finish(&mut mounted.unmount()).expect(0);
    let trace = mounted.complete_trace();
    let row = |condition: &str, columns: &str| {
        let sql = format!("SELECT {columns} FROM processes WHERE {condition}");
        let mut rows = trace.rows(&sql);
        assert_eq!(rows.len(), 1, "{condition}: {rows:?}");
        rows.remove(0)
    };
    let shell = row(
        "command LIKE 'sh -c %cat before%' AND exit_code = 3",
        "upid, parent_upid",
    );
    let own = row(
        &format!("pid = {} AND origin = 'seen'", std::process::id()),
        "upid",
    );
    let parent_of_shell: String = trace.rows(&format!(
        "SELECT origin FROM processes WHERE upid = {}",
        shell[1]
    ))[0][0]
        .clone();
    assert!(!parent_of_shell.is_empty() && !own[0].is_empty());
    let busy = row(
        "command LIKE 'sh -c %i=0%' AND command NOT LIKE '%cat%' AND origin = 'exec'",
        "exit_code, user_ns + sys_ns > 20000000, on_cpu_ns > 20000000, \
         on_cpu_ns + run_queue_ns <= duration_ns + 5000000, max_rss_bytes > 4096",
    );
    assert_eq!(busy, ["7", "1", "1", "1", "1"]);
    let killed = row("exit_signal IS NOT NULL", "exit_signal, parent_upid");
    assert_eq!(killed, ["9", &shell[0]]);
    let sleep = row(
        "command = 'sleep 0.3'",
        "duration_ns BETWEEN 290000000 AND 900000000, parent_upid",
    );
    assert_eq!(sleep, ["1", &shell[0]]);
    let calls: String = trace.one(
        "SELECT p.command FROM file_access AS a JOIN processes AS p USING (upid)
           JOIN files AS f USING (file_id)
         WHERE f.path LIKE '%/before' AND a.relation = 'read'",
    );
    assert_eq!(calls, "cat before");
}

/// A process can have only one tracer; without flowtrace's it may have another one.
#[test]
fn a_command_may_trace_others() {
    if !(need_fuse() && need_announcements() && need_program("strace")) {
        return;
    }
    let scratch = Scratch::new();
    let mut command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    let script = "strace -f -o log sh -c '/bin/true; exit 4'; test $? = 4 && grep -q execve log";
    finish(command.args(["--no-ptrace", "--", "sh", "-c", script])).expect(0);
    Trace::open_complete(&scratch.join("trace.db"));
}

/// Under another tracer flowtrace does not fail but uses another layer.
#[test]
fn under_another_tracer_the_next_way_is_taken() {
    if !(need_fuse() && need_announcements() && need_program("strace")) {
        return;
    }
    let scratch = Scratch::new();
    let mut command = Command::new("strace");
    command
        .args([
            "-f",
            "-o",
            "/dev/null",
            FLOWTRACE,
            "run",
            "-o",
            "../trace.db",
        ])
        .args(["--", "sh", "-c", "/bin/true; exit 4"])
        .current_dir(scratch.dir("job"));
    let finished = finish(&mut command).expect(4);
    let trace = Trace::open_complete(&scratch.join("trace.db"));
    let layer: String = trace.one("SELECT process_layer FROM runs");
    if layer != "ebpf" {
        assert_eq!(layer, "connector");
        for needle in ["traces them already", "strace"] {
            assert!(finished.stderr.contains(needle), "{}", finished.stderr);
        }
    }
}

/// In a network namespace of its own the kernel announces nothing.
#[test]
fn without_announcements_proc_is_read() {
    if !(need_fuse() && need_root()) {
        return;
    }
    let scratch = Scratch::new();
    let mut command = Command::new("unshare");
    command
        .args(["-n", FLOWTRACE, "run", ANNOUNCED, "-o", "../trace.db", "--"])
        .args([
            "sh",
            "-c",
            // On a busy machine /proc is read less often.
            "sleep 1; (sleep 2; exit 6) & echo here > file; sleep 1.2; exit 3",
        ])
        .current_dir(scratch.dir("job"));
    let finished = finish(&mut command).expect(3);
    let notice = "records processes that live longer than some 50 ms";
    assert!(finished.stderr.contains(notice), "{}", finished.stderr);
    let trace = Trace::open_complete(&scratch.join("trace.db"));
    let layer: String = trace.one("SELECT process_layer FROM runs");
    assert_eq!(layer, "scan");
    let images = trace.images();
    let shell = &images[0];
    assert_eq!((shell.exit_code, shell.parent), (Some(3), None));
    let sleep = images
        .iter()
        .find(|i| i.command == "sleep 1")
        .expect("found");
    assert_eq!((sleep.exit_code, sleep.parent), (Some(0), Some(shell.upid)));
    let lived = sleep.end_ns.unwrap() - sleep.start_ns.unwrap();
    assert!((900_000_000..1_900_000_000).contains(&lived), "{lived} ns");
    let orphan = images
        .iter()
        .find(|i| i.exit_code == Some(6))
        .expect("found");
    assert_eq!(orphan.parent, Some(shell.upid));
    let writer: i64 = trace
        .one("SELECT p.upid FROM calls AS c JOIN processes AS p USING (upid) WHERE c.op = 'write'");
    assert_eq!(writer, shell.upid);
}

/// An ordinary user gets the facts that the kernel gives to all users, and a message that names them.
#[test]
fn a_message_names_what_a_user_sees() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let mut command = user.command(&user.flowtrace);
    command.args(["run", "--no-ptrace", "-o", "trace.db", "--", "sh", "-c"]);
    let busy = "i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done; sleep 0.2; exit 3";
    let finished = finish(command.arg(busy)).expect(3);
    let layers = ["kernel announces", "longer than some 50 ms"];
    assert!(
        layers.iter().any(|layer| finished.stderr.contains(layer)),
        "{}",
        finished.stderr
    );
    assert!(
        finished.stderr.contains("last reading"),
        "{}",
        finished.stderr
    );
    let trace = Trace::open_complete(&user.home.join("trace.db"));
    let layer: String = trace.one("SELECT process_layer FROM runs");
    assert!(["connector", "scan"].contains(&layer.as_str()), "{layer}");
    let sampled: i64 = trace.one("SELECT value FROM losses WHERE counter = 'costs_sampled'");
    assert!(sampled > 0);
    let used: i64 = trace.one("SELECT SUM(user_ns + sys_ns) FROM processes WHERE exit_code = 3");
    assert!(used > 0, "the costs of a process that we waited for");
}
