use super::*;
use crate::messages;
use crate::schedule;
use crate::testing::{Bsp, Noise, Style, bsp};
use crate::{analysis, repeat};

#[test]
fn the_truth_lies_in_the_intervals() {
    let mut unknown = 0;
    for (style, work_s) in [
        (Style::AllFirst, vec![0.004; 4]),
        (Style::ByEdge, vec![0.004, 0.004, 0.002, 0.008]),
        (Style::Turns, vec![0.004, 0.004, 0.002, 0.008]),
    ] {
        let made = bsp(&Bsp {
            style,
            work_s,
            latency_s: 0.001,
            ..Bsp::ring(4)
        });
        let found = messages::messages(&made.run).unwrap();
        let schedule = schedule::schedule(&found, 4);
        let pop = efficiencies(&schedule, made.run.span_ns());
        if style == Style::Turns {
            assert_eq!(pop, None, "work hides in waiting");
            continue;
        }
        // Strong imbalance edge by edge can look like taking turns. Then there is no answer.
        let Some(pop) = pop else {
            unknown += 1;
            continue;
        };
        let mean = made.work_s.iter().sum::<f64>() / 4.0;
        let most = made.work_s.iter().copied().fold(0.0, f64::max);
        for (name, share, truth) in [
            ("parallel", pop.parallel, mean / made.seconds),
            ("load balance", pop.load_balance, mean / most),
            ("communication", pop.communication, most / made.seconds),
        ] {
            assert!(
                share.low - 0.05 <= truth && truth <= share.high + 0.05,
                "{style:?}, {name}: {truth} not in {share:?}"
            );
            assert!(share.point().is_some(), "{name}: {share:?}");
        }
    }
    assert!(unknown <= 1);
}

#[test]
fn nothing_has_no_efficiency() {
    assert_eq!(
        efficiencies(&schedule::schedule(&[], 2), (0, 1_000_000_000)),
        None
    );
}

/// Programs without a library, for every order of exchange, with varying work. The bounds contain the
/// truth even if packets would show more; in at least 95 % of the programs, since the least number of
/// repetitions is small.
#[test]
fn bounds_hold_the_truth_of_made_up_programs() {
    let mut noise = Noise(2_026);
    for style in Style::ALL {
        let (mut inside, mut known, mut shown) = (0, 0, 0);
        for seed in 0..60 {
            let n = if seed % 2 == 0 { 4 } else { 8 };
            let made = bsp(&Bsp {
                style,
                work_s: (0..n).map(|_| 0.001 + 0.006 * noise.uniform()).collect(),
                jitter: [0.02, 0.1, 0.3][seed as usize % 3],
                rounds: [20, 60, 200][seed as usize / 3 % 3],
                latency_s: if seed % 5 == 0 { 1e-3 } else { 5e-5 },
                seed: seed + 900,
                ..Bsp::ring(n)
            });
            let computed = made.computed_s();
            let mean = computed.iter().sum::<f64>() / n as f64;
            let most = computed.iter().copied().fold(0.0, f64::max);
            let holds = |pop: &Pop| {
                let truths = [
                    (pop.parallel, mean / pop.run_s),
                    (pop.load_balance, mean / most),
                    (pop.communication, most / pop.run_s),
                ];
                let is_inside = |&(share, truth): &(Share, f64)| {
                    share.low - 1e-3 <= truth && truth <= share.high + 1e-3
                };
                truths.iter().all(is_inside)
            };
            let found = messages::messages(&made.run).unwrap();
            let iterations = repeat::of_run(&made.run).unwrap();
            let span = made.run.span_ns();
            let pop = bounded(&made.run, &found, iterations.as_deref(), span).unwrap();
            inside += usize::from(holds(&pop));
            if let Ok(answer) = analysis::pop_metrics(&made.run) {
                known += 1;
                shown += usize::from(holds(&answer.value));
            }
        }
        println!(
            "{style:?}: bounds hold the truth in {inside} of 60, answers in {shown} of {known}"
        );
        assert!(inside >= 57, "{style:?}: {inside} of 60");
        assert!(shown * 20 >= known * 19, "{style:?}: {shown} of {known}");
    }
}

#[test]
fn what_goes_one_way_is_not_bounded() {
    let of = |packets: &[crate::run::Packet]| {
        let run = crate::testing::run_of(2, packets);
        let found = messages::messages(&run).unwrap();
        goes_one_way(&found)
    };
    let sent = |i: i64| crate::testing::data(i * 1_000_000, 0, 1, 1_000);
    let back = |i: i64| crate::testing::data(i * 1_000_000 + 400_000, 1, 0, 8);
    assert!(of(&(0..20).map(sent).collect::<Vec<_>>()));
    let both: Vec<_> = (0..20).flat_map(|i| [sent(i), back(i)]).collect();
    assert!(!of(&both));
}
