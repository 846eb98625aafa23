//! `flowtrace mount` and `unmount`: a traced mount for work that flowtrace did not start.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::process::{Running, finish, start};
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, PATIENCE, Scratch, need_fuse, run_in, wait_for};

pub(crate) fn is_mounted(point: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("procfs");
    let point = point.as_os_str();
    table
        .lines()
        .any(|line| line.split(' ').nth(4).map(OsStr::new) == Some(point))
}

/// A traced mount, which is unmounted when the value is dropped.
pub(crate) struct Mount {
    pub(crate) scratch: Scratch,
    pub(crate) source: PathBuf,
    pub(crate) point: PathBuf,
    pub(crate) trace: PathBuf,
    server: Running,
}

impl Mount {
    /// Mounts; `None`, with a message, if mounting in the namespace of all users is not possible.
    pub(crate) fn open() -> Option<Self> {
        Self::open_with(&[])
    }

    /// The same with these options and environment variables.
    pub(crate) fn open_with(options: &[&str]) -> Option<Self> {
        if !(need_fuse()
            && (nix::unistd::geteuid().is_root() || crate::support::need_program("fusermount3")))
        {
            return None;
        }
        let scratch = Scratch::new();
        let (source, point) = (scratch.dir("source"), scratch.dir("point"));
        let trace = scratch.join("trace.db");
        std::fs::write(source.join("before"), "here before\n").unwrap();
        let mut mount = Command::new(FLOWTRACE);
        // The daemon leaves the directory to which relative paths refer.
        mount
            .args(["mount", "source", "point", "-o", "trace.db"])
            .args(options)
            .current_dir(scratch.join(""));
        let server = start(&mut mount);
        wait_for("the mount", PATIENCE, || is_mounted(&point).then_some(()));
        Some(Mount {
            scratch,
            source,
            point,
            trace,
            server,
        })
    }

    pub(crate) fn unmount(&self) -> Command {
        let mut command = Command::new(FLOWTRACE);
        command.arg("unmount").arg(&self.point);
        command
    }

    /// The process that serves the mount.
    pub(crate) fn daemon(&self) -> i32 {
        daemon_of(&self.point).expect("a daemon")
    }

    /// Sends a signal to the process that serves the mount.
    pub(crate) fn signal_daemon(&self, signal: Signal) {
        kill(Pid::from_raw(self.daemon()), signal).unwrap();
    }

    /// Kills the process that serves the mount, and waits for its end.
    pub(crate) fn kill_daemon(&self) {
        let daemon = self.daemon();
        self.signal_daemon(Signal::SIGKILL);
        wait_for("the end of the daemon", PATIENCE, || {
            (!Path::new(&format!("/proc/{daemon}")).exists()).then_some(())
        });
    }

    /// Waits until the trace is complete, which may be shortly after the mount has gone.
    pub(super) fn complete_trace(&mut self) -> Trace {
        wait_for("the end of the server", PATIENCE, || {
            self.server.has_ended().then_some(())
        });
        // Another connection, even an idle one, would keep the writer from folding the log in.
        let log = self.scratch.join("trace.db-wal");
        wait_for("the end of the trace", PATIENCE, || {
            (!log.exists()).then_some(())
        });
        let trace = Trace::open(&self.trace);
        trace.assert_no_loss();
        let ended: Option<i64> = trace.one("SELECT end_ns FROM runs");
        assert!(ended.is_some(), "the trace has no end");
        trace
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if is_mounted(&self.point) {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(&self.point)
                .stderr(Stdio::null())
                .status();
        }
    }
}

#[test]
fn work_in_a_mount_is_traced() {
    let Some(mut mounted) = Mount::open() else {
        return;
    };
    let script = "cat before > copy; mv copy renamed; wc -c renamed > count; rm renamed; mkdir d";
    finish(
        Command::new("sh")
            .args(["-c", script])
            .current_dir(&mounted.point),
    )
    .expect(0);
    finish(&mut mounted.unmount()).expect(0);
    assert!(!is_mounted(&mounted.point), "still mounted");
    let count = std::fs::read_to_string(mounted.source.join("count")).unwrap();
    assert_eq!(count, "12 renamed\n", "what was written is in the source");

    let trace = mounted.complete_trace();
    let point = mounted.point.display();
    let relation = |file: &str, program: &str| -> Vec<String> {
        let rows = trace.rows(&format!(
            "SELECT a.relation FROM file_access AS a JOIN processes AS p USING (upid)
               JOIN file_names AS n USING (file_id)
             WHERE n.path = '{point}/{file}' AND p.command LIKE '{program}%'"
        ));
        rows.into_iter().map(|mut row| row.swap_remove(0)).collect()
    };
    assert_eq!(relation("before", "cat"), ["read"]);
    assert_eq!(relation("renamed", "wc"), ["read"]);
    assert_eq!(relation("renamed", "mv").len(), 1, "the file's new name");
    let bytes: i64 = trace.one(&format!(
        "SELECT SUM(a.write_bytes) FROM file_access AS a JOIN file_names AS n USING (file_id)
         WHERE n.path = '{point}/copy'"
    ));
    assert_eq!(bytes, 12, "bytes written to copy");
    let removed: i64 = trace.one("SELECT COUNT(*) FROM calls WHERE op = 'unlink' AND result = 0");
    assert_eq!(removed, 1);
    let source: String = trace.one("SELECT source FROM traced_directories");
    assert_eq!(
        Path::new(&source),
        mounted.source,
        "the real directory is named"
    );
    let running = "SELECT COALESCE(SUM(value), 0) FROM losses WHERE counter = 'still_running'";
    assert!(
        trace.one::<i64>(running) > 0,
        "this test outlives the recording"
    );
    let lost = "SELECT GROUP_CONCAT(counter) FROM losses WHERE severity <> 'info'";
    assert_eq!(trace.one::<Option<String>>(lost), None);
}

#[test]
fn a_busy_mount_names_its_users() {
    let Some(mut mounted) = Mount::open() else {
        return;
    };
    let holder = start(Command::new("sleep").arg("60").current_dir(&mounted.point));
    let refused = finish(&mut mounted.unmount());
    assert_ne!(refused.code(), 0, "a busy mount was unmounted");
    assert!(is_mounted(&mounted.point), "the mount is gone");
    for needle in ["sleep", &holder.pid().to_string()] {
        assert!(
            refused.stderr.contains(needle),
            "no {needle:?} in: {}",
            refused.stderr
        );
    }
    drop(holder);
    finish(&mut mounted.unmount()).expect(0);
    mounted.complete_trace();
}

/// A lazy unmount does not wait for the end of the mount's users, but names them.
#[test]
fn a_lazy_unmount_returns_at_once() {
    let Some(mut mounted) = Mount::open() else {
        return;
    };
    let holder = start(Command::new("sleep").arg("300").current_dir(&mounted.point));
    let unmounted = finish(mounted.unmount().arg("--lazy")).expect(0);
    assert!(!is_mounted(&mounted.point), "still mounted");
    for needle in ["is gone", "trace.db", "sleep", &holder.pid().to_string()] {
        assert!(
            unmounted.stderr.contains(needle),
            "no {needle:?} in: {}",
            unmounted.stderr
        );
    }
    drop(holder);
    mounted.complete_trace();
}

#[test]
fn a_mount_is_not_traced_again() {
    let Some(mut mounted) = Mount::open() else {
        return;
    };
    let mut again = Command::new(FLOWTRACE);
    again.args(["mount", "source", "point", "-o", "other.db"]);
    let refused = finish(again.current_dir(mounted.scratch.join(""))).expect(125);
    let remedy = format!("hint: flowtrace unmount {}", mounted.point.display());
    assert!(refused.stderr.contains(&remedy), "{}", refused.stderr);
    finish(&mut mounted.unmount()).expect(0);
    mounted.complete_trace();
}

/// A process inside a run cannot end the run's mount: it gets a message, however processes are followed, and
/// the recording goes on.
#[test]
fn the_mount_of_a_run_is_not_unmounted_from_inside() {
    if !need_fuse() {
        return;
    }
    for options in [&["--layer", "fuse"][..], &["--no-ptrace"]] {
        let scratch = Scratch::new();
        let work = scratch.dir("work");
        scratch.dir("point");
        let script = format!(
            "d=$PWD; {FLOWTRACE} mount . ../point -o ../x.db; cd /; {FLOWTRACE} unmount $d && exit 3\n\
             {FLOWTRACE} unmount --lazy $d && exit 4; echo x > $d/after"
        );
        let trace = scratch.join("trace.db");
        let mut run = run_in(&work, &trace);
        run.args(options).args(["--", "sh", "-c", &script]);
        let said = finish(&mut run).expect(0).stderr;
        assert!(said.contains("trace the outer command alone"), "{said}");
        assert!(!said.contains("hint: flowtrace unmount"), "{said}");
        let refused = "is a mount of the flowtrace run that this command is part of";
        assert_eq!(said.matches(refused).count(), 2, "{said}");
        let trace = flowtrace_schema::Trace::open(&trace).unwrap();
        let names = trace.file_names().unwrap();
        assert!(
            names.iter().any(|name| name.path.ends_with("/work/after")),
            "{said}"
        );
    }
}

#[test]
fn a_trace_that_the_mount_would_hide_is_refused() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    scratch.dir("source");
    let point = scratch.dir("point");
    let mut mount = Command::new(FLOWTRACE);
    mount.args(["mount", "source", "point", "-o", "point/trace.db"]);
    let refused = finish(mount.current_dir(scratch.join(""))).expect(125);
    assert!(
        refused.stderr.contains("would hide it"),
        "{}",
        refused.stderr
    );
    assert!(!is_mounted(&point));
    assert_eq!(std::fs::read_dir(&point).unwrap().count(), 0);
}

#[test]
fn a_trace_deleted_under_a_mount_is_reported() {
    let Some(mounted) = Mount::open() else { return };
    let log = mounted.trace.with_file_name("trace.db-wal");
    wait_for("the first rows", PATIENCE, || log.exists().then_some(()));
    std::fs::remove_file(&mounted.trace).unwrap();
    let unmounted = finish(&mut mounted.unmount()).expect(1).stderr;
    assert!(unmounted.contains("was deleted"), "{unmounted}");
    assert!(!is_mounted(&mounted.point), "still mounted");
}

#[test]
fn unmounting_what_is_not_mounted_is_an_error() {
    let scratch = Scratch::new();
    let mut unmount = Command::new(FLOWTRACE);
    let refused = finish(unmount.arg("unmount").arg(scratch.dir("plain")));
    assert_ne!(refused.code(), 0);
    assert!(refused.stderr.contains("plain"), "{}", refused.stderr);
}

#[test]
fn unmounting_after_the_daemon_was_killed_says_so() {
    let Some(mounted) = Mount::open() else { return };
    mounted.kill_daemon();
    let unmounted = finish(&mut mounted.unmount()).expect(0);
    assert!(
        unmounted.stderr.contains("had died"),
        "{}",
        unmounted.stderr
    );
    assert!(!is_mounted(&mounted.point));
}

/// Pid of the process that serves a mount, from the name of the mount.
fn daemon_of(point: &Path) -> Option<i32> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table
        .lines()
        .find(|line| line.split(' ').nth(4).map(Path::new) == Some(point))?;
    // The mount table has the number sign as an octal escape.
    line.split(r"flowtrace\043")
        .nth(1)?
        .split(' ')
        .next()?
        .parse()
        .ok()
}
