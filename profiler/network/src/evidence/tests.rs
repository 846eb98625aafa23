use super::*;
use crate::run::TimeAccounting;
use crate::testing::{Bsp, Noise, Style, bsp, data, reference, run_of};

fn of(program: &Bsp) -> Evidence {
    weigh(&bsp(program).run).unwrap()
}

#[test]
fn a_loaded_process_of_an_exchange_is_named_with_its_uncertainty() {
    let mut program = Bsp::ring(4);
    assert_eq!(
        of(&program).verdict,
        Verdict::Balanced,
        "{:?}",
        of(&program)
    );
    program.work_s[2] *= 1.6;
    let evidence = of(&program);
    assert_eq!(evidence.verdict, Verdict::Loaded(vec![2]), "{evidence:?}");
    assert_eq!(evidence.basis, Basis::Work);
    let range = evidence.ratio_range.unwrap();
    assert!(range.low < evidence.ratio && evidence.ratio < range.high);
    assert!(range.low > 1.4 && range.high < 1.8, "{range:?}");
}

/// Each phase has pairs of its own. Some pairs talk equally often in the whole run, but never in the
/// same round.
#[test]
fn a_load_shows_in_a_program_of_phases() {
    let n = 8;
    for style in [Style::AllFirst, Style::ByEdge] {
        let mut program = Bsp {
            others: Some(
                (0..n)
                    .flat_map(|a| [(a, a ^ 2), (a, a ^ 4)])
                    .filter(|(a, b)| a < b)
                    .collect(),
            ),
            style,
            jitter: 0.02,
            seed: 3,
            ..Bsp::ring(n)
        };
        let evidence = of(&program);
        assert_eq!(
            evidence.verdict,
            Verdict::Balanced,
            "{style:?}: {evidence:?}"
        );
        let base_s = bsp(&program).seconds;
        program.work_s[5] *= 1.4;
        let (evidence, seconds) = (of(&program), bsp(&program).seconds);
        assert_eq!(
            evidence.verdict,
            Verdict::Loaded(vec![5]),
            "{style:?}: {evidence:?}"
        );
        let (range, truth) = (evidence.slowdown_s.unwrap(), seconds - base_s);
        assert!(
            (range.low..=range.high).contains(&truth),
            "{truth}: {range:?}"
        );
    }
}

#[test]
fn a_handful_of_packets_is_no_evidence() {
    let few: Vec<_> = (0..5)
        .flat_map(|i| {
            [
                data(i * 1_000_000, 0, 1, 100),
                data(i * 1_000_000 + 400, 1, 0, 100),
            ]
        })
        .collect();
    let evidence = weigh(&run_of(2, &few)).unwrap();
    assert!(
        matches!(evidence.verdict, Verdict::Unsure(_)),
        "{evidence:?}"
    );
    let mut short = Bsp::ring(4);
    short.rounds = 5;
    short.work_s[0] *= 3.0;
    let evidence = of(&short);
    assert!(
        matches!(evidence.verdict, Verdict::Unsure(_)),
        "{evidence:?}"
    );
}

/// The ends of a chain have one partner, all others two.
#[test]
fn the_delays_of_the_ends_of_a_chain_do_not_compare() {
    let counted = |counts: [usize; 4]| -> Vec<Message> {
        let of = |(src, n): (usize, usize)| {
            let message = Message {
                src: src as Node,
                ..Message::default()
            };
            std::iter::repeat_n(message, n)
        };
        counts.into_iter().enumerate().flat_map(of).collect()
    };
    assert!(unequal(&counted([200, 400, 400, 200]), 4).is_some());
    assert!(unequal(&counted([200, 403, 402, 201]), 4).is_some());
    assert_eq!(unequal(&counted([200, 300, 300, 200]), 4), None);
}

/// A server and its clients do different things, so that their delays cannot be compared.
#[test]
fn a_server_is_no_loaded_process() {
    let mut noise = Noise(9);
    let mut packets = Vec::new();
    for i in 0..300i64 {
        let client = 1 + (i % 3) as u16;
        let t = i * 10_000_000;
        let busy = 2_000_000 + (4_000_000.0 * noise.uniform()) as i64;
        packets.push(data(t, client, 0, 200 + (i % 7) as u32));
        packets.push(data(t + busy, 0, client, 5000 + (97 * i % 1000) as u32));
    }
    let evidence = weigh(&run_of(4, &packets)).unwrap();
    assert!(
        matches!(evidence.verdict, Verdict::Unsure(_)),
        "{evidence:?}"
    );
}

#[test]
fn where_processes_take_turns_the_first_is_not_accused() {
    let program = Bsp {
        style: Style::Turns,
        edges: vec![(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)],
        ..Bsp::ring(4)
    };
    let evidence = of(&program);
    assert!(
        !matches!(evidence.verdict, Verdict::Loaded(_)),
        "{evidence:?}"
    );
}

/// Unloaded kernels on shared CPUs, for which whole runs gave ratios of 1.2 to 11.
#[test]
fn unloaded_captures_are_not_accused() {
    for name in ["is.S", "mg.S", "lu.S", "mg.W-quota-none"] {
        let Some(run) = reference(name) else {
            return;
        };
        let evidence = weigh(&run).unwrap();
        eprintln!("{name}: {evidence:?}");
        assert!(
            !matches!(evidence.verdict, Verdict::Loaded(_)),
            "{name}: {evidence:?}"
        );
    }
    let Some(run) = reference("mg.W-quota-full") else {
        return;
    };
    // Four iterations are few, but the process leads in three of them, and a replay shows it as loaded
    // too.
    let evidence = weigh(&run).unwrap();
    assert_eq!(evidence.verdict, Verdict::Loaded(vec![3]), "{evidence:?}");
    let sure = evidence.confidence.unwrap();
    assert!(evidence.are_few() && 0.9 < sure && sure < 0.975, "{sure}");
    // The claimed cost is at most the true one, 0.59 s.
    assert!(evidence.slowdown_s.unwrap().low < 0.59 && evidence.replayed_s.unwrap().low < 0.59);
}

/// Parts of unloaded runs, as short as runs of a few iterations: no process is named.
#[test]
fn a_few_iterations_of_an_unloaded_run_accuse_nobody() {
    let (mut asked, mut accused) = (0, 0);
    for (name, count) in [("lu.S", 4), ("lu.S", 6), ("is.S", 4), ("is.S", 5)] {
        let Some(run) = reference(name) else {
            return;
        };
        let begins = repeat::of_run(&run).unwrap().unwrap().begins_ns().to_vec();
        for part in begins.windows(count + 2).step_by(count) {
            let part = run.within(part[0], part[count + 1]);
            let Ok(evidence) = weigh(&part) else {
                continue;
            };
            asked += usize::from(evidence.are_few());
            if let Verdict::Loaded(of) = &evidence.verdict {
                println!("{name}: {of:?}: {evidence:?}");
                accused += 1;
            }
        }
    }
    assert!(asked >= 10 && accused * 10 <= asked, "{accused} of {asked}");
}

/// By turns, packets name a process that answers late, and none if only the beginning process shows its
/// work.
#[test]
fn by_turns_whoever_answers_late_is_named() {
    let mut program = Bsp {
        style: Style::Turns,
        ..Bsp::ring(4)
    };
    program.work_s[2] *= 1.5;
    let evidence = of(&program);
    assert_eq!(evidence.verdict, Verdict::Loaded(vec![2]), "{evidence:?}");
    assert_eq!(evidence.basis, Basis::Rounds);
    assert!(evidence.slowdown_s.is_some_and(|cost| cost.high > 0.0));
}

/// The time accounting decides cases that packets leave open, and no others.
#[test]
fn the_time_accounting_decides_where_packets_do_not() {
    let mut program = Bsp {
        style: Style::Turns,
        jitter: 0.02,
        ..Bsp::ring(4)
    };
    program.work_s[0] *= 1.6;
    let made = bsp(&program);
    let is_unsure = |run: &Run| matches!(weigh(run).unwrap().verdict, Verdict::Unsure(_));
    assert!(is_unsure(&made.run));
    let accounting = |on_cpu_s: f64| {
        Some(TimeAccounting {
            on_cpu_s,
            run_queue_s: 0.01,
            storage_s: 0.0,
        })
    };
    let busy = |first: f64, second: f64| {
        let rest = [accounting(0.8), accounting(0.8)];
        let all = [accounting(first), accounting(second)]
            .into_iter()
            .chain(rest);
        bsp(&program).run.with_accounting(all.collect())
    };
    let evidence = weigh(&busy(1.28, 0.8)).unwrap();
    assert_eq!(evidence.verdict, Verdict::Loaded(vec![0]), "{evidence:?}");
    assert_eq!(evidence.basis, Basis::TimeAccounting);
    // Equal work, or a partner that polls: such a process is always busy and answers at once.
    assert!(is_unsure(&busy(0.8, 0.8)));
    assert!(is_unsure(&busy(0.8, 1.3)));
    // The time accounting says nothing about a part of the run.
    let run = busy(1.28, 0.8);
    let (from, to) = run.span_ns();
    assert_eq!(run.within(from, to - 1).accounting(0), None);
}

/// A server with two clients, whose requests it answers after 10 ms; and four pairs of a client with a server of
/// its own. Clients pause for 2 ms.
#[test]
fn a_server_is_not_slower_than_its_clients() {
    let run = |pairs: &[(Node, Node)], nodes: usize| {
        let mut noise = Noise(3);
        let mut packets = Vec::new();
        for (i, &(client, server)) in pairs.iter().enumerate() {
            let mut t_ns = i as i64 * 6_000_000;
            for _ in 0..60 {
                packets.push(data(t_ns, client, server, 100));
                t_ns += 10_000_000 + (100_000.0 * noise.uniform()) as i64;
                packets.push(data(t_ns, server, client, 500));
                t_ns += 2_000_000;
            }
        }
        packets.sort_by_key(|packet| packet.t_ns);
        run_of(nodes, &packets)
    };
    let one = run(&[(1, 0), (2, 0)], 3);
    let evidence = weigh(&one).unwrap();
    assert_eq!(evidence.verdict, Verdict::Unsure(roles::UNALIKE.into()));
    // No name follows an unknown answer.
    let said = crate::pages::balance(&one).lines.join("\n");
    assert!(said.starts_with("unknown"), "{said}");
    assert!(
        one.nodes().iter().all(|name| !said.contains(name.as_str())),
        "{said}"
    );
    let evidence = weigh(&run(&[(0, 4), (1, 5), (2, 6), (3, 7)], 8)).unwrap();
    assert!(
        !matches!(evidence.verdict, Verdict::Loaded(_)),
        "{evidence:?}"
    );
}

/// A coordinator gathers a message of each worker and sends all of them the next one. It is not compared with
/// them, and works less. The costs and the rest of the same interval add up.
#[test]
fn the_workers_of_a_coordinator_are_compared() {
    let of = |works_ms: [i64; 3]| {
        let mut noise = Noise(4);
        let (mut packets, mut t_ns) = (Vec::new(), 0);
        for _ in 0..40 {
            let mut last = 0;
            for (worker, work) in (1..).zip(works_ms) {
                let sent = t_ns + work * 1_000_000 + (50_000.0 * noise.uniform()) as i64;
                packets.push(data(sent, worker, 0, 2000));
                last = last.max(sent);
            }
            for worker in 1..=3 {
                t_ns = last + 50_000 * i64::from(worker);
                packets.push(data(t_ns, 0, worker, 2000));
            }
        }
        packets.sort_by_key(|packet| packet.t_ns);
        run_of(4, &packets)
    };
    let run = of([20, 20, 40]);
    let evidence = weigh(&run).unwrap();
    assert_eq!(evidence.verdict, Verdict::Loaded(vec![3]), "{evidence:?}");
    let cost = evidence.cost_s().unwrap();
    assert!(
        cost.low <= 0.78 && 0.78 <= cost.high && cost.high < 0.9,
        "{cost:?}"
    );
    let found = crate::calls::imbalance_global(&run, None).unwrap().value;
    let whole_s = (evidence.span_ns.1 - evidence.span_ns.0) as f64 / 1e9;
    for (cost_s, rest_s) in [
        (found.range.low, found.predicted_s.high),
        (found.range.high, found.predicted_s.low),
    ] {
        assert!((cost_s + rest_s - whole_s).abs() < 1e-9, "{found:?}");
    }
}
