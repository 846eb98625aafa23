//! Ten thousand processes that live a millisecond each, none of them missed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::process::start;
use crate::support::trace::Trace;
use crate::support::{Scratch, need_fuse, run_in};

const PROCESSES: usize = 10_000;

#[test]
fn ten_thousand_short_processes() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let script =
        format!("i=0; while [ $i -lt {PROCESSES} ]; do /bin/true; i=$((i+1)); done; exit 3");
    let mut command = run_in(&scratch.dir("job"), &path);
    let running = start(command.args(["--", "sh", "-c", &script]));
    running.wait(Duration::from_secs(300)).expect(3);

    let trace = Trace::open_complete(&path);
    let images = trace.images();
    let shell = images
        .iter()
        .find(|i| i.origin == "exec" && i.parent.is_none())
        .expect("the shell");
    let by_id: BTreeMap<i64, _> = images.iter().map(|i| (i.upid, i)).collect();
    let storm: Vec<_> = images
        .iter()
        .filter(|i| i.origin == "exec" && i.command == "/bin/true")
        .collect();
    assert_eq!(storm.len(), PROCESSES, "execs of true");
    for image in storm {
        assert_eq!(image.exit_code, Some(0), "{image:?}");
        assert_eq!(image.parent, Some(shell.upid), "{image:?}");
        let fork = by_id[&image.previous.expect("a fork before the exec")];
        assert_eq!(fork.origin, "fork", "{fork:?}");
        assert_eq!(fork.parent, Some(shell.upid), "{fork:?}");
    }
    let heads = images.iter().filter(|i| i.previous.is_none()).count();
    assert_eq!(heads, PROCESSES + 1, "processes");
}
