//! Waits of processes and their use of time, by workloads whose times are known.

mod accounting;
mod blockers;
mod confined;
mod counterparts;
mod kinds;
mod pipeline;
mod released;
mod stopped;
mod threads;

use std::path::Path;
use std::process::Command;

use crate::support::process::{Finished, finish};
use crate::support::trace::Trace;
use crate::support::{PYTHON, Scratch, need_kernel_layer, prints, run_in};

/// A command under trace in a directory of its own.
struct Traced {
    scratch: Scratch,
    finished: Finished,
    trace: Trace,
}

/// The layers that report waits here, each in its own way.
fn layers() -> &'static [&'static str] {
    match need_kernel_layer() {
        true => &["fuse", "kernel"],
        false => &["fuse"],
    }
}

impl Traced {
    fn shell(script: &str) -> Traced {
        Traced::command("bash", &["-c", script])
    }

    fn python(script: &str) -> Traced {
        Traced::command(PYTHON, &["-c", script])
    }

    fn command(program: &str, arguments: &[&str]) -> Traced {
        Traced::by("auto", program, arguments)
    }

    fn by(layer: &str, program: &str, arguments: &[&str]) -> Traced {
        let run = || {
            let scratch = Scratch::new();
            let directory = scratch.dir("job");
            let path = scratch.join("trace.db");
            let mut command = run_in(&directory, &path);
            command.args(["--layer", layer, "--", program]);
            let finished = finish(command.args(arguments)).expect(0);
            let trace = Trace::open_complete(&path);
            Traced {
                scratch,
                finished,
                trace,
            }
        };
        Trace::without_gaps(run, |traced| &traced.trace)
    }
}

/// Runs a command under trace, with the words that `what` adds; it must succeed.
fn traced(
    directory: &Path,
    path: &Path,
    what: impl FnOnce(&mut Command) -> &mut Command,
) -> (Finished, Trace) {
    let mut command = run_in(directory, path);
    what(command.arg("--"));
    let finished = finish(&mut command).expect(0);
    (finished, Trace::open_complete(path))
}

impl Trace {
    /// Sampled time, in ms, of the processes whose command is like `command` in samples for which the
    /// condition on `samples` holds.
    #[track_caller]
    fn sampled_ms(&self, command: &str, condition: &str) -> i64 {
        self.one(&format!(
            "SELECT COALESCE(SUM(s.duration_ns), 0) / 1000000
             FROM samples AS s JOIN processes AS p USING (upid)
             WHERE p.command LIKE '{command}' AND {condition}"
        ))
    }

    /// All samples as text, for a message.
    fn all_samples(&self) -> String {
        let rows = self.rows(
            "SELECT p.command, s.state, s.reason, s.op, s.side, s.object, s.samples, s.t_ns, s.end_ns
             FROM samples AS s JOIN processes AS p USING (upid) ORDER BY s.upid, s.tid, s.t_ns",
        );
        let lines: Vec<String> = rows.iter().map(|row| row.join(" | ")).collect();
        lines.join("\n")
    }

    /// Checks that at least `ms` were sampled.
    #[track_caller]
    fn assert_sampled(&self, command: &str, condition: &str, ms: i64) {
        let found = self.sampled_ms(command, condition);
        let all = || self.all_samples();
        assert!(found >= ms, "{command}, {condition}: {found} ms\n{}", all());
    }

    /// Checks that all of the run's sleeps are on the critical path that `critical-path` finds. Their share
    /// of the run does not matter, because on a busy machine everything else takes an unknown time.
    #[track_caller]
    fn assert_sleeps_decide(&self, directory: &Path, path: &Path) {
        let path = path.to_str().unwrap();
        let printed = prints(directory, &["critical-path", "--format", "json", path]);
        let found: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let rules = found["rules"].as_array().unwrap();
        let sleep = rules.iter().find(|rule| rule["rule"] == "sleep");
        let decided = sleep.map_or(0, |sleep| sleep["ns"].as_i64().unwrap());
        let slept: i64 = self.one(
            "SELECT SUM(end_ns - start_ns) FROM processes WHERE rule = 'sleep' AND origin = 'exec'",
        );
        assert!(
            decided * 10 > slept * 9,
            "{decided} of {slept} ns\n{found:#}\n{}",
            self.all_samples()
        );
    }

    /// The text about `sleep`: that it slept. Some kernels now and then count a sleep as waiting for a CPU
    /// (docs/waiting.md), and where nothing else is known, the text says that.
    fn what_sleep_did(&self) -> &'static str {
        let is_queued: bool = self.one(
            "SELECT SUM(run_queue_ns) > SUM(wait_ns) FROM processes
             WHERE rule = 'sleep' AND origin = 'exec'",
        );
        match is_queued {
            true => "waited for a CPU",
            false => "slept",
        }
    }

    /// Returns true if the ends of channels were recorded, so that a wait can name the process at the other
    /// end.
    fn knows_channels(&self) -> bool {
        self.one::<i64>("SELECT COUNT(*) FROM channel_ends") > 0
    }
}

/// The inodes in the lines that `readlink` printed for pipes and sockets.
fn inodes(text: &str) -> Vec<String> {
    let inside = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    text.lines().filter_map(inside).collect()
}
