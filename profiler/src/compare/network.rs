//! The facts from the packets of a run that are compared: rate of iterations, period, messages, and the
//! process that holds the others up.

use flowtrace_network::evidence::{self, Verdict};
use flowtrace_network::load::Selection;
use flowtrace_network::run::{Node, Run};
use flowtrace_network::{calls, rir};
use flowtrace_render::units::{bytes, count, duration};
use flowtrace_schema::{Result, Trace};
use serde::Serialize;

use super::finding::{Change, Finding, LEAST_SHARE, Subject};
use super::statistics;
use crate::packets;

/// Facts from the packets of one run; `None` in a field means that the value is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetworkFacts {
    /// Time from the first to the last packet of the program, ns.
    pub span_ns: f64,
    /// Iterations per second and pair of processes (RIR), median over the pairs.
    pub rate_per_s: Option<f64>,
    /// Length of one repetition, the first that `network period` names, ns.
    pub period_ns: Option<f64>,
    /// The method that found the period.
    pub period_by: Option<&'static str>,
    /// Number of messages.
    pub messages: f64,
    /// Payload without retransmissions, bytes.
    pub payload_bytes: f64,
    /// The process that holds the others up.
    pub balance: Balance,
}

/// The verdict on the process that holds the others up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Balance {
    /// Names of the processes, without their pids. Empty if the load is balanced, or if nothing is
    /// known.
    pub loaded: Vec<String>,
    /// True if `network balance` is sure. Otherwise the processes are those with the longest delays
    /// (3.6), or there are none.
    pub is_sure: bool,
    /// Ball-in-the-court delays of each process, ns.
    pub delays_ns: Vec<(String, f64)>,
}

impl NetworkFacts {
    /// The facts of a trace whose packets can be analysed; `None` for any other trace.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn of(trace: &Trace) -> Result<Option<NetworkFacts>> {
        if trace.captures()?.is_empty() {
            return Ok(None);
        }
        let run = packets::load(trace, &Selection::default())?;
        Ok(run.ok().and_then(|run| NetworkFacts::of_run(&run)))
    }

    /// The facts of the packets of a run; `None` if it has no messages.
    pub(super) fn of_run(run: &Run) -> Option<NetworkFacts> {
        let traffic = calls::traffic_matrix(run, None).ok()?.value;
        let messages = calls::message_counts(run, None).ok()?.value;
        let phase = calls::super_phase(run).ok().map(|known| known.value);
        let period = phase
            .as_ref()
            .and_then(|phase| phase.components.first()?.periods.first());
        Some(NetworkFacts {
            span_ns: run.seconds() * 1e9,
            rate_per_s: calls::rir_rate(run, None)
                .ok()
                .map(|known| known.value.rate),
            period_ns: period.map(|period| period.seconds * 1e9),
            period_by: period.map(|period| period.basis.name()),
            messages: messages.iter().map(|of| of.2 as f64).sum(),
            payload_bytes: traffic
                .off_diagonal()
                .map(|(.., cell)| cell.payload_bytes as f64)
                .sum(),
            balance: balance(run),
        })
    }
}

fn balance(run: &Run) -> Balance {
    // The same program has other pids in each run.
    let named = |node: Node| {
        let name = &run.nodes()[usize::from(node)];
        name.split(" (pid ").next().unwrap_or(name).to_owned()
    };
    let delay = |node: Node| {
        Some((
            named(node),
            calls::bic_global(run, node, None).ok()?.value.seconds * 1e9,
        ))
    };
    let mut balance = Balance {
        delays_ns: run.all().filter_map(delay).collect(),
        ..Balance::default()
    };
    match evidence::weigh(run).map(|evidence| evidence.verdict) {
        Ok(Verdict::Loaded(nodes)) => {
            balance.is_sure = true;
            balance.loaded = nodes.into_iter().map(named).collect();
            balance.loaded.sort();
        }
        Ok(Verdict::Balanced) => balance.is_sure = true,
        Ok(Verdict::Unsure(_)) | Err(_) => {
            let gate = calls::imbalance_global(run, None)
                .ok()
                .map(|known| known.value.gate);
            let loaded = gate
                .filter(|gate| gate.is_open)
                .map(|gate| gate.loaded as Node);
            balance.loaded = loaded.into_iter().map(named).collect();
        }
    }
    balance
}

/// Facts from the packets of both sides, as means over the runs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NetworkRow {
    /// The first side.
    pub a: NetworkFacts,
    /// The second side.
    pub b: NetworkFacts,
    /// Duration of the second side predicted from the iteration rates alone (3.8,
    /// `PET = T_base * RIR_base / RIR_now`), ns.
    pub predicted_ns: Option<f64>,
}

impl NetworkRow {
    /// The row of two sides; `None` if a run of either side has no packets.
    pub(super) fn of(a: &[&NetworkFacts], b: &[&NetworkFacts]) -> Option<NetworkRow> {
        let (a, b) = (mean(a)?, mean(b)?);
        let rates = a.rate_per_s.zip(b.rate_per_s);
        let predicted_ns =
            rates.and_then(|(base, now)| rir::predicted_s(a.span_ns / 1e9, base, now));
        Some(NetworkRow {
            predicted_ns: predicted_ns.map(|seconds| seconds * 1e9),
            a,
            b,
        })
    }

    /// Lines for people: name, first side, second side.
    pub fn lines(&self) -> Vec<(&'static str, String, String)> {
        let both = |of: &dyn Fn(&NetworkFacts) -> Option<String>| {
            let shown = |facts| of(facts).unwrap_or_else(|| "unknown".into());
            (shown(&self.a), shown(&self.b))
        };
        let time = |ns: f64| duration(ns.round() as i64);
        let mut lines = Vec::new();
        let mut line = |what, (a, b): (String, String)| lines.push((what, a, b));
        line("first to last packet", both(&|f| Some(time(f.span_ns))));
        if let Some(ns) = self.predicted_ns {
            line("predicted by the rates", ("the base".into(), time(ns)));
        }
        line(
            "iterations",
            both(&|f| f.rate_per_s.map(|rate| format!("{rate:.1}/s"))),
        );
        line(
            "period",
            both(&|f| Some(format!("{} ({})", time(f.period_ns?), f.period_by?))),
        );
        line(
            "messages",
            both(&|f| Some(count(f.messages.round() as i64))),
        );
        line(
            "payload",
            both(&|f| Some(bytes(f.payload_bytes.round() as i64))),
        );
        line("holds the others up", both(&|f| Some(f.balance.shown())));
        lines
    }
}

impl Balance {
    fn shown(&self) -> String {
        match (self.loaded.is_empty(), self.is_sure) {
            (true, true) => "nobody".into(),
            (true, false) => "unknown".into(),
            (false, true) => self.loaded.join(", "),
            (false, false) => format!("{} by its delays, not for sure", self.loaded.join(", ")),
        }
    }

    fn delay_ns(&self, names: &[String]) -> f64 {
        let of = self
            .delays_ns
            .iter()
            .filter(|(name, _)| names.contains(name));
        of.map(|(_, ns)| ns).sum()
    }

    /// The change of the verdict as a finding. If one of the two is not sure, it is a finding only if
    /// the delays differ too.
    pub(super) fn finding(&self, other: &Balance) -> Option<Finding> {
        if self.loaded == other.loaded {
            return None;
        }
        let names = match other.loaded.is_empty() {
            true => &self.loaded,
            false => &other.loaded,
        };
        let (a, b) = (self.delay_ns(names), other.delay_ns(names));
        // Names by delays alone change when two delays are nearly equal.
        let is_larger = (b - a).abs() > LEAST_SHARE * a.min(b);
        (self.is_sure && other.is_sure || is_larger).then(|| Finding {
            subject: Subject::Network,
            name: names.join(", "),
            change: Change::Balance,
            a,
            b,
            p: None,
            remark: Some(format!(
                "delayed the others: {} → {}",
                self.shown(),
                other.shown()
            )),
        })
    }
}

/// The means. A value that is unknown for one run is unknown for the side. The process that holds the
/// others up must be the same in all runs.
fn mean(of: &[&NetworkFacts]) -> Option<NetworkFacts> {
    let first = *of.first()?;
    let all = |value: fn(&NetworkFacts) -> f64| {
        let values: Vec<f64> = of.iter().map(|facts| value(facts)).collect();
        statistics::mean(&values)
    };
    let known = |value: fn(&NetworkFacts) -> Option<f64>| {
        let values: Option<Vec<f64>> = of.iter().map(|facts| value(facts)).collect();
        values.map(|values| statistics::mean(&values))
    };
    let is_same = |other: &&NetworkFacts| other.balance.loaded == first.balance.loaded;
    let balance = match of.iter().all(is_same) {
        true => first.balance.clone(),
        false => Balance::default(),
    };
    let is_one_kind = of.iter().all(|facts| facts.period_by == first.period_by);
    Some(NetworkFacts {
        span_ns: all(|f| f.span_ns),
        rate_per_s: known(|f| f.rate_per_s),
        period_ns: known(|f| f.period_ns).filter(|_| is_one_kind),
        period_by: first.period_by.filter(|_| is_one_kind),
        messages: all(|f| f.messages),
        payload_bytes: all(|f| f.payload_bytes),
        balance,
    })
}
