//! Loading takes time in proportion to the rows: figures and more shapes are those of
//! `cargo bench --bench growth`.

use std::time::Duration;

use flowtrace_profiler::export::wfformat;
use flowtrace_profiler::graph;
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

/// A program that looks up names and then makes them itself, as `pip install` does, waits for no process; the
/// last name is made by another one, for which it waited.
#[test]
fn failed_lookups_cost_no_more_than_their_calls() {
    const FILES: u64 = 4000;
    let end = 2 * FILES + 200;
    let build = |s: &mut script::Script| {
        let root = s.root(("/usr/bin/python3", &["python3"]), 0);
        let other = s.program(root, "maker", (0, end - 1), 0);
        for number in 0..=FILES {
            let at = 2 * number;
            let is_last = number == FILES;
            // The file is found at the time of the next lookup.
            let made = if is_last { at + 25 } else { at + 1 };
            let path = format!("/w/f{number}");
            let absent = s.file(&path, FileKind::Absent, 0, at);
            s.name_end(absent, &path, made);
            let file = s.file(&path, FileKind::File, 10, made);
            for lookup in 0..4 {
                let at_ns = at * MS + lookup * if is_last { 7 * MS } else { 10_000 };
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

/// Steps that read and write one file in turn depend on each other in a chain, and not each on all before it:
/// 400 have 399 dependencies. A step that appends without reading is a dependency of its own.
#[test]
fn a_file_that_all_read_and_write_makes_a_chain_in_wfformat() {
    const STEPS: u64 = 400;
    let end = STEPS * 4 + 20;
    let build = |s: &mut script::Script| {
        let root = s.root(("/usr/bin/make", &["make"]), 0);
        let file = s.file("/w/state", FileKind::File, 100, 0);
        let step = |s: &mut script::Script, name, at, reads, writes| {
            let image = s.program(root, name, (at, at + 4), 1);
            if reads {
                s.read(image, file, 2, 100, at);
            }
            if writes {
                let flags = Some(script::O_WRONLY);
                s.call(image, file, Op::Open, flags, None, at + 3);
                s.call(image, file, Op::Write, None, Some(100), at + 3);
            }
        };
        for number in 0..STEPS {
            step(s, "step", number * 4, true, true);
        }
        step(s, "append", STEPS * 4, false, true);
        step(s, "last", STEPS * 4 + 8, true, false);
        s.end(root, end, Some(0), None, 1);
    };
    let (_directory, trace) = script::written("make", build, end);
    let workflow = load(&trace).unwrap();
    let mut bytes = Vec::new();
    let dag = graph::build(&workflow);
    wfformat::write(&workflow, &dag, &Default::default(), &mut bytes).unwrap();
    let instance: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let specification = &instance["workflow"]["specification"];
    let tasks = specification["tasks"].as_array().unwrap();
    let parents = |name: &str| -> Vec<usize> {
        let tasks = tasks.iter().filter(|task| task["name"] == name);
        tasks
            .map(|task| task["parents"].as_array().unwrap().len())
            .collect()
    };
    let steps = parents("step");
    assert_eq!(steps.len() as u64, STEPS);
    assert_eq!(steps.iter().sum::<usize>() as u64, STEPS - 1, "{steps:?}");
    assert_eq!((parents("append"), parents("last")), (vec![0], vec![2]));
    assert_eq!(specification["metrics"]["numberOfLevels"], STEPS + 1);
}
