//! Messages, latency, bandwidth, and the component that stands out.

use super::balance::{component_words, decision, decision_line};
use super::{called, cell, name, page};
use crate::calls;
use crate::component;
use crate::decomposition::{self, Component};
use crate::page::{Cell, Page};
use crate::run::{Mode, Node, Run};
use crate::wording;
use flowtrace_render::units;

/// `network messages`: number of messages between each two processes.
pub fn messages(run: &Run) -> Page {
    page(run, calls::message_counts(run, None), |known| {
        let mut page = Page::new(run, &["src", "dst", "messages", "per_s"]);
        let all: u64 = known.value.iter().map(|row| row.2).sum();
        page.lines
            .push(units::counted(all as i64, "message", "messages"));
        for &(src, dst, count) in &known.value {
            page.rows.push(vec![
                name(run, src),
                name(run, dst),
                Cell::Count(count),
                Cell::PerSecond(count as f64 / run.seconds().max(1e-9)),
            ]);
        }
        page.notes.push(match run.settings.mode {
            Mode::Thesis => "turns: runs of sends that no arrival interrupts; full duplex breaks and joins them".into(),
            Mode::Default => "writes back to back may share a segment, and one above 64 KB whose last segment is full shows no end: then this is a lower bound".into(),
        });
        page
    })
}

/// `network decomposition`: the five metrics of 5.5 by pair.
pub fn decomposition(run: &Run) -> Page {
    let pairs = match decomposition::pairs(run) {
        Ok(pairs) => pairs,
        Err(unknown) => return Page::unknown(run, &unknown),
    };
    let columns = [
        "src",
        "dst",
        "messages",
        "payload_bytes",
        "latency_s",
        "mean_latency_s",
        "transfer_s",
        "mean_bandwidth_bytes_per_s",
        "method",
    ];
    let mut page = Page::new(run, &columns);
    let mut order: Vec<_> = pairs.iter().collect();
    order.sort_by(|a, b| {
        let time = |p: &decomposition::Pair| p.latency_s.unwrap_or(0.0) + p.transfer_s;
        time(b)
            .total_cmp(&time(a))
            .then((a.src, a.dst).cmp(&(b.src, b.dst)))
    });
    let mean = |values: &[(i64, f64)]| {
        let values: Vec<f64> = values.iter().map(|v| v.1).collect();
        crate::quantile::mean(&values)
    };
    for pair in order {
        page.rows.push(vec![
            name(run, pair.src),
            name(run, pair.dst),
            Cell::Count(pair.messages),
            Cell::Bytes(pair.bytes as f64),
            cell(pair.latency_s, Cell::Seconds),
            cell(mean(&pair.delays), Cell::Seconds),
            Cell::Seconds(pair.transfer_s),
            cell(mean(&pair.bandwidths), Cell::BytesPerSecond),
            cell(pair.method, |m| Cell::Text(m.name().into())),
        ]);
    }
    let latency: f64 = pairs.iter().filter_map(|p| p.latency_s).sum();
    let transfer: f64 = pairs.iter().map(|p| p.transfer_s).sum();
    page.lines.push(format!(
        "messages were on their way for {} and came in for {}, all pairs together in {}",
        wording::seconds(latency),
        wording::seconds(transfer),
        wording::seconds(run.seconds())
    ));
    page.lines.extend(decision(run));
    if let Some(error) = run.clock_error_ns() {
        page.notes.push(format!(
            "one-way delays are right within {} per message: the clocks of the captures",
            wording::seconds(error as f64 / 1e9)
        ));
    }
    page
}

/// `network latency A B`: delay over time.
pub fn latency(run: &Run, src: Node, dst: Node) -> Page {
    page(run, calls::avg_latency(run, src, dst, None), |known| {
        let mut page = Page::new(run, &["t_ns", "mean_delay_s"]);
        if let Ok(time) = calls::latency_time(run, src, dst, None) {
            page.lines.push(format!(
                "messages from {} to {} were on their way for {} ({})",
                called(run, src),
                called(run, dst),
                wording::seconds(time.value.seconds),
                time.value.method.name()
            ));
        }
        for &(t, value) in &known.value {
            page.rows.push(vec![Cell::Instant(t), Cell::Seconds(value)]);
        }
        let averaging = run.settings.averaging;
        page.notes.push(format!(
            "means of {} messages; a row where the mean changed by {} %",
            averaging.ring,
            averaging.change * 100.0
        ));
        page
    })
}

/// `network bandwidth A B`: bandwidth over time.
pub fn bandwidth(run: &Run, src: Node, dst: Node) -> Page {
    page(run, calls::avg_bandwidth(run, src, dst, None), |known| {
        let mut page = Page::new(run, &["t_ns", "mean_bandwidth_bytes_per_s"]);
        if let Ok(time) = calls::transfer_time(run, src, dst, None) {
            page.lines.push(format!(
                "messages from {} to {} came in for {}",
                called(run, src),
                called(run, dst),
                wording::seconds(time.value)
            ));
        }
        for &(t, value) in &known.value {
            page.rows
                .push(vec![Cell::Instant(t), Cell::BytesPerSecond(value)]);
        }
        page
    })
}

/// `network component`: the component to which the run lost most; in thesis mode the one farthest above
/// the median of its kind.
pub fn component(run: &Run) -> Page {
    page(run, calls::most_imbalanced(run, None), |known| {
        let found = &known.value;
        let mut columns = vec!["component", "of", "towards", "above_median_s"];
        if found.losses.is_some() {
            columns.splice(3..3, ["lost_at_least_s", "lost_at_most_s"]);
        }
        let mut page = Page::new(run, &columns);
        if let Some(losses) = &found.losses {
            page.lines.push(decision_line(run, losses));
            page.notes.push(format!(
                "a component that costs less than {} % of the run does not stand out; the pair is the one with the largest part",
                component::SIGNIFICANT * 100.0
            ));
            if !losses.are_both_ends {
                page.notes.push("not every host has a capture of its own: the latency of messages of the others does not show".into());
            }
        } else if let Some(component) = found.component {
            page.lines.push(format!(
                "most out of balance: {}, {} above the median of its kind",
                component_words(run, component),
                wording::seconds(found.seconds.low)
            ));
        }
        for loss in &found.all {
            let (of, towards) = match loss.component {
                Component::Process(p) => (name(run, p), Cell::Unknown),
                Component::NetworkLatency(a, b) | Component::NetworkBandwidth(a, b) => {
                    (name(run, a), name(run, b))
                }
            };
            let mut row = vec![Cell::Text(loss.component.name().into()), of, towards];
            if found.losses.is_some() {
                row.extend([loss.lost_s.low, loss.lost_s.high].map(Cell::Seconds));
            }
            row.push(Cell::Seconds(loss.above_median_s));
            page.rows.push(row);
        }
        page
    })
}
