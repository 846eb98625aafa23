//! The file calls: by step and operation, over time, and the distributions of their sizes and times.

use std::collections::{BTreeMap, HashMap};

use flowtrace_schema::{Class, Op, Result, Trace};
use serde::Serialize;

use super::rules::Numbers;
use crate::distribution::Distribution;
use crate::model::Workflow;

/// Intervals of the timeline.
const BINS: usize = 1000;

/// Sums of the file calls.
#[derive(Debug, Default, Serialize)]
pub(super) struct Calls {
    /// By rule and operation.
    by_op: Vec<OpSum>,
    /// Length of an interval of `over_time`, ns; the first begins at 0.
    bin_ns: i64,
    over_time: OverTime,
    /// Durations of the calls of each operation.
    durations: Vec<Spread>,
    /// Bytes moved by successful calls that move data.
    sizes: Vec<Spread>,
    /// The same durations unrounded, for pictures.
    #[serde(skip)]
    pub(super) latency: Vec<(String, Distribution)>,
    /// Bytes of requests by rule and direction, most requests first, for pictures.
    #[serde(skip)]
    pub(super) requests: Vec<(String, Distribution)>,
}

#[derive(Debug, Serialize)]
struct OpSum {
    /// `None`: the kernel itself, or not known.
    rule: Option<usize>,
    op: &'static str,
    calls: i64,
    /// Failed calls.
    errors: i64,
    /// Bytes moved by calls that read or wrote.
    bytes: i64,
    ns: i64,
    max_ns: i64,
}

#[derive(Debug, Default, Serialize)]
struct OverTime {
    calls: Vec<i64>,
    read_bytes: Vec<i64>,
    write_bytes: Vec<i64>,
}

/// Counts of values: the upper end of each interval, which are 19 % wide, and the number of values in it.
#[derive(Debug, Serialize)]
struct Spread {
    op: &'static str,
    buckets: Vec<(i64, i64)>,
}

fn spread(op: Op, values: &Distribution) -> Spread {
    let mut buckets = BTreeMap::new();
    for (value, count) in values.counts() {
        *buckets.entry(bucket(value)).or_default() += count;
    }
    let buckets = buckets.into_iter();
    Spread {
        op: op.name(),
        buckets: buckets.map(|(b, count)| (upper_end(b), count)).collect(),
    }
}

/// The interval of a value: those below 8 have one each, then four to each doubling.
fn bucket(value: i64) -> u32 {
    let value = value.max(0) as u64;
    if value < 8 {
        return value as u32;
    }
    let octave = value.ilog2();
    octave * 4 + (value >> (octave - 2) & 3) as u32 - 4
}

/// The largest value of an interval.
fn upper_end(bucket: u32) -> i64 {
    if bucket < 8 {
        return i64::from(bucket);
    }
    let (octave, quarter) = ((bucket + 4) / 4, u64::from(bucket % 4));
    let end = ((5 + quarter) as u128) << (octave - 2);
    i64::try_from(end - 1).unwrap_or(i64::MAX)
}

/// Bytes that a call moved; `None` for a call that moves none.
fn moved(op: Op, result: i64) -> Option<(bool, i64)> {
    match op {
        _ if result < 0 => None,
        op if op.class() == Class::Read => Some((true, result)),
        Op::Write | Op::CopyTo => Some((false, result)),
        _ => None,
    }
}

pub(super) fn of(workflow: &Workflow, numbers: &Numbers, trace: &Trace) -> Result<Calls> {
    let rules: HashMap<i64, usize> = workflow
        .images
        .iter()
        .map(|image| (image.upid, numbers.of_image(image)))
        .collect();
    let bin_ns = (workflow.last_ns / BINS as i64 + 1).max(1);
    let zeros = || vec![0; BINS];
    let mut over_time = OverTime {
        calls: zeros(),
        read_bytes: zeros(),
        write_bytes: zeros(),
    };
    let mut sums = BTreeMap::<(Option<usize>, u8), OpSum>::new();
    let mut durations = BTreeMap::<u8, (Op, Distribution)>::new();
    let mut sizes = BTreeMap::<u8, (Op, Distribution)>::new();
    let mut requests = BTreeMap::<(Option<usize>, bool), Distribution>::new();
    // Calls come in bursts of one process, and a lookup in a map with a million entries is slow.
    let mut last: (Option<i64>, Option<usize>) = (None, None);
    trace.for_each_call(|call| {
        let Some(op) = call.op else {
            return;
        };
        if call.upid != last.0 {
            last = (
                call.upid,
                call.upid.and_then(|upid| rules.get(&upid).copied()),
            );
        }
        let rule = last.1;
        let key = op as u8;
        let sum = sums.entry((rule, key)).or_insert_with(|| OpSum {
            rule,
            op: op.name(),
            calls: 0,
            errors: 0,
            bytes: 0,
            ns: 0,
            max_ns: 0,
        });
        sum.calls += 1;
        sum.errors += i64::from(call.result < 0);
        sum.ns = sum.ns.saturating_add(call.duration_ns);
        sum.max_ns = sum.max_ns.max(call.duration_ns);
        let bin = usize::try_from(call.start_ns / bin_ns)
            .unwrap_or(0)
            .min(BINS - 1);
        over_time.calls[bin] += 1;
        if let Some((is_read, bytes)) = moved(op, call.result) {
            sum.bytes = sum.bytes.saturating_add(bytes);
            let way = if is_read {
                &mut over_time.read_bytes
            } else {
                &mut over_time.write_bytes
            };
            way[bin] = way[bin].saturating_add(bytes);
            let (_, sizes) = sizes.entry(key).or_insert((op, Distribution::default()));
            sizes.add(bytes);
            requests.entry((rule, is_read)).or_default().add(bytes);
        }
        let (_, durations) = durations
            .entry(key)
            .or_insert((op, Distribution::default()));
        durations.add(call.duration_ns);
    })?;
    let spreads = |of: &BTreeMap<u8, (Op, Distribution)>| {
        of.values()
            .map(|(op, values)| spread(*op, values))
            .collect()
    };
    if sums.is_empty() {
        over_time = OverTime::default();
    }
    Ok(Calls {
        by_op: sums.into_values().collect(),
        bin_ns,
        over_time,
        durations: spreads(&durations),
        sizes: spreads(&sizes),
        latency: durations
            .into_values()
            .map(|(op, values)| (op.name().to_owned(), values))
            .collect(),
        requests: by_count(requests.into_iter().map(|((rule, is_read), values)| {
            let rule = rule.map_or("(not known)", |rule| numbers.name(rule));
            let way = if is_read { "reads" } else { "writes" };
            (format!("{rule} {way}"), values)
        })),
    })
}

fn by_count(found: impl Iterator<Item = (String, Distribution)>) -> Vec<(String, Distribution)> {
    let mut found: Vec<_> = found.collect();
    found.sort_by(|a, b| (b.1.count, &a.0).cmp(&(a.1.count, &b.0)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_interval() {
        let mut values: Vec<i64> = (0..5000).collect();
        values.extend((12..63).flat_map(|n| [(1i64 << n) - 1, 1 << n, (1 << n) + (1 << (n - 1))]));
        values.push(i64::MAX);
        for value in values {
            let at = bucket(value);
            assert!(value <= upper_end(at), "{value} {at}");
            assert!(at == 0 || value > upper_end(at - 1), "{value} {at}");
        }
    }
}
