//! Workflows that may not use all of their machine.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Traced;
use crate::support::{PYTHON, need_fuse, need_program, prints, skip};

const BURN: &str = "
import time
end = time.process_time() + 0.5
while time.process_time() < end: pass";

/// Several processes that compute, started by a shell after `before`.
fn burning(before: &str) -> (Value, Value) {
    let burn = format!("{PYTHON} -c '{BURN}'");
    let run = Traced::shell(&format!("{before}\n{burn} & {burn} & {burn} & wait"));
    let path = run.scratch.join("trace.db");
    let explain = |command: &str| {
        let arguments = [command, "--format", "json", path.to_str().unwrap()];
        serde_json::from_str(&prints(&run.scratch, &arguments)).unwrap()
    };
    (explain("bottlenecks"), explain("summary"))
}

fn assert_limited((bottlenecks, summary): &(Value, Value), reason: &str) {
    assert_eq!(
        bottlenecks["causes"][0]["resource"], "CPU limit",
        "{bottlenecks:#}"
    );
    assert_eq!(summary["verdict"]["findings"][0]["kind"], "cpu limit");
    let why = summary["verdict"]["why"].as_str().unwrap();
    assert!(why.contains(reason), "{why}");
}

fn need_cpus() -> bool {
    let several = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if !several {
        skip("one CPU only");
    }
    several
}

#[test]
fn a_mask_is_named() {
    if !need_fuse() || !need_program("taskset") || !need_cpus() {
        return;
    }
    let run = burning("taskset -p -c 0 $$ > /dev/null");
    assert_limited(&run, "its affinity mask allows CPU 0 only");
}

/// A control group with a quota, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let (v1, v2) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let name = format!("flowtrace-test-{}", std::process::id());
        let (top, file, quota) = match v1.is_dir() {
            true => (v1, "cpu.cfs_quota_us", "30000"),
            false => (v2, "cpu.max", "30000 100000"),
        };
        let group = Group(top.join(name));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join(file), quota).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_quota_is_named() {
    if !need_fuse() || !need_cpus() {
        return;
    }
    let Some(group) = Group::new() else {
        return skip("no control group with a quota can be made");
    };
    let enter = format!("echo $$ > {}/cgroup.procs", group.0.display());
    let run = burning(&enter);
    assert_limited(&run, "a CPU quota (cpu.max) allows 0.3 cores");
}
