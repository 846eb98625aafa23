//! Agents and a collector with a network between them that loses, doubles and delays.

use super::agent::{Agent, session_key};
use super::collector::{Collector, Rates, Row};
use super::key::Key;
use super::wire::{Counters, Message, Nonce, Sample, Totals, Who, parse};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Numbers that are pseudorandom and the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.roll() % 100 < chance
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.roll().to_le_bytes());
        nonce[8..].copy_from_slice(&self.roll().to_le_bytes());
        nonce
    }
}

struct Link {
    lost: u64,
    doubled: u64,
}

/// A message under way: time of arrival, receiver (`None`: the collector), bytes.
type Flight = (u64, Option<usize>, Vec<u8>);

struct World {
    dice: Dice,
    link: Link,
    now: u64,
    agents: Vec<Agent>,
    /// Own clock of each machine less that of the collector, ns, and how fast it is, ppm.
    clocks: Vec<(i64, i64)>,
    collector: Collector,
    flights: Vec<Flight>,
    rows: Vec<Row>,
}

fn key() -> Key {
    Key::new(b"a key of a test, long enough")
}

fn collector(secret: u64, period_ms: u32) -> Collector {
    let rates = Rates {
        period_ms,
        ..Rates::default()
    };
    Collector::new(key(), &secret.to_le_bytes(), rates)
}

/// The totals of a machine at true time `now`: they grow evenly.
fn totals(machine: usize, now: u64) -> Totals {
    vec![(0, now * (machine as u64 + 1)), (11, 1 << 30)]
}

impl World {
    fn new(machines: usize, link: Link, seed: u64) -> World {
        let mut dice = Dice(seed);
        let mut world = World {
            link,
            now: 10 * S,
            agents: Vec::new(),
            clocks: Vec::new(),
            collector: collector(dice.roll(), 100),
            flights: Vec::new(),
            rows: Vec::new(),
            dice,
        };
        for machine in 0..machines {
            let nonce = world.dice.nonce();
            world
                .agents
                .push(Agent::new(key(), &format!("n{machine}"), "boot", 1, nonce));
            let ppm = world.dice.roll() as i64 % 50;
            world.clocks.push((3600 * S as i64 * machine as i64, ppm));
        }
        world
    }

    fn own_clock(&self, machine: usize) -> u64 {
        let (offset, ppm) = self.clocks[machine];
        (self.now as i64 + offset + self.now as i64 / 1_000_000 * ppm) as u64
    }

    fn send(&mut self, to: Option<usize>, bytes: &[u8]) {
        assert!(bytes.len() < 512);
        let copies = match (
            self.dice.percent(self.link.lost),
            self.dice.percent(self.link.doubled),
        ) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        for _ in 0..copies {
            // Delays of up to two periods: many are overtaken.
            let delay =
                MS / 10 + self.dice.roll() % if self.dice.percent(20) { 200 * MS } else { MS };
            self.flights.push((self.now + delay, to, bytes.to_vec()));
        }
    }

    fn step(&mut self) {
        self.now += MS;
        let due: Vec<Flight> = {
            let now = self.now;
            let (due, rest) = self.flights.drain(..).partition(|(at, ..)| *at <= now);
            self.flights = rest;
            due
        };
        for (_, to, bytes) in due {
            match to {
                Some(machine) if machine < self.agents.len() => {
                    let own = self.own_clock(machine);
                    self.agents[machine].receive(own, &bytes);
                }
                _ => {
                    // The socket would know the sender.
                    let answer = self.collector.receive(self.now, &bytes);
                    if let Some(answer) = answer {
                        for machine in 0..self.agents.len() {
                            self.send(Some(machine), &answer);
                        }
                    }
                }
            }
        }
        for machine in 0..self.agents.len() {
            let own = self.own_clock(machine);
            let now = self.now;
            let nonce = self.dice.nonce();
            let (out, _) = self.agents[machine].poll(own, || nonce, || totals(machine, now));
            for bytes in out {
                self.send(None, &bytes);
            }
        }
        self.collector.tick(self.now);
        self.rows.extend(self.collector.rows());
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 1000 {
            self.step();
        }
    }

    /// The last totals over a channel that loses nothing.
    fn finish(&mut self) {
        for (_, to, bytes) in std::mem::take(&mut self.flights) {
            if to.is_none() {
                let _ = self.collector.receive(self.now, &bytes);
            }
        }
        for machine in 0..self.agents.len() {
            let (own, nonce) = (self.own_clock(machine), self.dice.nonce());
            let (collector, now) = (&mut self.collector, self.now);
            let channel = |bytes: &[u8]| Ok(collector.receive(now, bytes));
            self.agents[machine]
                .conclude(|| own, nonce, &totals(machine, now), channel)
                .unwrap();
        }
        assert!(self.collector.is_final());
        self.collector.finish();
        self.rows.extend(self.collector.rows());
    }

    fn of(&self, machine: usize) -> Vec<&Row> {
        let is_it =
            |node: usize| self.collector.status(node).unwrap().name == format!("n{machine}");
        self.rows.iter().filter(|row| is_it(row.node)).collect()
    }

    fn status(&self, machine: usize) -> super::collector::Status {
        let all = (0..self.collector.len()).map(|at| self.collector.status(at).unwrap());
        all.into_iter()
            .find(|status| status.name == format!("n{machine}"))
            .unwrap()
    }

    /// Checks every value: it must be the true one at its time, within the error of the clock; a value that
    /// was filled in must lie between its neighbours.
    fn check(&self) {
        for machine in 0..self.agents.len() {
            let rows = self.of(machine);
            let error = self.status(machine).error_ns.unwrap() as i64 + 20 * MS as i64;
            for pair in rows.windows(2) {
                assert!(pair[0].t_ns < pair[1].t_ns, "time runs on");
                assert!(pair[0].totals[0].1 <= pair[1].totals[0].1, "totals grow");
            }
            for row in &rows {
                let true_ns = (row.totals[0].1 / (machine as u64 + 1)) as i64;
                let off = (row.t_ns as i64 - true_ns).abs();
                assert!(
                    off <= error,
                    "{machine}: off by {off} of {error} ns: {row:?}"
                );
            }
        }
    }
}

#[test]
fn without_losses_every_sample_arrives_and_clocks_agree() {
    let mut world = World::new(
        3,
        Link {
            lost: 0,
            doubled: 0,
        },
        1,
    );
    world.run(10);
    world.finish();
    world.check();
    for machine in 0..3 {
        let status = world.status(machine);
        assert_eq!(
            (status.received, status.sessions),
            (status.expected, 1),
            "{status:?}"
        );
        assert!(status.expected >= 80, "{status:?}");
        assert!(status.present_error_ns < 10 * MS, "{status:?}");
        assert!(world.of(machine).iter().all(|row| !row.is_interpolated));
    }
}

#[test]
fn half_of_the_datagrams_lost_and_the_totals_are_exact() {
    for seed in 1..4 {
        let mut world = World::new(
            3,
            Link {
                lost: 50,
                doubled: 10,
            },
            seed * 7919,
        );
        world.run(40);
        world.finish();
        world.check();
        for machine in 0..3 {
            let status = world.status(machine);
            assert_eq!(status.sessions, 1, "{status:?}");
            assert_eq!(status.expected, world.agents[machine].sent(), "{status:?}");
            let rows = world.of(machine);
            assert_eq!(
                rows.last().unwrap().totals,
                totals(machine, world.now),
                "exact at the end"
            );
            let measured = rows.iter().filter(|row| !row.is_interpolated).count() as u64;
            assert_eq!(
                measured,
                status.received + 1,
                "each once, and the last totals"
            );
            let share = status.confidence();
            assert!((0.2..0.8).contains(&share), "{status:?}");
            let filled = rows.iter().filter(|row| row.is_interpolated).count();
            assert!(filled > 0);
        }
        let backs_off = |agent: &Agent| agent.period_ns() > 100 * MS;
        assert!(
            world.agents.iter().any(backs_off),
            "those that have read the loss"
        );
    }
}

#[test]
fn an_agent_that_is_killed_and_started_again_goes_on() {
    let mut world = World::new(
        2,
        Link {
            lost: 20,
            doubled: 10,
        },
        99,
    );
    world.run(5);
    let nonce = world.dice.nonce();
    world.agents[1] = Agent::new(key(), "n1", "boot", 2, nonce);
    world.run(5);
    world.finish();
    world.check();
    assert_eq!(world.status(1).sessions, 2);
    assert_eq!(world.status(0).sessions, 1);
    assert_eq!(world.of(1).last().unwrap().totals, totals(1, world.now));
    assert_eq!(world.collector.len(), 2);
}

#[test]
fn a_collector_that_is_started_again_is_found() {
    let mut world = World::new(
        2,
        Link {
            lost: 10,
            doubled: 10,
        },
        5,
    );
    world.run(5);
    let secret = world.dice.roll();
    world.collector = collector(secret, 100);
    world.rows.clear();
    world.run(60);
    world.finish();
    world.check();
    for machine in 0..2 {
        assert!(
            world.status(machine).received > 20,
            "{:?}",
            world.status(machine)
        );
    }
}

#[test]
fn the_rate_changes_while_running_for_one_and_for_all() {
    let mut world = World::new(
        2,
        Link {
            lost: 0,
            doubled: 0,
        },
        3,
    );
    world.run(3);
    world.collector.set_period(Some("n1"), 1000);
    world.run(8);
    assert_eq!(world.agents[0].period_ns(), 100 * MS);
    assert_eq!(world.agents[1].period_ns(), S);
    world.collector.set_period(None, 500);
    world.run(8);
    assert_eq!(world.agents[0].period_ns(), 500 * MS);
    assert_eq!(world.agents[1].period_ns(), 500 * MS);
}

#[test]
fn an_agent_is_stopped_once_and_sends_what_was_asked_for() {
    let perfect = Link {
        lost: 0,
        doubled: 0,
    };
    let mut world = World::new(2, perfect, 4);
    let rates = Rates {
        period_ms: 100,
        counters: Counters::named(["cpu.user"]).unwrap(),
        ..Rates::default()
    };
    world.collector = Collector::new(key(), b"secret", rates);
    world.run(3);
    assert_eq!(world.collector.stop(Some("n7")), 0);
    assert_eq!(world.collector.stop(Some("n1")), 1);
    world.run(8);
    assert!(!world.agents[0].is_stopped() && world.agents[1].is_stopped());
    // Its last totals end it; an agent that is started again may go on.
    let own = world.own_clock(1);
    let last = world.agents[1].last(own, totals(1, world.now)).unwrap();
    assert!(world.collector.receive(world.now, &last).is_some());
    assert!(world.status(1).is_final);
    let nonce = world.dice.nonce();
    world.agents[1].begin_again(nonce);
    world.run(8);
    assert!(!world.agents[1].is_stopped());
    assert_eq!(world.collector.stop(None), 2);
    world.finish();
    assert!(
        world
            .rows
            .iter()
            .all(|row| row.totals.iter().all(|total| total.0 == 0))
    );
    assert!(world.rows.iter().any(|row| !row.totals.is_empty()));
}

#[test]
fn messages_of_unknown_senders_and_repeated_ones_change_nothing() {
    let mut world = World::new(
        1,
        Link {
            lost: 0,
            doubled: 0,
        },
        11,
    );
    let mut heard: Vec<Vec<u8>> = Vec::new();
    for _ in 0..4000 {
        world.step();
        heard.extend(world.flights.iter().map(|(.., bytes)| bytes.clone()));
    }
    let nonce = world.dice.nonce();
    world.agents[0] = Agent::new(key(), "n0", "boot", 2, nonce);
    world.run(4);
    world.flights.clear();
    let state = |world: &mut World| {
        world.rows.extend(world.collector.rows());
        let mut status = world.status(0);
        // The time of the last message may change, and a datagram that comes twice is counted.
        (status.heard_ns, status.ignored) = (0, 0);
        (
            status,
            world.rows.len(),
            world.collector.len(),
            world.agents[0].sent(),
        )
    };
    let before = state(&mut world);
    // All messages so far, to both sides, again and again.
    for bytes in heard.iter().chain(&heard) {
        let _ = world.collector.receive(world.now, bytes);
        let own = world.own_clock(0);
        world.agents[0].receive(own, bytes);
    }
    // An unknown sender with a key of its own.
    let unknown = Key::new(b"another key, as long as that");
    let who = Who {
        name: "n0".into(),
        boot: "boot".into(),
        incarnation: u64::MAX,
        nonce: [1; 16],
    };
    let sample = Sample {
        session: who.session(),
        totals: vec![(0, u64::MAX)],
        ..Sample::default()
    };
    for message in [
        Message::Hello { who: who.clone() },
        Message::Ask {
            who,
            t1: 0,
            sent: 1 << 58,
        },
        Message::Sample(sample.clone()),
        Message::Final(sample),
    ] {
        assert_eq!(
            world
                .collector
                .receive(world.now, &message.sealed(&unknown)),
            None
        );
    }
    // Noise, long and short.
    for length in [0, 1, 36, 37, 511, 512, 2000] {
        assert_eq!(
            world.collector.receive(world.now, &vec![0x41; length]),
            None
        );
    }
    assert_eq!(before, state(&mut world));
    assert!(world.collector.refused() > 0);
}

/// An agent with the key may send any valid value, and no other: all of them become integers of a trace.
#[test]
fn impossible_values_are_refused() {
    let (mut collector, now) = (collector(1, 100), 10 * S);
    let who = Who {
        name: "liar".into(),
        boot: "boot".into(),
        incarnation: 1,
        nonce: [3; 16],
    };
    let welcome = collector.receive(now, &Message::Hello { who: who.clone() }.sealed(&key()));
    let Some(Message::Welcome { answer, .. }) = parse(&welcome.unwrap()).map(|s| s.message) else {
        panic!("no welcome");
    };
    let session = session_key(&key(), &who, &answer);
    let ask = |sent| {
        let (who, t1) = (who.clone(), now);
        Message::Ask { who, t1, sent }.sealed(&session)
    };
    assert!(collector.receive(now, &ask(0)).is_some());
    let said = Sample {
        session: who.session(),
        t_ns: now,
        period_ms: 10,
        totals: vec![(0, 7)],
        ..Sample::default()
    };
    let lies = [
        Sample {
            number: u64::MAX,
            ..said.clone()
        },
        Sample {
            number: 100_000,
            ..said.clone()
        },
        Sample {
            t_ns: u64::MAX,
            ..said.clone()
        },
        Sample {
            offset_ns: i64::MAX,
            ..said.clone()
        },
        Sample {
            error_ns: u64::MAX,
            ..said.clone()
        },
        Sample {
            drift_ppb: i32::MIN,
            ..said.clone()
        },
        Sample {
            totals: vec![(0, u64::MAX)],
            ..said.clone()
        },
    ];
    let refused = collector.refused();
    for lie in &lies {
        for message in [Message::Sample(lie.clone()), Message::Final(lie.clone())] {
            assert_eq!(
                collector.receive(now, &message.sealed(&session)),
                None,
                "{lie:?}"
            );
        }
    }
    for sent in [u64::MAX, u64::MAX - 1, 1 << 40] {
        assert_eq!(collector.receive(now, &ask(sent)), None);
    }
    assert_eq!(collector.refused() - refused, 2 * lies.len() as u64 + 3);
    let status = collector.status(0).unwrap();
    assert_eq!(
        (status.expected, status.received, status.is_final),
        (0, 0, false)
    );
    collector.receive(now, &Message::Sample(said).sealed(&session));
    let status = collector.status(0).unwrap();
    assert_eq!((status.expected, status.received), (1, 1));
    // As many as are possible by then.
    let later = now + 10 * S;
    assert!(collector.receive(later, &ask(1000)).is_some());
    let confidence = collector.status(0).unwrap().confidence();
    assert!((0.0..=1.0).contains(&confidence), "{confidence}");
}

#[test]
fn many_machines_are_slowed_to_what_can_be_taken() {
    let rates = Rates {
        period_ms: 10,
        most_per_second: 100,
        ..Rates::default()
    };
    let mut collector = Collector::new(key(), b"secret", rates);
    let mut dice = Dice(17);
    let mut agents: Vec<Agent> = (0..1000)
        .map(|i| Agent::new(key(), &format!("n{i}"), "b", 1, dice.nonce()))
        .collect();
    for round in 0..3 {
        for agent in &mut agents {
            let now = (1 + round) * S;
            for bytes in agent.poll(now, || [0; 16], Vec::new).0 {
                if let Some(answer) = collector.receive(now, &bytes) {
                    agent.receive(now + MS, &answer);
                }
            }
        }
    }
    assert_eq!(collector.len(), 1000);
    // The last one to ask gets the rate for all.
    assert_eq!(agents[999].period_ns(), 10 * S);
}
