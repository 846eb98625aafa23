//! `flowtrace resources`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::analysis::resources::{Capacity, PARTS, Resources, resources};
use flowtrace_profiler::export::rows::Csv;
use flowtrace_profiler::text::resources::Compared;
use flowtrace_profiler::text::{self};
use flowtrace_render::plot::Picture;
use flowtrace_schema::{Table, Value};

use crate::explained::{self, Explained};
use crate::{graphviz, output};

/// Report where the time went: CPU, memory, disk in sequence or not, network, waiting
///
/// Per machine and over time from its counters, per step and process from their activity. The shares always
/// sum to 1. Several traces of the same work are compared, by the number of their machines: speed-up and
/// shares.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace resources trace.db
  flowtrace resources one.db three.db six.db --format svg -o speed-up.svg")]
pub(crate) struct Args {
    /// Traces to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    traces: Vec<PathBuf>,
    /// Rate of the network, both directions together, in MB/s
    #[arg(long, value_name = "MB/S", value_parser = super::ideal::rate)]
    network: Option<f64>,
    /// Text, JSON with everything, CSV with a row per machine and interval, or a plot [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The answer and tables
    Text,
    /// An array with an object for each trace; times in nanoseconds, shares from 0 to 1
    Json,
    /// A row for each machine and interval
    Csv,
    /// Plot: shares over time of each machine; of several traces speed-up, and shares beside each other
    Svg,
    /// The same, through Graphviz
    Png,
    /// The same, through Graphviz
    #[value(alias = "jpg")]
    Jpeg,
    /// The same, through Graphviz
    Pdf,
    /// The same, through Graphviz
    Ps,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let network = args.network.or_else(|| {
        let known = super::ideal::stored(None).ok()??;
        Some(known.network?.value * 1e-6)
    });
    let capacity = Capacity {
        network: network.map(|rate| rate * 1e6),
    };
    let mut runs: Vec<(String, Explained, Resources)> = Vec::new();
    for path in &args.traces {
        let read = explained::read(path, "resources")?;
        let sequences = read.trace.sequences()?;
        let found = resources(&read.workflow, &read.timeline, &sequences, capacity);
        runs.push((path.display().to_string(), read, found));
    }
    let trace = &args.traces[0];
    output::write_to(&args.output, trace, |out| {
        match format {
            Format::Text => match runs.as_slice() {
                [(_, read, found)] => {
                    output::text(out, &text::resources::text(found, &read.timeline))?;
                }
                several => {
                    let runs = compared(several);
                    output::text(out, &text::resources::against_hosts(&runs))?;
                }
            },
            Format::Svg | Format::Png | Format::Jpeg | Format::Pdf | Format::Ps => {
                let name = graphviz::picture(&format).unwrap_or_default();
                out.write_all(&graphviz::plot(&picture(&runs), name)?)?;
            }
            Format::Json => {
                let all: Vec<_> = runs.iter().map(|(_, _, found)| found).collect();
                output::json(out, &all)?;
            }
            Format::Csv => csv(&runs, out)?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn compared(runs: &[(String, Explained, Resources)]) -> Vec<Compared> {
    let compared = |(name, read, found): &(String, Explained, Resources)| Compared {
        name: name.clone(),
        machines: read.timeline.hosts.len(),
        length_ns: read.timeline.span.1 - read.timeline.span.0,
        resources: found.clone(),
    };
    let mut rows: Vec<Compared> = runs.iter().map(compared).collect();
    rows.sort_by_key(|run| run.machines);
    rows
}

fn picture(runs: &[(String, Explained, Resources)]) -> Picture {
    match runs {
        [(_, read, found)] => text::resources::picture(found, &read.timeline),
        several => text::resources::picture_against_hosts(&compared(several)),
    }
}

fn csv(runs: &[(String, Explained, Resources)], out: &mut dyn Write) -> std::io::Result<()> {
    let mut csv = Csv::new(out);
    let first = ["trace", "host_id", "from_ns", "to_ns"];
    let names: Vec<String> = first
        .iter()
        .chain(&PARTS)
        .map(|&name| name.into())
        .collect();
    csv.columns(&names)?;
    for (name, _, found) in runs {
        for interval in &found.intervals {
            let mut row = vec![
                Value::Text(name.clone()),
                Value::Integer(interval.host_id),
                Value::Integer(interval.from),
                Value::Integer(interval.to),
            ];
            row.extend(interval.shares.map(Value::Real));
            csv.row(row)?;
        }
    }
    Ok(())
}
