//! One pass over all calls.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_schema::{CallRow, Class, Fidelity, Op, Result, Trace};

use super::patterns::{Pattern, Patterns};
use crate::distribution::Distribution;
use crate::load::{Places, load_and};
use crate::model::{FileIndex, Process, ProcessId, Workflow};

/// Statistics that need the single calls.
#[derive(Clone, Debug, Default)]
pub struct CallStatistics {
    /// The operations that occurred, in the order of their numbers.
    pub ops: Vec<OpStatistics>,
    /// Sizes of requests by rule, in the order of rules.
    pub sizes: Vec<RuleSizes>,
    /// Calls over time, from `begins_ns` on.
    pub bins: Vec<Bin>,
    /// Begin of the first bin, ns: the origin of displayed times.
    pub begins_ns: i64,
    /// Length of a bin, ns.
    pub bin_ns: i64,
    /// Failed calls, the most frequent first.
    pub failed: Vec<Failed>,
    /// The order of requests, for every pair of process and file with data calls, sorted.
    pub patterns: Vec<(ProcessId, FileIndex, Pattern)>,
    /// Number of calls with known time.
    pub calls: i64,
    /// Number of opens of files outside of the traced directories; their time is not known.
    pub open_only: i64,
    /// Bytes that programs moved through such files that they inherited open; the calls are not known.
    pub inherited_bytes: i64,
}

/// The calls of one operation.
#[derive(Clone, Debug)]
pub struct OpStatistics {
    /// The operation.
    pub op: Op,
    /// Durations, ns, including failed calls.
    pub latency: Distribution,
    /// Number of failed calls.
    pub failed: i64,
    /// Bytes moved.
    pub bytes: i64,
}

/// Sizes of the data requests of a rule.
#[derive(Clone, Debug, Default)]
pub struct RuleSizes {
    /// The rule.
    pub rule: Arc<str>,
    /// Bytes that reads returned.
    pub read: Distribution,
    /// Bytes that writes wrote.
    pub write: Distribution,
}

/// Calls of an interval. A call counts where it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Bytes read.
    pub read_bytes: i64,
    /// Bytes written.
    pub write_bytes: i64,
    /// Calls of any kind.
    pub calls: i64,
    /// Sum of their durations, ns.
    pub latency_ns: i64,
}

/// Calls that failed in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Operation.
    pub op: Op,
    /// Error number.
    pub errno: i64,
    /// Rule of the program; `None`: not known.
    pub rule: Option<Arc<str>>,
    /// Number of calls.
    pub count: i64,
    /// Sum of their durations, ns.
    pub latency_ns: i64,
    /// Number of them that searched or opened a file for a process that failed in the end: they may be the reason.
    pub of_failed: i64,
    /// A file of one of the calls; of those of failed processes, if there are any.
    pub file: Option<FileIndex>,
}

/// Time from the origin of displayed times to the last known instant, ns.
fn length_ns(workflow: &Workflow) -> i64 {
    workflow.last_ns.saturating_sub(workflow.begins_ns()).max(0)
}

/// Gathers statistics in one pass over all calls, with time in at most `bins` intervals.
///
/// # Errors
/// When the trace cannot be read.
pub fn gather(trace: &Trace, workflow: &Workflow, bins: usize) -> Result<CallStatistics> {
    let mut pass = Pass::new(workflow, bins);
    trace.for_each_call(|call| pass.add(call))?;
    Ok(pass.finish(workflow))
}

/// Reads a workflow and gathers the statistics of its calls in one pass.
///
/// # Errors
/// When the trace cannot be read.
pub fn load_and_gather(trace: &Trace, bins: usize) -> Result<(Workflow, CallStatistics)> {
    let (workflow, pass) = load_and(trace, |workflow| Pass::new(workflow, bins), Pass::add)?;
    let calls = pass.finish(&workflow);
    Ok((workflow, calls))
}

struct Pass {
    places: Places,
    /// True for each process that failed.
    has_failed: Vec<bool>,
    /// Number of the rule of every image.
    rule_of: Vec<u32>,
    rules: Vec<Arc<str>>,
    ops: Vec<OpStatistics>,
    sizes: Vec<[Distribution; 2]>,
    failed: HashMap<(u8, i64, u32), Failed>,
    patterns: Patterns,
    bins: Vec<Bin>,
    begins_ns: i64,
    bin_ns: i64,
    calls: i64,
    open_only: i64,
    inherited_bytes: i64,
}

/// Error of calls that only a terminal answers; this number is the same on every Linux.
const ENOTTY: i64 = 25;

/// Rule number of unknown processes.
const UNKNOWN: u32 = u32::MAX;

impl Pass {
    fn new(workflow: &Workflow, bins: usize) -> Pass {
        let mut numbers: HashMap<Arc<str>, u32> = HashMap::new();
        let mut rules = Vec::new();
        let rule_of = workflow
            .images
            .iter()
            .map(|image| {
                let rule = &image.rule;
                *numbers.entry(Arc::clone(rule)).or_insert_with(|| {
                    rules.push(Arc::clone(rule));
                    rules.len() as u32 - 1
                })
            })
            .collect();
        let bins = bins.max(1);
        Pass {
            places: Places::of(workflow),
            has_failed: workflow.processes.iter().map(Process::has_failed).collect(),
            rule_of,
            ops: Op::ALL
                .iter()
                .map(|&op| OpStatistics {
                    op,
                    latency: Distribution::default(),
                    failed: 0,
                    bytes: 0,
                })
                .collect(),
            sizes: vec![<[Distribution; 2]>::default(); rules.len()],
            rules,
            failed: HashMap::new(),
            patterns: Patterns::default(),
            bins: vec![Bin::default(); bins],
            begins_ns: workflow.begins_ns(),
            bin_ns: (length_ns(workflow) / bins as i64 + 1).max(1),
            calls: 0,
            open_only: 0,
            inherited_bytes: 0,
        }
    }

    fn add(&mut self, call: &CallRow) {
        if call.fidelity == Fidelity::Open {
            match call.op.map(Op::class) {
                Some(Class::Read | Class::Write) => {
                    self.inherited_bytes = self.inherited_bytes.saturating_add(call.result);
                }
                _ => self.open_only += 1,
            }
            return;
        }
        self.calls += 1;
        let at = call.start_ns.saturating_sub(self.begins_ns) / self.bin_ns;
        let bin = at.clamp(0, self.bins.len() as i64 - 1) as usize;
        let bin = &mut self.bins[bin];
        bin.calls += 1;
        bin.latency_ns = bin.latency_ns.saturating_add(call.duration_ns);
        let Some(op) = call.op else { return };
        let of_op = &mut self.ops[op as usize - 1];
        of_op.latency.add(call.duration_ns);
        let process = call.upid.and_then(|upid| self.places.process(upid));
        let image = call.upid.and_then(|upid| self.places.image(upid));
        let rule = image.map_or(UNKNOWN, |image| self.rule_of[image]);
        let file = call.file_id.and_then(|id| self.places.file(id));
        if call.result < 0 {
            of_op.failed += 1;
            let errno = call.result.saturating_neg();
            let key = (op as u8, errno, rule);
            let failed = self.failed.entry(key).or_insert_with(|| Failed {
                op,
                errno,
                rule: self.rules.get(rule as usize).cloned(),
                count: 0,
                latency_ns: 0,
                of_failed: 0,
                file,
            });
            let has_failed = process.is_some_and(|process| self.has_failed[process.0 as usize]);
            if has_failed && matches!(op.class(), Class::Open | Class::Attribute) {
                failed.of_failed += 1;
                failed.file = file;
            }
            failed.count += 1;
            failed.latency_ns = failed.latency_ns.saturating_add(call.duration_ns);
            return;
        }
        let is_read = op.class() == Class::Read;
        if !is_read && !matches!(op, Op::Write | Op::CopyTo) {
            return;
        }
        of_op.bytes = of_op.bytes.saturating_add(call.result);
        let sum = if is_read {
            &mut bin.read_bytes
        } else {
            &mut bin.write_bytes
        };
        *sum = sum.saturating_add(call.result);
        if let Some(sizes) = self.sizes.get_mut(rule as usize) {
            sizes[usize::from(!is_read)].add(call.result);
        }
        if let (Some(process), Some(file), Some(offset)) = (process, file, call.offset) {
            self.patterns
                .add(process, file, is_read, offset, call.result);
        }
    }

    fn finish(self, workflow: &Workflow) -> CallStatistics {
        let mut failed: Vec<Failed> = self.failed.into_values().collect();
        // A program asks in this way whether a file is a terminal.
        let is_question = |one: &Failed| one.errno == ENOTTY;
        let is_search = |one: &Failed| one.of_failed > 0 && one.op.class() != Class::Open;
        let first = |one: &Failed| {
            let is_other = one.of_failed == 0;
            (is_other, is_question(one), is_search(one), -one.count)
        };
        failed.sort_by(|a, b| {
            let other = |one: &Failed| (one.op as u8, one.errno);
            (first(a), other(a), &a.rule).cmp(&(first(b), other(b), &b.rule))
        });
        let mut sizes: Vec<RuleSizes> = self
            .rules
            .into_iter()
            .zip(self.sizes)
            .filter(|(_, [read, write])| read.count + write.count > 0)
            .map(|(rule, [read, write])| RuleSizes { rule, read, write })
            .collect();
        sizes.sort_by(|a, b| a.rule.cmp(&b.rule));
        // A run cut short, or one that has not ended, may have calls after its last known instant.
        let used = (length_ns(workflow) / self.bin_ns) as usize + 1;
        let mut bins = self.bins;
        bins.truncate(used.max(1));
        CallStatistics {
            ops: self
                .ops
                .into_iter()
                .filter(|op| op.latency.count > 0)
                .collect(),
            sizes,
            bins,
            begins_ns: self.begins_ns,
            bin_ns: self.bin_ns,
            failed,
            patterns: self.patterns.finish(),
            calls: self.calls,
            open_only: self.open_only,
            inherited_bytes: self.inherited_bytes,
        }
    }
}
