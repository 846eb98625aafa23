use super::*;
use crate::run::Packet;
use crate::testing::{Noise, data, run_of};

/// A program of some processes in a row, in which neighbours exchange messages.
struct Program {
    nodes: Vec<Node>,
    noise: Noise,
    jitter: f64,
    t_s: f64,
    packets: Vec<Packet>,
}

impl Program {
    fn new(nodes: &[Node], seed: u64, jitter: f64) -> Program {
        let noise = Noise((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Program {
            nodes: nodes.to_vec(),
            noise,
            jitter,
            t_s: 0.0,
            packets: Vec::new(),
        }
    }

    /// Computes for about this time, then all neighbours exchange messages of this size.
    fn step(&mut self, seconds: f64, bytes: u32) {
        self.t_s += seconds * (1.0 + self.jitter * self.noise.normal()).max(0.2);
        for pair in self.nodes.windows(2) {
            let t_ns = (self.t_s * 1e9) as i64;
            self.packets.push(data(t_ns, pair[0], pair[1], bytes));
            self.packets
                .push(data(t_ns + 60_000, pair[1], pair[0], bytes));
        }
    }

    /// A size that does not come again.
    fn any_size(&mut self) -> u32 {
        40 + (self.noise.uniform() * 1300.0) as u32
    }
}

fn found(programs: Vec<Program>) -> Vec<Component> {
    let nodes = programs.iter().flat_map(|program| &program.nodes);
    let nodes = usize::from(*nodes.max().unwrap()) + 1;
    let mut packets: Vec<Packet> = programs
        .into_iter()
        .flat_map(|program| program.packets)
        .collect();
    packets.sort_by_key(|packet| packet.t_ns);
    of_run(&run_of(nodes, &packets)).unwrap()
}

fn shown(components: &[Component]) -> Vec<Vec<(f64, f64, Basis)>> {
    let of = |component: &Component| {
        let periods = component.periods.iter();
        periods.map(|p| (p.seconds, p.count, p.basis)).collect()
    };
    components.iter().map(of).collect()
}

fn is_near(seconds: f64, truth: f64, share: f64) -> bool {
    (seconds / truth - 1.0).abs() <= share
}

/// A solver: rounds of three exchanges. Some rounds are followed by a tail of other exchanges of the
/// same sizes.
fn solver(seed: u64, jitter: f64, outer: usize, inner: usize) -> (Program, f64) {
    let mut program = Program::new(&[0, 1, 2, 3], seed, jitter);
    // The setup is one step outside of the loop.
    program.step(0.001, 700);
    let mut begins = Vec::new();
    for _ in 0..outer {
        begins.push(program.t_s);
        for _ in 0..inner {
            program.step(0.0009, 1400);
            program.step(0.0003, 56);
            program.step(0.0003, 56);
        }
        program.step(0.0009, 1400);
        program.step(0.0003, 56);
    }
    let truth = (begins[outer - 1] - begins[0]) / (outer - 1) as f64;
    (program, truth)
}

#[test]
fn nested_loops_are_both_reported() {
    for (seed, jitter, outer, inner) in [
        (1, 0.02, 15, 26),
        (2, 0.15, 15, 26),
        (3, 0.08, 8, 40),
        (4, 0.1, 30, 10),
    ] {
        let (program, truth) = solver(seed, jitter, outer, inner);
        let components = found(vec![program]);
        assert_eq!(components.len(), 1);
        let periods = &components[0].periods;
        let text = format!(
            "{outer} × {inner}, jitter {jitter}, true {truth}: {:?}",
            shown(&components)
        );
        assert_eq!(
            (periods[0].basis, periods[1].basis),
            (Basis::Messages, Basis::Inner),
            "{text}"
        );
        assert!(is_near(periods[0].seconds, truth, 0.02), "{text}");
        assert!((periods[0].count - outer as f64).abs() <= 1.0, "{text}");
        assert!(is_near(periods[1].seconds, 0.0015, 0.05), "{text}");
        assert!(
            periods[0].p_value.unwrap() < 1e-6 && periods.len() == 2,
            "{text}"
        );
    }
}

/// Iterations that were delayed or quick at the end of a run are iterations all the same.
#[test]
fn quick_and_slow_iterations_at_the_ends_count() {
    for speeds in [[1.0, 0.2], [1.0, 8.0]] {
        let mut program = Program::new(&[0, 1, 2, 3], 5, 0.05);
        let mut begins = Vec::new();
        for k in 0..16 {
            begins.push(program.t_s);
            let speed = speeds[usize::from(k >= 13)];
            for bytes in [900, 60, 340, 60, 1200] {
                program.step(0.002 * speed, bytes);
            }
        }
        let truth = (begins[15] - begins[0]) / 15.0;
        let found = found(vec![program]).remove(0).iterations.unwrap();
        assert!((15..=16).contains(&found.count), "{}", found.count);
        assert!(
            is_near(found.period_s, truth, 0.08),
            "{} {truth}",
            found.period_s
        );
    }
}

#[test]
fn phases_of_the_rate_are_found_behind_the_iteration() {
    let mut right = 0;
    let mut wrong = Vec::new();
    for seed in 0..12 {
        let jitter = 0.02 + 0.13 * seed as f64 / 11.0;
        let mut program = Program::new(&[0, 1, 2], 100 + seed, jitter);
        let repeats = 6 + seed as usize % 6;
        for _ in 0..repeats {
            for (steps, seconds) in [(100, 0.02), (40, 0.05)] {
                for _ in 0..steps {
                    program.step(seconds / 2.0, 1000);
                    program.step(seconds / 2.0, 300);
                }
            }
        }
        let truth = program.t_s / repeats as f64;
        let components = found(vec![program]);
        let periods = &components[0].periods;
        assert!(
            is_near(periods[0].seconds, truth / 140.0, 0.03),
            "{:?}",
            shown(&components)
        );
        assert_eq!(periods[0].basis, Basis::Messages);
        let is_right = |p: &&Period| is_near(p.seconds, truth, 0.05) && p.basis == Basis::Rate;
        right += usize::from(periods.iter().any(|p| is_right(&p)));
        let others = periods[1..].iter().filter(|p| !is_right(p));
        wrong.extend(others.map(|p| (seed, truth, p.seconds, p.p_value)));
    }
    println!("{right} of 12");
    assert!(
        right >= 11 && wrong.is_empty(),
        "{right} of 12; wrong: {wrong:?}"
    );
}

/// Two programs with phases of different rates, on hosts of their own and with one host in common.
#[test]
fn two_programs_have_each_their_period() {
    let mut right = 0;
    for seed in 0..8u64 {
        let second: &[Node] = if seed % 2 == 0 { &[2, 3] } else { &[1, 2] };
        let jitter = 0.02 + 0.13 * seed as f64 / 7.0;
        let of = |nodes: &[Node], seed: u64, period: f64| {
            let mut program = Program::new(nodes, seed, jitter);
            while program.t_s < 40.0 {
                for share in [0.1, 0.9] {
                    // As many steps in a tenth of the period as in the rest of it.
                    for _ in 0..30 {
                        let bytes = program.any_size();
                        program.step(period * share / 30.0, bytes);
                    }
                }
            }
            program
        };
        let components = found(vec![
            of(&[0, 1], 2 * seed, 2.0),
            of(second, 2 * seed + 1, 5.0),
        ]);
        let all: Vec<f64> = components
            .iter()
            .flat_map(|c| &c.periods)
            .map(|p| p.seconds)
            .collect();
        let has = |truth: f64| {
            components
                .iter()
                .any(|c| c.periods.iter().any(|p| is_near(p.seconds, truth, 0.06)))
        };
        let is_right = components.len() == 2 && has(2.0) && has(5.0) && all.len() == 2;
        right += usize::from(is_right);
        if !is_right {
            eprintln!("{seed}, jitter {jitter:.2}: {:?}", shown(&components));
        }
    }
    println!("{right} of 8");
    assert!(right >= 7, "{right} of 8");
}

/// A light pair that both programs have in common, such as a launcher, does not make them one program.
#[test]
fn a_light_pair_joins_nothing() {
    let bytes = |list: &[(Pair, u64)]| list.iter().copied().collect::<BTreeMap<Pair, u64>>();
    let two = joined(&bytes(&[((0, 1), 1000), ((2, 3), 800), ((1, 2), 20)]));
    assert_eq!(two, [vec![(0, 1)], vec![(2, 3)]]);
    let one = joined(&bytes(&[((0, 1), 1000), ((2, 3), 800), ((1, 2), 200)]));
    assert_eq!(one, [vec![(0, 1), (2, 3), (1, 2)]]);
    // A process that exchanges little, and with one group only, belongs to it.
    assert_eq!(joined(&bytes(&[((0, 1), 1000), ((1, 2), 3)])).len(), 1);
    assert!(are_related((2.0, 0.0), (4.1, 0.0)) && !are_related((2.0, 0.0), (5.0, 0.1)));
    assert!(are_related((2.0, 0.3), (5.0, 0.3)));
}

/// Event times of a program without any period but that of the iteration, and that period, s, if there
/// is one.
fn aperiodic(family: u64, noise: &mut Noise) -> (Vec<i64>, Option<f64>) {
    let seconds = 8.0;
    let step = 0.002;
    let mut state = 0.0;
    let mut level = 1.0;
    let mut until = 0.0;
    let mut walk = 0.0f64;
    let tau: f64 = [0.1, 0.5, 2.0][family as usize % 3];
    let a: f64 = (-step / tau).exp();
    let (mut times, mut t, mut due) = (Vec::new(), 0.0, 1.0);
    while t < seconds {
        state = a * state + (1.0 - a * a).sqrt() * noise.normal();
        walk = (walk + 0.01 * noise.normal()).clamp(-0.9, 0.9);
        if t >= until {
            level = 0.4 + 1.2 * noise.uniform();
            until = t - 0.4 * noise.uniform().ln();
        }
        let rate = 150.0
            * match family {
                0..=2 => 1.0 + 0.4 * state,
                3 => level,
                4 => 1.0 + walk,
                5 => {
                    if t < 0.37 * seconds {
                        0.5
                    } else {
                        1.4
                    }
                }
                6 => 0.5 + t / seconds,
                _ => 1.0,
            };
        // In half of the families regular but for jitter, else at random.
        due -= rate.max(0.0) * step;
        while due <= 0.0 {
            times.push(((t + step * noise.uniform()) * 1e9) as i64);
            due += if family >= 8 {
                1.0 + 0.1 * noise.normal()
            } else {
                -noise.uniform().ln()
            };
        }
        t += step;
    }
    times.sort_unstable();
    (times, (family >= 8).then_some(1.0 / 150.0))
}

const FAMILIES: u64 = 9;

/// Rates that swing without a period: red noise, phases of random length, random walks, a step, a
/// drift, chance, jitter. At most one in a hundred may seem to have a period.
#[test]
fn no_period_is_found_where_there_is_none() {
    const RUNS: u64 = 450;
    let mut alarms = Vec::new();
    for run in 0..RUNS {
        let family = run % FAMILIES;
        let mut noise = Noise((run + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (times, period) = aperiodic(family, &mut noise);
        let found = of_events(&[times], (0, 8_000_000_000), None);
        let is_own = |p: &&Period| period.is_some_and(|own| is_near(p.seconds, own, 0.05));
        let first = found.periods.iter().find(|p| !is_own(p));
        alarms.extend(first.map(|p| (run, family, p.seconds, p.p_value)));
    }
    println!("{} of {RUNS}: {alarms:?}", alarms.len());
    assert!(alarms.len() as u64 * 100 <= RUNS, "{alarms:?}");
}

/// A ring in which each process sends to one other only, in six messages at once every 60 ms. Nothing but this
/// period may be found, neither one and a half of it nor twice.
#[test]
fn a_ring_has_the_period_of_its_supersteps() {
    for ranks in [3, 4] {
        let mut noise = Noise(17);
        let mut packets = Vec::new();
        for step in 0..40 {
            for rank in 0..ranks {
                let mut t_ns = step * 60_000_000 + (300_000.0 * noise.uniform()) as i64;
                for piece in 0..6 {
                    // Half of the superstep is the wait for a straggler, which reaches each a message later.
                    let is_behind = piece > i64::from(rank);
                    let wait = if is_behind { 30_000_000 } else { 0 };
                    t_ns += 20_000 + (200_000.0 * noise.uniform()) as i64;
                    packets.push(data(t_ns + wait, rank, (rank + 1) % ranks, 1400));
                }
            }
        }
        packets.sort_by_key(|packet| packet.t_ns);
        let components = of_run(&run_of(usize::from(ranks), &packets)).unwrap();
        let periods = &components[0].periods;
        let text = format!("{ranks} ranks: {:?}", shown(&components));
        assert!(is_near(periods[0].seconds, 0.06, 0.01), "{text}");
        assert!((periods[0].count - 39.0).abs() <= 1.0, "{text}");
        let (low, high) = periods[0].range_s;
        assert!(low <= 0.06 && 0.06 <= high, "{low} {high}");
        assert_eq!(periods.len(), 1, "{text}");
    }
}
