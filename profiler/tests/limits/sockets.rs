//! Direction of data through sockets, and its consequences for waits, on hand-made runs.

use flowtrace_profiler::analysis::bottlenecks::chart::subject_name;
use flowtrace_profiler::analysis::degrees::advice;
use flowtrace_profiler::analysis::findings::{self, verdict};
use flowtrace_profiler::analysis::waits::{Kind, Root, waits};
use flowtrace_profiler::graph::EdgeKind;
use flowtrace_profiler::model::Way;
use flowtrace_profiler::text;
use flowtrace_profiler::text::tree::Style;
use flowtrace_schema::{ChannelKind, Direction};

use crate::play::Doing::{Child, Cpu, In, Out, Sleep};
use crate::play::{Life, Play};
use crate::{Run, run};

/// The ends of each socket edge of the graph, its direction, and the bytes forth and back.
fn sockets(run: &Run) -> Vec<(String, Way, i64, i64)> {
    let graph = &run.dag.graph;
    let rule = |node| match graph[node] {
        flowtrace_profiler::graph::Node::Process { id, .. } => run.workflow.rule(id).to_string(),
        flowtrace_profiler::graph::Node::File { .. } => unreachable!(),
    };
    let mut found: Vec<_> = graph
        .edge_indices()
        .filter(|&edge| graph[edge].kind == EdgeKind::Socket)
        .map(|at| {
            let (from, to) = graph.edge_endpoints(at).unwrap();
            let edge = &graph[at];
            let names = format!("{}>{}", rule(from), rule(to));
            (names, edge.way, edge.write_bytes, edge.read_bytes)
        })
        .collect();
    found.sort();
    found
}

/// Gives the life of a process, as (until ms, state), from its channels.
type Lives<'a> = &'a dyn Fn(u32, u32) -> Vec<(u64, crate::play::Doing)>;

/// The receivers are older than the processes that send to them, as servers are.
fn chain(kind: ChannelKind, lives: [Lives<'_>; 3]) -> Run {
    run(|mut play| {
        let (first, second) = (play.channel(kind), play.channel(kind));
        let [reader, ocr, receiver] = lives.map(|life| life(first, second));
        let receiver = play.process("receiver", None, 0, &receiver);
        let ocr = play.process("ocr", None, 0, &ocr);
        let reader = play.process("reader", None, 0, &reader);
        for (channel, one, other) in [(first, reader, ocr), (second, ocr, receiver)] {
            play.end(channel, one, Direction::Both, 40, 4000);
            play.end(channel, other, Direction::Both, 40, 4000);
        }
        play.finish(4000);
    })
}

#[test]
fn the_first_of_two_links_is_slow_and_named_in_the_direction_of_the_data() {
    for kind in [ChannelKind::Tcp, ChannelKind::Unix, ChannelKind::Socketpair] {
        let run = chain(
            kind,
            [
                &|first, _| vec![(60, Cpu), (4000, Out(first))],
                &|first, _| vec![(60, Cpu), (2000, In(first)), (2020, Cpu), (4000, In(first))],
                &|_, second| {
                    vec![
                        (60, Cpu),
                        (2000, In(second)),
                        (2020, Cpu),
                        (4000, In(second)),
                    ]
                },
            ],
        );
        let ways: Vec<_> = sockets(&run)
            .into_iter()
            .map(|(names, way, ..)| (names, way))
            .collect();
        assert_eq!(
            ways,
            [
                ("ocr>receiver".into(), Way::Forth),
                ("reader>ocr".into(), Way::Forth)
            ],
            "{kind:?}"
        );
        let result = run.bottlenecks();
        assert_eq!(
            subject_name(&result, &result.found[0].subject),
            "reader → ocr",
            "{kind:?}"
        );
        let waits = waits(&run.workflow, &run.timeline);
        let cause = &waits.causes[0];
        if kind == ChannelKind::Tcp {
            assert_eq!(cause.root, Root::Network);
            assert_eq!(cause.blocker.as_deref(), Some("reader → ocr"));
            let waiters: Vec<&str> = cause
                .waiters
                .iter()
                .map(|(name, _)| name.as_str())
                .collect();
            assert_eq!(waiters.len(), 3, "{waiters:?}");
            assert!(
                waits
                    .waits
                    .iter()
                    .any(|wait| wait.kind == Kind::Network && wait.waiter == "ocr")
            );
        } else {
            assert_ne!(cause.root, Root::Network, "{kind:?}");
        }
    }
}

/// Data is still on its way when its sender has ended.
#[test]
fn what_is_on_its_way_outlives_who_sent_it() {
    let run = run(|mut play| {
        let tcp = play.channel(ChannelKind::Tcp);
        let receiver: Life<'_> = &[(60, Cpu), (1000, In(tcp)), (1020, Cpu), (4000, In(tcp))];
        let receiver = play.process("receiver", None, 0, receiver);
        let sender = play.process("sender", None, 0, &[(60, Cpu), (1000, Out(tcp))]);
        play.end(tcp, sender, Direction::Both, 40, 1000);
        play.end(tcp, receiver, Direction::Both, 40, 4000);
        play.finish(4000);
    });
    let (step, resource, share) = run.cause().unwrap();
    assert_eq!((step, resource), (None, "network"));
    assert!(share >= 85, "{share}");
    let waits = waits(&run.workflow, &run.timeline);
    assert_eq!(waits.causes[0].root, Root::Network, "{:?}", waits.causes);
    assert!(waits.causes[0].ns > 3.7e9, "{:?}", waits.causes);
}

/// Both wait for each other in turn: each sends. The one that computes meanwhile is to blame, and never the
/// network.
#[test]
fn who_ask_and_answer_send_both() {
    let run = run(|mut play| {
        let tcp = play.channel(ChannelKind::Tcp);
        let turns = |is_server: bool| -> Vec<_> {
            let ends = (0..4000).step_by(100).map(|at| at + 100);
            ends.flat_map(|end| match is_server {
                true => [(end - 80, In(tcp)), (end, Cpu)],
                false => [(end - 80, Cpu), (end, In(tcp))],
            })
            .collect()
        };
        let server = play.process("server", None, 0, &turns(true));
        let client = play.process("client", None, 0, &turns(false));
        play.end(tcp, server, Direction::Both, 0, 4000);
        play.end(tcp, client, Direction::Both, 0, 4000);
        play.finish(4000);
    });
    let ways: Vec<_> = sockets(&run)
        .into_iter()
        .map(|(names, way, ..)| (names, way))
        .collect();
    assert_eq!(ways, [("server>client".into(), Way::Both)]);
    let waits = waits(&run.workflow, &run.timeline);
    assert!(
        waits.causes.iter().all(|cause| cause.root != Root::Network),
        "{:?}",
        waits.causes
    );
}

/// No source reported the sender: no arrow, no bytes.
#[test]
fn a_socket_at_which_nobody_was_seen_to_wait_has_no_direction() {
    let run = run(|mut play| {
        let unix = play.channel(ChannelKind::Unix);
        let one = play.process("one", None, 0, &[(400, Cpu)]);
        let other = play.process("other", None, 10, &[(400, Cpu)]);
        hold(&mut play, unix, [one, other]);
        play.finish(400);
    });
    assert_eq!(sockets(&run), [("one>other".into(), Way::Unknown, 0, 0)]);
}

/// The bytes of counted calls decide, whatever the waits: the sender waits for the end of the connection.
#[test]
fn counted_bytes_decide_before_waits() {
    for (sent, received, expected) in [
        (7000, 0, ("young>old", Way::Forth, 7000, 0)),
        (0, 9000, ("old>young", Way::Forth, 9000, 0)),
        (70, 9000, ("old>young", Way::Both, 9000, 70)),
    ] {
        let run = run(|mut play| {
            let tcp = play.channel(ChannelKind::Tcp);
            let waits: Life<'_> = &[(20, Cpu), (200, In(tcp)), (220, Cpu), (400, In(tcp))];
            let old = play.process("old", None, 0, waits);
            let young = play.process("young", None, 10, waits);
            hold(&mut play, tcp, [old, young]);
            play.moved(tcp, young, sent, received);
            play.finish(400);
        });
        let (names, way, forth, back) = expected;
        assert_eq!(sockets(&run), [(names.into(), way, forth, back)]);
    }
}

fn hold(play: &mut Play, channel: u32, upids: [u32; 2]) {
    for upid in upids {
        play.end(channel, upid, Direction::Both, 15, 400);
    }
}

/// A client that makes requests to `servers` for 4 s, of which the first one works all of the time and each
/// other for `busy` ms of it.
fn asked(servers: usize, busy: u64) -> Run {
    run(|mut play| {
        let channels: Vec<u32> = (0..servers)
            .map(|_| play.channel(ChannelKind::Socketpair))
            .collect();
        let client = play.process("client", None, 0, &[(20, Cpu), (4000, In(channels[0]))]);
        for (at, &channel) in channels.iter().enumerate() {
            let life: &[_] = match at {
                0 => &[(4000, Cpu)],
                _ => &[(busy, Cpu), (4000, In(channel))],
            };
            let server = play.process("server", None, 0, life);
            for (upid, moved) in [(client, (1000, 2000)), (server, (2000, 1000))] {
                play.end(channel, upid, Direction::Both, 0, 4000);
                play.moved(channel, upid, moved.0, moved.1);
            }
        }
        play.busy(2, 50, 4000);
        play.finish(4000);
    })
}

/// One server, or two of which one has nothing to do: another one may get no requests. Where both always have
/// work, a third has, too.
#[test]
fn more_servers_for_a_client_that_waits_for_each_answer_promise_nothing() {
    for (servers, busy, is_known) in [(1, 0, false), (2, 200, false), (2, 3990, true)] {
        let run = asked(servers, busy);
        let result = run.bottlenecks();
        let advice = advice(&run.workflow, &result, &run.timeline, Some(4)).unwrap();
        assert_eq!(advice.demands[advice.binding].name, "server");
        assert_eq!(advice.one_more_ns.is_some(), is_known, "{servers} {busy}");
        assert_eq!(advice.balanced_ns.is_some(), is_known);
        let text = text::bottlenecks::advice(&advice);
        let says_so = text.contains("not known whether more instances gain anything");
        assert_eq!(says_so, !is_known, "{text}");
    }
}

/// Clients that each wait for an answer before they ask again, `at_once` of them at a time, keep a server at work.
#[test]
fn a_server_with_several_clients_at_a_time_could_be_several() {
    for (at_once, expected) in [(1, None), (3, Some(3))] {
        let run = run(|mut play| {
            let server = play.process("server", None, 0, &[(3900, Cpu), (4000, Sleep)]);
            for client in 0..3 {
                let (from, to) = match at_once {
                    1 => (client * 1300, (client + 1) * 1300),
                    _ => (0, 3900),
                };
                let channel = play.channel(ChannelKind::Tcp);
                let life: Life<'_> = &[(from + 10, Cpu), (to, In(channel))];
                let client = play.process("client", None, from, life);
                for (upid, moved) in [(client, (1000, 2000)), (server, (2000, 1000))] {
                    play.end(channel, upid, Direction::Both, from, to);
                    play.moved(channel, upid, moved.0, moved.1);
                }
            }
            play.finish(4000);
        });
        let result = run.bottlenecks();
        let advice = advice(&run.workflow, &result, &run.timeline, Some(16)).unwrap();
        assert_eq!(advice.demands[advice.binding].name, "server");
        assert_eq!(advice.one_more_ns.map(|_| advice.enough), expected);
        let of_clients = advice.demands.iter().find(|one| one.name == "client");
        assert!(of_clients.is_none_or(|one| one.advised == one.degree));
        let text = text::bottlenecks::advice(&advice);
        let says = match expected {
            Some(_) => "beyond 3 of them the number of its clients limits",
            None => "who asks it may wait for each answer before asking again",
        };
        assert!(text.contains(says), "{text}");
    }
}

/// A client of a server that was not traced, and a step after it.
#[test]
fn a_step_that_waits_for_something_outside_of_the_run_is_named() {
    let run = run(|mut play| {
        let shell = play.process("bash run.sh", None, 0, &[(4000, Child)]);
        let channel = play.channel(ChannelKind::Tcp);
        let client = play.process(
            "fetch",
            Some(shell),
            0,
            &[(100, Cpu), (3000, In(channel)), (3010, Cpu)],
        );
        play.end(channel, client, Direction::Both, 10, 3010);
        play.process("pack", Some(shell), 3010, &[(4000, Cpu)]);
        play.busy(2, 10, 4000);
        play.finish(4000);
    });
    let verdict = verdict(&run.workflow, &run.dag, &run.timeline, &run.path);
    assert_eq!(verdict.kind, Some(findings::OUTSIDE));
    let why = verdict.why.unwrap();
    let expected = "fetch waited for something outside of the run for 72 % of it: tcp";
    assert!(why.starts_with(expected), "{why}");
    assert!(verdict.bottleneck.unwrap().starts_with("pack limited"));
}

/// Bytes that went through sockets have columns of their own, where there are sockets; bytes that were not
/// counted are no zeros.
#[test]
fn the_tree_has_the_bytes_of_sockets() {
    let style = Style {
        width: 120,
        is_full: true,
    };
    let run = asked(1, 0);
    let tree = text::tree::text(&run.workflow, style);
    let (head, lines) = tree.split_once('\n').unwrap();
    assert!(head.contains("wrote    recv    sent  process"), "{tree}");
    let line = |name: &str| lines.lines().find(|line| line.ends_with(name)).unwrap();
    assert!(line("client").contains(" 2.0 kB  1.0 kB "), "{tree}");
    assert!(line("server").contains(" 1.0 kB  2.0 kB "), "{tree}");

    let unknown = chain(
        ChannelKind::Unix,
        [
            &|_, _| vec![(4000, Cpu)],
            &|_, _| vec![(4000, Cpu)],
            &|_, _| vec![(4000, Cpu)],
        ],
    );
    let tree = text::tree::text(&unknown.workflow, style);
    assert!(tree.contains("      ?       ? "), "{tree}");
}
