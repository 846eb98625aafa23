//! A step serves files (FUSE) to the next ones. The tracer of both must not wait for the server, because the
//! server may wait for the tracer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::process::{Finished, Running, finish, start};
use crate::support::programs::program;
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, Scratch, need_fuse, need_root};

/// Many times the normal duration. A deadlock lasts for ever, even for a killed process.
const LIMIT: Duration = Duration::from_secs(60);

/// Options for runs that are followed by ptrace, or by the kernel.
const WAYS: [&[&str]; 4] = [
    &["--ptrace", "--no-mount"],
    &["--ptrace"],
    &["--no-mount"],
    &[],
];

/// A run of a script with a server of files in `p`, in a mount namespace of its own so that nothing stays
/// mounted.
struct Serving {
    scratch: Scratch,
    server: PathBuf,
}

impl Serving {
    fn new() -> Option<Serving> {
        if !(need_root() && need_fuse()) {
            return None;
        }
        Some(Serving {
            scratch: Scratch::new(),
            server: program("fuse_server", &[])?,
        })
    }

    fn trace(&self) -> PathBuf {
        self.scratch.join("t.db")
    }

    /// The command of a run; `before` is put before the shell.
    fn command(&self, before: &[&str], delay_ms: u32, script: &str) -> Command {
        let server = self.server.display();
        let served = format!(
            "mkdir -p p; {server} p {delay_ms} & server=$!
             until grep -q ' fuse.server ' /proc/self/mounts; do sleep 0.02; done
             {script}"
        );
        let mut command = Command::new("unshare");
        command.current_dir(self.scratch.dir("job"));
        command
            .args(["-m", "--"])
            .args(before)
            .args(["sh", "-c", &served]);
        command
    }

    fn run(&self, way: &[&str], delay_ms: u32, script: &str) -> Running {
        let trace = self.trace();
        let flowtrace = [FLOWTRACE, "run", "-q", "--force", "-o"];
        let before = [&flowtrace[..], &[path(&trace)], way, &["--"]].concat();
        start(&mut self.command(&before, delay_ms, script))
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

const USE: &str =
    "echo more >> p/f && cat p/f && mv p/f p/g && cp p/g out && echo x > p/h && rm p/h
    umount p; wait";

fn assert_used(finished: &Finished, way: &[&str]) {
    assert_eq!(finished.stdout_text(), "more\n", "{way:?}");
}

#[test]
fn a_step_uses_what_another_serves() {
    for way in WAYS {
        let Some(serving) = Serving::new() else {
            return;
        };
        let finished = serving.run(way, 0, USE).wait(LIMIT).expect(0);
        assert_used(&finished, way);
        if !way.contains(&"--no-mount") {
            continue;
        }
        let trace = Trace::open(&serving.trace());
        let names = "SELECT replace(path, rtrim(path, replace(path, '/', '')), ''), to_ns IS NULL
             FROM file_names WHERE path LIKE '%/p/%' ORDER BY from_ns";
        let expected = [["f", "0"], ["g", "1"], ["h", "0"]];
        assert_eq!(trace.rows(names), expected, "{way:?}");
        let made = "SELECT DISTINCT replace(f.path, rtrim(f.path, replace(f.path, '/', '')), '')
             FROM calls JOIN files AS f USING (file_id)
             WHERE op = 'create' AND f.path LIKE '%/job/%' ORDER BY 1";
        assert_eq!(trace.rows(made), [["g"], ["h"], ["out"]], "{way:?}");
    }
}

/// A program that is itself in such a file has the names of its opens there, too: in pages that only its
/// server can provide.
#[test]
fn a_step_runs_what_another_serves() {
    let Some(serving) = Serving::new() else {
        return;
    };
    let server = serving.server.display();
    let script = format!("cp {server} p/run && p/run && rm made-by-constant; umount p; wait");
    for way in WAYS {
        serving.run(way, 0, &script).wait(LIMIT).expect(0);
        let trace = Trace::open(&serving.trace());
        let made = "SELECT COUNT(*) FROM calls JOIN files AS f USING (file_id)
             WHERE op = 'create' AND f.path LIKE '%/made-by-constant'";
        assert_eq!(trace.one::<i64>(made), 1, "{way:?}");
    }
}

/// flowtrace sends the server no requests of its own, so the run takes the same time.
#[test]
fn a_server_that_takes_two_seconds_is_not_asked_more() {
    let Some(serving) = Serving::new() else {
        return;
    };
    let script = ": > p/f; rm p/f; umount p; wait";
    let alone = finish(&mut serving.command(&[], 2000, script)).expect(0);
    for way in &WAYS[..2] {
        let followed = serving.run(way, 2000, script).wait(LIMIT).expect(0);
        let limit = alone.duration + Duration::from_millis(1900);
        assert!(
            followed.duration < limit,
            "{way:?}: {:?} for {:?}",
            followed.duration,
            alone.duration
        );
    }
}

#[test]
fn a_server_may_be_killed_while_it_is_waited_for() {
    let Some(serving) = Serving::new() else {
        return;
    };
    let script = "cat p/stuck & sleep 0.3; kill -9 $server; wait; cat p/f; echo over > made; cat made; umount p";
    for way in WAYS {
        let finished = serving.run(way, 0, script).wait(LIMIT).expect(0);
        assert_eq!(finished.stdout_text(), "over\n", "{way:?}");
    }
}

#[test]
fn a_run_whose_server_never_answers_ends_by_a_signal() {
    let Some(serving) = Serving::new() else {
        return;
    };
    let script = "cat p/stuck & echo waits; echo > p/stuck-too; echo never";
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for way in &WAYS[..2] {
            let running = serving.run(way, 0, script);
            running.wait_for_output("waits");
            std::thread::sleep(Duration::from_millis(300));
            match signal {
                // As `timeout` sends it, to all processes of the job.
                Signal::SIGTERM => running.signal_group(signal),
                _ => running.signal(signal),
            }
            let finished = running.wait(LIMIT);
            assert_eq!(finished.code(), 128 + signal as i32, "{way:?}");
        }
    }
}
