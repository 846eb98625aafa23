//! Dependencies between steps, and schedules of steps side by side. A loop of a script has thousands of
//! steps, so no function here examines all pairs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::steps::Step;
use crate::model::FileIndex;

/// The steps that must end before each step of a stretch.
#[derive(Clone)]
pub(super) struct Dependencies {
    /// Places of the steps that must end first, without those that come before one of these anyway. Of
    /// steps whose output the shell read, only the last is listed: it comes after the others.
    before: Vec<Vec<usize>>,
}

/// The steps that have used one file or path so far, by end and place.
#[derive(Default)]
struct Uses {
    writers: BTreeMap<(i64, usize), i64>,
    readers: BTreeSet<(i64, usize)>,
}

impl Uses {
    /// Adds a step, and to `found` the steps that it comes after.
    fn add(&mut self, span: (i64, i64), at: usize, is_writer: bool, found: &mut Vec<usize>) {
        let (from, to) = span;
        self.latest(from, is_writer, found);
        if is_writer {
            self.writers.insert((to, at), from);
        } else {
            self.readers.insert((to, at));
        }
    }

    /// Adds the steps that had ended at `from` and that no other such step comes after: the latest writers,
    /// and for a writer also the steps that read what these wrote.
    fn latest(&self, from: i64, is_writer: bool, found: &mut Vec<usize>) {
        let ended = ..=(from, usize::MAX);
        let mut latest = i64::MIN;
        for (&(to, at), &began) in self.writers.range(ended).rev() {
            if to <= latest {
                break;
            }
            latest = latest.max(began);
            found.push(at);
        }
        if is_writer {
            let readers = self.readers.range(ended).rev();
            found.extend(
                readers
                    .take_while(|(to, _)| *to > latest)
                    .map(|&(_, at)| at),
            );
        }
    }
}

impl Dependencies {
    /// Finds the dependencies that files and pipes show. `steps` are in the order of the script, one after
    /// another.
    pub(super) fn of(steps: &[Step]) -> Dependencies {
        Dependencies::in_order(steps, |at| (at as i64, at as i64 + 1))
    }

    /// Finds the dependencies of steps that ran side by side: a step that began before another had ended
    /// did not wait for it.
    pub(super) fn of_overlapping(steps: &[Step]) -> Dependencies {
        Dependencies::in_order(steps, |at| (steps[at].from, steps[at].to))
    }

    fn in_order(steps: &[Step], span: impl Fn(usize) -> (i64, i64)) -> Dependencies {
        let mut files: HashMap<FileIndex, Uses> = HashMap::new();
        let mut paths: HashMap<&str, Uses> = HashMap::new();
        let mut read_by_shell: Uses = Uses::default();
        let mut found = Dependencies {
            before: Vec::with_capacity(steps.len()),
        };
        for (at, step) in steps.iter().enumerate() {
            let (from, to) = span(at);
            let mut before = Vec::new();
            for file in step.touched.union(&step.written) {
                let uses = files.entry(*file).or_default();
                uses.add((from, to), at, step.written.contains(file), &mut before);
            }
            // For example a directory made before, or a name removed and made again.
            for path in step.paths.union(&step.made) {
                let uses = paths.entry(path).or_default();
                uses.add((from, to), at, step.made.contains(path), &mut before);
            }
            // The shell may use data that it read in every later step.
            read_by_shell.latest(from, false, &mut before);
            if step.is_read_by_shell {
                read_by_shell.writers.insert((to, at), from);
            }
            before.sort_unstable();
            before.dedup();
            found.before.push(before);
        }
        found
    }

    /// The same, and each of these steps also comes after the one before it in the script.
    pub(super) fn and_after_previous(&self, is_such: impl Fn(usize) -> bool) -> Dependencies {
        let mut all = self.clone();
        for (at, before) in all.before.iter_mut().enumerate().skip(1) {
            if is_such(at) && before.last() != Some(&(at - 1)) {
                before.push(at - 1);
            }
        }
        all
    }

    /// Pairs of steps of which the later one used the output of the earlier one, with the name of that; at
    /// most `most`. Data that a shell read is left out.
    pub(super) fn data(
        steps: &[Step],
        most: usize,
        name: impl Fn(FileIndex) -> String,
    ) -> Vec<(usize, usize, String)> {
        let mut written: HashMap<FileIndex, usize> = HashMap::new();
        let mut made: HashMap<&str, usize> = HashMap::new();
        let mut found = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let files = step.touched.iter();
            let files = files.filter_map(|file| Some((*written.get(file)?, name(*file))));
            let paths = step.paths.iter();
            let paths = paths.filter_map(|path| Some((*made.get(&**path)?, path.clone())));
            found.extend(files.chain(paths).map(|(by, what)| (by, at, what)).min());
            if found.len() >= most {
                break;
            }
            written.extend(step.written.iter().map(|&file| (file, at)));
            made.extend(step.made.iter().map(|path| (&**path, at)));
        }
        found
    }

    /// Places of the steps that must end before a step begins.
    pub(super) fn before(&self, step: usize) -> &[usize] {
        &self.before[step]
    }

    /// Number of pairs among some steps of which one directly depends on the other.
    pub(super) fn pairs(&self, is_among: impl Fn(usize) -> bool) -> usize {
        let later = self
            .before
            .iter()
            .enumerate()
            .filter(|&(at, _)| is_among(at));
        let earlier = later.flat_map(|(_, before)| before);
        earlier.filter(|&&at| is_among(at)).count()
    }

    /// Places of the steps that come after each step.
    pub(super) fn after(&self) -> Vec<Vec<usize>> {
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.before.len()];
        for (at, before) in self.before.iter().enumerate() {
            for &other in before {
                after[other].push(at);
            }
        }
        after
    }
}

/// Limits for steps that run side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// CPUs.
    pub(super) cores: f64,
    /// Steps at a time.
    pub(super) jobs: usize,
}

impl Limits {
    /// These CPUs, and as many steps as they have work for.
    pub(super) fn of_cores(cores: f64) -> Limits {
        Limits {
            cores,
            jobs: usize::MAX,
        }
    }
}

/// A schedule of steps side by side.
#[derive(Debug, PartialEq)]
pub(super) struct Schedule {
    /// Length of the schedule, ns.
    pub(super) end: i64,
    /// For each step, the time for which another one runs beside it, ns.
    pub(super) beside: Vec<i64>,
}

impl Schedule {
    /// Starts every step as soon as its dependencies have ended and the limits allow it. Of several steps,
    /// the first one in the script comes first.
    pub(super) fn of(steps: &[Step], dependencies: &Dependencies, limits: Limits) -> Schedule {
        Schedule::by(steps, dependencies, limits, |_| 0)
    }

    /// The same, but of several steps the one with the lowest `rank` comes first, and of equal ones the
    /// first in the script.
    pub(super) fn by(
        steps: &[Step],
        dependencies: &Dependencies,
        limits: Limits,
        rank: impl Fn(usize) -> i64,
    ) -> Schedule {
        let jobs = limits.jobs;
        // A step may start with a little less than the CPUs that it needs: the bound by total work covers
        // that.
        let cores = limits.cores + 0.3;
        let mut missing: Vec<usize> = dependencies.before.iter().map(Vec::len).collect();
        let after = dependencies.after();
        let mut ready: BTreeSet<(i64, usize)> = (0..steps.len())
            .filter(|&at| missing[at] == 0)
            .map(|at| (rank(at), at))
            .collect();
        let mut running: BTreeSet<usize> = BTreeSet::new();
        let (mut begin, mut end) = (vec![0; steps.len()], vec![0; steps.len()]);
        let mut now = 0;
        loop {
            let mut started = Vec::new();
            for &(rank, at) in &ready {
                if running.len() >= jobs {
                    break;
                }
                let (mut cpu, mut disk) = (0.0, 0.0);
                for &other in &running {
                    cpu += steps[other].cores(cores);
                    disk += steps[other].disk;
                }
                // Each step needs at least one CPU.
                if !running.is_empty() && cpu + 1.0 > cores {
                    break;
                }
                let fits = cpu + steps[at].cores(cores) <= cores && disk + steps[at].disk <= 1.05;
                if running.is_empty() || fits {
                    begin[at] = now;
                    end[at] = now + steps[at].length();
                    running.insert(at);
                    started.push((rank, at));
                }
            }
            for one in started {
                ready.remove(&one);
            }
            let Some(next) = running.iter().map(|&at| end[at]).min() else {
                break;
            };
            now = next;
            let (over, still) = running.into_iter().partition(|&at| end[at] <= now);
            running = still;
            let over: BTreeSet<usize> = over;
            for at in over {
                for &next in &after[at] {
                    missing[next] -= 1;
                    if missing[next] == 0 {
                        ready.insert((rank(next), next));
                    }
                }
            }
        }
        Schedule {
            end: end.iter().copied().max().unwrap_or(0),
            beside: beside(&begin, &end),
        }
    }
}

/// For each of these spans, the time that it shares with others.
fn beside(begin: &[i64], end: &[i64]) -> Vec<i64> {
    let begins = begin.iter().map(|&at| (at, 1));
    let mut changes: Vec<(i64, i32)> = begins.chain(end.iter().map(|&at| (at, -1))).collect();
    changes.sort_unstable();
    // The time with several spans until each instant.
    let mut shared: BTreeMap<i64, i64> = BTreeMap::new();
    let (mut alive, mut sum, mut last) = (0, 0, 0);
    for (at, change) in changes {
        if alive > 1 {
            sum += at - last;
        }
        alive += change;
        last = at;
        shared.insert(at, sum);
    }
    let spans = begin.iter().zip(end);
    spans
        .map(|(begin, end)| shared[end] - shared[begin])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_used_of_an_earlier_one() {
        let step = |touched: &[u32], written: &[u32], made: &[&str]| Step {
            touched: touched.iter().copied().map(FileIndex).collect(),
            written: written.iter().copied().map(FileIndex).collect(),
            made: made.iter().map(ToString::to_string).collect(),
            paths: made.iter().map(ToString::to_string).collect(),
            ..Step::default()
        };
        let name = |file: FileIndex| format!("f{}", file.0);
        // A source that several steps read connects nothing.
        let unconnected = [step(&[1, 9], &[1], &[]), step(&[2, 9], &[2], &[])];
        assert_eq!(Dependencies::data(&unconnected, 9, name), []);
        let through = [step(&[1], &[1], &[]), step(&[1, 2], &[2], &[])];
        assert_eq!(Dependencies::data(&through, 9, name), [(0, 1, "f1".into())]);
        let directory = [step(&[], &[], &["/d"]), step(&[], &[], &["/d"])];
        assert_eq!(
            Dependencies::data(&directory, 9, name),
            [(0, 1, "/d".into())]
        );
    }

    /// Numbers that look random and are the same in each run.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, sides: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % sides
        }
    }

    fn some_steps(dice: &mut Dice) -> Vec<Step> {
        let mut from = 0;
        let count = dice.below(30) as usize;
        let step = |_| {
            let length = 1 + dice.below(40) as i64;
            let mut step = Step {
                from,
                to: from + length,
                cpu_ns: (length * dice.below(4) as i64) as f64,
                disk: dice.below(3) as f64 / 2.0,
                is_read_by_shell: dice.below(12) == 0,
                ..Step::default()
            };
            from = step.to;
            for _ in 0..dice.below(3) {
                let file = FileIndex(dice.below(25) as u32);
                step.touched.insert(file);
                if dice.below(3) == 0 {
                    step.written.insert(file);
                }
                let directory = format!("/d{}", dice.below(9));
                let path = format!("{directory}/{}", file.0);
                if dice.below(4) == 0 {
                    step.made
                        .insert([&directory, &path][dice.below(2) as usize].clone());
                }
                step.paths.extend([directory, path]);
            }
            step
        };
        (0..count).map(step).collect()
    }

    fn depends_on(step: &Step, before: &Step) -> bool {
        before.is_read_by_shell
            || before.written.intersection(&step.touched).next().is_some()
            || step.written.intersection(&before.touched).next().is_some()
            || before.made.iter().any(|path| step.paths.contains(path))
            || step.made.iter().any(|path| before.paths.contains(path))
    }

    /// The same result, from all pairs of steps at every instant.
    fn slowly(steps: &[Step], cores: f64) -> (bool, Schedule) {
        let most = cores + 0.3;
        let before: Vec<Vec<usize>> = (0..steps.len())
            .map(|at| {
                (0..at)
                    .filter(|&b| depends_on(&steps[at], &steps[b]))
                    .collect()
            })
            .collect();
        let mut end: Vec<Option<i64>> = vec![None; steps.len()];
        let mut begin = vec![0; steps.len()];
        let mut now = 0;
        while end.iter().any(Option::is_none) {
            for at in 0..steps.len() {
                let is_over = |&b: &usize| end[b].is_some_and(|end| end <= now);
                if end[at].is_some() || !before[at].iter().all(is_over) {
                    continue;
                }
                let runs = |other: &usize| end[*other].is_some_and(|end| end > now);
                let running: Vec<usize> = (0..steps.len()).filter(runs).collect();
                let cpu: f64 = running.iter().map(|&o| steps[o].cores(most)).sum();
                let disk: f64 = running.iter().map(|&o| steps[o].disk).sum();
                let fits = cpu + steps[at].cores(most) <= most && disk + steps[at].disk <= 1.05;
                if running.is_empty() || fits {
                    begin[at] = now;
                    end[at] = Some(now + steps[at].length());
                }
            }
            now = end
                .iter()
                .flatten()
                .copied()
                .filter(|&end| end > now)
                .min()
                .unwrap();
        }
        let end: Vec<i64> = end.into_iter().flatten().collect();
        let beside = |at: usize| {
            let is_shared = |now: &i64| {
                let is_in = |o: &usize| (begin[*o]..end[*o]).contains(now);
                (0..steps.len()).filter(is_in).count() > 1
            };
            (begin[at]..end[at]).filter(is_shared).count() as i64
        };
        let schedule = Schedule {
            end: end.iter().copied().max().unwrap_or(0),
            beside: (0..steps.len()).map(beside).collect(),
        };
        (before.iter().any(|before| !before.is_empty()), schedule)
    }

    #[test]
    fn indexes_find_the_same_as_all_pairs() {
        let mut dice = Dice(0x2545_f491_4f6c_dd1d);
        for round in 0..400 {
            let steps = some_steps(&mut dice);
            for cores in [2.0, 4.0] {
                let dependencies = Dependencies::of(&steps);
                let found = Schedule::of(&steps, &dependencies, Limits::of_cores(cores));
                assert_eq!(
                    (dependencies.pairs(|_| true) > 0, found),
                    slowly(&steps, cores),
                    "{round}"
                );
            }
        }
    }
}
