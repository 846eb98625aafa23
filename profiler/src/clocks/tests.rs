use super::hull::Hull;
use super::pair::{Ways, fit};
use super::*;

/// Delays with a floor, from an LCG, so that every run has the same.
fn delays(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let part = (state >> 40) as f64 / (1 << 24) as f64;
        300.0 + 40_000.0 * part * part
    }
}

fn shifted(offset_ns: f64, drift: f64, seconds: f64) -> Fit {
    let mut delay = delays(7);
    let mut ways = Ways::default();
    // The clock of B at true time t: `offset_ns` ahead at 0, and running faster.
    let b = |t: f64| t + offset_ns + drift * t;
    for step in 0..5000 {
        let t = f64::from(step) * seconds * 1e9 / 5000.0;
        ways.add(0, t, b(t + delay()));
        let sent = t + 90_000.0;
        ways.add(1, sent + delay(), b(sent));
    }
    fit([&ways].into_iter()).unwrap()
}

#[test]
fn offset_and_drift_are_recovered() {
    for (offset, drift) in [
        (-1_500_000.0, 37e-6),
        (2_500_000.0, -12e-6),
        (3.6e12, 88e-6),
        (0.0, 0.0),
    ] {
        let fit = shifted(offset, drift, 3.0);
        for t in [0.0_f64, 1.5e9, 3e9] {
            let shown = t + offset + drift * t;
            let error = (fit.scale.apply(shown) - t).abs();
            assert!(
                error < 1000.0,
                "{offset} {drift}: {error} ns at {t}, {fit:?}"
            );
        }
        assert!((fit.scale.drift - drift).abs() < 0.2e-6, "{fit:?}");
        assert!(fit.error_ns >= 299.0 && fit.error_ns < 1000.0, "{fit:?}");
    }
}

#[test]
fn a_short_recording_gives_an_offset_alone() {
    let fit = shifted(-1_500_000.0, 37e-6, 0.01);
    assert_eq!(fit.scale.drift, 0.0);
    assert!(
        (fit.scale.offset_ns - 1_500_000.0).abs() <= fit.error_ns,
        "{fit:?}"
    );
}

#[test]
fn times_that_contradict_each_other_are_not_called_exact() {
    let mut ways = Ways::default();
    let mut delay = delays(11);
    for step in 0..2000 {
        let t = f64::from(step) * 1e6;
        // For a short time B's times are 9 µs too early, so that packets arrive before they were sent.
        let b = |t: f64| match step {
            1000..1010 => t - 9_000.0,
            _ => t,
        };
        ways.add(0, t, b(t + delay()));
        ways.add(1, t + 90_000.0 + delay(), b(t + 90_000.0));
    }
    let fit = fit([&ways].into_iter()).unwrap();
    for t in [0.0_f64, 1e9, 2e9] {
        let off = (fit.scale.apply(t) - t).abs();
        assert!(
            fit.error_ns > 1000.0 && off <= fit.error_ns,
            "{off} {fit:?}"
        );
    }
}

#[test]
fn a_hull_in_parts_is_the_same() {
    let mut delay = delays(3);
    let points: Vec<_> = (0..30_000).map(|i| (f64::from(i), delay())).collect();
    let mut one = Hull::default();
    points.iter().for_each(|&point| one.add(point));
    let (mut a, mut b) = (Hull::default(), Hull::default());
    points[..9000].iter().for_each(|&point| a.add(point));
    points[9000..].iter().for_each(|&point| b.add(point));
    a.join(&b);
    assert_eq!(one.corners(), a.corners());
    assert!(one.corners().len() < 200);
    let lowest = |points: &[(f64, f64)]| points.iter().map(|p| p.1).fold(f64::MAX, f64::min);
    assert_eq!(lowest(one.corners()), lowest(&points));
}

#[test]
fn relations_go_over_several_hosts() {
    let there = Fit {
        scale: Scale {
            offset_ns: 500.0,
            drift: 1e-5,
        },
        error_ns: 3.0,
        matched: 10,
        span: (0.0, 1e9),
    };
    let found = shortest(
        1,
        &[
            ((1, 2), there),
            ((2, 3), there),
            (
                (1, 3),
                Fit {
                    error_ns: 90.0,
                    ..there
                },
            ),
        ],
    );
    assert_eq!(found[&3].error_ns, 6.0);
    let t = 7e8;
    let once = there.scale.apply(t);
    assert!((found[&3].scale.apply(t) - there.scale.apply(once)).abs() < 0.01);
    assert!((there.scale.inverse().apply(once) - t).abs() < 0.01);
}

/// The stored correction is exact where the packets are, however far that is from time 0: a host may
/// have been an hour behind.
#[test]
fn a_stored_drift_is_exact_where_the_packets_are() {
    let start = 2.9e15;
    let related = Related {
        scale: Scale {
            offset_ns: -12.5e9,
            drift: 143.4e-9,
        },
        error_ns: 320.0,
        matched: 10,
        span: (start, start + 4e9),
    };
    let before = Scale {
        offset_ns: 7.5e9,
        drift: 1e-8,
    };
    for before in [Scale::SAME, before] {
        let (stored, at_start_ns) = related.correction(before);
        assert_eq!(
            stored.drift_ppb,
            ((before.drift + 143.4e-9) * 1e9).round() as i64
        );
        assert_eq!(stored.error_ns, Some(321));
        for t in [start, start + 2e9, start + 4e9] {
            let own = before.inverse().apply(t);
            let truth = before.then(related.scale);
            // As exact as floating point allows at such times.
            let true_offset = truth.offset_ns - truth.drift * own;
            let offset = stored.offset_ns as f64 - stored.drift_ppb as f64 / 1e9 * own;
            assert!((offset - true_offset).abs() < 2.0, "{offset} {true_offset}");
        }
        let own = before.inverse().apply(start);
        let added = stored.offset_ns as f64 - stored.drift_ppb as f64 / 1e9 * own;
        assert!((at_start_ns as f64 - added).abs() <= 1.0);
    }
}

/// Hosts that agree are not corrected when only the one between them is far off.
#[test]
fn the_times_of_a_relation_are_those_of_its_host() {
    let fit = |offset_ns, from: f64| Fit {
        scale: Scale {
            offset_ns,
            drift: if offset_ns < 0.0 { 1.5e-7 } else { -1.5e-7 },
        },
        error_ns: 300.0,
        matched: 10,
        span: (from, from + 1e9),
    };
    // The clock of 2 is 100 s ahead of both others.
    let found = shortest(1, &[((1, 2), fit(-1e11, 0.0)), ((2, 3), fit(1e11, 1e11))]);
    assert!((found[&2].span.0 - 1e11).abs() < 2e4, "{:?}", found[&2]);
    assert!(found[&3].span.0.abs() < 4e4, "{:?}", found[&3]);
}
