//! Ball in the court and balance.

use super::{called, name, page};
use crate::balance::{Gate, Metric};
use crate::calls::{self, GlobalImbalance};
use crate::component::{self, Loss, Losses};
use crate::decomposition::Component;
use crate::evidence::{self, Basis, Evidence, Verdict};
use crate::page::{Cell, Page};
use crate::run::{Mode, Node, Run, TimeAccounting};
use crate::wording;
use flowtrace_render::units;

/// `network court`: the delays of every process, by the process that waited.
pub fn court(run: &Run) -> Page {
    if let Err(unknown) = calls::traffic_matrix(run, None) {
        return Page::unknown(run, &unknown);
    }
    let columns = ["process", "towards", "delay_s", "gaps", "from", "to"];
    let mut page = Page::new(run, &columns);
    let mut totals = Vec::new();
    for process in run.all() {
        let Ok(found) = calls::bic_global(run, process, None) else {
            continue;
        };
        let found = found.value;
        totals.push((process, found.seconds));
        page.rows.push(vec![
            name(run, process),
            Cell::Text("all".into()),
            Cell::Seconds(found.seconds),
            Cell::Count(found.gaps),
            Cell::Text("any".into()),
            Cell::Text("send".into()),
        ]);
        for (&(from, to, peer), total) in &found.delays.by_both {
            page.rows.push(vec![
                name(run, process),
                name(run, peer),
                Cell::Seconds(total.ns as f64 / 1e9),
                Cell::Count(total.gaps),
                Cell::Text(from.name().into()),
                Cell::Text(to.name().into()),
            ]);
        }
    }
    totals.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let Some(&(first, most)) = totals.first() {
        page.lines.push(format!(
            "the ball was longest in the court of {}: {} of {}",
            called(run, first),
            wording::seconds(most),
            wording::seconds(run.seconds())
        ));
    }
    page.lines.extend(decision(run));
    page
}

/// The verdict of the gate alone, in words, for thesis mode.
fn gate_line(run: &Run, gate: &Gate) -> String {
    let process = called(run, gate.loaded as Node);
    let ratio = wording::number(gate.ratio);
    if gate.is_open {
        format!("{process} holds the others up: its delays are {ratio} times the next largest")
    } else {
        format!(
            "balanced: the largest delays, those of {process}, are {ratio} times the next, and below 1.2 that is no load"
        )
    }
}

/// The verdict, in words.
pub(super) fn verdict_line(run: &Run, evidence: &Evidence) -> String {
    let first = called(run, evidence.first);
    let (ratio, what) = (wording::number(evidence.ratio), measure(evidence.basis));
    let range = evidence.ratio_range.map_or(String::new(), |range| {
        format!(
            " ({} to {})",
            wording::number(range.low),
            wording::number(range.high)
        )
    });
    match &evidence.verdict {
        Verdict::Loaded(loaded) => {
            let names: Vec<&str> = loaded.iter().map(|&node| called(run, node)).collect();
            let (holds, whose) = match names.len() {
                1 => ("holds", "its"),
                _ => ("hold", "their"),
            };
            format!(
                "{} {holds} the others up: {whose} {what} is {ratio} times that of the next{range}{}",
                wording::listed(&names, " and "),
                sureness(evidence)
            )
        }
        Verdict::Balanced => format!(
            "balanced: {what} is the most at {first}, {ratio} times that of the next{range}; a load begins at {}",
            crate::balance::GATE
        ),
        Verdict::Unsure(reason) => {
            format!("unknown whether a process holds the others up: {reason}")
        }
    }
}

/// Confidence of a verdict in words, if it is below 97.5 %.
fn sureness(evidence: &Evidence) -> String {
    match evidence.confidence {
        Some(sure) if sure < 0.975 => format!(", {:.0} % sure", sure * 100.0),
        _ => String::new(),
    }
}

/// Largest loss of the run, in words; `None` in thesis mode, or if there is no message.
pub(super) fn decision(run: &Run) -> Option<String> {
    match run.settings.mode {
        Mode::Thesis => None,
        Mode::Default => Some(decision_line(run, &*component::decide(run).ok()?)),
    }
}

/// A decision, in words.
pub(super) fn decision_line(run: &Run, losses: &Losses) -> String {
    let whole = wording::seconds(losses.run_s);
    if let Some(held) = &losses.held {
        let (src, dst) = (called(run, held.src), called(run, held.dst));
        return format!(
            "most out of balance: {} of {src} waited until {dst} had acknowledged the one before, for {} of {whole} \
             (Nagle's algorithm and delayed acknowledgements; TCP_NODELAY in {src} avoids that)",
            units::counted(held.segments as i64, "segment", "segments"),
            wording::seconds(held.seconds)
        );
    }
    if let Some(first) = losses.first() {
        return format!(
            "most out of balance: {}, which cost {}",
            component_words(run, first.component),
            match first.is_least {
                true => format!(
                    "{} of {whole} at least; its delays lie {} above the median",
                    wording::seconds(first.lost_s.low),
                    wording::seconds(first.above_median_s)
                ),
                false => format!(
                    "{} of {whole}",
                    wording::range(first.lost_s.low, first.lost_s.high)
                ),
            }
        );
    }
    if let Some(open) = losses.open() {
        return format!(
            "unknown what is most out of balance: {} cost {} of {whole}, and what stands out costs {} at least",
            component_words(run, open.component),
            wording::range(open.lost_s.low, open.lost_s.high),
            wording::seconds(losses.significant_s)
        );
    }
    let verdict = losses.evidence.as_ref().map(|evidence| &evidence.verdict);
    let is_process = |loss: &Loss| matches!(loss.component, Component::Process(_));
    if let Ok(Verdict::Loaded(loaded)) = verdict
        && !losses.all.iter().any(is_process)
    {
        let names: Vec<&str> = loaded.iter().map(|&node| called(run, node)).collect();
        return format!(
            "most out of balance: process {}, at a cost that packets do not show",
            wording::listed(&names, " and ")
        );
    }
    let network = losses.all.iter().filter(|loss| !is_process(loss));
    let most = network.map(|loss| loss.lost_s.high).fold(0.0, f64::max);
    let mut line = format!(
        "nothing stands out: latency and bandwidth cost {} of {whole} each at most",
        wording::seconds(most)
    );
    match verdict {
        Ok(Verdict::Balanced) => line.push_str(", and the processes are balanced"),
        Ok(Verdict::Loaded(_)) => {
            line.push_str(", and a loaded process costs too little to stand out");
        }
        Ok(Verdict::Unsure(reason)) => {
            line.push_str(&format!("; no process can be named: {reason}"));
        }
        Err(unknown) => line.push_str(&format!("; of the processes: {unknown}")),
    }
    line
}

/// A component, in words.
pub(super) fn component_words(run: &Run, component: Component) -> String {
    match component {
        Component::Process(p) => format!("process {}", called(run, p)),
        Component::NetworkLatency(a, b) => {
            format!("latency from {} to {}", called(run, a), called(run, b))
        }
        Component::NetworkBandwidth(a, b) => {
            format!("bandwidth from {} to {}", called(run, a), called(run, b))
        }
    }
}

fn measure(basis: Basis) -> &'static str {
    match basis {
        Basis::Work | Basis::Rounds => "work",
        Basis::TimeAccounting => "time at work",
        Basis::Delays => "delay",
    }
}

/// The verdict on a run by its evidence, or by the gate in thesis mode.
fn verdict(run: &Run, gate: &Gate) -> String {
    match run.settings.mode {
        Mode::Thesis => gate_line(run, gate),
        Mode::Default => match evidence::weigh(run) {
            Ok(evidence) => verdict_line(run, &evidence),
            Err(unknown) => unknown.to_string(),
        },
    }
}

/// `network balance`: global delays, and the gain from balancing them.
pub fn balance(run: &Run) -> Page {
    page(run, calls::imbalance_global(run, None), |known| {
        let found = &known.value;
        let mut page = Page::new(run, &["process", "delay_s", "share_of_largest"]);
        match &found.evidence {
            Some(evidence) => weighed(run, found, evidence, &mut page),
            None => {
                page.lines.push(gate_line(run, &found.gate));
                page.lines.push(format!(
                    "slowdown by the difference to the others: {}",
                    wording::range(found.range.low, found.range.high)
                ));
            }
        }
        let most = found.delays_s[found.gate.loaded];
        let mut order: Vec<usize> = (0..found.delays_s.len()).collect();
        order.sort_by(|&a, &b| found.delays_s[b].total_cmp(&found.delays_s[a]));
        for node in order {
            page.rows.push(vec![
                name(run, node as Node),
                Cell::Seconds(found.delays_s[node]),
                Cell::Share(found.delays_s[node] / most),
            ]);
        }
        page
    })
}

/// The answer of the default mode: verdict, cost and evidence.
fn weighed(run: &Run, found: &GlobalImbalance, evidence: &Evidence, page: &mut Page) {
    page.lines.push(verdict_line(run, evidence));
    let losses = component::decide(run).ok();
    let is_process = |loss: &Loss| matches!(loss.component, Component::Process(_));
    if let Some(losses) = losses.filter(|losses| !losses.first().is_some_and(is_process)) {
        page.lines.push(decision_line(run, &losses));
    }
    let (from, to) = evidence.span_ns;
    let part_s = (to - from) as f64 / 1e9;
    match (&evidence.verdict, evidence.slowdown_s) {
        // Delays hide a part of the cost of a load, so that they are only a lower bound of it.
        (Verdict::Loaded(_), Some(cost)) if evidence.basis == Basis::Delays => {
            page.lines.push(format!(
                "that cost {} of {} at least; how much more, delays do not show",
                wording::seconds(found.range.low),
                wording::seconds(part_s),
            ));
            if let Some(replayed) = evidence.replayed_s {
                page.notes.push(format!(
                    "by the difference of the delays {}, by a replay of the messages {}: the least of both",
                    wording::range(cost.low, cost.high),
                    wording::range(replayed.low, replayed.high)
                ));
            }
        }
        (Verdict::Loaded(_), Some(_)) => page.lines.push(format!(
            "that cost {} of {}, which would have taken {} without it",
            wording::range(found.range.low, found.range.high),
            wording::seconds(part_s),
            wording::range(found.predicted_s.low, found.predicted_s.high),
        )),
        (Verdict::Loaded(_), None) => page.lines.push("the cost does not show in packets".into()),
        _ => {}
    }
    why(run, evidence, page);
    if evidence.basis == Basis::TimeAccounting {
        page.notes.push("by the time accounting of the process tracer: this process works, or is kept from work by its machine, while the others wait".into());
    }
    if evidence.hidden > 0 && matches!(evidence.verdict, Verdict::Loaded(_)) {
        page.notes.push(format!(
            "{} of {} answer every message at once: their work does not show, and is assumed to be no more than that of the others",
            evidence.hidden,
            units::counted(run.nodes().len() as i64, "process", "processes")
        ));
    }
    page.notes.push(match (evidence.are_iterations, evidence.parts) {
        (true, n) => format!(
            "compared over {} of {}, start-up and end left out; {}",
            units::counted(n as i64, "iteration", "iterations"),
            wording::seconds(part_s),
            match evidence.are_few() {
                true => "that is few: ranges are those of Student's distribution, and a load must stand out of nearly every iteration",
                false => "ranges contain 95 % of the results with other iterations drawn",
            }
        ),
        (false, 1) => "no iterations were found, so that start-up cannot be left out".into(),
        (false, n) => format!(
            "no iterations were found, so that start-up cannot be left out; ranges are over {n} equal parts of {}",
            wording::seconds(part_s)
        ),
    });
    if evidence.basis == Basis::Delays && matches!(evidence.verdict, Verdict::Loaded(_)) {
        page.notes.push("processes that are meant to work alike are assumed; where all send before they receive, delays hide a part of the slowdown".into());
    }
}

/// Shares of the time of a loaded process, and those of the others, if the process tracer recorded
/// them.
fn why(run: &Run, evidence: &Evidence, page: &mut Page) {
    let Verdict::Loaded(loaded) = &evidence.verdict else {
        return;
    };
    let others: Vec<TimeAccounting> = run
        .all()
        .filter(|node| !loaded.contains(node))
        .filter_map(|node| run.accounting(node))
        .collect();
    for &node in loaded {
        let Some(accounting) = run.accounting(node).filter(|_| !others.is_empty()) else {
            continue;
        };
        let part = |of: fn(&TimeAccounting) -> f64| {
            let least = others.iter().map(of).fold(f64::INFINITY, f64::min);
            let most = others.iter().map(of).fold(0.0, f64::max);
            format!(
                "{} (the others {})",
                wording::seconds(of(&accounting)),
                wording::range(least, most)
            )
        };
        page.lines.push(format!(
            "{} was on a CPU for {}, waited for one {}, for storage {}",
            called(run, node),
            part(|accounting| accounting.on_cpu_s),
            part(|accounting| accounting.run_queue_s),
            part(|accounting| accounting.storage_s)
        ));
    }
}

/// `network bias`: balance by pairs.
pub fn bias(run: &Run) -> Page {
    page(run, calls::imbalance_bias(run, None), |known| {
        let found = &known.value;
        let mut page = Page::new(run, &["rule", "partner", "optimistic_s", "pessimistic_s"]);
        page.lines.push(verdict(run, &found.gate));
        page.lines.push(format!(
            "imbalance by the {} rule: {}",
            found.rule,
            wording::range(found.range.low, found.range.high)
        ));
        for &(partner, low, high) in &found.parts {
            page.rows.push(vec![
                Cell::Text(found.rule.into()),
                name(run, partner),
                Cell::Seconds(low),
                Cell::Seconds(high),
            ]);
        }
        for (rule, range) in &found.others {
            page.rows.push(vec![
                Cell::Text((*rule).into()),
                Cell::Text("all".into()),
                Cell::Seconds(range.low),
                Cell::Seconds(range.high),
            ]);
        }
        page
    })
}

/// `network multiload`: balance of several processes in turn.
pub fn multiload(run: &Run, t_p: Option<f64>) -> Page {
    page(run, calls::imbalance_multiload(run, None, t_p), |known| {
        let found = &known.value;
        let mut page = Page::new(run, &["end", "round", "process", "gain_s", "counts"]);
        page.lines.push(verdict(run, &found.gate));
        page.lines.push(format!(
            "balancing one after the other gains {}",
            wording::range(found.range.low, found.range.high)
        ));
        if run.settings.mode == Mode::Thesis {
            page.notes.push("by the steps of the thesis' printed rounds: one process per round for both ends; in the round that ends the search an end counts that gains enough".into());
        }
        for (end, rounds) in [
            ("optimistic", &found.rounds.optimistic),
            ("pessimistic", &found.rounds.pessimistic),
        ] {
            for (i, round) in rounds.iter().enumerate() {
                page.rows.push(vec![
                    Cell::Text(end.into()),
                    Cell::Count(i as u64 + 1),
                    name(run, round.process as Node),
                    Cell::Seconds(round.seconds),
                    Cell::Flag(round.counts),
                ]);
            }
        }
        page
    })
}

/// `network imbalance`: the three metrics of 4.7.
pub fn application(run: &Run) -> Page {
    let metrics = [
        ("standard_deviation", Metric::StandardDeviation),
        ("squared_distance", Metric::SquaredDistance),
        ("inter_process", Metric::InterProcess),
    ];
    let mut page = Page::new(run, &["metric", "imbalance_s"]);
    for (metric_name, metric) in metrics {
        match calls::application_imbalance(run, metric) {
            Ok(known) => page.rows.push(vec![
                Cell::Text(metric_name.into()),
                Cell::Seconds(known.value),
            ]),
            Err(unknown) => return Page::unknown(run, &unknown),
        }
    }
    page.lines
        .push("imbalance of the ball-in-the-court delays".into());
    page
}
