use super::*;
use crate::balance::Metric;
use crate::decomposition::Component;
use crate::rir::SlowdownTable;
use crate::run::{Mode, Packet, Run};
use crate::testing::{data, delayed_run_of, run_of};
use crate::trigger::{Reactive, Report};

const MS: i64 = 1_000_000;

/// Four processes in a ring that exchange every 20 ms for 10 s; process 3 takes 8 ms longer.
fn ring() -> Run {
    ring_every(20)
}

/// The same ring with this time between two exchanges, ms.
fn ring_every(ms: i64) -> Run {
    let mut packets = Vec::new();
    for step in 0..500i64 {
        let begin = step * ms * MS;
        for me in 0..4u16 {
            let late = if me == 3 { 8 * MS } else { 0 };
            for (turn, peer) in [(me + 1) % 4, (me + 3) % 4].into_iter().enumerate() {
                let t = begin + 2 * MS + late + i64::from(me) * 1000 + turn as i64 * 30_000;
                packets.push(data(t, me, peer, 1000));
            }
        }
    }
    packets.sort_by_key(|packet| packet.t_ns);
    delayed_run_of(4, &packets, 100_000)
}

/// A run at half the speed takes twice the time: by the rate and by the period. The load is also
/// applied to a third program.
#[test]
fn one_run_is_predicted_from_another() {
    let (base, slow) = (ring(), ring_every(40));
    for found in [
        predicted_time(&slow, &base),
        predicted_by_period(&slow, &base),
    ] {
        let found = found.unwrap().value;
        assert!((found.predicted_s / 20.0 - 1.0).abs() < 0.01, "{found:?}");
        assert!(found.error().abs() < 0.01, "{found:?}");
        let (before, now) = found.counts();
        assert!((now / before - 1.0).abs() < 0.01, "{found:?}");
    }
    let (rate, left) = calibrated(&base, &slow).unwrap();
    assert!(
        (rate - 50.0).abs() < 0.5 && (left - 0.5).abs() < 0.01,
        "{rate} {left}"
    );
    let table = SlowdownTable::new(vec![(rate, left), (200.0, 0.1)]).unwrap();
    let (found, mean) = slowdown_cdf(&ring_every(10), &table).unwrap().value;
    // 100 per second is a third of the way between two entries.
    assert!(
        (mean - 0.367).abs() < 0.02 && (found.median - mean).abs() < 0.02,
        "{mean}"
    );
    assert!(predicted_time(&base, &run_of(2, &[])).is_err());
}

#[test]
fn series_are_of_the_whole_and_of_each_pair() {
    let run = ring().with(|settings| settings.rate_window_s = Some(0.5));
    let found = rir_series_by_pair(&run, None).unwrap().value;
    assert_eq!(
        (found.window_s, found.step_s, found.pairs.len()),
        (0.5, 0.5, 8)
    );
    assert_eq!(found.all, rir_series(&run, None).unwrap().value.0);
    for (k, all) in found.all.iter().enumerate() {
        let sum: f64 = found.pairs.iter().map(|pair| pair.rates[k]).sum();
        assert!((sum - all).abs() < 1e-9);
    }
    let stepped = run.with(|settings| settings.rate_step_s = Some(0.1));
    assert_eq!(
        rir_series_by_pair(&stepped, None).unwrap().value.step_s,
        0.1
    );
    let thesis = ring().with(|settings| settings.mode = Mode::Thesis);
    let found = rir_series_by_pair(&thesis, None).unwrap().value;
    assert_eq!((found.window_s, found.step_s), (1.0, 0.02));
    assert!(rir_series_by_pair(&run, Some(0.1)).is_err());
}

#[test]
fn gaps_add_up_to_the_delays() {
    let run = ring();
    let gaps = bic_records(&run, None).unwrap().value;
    for process in run.all() {
        let of = gaps.iter().filter(|gap| gap.process == process);
        let sum: i64 = of.map(|gap| gap.ns).sum();
        let whole = bic_global(&run, process, None).unwrap().value;
        assert_eq!(sum, whole.delays.total.ns);
    }
}

/// 400 kB/s over 10 s. By default all traffic is reported; in thesis mode only that since the first
/// pair was hot.
#[test]
fn a_monitor_reports_what_was_sent() {
    let settings = Reactive {
        byte_threshold: 20_000,
        longest_ns: 4_000 * MS,
        ..Reactive::default()
    };
    let sent = |run: &Run| {
        let reports = reactive(run, settings).unwrap().value;
        let bytes = |report: &Report| {
            report
                .parts()
                .2
                .off_diagonal()
                .map(|cell| *cell.2)
                .sum::<u64>()
        };
        (reports.len(), reports.iter().map(bytes).sum::<u64>())
    };
    assert_eq!(sent(&ring()), (3, 4_000_000));
    let (count, bytes) = sent(&ring().with(|settings| settings.mode = Mode::Thesis));
    assert!(
        count == 3 && (3_500_000..3_900_000).contains(&bytes),
        "{count} {bytes}"
    );
    let quiet = reactive(
        &ring(),
        Reactive {
            byte_threshold: 1 << 30,
            ..settings
        },
    );
    assert!(quiet.unwrap().value.is_empty());
}

#[test]
fn all_27_calls_answer_on_a_ring() {
    let mut run = ring();
    let near = |value: f64, expected: f64, share: f64| {
        assert!(
            (value / expected - 1.0).abs() < share,
            "{value} is not {expected}"
        );
    };
    // 1 to 3.
    let matrix = traffic_matrix(&run, None).unwrap().value;
    assert_eq!(matrix.at(0, 1).payload_bytes, 500_000);
    assert_eq!(matrix.at(0, 2).payload_bytes, 0);
    set_smoothing(&mut run, 0.1, 2.0).unwrap();
    let topology = smoothed_topology(&run).unwrap().value;
    assert_eq!(topology.topology.edges.len(), 8);
    let names: Vec<String> = topology
        .topology
        .archetypes
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["ring", "2×2 mesh"]);
    assert_eq!(topology.changes.len(), 1);
    assert!(set_smoothing(&mut run, 0.0, 1.0).is_err());
    // 4 to 7.
    let rates = rir_rate(&run, None).unwrap().value;
    near(rates.rate, 50.0, 0.01);
    let (once, four) = rates.pairs[0].sensitivity.unwrap();
    assert_eq!(once, four);
    near(rir_rate(&run, Some(2.0)).unwrap().value.rate, 50.0, 0.02);
    let (average, seconds) = stationary_rir_avg(&run).unwrap().value;
    near(average, 400.0, 0.05);
    assert!(seconds >= 1.0, "{seconds}");
    near(rir_cdf(&run).unwrap().value.median, 400.0, 0.05);
    assert_eq!(representative_period(&run).unwrap().value, seconds);
    // 8 to 12.
    let spectrum = power_spectrum(&run, None).unwrap().value;
    assert!(spectrum.p_value.unwrap() < 0.01);
    assert!(
        !power_spectrum_avg(&run)
            .unwrap()
            .value
            .spectrum
            .power
            .is_empty()
    );
    let peaks = power_spectrum_peaks(&run).unwrap().value;
    assert!(
        (peaks[0].hz / 50.0 - (peaks[0].hz / 50.0).round()).abs() < 0.01,
        "{:?}",
        peaks[0]
    );
    near(
        super_phase(&run).unwrap().value.seconds.unwrap(),
        0.02,
        0.02,
    );
    set_spectrum_cutoff(&mut run, 10.0).unwrap();
    assert!(set_spectrum_cutoff(&mut run, 100.0).is_err());
    // 13 and 14.
    let global = bic_global(&run, 3, None).unwrap().value;
    assert!(global.gaps >= 999, "{}", global.gaps);
    let pairs: f64 = [0, 2]
        .iter()
        .map(|&peer| bic_pair(&run, 3, peer, None).unwrap().value.seconds)
        .sum();
    near(pairs, global.seconds, 1e-9);
    // 15 to 18.
    let imbalance = imbalance_global(&run, None).unwrap().value;
    assert!(imbalance.range.low <= imbalance.range.high);
    let bias = imbalance_bias(&run, None).unwrap().value;
    assert!(bias.range.low <= bias.range.high && !bias.parts.is_empty());
    let several = imbalance_multiload(&run, None, None).unwrap().value;
    assert!(!several.rounds.optimistic.is_empty());
    assert!(imbalance_multiload(&run, None, Some(1.5)).is_err());
    for metric in [
        Metric::StandardDeviation,
        Metric::SquaredDistance,
        Metric::InterProcess,
    ] {
        assert!(
            application_imbalance(&run, metric)
                .unwrap()
                .value
                .is_finite()
        );
    }
    // 19 to 26.
    assert_eq!(message_count(&run, 0, 1, None).unwrap().value, 500);
    assert_eq!(message_count(&run, 0, 2, None).unwrap().value, 0);
    assert_eq!(message_counts(&run, None).unwrap().value.len(), 8);
    near(
        latency_time(&run, 0, 1, None).unwrap().value.seconds,
        0.05,
        1e-6,
    );
    near(
        avg_latency(&run, 0, 1, None).unwrap().value[0].1,
        1e-4,
        1e-6,
    );
    near(latency_times(&run, None).unwrap().value[0].2, 0.05, 1e-6);
    assert_eq!(transfer_time(&run, 0, 1, None).unwrap().value, 0.0);
    assert_eq!(transfer_times(&run, None).unwrap().value.len(), 8);
    assert!(
        avg_bandwidth(&run, 0, 1, None).is_err(),
        "single segments have none"
    );
    // 27.
    let most = most_imbalanced(&run, None).unwrap().value;
    assert!(!most.all.is_empty());
}

#[test]
fn large_messages_have_a_bandwidth() {
    let mut packets = Vec::new();
    for i in 0..50i64 {
        for part in 0..4i64 {
            let mut packet = data(i * 20 * MS + part * MS, 0, 1, 1000);
            if part < 3 {
                packet.flags = crate::run::ACK;
            }
            packets.push(packet);
        }
        packets.push(data(i * 20 * MS + 10 * MS, 1, 0, 10));
    }
    let run = run_of(2, &packets);
    let series = avg_bandwidth(&run, 0, 1, None).unwrap().value;
    assert!((series[0].1 - 1e6).abs() < 1.0, "{series:?}");
    assert!((transfer_time(&run, 0, 1, None).unwrap().value - 0.15).abs() < 1e-9);
    // In rounds that are all alike it is not known which process waits: the loss may be nothing or
    // everything.
    let most = most_imbalanced(&run, None).unwrap().value;
    assert_eq!(most.all[0].component, Component::NetworkBandwidth(0, 1));
    assert!((most.all[0].lost_s.high - 0.15).abs() < 0.01, "{most:?}");
}

#[test]
fn nothing_is_unknown_and_never_zero_or_a_panic() {
    let half = ring().within(-5, -1);
    for run in [Run::new(Vec::new(), Vec::new()), run_of(2, &[]), half] {
        for mode in [Mode::Default, Mode::Thesis] {
            let run = run.with(|settings| settings.mode = mode);
            assert!(traffic_matrix(&run, None).is_err());
            assert!(smoothed_topology(&run).is_err());
            assert!(rir_rate(&run, Some(1.0)).is_err());
            assert!(stationary_rir_avg(&run).is_err());
            assert!(rir_cdf(&run).is_err());
            assert!(representative_period(&run).is_err());
            assert!(power_spectrum(&run, None).is_err());
            assert!(power_spectrum_avg(&run).is_err());
            assert!(power_spectrum_peaks(&run).is_err());
            assert!(super_phase(&run).is_err());
            assert!(imbalance_global(&run, None).is_err());
            assert!(imbalance_bias(&run, None).is_err());
            assert!(imbalance_multiload(&run, None, None).is_err());
            assert!(application_imbalance(&run, Metric::InterProcess).is_err());
            assert!(message_counts(&run, None).is_err());
            assert!(latency_times(&run, None).is_err());
            assert!(transfer_times(&run, None).is_err());
            assert!(most_imbalanced(&run, None).is_err());
            if run.nodes().len() > 1 {
                assert!(bic_global(&run, 0, None).is_err());
                assert!(bic_pair(&run, 0, 1, None).is_err());
                assert!(message_count(&run, 0, 1, None).is_err());
                assert!(latency_time(&run, 0, 1, None).is_err());
                assert!(avg_latency(&run, 0, 1, None).is_err());
                assert!(transfer_time(&run, 0, 1, None).is_err());
                assert!(avg_bandwidth(&run, 0, 1, None).is_err());
            }
        }
    }
}

#[test]
fn thesis_mode_answers_too() {
    let run = ring().with(|settings| settings.mode = Mode::Thesis);
    let rates = rir_rate(&run, None).unwrap().value;
    assert!((rates.rate / 50.0 - 1.0).abs() < 0.05, "{}", rates.rate);
    assert!(
        rir_rate(&run, Some(0.5)).is_err(),
        "shorter than the window"
    );
    assert!(
        !power_spectrum(&run, None)
            .unwrap()
            .value
            .spectrum
            .power
            .is_empty()
    );
    assert_eq!(imbalance_bias(&run, None).unwrap().value.others.len(), 3);
    assert!(message_count(&run, 0, 1, None).unwrap().value > 0);
}

/// Three workers compute 50, 50 and 150 ms, 30 times, and their coordinator answers all of them then:
/// two thirds of the run are lost by the third.
#[test]
fn a_loaded_worker_costs_no_more_than_it_takes_longer() {
    let mut packets = Vec::new();
    for round in 0..30 {
        let begin = 151 * MS * round;
        packets.extend(
            [(1, 50), (2, 51), (3, 150)].map(|(worker, ms)| data(begin + ms * MS, worker, 0, 1000)),
        );
        packets.extend([1, 2, 3].map(|worker| {
            data(
                begin + 150 * MS + i64::from(worker) * 100_000,
                0,
                worker,
                500,
            )
        }));
    }
    let run = run_of(4, &packets);
    let bias = imbalance_bias(&run, None).unwrap().value;
    assert!((2.8..=3.1).contains(&bias.range.low), "{bias:?}");
    assert!((2.8..=3.1).contains(&bias.range.high), "{bias:?}");
    let several = imbalance_multiload(&run, None, None).unwrap().value;
    assert!((2.8..=3.1).contains(&several.range.low), "{several:?}");
    assert!((2.8..=3.1).contains(&several.range.high), "{several:?}");
    for rounds in [&several.rounds.optimistic, &several.rounds.pessimistic] {
        assert_eq!(rounds[0].process, 3);
        for round in &rounds[1..] {
            assert!(
                round.process != 0 && round.seconds < 0.1 && !round.counts,
                "{round:?}"
            );
        }
    }
    // Only the coordinator and one worker: the coordinator answers twice as much.
    let is_of_two = |packet: &&Packet| packet.src < 3 && packet.dst < 3;
    let two: Vec<Packet> = packets.iter().filter(is_of_two).copied().collect();
    let several = imbalance_multiload(&run_of(3, &two), None, None)
        .unwrap()
        .value;
    assert!(several.range.high < 0.2, "{several:?}");
}
