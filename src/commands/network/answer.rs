//! The part of the trace that a question is about, and the method that answers it.

use std::path::Path;

use flowtrace_network::load::{By, Growing, Selection};
use flowtrace_network::page::Page;
use flowtrace_network::replay::Change;
use flowtrace_network::rir::SlowdownTable;
use flowtrace_network::run::Unit;
use flowtrace_network::trigger::Reactive;
use flowtrace_network::{Mode, Run, Unknown, calls, lost, pages, tables, wording};
use flowtrace_profiler::{packets, rules};
use flowtrace_schema::Trace;

use super::options::{ModeName, Options, PairArgs, Question, UnitName, Unity};
use crate::failure::Failure;

/// State of a growing trace between answers; `None`: the trace is read once.
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

/// Answers one question about a trace; if the trace no longer grows, for the last time. `is_drawn`: a picture
/// is wanted.
pub(super) fn ask(
    question: &Question,
    trace: &Trace,
    options: &Options,
    growing: Option<&mut Growing>,
    is_growing: bool,
    is_drawn: bool,
) -> Result<Page, Failure> {
    let mut page = asked(question, trace, options, growing, is_growing, is_drawn)?;
    page.notes.extend(lost::notes(trace)?);
    Ok(page)
}

fn asked(
    question: &Question,
    trace: &Trace,
    options: &Options,
    growing: Option<&mut Growing>,
    is_growing: bool,
    is_drawn: bool,
) -> Result<Page, Failure> {
    let ns = |seconds: f64| (seconds * 1e9).clamp(-9e18, 9e18) as i64;
    let within_ns = options.within.map(|(from, to)| (ns(from), ns(to)));
    match question {
        Question::Flows(_) => return Ok(tables::flows(trace, within_ns, &rules::labels(trace)?)?),
        Question::Peers(_) => return Ok(tables::peers(trace, within_ns, &rules::labels(trace)?)?),
        _ => {}
    }
    let run = match growing {
        Some(growing) => {
            let labels = packets::labels(trace, growing.read(trace)?)?;
            match is_growing {
                true => growing.run(trace, &labels)?,
                false => growing.last_run(trace, &labels)?,
            }
        }
        None => packets::load(trace, &selection(options, within_ns))?,
    };
    let run = run.map_err(usage)?;
    let run = with_options(&run.last(options.last), options);
    let run = match question {
        Question::Latency(pair) | Question::Bandwidth(pair) => run.with(|settings| {
            settings.averaging.ring = pair.ring as usize;
            settings.averaging.change = pair.change;
        }),
        _ => run,
    };
    if run.nodes().is_empty() {
        let other: Vec<String> = run
            .coverage()
            .other_flows
            .iter()
            .map(ToString::to_string)
            .collect();
        let instead = match other.as_slice() {
            [] => "flowtrace import or capture brings them in".into(),
            all => format!(
                "it has {} (flowtrace network flows shows them)",
                all.join("; ")
            ),
        };
        let reason = format!("the trace has no TCP packets between hosts; {instead}");
        return Ok(Page::unknown(&run, &Unknown::new(reason)));
    }
    // Loopback may have two addresses.
    let mut packets = run.all().flat_map(|node| run.stream(node)).peekable();
    let are_within = packets.peek().is_some() && packets.all(|packet| packet.src == packet.dst);
    if run.nodes().len() == 1 || are_within {
        let reason = format!(
            "all packets are between sockets of {}, and their processes are not known; \
             --by endpoint takes each port for a process",
            wording::listed(run.nodes(), " or of ")
        );
        return Ok(Page::unknown(&run, &Unknown::new(reason)));
    }
    let mut page = answer(question, &run, options)?;
    if is_drawn {
        page.picture = match question {
            Question::Series { by_pair, .. } => pages::series_picture(&run, *by_pair).ok(),
            Question::Cdf(_) => pages::cdf_picture(&run).ok(),
            _ => None,
        };
    }
    Ok(page)
}

/// The run with the options of the methods.
fn with_options(run: &Run, options: &Options) -> Run {
    run.with(|settings| {
        settings.mode = match options.mode {
            ModeName::Default => Mode::Default,
            ModeName::Thesis => Mode::Thesis,
        };
        settings.unit = match options.unit {
            UnitName::Payload => Unit::Payload,
            UnitName::Frame => Unit::Frame,
        };
        settings.b_min = options.min_share;
        settings.window_s = options.smooth.unwrap_or(60.0);
        settings.detection = options.detection;
        settings.rate_window_s = options.rate_window;
        settings.rate_step_s = options.rate_step;
        settings.period_s = options.period;
        settings.cutoff_percent = options.cutoff;
        settings.rtt_threshold_ns = options.threshold.map(|us| (us * 1e3) as i64);
    })
}

/// Another trace, with the same options; its hosts may be others.
fn other(path: &Path, options: &Options) -> Result<Run, Failure> {
    let alone = Selection {
        by: options.by.map(by),
        hosts: Vec::new(),
        within_ns: None,
        most: None,
    };
    let run = packets::load(&Trace::open(path)?, &alone)?.map_err(usage)?;
    Ok(with_options(&run, options))
}

fn answer(question: &Question, run: &Run, options: &Options) -> Result<Page, Failure> {
    Ok(match question {
        Question::Overview(_) | Question::Flows(_) | Question::Peers(_) => pages::overview(run),
        Question::Matrix(_) => pages::matrix(run),
        Question::Topology(_) => pages::topology(&run.last(options.smooth)),
        Question::Changes(_) => pages::changes(run),
        Question::Iterations(_) => pages::iterations(run),
        Question::Stationary(_) => pages::stationary(run),
        Question::Cdf(_) => pages::cdf(run),
        Question::Series { by_pair, .. } => pages::series(run, *by_pair),
        Question::Predict { base, .. } => pages::predict(run, &other(base, options)?),
        Question::SlowdownCdf {
            calibration, at, ..
        } => {
            let mut rows = at.clone();
            for (unloaded, loaded) in calibration {
                let (unloaded, loaded) = (other(unloaded, options)?, other(loaded, options)?);
                rows.push(calls::calibrated(&unloaded, &loaded).map_err(usage)?);
            }
            let table = SlowdownTable::new(rows).ok_or_else(|| {
                Failure::usage("the effect of the load on a rate is not given")
                    .hint("--calibration UNLOADED,LOADED or --at RATE=FRACTION")
            })?;
            pages::slowdown_cdf(run, &table)
        }
        Question::Trigger {
            bytes,
            bound,
            hold,
            wait,
            ..
        } => {
            let ns = |seconds: f64| (seconds * 1e9).min(9e18) as i64;
            let settings = Reactive {
                byte_threshold: *bytes,
                time_bound_ns: ns(*bound),
                longest_ns: ns(*hold),
                wait_ns: ns(*wait),
                ..Reactive::default()
            };
            pages::trigger(run, settings)
        }
        Question::Records(_) => pages::records(run),
        Question::Spectrum { representative, .. } => pages::spectrum(run, *representative),
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
                return Err(Failure::usage("no change is given")
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
