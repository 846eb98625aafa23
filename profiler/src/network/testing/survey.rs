//! Surveys too long for every run of the tests: `tests/long network`. They print their figures.

use super::programs::{Bsp, Style, bsp};
use crate::network::{messages, schedule, slowdown};

/// 100 runs with loads of 30 to 100 % on one or two hosts and 100 without, 4 and 8 hosts, rings
/// and all-to-all, every style of exchange.
#[test]
#[ignore = "long; tests/long network"]
fn survey_of_loads() {
    let of = |program: &Bsp| {
        let made = bsp(program);
        let found = messages::messages(&made.run).unwrap();
        let n = program.work_s.len();
        (
            slowdown::slowdown(&schedule::schedule(&found, n)),
            made.seconds,
        )
    };
    let (mut named, mut inside, mut narrow, mut falsely, mut runs) = (0, 0, 0, 0, 0);
    // Nothing is claimed where the schedule is not understood: no false alarm, but no name either.
    let (mut unknown, mut unknown_unloaded) = (0, 0);
    for seed in 0..100u64 {
        let n = if seed % 2 == 0 { 4 } else { 8 };
        let style = [Style::AllFirst, Style::ByEdge][(seed / 2 % 2) as usize];
        let mut program = Bsp {
            style,
            seed: 1000 + seed,
            jitter: 0.02 + 0.08 * (seed % 5) as f64 / 4.0,
            latency_s: if seed % 7 == 0 { 1e-3 } else { 5e-5 },
            ..Bsp::ring(n)
        };
        if seed % 3 == 0 {
            program.edges = (0..n)
                .flat_map(|a| (a + 1..n).map(move |b| (a, b)))
                .collect();
        }
        let (none, base_s) = of(&program);
        unknown_unloaded += usize::from(none.is_none());
        falsely += usize::from(none.is_some_and(|none| !none.loaded.is_empty()));
        let load = 1.3 + 0.7 * (seed % 10) as f64 / 9.0;
        let mut loaded = vec![seed as usize % n];
        // Two loads on four hosts leave no majority to compare with.
        if n == 8 && seed % 4 == 3 && load > 1.5 {
            loaded.push((seed as usize + 3) % n);
        }
        for &node in &loaded {
            program.work_s[node] *= load;
        }
        program.seed += 5000;
        let (found, seconds) = of(&program);
        runs += 1;
        let Some(found) = found else {
            println!("{seed}: {style:?} n {n} load {load:.2} at {loaded:?}: unknown");
            unknown += 1;
            continue;
        };
        let mut names: Vec<usize> = found.loaded.iter().map(|&node| usize::from(node)).collect();
        names.sort_unstable();
        loaded.sort_unstable();
        named += usize::from(names == loaded);
        // A load that waits hide costs nothing; less than nothing is noise.
        let truth = (seconds - base_s).max(0.0);
        let (low, high) = (found.slowdown_s.low, found.slowdown_s.high);
        let is_inside = low <= truth * 1.02 && truth * 0.98 <= high;
        inside += usize::from(is_inside);
        narrow += usize::from(found.relative_width().is_some_and(|width| width <= 0.3));
        if names != loaded || !is_inside {
            println!(
                "{seed}: {style:?} n {n}, {} edges, latency {:.0} us, load {load:.2} at {loaded:?}: \
                 {names:?}, {low:.4} to {high:.4}, true {truth:.4}, work {:.2?}",
                program.edges.len(),
                program.latency_s * 1e6,
                found.work_s,
            );
        }
    }
    println!(
        "loads: {named} of {runs} named, {inside} inside, {narrow} within 30 %, {unknown} unknown; \
         without load {falsely} false alarms, {unknown_unloaded} unknown in {runs}"
    );
    assert!(named * 100 >= runs * 95 && falsely * 50 <= runs);
}
