use super::*;
use crate::messages;
use crate::run::Run;
use crate::testing::{Bsp, Noise, Style, bsp, data, run_of};

const S: f64 = 1e9;

fn of(run: &Run) -> Schedule {
    schedule(&messages::messages(run).unwrap(), run.nodes().len())
}

/// Section 3.6b: two processes compute 1 and 2, then both send. The delays are 1 and 1.
#[test]
fn an_exchange_shows_both_computations() {
    let mut noise = Noise(3);
    let mut packets = Vec::new();
    let mut t = 0.0;
    for _ in 0..200 {
        let (fast, slow) = (1.0 + 0.05 * noise.normal(), 2.0 + 0.1 * noise.normal());
        packets.push(data(((t + fast) * S) as i64, 0, 1, 100));
        packets.push(data(((t + slow) * S) as i64, 1, 0, 100));
        t += fast.max(slow);
    }
    let schedule = of(&run_of(2, &packets));
    let work = schedule.work_s();
    assert!((work[0].1 / 199.0 - 1.0).abs() < 0.1, "{work:?}");
    assert!(
        (work[1].1 / 199.0 - 2.0).abs() < 0.2,
        "{work:?} {:?}",
        schedule.certainty
    );
    assert_eq!(schedule.certainty.open, 0);
    assert!((work[1].0 - work[1].1).abs() < 1e-6);
}

/// The same packets as a half-duplex ping-pong in which each process computes 1. Varying times
/// distinguish the two.
#[test]
fn a_ping_pong_shows_what_each_computed() {
    let mut noise = Noise(5);
    let mut packets = Vec::new();
    let mut t = 0.0;
    for _ in 0..200 {
        t += 1.0 + 0.05 * noise.normal();
        packets.push(data((t * S) as i64, 0, 1, 100));
        t += 1.0 + 0.1 * noise.normal();
        packets.push(data((t * S) as i64, 1, 0, 100));
    }
    let schedule = of(&run_of(2, &packets));
    let work = schedule.work_s();
    assert!(
        (work[0].1 / 199.0 - 1.0).abs() < 0.1,
        "{work:?} {:?}",
        schedule.certainty
    );
    assert!(
        (work[1].1 / 199.0 - 1.0).abs() < 0.1,
        "{work:?} {:?}",
        schedule.certainty
    );
}

#[test]
fn a_loaded_process_of_a_ring_shows_its_work() {
    for style in [Style::AllFirst, Style::ByEdge] {
        let program = Bsp {
            style,
            work_s: vec![0.004, 0.004, 0.008, 0.004],
            ..Bsp::ring(4)
        };
        let schedule = of(&bsp(&program).run);
        let work = schedule.work_s();
        for (node, expected) in program.work_s.iter().enumerate() {
            let per_round = work[node].1 / program.rounds as f64;
            assert!(
                (per_round / expected - 1.0).abs() < 0.15,
                "{style:?}, {node}: {per_round} is not {expected}; {:?}",
                schedule.certainty
            );
        }
    }
}

#[test]
fn nothing_has_no_schedule() {
    let schedule = schedule(&[], 3);
    assert_eq!(schedule.work_s(), [(0.0, 0.0); 3]);
}

/// A server answers many clients in turn. A message for which it waited before an earlier answer is not
/// repeated for all later ones.
#[test]
fn a_wait_of_an_earlier_send_is_not_repeated() {
    let clients = 40;
    let mut packets = Vec::new();
    for request in 0..2000i64 {
        let client = (request * 7 % clients + 1) as Node;
        packets.push(data(request * 1000, client, 0, 100));
        packets.push(data(request * 1000 + 300, 0, client, 500));
    }
    let schedule = of(&run_of(clients as usize + 1, &packets));
    let waits = |step: &Step| {
        let lists = [
            schedule.needs(step),
            schedule.may_need(step),
            schedule.may_hold(step),
        ];
        lists.concat()
    };
    let mut all: Vec<u32> = schedule.steps.iter().flat_map(waits).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    // A message that may have been needed before may finally be needed.
    assert!(count <= 2 * all.len(), "{count} of {}", all.len());
    assert!(all.len() <= schedule.messages.len());
    // Every answer waits for its request.
    let answers = schedule.steps.iter().filter(|step| step.process == 0);
    let is_waiting = |step: &Step| !waits(step).is_empty();
    assert!(answers.clone().count() == 2000 && answers.clone().all(is_waiting));
}

/// The conclusion from numbers and sizes without a schedule is that of the schedule.
#[test]
fn a_schedule_that_would_show_nothing_is_known_before() {
    let packets = |sends: [usize; 2], odd: u32| {
        let of = |me: usize, i: usize| {
            let bytes = if i.is_multiple_of(3) { 100 + odd } else { 100 };
            let t = (i * 2 + me) as i64 * 1_000_000;
            data(t, me as u16, 1 - me as u16, bytes)
        };
        let all = (0..2).flat_map(|me| (0..sends[me]).map(move |i| of(me, i)));
        run_of(2, &all.collect::<Vec<_>>())
    };
    for (sends, odd, expected) in [
        ([100, 100], 0, false),
        ([100, 60], 0, true),
        ([100, 100], 7, true),
        ([8, 8], 0, true),
    ] {
        let run = packets(sends, odd);
        let found = messages::messages(&run).unwrap();
        let schedule = of(&run);
        let shows = schedule.certainty.loose == 0 && schedule.are_alike;
        assert_eq!(shows_nothing(&found), expected, "{sends:?} {odd}");
        assert_eq!(shows, !expected, "{sends:?} {odd}");
    }
}

/// A ring with two slow neighbours. The others each wait for one of these, and one of them sends at the
/// same short distance after the other in every round.
#[test]
fn a_send_after_another_by_chance_does_not_follow_it() {
    for (seed, works) in [(1, [1.0, 1.0, 1.81, 1.69]), (2, [1.0, 1.0, 1.46, 1.53])] {
        let made = bsp(&Bsp {
            work_s: works.map(|work| 0.003 * work).to_vec(),
            style: Style::ByEdge,
            jitter: 0.005,
            seed,
            ..Bsp::ring(4)
        });
        let schedule = of(&made.run);
        assert!(!schedule.takes_turns && schedule.is_exchange, "{works:?}");
    }
}
