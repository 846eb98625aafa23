//! Surveys that take too long for every run of the tests: `tests/long network`. They print their
//! figures.

use std::ops::Range;

use crate::balance;
use crate::evidence::{self, Verdict};
use crate::testing::{Bsp, Noise, Style, bsp};

/// Outcome of one style of exchange.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    named: usize,
    misnamed: usize,
    /// Number of runs of which some loaded processes were named, but not all.
    partly: usize,
    /// Number of runs, of those without a named process, in which the beginning process was loaded.
    of_first: usize,
    first_unsure: usize,
    inside: usize,
    narrow: usize,
    balanced: usize,
    falsely: usize,
    unsure_unloaded: usize,
}

/// Half the width of a range over its middle.
fn width(range: balance::Range) -> f64 {
    (range.high - range.low) / (range.high + range.low).max(1e-12)
}

/// 100 runs with loads of 30 to 100 % on one or two hosts and 100 without, 4 and 8 hosts, rings and
/// all-to-all, with every order of exchange: the verdicts of the balance.
#[test]
#[ignore = "long; tests/long network"]
fn survey_of_loads() {
    for styles in [&[Style::AllFirst, Style::ByEdge][..], &[Style::Turns]] {
        let tally = survey(styles, 0..100, loads);
        println!(
            "{styles:?}: {} of {} loads named, {} in part, {} wrongly; of the process that begins {} were loaded and {} of these not \
             named; {} costs inside, {} within 30 %; without load {} balanced, {} unsure, {} accused",
            tally.named,
            tally.runs,
            tally.partly,
            tally.misnamed,
            tally.of_first,
            tally.first_unsure,
            tally.inside,
            tally.narrow,
            tally.balanced,
            tally.unsure_unloaded,
            tally.falsely
        );
        // By turns, the beginning process cannot be judged, and of several loaded ones often only some.
        match styles.contains(&Style::Turns) {
            true => {
                assert!((tally.named + tally.partly) * 100 >= (tally.runs - tally.of_first) * 75);
            }
            false => assert!(tally.named * 100 >= tally.runs * 95, "{tally:?}"),
        }
        assert!(
            (tally.misnamed + tally.falsely) * 50 <= tally.runs,
            "{tally:?}"
        );
    }
}

/// Runs with two loads of different factors. By turns one of the two is mostly hidden behind the other,
/// or behind the beginning process.
#[test]
#[ignore = "long; tests/long network"]
fn survey_of_two_loads() {
    let first: u64 = std::env::var("FLOWTRACE_SEED").map_or(0, |seed| seed.parse().unwrap());
    for styles in [&[Style::AllFirst, Style::ByEdge][..], &[Style::Turns]] {
        let tally = survey(styles, first..first + 100, two_loads);
        println!("{styles:?}: {tally:?}");
        if !styles.contains(&Style::Turns) {
            assert!(tally.named * 100 >= tally.runs * 95, "{tally:?}");
            assert!(tally.inside * 100 >= tally.named * 90, "{tally:?}");
        }
        assert!(
            (tally.misnamed + tally.falsely) * 50 <= tally.runs,
            "{tally:?}"
        );
    }
}

/// One host has a slow link, which is busy with each message for 5 to 40 % of a round's work. The
/// loaded process must be named as without the link, and the cost must be in its range; the link may
/// hide a part of the load.
#[test]
#[ignore = "long; tests/long network"]
fn survey_of_slow_links() {
    for styles in [&[Style::AllFirst, Style::ByEdge][..], &[Style::Turns]] {
        let tally = survey_behind(styles, 0..100, one_load, |seed, n| {
            let mut noise = Noise((seed + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let node = (noise.uniform() * n as f64) as usize;
            Some((node, 0.004 * (0.05 + 0.35 * noise.uniform())))
        });
        println!("{styles:?}: {tally:?}");
        assert!(tally.inside * 100 >= tally.named * 90, "{tally:?}");
        assert!(
            (tally.misnamed + tally.falsely) * 50 <= tally.runs,
            "{tally:?}"
        );
    }
}

/// One load on any host.
fn one_load(seed: u64, n: usize) -> Vec<(usize, f64)> {
    two_loads(seed, n)[..1].to_vec()
}

/// One load, or two of the same factor on eight hosts.
fn loads(seed: u64, n: usize) -> Vec<(usize, f64)> {
    let load = 1.3 + 0.7 * (seed % 10) as f64 / 9.0;
    let mut loads = vec![(seed as usize % n, load)];
    if n == 8 && seed % 4 == 3 && load > 1.5 {
        loads.push(((seed as usize + 3) % n, load));
    }
    loads
}

/// Two loads on any two hosts.
fn two_loads(seed: u64, n: usize) -> Vec<(usize, f64)> {
    let mut noise = Noise((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let first = (noise.uniform() * n as f64) as usize;
    let second = (first + 1 + (noise.uniform() * (n - 1) as f64) as usize) % n;
    [first, second]
        .map(|node| (node, 1.3 + 0.7 * noise.uniform()))
        .to_vec()
}

fn survey(
    styles: &[Style],
    seeds: Range<u64>,
    loads: fn(u64, usize) -> Vec<(usize, f64)>,
) -> Tally {
    survey_behind(styles, seeds, loads, |_, _| None)
}

fn survey_behind(
    styles: &[Style],
    seeds: Range<u64>,
    loads: fn(u64, usize) -> Vec<(usize, f64)>,
    slow_link: fn(u64, usize) -> Option<(usize, f64)>,
) -> Tally {
    let of = |program: &Bsp| {
        let made = bsp(program);
        (evidence::weigh(&made.run).unwrap(), made.seconds)
    };
    let mut tally = Tally::default();
    for seed in seeds {
        let n = if seed % 2 == 0 { 4 } else { 8 };
        let mut program = Bsp {
            style: styles[(seed / 2) as usize % styles.len()],
            seed: 1000 + seed,
            jitter: 0.02 + 0.08 * (seed % 5) as f64 / 4.0,
            latency_s: if seed % 7 == 0 { 1e-3 } else { 5e-5 },
            slow_link: slow_link(seed, n),
            ..Bsp::ring(n)
        };
        if seed % 3 == 0 {
            program.edges = (0..n)
                .flat_map(|a| (a + 1..n).map(move |b| (a, b)))
                .collect();
        }
        let (none, base_s) = of(&program);
        match none.verdict {
            Verdict::Balanced => tally.balanced += 1,
            Verdict::Unsure(_) => tally.unsure_unloaded += 1,
            Verdict::Loaded(_) => tally.falsely += 1,
        }
        let loads = loads(seed, n);
        for &(node, load) in &loads {
            program.work_s[node] *= load;
        }
        let mut loaded: Vec<usize> = loads.iter().map(|load| load.0).collect();
        program.seed += 5000;
        let (found, seconds) = of(&program);
        loaded.sort_unstable();
        tally.runs += 1;
        let has_first = loaded.contains(&0);
        tally.of_first += usize::from(has_first);
        let mut names: Vec<usize> = match &found.verdict {
            Verdict::Loaded(names) => names.iter().map(|&node| usize::from(node)).collect(),
            _ => Vec::new(),
        };
        names.sort_unstable();
        // A load hidden by waits costs nothing. Less than nothing is noise.
        let truth = (seconds - base_s).max(0.0);
        let range = found.slowdown_s.unwrap_or_default();
        let is_inside = range.low <= truth * 1.02 && truth * 0.98 <= range.high;
        if names == loaded {
            tally.named += 1;
            tally.inside += usize::from(is_inside);
            tally.narrow += usize::from(width(range) <= 0.3);
        } else if names.is_empty() {
            tally.first_unsure += usize::from(has_first);
        } else if names.iter().all(|name| loaded.contains(name)) {
            tally.partly += 1;
        } else {
            tally.misnamed += 1;
        }
        if names != loaded || !is_inside {
            println!(
                "{seed}: {:?} n {n}, {} edges, latency {:.0} us, loads {loads:.2?}: {names:?}, {:.4} to \
                 {:.4}, true {truth:.4}: {:?}",
                program.style,
                program.edges.len(),
                program.latency_s * 1e6,
                range.low,
                range.high,
                found.verdict
            );
        }
    }
    tally
}
