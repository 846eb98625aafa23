//! Calls 13 to 18: ball in the court and balance.

use crate::balance::{self, End, Gate, Metric, Range, Roles, Rounds};
use crate::ball::{self, Delays, Total};
use crate::evidence::{self, Evidence};
use crate::matrix::Matrix;
use crate::messages;
use crate::roles;
use crate::run::{Answer, Mode, Node, Run, Unknown};

/// Fraction of the sum that a round must gain, unless given (`t_p`).
const STOP: f64 = 0.1;

/// Delays of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct BicAnswer {
    /// The process.
    pub process: Node,
    /// Sum, s.
    pub seconds: f64,
    /// Number of gaps.
    pub gaps: u64,
    /// Time from the begin of the interval to the process's first packet, s. `tail_s`: from its last
    /// packet to the end.
    pub head_s: f64,
    /// See `head_s`.
    pub tail_s: f64,
    /// Gaps before the process's own data, ignoring pure acknowledgements, s.
    pub data_s: f64,
    /// All gaps by peer and pair of records.
    pub delays: Delays,
}

/// Call 13, GetGlobalBICDelay.
///
/// # Errors
/// When the process has no packet in the interval.
pub fn bic_global(run: &Run, process: Node, last: Option<f64>) -> Answer<BicAnswer> {
    let run = run.last(last);
    let delays = ball::delays(ball::records(&run, process));
    if delays.by_pair.is_empty() {
        return Err(Unknown::new(format!(
            "{} has fewer than two packets in this interval",
            run.nodes()[usize::from(process)]
        )));
    }
    let (t0, t1) = run.span_ns();
    let value = BicAnswer {
        process,
        seconds: delays.total.ns as f64 / 1e9,
        gaps: delays.total.gaps,
        head_s: (delays.span_ns.0 - t0) as f64 / 1e9,
        tail_s: (t1 - delays.span_ns.1) as f64 / 1e9,
        data_s: delays.data.ns as f64 / 1e9,
        delays,
    };
    Ok(run.known(value))
}

/// Delays of one process towards another.
#[derive(Clone, Debug, PartialEq)]
pub struct PairBic {
    /// Sum, s.
    pub seconds: f64,
    /// Number of gaps.
    pub gaps: u64,
    /// Sums by pair of records, named as in the text.
    pub by_pair: Vec<(&'static str, &'static str, Total)>,
}

/// Call 14, GetPairBICDelay.
///
/// # Errors
/// As [`bic_global`].
pub fn bic_pair(run: &Run, process: Node, peer: Node, last: Option<f64>) -> Answer<PairBic> {
    let found = bic_global(run, process, last)?;
    let delays = &found.value.delays;
    let total = delays.by_peer.get(&peer).copied().unwrap_or_default();
    let of_peer = delays.by_both.iter().filter(|((.., to), _)| *to == peer);
    let value = PairBic {
        seconds: total.ns as f64 / 1e9,
        gaps: total.gaps,
        by_pair: of_peer
            .map(|((from, to, _), total)| (from.name(), to.name(), *total))
            .collect(),
    };
    Ok(run.last(last).known(value))
}

/// The table of delays, s. At least two processes of the interval must be responsible for some.
fn table(run: &Run) -> Result<Matrix<f64>, Unknown> {
    need_two(run)?;
    Ok(ball::table(&ball::all(run)?))
}

/// The reason why delays cannot be compared, if there is one.
fn need_two(run: &Run) -> Result<(), Unknown> {
    run.need_packets()?;
    if run
        .all()
        .filter(|&me| ball::is_waited_for(run, me))
        .take(2)
        .count()
        < 2
    {
        return Err(Unknown::new(
            "fewer than two processes sent packets in this interval",
        ));
    }
    Ok(())
}

/// The processes that do the same work. In thesis mode, as in the text, these are all; by default those
/// that sent about as many messages of about the same size.
fn alike(run: &Run) -> Result<Roles, Unknown> {
    if run.settings.mode == Mode::Thesis {
        return Ok(Roles::equal());
    }
    Ok(roles::of_delays(
        &messages::messages(run)?,
        run.nodes().len(),
    ))
}

/// Balance by the global delays.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalImbalance {
    /// Gain of balancing the process with the longest delays, s.
    pub range: Range,
    /// Length without the gained time, s: of the run, by default of its iterating part.
    pub predicted_s: Range,
    /// The process with the longest delays, and the verdict of the gate on it.
    pub gate: Gate,
    /// Delays of all processes, s; by default of the iterating part of the run only.
    pub delays_s: Vec<f64>,
    /// Confidence of the gain; `None` in thesis mode.
    pub evidence: Option<Evidence>,
}

/// Call 15, ComputeImbalanceGlobal (4.3). By default it uses only the iterating part of the run, limits
/// the gain to the length of that part, and weighs the evidence, since the gate alone is no verdict.
///
/// # Errors
/// When fewer than two processes sent packets.
pub fn imbalance_global(run: &Run, last: Option<f64>) -> Answer<GlobalImbalance> {
    let run = run.last(last);
    let none = || Unknown::new("no process kept another waiting");
    let (delays_s, evidence) = match run.settings.mode {
        Mode::Thesis => (balance::sums(&table(&run)?), None),
        Mode::Default => {
            need_two(&run)?;
            let found = evidence::weigh(&run)?;
            (found.delays_s.clone(), Some(found))
        }
    };
    let gate = balance::gate(&delays_s).ok_or_else(none)?;
    let mut range = balance::global(&delays_s, gate.loaded).ok_or_else(none)?;
    let mut whole_s = run.seconds();
    if let Some(found) = &evidence {
        let (from, to) = found.span_ns;
        whole_s = (to - from) as f64 / 1e9;
        range = found.cost_s().unwrap_or(range).clamped(whole_s);
    }
    let value = GlobalImbalance {
        range,
        predicted_s: Range {
            low: whole_s - range.high,
            high: whole_s - range.low,
        },
        gate,
        delays_s,
        evidence,
    };
    Ok(run.known(value))
}

/// Balance by the delays of pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasAnswer {
    /// Gain of balancing the process, s.
    pub range: Range,
    /// The rule: `pair-local` by default, all partners in thesis mode.
    pub rule: &'static str,
    /// The process balanced, and the verdict of the gate on it.
    pub gate: Gate,
    /// Results of the other rules, in thesis mode: name, range, s.
    pub others: Vec<(&'static str, Range)>,
    /// Parts per significant partner: partner, optimistic, pessimistic, s.
    pub parts: Vec<(Node, f64, f64)>,
}

/// Call 16, ComputeImbalanceInterProcessBias (4.4).
///
/// # Errors
/// When fewer than two processes sent packets, or no other does as the one with the longest delays.
pub fn imbalance_bias(run: &Run, last: Option<f64>) -> Answer<BiasAnswer> {
    let run = run.last(last);
    let table = table(&run)?;
    let global = balance::sums(&table);
    let gate = balance::gate(&global).ok_or_else(|| Unknown::new("no delays"))?;
    let is_thesis = run.settings.mode == Mode::Thesis;
    let roles = alike(&run)?;
    let optimistic = balance::parts(&table, &roles, gate.loaded, End::Optimistic);
    let pessimistic = balance::parts(&table, &roles, gate.loaded, End::Pessimistic);
    if optimistic.is_empty() {
        return Err(Unknown::new(roles::UNALIKE));
    }
    let mut range = balance::pair_local(&table, &roles, gate.loaded);
    let mut others = Vec::new();
    if is_thesis {
        let plain = balance::without_bias(&table, gate.loaded);
        others = vec![
            ("literal", balance::literal(&table, gate.loaded, true)),
            ("literal-all", balance::literal(&table, gate.loaded, false)),
            (
                "no-bias",
                Range {
                    low: plain,
                    high: plain,
                },
            ),
        ];
    } else {
        range = range.clamped(run.seconds());
    }
    let value = BiasAnswer {
        range,
        rule: "pair-local",
        gate,
        others,
        parts: optimistic
            .into_iter()
            .zip(pessimistic)
            .map(|(low, high)| (low.partner as Node, low.gain_s, high.gain_s))
            .collect(),
    };
    Ok(run.known(value))
}

/// Balance of several processes in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiloadAnswer {
    /// Gain of balancing the processes, s.
    pub range: Range,
    /// The rounds.
    pub rounds: Rounds,
    /// The process with the longest delays, and the verdict of the gate on it.
    pub gate: Gate,
}

/// Call 17, ComputeImbalanceMultiload (the text cites 4.4 and means 4.5). Thesis mode follows the steps
/// of the printed rounds. By default each end is computed by itself with the pair-local rule, and only
/// processes that do alike are compared.
///
/// # Errors
/// When fewer than two processes sent packets, none of them does as another, or `t_p` is not between 0
/// and 1.
pub fn imbalance_multiload(
    run: &Run,
    last: Option<f64>,
    t_p: Option<f64>,
) -> Answer<MultiloadAnswer> {
    let stop = t_p.unwrap_or(STOP);
    if !(0.0..1.0).contains(&stop) {
        return Err(Unknown::new(
            "the threshold of the rounds is a fraction from 0 to below 1",
        ));
    }
    let run = run.last(last);
    let table = table(&run)?;
    let global = balance::sums(&table);
    let gate = balance::gate(&global).ok_or_else(|| Unknown::new("no delays"))?;
    let (rounds, range) = match run.settings.mode {
        Mode::Thesis => {
            let rounds = balance::walk(&table, stop);
            let range = rounds.total;
            (rounds, range)
        }
        Mode::Default => {
            let rounds = balance::multiload(&table, &alike(&run)?, stop, run.seconds());
            if rounds.optimistic.is_empty() {
                return Err(Unknown::new(roles::UNALIKE));
            }
            let range = rounds.total.clamped(run.seconds());
            (rounds, range)
        }
    };
    Ok(run.known(MultiloadAnswer {
        range,
        rounds,
        gate,
    }))
}

/// Call 18, ComputeApplicationImbalance (4.7), s.
///
/// # Errors
/// When fewer than two processes sent packets.
pub fn application_imbalance(run: &Run, metric: Metric) -> Answer<f64> {
    let found = balance::imbalance(&table(run)?, metric);
    let value = found.ok_or_else(|| Unknown::new("fewer than two processes"))?;
    Ok(run.known(value))
}
