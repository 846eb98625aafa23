//! The bottlenecks of a run for people: the answer, a chart for the terminal, a table.

use flowtrace_render::table::{Align, Table, more};
use flowtrace_render::{blocks, units};

use crate::analysis::bottlenecks::chart::{Chart, chart, subject_name};
use crate::analysis::bottlenecks::{Bottlenecks, Subject, Without};
use crate::analysis::degrees::{Advice, Demand};
use crate::analysis::phrases::{MATTERS, nothing, percent, samples_of, want, who};
use crate::text::unseen::unseen;
use crate::timeline::Timeline;

/// Bars drawn and rows listed; more are counted.
const SHOWN: usize = 8;
/// Widest label of a bar.
const LABEL: usize = 28;

/// The answer in a line: the step, the resource that it lacked, the share of the run, and the confidence.
pub fn answer(result: &Bottlenecks, timeline: &Timeline) -> String {
    let length = units::duration(result.length());
    if timeline.is_partial && result.windows.is_empty() {
        return format!(
            "nothing can be said yet: no window of {} is complete",
            units::duration(result.window_ns)
        );
    }
    let Some(cause) = result.causes.first() else {
        let why = result
            .without
            .first()
            .map_or("nothing ran", |(why, _)| why.text());
        return format!("no bottleneck in {length}: {why}");
    };
    if cause.share < MATTERS {
        return nothing(result);
    }
    let name = units::plain(&who(result, cause));
    let when = match cause.intervals.as_slice() {
        [(from, to)] => format!(", {}", span(*from - timeline.span.0, *to - timeline.span.0)),
        _ => String::new(),
    };
    let samples = samples_of(cause.samples, timeline);
    format!(
        "{name} limited the run for {} of it ({} of {length}{when}): {} · confidence {}, {samples}",
        percent(cause.share),
        units::duration(cause.ns),
        want(cause, timeline.cpus()),
        cause.confidence.name(),
    )
}

/// Times since the begin of the run.
fn span(from: i64, to: i64) -> String {
    format!("{:.1}–{:.1} s", from as f64 / 1e9, to as f64 / 1e9)
}

/// The whole answer as text, ended by a newline. `why` the run took so long comes first where there is more
/// to say than a bottleneck.
pub fn text(
    result: &Bottlenecks,
    timeline: &Timeline,
    why: Option<&str>,
    (trace, width): (&str, usize),
) -> String {
    let lines = why.map(str::to_owned).into_iter();
    let lines: Vec<String> = lines.chain([answer(result, timeline)]).collect();
    let mut out = format!("flowtrace: {}\n", lines.join("\n           "));
    let drawn = chart(result, timeline);
    out.push('\n');
    out += &terminal_chart(&drawn, width);
    out.push('\n');
    out += &table(result, timeline);
    for &(why, ns) in &result.without {
        let share = percent(ns as f64 / result.length().max(1) as f64);
        out += &format!(
            "  none for {share}, {}: {}\n",
            units::duration(ns),
            why.text()
        );
        if why == Without::Balanced {
            out += &nearest(result);
        }
    }
    let cycles = result
        .graph
        .members
        .iter()
        .filter(|members| members.len() > 1)
        .count();
    if cycles > 0 {
        out += &format!(
            "  {} of steps that depend on each other count as one\n",
            units::counted(cycles as i64, "group", "groups")
        );
    }
    if !timeline.is_sampled() {
        out += "  no samples: what steps waited for is not known, only how long they computed\n";
    }
    out += unseen(timeline);
    if timeline.is_partial {
        out += &format!(
            "  judged up to {}: what came later is not complete{}\n",
            units::since_begin(result.span.1, timeline.begins_ns),
            if timeline.is_live { " yet" } else { "" }
        );
    }
    out += &format!(
        "  α {} β {} · {} of {} or less · next: flowtrace waits {trace}\n",
        result.options.alpha,
        result.options.beta,
        units::counted(result.windows.len() as i64, "window", "windows"),
        units::duration(result.window_ns)
    );
    out
}

/// The step that was processing for the largest part of the time, where none was for most of it.
fn nearest(result: &Bottlenecks) -> String {
    const NAMED: usize = 3;
    let nearest = result.nearest();
    let named = nearest.iter().take(NAMED).map(|(subject, share)| {
        let name = units::plain(&subject_name(result, subject));
        format!("{} {}", units::shorten(&name, 40), percent(*share))
    });
    match named.collect::<Vec<_>>().join(", ") {
        named if named.is_empty() => String::new(),
        named => format!("    busiest then: {named}\n"),
    }
}

fn table(result: &Bottlenecks, timeline: &Timeline) -> String {
    if result.found.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("bottleneck", Align::Left),
        ("kind", Align::Left),
        ("lacks", Align::Left),
        ("share", Align::Right),
        ("time", Align::Right),
        ("mean", Align::Right),
        ("samples", Align::Right),
        ("sure", Align::Left),
        ("to blame", Align::Left),
    ]);
    for found in result.found.iter().take(SHOWN) {
        let is_step = matches!(found.subject, Subject::Tasks(_));
        let blamed = match found.blocker {
            Some(task) if !is_step => result.tasks.tasks[task].name(),
            None => "the channel".into(),
            _ => String::new(),
        };
        table.row(vec![
            units::shorten(&units::plain(&subject_name(result, &found.subject)), 40),
            found.kind().into(),
            found.resource.name().into(),
            percent(found.share),
            units::duration(found.ns),
            percent(found.mean),
            match timeline.exact && found.samples > 0 {
                true => "exact".into(),
                false => units::count(found.samples as i64),
            },
            found.confidence.name().into(),
            units::shorten(&units::plain(&blamed), 24),
        ]);
    }
    let text = table.finish("  ");
    text + &more(result.found.len(), SHOWN)
}

/// The chart in characters, `width` of them in a line.
pub fn terminal_chart(chart: &Chart, width: usize) -> String {
    let bars = &chart.bars[..chart.bars.len().min(SHOWN)];
    let label = bars
        .iter()
        .map(|bar| bar.name.chars().count())
        .chain([12])
        .max()
        .unwrap_or(12)
        .min(LABEL);
    let columns = width.saturating_sub(label + 12).clamp(20, 160);
    let (from, to) = chart.span;
    let length = (to - from).max(1);
    let edge = |column: usize| from + (length as f64 * column as f64 / columns as f64) as i64;
    let mut out = String::new();
    if let Some(mean) = chart.mean() {
        let cells: String = (0..columns)
            .map(|c| {
                let (begin, end) = (edge(c), edge(c + 1).max(edge(c) + 1));
                let (mut sum, mut weight) = (0.0, 0.0);
                for level in &chart.utilisation {
                    let part = (level.to.min(end) - level.from.max(begin)).max(0) as f64;
                    sum += level.share * part;
                    weight += part;
                }
                blocks::eighth(if weight > 0.0 { sum / weight } else { 0.0 })
            })
            .collect();
        let of = if chart.is_of_machine {
            "CPU, machine"
        } else {
            "CPU (own)"
        };
        out += &format!("  {of:<label$} {cells} mean {}\n", percent(mean));
    }
    for bar in bars {
        let name = units::shorten(&units::plain(&bar.name), label);
        let cells: String = (0..columns)
            .map(|c| {
                let (begin, end) = (edge(c), edge(c + 1).max(edge(c) + 1));
                let part: i64 = bar
                    .intervals
                    .iter()
                    .map(|&(from, to)| (to.min(end) - from.max(begin)).max(0))
                    .sum();
                match part as f64 / (end - begin) as f64 {
                    p if p < 0.25 => ' ',
                    _ if bar.is_channel => '█',
                    _ => '▒',
                }
            })
            .collect();
        out += &format!("  {name:<label$} {cells} {}\n", percent(bar.share));
    }
    let begin = units::since_begin(from, chart.begins_ns);
    let end = units::since_begin(to, chart.begins_ns);
    let gap = columns.saturating_sub(begin.chars().count() + end.chars().count());
    out += &format!("  {:<label$} {begin}{:gap$}{end}\n", "", "");
    if !bars.is_empty() {
        out += &format!(
            "  {:<label$} ▒ a step limits the run   █ a full channel does\n",
            ""
        );
    }
    out
}

/// The name of a step in a line of its own.
fn short_name(demand: &Demand) -> String {
    units::shorten(&units::plain(&demand.name), 32)
}

/// The gain of the degrees advised, and of one more instance of the step that limits; times in ns.
fn gains(advice: &Advice, one_more: f64, balanced: f64) -> String {
    let binding = &advice.demands[advice.binding];
    let name = short_name;
    let is_changed = advice
        .demands
        .iter()
        .any(|demand| demand.advised > demand.degree);
    let mut out = if is_changed && balanced < 0.95 * advice.now_ns {
        let degrees: Vec<String> = advice
            .demands
            .iter()
            .filter(|demand| demand.advised != demand.degree)
            .map(|demand| {
                format!(
                    "{} × {} (now {})",
                    demand.advised,
                    name(demand),
                    demand.degree
                )
            })
            .collect();
        format!(
            "run {}; {} instead of {}, {} less\n",
            degrees.join(", "),
            units::duration(balanced as i64),
            units::duration(advice.now_ns as i64),
            percent(1.0 - balanced / advice.now_ns.max(1.0))
        )
    } else {
        let reason = match (binding.jobs, advice.is_out_of_jobs) {
            (Some(1), true) => "there is one job, which one process does".into(),
            (Some(jobs), true) => {
                format!("there are {jobs} jobs, and no more of them could be done at once")
            }
            _ => String::from("the steps are in balance, or the cores are taken"),
        };
        format!("more instances gain nothing: {reason}\n")
    };
    let then = match (advice.is_out_of_jobs, advice.then) {
        (true, _) if binding.jobs.is_none() => "the number of its clients".into(),
        (true, _) => "the longest of its jobs, or chain of them,".into(),
        (false, Some(at)) => name(&advice.demands[at]),
        (false, None) => "the number of cores".into(),
    };
    out += &format!(
        "  one more {}: {} instead of {}; beyond {} of them {then} limits\n",
        name(binding),
        units::duration(one_more as i64),
        units::duration(advice.now_ns as i64),
        advice.enough,
    );
    if binding.jobs.is_none() {
        out += &format!(
            "  as if several {} could share the stream of data that one of them got: that is not known\n",
            name(binding)
        );
    }
    out
}

/// The steps of which more instances are advised, and how many, in words and a table.
pub fn advice(advice: &Advice) -> String {
    let cores = units::counted(advice.cores as i64, "core", "cores");
    let limit = advice.limit.iter();
    let limit: String = limit.map(|limit| format!(" ({limit})")).collect();
    let mut out = format!("\nscale-out for {cores}{limit}: ");
    let name = short_name;
    out += &match (advice.one_more_ns, advice.balanced_ns) {
        (Some(one_more), Some(balanced)) => gains(advice, one_more, balanced),
        _ => format!(
            "not known whether more instances gain anything\n  {}: {}\n",
            name(&advice.demands[advice.binding]),
            advice.unknown.unwrap_or("the reason is not known")
        ),
    };
    let mut table = Table::new(&[
        ("step", Align::Left),
        ("now", Align::Right),
        ("advised", Align::Right),
        ("jobs", Align::Right),
        ("demand", Align::Right),
        ("of it CPU", Align::Right),
        ("per MB read", Align::Right),
    ]);
    for demand in advice.demands.iter().take(SHOWN) {
        let per_byte = demand
            .read_bytes
            .filter(|&bytes| bytes > 100_000)
            .map(|bytes| units::duration((demand.processing_ns * 1e6 / bytes as f64) as i64));
        table.row(vec![
            name(demand),
            units::count(demand.degree as i64),
            units::count(demand.advised as i64),
            demand
                .jobs
                .map(|jobs| units::count(jobs as i64))
                .unwrap_or_default(),
            units::duration(demand.processing_ns as i64),
            units::duration(demand.cpu_ns as i64),
            per_byte.unwrap_or_default(),
        ]);
    }
    out += &table.finish("  ");
    out
}
