//! The methods compared with the reference captures, and with the truth about them.

use std::path::Path;

use crate::pop::Basis;
use crate::testing::{reference, true_period, unpacked};
use crate::{Mode, analysis, calls, matrix, messages, repeat, rir};

#[test]
fn payload_and_repetitions_are_those_of_the_captures() {
    for (name, repeated, first_row) in [
        ("is.S", 0, [201_184, 204_186, 180_836]),
        ("mg.S", 0, [219_612, 257_884, 156]),
        ("lu.S", 2, [426_476, 426_476, 68]),
        ("mg.W-quota-none", 19, [3_228_644, 3_372_822, 156]),
        ("mg.W-quota-full", 49, [3_227_632, 3_375_414, 156]),
    ] {
        let Some(run) = reference(name) else {
            return;
        };
        let traffic = matrix::traffic(&run).unwrap();
        let again: u64 = traffic.off_diagonal().map(|(.., cell)| cell.repeated).sum();
        assert_eq!(again, repeated, "{name}: repeated segments");
        for (peer, bytes) in first_row.into_iter().enumerate() {
            let cell = traffic.at(0, peer + 1);
            assert_eq!(
                cell.payload_bytes + cell.repeated_bytes,
                bytes,
                "{name} 1->{}",
                peer + 2
            );
        }
        // Both ends saw the same.
        let received = matrix::received(&run);
        for (src, dst, sent) in traffic.off_diagonal() {
            let got = received.at(src, dst).unwrap_or_default();
            assert_eq!(
                (sent.packets, sent.payload_bytes),
                (got.packets, got.payload_bytes)
            );
        }
    }
}

#[test]
fn iterations_of_lu() {
    let Some(run) = reference("lu.S") else {
        return;
    };
    let events = rir::events(&run).unwrap();
    let pair = events.iter().find(|e| (e.me, e.peer) == (0, 1)).unwrap();
    // 51 iterations with two exchanges of each pair, and some setup.
    assert!(
        (100..=118).contains(&pair.times_ns.len()),
        "{}",
        pair.times_ns.len()
    );
}

#[test]
fn iterations_are_those_of_the_programs() {
    // Timed iterations, and the untimed one before, whose length differs a little.
    for (name, count, tolerance) in [
        ("is.S", 9..=11, 0.08),
        ("mg.S", 3..=5, 0.08),
        ("lu.S", 48..=51, 0.02),
        ("mg.W-quota-none", 3..=5, 0.05),
        ("mg.W-quota-full", 3..=5, 0.05),
    ] {
        let Some(run) = reference(name) else {
            return;
        };
        let found = repeat::iterations(&messages::messages(&run).unwrap()).unwrap();
        let truth = true_period(name);
        eprintln!(
            "{name}: {:.6} s, true {truth:.6}, {} {:?}",
            found.period_s, found.count, found.range_s
        );
        for pair in &found.pairs {
            eprintln!(
                "   {}->{} {} bytes score {:.2} {} times",
                pair.src,
                pair.dst,
                pair.bytes,
                pair.score,
                pair.times_ns.len()
            );
        }
        assert!(
            count.contains(&found.count),
            "{name}: {} iterations",
            found.count
        );
        let error = found.period_s / truth - 1.0;
        assert!(
            error.abs() < tolerance,
            "{name}: {} s, true {truth}",
            found.period_s
        );
    }
}

#[test]
fn messages_are_the_librarys() {
    // Number of sends of LU: 19 270 in class W; here 1 128 point-to-point and collectives, 1 175 by
    // PSH.
    let Some(run) = reference("lu.S") else {
        return;
    };
    let found = messages::messages(&run).unwrap();
    let of_rank_0 = found.iter().filter(|m| m.src == 0).count();
    assert!((1_165..=1_185).contains(&of_rank_0), "{of_rank_0}");
    let turns = messages::messages(&run.with(|s| s.mode = Mode::Thesis)).unwrap();
    let of_rank_0 = turns.iter().filter(|m| m.src == 0).count();
    assert!((200..=260).contains(&of_rank_0), "{of_rank_0}");
}

/// Messages of several sizes are cut only at their pushes.
#[test]
fn messages_of_mixed_programs_are_those_of_their_pushes() {
    for (name, count) in [
        ("is.S", 411),
        ("mg.S", 1955),
        ("lu.S", 4695),
        ("mg.W-quota-none", 3390),
        ("mg.W-quota-full", 3380),
    ] {
        let Some(run) = reference(name) else {
            return;
        };
        let found = messages::messages(&run).unwrap();
        assert_eq!(found.len(), count, "{name}");
    }
}

/// Kernels of mixed messages do not show that one rank computed more than another.
#[test]
fn slowdown_claims_nothing_of_mixed_programs() {
    for name in ["is.S", "mg.S", "lu.S", "mg.W-quota-none", "mg.W-quota-full"] {
        let Some(run) = reference(name) else {
            return;
        };
        assert!(analysis::slowdown(&run).is_err(), "{name}");
    }
}

#[test]
fn the_loaded_host_is_named_by_its_delays() {
    let Some(run) = reference("mg.W-quota-full") else {
        return;
    };
    let gate = calls::imbalance_global(&run, None).unwrap().value.gate;
    assert!(gate.is_open && gate.loaded == 3, "{gate:?}");
    let Some(run) = reference("mg.W-quota-none") else {
        return;
    };
    let gate = calls::imbalance_global(&run, None).unwrap().value.gate;
    assert!(!gate.is_open, "{gate:?}");
}

/// Time of each rank outside of library calls within a span, s.
fn true_useful(name: &str, span_ns: (i64, i64)) -> Option<Vec<f64>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let of_rank = |rank: usize| {
        let path = root.join(name).join(format!("events.{rank}.gz"));
        let text = String::from_utf8(unpacked(&path)?).unwrap();
        let seconds = |cell: Option<&str>| cell.unwrap().parse::<f64>().unwrap();
        let span = (span_ns.0 as f64 / 1e9, span_ns.1 as f64 / 1e9);
        let inside = text.lines().map(|line| {
            let mut cells = line.split_whitespace();
            let (enter, leave) = (seconds(cells.next()), seconds(cells.next()));
            (leave.min(span.1) - enter.max(span.0)).max(0.0)
        });
        Some(span.1 - span.0 - inside.sum::<f64>())
    };
    (0..4).map(of_rank).collect()
}

/// Kernels of mixed messages: packets bound what their ranks computed.
#[test]
fn efficiencies_of_mixed_programs_hold_the_truth() {
    for name in ["is.S", "mg.S", "lu.S", "mg.W-quota-none", "mg.W-quota-full"] {
        let Some(run) = reference(name) else {
            return;
        };
        let known = analysis::pop_metrics(&run).unwrap();
        let (span, pop) = ((known.t0_ns, known.t1_ns), known.value);
        let run_s = (span.1 - span.0) as f64 / 1e9;
        assert_eq!(pop.basis, Basis::Bounds, "{name}");
        let Some(useful) = true_useful(name, span) else {
            return;
        };
        let most = useful.iter().copied().fold(0.0, f64::max);
        let mean = useful.iter().sum::<f64>() / 4.0;
        for (title, share, truth) in [
            ("parallel", pop.parallel, mean / run_s),
            ("load balance", pop.load_balance, mean / most),
            ("communication", pop.communication, most / run_s),
        ] {
            println!(
                "{name}: {title}: {:.3} to {:.3}, true {truth:.3}",
                share.low, share.high
            );
            assert!(share.low <= truth && truth <= share.high, "{name}: {title}");
            assert_eq!(share.point(), None, "{name}: {title} is wide");
        }
        assert!(pop.parallel.high < 0.8, "{name}: all of them wait a lot");
        assert_eq!((pop.serialisation, pop.transfer), (None, None));
    }
}
