//! The memory of flowtrace itself, where the workflow has little.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::process::finish;
use crate::support::{
    FLOWTRACE, Scratch, missing, need_fuse, need_kernel_layer, need_process_tracepoints, need_root,
    run_in,
};

/// A memory cgroup with a limit, removed at the end of the test.
struct Group(PathBuf);

impl Group {
    /// `None`, with a message, if no cgroup can be made.
    fn new(bytes: u64) -> Option<Group> {
        for (top, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let path = Path::new(top).join(format!("flowtrace-test-{}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Group(path);
            if fs::write(group.0.join(file), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        missing("cannot make a memory cgroup");
        None
    }

    /// A `flowtrace run` in this cgroup.
    fn run(&self, directory: &Path, trace: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(self.0.join("cgroup.procs")).arg(FLOWTRACE);
        command.args(["run", "-q", "--no-summary", "-o"]).arg(trace);
        command.current_dir(directory);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process of the cgroup may still be ending.
        for _ in 0..500 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// More calls than can be processed in time, while the queue of waiting calls and the rings are smaller than
/// usual.
#[test]
fn a_storm_of_calls_in_a_small_cgroup_ends_nobody() {
    if !(need_root() && need_fuse() && need_kernel_layer()) {
        return;
    }
    let Some(group) = Group::new(96 << 20) else {
        return;
    };
    const STORM: &str = "dd if=/dev/zero of=out bs=1 count=150000 2> /dev/null; echo done $?";
    for options in [&["--no-mount"][..], &[]] {
        let scratch = Scratch::new();
        let mut run = group.run(&scratch.dir("job"), &scratch.join("trace.db"));
        run.args(options)
            .args(["--layer", "kernel", "--", "sh", "-c", STORM]);
        assert_eq!(
            finish(&mut run).expect(0).stdout_text(),
            "done 0\n",
            "{options:?}"
        );
    }
}

/// The kernel ends flowtrace first for lack of memory if the workflow goes on without it. A workflow that needs
/// its mounts would end with it, so there it spares flowtrace, and ends only the process that writes the trace.
#[test]
fn flowtrace_is_given_up_first_where_the_workflow_goes_on() {
    if !(need_fuse() && need_root() && need_process_tracepoints()) {
        return;
    }
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    // Not every root may be spared (`CAP_SYS_RESOURCE`).
    let mut allowed = Command::new("sh");
    allowed.args(["-c", "echo -500 2> /dev/null > /proc/self/oom_score_adj"]);
    let spared = match finish(&mut allowed).status.success() {
        true => "-500\n",
        false => &own,
    };
    let modes = [
        (&[][..], "1000\n"),
        (&["--layer", "fuse"], spared),
        (&["--ptrace"], spared),
    ];
    for (options, flowtrace) in modes {
        let scratch = Scratch::new();
        let mut run = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
        let script = "cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj
            for pid in $(cat /proc/$PPID/task/*/children); do
                [ \"$(cat /proc/$pid/comm)\" != flowtrace-rec ] || cat /proc/$pid/oom_score_adj
            done";
        run.args(options).args(["--", "sh", "-c", script]);
        let found = finish(&mut run).expect(0).stdout_text();
        assert_eq!(found, format!("{own}{flowtrace}1000\n"), "{options:?}");
    }
}
