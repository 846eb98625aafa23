//! What the steps waited for, and for whom.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use flowtrace_schema::{Result, Trace};
use serde::Serialize;

use super::rules::Numbers;
use crate::model::Workflow;

/// Rows kept of each list.
const MOST: usize = 500;

#[derive(Debug, Default, Serialize)]
pub(super) struct Waits {
    /// How long the threads of a rule were seen in each state, the longest first.
    states: Vec<State>,
    /// Which rule waited for which, the longest first.
    waits: Vec<Wait>,
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct State {
    rule: usize,
    state: String,
    reason: Option<String>,
    ns: i64,
    samples: i64,
}

#[derive(Debug, Serialize)]
struct Wait {
    rule: usize,
    reason: String,
    /// Rule of the counterpart; `None`: not known, or none.
    counterpart: Option<usize>,
    ns: i64,
    waits: i64,
}

pub(super) fn of(workflow: &Workflow, numbers: &Numbers, trace: &Trace) -> Result<Waits> {
    let rules: HashMap<i64, usize> = workflow
        .images
        .iter()
        .map(|image| (image.upid, numbers.of_image(image)))
        .collect();
    let mut states = BTreeMap::<(usize, String, Option<String>), (i64, i64)>::new();
    for row in trace.states()? {
        let Some(&rule) = rules.get(&row.upid) else {
            continue;
        };
        let sum = states.entry((rule, row.state, row.reason)).or_default();
        *sum = (sum.0.saturating_add(row.ns), sum.1 + row.samples);
    }
    let mut waits = BTreeMap::<(usize, String, Option<usize>), (i64, i64)>::new();
    for row in trace.wait_sums()? {
        let Some(&rule) = rules.get(&row.upid) else {
            continue;
        };
        let counterpart = row
            .counterpart_upid
            .and_then(|upid| rules.get(&upid).copied());
        let sum = waits.entry((rule, row.reason, counterpart)).or_default();
        *sum = (sum.0.saturating_add(row.ns), sum.1 + row.waits);
    }
    let mut states: Vec<State> = states
        .into_iter()
        .map(|((rule, state, reason), (ns, samples))| State {
            rule,
            state,
            reason,
            ns,
            samples,
        })
        .collect();
    let mut waits: Vec<Wait> = waits
        .into_iter()
        .map(|((rule, reason, counterpart), (ns, waits))| Wait {
            rule,
            reason,
            counterpart,
            ns,
            waits,
        })
        .collect();
    states.sort_by_key(|state| Reverse(state.ns));
    waits.sort_by_key(|wait| Reverse(wait.ns));
    let left_out = states.len().saturating_sub(MOST) + waits.len().saturating_sub(MOST);
    states.truncate(MOST);
    waits.truncate(MOST);
    Ok(Waits {
        states,
        waits,
        left_out,
    })
}
