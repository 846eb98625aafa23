//! `flowtrace stats`.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::analysis::counters::{self, Machines};
use flowtrace_profiler::analysis::statistics::calls::CallStatistics;
use flowtrace_profiler::analysis::statistics::jobs;
use flowtrace_profiler::analysis::statistics::phases::{self, Phase};
use flowtrace_profiler::export::sheet::Sheet;
use flowtrace_profiler::graph;
use flowtrace_profiler::model::Workflow;
use flowtrace_profiler::text::statistics;
use flowtrace_render::plot::Picture;

use crate::failure::Failure;
use crate::{explained, graphviz, output};

/// Rows shown to people unless all are asked for.
const SHOWN: usize = 20;
/// Intervals of the run shown to people; programs and plots get more.
const BINS: usize = 20;
const FINE_BINS: usize = 200;

/// Show statistics of file calls, rules and files
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace stats trace.db
  flowtrace stats trace.db cdf --of life --format svg -o life.svg
  flowtrace stats jobs
  flowtrace stats trace.db rules --format csv
  flowtrace stats nodes.db machines --format svg -o machines.svg")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Table to show
    #[arg(value_enum, default_value_t = Kind::Overview)]
    table: Kind,
    /// Quantity of a distribution (cdf, hist) [default: latency]
    #[arg(long, value_enum)]
    of: Option<Of>,
    /// Grouping of the rows of sequentiality [default: rule]
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Only series whose name has TEXT in it (cdf, hist)
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Intervals of throughput [default: 20 as text, else 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    bins: Option<u16>,
    /// Every row
    #[arg(long)]
    full: bool,
    /// Text for people, exact numbers, or a plot (calls, cdf, hist, throughput, machines) [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Calls, rules and jobs
    Overview,
    /// Calls by operation: count, share, time, percentiles
    Calls,
    /// By rule: jobs, their median and longest time, peak memory, bytes
    Jobs,
    /// By rule: programs, bytes, files and processes that read, wrote or did both
    Rules,
    /// The same by level of the graph of data
    Levels,
    /// Cumulative distribution
    Cdf,
    /// Counts by doubling
    Hist,
    /// Requests that follow each other in the file, and others
    Sequentiality,
    /// Bytes over time
    Throughput,
    /// Counters of the machines, and the share of their agents' samples that came
    Machines,
    /// Calls that failed
    Failed,
    /// Files written and never read
    Unread,
    /// Files that siblings read again
    Rereads,
    /// Files that a pipe could replace
    CouldBePipe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// Time of calls, by operation
    Latency,
    /// Bytes of read and write requests, by rule
    RequestSize,
    /// Bytes that each process read and wrote, by rule
    ProcessBytes,
    /// Life times of processes, by rule
    Life,
    /// Sizes of files
    FileSize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    Rule,
    Process,
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// An array of objects
    Json,
    /// RFC 4180
    Csv,
    /// Plot
    Svg,
    /// Plot, through Graphviz
    Png,
    /// Plot, through Graphviz
    #[value(alias = "jpg")]
    Jpeg,
    /// Plot, through Graphviz
    Pdf,
    /// Plot, through Graphviz
    Ps,
}

impl Args {
    fn of(&self) -> statistics::Of {
        self.of.unwrap_or(Of::Latency).of()
    }

    /// Fails if an option was given that means nothing for the table.
    fn check(&self) -> Result<(), Failure> {
        let is_distribution = matches!(self.table, Kind::Cdf | Kind::Hist);
        for (is_given, has_meaning, what) in [
            (
                self.only.is_some(),
                is_distribution,
                "--only is for cdf and hist",
            ),
            (
                self.of.is_some(),
                is_distribution,
                "--of is for cdf and hist",
            ),
            (
                self.by.is_some(),
                self.table == Kind::Sequentiality,
                "--by is for sequentiality",
            ),
            (
                self.bins.is_some(),
                self.table == Kind::Throughput,
                "--bins is for throughput",
            ),
        ] {
            if is_given && !has_meaning {
                return Err(Failure::usage(what));
            }
        }
        Ok(())
    }
}

impl Of {
    fn of(self) -> statistics::Of {
        match self {
            Of::Latency => statistics::Of::Latency,
            Of::RequestSize => statistics::Of::RequestSize,
            Of::ProcessBytes => statistics::Of::ProcessBytes,
            Of::Life => statistics::Of::Life,
            Of::FileSize => statistics::Of::FileSize,
        }
    }
}

/// True if the word is a table to show.
pub(crate) fn is_table(word: &OsStr) -> bool {
    let word = word.to_str();
    word.is_some_and(|word| <Kind as ValueEnum>::from_str(word, false).is_ok())
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    args.check()?;
    let format = args.output.format(args.format, Format::Text)?;
    let default_bins = if format == Format::Text {
        BINS
    } else {
        FINE_BINS
    };
    let bins = args.bins.map_or(default_bins, usize::from);
    let mut machines = Machines::default();
    let (workflow, calls) = match args.table {
        Kind::Machines => {
            let (trace, workflow) = explained::open(&args.trace)?;
            machines = counters::machines(&trace, workflow.last_ns)?;
            (workflow, CallStatistics::default())
        }
        Kind::Jobs | Kind::Rules | Kind::Levels | Kind::Unread | Kind::Rereads => {
            (explained::open(&args.trace)?.1, CallStatistics::default())
        }
        _ => explained::open_with_calls(&args.trace, bins)?,
    };
    check_only(args, &workflow, &calls)?;
    let target = args.output.path();
    if let Some(picture) = graphviz::picture(&format) {
        let picture = draw(args, picture, &workflow, &calls, &machines)?;
        output::write_to(
            &args.output,
            &args.trace,
            |out| Ok(out.write_all(&picture)?),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let sheets = sheets(args, format, (&workflow, &calls), &machines);
    output::write_to(&args.output, &args.trace, |mut out| {
        match format {
            Format::Csv => sheets[0].csv(&mut out)?,
            Format::Json if sheets.len() == 1 => sheets[0].json(&mut out)?,
            Format::Json => overview_json(&sheets, &mut out)?,
            _ => {
                let most = if args.full { usize::MAX } else { SHOWN };
                // Only a terminal has an edge at which to cut lines.
                let is_free = target.is_some() || !std::io::stdout().is_terminal();
                let width = output::width(target).max(if is_free { 240 } else { 0 });
                let texts: Vec<String> = sheets.iter().map(|s| s.text(width, most)).collect();
                output::text(&mut out, &texts.join("\n"))?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn sheets(
    args: &Args,
    format: Format,
    (workflow, calls): (&Workflow, &CallStatistics),
    machines: &Machines,
) -> Vec<Sheet> {
    let rules = || {
        let mut rules = phases::by_rule(workflow);
        if format == Format::Text {
            rules.rows.retain(Phase::has_run);
        }
        statistics::phases(&rules, "the work of each rule", "rule")
    };
    let distributions = || distributions(args, workflow, calls);
    let of = args.of();
    vec![match args.table {
        Kind::Overview => {
            let jobs = statistics::jobs(&jobs::by_rule(workflow));
            return vec![statistics::calls(calls), rules(), jobs];
        }
        Kind::Jobs => statistics::jobs(&jobs::by_rule(workflow)),
        Kind::Calls => statistics::calls(calls),
        Kind::Rules => rules(),
        Kind::Levels => {
            let levels = phases::by_level(workflow, &graph::steps(workflow));
            statistics::phases(&levels, "the work of each level of the graph", "level")
        }
        Kind::Cdf if format == Format::Text => statistics::percentiles(&distributions(), of),
        Kind::Cdf => statistics::cdf(&distributions(), of),
        Kind::Hist => statistics::histogram(&distributions(), of),
        Kind::Sequentiality => {
            let by = match args.by.unwrap_or(By::Rule) {
                By::Rule => "rule",
                By::Process => "process",
                By::File => "file",
            };
            statistics::sequentiality(workflow, calls, by)
        }
        Kind::Throughput => statistics::throughput(calls),
        Kind::Machines => statistics::machines(machines),
        Kind::Failed => statistics::failed(workflow, calls),
        Kind::Unread => statistics::unread(workflow),
        Kind::Rereads => statistics::rereads(workflow),
        Kind::CouldBePipe => statistics::could_be_pipes(workflow, calls),
    }]
}

fn distributions(
    args: &Args,
    workflow: &Workflow,
    calls: &CallStatistics,
) -> Vec<(String, flowtrace_profiler::distribution::Distribution)> {
    let mut found = statistics::distributions(workflow, calls, args.of());
    if let Some(only) = &args.only {
        found.retain(|(name, _)| name.contains(only.as_str()));
    }
    found
}

/// Refuses a selection of series that leaves nothing.
fn check_only(args: &Args, workflow: &Workflow, calls: &CallStatistics) -> Result<(), Failure> {
    let Some(only) = &args.only else {
        return Ok(());
    };
    if distributions(args, workflow, calls).is_empty() {
        let all = statistics::distributions(workflow, calls, args.of());
        let names: Vec<String> = all.into_iter().map(|(name, _)| name).take(20).collect();
        return Err(
            Failure::usage(format!("--only: nothing is called {only:?}"))
                .hint(format!("there are {}", names.join(", "))),
        );
    }
    Ok(())
}

fn overview_json(sheets: &[Sheet], out: &mut dyn Write) -> std::io::Result<()> {
    for (sheet, name) in sheets
        .iter()
        .zip(["{\"calls\": ", ",\n\"rules\": ", ",\n\"jobs\": "])
    {
        out.write_all(name.as_bytes())?;
        sheet.json(&mut *out)?;
    }
    writeln!(out, "}}")
}

fn draw(
    args: &Args,
    format: &str,
    workflow: &Workflow,
    calls: &CallStatistics,
    machines: &Machines,
) -> Result<Vec<u8>, Failure> {
    let of = args.of();
    let picture: Picture = match args.table {
        Kind::Cdf => statistics::cdf_chart(&distributions(args, workflow, calls), of).into(),
        Kind::Hist => {
            statistics::histogram_charts(&distributions(args, workflow, calls), of).into()
        }
        Kind::Throughput => statistics::throughput_chart(calls).into(),
        Kind::Machines => Picture {
            charts: statistics::machine_charts(machines, workflow.begins_ns()),
            columns: statistics::MACHINE_COLUMNS,
        },
        Kind::Overview | Kind::Calls => {
            let found = statistics::distributions(workflow, calls, statistics::Of::Latency);
            statistics::latency_chart(&found).into()
        }
        _ => {
            return Err(Failure::usage("this table has no plot").hint(
                "plots: calls, cdf, hist, throughput, machines; tables: --format csv or json",
            ));
        }
    };
    graphviz::plot(&picture, format)
}
