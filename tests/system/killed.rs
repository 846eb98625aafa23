//! `kill -9` at any instant leaves a trace that opens and contains all but the last quarter second.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::minor;

use crate::mount::{Mount, is_mounted};
use crate::support::process::{finish, start};
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{
    PATIENCE, Scratch, need_fuse, need_kernel_layer, need_process_tracepoints, need_root, run_in,
    wait_for,
};

const ROUNDS: u32 = 20;
/// Bound in s. Commits happen every 250 ms; the rest is for a busy machine and the clock's 10 ms.
const MARGIN: f64 = 0.6;

/// Creates files named after the time, as fast as a shell can without starting a process, until a creation
/// fails or there is a file `stop` beside the directory. Prints each name after the creation.
const MARKERS: &str = "n=0
    while [ ! -e ../stop ] && read -r up idle < /proc/uptime; do
        n=$((n+1)); { : > m.$up.$n; } 2> /dev/null || exit 0; echo m.$up.$n
    done";

/// Seconds since boot, on the clock of the marker files.
pub(crate) fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").expect("procfs");
    let first = text.split(' ').next().expect("two numbers");
    first.parse().expect("a number")
}

fn stamp(marker: &str) -> f64 {
    let mut parts = marker.strip_prefix("m.").expect("a marker").rsplitn(2, '.');
    let (_number, stamp) = (parts.next(), parts.next());
    stamp.expect("a stamp").parse().expect("a number")
}

/// Checks that a trace that was cut at `killed` contains all printed markers but those within the margin
/// before it; returns their number.
pub(crate) fn check_markers(trace: &Path, printed: &str, killed: f64) -> Result<usize, String> {
    let trace = Trace::open(trace);
    let ended: Option<i64> = trace.one("SELECT end_ns FROM runs");
    assert_eq!(ended, None, "a run cut short has no end");
    let stored: BTreeSet<String> = trace
        .rows("SELECT path FROM file_names WHERE path LIKE '%/m.%'")
        .into_iter()
        .filter_map(|row| Some(row[0].rsplit_once('/')?.1.to_owned()))
        .collect();
    // A last line without its end may have lost a part of its name.
    let whole = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let due: Vec<&str> = whole
        .lines()
        .filter(|marker| stamp(marker) < killed - MARGIN)
        .collect();
    let lost: Vec<&&str> = due.iter().filter(|m| !stored.contains(**m)).collect();
    if lost.is_empty() {
        return Ok(due.len());
    }
    let (count, ends) = (lost.len(), (lost.first(), lost.last()));
    Err(format!(
        "killed at {killed}: {count} markers are missing, from and to {ends:?}"
    ))
}

#[test]
fn everything_but_the_end_is_there() {
    if !need_fuse() {
        return;
    }
    let mut seed = std::process::id();
    let mut checked = 0;
    for round in 0..ROUNDS {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let life = Duration::from_millis(200 + u64::from(seed >> 16) % 1300);

        let scratch = Scratch::new();
        let (job, path) = (scratch.dir("job"), scratch.join("trace.db"));
        // Without options root has no mount.
        let layer = ["auto", "fuse"][round as usize % 2];
        let mut command = run_in(&job, &path);
        command.args(["--layer", layer]);
        let running = start(command.args(["--", "bash", "-c", MARKERS]));
        running.wait_for_output("m.");
        std::thread::sleep(life);
        running.signal(Signal::SIGKILL);
        let killed = uptime();
        // A mount ends with the tracer, so the workload ends, and its output with it. Without one it goes on.
        File::create(scratch.join("stop")).unwrap();
        let finished = running.wait(Duration::from_secs(180)).expect(128 + 9);

        checked += check_markers(&path, &finished.stdout_text(), killed)
            .unwrap_or_else(|lost| panic!("round {round}, killed after {life:?}: {lost}"));
    }
    assert!(
        checked > 1000,
        "only {checked} markers were old enough to be checked"
    );
}

/// The readers of a trace report that it was cut, instead of failing or hiding it.
#[test]
fn a_cut_trace_can_be_summarised() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let mut command = run_in(&scratch.dir("job"), &path);
    let running = start(command.args(["--", "bash", "-c", MARKERS]));
    running.wait_for_output("m.");
    wait_for("the first commit", PATIENCE, || {
        let trace = path.exists().then(|| Trace::open(&path))?;
        let calls: i64 = trace.one("SELECT COUNT(*) FROM calls");
        (calls > 0).then_some(())
    });
    running.signal(Signal::SIGKILL);
    File::create(scratch.join("stop")).unwrap();
    running.wait(Duration::from_secs(180)).expect(137);
    for command in ["summary", "tree", "dag"] {
        let mut reader = std::process::Command::new(crate::support::FLOWTRACE);
        let read = crate::support::process::finish(reader.arg(command).arg(&path)).expect(0);
        assert!(
            !read.stdout.is_empty(),
            "flowtrace {command} prints nothing"
        );
    }
}

#[test]
fn a_run_killed_at_once_is_known_by_its_command() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let mut command = run_in(&scratch.dir("job"), &path);
    let running = start(command.args(["--", "sh", "-c", "echo begun; exec sleep 9"]));
    running.wait_for_output("begun");
    let summary = || {
        let mut summary = std::process::Command::new(crate::support::FLOWTRACE);
        crate::support::process::finish(summary.arg("summary").arg(&path))
            .expect(0)
            .stdout_text()
    };
    let live = summary();
    assert!(
        live.contains("exec sleep 9") && live.contains("still being recorded"),
        "{live}"
    );
    running.signal(Signal::SIGKILL);
    running.wait(Duration::from_secs(180)).expect(137);
    // Its recorder process stores the rest first.
    let cut = wait_for("the end of the recording", PATIENCE, || {
        Some(summary()).filter(|text| text.contains("was cut short"))
    });
    assert!(cut.contains("exec sleep 9"), "{cut}");
    assert!(!cut.contains("complete: "), "{cut}");
}

#[test]
fn everything_but_the_end_is_there_of_a_mount() {
    let mut checked = 0;
    for round in 0..4 {
        let Some(mounted) = Mount::open() else { return };
        let running = start(
            Command::new("bash")
                .args(["-c", MARKERS])
                .current_dir(&mounted.point),
        );
        running.wait_for_output("m.");
        std::thread::sleep(Duration::from_millis(800 + 150 * round));
        let killed = uptime();
        mounted.kill_daemon();
        let finished = running.wait(Duration::from_secs(180)).expect(0);
        checked += check_markers(&mounted.trace, &finished.stdout_text(), killed).unwrap();
        finish(&mut mounted.unmount()).expect(0);
        assert!(!is_mounted(&mounted.point), "still mounted");
    }
    assert!(checked > 100, "only {checked} markers were old enough");
}

/// Uses an open file, an open directory and names until each of them fails, and prints that. An operation
/// that hangs keeps it from its end.
const HOLDER: &str = r#"
    echo content > file; mkdir directory; exec 8< file 9>> file; cd directory
    echo ready
    while printf x >&9; do :; done 2> /dev/null
    echo write failed
    read -r line <&8 || echo read failed
    { : > new; } 2> /dev/null || echo create failed
    { : < ../file; } 2> /dev/null || echo open failed
    ls . > /dev/null 2>&1 || echo list failed
    stat ../file > /dev/null 2>&1 || echo stat failed
    sync ../file 2> /dev/null || echo sync failed
    exec 8<&- 9>&-
    cd / && echo left"#;
const AFTER_KILL: &str = "ready\nwrite failed\nread failed\ncreate failed\nopen failed\nlist failed\n\
                    stat failed\nsync failed\nleft\n";

/// The processes of a run end with flowtrace, even those that wait for a file at that instant.
#[test]
fn nothing_of_a_killed_run_hangs() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    let mut command = run_in(&job, &scratch.join("trace.db"));
    command.args(["--layer", "fuse"]);
    let running = start(command.args(["--", "bash", "-c", HOLDER]));
    running.wait_for_output("ready");
    running.signal(Signal::SIGKILL);
    // Its output ends when all of its processes have ended.
    let finished = running.wait(Duration::from_secs(180)).expect(128 + 9);
    let printed = finished.stdout_text();
    assert!(AFTER_KILL.starts_with(&printed), "{printed}");
    // The mount belonged to the run alone; the directory is as it was.
    assert!(!is_mounted(&job));
    let written = fs::read_to_string(job.join("file")).unwrap();
    assert!(written.starts_with("content\n"), "{written}");
}

/// Begins, waits for a line, starts programs, opens and closes files, and ends.
const GOES_ON: &str = "echo begun; read -r line < $0; for n in 1 2 3; do sh -c 'echo x > made'; cat made; done; echo over";

/// Without mounts and without ptrace, the processes of a run do not depend on flowtrace.
#[test]
fn a_workflow_without_mounts_and_ptrace_goes_on() {
    if !(need_root() && need_process_tracepoints()) {
        return;
    }
    let kernel: &[&[&str]] = match need_kernel_layer() {
        true => &[&["--layer", "kernel"]],
        false => &[],
    };
    let modes: [&[&str]; 3] = [
        &[],
        &["--no-mount", "--no-ptrace"],
        &["--no-mount", "--no-ptrace", "--no-topology"],
    ];
    for options in modes.iter().chain(kernel) {
        let scratch = Scratch::new();
        let command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
        assert_eq!(
            outlives(command, options, &scratch),
            "begun\nx\nx\nx\nover\n",
            "{options:?}"
        );
    }
}

#[test]
fn a_workflow_of_a_user_without_mounts_and_ptrace_goes_on() {
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let mut command = user.command(&user.flowtrace);
    command.args(["run", "-q", "--no-summary", "-o", "trace.db"]);
    let options = ["--no-mount", "--no-ptrace"];
    assert_eq!(
        outlives(command, &options, &scratch),
        "begun\nx\nx\nx\nover\n"
    );
}

/// The workflow's open files are served by flowtrace, or its stopped processes wait for flowtrace.
#[test]
fn a_workflow_with_mounts_or_ptrace_ends() {
    if !need_fuse() {
        return;
    }
    let modes: [&[&str]; 3] = [
        &["--layer", "fuse"],
        &["--ptrace"],
        &["--no-mount", "--ptrace"],
    ];
    for options in modes {
        let scratch = Scratch::new();
        let command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
        assert_eq!(
            outlives(command, options, &scratch),
            "begun\n",
            "{options:?}"
        );
    }
}

/// Returns the output of a run with these options whose flowtrace is killed before the command gets its line.
/// The output ends with the last of its processes.
fn outlives(mut command: Command, options: &[&str], scratch: &Scratch) -> String {
    let go = scratch.join("go");
    finish(Command::new("mkfifo").arg(&go)).expect(0);
    let mut line = File::options()
        .read(true)
        .write(true)
        .open(&go)
        .expect("a FIFO");
    command.args(options).args(["--", "sh", "-c", GOES_ON]);
    let running = start(command.arg(&go));
    running.wait_for_output("begun");
    running.signal(Signal::SIGKILL);
    // Time to end for a workflow that ends with flowtrace.
    std::thread::sleep(Duration::from_millis(500));
    line.write_all(b"go\n").expect("space in a FIFO");
    running
        .wait(Duration::from_secs(60))
        .expect(128 + 9)
        .stdout_text()
}

/// The pid of a process of the run belongs to another process before flowtrace has noticed its end. That
/// process must not be killed.
#[test]
fn a_process_with_a_reused_pid_of_a_killed_run_lives_on() {
    if !need_root() {
        return;
    }
    if !need_fuse() {
        return;
    }
    // Outside of the mount, which does not answer while flowtrace is stopped.
    const SCRIPT: &str =
        "cd /; echo begun; read -r line < $0; sh -c 'echo child $$'; echo over; sleep 60; :";
    let scratch = Scratch::new();
    let go = scratch.join("go");
    finish(Command::new("mkfifo").arg(&go)).expect(0);
    let mut command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
    command.args(["--layer", "fuse"]);
    let running = start(command.args(["--", "sh", "-c", SCRIPT]).arg(&go));
    running.wait_for_output("begun");
    running.signal(Signal::SIGSTOP);
    fs::write(&go, "\n").expect("the shell reads it");
    running.wait_for_output("over");
    let output = running.stdout_so_far();
    let child = output.lines().find_map(|line| line.strip_prefix("child "));
    let mut other = start_as(child.and_then(|pid| pid.parse().ok()).expect("a pid"));
    running.signal(Signal::SIGKILL);
    // Its output ends when all of its processes have ended.
    running.wait(Duration::from_secs(30)).expect(128 + 9);
    std::thread::sleep(Duration::from_millis(200));
    let end = other.try_wait().expect("a child");
    other.kill().expect("a child");
    other.wait().expect("a child");
    assert_eq!(end, None, "it was killed");
}

/// Starts a process with this pid, which must be free.
fn start_as(pid: u32) -> std::process::Child {
    wait_for("a process with the id of another", PATIENCE, || {
        // Another process that starts at the same time may get the pid.
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("root may");
        let mut made = Command::new("sleep").arg("60").spawn().expect("sleep");
        if made.id() == pid {
            return Some(made);
        }
        made.kill().expect("a child");
        made.wait().expect("a child");
        None
    })
}

/// If flowtrace closed files of its own mount, it would wait for itself, and no signal ends such a wait.
#[test]
fn a_killed_run_with_its_output_in_the_mount_does_not_hang() {
    if !need_fuse() {
        return;
    }
    const WRITES: &str = "while sleep 0.01; do echo more; done";
    // Each program begins with files of the mount, which flowtrace reads.
    const BEGINS: &str = "while :; do cat << END; done < out
more
END";
    let cases = [(None, WRITES, 0), (Some("--ptrace"), WRITES, 0)];
    let lives = [0, 3, 20, 50, 101, 170, 230].map(|life| (None, BEGINS, life));
    for (following, script, life) in cases.into_iter().chain(lives) {
        let scratch = Scratch::new();
        let job = scratch.dir("job");
        let run = run_in(&job, &scratch.join("trace.db"));
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "exec \"$@\" > out", "sh"])
            .arg(run.get_program())
            .args(run.get_args())
            .args(["--layer", "fuse"])
            .args(following)
            .args(["--", "sh", "-c"])
            .arg(format!("stat -c %d .; {script}"));
        let mut running = start(shell.current_dir(&job));
        let device = wait_for("some output", PATIENCE, || {
            let output = fs::read_to_string(job.join("out")).ok()?;
            output.strip_suffix("more\n")?.lines().next()?.parse().ok()
        });
        std::thread::sleep(Duration::from_millis(life));
        running.signal(Signal::SIGKILL);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !running.has_ended() {
            if Instant::now() > deadline {
                abort(&scratch, device);
                panic!("{following:?}, {life} ms: flowtrace waits for itself");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // Other processes with the same standard error have ended, too.
        running.wait(Duration::from_secs(180)).expect(128 + 9);
        assert!(!is_mounted(&job));
    }
}

/// Ends the mount with this device by force, so that no process is left hanging.
fn abort(scratch: &Scratch, device: u64) {
    let control = scratch.dir("control");
    let mut mount = Command::new("mount");
    finish(mount.args(["-t", "fusectl", "none"]).arg(&control)).expect(0);
    let connection = control.join(minor(device).to_string());
    let aborted = fs::write(connection.join("abort"), "1");
    finish(Command::new("umount").arg(&control)).expect(0);
    aborted.expect("its connection is there");
}

#[test]
fn open_files_of_a_killed_mount_fail_and_do_not_hang() {
    let Some(mounted) = Mount::open() else { return };
    let running = start(
        Command::new("bash")
            .args(["-c", HOLDER])
            .current_dir(&mounted.point),
    );
    running.wait_for_output("ready");
    mounted.kill_daemon();
    let finished = running.wait(Duration::from_secs(180)).expect(0);
    assert_eq!(finished.stdout_text(), AFTER_KILL);
    let unmounted = finish(&mut mounted.unmount()).expect(0);
    assert!(
        unmounted.stderr.contains("had died"),
        "{}",
        unmounted.stderr
    );
    assert!(!is_mounted(&mounted.point), "still mounted");
}
