//! Loading takes no longer than its rows: figures and more shapes are those of `cargo bench --bench growth`.

use std::time::Duration;

use flowtrace_profiler::load::load;
use flowtrace_schema::{FileKind, Op};
use nix::sys::resource::{UsageWho, getrusage};

#[path = "support/script.rs"]
mod script;

const MS: u64 = 1_000_000;

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    [usage.user_time(), usage.system_time()]
        .iter()
        .map(|time| Duration::from_micros(time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64))
        .sum()
}

/// A program that looks for names and then makes them itself, as `pip install` does, waits for nobody; the last name is made by
/// another one, for which it waited.
#[test]
fn names_looked_for_in_vain_cost_no_more_than_their_calls() {
    const FILES: u64 = 4000;
    let end = 2 * FILES + 200;
    let build = |s: &mut script::Script| {
        let root = s.root(("/usr/bin/python3", &["python3"]), 0);
        let other = s.program(root, "maker", (0, end - 1), 0);
        for number in 0..=FILES {
            let at = 2 * number;
            let is_last = number == FILES;
            // Found at the time of the next look.
            let made = if is_last { at + 25 } else { at + 1 };
            let path = format!("/w/f{number}");
            let absent = s.file(&path, FileKind::Absent, 0, at);
            s.name_end(absent, &path, made);
            let file = s.file(&path, FileKind::File, 10, made);
            for look in 0..4 {
                let at_ns = at * MS + look * if is_last { 7 * MS } else { 10_000 };
                s.bare_call(root, absent, Op::Lookup, at_ns, -2);
            }
            let maker = if is_last { other } else { root };
            for (number, op) in
                (0..).zip([Op::Create, Op::Write, Op::Write, Op::Flush, Op::Release])
            {
                s.bare_call(maker, file, op, made * MS + number * 5000, 0);
            }
            s.bare_call(root, file, Op::Open, (made + 3) * MS, 0);
        }
        s.end(root, end, Some(0), None, 1);
    };
    let (_directory, trace) = script::written("python3 setup.py", build, end);
    let before = cpu();
    let workflow = load(&trace).unwrap();
    let took = cpu() - before;
    let polls: Vec<_> = workflow
        .polls
        .iter()
        .map(|poll| (poll.poller.0, poll.by.0))
        .collect();
    assert_eq!(polls, [(0, 1)]);
    // A scan of a second of calls for each name takes a minute without optimisation.
    assert!(took < Duration::from_secs(10), "{took:?}");
}
