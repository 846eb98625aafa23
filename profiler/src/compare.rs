//! Two runs of a workflow, or several of each, side by side: what is new, gone, slower, reads more,
//! waits longer. Steps are aligned by rule, files by the pattern of their names.
//!
//! A difference is a finding when it is larger than two runs of the same thing differ. With one run
//! per side that is a fixed allowance; with several per side it is tested (Welch's t-test,
//! corrected for the number of values compared).
//!
//! The duration comes first: runs whose durations differ by more than their spread are never the same,
//! whether or not anything else shows why. The spread of one run per side is not known: then every difference
//! beyond a stated share is shown ([`SHOWN_SHARE`]).
//!
//! A replay is one program that plays all steps: between a replay and the run that it plays, only the files
//! are compared.

mod facts;
mod finding;
mod flame;
mod functions;
pub mod html;
mod network;
mod reason;
mod recorded;
mod recording;
mod statistics;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};

pub use facts::{FileFacts, RuleFacts, RunFacts};
pub use finding::{Change, Finding, Subject};
use flowtrace_render::units;
pub use functions::{Difference, Folded, FunctionRow, Functions, Stack};
pub use network::{Balance, NetworkFacts, NetworkRow};
pub use recording::Recording;
use serde::Serialize;

use crate::compare::finding::LEAST_SHARE;
use crate::compare::reason::{Kind, Reason};

/// Times that differ by less than these are never a finding.
const LEAST_NS: f64 = 200e6;
const LEAST_NS_TESTED: f64 = 20e6;
const LEAST_SHARE_OF_CPU: f64 = 0.3;
const LEAST_SHARE_TESTED: f64 = 0.1;
/// On a machine that is crowded, up to so many times as much.
const MOST_CROWDED: f64 = 4.0;
/// Bytes that differ by less than these are never a finding; they do not depend on the machine.
const LEAST_BYTES: f64 = 4096.0;
const LEAST_SHARE_OF_BYTES: f64 = 0.01;
/// Durations of one run per side that differ by more than this share are shown, as a finding or as a difference that may
/// be chance.
pub const SHOWN_SHARE: f64 = 0.1;
/// Durations and rates that are tested, and differ by less than this, are the same.
const LEAST_SHARE_OF_DURATION: f64 = 0.01;
/// Calls of a rule that differ by less than this number, or this share of all calls of a run, are never a finding.
const LEAST_CALLS: f64 = 1000.0;
const LEAST_SHARE_OF_CALLS: f64 = 0.1;
/// Messages and payload of the packets of the same program differ by no more: segments merge.
const LEAST_SHARE_OF_PACKETS: f64 = 0.02;
/// Largest probability of a finding by chance, over all values compared.
const CHANCE: f64 = 0.01;

/// The comparison.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// The first side's runs.
    pub a: Vec<Run>,
    /// The second side's.
    pub b: Vec<Run>,
    /// Facts that limit the comparison: a run that failed, rows that were lost, runs that were recorded in
    /// different ways.
    pub warnings: Vec<String>,
    /// Comparisons that are made in another way than usual.
    pub notes: Vec<String>,
    /// Durations of the runs.
    pub duration: Duration,
    /// Comparison of the captured packets, where both sides have some.
    pub network: Option<NetworkRow>,
    /// Rules that explain a difference of the durations that may be chance: no findings.
    pub reasons: Vec<Finding>,
    /// Differences, the most important first.
    pub findings: Vec<Finding>,
    /// Number of values compared.
    pub compared: usize,
    /// CPU time by function, where call stacks were sampled on both sides.
    pub functions: Option<Functions>,
    /// Every rule with its means on both sides.
    pub rules: Vec<RuleRow>,
}

/// Durations of both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Duration {
    /// Mean of the first side, ns.
    pub a_ns: f64,
    /// Mean of the second side, ns.
    pub b_ns: f64,
    /// Probability of such a difference by chance; `None`: one run of a side, whose spread is not known.
    pub p: Option<f64>,
    /// Conclusion from the difference.
    pub verdict: DurationVerdict,
}

/// Result of comparing the durations of two sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurationVerdict {
    /// The durations do not differ by more than their spread, or than the share that is shown.
    #[default]
    Same,
    /// The durations differ, possibly by chance.
    Unsure,
    /// The durations differ: a finding.
    Different,
}

/// A run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// The trace.
    pub trace: String,
    /// Command line of the run.
    pub command: String,
    /// Duration of the run, ns.
    pub duration_ns: i64,
    /// Layers and kind of the recording.
    pub recording: Recording,
}

/// A rule with its means on both sides; `None`: it did not run on that side.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RuleRow {
    /// The rule.
    pub rule: String,
    /// First side.
    pub a: Option<RuleFacts>,
    /// Second side.
    pub b: Option<RuleFacts>,
}

/// Compares the runs of two sides.
pub fn compare(a: &[RunFacts], b: &[RunFacts]) -> Comparison {
    let run = |facts: &RunFacts| Run {
        trace: facts.trace.clone(),
        command: facts.command.clone(),
        duration_ns: facts.duration_ns,
        recording: facts.recording.clone(),
    };
    let mut comparison = Comparison {
        a: a.iter().map(run).collect(),
        b: b.iter().map(run).collect(),
        ..Comparison::default()
    };
    for facts in a.iter().chain(b) {
        comparison.warnings.extend(
            facts
                .warnings
                .iter()
                .map(|w| format!("{}: {w}", facts.trace)),
        );
    }
    let all: Vec<&RunFacts> = a.iter().chain(b).collect();
    comparison.warnings.extend(recorded::differences(&all));
    let is_played = replays_on_one_side(a, b, &mut comparison.notes);
    let mut tests = Tests {
        a,
        b,
        is_played,
        found: Vec::new(),
        compared: 0,
        shortest_ns: shortest(a, b),
        calls: calls(a).max(calls(b)),
        crowd: crowd(a, b),
    };
    comparison.duration = tests.duration();
    if !is_played {
        comparison.network = tests.network();
        comparison.functions = stacks(a).zip(stacks(b)).map(|(a, b)| Functions::of(&a, &b));
        tests.rules(&mut comparison.rules);
    }
    tests.files();
    let (mut findings, compared) = (std::mem::take(&mut tests.found), tests.compared);
    for finding in &mut findings {
        finding.p = finding.p.map(|p| (p * compared as f64).min(1.0));
    }
    findings.retain(|finding| finding.p.is_none_or(|p| p < CHANCE));
    // A difference that the time of a step already explains is not repeated.
    let is_time = |f: &Finding| {
        matches!(
            f.change,
            Change::Time | Change::Cpu | Change::Waits | Change::Span
        )
    };
    if !findings.iter().any(is_time) {
        findings.extend(comparison.duration.finding(comparison.network.as_ref()));
    }
    let mut reasons = tests.explain(&mut findings, &comparison);
    for all in [&mut findings, &mut reasons] {
        remark_on_paths(all, &comparison.rules, a, b);
    }
    findings.sort_by(|x, y| {
        let is_one_sided = |f: &Finding| matches!(f.change, Change::New | Change::Gone);
        let weight = |f: &Finding| match is_time(f) {
            true => (f.b - f.a).abs(),
            false if is_one_sided(f) => comparison.time_of(f),
            false => 0.0,
        };
        let order = |f: &Finding| (f.subject, f.subject != Subject::Rule && !is_one_sided(f));
        order(x)
            .cmp(&order(y))
            .then(weight(y).total_cmp(&weight(x)))
            .then(x.name.cmp(&y.name))
            .then(x.change.cmp(&y.change))
    });
    let part = |reason: &Finding| (reason.b - reason.a).abs();
    reasons.sort_by(|x, y| part(y).total_cmp(&part(x)));
    comparison.reasons = reasons;
    comparison.findings = findings;
    comparison.compared = compared;
    comparison
}

impl Comparison {
    fn row(&self, finding: &Finding) -> Option<&RuleRow> {
        let is_rule = finding.subject == Subject::Rule;
        let mut rows = self.rules.iter().filter(|_| is_rule);
        rows.find(|row| row.rule == finding.name)
    }

    /// Time of the rule of a finding on the side that has more of it, ns.
    fn time_of(&self, finding: &Finding) -> f64 {
        let row = self.row(finding).into_iter();
        let sides = row.flat_map(|row| [&row.a, &row.b]).flatten();
        sides.map(|facts| facts.time_ns).fold(0.0, f64::max)
    }
}

/// Calls that read or wrote files, in the mean of some runs.
fn calls(runs: &[RunFacts]) -> f64 {
    let of_rule = |facts: &RuleFacts| facts.read_calls + facts.write_calls;
    let of_run = |run: &RunFacts| run.rules.values().map(of_rule).sum();
    statistics::mean(&runs.iter().map(of_run).collect::<Vec<f64>>())
}

/// The call stacks of runs that all have some.
fn stacks(runs: &[RunFacts]) -> Option<Vec<&Folded>> {
    runs.iter().map(|run| run.stacks.as_ref()).collect()
}

/// Returns true if some of the runs are replays of the others.
fn replays_on_one_side(a: &[RunFacts], b: &[RunFacts], notes: &mut Vec<String>) -> bool {
    let all = || a.iter().chain(b);
    let is_played = all().any(|run| run.is_replay) && all().any(|run| !run.is_replay);
    if is_played {
        for replay in all().filter(|run| run.is_replay) {
            notes.push(format!(
                "{} is a replay: its files are compared, not its steps; its length includes making the files that were there before",
                replay.trace
            ));
        }
    }
    is_played
}

fn shortest(a: &[RunFacts], b: &[RunFacts]) -> f64 {
    let runs = a.iter().chain(b).map(|facts| facts.duration_ns);
    runs.min().unwrap_or(0) as f64
}

/// Factor by which the allowance for times grows because processes had to wait for CPUs: then caches are
/// shared, and a process that waits for others waits for their CPUs, too.
fn crowd(a: &[RunFacts], b: &[RunFacts]) -> f64 {
    let queued = a
        .iter()
        .chain(b)
        .map(|facts| facts.queue_ns / facts.cpu_ns.max(1.0));
    (1.0 + queued.fold(0.0, f64::max)).min(MOST_CROWDED)
}

/// Kind of a value, which decides its allowance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Wall,
    Cpu,
    Bytes,
    Count,
    /// Calls, of which a program may make many for the same bytes.
    Calls,
    /// Processes at a time.
    Number,
    /// Rates and periods, in which small values matter as much as large ones.
    Rate,
    /// Messages and payload.
    Packets,
}

struct Tests<'a> {
    a: &'a [RunFacts],
    b: &'a [RunFacts],
    /// True if one side is a replay of the other.
    is_played: bool,
    found: Vec<Finding>,
    compared: usize,
    shortest_ns: f64,
    /// Calls of the side with more of them.
    calls: f64,
    crowd: f64,
}

/// Values of a rule in the given runs.
fn values(rule: &str, of: fn(&RuleFacts) -> f64, runs: &[RunFacts]) -> Vec<f64> {
    let of_run = |run: &RunFacts| run.rules.get(rule).map_or(0.0, of);
    runs.iter().map(of_run).collect()
}

impl Duration {
    /// The difference as a finding, with the duration that the rates of iterations predict.
    fn finding(&self, network: Option<&NetworkRow>) -> Option<Finding> {
        let predicted = network.and_then(|row| Some((row.predicted_ns?, row.b.span_ns)));
        let remark = predicted.map(|(predicted, took)| {
            format!(
                "the rates of iterations predict {} between the first and the last packet, it took {}",
                units::duration(predicted.round() as i64),
                units::duration(took.round() as i64)
            )
        });
        (self.verdict == DurationVerdict::Different).then(|| Finding {
            subject: Subject::Run,
            name: "the run".into(),
            change: Change::Duration,
            a: self.a_ns,
            b: self.b_ns,
            p: self.p,
            remark,
        })
    }
}

impl Tests<'_> {
    /// Compares the durations. This is the first question, so its probability is not multiplied by the number
    /// of the others.
    fn duration(&self) -> Duration {
        let of = |runs: &[RunFacts]| -> Vec<f64> {
            runs.iter().map(|run| run.duration_ns as f64).collect()
        };
        let (a, b) = (of(self.a), of(self.b));
        let (a_ns, b_ns) = (statistics::mean(&a), statistics::mean(&b));
        let difference = (b_ns - a_ns).abs();
        let share = difference / a_ns.min(b_ns).max(1.0);
        let p = (a.len() > 1 && b.len() > 1).then(|| statistics::welch(&a, &b));
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let are_apart = most(&a) < least(&b) || most(&b) < least(&a);
        let verdict = match p {
            // A replay also makes the files that were there before the recorded run.
            _ if self.is_played => DurationVerdict::Same,
            Some(p) if p < CHANCE && share > LEAST_SHARE_OF_DURATION => DurationVerdict::Different,
            None if share > LEAST_SHARE * self.crowd && difference > LEAST_NS => {
                DurationVerdict::Different
            }
            _ if share > SHOWN_SHARE && are_apart => DurationVerdict::Unsure,
            _ => DurationVerdict::Same,
        };
        Duration {
            a_ns,
            b_ns,
            p,
            verdict,
        }
    }

    /// Compares the packets, where every run has some.
    fn network(&mut self) -> Option<NetworkRow> {
        let of = |runs: &'_ [RunFacts]| -> Option<Vec<NetworkFacts>> {
            runs.iter().map(|run| run.network.clone()).collect()
        };
        let (a, b) = (of(self.a)?, of(self.b)?);
        let row = NetworkRow::of(&a.iter().collect::<Vec<_>>(), &b.iter().collect::<Vec<_>>())?;
        for (name, change, unit, value) in [
            (
                "iterations",
                Change::Rate,
                Unit::Rate,
                (|f| f.rate_per_s) as fn(&NetworkFacts) -> Option<f64>,
            ),
            ("period", Change::Period, Unit::Rate, |f| f.period_ns),
            ("messages", Change::Messages, Unit::Packets, |f| {
                Some(f.messages)
            }),
            ("payload", Change::Payload, Unit::Packets, |f| {
                Some(f.payload_bytes)
            }),
        ] {
            let values =
                |facts: &[NetworkFacts]| -> Option<Vec<f64>> { facts.iter().map(value).collect() };
            // Periods that were found in different ways cannot be compared.
            let is_one_kind = change != Change::Period || row.a.period_by == row.b.period_by;
            if let (true, Some(a), Some(b)) = (is_one_kind, values(&a), values(&b)) {
                self.value(Subject::Network, name, change, unit, &a, &b);
            }
        }
        self.compared += 1;
        self.found.extend(row.a.balance.finding(&row.b.balance));
        Some(row)
    }

    fn rules(&mut self, rows: &mut Vec<RuleRow>) {
        let of = |runs: &[RunFacts]| -> BTreeSet<String> {
            runs.iter()
                .flat_map(|run| run.rules.keys().cloned())
                .collect()
        };
        let (in_a, in_b) = (of(self.a), of(self.b));
        for rule in in_a.union(&in_b) {
            let mean =
                |runs: &[RunFacts]| RuleFacts::mean(runs.iter().map(|run| run.rules.get(rule)));
            let (a, b) = (mean(self.a), mean(self.b));
            let cost = |facts: &RuleFacts| Some(facts.cost());
            match (&a, &b) {
                (None, Some(b)) => {
                    self.one_sided(Subject::Rule, rule, Change::New, b.executions, cost(b));
                }
                (Some(a), None) => {
                    self.one_sided(Subject::Rule, rule, Change::Gone, a.executions, cost(a));
                }
                _ => {
                    for (change, unit, of) in [
                        (
                            Change::Count,
                            Unit::Count,
                            (|f| f.executions) as fn(&RuleFacts) -> f64,
                        ),
                        (Change::Time, Unit::Wall, |f| f.time_ns),
                        (Change::Cpu, Unit::Cpu, |f| f.cpu_ns),
                        (Change::Waits, Unit::Wall, |f| f.waits_ns),
                        (Change::Reads, Unit::Bytes, |f| f.read_bytes),
                        (Change::Writes, Unit::Bytes, |f| f.write_bytes),
                        (Change::ReadCalls, Unit::Calls, |f| f.read_calls),
                        (Change::WriteCalls, Unit::Calls, |f| f.write_calls),
                    ] {
                        let (a, b) = (values(rule, of, self.a), values(rule, of, self.b));
                        self.value(Subject::Rule, rule, change, unit, &a, &b);
                    }
                }
            }
            rows.push(RuleRow {
                rule: rule.clone(),
                a,
                b,
            });
        }
        self.remark_on_calls(rows);
        // Waiting is part of the time: only one of the two is reported.
        let waiting: BTreeSet<String> = self
            .found
            .iter()
            .filter(|f| f.change == Change::Waits)
            .map(|f| f.name.clone())
            .collect();
        let on_cpu: BTreeSet<String> = self
            .found
            .iter()
            .filter(|f| f.change == Change::Cpu)
            .map(|f| f.name.clone())
            .collect();
        self.found.retain(|f| {
            f.subject != Subject::Rule
                || f.change != Change::Time
                || !(waiting.contains(&f.name) || on_cpu.contains(&f.name))
        });
    }

    /// States the size of calls and their share of all, and removes the findings of numbers of calls that changed
    /// as the bytes did: those say it.
    fn remark_on_calls(&mut self, rows: &[RuleRow]) {
        let (all_a, all_b) = (calls(self.a), calls(self.b));
        self.found.retain_mut(|finding| {
            let bytes: fn(&RuleFacts) -> f64 = match finding.change {
                Change::ReadCalls => |f| f.read_bytes,
                Change::WriteCalls => |f| f.write_bytes,
                _ => return true,
            };
            let row = rows.iter().find(|row| row.rule == finding.name);
            let Some((a, b)) = row.and_then(|row| row.a.as_ref().zip(row.b.as_ref())) else {
                return true;
            };
            let size_a = bytes(a) / finding.a.max(1.0);
            let size_b = bytes(b) / finding.b.max(1.0);
            let (was, share) = match finding.b < finding.a {
                true => ("was ", finding.a / all_a.max(1.0)),
                false => ("", finding.b / all_b.max(1.0)),
            };
            finding.remark = Some(format!(
                "{} → {} each · {was}{:.0} % of all read and write calls",
                units::bytes(size_a.round() as i64),
                units::bytes(size_b.round() as i64),
                share * 100.0
            ));
            let is_as_bytes = size_a.max(size_b) < 2.0 * size_a.min(size_b);
            !is_as_bytes
        });
    }

    fn files(&mut self) {
        let of = |runs: &[RunFacts]| -> BTreeSet<String> {
            runs.iter()
                .flat_map(|run| files_of(run, self.is_played).keys().cloned())
                .collect()
        };
        let (in_a, in_b) = (of(self.a), of(self.b));
        let (a_runs, b_runs, is_played) = (self.a, self.b, self.is_played);
        for name in in_a.union(&in_b) {
            let all = || {
                a_runs
                    .iter()
                    .chain(b_runs)
                    .filter_map(|run| files_of(run, is_played).get(name))
            };
            let subject = match all().all(|file| file.is_input) {
                true => Subject::Input,
                false => Subject::File,
            };
            let values = |of: fn(&FileFacts) -> f64, runs: &[RunFacts]| -> Vec<f64> {
                runs.iter()
                    .map(|run| files_of(run, is_played).get(name).map_or(0.0, of))
                    .collect()
            };
            match (in_a.contains(name), in_b.contains(name)) {
                // A replay makes only the files that its calls need.
                (false, _) | (_, false) if is_played && !all().any(|file| file.is_used) => {}
                (false, _) => {
                    let count = statistics::mean(&values(|f| f.count, b_runs));
                    self.one_sided(subject, name, Change::New, count, None);
                }
                (_, false) => {
                    let count = statistics::mean(&values(|f| f.count, a_runs));
                    self.one_sided(subject, name, Change::Gone, count, None);
                }
                _ => {
                    for (change, unit, of) in [
                        (
                            Change::Count,
                            Unit::Count,
                            (|f| f.count) as fn(&FileFacts) -> f64,
                        ),
                        (Change::Size, Unit::Bytes, |f| f.size_bytes),
                    ] {
                        // A replay makes a file that was there before as large as it was read.
                        if is_played && subject == Subject::Input && change == Change::Size {
                            continue;
                        }
                        let (a, b) = (values(of, a_runs), values(of, b_runs));
                        self.value(subject, name, change, unit, &a, &b);
                    }
                }
            }
        }
    }

    /// Adds a finding for a subject found in all runs of one side and in none of the other; one found in some
    /// runs only is left out.
    fn one_sided(
        &mut self,
        subject: Subject,
        name: &str,
        change: Change,
        count: f64,
        remark: Option<String>,
    ) {
        let runs = if change == Change::New {
            self.b
        } else {
            self.a
        };
        let is_in_all = runs.iter().all(|run| match subject {
            Subject::Rule => run.rules.contains_key(name),
            _ => files_of(run, self.is_played).contains_key(name),
        });
        self.compared += 1;
        if is_in_all {
            let (a, b) = if change == Change::New {
                (0.0, count)
            } else {
                (count, 0.0)
            };
            self.found.push(Finding {
                subject,
                name: name.into(),
                change,
                a,
                b,
                p: None,
                remark,
            });
        }
    }

    fn value(
        &mut self,
        subject: Subject,
        name: &str,
        change: Change,
        unit: Unit,
        a: &[f64],
        b: &[f64],
    ) {
        self.compared += 1;
        self.found
            .extend(self.differ(unit, a, b).map(|(a, b, p)| Finding {
                subject,
                name: name.into(),
                change,
                a,
                b,
                p,
                remark: None,
            }));
    }

    /// The means of values and the probability of their difference by chance, where it is large enough.
    fn differ(&self, unit: Unit, a: &[f64], b: &[f64]) -> Option<(f64, f64, Option<f64>)> {
        let (mean_a, mean_b) = (statistics::mean(a), statistics::mean(b));
        let difference = (mean_b - mean_a).abs();
        let least = match unit {
            Unit::Rate | Unit::Number => f64::MIN_POSITIVE,
            _ => 1.0,
        };
        let share = difference / mean_a.min(mean_b).max(least);
        let is_tested = a.len() > 1 && b.len() > 1;
        let is_large = match (unit, is_tested) {
            (Unit::Rate, true) => share > LEAST_SHARE_TESTED,
            (Unit::Rate, false) => share > LEAST_SHARE * self.crowd,
            (Unit::Packets, _) => difference >= 1.0 && share > LEAST_SHARE_OF_PACKETS,
            (Unit::Count, _) => difference >= 1.0,
            (Unit::Calls, _) => {
                difference >= LEAST_CALLS.max(LEAST_SHARE_OF_CALLS * self.calls) && share >= 1.0
            }
            (Unit::Number, false) => share > LEAST_SHARE,
            (Unit::Number, true) => share > LEAST_SHARE_TESTED,
            (Unit::Bytes, _) => difference > LEAST_BYTES && share > LEAST_SHARE_OF_BYTES,
            (_, true) => difference > LEAST_NS_TESTED && share > LEAST_SHARE_TESTED,
            (Unit::Wall, false) => {
                difference > LEAST_NS.max(self.shortest_ns * 0.05) * self.crowd
                    && share > LEAST_SHARE * self.crowd
            }
            (Unit::Cpu, false) => {
                difference > LEAST_NS.max(self.shortest_ns * 0.02) * self.crowd
                    && share > LEAST_SHARE_OF_CPU * self.crowd
            }
        };
        is_large.then(|| {
            let p = is_tested.then(|| statistics::welch(a, b));
            (mean_a, mean_b, p)
        })
    }

    /// States why steps took another time, and adds those that did because their processes ran more or fewer at a
    /// time, or waited for CPUs: the sums of their times do not show that. These must explain a part of the
    /// change of the duration. Returns those that are no findings, since the durations differ perhaps by chance.
    fn explain(&self, findings: &mut Vec<Finding>, comparison: &Comparison) -> Vec<Finding> {
        /// Least part of the change of the duration.
        const LEAST: f64 = 0.2;
        let duration = &comparison.duration;
        let change = duration.b_ns - duration.a_ns;
        let load = |runs: &[RunFacts]| -> Option<f64> {
            let loads: Option<Vec<f64>> = runs.iter().map(|run| run.other_load).collect();
            loads.map(|loads| statistics::mean(&loads))
        };
        let load = load(self.a).zip(load(self.b));
        let is_of_time = |f: &Finding| {
            let is_time = matches!(f.change, Change::Time | Change::Cpu | Change::Waits);
            f.subject == Subject::Rule && is_time
        };
        for finding in findings.iter_mut().filter(|f| is_of_time(f)) {
            let row = comparison.row(finding);
            let Some((a, b)) = row.and_then(|row| row.a.as_ref().zip(row.b.as_ref())) else {
                continue;
            };
            let reasons = reason::reasons(a, b, load);
            let is_new = |one: &&Reason| finding.change != Change::Cpu || one.kind != Kind::Cpu;
            finding.remark = reason::texts(reasons.iter().filter(is_new));
        }
        let mut unsure = Vec::new();
        if duration.verdict == DurationVerdict::Same {
            return unsure;
        }
        let is_explained = |rule: &str| findings.iter().any(|f| is_of_time(f) && f.name == rule);
        let rows = comparison.rules.iter();
        let candidates: Vec<_> = rows
            .filter_map(|row| {
                let (a, b) = row.a.as_ref().zip(row.b.as_ref())?;
                let own = b.span_ns - a.span_ns;
                let is_part = own * change > 0.0 && own.abs() >= LEAST * change.abs();
                let is_candidate = is_part && !is_explained(&row.rule);
                is_candidate.then(|| (&row.rule, a, b, reason::reasons(a, b, load)))
            })
            .collect();
        let tests = candidates.len();
        for (rule, a, b, reasons) in candidates {
            let Some(remark) = reason::texts(&reasons) else {
                continue;
            };
            let p = match duration.verdict {
                DurationVerdict::Different => Some(duration.p),
                _ => self.number_at_a_time(rule, &reasons, tests),
            };
            let found = match p {
                Some(_) => &mut *findings,
                None => &mut unsure,
            };
            found.push(Finding {
                subject: Subject::Rule,
                name: rule.clone(),
                change: Change::Span,
                a: a.span_ns,
                b: b.span_ns,
                p: p.flatten(),
                remark: Some(remark),
            });
        }
        // The duration is explained.
        if findings.iter().any(|f| f.change == Change::Span) {
            findings.retain(|f| f.change != Change::Duration);
        }
        unsure
    }

    /// The probability by chance of another number of processes at a time, which does not depend on how crowded
    /// the machine is; `None`: it may be chance, or does not by itself change the duration enough to be shown.
    /// `tests`: number of rules tested.
    fn number_at_a_time(
        &self,
        rule: &str,
        reasons: &[Reason],
        tests: usize,
    ) -> Option<Option<f64>> {
        let number = reasons.iter().find(|one| one.kind == Kind::Number)?;
        if number.ns.abs() <= SHOWN_SHARE * self.shortest_ns {
            return None;
        }
        let of = |runs| values(rule, RuleFacts::at_a_time, runs);
        let (.., p) = self.differ(Unit::Number, &of(self.a), &of(self.b))?;
        let p = p.map(|p| (p * tests as f64).min(1.0));
        p.is_none_or(|p| p < CHANCE).then_some(p)
    }
}

/// The files of a run under the names under which both sides have them.
fn files_of(run: &RunFacts, is_played: bool) -> &BTreeMap<String, FileFacts> {
    if is_played { &run.placed } else { &run.files }
}

/// Adds a remark to a rule that changed and whose share of the critical path changed, too.
fn remark_on_paths(findings: &mut [Finding], rows: &[RuleRow], a: &[RunFacts], b: &[RunFacts]) {
    let length = |runs: &[RunFacts]| {
        let lengths: Vec<f64> = runs.iter().map(|run| run.path_ns as f64).collect();
        statistics::mean(&lengths).max(1.0)
    };
    let (length_a, length_b) = (length(a), length(b));
    for finding in findings.iter_mut().filter(|f| f.subject == Subject::Rule) {
        let Some(row) = rows.iter().find(|row| row.rule == finding.name) else {
            continue;
        };
        let share = |facts: &Option<RuleFacts>, length: f64| {
            facts.as_ref().map_or(0.0, |f| f.path_ns / length)
        };
        let (before, after) = (share(&row.a, length_a), share(&row.b, length_b));
        if (before - after).abs() >= 0.1 {
            let (now, was) = (after * 100.0, before * 100.0);
            // A rule that did not run on a side has no share of that path.
            let moved = match (&row.a, &row.b) {
                (None, _) => format!("{now:.0} % of the critical path"),
                (_, None) => format!("was {was:.0} % of the critical path"),
                _ => format!("{now:.0} % of the critical path, was {was:.0} %"),
            };
            finding.remark = Some(match finding.remark.take() {
                Some(remark) => format!("{remark} · {moved}"),
                None => moved,
            });
        }
    }
}

#[cfg(test)]
mod tests;
