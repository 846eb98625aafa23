//! Who ended the waits of servers, clients and event loops, on hand-made runs whose truth is known.

use flowtrace_profiler::analysis::critical_path::{Step, StepKind};
use flowtrace_profiler::analysis::waits::{Root, waits};
use flowtrace_profiler::timeline::State;
use flowtrace_schema::{ChannelKind, Direction};

use crate::play::Doing::{Accept, Child, Cpu, Futex, In, InOf, Limit, Poll, Sleep};
use crate::play::{Doing, Life};
use crate::{Run, run};

/// Time of the path by rule, ms, without the parts of less than 5 ms.
fn path(run: &Run) -> Vec<(String, i64)> {
    let rules = run.path.by_rule(&run.workflow);
    let rules = rules
        .iter()
        .map(|one| (one.rule.to_string(), one.ns / 1_000_000));
    rules.filter(|(_, ms)| *ms >= 5).collect()
}

/// Predicted length of the run if the processes of a rule took a tenth of their time, ms.
fn with_a_tenth(run: &Run, rule: &str) -> i64 {
    let factor = |id| match **run.workflow.rule(id) == *rule {
        true => 0.1,
        false => 1.0,
    };
    run.path.what_if(factor) / 1_000_000
}

/// The root causes of waits, with their time in ms.
fn causes(run: &Run) -> Vec<(Option<String>, Root, i64)> {
    let causes = waits(&run.workflow, &run.timeline).causes;
    let causes = causes.into_iter();
    causes
        .map(|one| (one.blocker, one.root, (one.ns / 1e6) as i64))
        .collect()
}

/// `server & sleep 1; client; wait`: the server waits for its first client, and then takes 500 ms for the answer.
/// `first` has that wait, with the channel of the server to itself.
fn later_client(first: impl FnOnce(u32) -> Doing) -> Run {
    run(|mut play| {
        let (own, connection) = (
            play.channel(ChannelKind::Socketpair),
            play.channel(ChannelKind::Tcp),
        );
        let sh = play.process("sh", None, 0, &[(10, Cpu), (1540, Child), (1550, Cpu)]);
        let server: Life<'_> = &[(50, Cpu), (1030, first(own)), (1530, Cpu), (1540, Cpu)];
        let server = play.process("server", Some(sh), 10, server);
        play.process("sleep", Some(sh), 10, &[(1010, Sleep)]);
        let client: Life<'_> = &[(1030, Cpu), (1530, In(connection)), (1535, Cpu)];
        let client = play.process("client", Some(sh), 1010, client);
        play.end(own, server, Direction::Both, 45, 1540);
        play.end(connection, client, Direction::Both, 1029, 1535);
        play.end(connection, server, Direction::Both, 1031, 1540);
        play.finish(1550);
    })
}

#[test]
fn a_server_waits_for_the_client_that_begins_later() {
    for first in [|_| Accept, |own| Poll(own, None)] {
        let run = later_client(first);
        let expected = [("sleep", 1000), ("server", 510), ("client", 20)];
        let path = path(&run);
        for (rule, ms) in expected {
            let found = path.iter().find(|(name, _)| name == rule);
            assert!(found.is_some_and(|one| (one.1 - ms).abs() <= 5), "{path:?}");
        }
        let without = with_a_tenth(&run, "sleep");
        assert!((645..=655).contains(&without), "{without}");
        let slept = causes(&run)
            .into_iter()
            .find(|one| one.1 == Root::Doing(State::Sleep));
        assert!(slept.is_some_and(|one| one.0.as_deref() == Some("sleep") && one.2 > 900));
    }
}

/// A program with a pool of threads that have nothing to do, whose main thread waits at a channel to itself: for
/// another thread, which sleeps too, or for a time.
#[test]
fn threads_that_wait_idle_decide_nothing() {
    let run = run(|mut play| {
        let own = play.channel(ChannelKind::Pipe);
        let main: Life<'_> = &[(100, Cpu), (1100, In(own)), (1120, Cpu)];
        let idle: Life<'_> = &[(1115, Futex)];
        let node = play.threads("node", None, 0, &[main, idle, idle]);
        play.end(own, node, Direction::Read, 5, 1120);
        play.end(own, node, Direction::Write, 5, 1120);
        play.finish(1120);
    });
    let cause = run.cause();
    assert_eq!(
        cause.map(|one| (one.0, one.1)),
        Some((Some("node".into()), "sleep"))
    );
    let works = |step: &Step| step.kind == StepKind::Work;
    assert!(run.path.steps.iter().all(works), "{:?}", run.path.steps);
}

/// A thread of the server sleeps 90 ms before each of ten answers, while the main thread waits for the client.
#[test]
fn the_thread_that_answers_decides_and_not_the_one_that_waits() {
    for main in [Child, Accept] {
        let run = run(|mut play| {
            let connection = play.channel(ChannelKind::Tcp);
            let main: Life<'_> = &[(20, Cpu), (1110, main), (1120, Cpu)];
            let mut thread = vec![(60, In(connection))];
            let mut asks = vec![(60, Cpu)];
            for request in 0..10 {
                let at = 60 + request * 100;
                thread.extend([(at + 90, Sleep), (at + 100, In(connection))]);
                asks.extend([(at + 91, In(connection)), (at + 100, Cpu)]);
            }
            asks.push((1100, Cpu));
            let server = play.threads("server", None, 0, &[main, &thread]);
            let client = play.process("client", Some(server), 20, &asks);
            play.end(connection, client, Direction::Both, 55, 1100);
            play.end(connection, server, Direction::Both, 58, 1100);
            play.finish(1120);
        });
        let late = run
            .path
            .steps
            .iter()
            .filter(|step| step.kind == StepKind::Late);
        let late: i64 = late.map(|step| step.to_ns - step.from_ns).sum();
        assert!(late < 50_000_000, "{:?}", run.path.steps);
        let path = path(&run);
        let of = |rule: &str| path.iter().find(|one| one.0 == rule).map_or(0, |one| one.1);
        assert!(of("server") > 880 && of("client") > 90, "{path:?}");
        let slept = Root::Doing(State::Sleep);
        let causes = causes(&run);
        let of_server = causes.iter().find(|one| one.1 == slept);
        assert!(of_server.is_some_and(|one| one.2 > 880), "{causes:?}");
    }
}

/// A server of one thread waits 90 ms for requests, up to a time limit, before each of ten answers: in that time
/// nothing comes.
#[test]
fn who_answers_after_a_time_limit_slept() {
    let run = run(|mut play| {
        let connection = play.channel(ChannelKind::Tcp);
        let (server, client) = (1, 2);
        let mut serves = vec![(20, Cpu), (60, InOf(connection, client))];
        let mut asks = vec![(60, Cpu)];
        for request in 0..10 {
            let at = 60 + request * 100;
            serves.extend([
                (at + 90, Limit(Some(connection))),
                (at + 92, Cpu),
                (at + 100, InOf(connection, client)),
            ]);
            asks.extend([(at + 91, InOf(connection, server)), (at + 100, Cpu)]);
        }
        let server = play.process("server", None, 0, &serves);
        let client = play.process("client", None, 20, &asks);
        play.end(connection, client, Direction::Both, 55, 1060);
        play.end(connection, server, Direction::Both, 58, 1060);
        play.finish(1060);
    });
    let path = path(&run);
    let of = |rule: &str| path.iter().find(|one| one.0 == rule).map_or(0, |one| one.1);
    assert!(of("server") > 880 && of("client") > 80, "{path:?}");
    let causes = causes(&run);
    let slept = causes.iter().find(|one| one.1 == Root::Doing(State::Sleep));
    assert!(slept.is_some_and(|one| one.2 > 880), "{causes:?}");
}

/// The server looks twice a second whether it shall stop, until a client comes.
#[test]
fn who_waits_again_after_a_time_limit_did_not_sleep() {
    let run = run(|mut play| {
        let connection = play.channel(ChannelKind::Tcp);
        let (sh, client) = (1, 4);
        play.process("sh", None, 0, &[(10, Cpu), (1540, Child), (1550, Cpu)]);
        let serves = [
            (50, Cpu),
            (550, Limit(None)),
            (551, Cpu),
            (1030, InOf(connection, client)),
            (1540, Cpu),
        ];
        let server = play.process("server", Some(sh), 10, &serves);
        play.process("sleep", Some(sh), 10, &[(1010, Sleep)]);
        let asks = [(1030, Cpu), (1530, InOf(connection, server)), (1535, Cpu)];
        let client = play.process("client", Some(sh), 1010, &asks);
        play.end(connection, client, Direction::Both, 1029, 1535);
        play.end(connection, server, Direction::Both, 1031, 1540);
        play.finish(1550);
    });
    let without = with_a_tenth(&run, "sleep");
    assert!((645..=655).contains(&without), "{without}");
    let server = run.timeline.instances.iter();
    let slept = server.map(|one| one.totals[State::Sleep as usize] / 1e6);
    let slept: Vec<f64> = slept.collect();
    assert_eq!(slept, [0.0, 0.0, 1000.0, 0.0]);
}

/// curl waits at a channel to itself and at a connection to another machine.
#[test]
fn a_wait_at_several_channels_is_for_the_one_that_leads_out() {
    let run = run(|mut play| {
        let (own, outside) = (
            play.channel(ChannelKind::Socketpair),
            play.channel(ChannelKind::Tcp),
        );
        let curl = play.process(
            "curl",
            None,
            0,
            &[(50, Cpu), (1050, Poll(own, Some(outside))), (1060, Cpu)],
        );
        play.end(own, curl, Direction::Both, 10, 1060);
        play.end(outside, curl, Direction::Both, 20, 1060);
        play.finish(1060);
    });
    assert_eq!(causes(&run), [(None, Root::Outside, 1000)]);
}
