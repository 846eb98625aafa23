//! Which part of the trace a question is about, and who answers it.

use flowtrace_profiler::network::load::{self, By, Growing, Selection};
use flowtrace_profiler::network::page::{self, Page};
use flowtrace_profiler::network::replay::Change;
use flowtrace_profiler::network::run::Unit;
use flowtrace_profiler::network::{Mode, Run, Unknown, lost, pages, tables};
use flowtrace_schema::Trace;

use super::{ModeName, Options, PairArgs, Question, UnitName, Unity};
use crate::failure::Failure;

/// What a growing trace is asked again, with what was read of it before.
pub(super) fn growing(options: &Options) -> Option<Growing> {
    // An interval that is given does not move with the trace.
    let moves = options.watch.is_some() && options.within.is_none();
    moves.then(|| Growing::new(selection(options, None), options.last))
}

fn by(unity: Unity) -> By {
    match unity {
        Unity::Host => By::Host,
        Unity::Process => By::Process,
        Unity::Endpoint => By::Endpoint,
    }
}

fn selection(options: &Options, within_ns: Option<(i64, i64)>) -> Selection {
    Selection {
        by: options.by.map(by),
        hosts: options.host.clone(),
        within_ns,
        most: None,
    }
}

/// Answers one question about a trace; of one that does not grow any more for the last time.
pub(super) fn ask(
    question: &Question,
    trace: &Trace,
    options: &Options,
    growing: Option<&mut Growing>,
    is_growing: bool,
) -> Result<Page, Failure> {
    let mut page = asked(question, trace, options, growing, is_growing)?;
    page.notes.extend(lost::notes(trace)?);
    Ok(page)
}

fn asked(
    question: &Question,
    trace: &Trace,
    options: &Options,
    growing: Option<&mut Growing>,
    is_growing: bool,
) -> Result<Page, Failure> {
    let ns = |seconds: f64| (seconds * 1e9).clamp(-9e18, 9e18) as i64;
    let within_ns = options.within.map(|(from, to)| (ns(from), ns(to)));
    match question {
        Question::Flows(_) => return Ok(tables::flows(trace, within_ns)?),
        Question::Peers(_) => return Ok(tables::peers(trace, within_ns)?),
        _ => {}
    }
    let run = match growing {
        Some(growing) if is_growing => growing.read(trace)?,
        Some(growing) => growing.read_last(trace)?,
        None => load::load(trace, &selection(options, within_ns))?,
    };
    let run = run.map_err(usage)?;
    let run = run.last(options.last).with(|settings| {
        settings.mode = match options.mode {
            ModeName::Default => Mode::Default,
            ModeName::Thesis => Mode::Thesis,
        };
        settings.unit = match options.unit {
            UnitName::Payload => Unit::Payload,
            UnitName::Frame => Unit::Frame,
        };
        settings.b_min = options.min_share;
        settings.window_s = options.smooth;
        settings.period_s = options.period;
        settings.cutoff_percent = options.cutoff;
        settings.rtt_threshold_ns = options.threshold.map(|us| (us * 1e3) as i64);
    });
    if run.nodes().is_empty() {
        let aside: Vec<String> = run
            .coverage()
            .aside
            .iter()
            .map(ToString::to_string)
            .collect();
        let instead = match aside.as_slice() {
            [] => "flowtrace import or capture brings them in".into(),
            all => format!(
                "it holds {} (flowtrace network flows shows them)",
                all.join("; ")
            ),
        };
        let reason = format!("the trace holds no TCP packets between hosts; {instead}");
        return Ok(Page::unknown(&run, &Unknown::new(reason)));
    }
    // Loopback may have two addresses.
    let mut packets = run.all().flat_map(|node| run.stream(node)).peekable();
    let are_within = packets.peek().is_some() && packets.all(|packet| packet.src == packet.dst);
    if run.nodes().len() == 1 || are_within {
        let reason = format!(
            "all packets are between sockets of {}, and which are of which process is not known; \
             --by endpoint takes each port for a process",
            page::listed(run.nodes(), " or of ")
        );
        return Ok(Page::unknown(&run, &Unknown::new(reason)));
    }
    answer(question, &run)
}

fn answer(question: &Question, run: &Run) -> Result<Page, Failure> {
    Ok(match question {
        Question::Overview(_) | Question::Flows(_) | Question::Peers(_) => pages::overview(run),
        Question::Matrix(_) => pages::matrix(run),
        Question::Topology(_) => pages::topology(run),
        Question::Changes(_) => pages::changes(run),
        Question::Iterations(_) => pages::iterations(run),
        Question::Stationary(_) => pages::stationary(run),
        Question::Cdf(_) => pages::cdf(run),
        Question::Spectrum(_) => pages::spectrum(run),
        Question::Peaks(_) => pages::peaks(run),
        Question::Period(_) => pages::period(run),
        Question::Components { distance, .. } => pages::components(run, *distance),
        Question::Court(_) => pages::court(run),
        Question::Balance(_) => pages::balance(run),
        Question::Bias(_) => pages::bias(run),
        Question::Multiload { stop, .. } => pages::multiload(run, Some(*stop)),
        Question::Imbalance(_) => pages::application(run),
        Question::Messages(_) => pages::messages(run),
        Question::Decomposition(_) => pages::decomposition(run),
        Question::Latency(pair) => {
            let (from, to) = ends(run, pair)?;
            pages::latency(run, from, to)
        }
        Question::Bandwidth(pair) => {
            let (from, to) = ends(run, pair)?;
            pages::bandwidth(run, from, to)
        }
        Question::Component(_) => pages::component(run),
        Question::Slowdown(_) => pages::slowdown(run),
        Question::Pop(_) => pages::pop(run),
        Question::CriticalPath(_) => pages::critical_path(run),
        Question::WhatIf {
            scale,
            no_latency,
            no_transfer,
            ..
        } => {
            let mut change = Change {
                no_latency: *no_latency,
                no_transfer: *no_transfer,
                ..Change::default()
            };
            for (process, factor) in scale {
                change
                    .work
                    .insert(run.node(process).map_err(usage)?, *factor);
            }
            if change == Change::default() {
                return Err(Failure::usage("what should be different?")
                    .hint("--scale PROCESS=FACTOR, --no-latency or --no-transfer"));
            }
            pages::what_if(run, &change)
        }
        Question::State(_) => pages::state(run),
        Question::Placement { capacity, .. } => {
            let given = capacity.iter().cloned();
            let given = given.map(|(a, b, capacity)| ((a, b), capacity)).collect();
            pages::placement(run, &given)
        }
    })
}

fn ends(run: &Run, pair: &PairArgs) -> Result<(u16, u16), Failure> {
    let node = |name: &str| run.node(name).map_err(usage);
    Ok((node(&pair.from)?, node(&pair.to)?))
}

fn usage(unknown: Unknown) -> Failure {
    Failure::usage(unknown.reason)
}
