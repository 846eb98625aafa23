use super::*;
use crate::proc::observer::NoChannels;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

const PERIOD: u64 = 20_000_000;
const ROUND: Round = Round {
    period_ns: PERIOD,
    left_alone: LEFT_ALONE,
};

fn child(program: &str, arguments: &[&str]) -> (Child, Thread) {
    let mut command = Command::new(program);
    let child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut thread = Thread::new(Holder { pid, tid: pid }, Upid(7), 0);
    thread.open().unwrap();
    (child, thread)
}

/// Takes samples until the thread's state is stable.
fn settle(thread: &mut Thread, ids: &mut u64, now: &mut u64, expected: Activity) {
    for _ in 0..2000 {
        *now += PERIOD;
        thread.sample(*now, ROUND, ids, &NoChannels);
        let doing = thread.interval.as_ref().map(|i| i.doing.activity);
        if doing == Some(expected) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("it never came to {expected:?}");
}

#[test]
fn a_thread_that_does_not_move_is_left_alone_and_counted() {
    let (mut child, mut thread) = child("sleep", &["1000"]);
    let (mut ids, mut now) = (0, 0);
    settle(&mut thread, &mut ids, &mut now, Activity::Sleep);
    let before = ids;
    let (mut reads, mut rounds) = (0, 0);
    while rounds < 400 {
        rounds += 1;
        now += PERIOD;
        if !thread.rests() {
            reads += 1;
            let sampled = thread.sample(now, ROUND, &mut ids, &NoChannels);
            assert!(matches!(sampled, Sampled::Same));
        }
    }
    assert_eq!(ids, before, "one interval");
    assert!(
        (50..200).contains(&reads),
        "{reads} reads in {rounds} rounds"
    );
    let samples = thread.interval.as_ref().unwrap().samples;
    assert!(
        (rounds - 8..=rounds + 1).contains(&samples),
        "{samples} samples"
    );
    assert!(thread.overdue().is_some());
    assert!(thread.overdue().is_none(), "recorded just now");

    child.kill().unwrap();
    child.wait().unwrap();
    let gone = thread.sample(now + PERIOD, ROUND, &mut ids, &NoChannels);
    assert!(matches!(gone, Sampled::Gone));
    let record = thread.end(now + PERIOD, PERIOD).unwrap();
    assert_eq!(
        (record.activity, record.op),
        (Activity::Sleep, Some("clock_nanosleep"))
    );
    assert!(record.end_ns <= now + PERIOD && record.end_ns > record.start_ns);
    assert!(thread.end(now + 2 * PERIOD, PERIOD).is_none());
}

#[test]
fn who_ran_in_between_waits_anew() {
    let (mut child, mut thread) = child("cat", &[]);
    let (mut ids, mut now) = (0, 0);
    settle(&mut thread, &mut ids, &mut now, Activity::Channel);
    for _ in 0..SETTLED {
        now += PERIOD;
        thread.sample(now, ROUND, &mut ids, &NoChannels);
    }
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    let first = (0..2000).find_map(|_| {
        now += PERIOD;
        std::thread::sleep(std::time::Duration::from_millis(5));
        match thread.sample(now, ROUND, &mut ids, &NoChannels) {
            Sampled::Changed(before) => before,
            _ => None,
        }
    });
    let first = first.expect("a new interval");
    assert_eq!(
        (first.activity, first.op),
        (Activity::Channel, Some("read"))
    );
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_stop_begins_when_it_was_reported_and_ends_halfway_between_two_samples() {
    let (mut child, mut thread) = child("cat", &[]);
    let (mut ids, mut now) = (0, 0);
    settle(&mut thread, &mut ids, &mut now, Activity::Channel);
    let pid = Pid::from_raw(child.id().cast_signed());
    let stop = || {
        kill(pid, Signal::SIGSTOP).unwrap();
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    };
    let go_on = || {
        kill(pid, Signal::SIGCONT).unwrap();
        let stat = format!("/proc/{pid}/stat");
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    stop();
    let read = thread.stops(now + 3, &mut ids).expect("it read before");
    assert_eq!(read.op, Some("read"));
    assert_eq!(read.objects.len(), 1);
    assert_eq!(read.end_ns, now + 3);
    assert!(thread.stops(now + 4, &mut ids).is_none(), "reported twice");
    now += PERIOD;
    let halted = thread.sample(now, ROUND, &mut ids, &NoChannels);
    assert!(matches!(halted, Sampled::Same));
    go_on();
    thread.goes_on();
    let Sampled::Changed(Some(halted)) =
        thread.sample(now + 2 * PERIOD, ROUND, &mut ids, &NoChannels)
    else {
        panic!("nothing changed");
    };
    assert_eq!(halted.activity, Activity::Stopped);
    assert_eq!(
        (halted.start_ns, halted.end_ns),
        (read.end_ns, now + PERIOD)
    );
    assert_eq!(thread.interval.as_ref().unwrap().start_ns, halted.end_ns);

    // The sampler was stopped, too, and takes a sample when both go on.
    now += 3 * PERIOD;
    stop();
    thread.stops(now, &mut ids);
    go_on();
    now += 1_000 * PERIOD;
    let Sampled::Changed(Some(halted)) = thread.sample(now, ROUND, &mut ids, &NoChannels) else {
        panic!("nothing changed");
    };
    assert_eq!(halted.activity, Activity::Stopped);
    assert_eq!(halted.end_ns, now - PERIOD / 2);

    // The stop is reported after the sample.
    let before = now;
    now += 1_000 * PERIOD;
    stop();
    go_on();
    let Sampled::Changed(Some(read)) = thread.sample(now, ROUND, &mut ids, &NoChannels) else {
        panic!("nothing changed");
    };
    assert_eq!(read.end_ns, before + PERIOD / 2);
    let halted = thread.stops(before + PERIOD, &mut ids).unwrap();
    assert_eq!(halted.activity, Activity::Stopped);
    assert_eq!(
        (halted.start_ns, halted.end_ns),
        (before + PERIOD, now - PERIOD / 2)
    );
    assert_eq!(thread.interval.as_ref().unwrap().start_ns, halted.end_ns);
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// The exec is reported after the sample that saw the new program.
#[test]
fn what_is_seen_after_an_exec_is_of_the_new_program() {
    let (mut child, mut thread) = child("cat", &[]);
    let (mut ids, mut now) = (0, 0);
    settle(&mut thread, &mut ids, &mut now, Activity::Channel);
    let exec = now - 1;
    assert!(thread.end(exec, PERIOD).is_none());
    thread.becomes(Upid(8), exec);
    now += PERIOD;
    thread.sample(now, ROUND, &mut ids, &NoChannels);
    let read = thread.end(now + PERIOD, PERIOD).unwrap();
    assert_eq!(
        (read.upid, read.start_ns, read.op),
        (Upid(8), exec, Some("read"))
    );
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn running_is_distinguished_from_waiting_for_a_cpu() {
    let had = |on_cpu_ns, run_queue_ns| {
        Some(Scheduled {
            on_cpu_ns,
            run_queue_ns,
            slices: 1,
        })
    };
    assert_eq!(running(None, had(5, 5)), Activity::Running);
    assert_eq!(running(had(5, 5), had(9, 6)), Activity::Running);
    assert_eq!(running(had(5, 5), had(6, 9)), Activity::Runnable);
    assert_eq!(running(had(5, 5), had(5, 5)), Activity::Runnable);
}

#[test]
fn the_activity_of_a_thread_that_was_not_sampled_for_long_is_unknown() {
    let (mut child, mut thread) = child("sh", &["-c", "while :; do :; done"]);
    let (mut ids, mut now) = (0, 0);
    settle(&mut thread, &mut ids, &mut now, Activity::Running);
    let last = now;
    std::thread::sleep(std::time::Duration::from_millis(50));
    now += 200 * PERIOD;
    let sampled = thread.sample(now, ROUND, &mut ids, &NoChannels);
    let Sampled::Changed(Some(before)) = sampled else {
        panic!("the interval went on");
    };
    assert!(before.end_ns <= last + PERIOD, "{}", before.end_ns);
    let interval = thread.interval.as_ref().unwrap();
    assert!(
        interval.start_ns > last + 100 * PERIOD,
        "{}",
        interval.start_ns
    );
    child.kill().unwrap();
    child.wait().unwrap();
}
