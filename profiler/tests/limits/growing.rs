//! Runs that go on: a statement about the run so far is never contradicted by the whole run.
//!
//! Each run is written up to a time as a recorder would have it by then: for the present state of a thread
//! there is no row, or one that ends at most 5 s earlier; living processes have no totals and no end.

use flowtrace_profiler::analysis::bottlenecks::{Bottlenecks, Confidence};
use flowtrace_schema::{ChannelKind, Direction};

use crate::play::Doing::{self, Child, Cpu, In, Out};
use crate::play::Play;
use crate::{Run, run};

/// A process: its program and parent, its begin, and its states as (until, state) in ms.
struct Actor {
    program: &'static str,
    parent: Option<usize>,
    from: u64,
    life: Vec<(u64, Doing)>,
}

/// A whole run: its processes, and the writer and reader of each pipe.
struct Story {
    actors: Vec<Actor>,
    pipes: Vec<(usize, usize)>,
    end: u64,
}

/// A generator of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// Long stretches of one thing with short ones of another between, from `from` to `to`.
fn mostly(
    random: &mut Random,
    (from, to): (u64, u64),
    long: Doing,
    short: Doing,
) -> Vec<(u64, Doing)> {
    let mut life = vec![(from + 60, Cpu)];
    let mut at = from + 60;
    while at < to {
        at = (at + 200 + random.below(7000)).min(to);
        life.push((at, long));
        if at < to {
            at = (at + 20 + random.below(40)).min(to);
            life.push((at, short));
        }
    }
    life
}

/// Three stages of which one computes nearly all the time.
fn pipeline(random: &mut Random) -> Story {
    let slow = random.below(3) as usize;
    let end = 12_000 + random.below(6000);
    let mut actors = vec![Actor {
        program: "bash run.sh",
        parent: None,
        from: 0,
        life: vec![(20, Cpu), (end, Child)],
    }];
    for (at, program) in ["first", "second", "third"].into_iter().enumerate() {
        let life = match at {
            at if at == slow && at > 0 => mostly(random, (20, end - 10), Cpu, In(at as u32)),
            at if at == slow => mostly(random, (20, end - 10), Cpu, Out(1)),
            at if at < slow => mostly(random, (20, end - 10), Out(at as u32 + 1), Cpu),
            at => mostly(random, (20, end - 10), In(at as u32), Cpu),
        };
        let parent = Some(0);
        actors.push(Actor {
            program,
            parent,
            from: 20,
            life,
        });
    }
    Story {
        actors,
        pipes: vec![(1, 2), (2, 3)],
        end,
    }
}

/// A make that runs two compilers at a time, and a linker at the end.
fn make(random: &mut Random) -> Story {
    let mut actors = vec![Actor {
        program: "make",
        parent: None,
        from: 0,
        life: Vec::new(),
    }];
    let mut free = [20, 20];
    for _ in 0..8 {
        let place = usize::from(free[1] < free[0]);
        let (from, to) = (free[place] + 5, free[place] + 600 + random.below(4000));
        free[place] = to;
        actors.push(Actor {
            program: "cc1",
            parent: Some(0),
            from,
            life: vec![(to, Cpu)],
        });
    }
    let from = free[0].max(free[1]) + 5;
    let end = from + 2000 + random.below(2000);
    actors.push(Actor {
        program: "ld",
        parent: Some(0),
        from,
        life: vec![(end, Cpu)],
    });
    actors[0].life = vec![(15, Cpu), (end + 5, Child)];
    Story {
        actors,
        pipes: Vec::new(),
        end: end + 5,
    }
}

/// A pool of which one worker has nearly all of the work.
fn pool(random: &mut Random) -> Story {
    let end = 11_000 + random.below(4000);
    let mut actors = vec![Actor {
        program: "master",
        parent: None,
        from: 0,
        life: mostly(random, (0, end), In(2), Cpu),
    }];
    for at in 0..3 {
        let busy = if at == 0 {
            end - 20
        } else {
            300 + random.below(500)
        };
        let mut life = mostly(random, (30, busy), Cpu, In(1));
        life.push((end - 10, In(1)));
        actors.push(Actor {
            program: "worker",
            parent: Some(0),
            from: 30,
            life,
        });
    }
    let mut pipes = vec![(0, 1)];
    pipes.push((1, 0));
    Story { actors, pipes, end }
}

impl Story {
    /// Records the run up to a time; `None`: all of it.
    fn record(&self, mut play: Play, now: Option<u64>) {
        const RECORDED: u64 = 5000;
        const LATE: u64 = 40;
        let upto = now.unwrap_or(u64::MAX);
        for _ in &self.pipes {
            play.channel(ChannelKind::Pipe);
        }
        let mut upids: Vec<Option<u32>> = Vec::new();
        for actor in &self.actors {
            if actor.from + LATE > upto {
                upids.push(None);
                continue;
            }
            let parent = actor.parent.and_then(|at| upids[at]);
            let end = actor.life.last().map_or(actor.from, |one| one.0);
            if end + LATE <= upto {
                upids.push(Some(play.process(
                    actor.program,
                    parent,
                    actor.from,
                    &actor.life,
                )));
                continue;
            }
            let upid = play.begin(actor.program, parent, actor.from);
            let mut at = actor.from;
            for &(until, doing) in &actor.life {
                if until + LATE <= upto {
                    play.sample(upid, doing, at, until);
                } else if upto.saturating_sub(at) > RECORDED {
                    play.sample(upid, doing, at, at + (upto - at) / RECORDED * RECORDED);
                }
                if until + LATE > upto {
                    break;
                }
                at = until;
            }
            upids.push(Some(upid));
        }
        for (channel, &(writer, reader)) in (1..).zip(&self.pipes) {
            for (actor, direction) in [(writer, Direction::Write), (reader, Direction::Read)] {
                if let Some(upid) = upids[actor] {
                    let from = self.actors[actor].from;
                    play.hold(channel, upid, direction, from);
                }
            }
        }
        play.busy(2, 50, self.end.min(upto.saturating_sub(100)));
        match now {
            Some(_) => play.cut(),
            None => play.finish(self.end),
        }
    }

    fn run(&self, now: Option<u64>) -> Run {
        run(|play| self.record(play, now))
    }
}

/// A step or channel, the intervals for which it is blamed (ns), and the confidence.
type Blamed = (String, Vec<(i64, i64)>, Confidence);

/// The blamed steps and channels: names without the numbers of stages, the resource, and the intervals.
fn verdicts(result: &Bottlenecks) -> Vec<Blamed> {
    let name = |task: usize| result.tasks.tasks[task].group.clone();
    let cause = |cause: &flowtrace_profiler::analysis::bottlenecks::Cause| {
        let who = match cause.task {
            Some(task) => name(task),
            None => format!("channel {:?}", cause.edges),
        };
        let verdict = format!("{who}: {}", cause.resource.name());
        (verdict, cause.intervals.clone(), cause.confidence)
    };
    result.causes.iter().map(cause).collect()
}

/// Time of intervals that lies in others, ns.
fn common(a: &[(i64, i64)], b: &[(i64, i64)]) -> i64 {
    let each = a
        .iter()
        .flat_map(|x| b.iter().map(move |y| x.1.min(y.1) - x.0.max(y.0)));
    each.filter(|ns| *ns > 0).sum()
}

#[test]
fn nothing_is_said_of_a_run_that_goes_on_which_the_whole_run_contradicts() {
    let (mut said, mut asked) = (0, 0);
    for seed in 0..6 {
        for (kind, story) in [
            ("pipeline", pipeline as fn(&mut Random) -> Story),
            ("make", make),
            ("pool", pool),
        ] {
            let story = story(&mut Random(seed));
            let whole = verdicts(&story.run(None).bottlenecks());
            assert!(!whole.is_empty(), "{kind} {seed}");
            for now in (500..story.end).step_by(1100) {
                let part = story.run(Some(now));
                let result = part.bottlenecks();
                assert!(result.is_partial && result.span.1 <= now as i64 * 1_000_000);
                asked += 1;
                for (verdict, intervals, confidence) in verdicts(&result) {
                    said += 1;
                    let ns: i64 = intervals.iter().map(|one| one.1 - one.0).sum();
                    let same = whole.iter().filter(|other| other.0 == verdict);
                    let agreed: i64 = same.map(|other| common(&intervals, &other.1)).sum();
                    let others = whole.iter().filter(|other| other.0 != verdict);
                    let denied: i64 = others.map(|other| common(&intervals, &other.1)).sum();
                    assert!(
                        2 * agreed >= ns && agreed >= denied,
                        "{kind} {seed} at {now} ms: {verdict} ({confidence:?}) {intervals:?}, but in all {whole:?}"
                    );
                }
            }
        }
    }
    // There are verdicts before the end.
    assert!(2 * said > asked, "{said} of {asked}");
}

#[test]
fn a_window_that_is_not_complete_has_no_verdict() {
    let story = pipeline(&mut Random(3));
    let result = story.run(Some(300)).bottlenecks();
    assert!(
        result.causes.is_empty() && result.span.1 < 300_000_000,
        "{:?}",
        result.span
    );
}
