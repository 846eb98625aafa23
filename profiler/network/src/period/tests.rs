use super::*;
use crate::testing::Noise;

impl Noise {
    /// Events at a rate that changes every 2 ms.
    fn events(&mut self, seconds: f64, mut rate: impl FnMut(&mut Noise, f64) -> f64) -> Vec<i64> {
        let mut times = Vec::new();
        let bins = (seconds / 0.002) as i64;
        for bin in 0..bins {
            let mut left = rate(self, bin as f64 * 0.002).max(0.0) * 0.002;
            let mut at = 0.0;
            // Poisson events, by exponential gaps within the bin.
            while left > 0.0 {
                let gap = -self.uniform().ln();
                at += gap / left;
                if at >= 1.0 {
                    break;
                }
                times.push(bin * 2_000_000 + (at * 2e6) as i64);
                if times.len() > 1_000_000 {
                    left = 0.0;
                }
            }
        }
        times
    }
}

const SECONDS: f64 = 4.0;
const SPAN: (i64, i64) = (0, 4_000_000_000);

/// The probability of the highest peak, without the search for its frequency.
fn p_value(times: &[i64]) -> f64 {
    let counts = rir::binned(times.iter().copied(), SPAN, WIDEST_BIN_NS);
    background::test(&spectrum::raw(&counts, 500.0), counts.len()).1
}

/// An AR(1) modulation with correlation time `tau` and variation `cv`.
fn red(tau: f64, cv: f64) -> impl FnMut(&mut Noise, f64) -> f64 {
    let a: f64 = (-0.002 / tau).exp();
    let mut state = 0.0;
    move |noise: &mut Noise, _| {
        state = a * state + (1.0 - a * a).sqrt() * noise.normal();
        250.0 * (1.0 + cv * state)
    }
}

fn alarms(runs: u64, mut make: impl FnMut(&mut Noise) -> Vec<i64>) -> usize {
    (0..runs)
        .filter(|run| {
            let times = make(&mut Noise(
                0x9e37_79b9_7f4a_7c15 ^ (run + 1).wrapping_mul(0x1234_5678_9abc_def1),
            ));
            p_value(&times) < SIGNIFICANT
        })
        .count()
}

#[test]
fn noise_has_no_period() {
    // At 1 % no alarm is expected. The seeds are fixed; the long tests take thousands.
    let poisson = alarms(40, |noise| noise.events(SECONDS, |_, _| 250.0));
    assert!(poisson <= 1, "Poisson: {poisson} of 40");
    for (tau, cv) in [(0.5, 0.4), (0.1, 0.4), (2.0, 0.4), (0.5, 0.1)] {
        let alarms = alarms(20, |noise| noise.events(SECONDS, red(tau, cv)));
        assert!(alarms <= 1, "AR(1) tau {tau} cv {cv}: {alarms} of 20");
    }
}

#[test]
fn bursts_have_no_period() {
    let bursty = alarms(40, |noise| {
        // Bursts of 1 to 20 events at random instants, 1 ms between their events.
        let mut times = Vec::new();
        for start in noise.events(SECONDS, |_, _| 25.0) {
            let n = (noise.uniform() * 20.0) as i64 + 1;
            let spread = |_: i64| -1_000_000.0 * noise.uniform().ln();
            times.extend((0..n).map(spread).scan(start as f64, |t, gap| {
                *t += gap;
                Some(*t as i64)
            }));
        }
        times.sort_unstable();
        times
    });
    assert!(bursty <= 1, "{bursty} of 40");
}

#[test]
fn a_modulation_of_forty_percent_is_found() {
    let mut found = 0;
    for run in 0..20u64 {
        let mut noise = Noise(77 + run * 7919);
        let mut background = red(0.5, 0.2);
        let hz = 2.0 + 0.25 * run as f64;
        let times = noise.events(SECONDS, move |noise, t| {
            background(noise, t) + 250.0 * 0.4 * (std::f64::consts::TAU * hz * t).sin()
        });
        found += usize::from(p_value(&times) < SIGNIFICANT);
    }
    assert!(found >= 19, "{found} of 20");
}

/// Super-phases of six parts, as in a multigrid cycle.
fn phases(noise: &mut Noise, repeats: usize, period: f64, jitter: f64) -> (Vec<i64>, f64) {
    let levels = [500.0, 120.0, 420.0, 60.0, 300.0, 200.0];
    let shares = [0.12, 0.18, 0.2, 0.15, 0.2, 0.15];
    let mut times = Vec::new();
    let mut t = 0.0f64;
    for _ in 0..repeats {
        for (level, share) in levels.iter().zip(shares) {
            let length = period * share * (1.0 + jitter * noise.normal()).max(0.2);
            let end = t + length;
            while t < end {
                times.push((t * 1e9) as i64);
                t += 1.0 / level * (1.0 + 0.1 * noise.normal()).clamp(0.5, 1.5);
            }
            t = end;
        }
    }
    (times, t / repeats as f64)
}

#[test]
fn super_phases_are_found_with_their_length() {
    for (repeats, period, jitter, least) in
        [(4, 4.86, 0.02, 7), (20, 0.385, 0.03, 7), (10, 2.3, 0.05, 6)]
    {
        let mut right = 0;
        for run in 0..8 {
            let (times, truth) = phases(&mut Noise(1 + run * 104_729), repeats, period, jitter);
            let span = (0, *times.last().unwrap());
            if let Verdict::Periodic { hz, .. } = estimate(&[times], span).verdict {
                right += usize::from((1.0 / hz / truth - 1.0).abs() < 0.05);
            }
        }
        assert!(right >= least, "{repeats} × {period} s: {right} of 8");
    }
}

#[test]
fn too_little_is_unknown() {
    for times in [vec![], vec![5], vec![0, 1_000_000_000]] {
        let verdict = estimate(&[times], SPAN).verdict;
        assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
    }
    assert!(matches!(
        estimate(&[], (0, -1)).verdict,
        Verdict::Unknown(_)
    ));
    assert!(matches!(
        estimate(&[vec![1; 50]], (0, 1)).verdict,
        Verdict::Unknown(_)
    ));
}

#[test]
fn the_longest_span_is_no_overflow() {
    let span = (-1 << 58, 1 << 58);
    let times = (0..64).map(|k| span.0 + k * (1 << 53)).collect();
    assert_eq!(estimate(&[times], span).span_ns.0, span.0);
}
