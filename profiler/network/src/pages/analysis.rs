//! Slowdown, efficiency, critical path, what-if, state of the network, placement.

use crate::wording;
use std::collections::BTreeMap;

use super::balance::verdict_line;
use super::{called, cell, name, page};
use crate::analysis;
use crate::evidence::{self, Verdict};
use crate::page::{Cell, Page};
use crate::placement::{self, Placement};
use crate::pop::Basis;
use crate::replay::Change;
use crate::run::{Node, Run};
use crate::{Answer, state};
use flowtrace_render::units;

/// Parallel efficiency that the POP centre calls good.
const GOOD: f64 = 0.8;

/// `network slowdown`: the processes that are slower than the others, and their cost.
pub fn slowdown(run: &Run) -> Page {
    page(run, analysis::slowdown(run), |known| {
        let found = &known.value;
        let mut page = Page::new(run, &["process", "work_least_s", "work_most_s", "loaded"]);
        let ratio = wording::number(found.ratio);
        // The evidence of `balance` as well, so that one trace has one verdict.
        let evidence = evidence::weigh(run).ok();
        let unsure = evidence.filter(|e| matches!(e.verdict, Verdict::Unsure(_)));
        if let Some(evidence) = &unsure {
            page.lines.push(verdict_line(run, evidence));
        } else if found.loaded.is_empty() {
            page.lines.push(format!(
                "no process stands out: the busiest works {ratio} times as much as the next"
            ));
        } else {
            let names: Vec<&str> = found.loaded.iter().map(|&node| called(run, node)).collect();
            page.lines.push(format!(
                "{} {} the others up, with {ratio} times the work of the next",
                wording::listed(&names, " and "),
                if names.len() == 1 { "holds" } else { "hold" }
            ));
            let (low, high) = (found.slowdown_s.low, found.slowdown_s.high);
            page.lines.push(format!(
                "that cost {} of {}",
                wording::range(low, high),
                wording::seconds(found.run_s)
            ));
            if found.relative_width().is_some_and(|width| width > 0.3) {
                page.notes.push(
                    "the range is wide: packets do not show for which messages some sends waited"
                        .into(),
                );
            }
            page.notes
                .push("processes that are meant to work alike are assumed".into());
        }
        for (node, (least, most)) in found.work_s.iter().enumerate() {
            page.rows.push(vec![
                name(run, node as Node),
                Cell::Seconds(*least),
                Cell::Seconds(*most),
                match &unsure {
                    Some(_) => Cell::Unknown,
                    None => Cell::Flag(found.loaded.contains(&(node as Node))),
                },
            ]);
        }
        page
    })
}

/// `network pop`: parallel efficiencies as intervals.
pub fn pop(run: &Run) -> Page {
    page(run, analysis::pop_metrics(run), |known| {
        let found = &known.value;
        let mut page = Page::new(run, &["efficiency", "least", "most", "value"]);
        let rows = [
            ("parallel", Some(found.parallel)),
            ("load balance", Some(found.load_balance)),
            ("communication", Some(found.communication)),
            ("serialisation", found.serialisation),
            ("transfer", found.transfer),
        ];
        for (title, share) in rows {
            page.rows.push(vec![
                Cell::Text(title.into()),
                cell(share.map(|share| share.low), Cell::Share),
                cell(share.map(|share| share.high), Cell::Share),
                cell(share.and_then(|share| share.point()), Cell::Share),
            ]);
        }
        let percent = |share: f64| Cell::Share(share).shown();
        page.lines.push(match found.parallel.point() {
            Some(point) => format!(
                "parallel efficiency {} ({} to {}), {} the 80 % from which it is good",
                percent(point),
                percent(found.parallel.low),
                percent(found.parallel.high),
                if point < GOOD { "below" } else { "above" }
            ),
            None => format!(
                "parallel efficiency between {} and {}{}",
                percent(found.parallel.low),
                percent(found.parallel.high),
                if found.parallel.high < GOOD {
                    ", below the 80 % that are good"
                } else {
                    ""
                }
            ),
        });
        page.notes.push(match found.basis {
            Basis::Work => "work is the time from the event for which a message waited to the message; it includes time in the library and waits for a CPU".into(),
            Basis::Bounds => "bounds: at most the time of the quickest repetition of each step (longer only after the last sign of the library), at least the time after that sign in the quickest; waits for a CPU are included".into(),
        });
        page
    })
}

/// A time without the error of the sums that it comes from: packets have whole ns.
fn exact(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}

/// `network critical-path`: shares of the longest path.
pub fn critical_path(run: &Run) -> Page {
    page(run, analysis::critical_path(run), |known| {
        let (waiting, working) = &known.value;
        let columns = [
            "part",
            "of",
            "towards",
            "least_s",
            "most_s",
            "share_of_path",
        ];
        let mut page = Page::new(run, &columns);
        let whole = working.seconds.max(f64::MIN_POSITIVE);
        let mut parts: Vec<(f64, f64, Vec<Cell>)> = Vec::new();
        for node in run.all() {
            let (a, b) = (
                waiting.work_s[usize::from(node)],
                working.work_s[usize::from(node)],
            );
            let names = vec![
                Cell::Text("work".into()),
                name(run, node),
                Cell::Text(String::new()),
            ];
            parts.push((exact(a.min(b)), exact(a.max(b)), names));
        }
        let mut links: BTreeMap<(Node, Node), (f64, f64)> = BTreeMap::new();
        for (&pair, &s) in &waiting.network_s {
            links.entry(pair).or_default().0 = s;
        }
        for (&pair, &s) in &working.network_s {
            links.entry(pair).or_default().1 = s;
        }
        for ((src, dst), (a, b)) in links {
            let names = vec![Cell::Text("message".into()), name(run, src), name(run, dst)];
            parts.push((exact(a.min(b)), exact(a.max(b)), names));
        }
        parts.sort_by(|a, b| (b.0 + b.1).total_cmp(&(a.0 + a.1)));
        if let Some((low, high, names)) = parts.first() {
            page.lines.push(format!(
                "longest on the path: {} of {}, {} of {}",
                names[0].shown(),
                names[1].shown(),
                wording::range(*low, *high),
                wording::seconds(whole)
            ));
        }
        for (low, high, mut row) in parts.into_iter().filter(|part| part.1 > 0.0) {
            row.push(Cell::Seconds(low));
            row.push(Cell::Seconds(high));
            row.push(Cell::Share((low + high) / 2.0 / whole));
            page.rows.push(row);
        }
        page.notes.push(
            "least and most: if sends waited for every message that they may have needed, and if for none of these"
                .into(),
        );
        page
    })
}

/// `network what-if`: the run with a change.
pub fn what_if(run: &Run, change: &Change) -> Page {
    let answer: Answer<analysis::WhatIf> = analysis::what_if(run, change);
    page(run, answer, |known| {
        let found = &known.value;
        let mut page = Page::new(run, &["run", "least_s", "most_s"]);
        let (low, high) = found.changed_s;
        page.lines.push(format!(
            "{} instead of {}",
            wording::range(low, high),
            wording::seconds(found.base_s)
        ));
        page.rows.push(vec![
            Cell::Text("as it was".into()),
            Cell::Seconds(found.base_s),
            Cell::Seconds(found.base_s),
        ]);
        page.rows.push(vec![
            Cell::Text("changed".into()),
            Cell::Seconds(low),
            Cell::Seconds(high),
        ]);
        page.notes
            .push("the same messages with the same dependencies are assumed".into());
        page
    })
}

/// `network state`: the bandwidth that the paths had left.
pub fn state(run: &Run) -> Page {
    let found = match state::available_bandwidth(run) {
        Ok(found) => found,
        Err(unknown) => return Page::unknown(run, &unknown),
    };
    let columns = [
        "src",
        "dst",
        "available_bytes_per_s",
        "at_least_bytes_per_s",
        "at_most_bytes_per_s",
        "trains",
        "congested",
        "why_unknown",
    ];
    let mut page = Page::new(run, &columns);
    let known = found.iter().filter(|a| a.middle().is_some()).count();
    page.lines.push(format!(
        "available bandwidth of {} of {} known",
        known,
        units::counted(found.len() as i64, "pair", "pairs")
    ));
    for a in &found {
        page.rows.push(vec![
            name(run, a.src),
            name(run, a.dst),
            cell(a.middle(), Cell::BytesPerSecond),
            cell(a.at_least, Cell::BytesPerSecond),
            cell(a.at_most, Cell::BytesPerSecond),
            Cell::Count(a.trains as u64),
            Cell::Count(a.congested as u64),
            Cell::Text(a.why.clone().unwrap_or_default()),
        ]);
    }
    let late: Vec<String> = state::stalls(run)
        .iter()
        .enumerate()
        .filter(|(_, stalls)| stalls.zero_windows > 0)
        .map(|(node, stalls)| {
            format!(
                "{} ({} closed windows)",
                called(run, node as Node),
                stalls.zero_windows
            )
        })
        .collect();
    if !late.is_empty() {
        page.lines
            .push(format!("read too late: {}", wording::listed(&late, ", ")));
    }
    page.notes.push("includes the program's own share; \"at least\" without \"at most\" is what was carried in the best second; a virtual link without a rate limit has no bottleneck to measure".into());
    page
}

/// `network placement`: the best placement of the processes.
pub fn placement(run: &Run, capacities: &BTreeMap<(String, String), f64>) -> Page {
    page(run, analysis::place(run, capacities), |known| {
        let found = &known.value;
        let mut page = Page::new(run, &["process", "host_now", "host_advised", "moves"]);
        let margin = Cell::Share(placement::MARGIN).shown();
        let moves = placement::migrations(&found.now.hosts, &found.better.hosts);
        page.lines.push(match moves {
            0 => format!(
                "the present placement is as good as any that was found: none leaves {margin} more at the narrowest links"
            ),
            moves => format!(
                "{} would {}",
                units::counted(moves as i64, "move", "moves"),
                gain(&found.now, &found.better)
            ),
        });
        page.lines.push(match moves {
            0 => format!("now: {}", left(&found.now)),
            _ => format!(
                "now: {}; advised: {}",
                left(&found.now),
                left(&found.better)
            ),
        });
        for (process, (a, b)) in found.now.hosts.iter().zip(&found.better.hosts).enumerate() {
            page.rows.push(vec![
                name(run, process as Node),
                Cell::Text(found.hosts[*a].clone()),
                Cell::Text(found.hosts[*b].clone()),
                Cell::Flag(a != b),
            ]);
        }
        page.notes.push(format!(
            "advice: nothing is moved; demands and capacities are measured, so that gains below {margin} are none"
        ));
        page
    })
}

/// Capacity that a placement leaves free, in words.
fn left(placement: &Placement) -> String {
    match placement.unmapped.len() {
        0 => format!(
            "{} left at the narrowest links of all paths",
            Cell::BytesPerSecond(placement.objective).shown()
        ),
        n => format!(
            "{} without enough capacity",
            units::counted(n as i64, "demand", "demands")
        ),
    }
}

/// Gain of moving, in words.
fn gain(now: &Placement, better: &Placement) -> String {
    let ways = now.unmapped.len() - better.unmapped.len().min(now.unmapped.len());
    match ways {
        0 => format!(
            "leave {} more of the narrowest links free",
            Cell::Share(better.objective / now.objective - 1.0).shown()
        ),
        n => format!(
            "give {} enough capacity",
            units::counted(n as i64, "demand more", "demands more")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bsp, bsp};

    #[test]
    fn the_parts_of_a_path_are_whole_ns() {
        let page = critical_path(&bsp(&Bsp::ring(4)).run);
        let seconds = page.rows.iter().flatten().filter_map(|cell| match cell {
            Cell::Seconds(seconds) => Some(*seconds),
            _ => None,
        });
        let seconds: Vec<f64> = seconds.collect();
        assert!(
            seconds.iter().all(|s| *s == 0.0 || *s >= 1e-9),
            "{seconds:?}"
        );
        assert_eq!(exact(2.22e-16), 0.0);
        assert_eq!(exact(1.5), 1.5);
    }
}
