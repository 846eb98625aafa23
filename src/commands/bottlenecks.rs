//! `flowtrace bottlenecks`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use flowtrace_profiler::analysis::bottlenecks::{self, Bottlenecks, Options, chart, facts};
use flowtrace_profiler::analysis::degrees::advice;
use flowtrace_profiler::analysis::findings;
use flowtrace_profiler::analysis::grouping::By;
use flowtrace_profiler::analysis::hot;
use flowtrace_profiler::export::chart::picture;
use flowtrace_profiler::export::rows::Csv;
use flowtrace_profiler::stacks::Samples;
use flowtrace_profiler::text;
use flowtrace_schema::{Table, Trace, Value};

use crate::explained::{self, Explained};
use crate::failure::Failure;
use crate::{graphviz, output};

/// Find the step, or the channel between steps, that limits the run, and the time when it does
///
/// Algorithms 1 to 3 of Battré et al. over windows of time, on any recorded workflow: pipes, sockets and
/// files are the channels. Shells and workflow managers never count.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flowtrace bottlenecks trace.db
  flowtrace bottlenecks trace.db --format svg -o bottlenecks.svg
  flowtrace bottlenecks trace.db --by 'regex:--stage=(\\w+)'
  flowtrace bottlenecks trace.db --watch 5          while it is recorded")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Unit that is one step: rule, exe, command, host, dir, env:NAME, regex:PATTERN
    #[arg(long, default_value = "rule", value_parser = By::parse)]
    by: By,
    /// A step is a bottleneck when it processes for more than this share of a window
    #[arg(long, default_value_t = 0.9, value_parser = share)]
    alpha: f64,
    /// A channel is one when it is full for more than this share
    #[arg(long, default_value_t = 0.9, value_parser = share)]
    beta: f64,
    /// Length of a window in seconds [default: a twentieth of the run, at most 5]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    window: Option<f64>,
    /// Advise how many instances of each step to run, on N cores [default: those of the machine]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "0", value_parser = clap::value_parser!(u16).range(0..=10_000))]
    cores: Option<u16>,
    /// Ask again every SECONDS, until the recording ends; each time up to where the trace is complete, some 5 s ago at most
    #[arg(long, value_name = "SECONDS", value_parser = seconds, num_args = 0..=1, default_missing_value = "2")]
    watch: Option<f64>,
    /// Text with a chart, SVG, JSON with everything, or CSV with a row per window and step [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The answer, a chart and a table
    Text,
    /// The chart
    Svg,
    /// One object; times in nanoseconds, shares from 0 to 1
    Json,
    /// A row for each window and step or channel
    Csv,
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("it is a share from 0 to 1".into()),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("it is a number of seconds, 0.001 or more".into()),
    }
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let Some(pause) = args.watch else {
        return once(args);
    };
    if args.output.path().is_some() || args.format.is_some_and(|format| format != Format::Text) {
        return Err(
            Failure::usage("--watch writes text to standard output alone")
                .hint("leave out --format and -o"),
        );
    }
    loop {
        let is_live = Trace::open(&args.trace)?.is_being_recorded();
        once(args)?;
        if !is_live {
            return Ok(ExitCode::SUCCESS);
        }
        writeln!(std::io::stdout())?;
        std::thread::sleep(Duration::from_secs_f64(pause));
    }
}

fn once(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let read = explained::read(&args.trace, "bottlenecks")?;
    let result = analyse(&read, &args.by, options(args))?;
    let path = args.output.path();
    let answer = || text::bottlenecks::answer(&result, &read.timeline);
    let why = || why(args, &read, &result);
    output::write_to(&args.output, &args.trace, |out| {
        match format {
            Format::Text => {
                let name = flowtrace_render::units::plain(&explained::typed(&args.trace));
                let width = output::width(path);
                let text = text::bottlenecks::text(
                    &result,
                    &read.timeline,
                    why()?.as_deref(),
                    (&name, width),
                );
                output::text(out, &text)?;
                if let Some(line) = on_cpu(&read, &why()?.unwrap_or_else(answer))? {
                    output::text(out, &format!("\n{line}\n"))?;
                }
                if let Some(cores) = args.cores {
                    output::text(out, &scale_out(&read, &result, cores))?;
                }
            }
            Format::Svg => {
                let drawn = chart::chart(&result, &read.timeline);
                out.write_all(&graphviz::plot(&picture(&drawn, &answer()), "svg")?)?;
            }
            Format::Json => {
                let mut facts = facts::facts(&result, answer());
                let cores = args.cores.map(usize::from).filter(|&cores| cores > 0);
                facts.why = why()?;
                facts.advice = advice(&read.workflow, &result, &read.timeline, cores);
                output::json(out, &facts)?;
            }
            Format::Csv => csv(&facts::facts(&result, answer()), out)?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The functions in which the step that `answer` names, at its begin, was on a CPU.
fn on_cpu(read: &Explained, answer: &str) -> Result<Option<String>, Failure> {
    let Some(samples) = Samples::read(&read.trace, &read.workflow)? else {
        return Ok(None);
    };
    let path = explained::critical_path(&read.trace, &read.workflow)?;
    let step = answer.split(" limited the run").next();
    Ok(hot::line(&samples, &read.workflow, &path, step))
}

/// The first statement of the summary, if that is not the bottleneck; the summary is about rules.
fn why(args: &Args, read: &Explained, result: &Bottlenecks) -> Result<Option<String>, Failure> {
    if !matches!(args.by, By::Rule) {
        return Ok(None);
    }
    let path = explained::critical_path(&read.trace, &read.workflow)?;
    let verdict = findings::of_bottlenecks(&read.workflow, &read.timeline, result, &path);
    let is_more = verdict.bottleneck.is_some() || verdict.kind == Some(findings::OUTSIDE);
    Ok(verdict.why.filter(|_| is_more))
}

fn options(args: &Args) -> Options {
    Options {
        alpha: args.alpha,
        beta: args.beta,
        window_ns: args.window.map(|seconds| (seconds * 1e9) as i64),
    }
}

fn analyse(read: &Explained, by: &By, options: Options) -> Result<Bottlenecks, Failure> {
    let names = by.names(&read.trace, &read.workflow, &read.timeline)?;
    let Explained {
        workflow,
        dag,
        timeline,
        ..
    } = read;
    Ok(bottlenecks::analyse(
        workflow,
        dag,
        timeline,
        &names,
        by.is_split(),
        options,
    ))
}

fn csv(facts: &facts::Facts, out: &mut dyn Write) -> std::io::Result<()> {
    let mut csv = Csv::new(out);
    let names = ["from_ns", "to_ns", "kind", "name", "share", "is_bottleneck"];
    csv.columns(&names.map(String::from))?;
    for row in &facts.windows {
        csv.row(vec![
            Value::Integer(row.from_ns),
            Value::Integer(row.to_ns),
            Value::Text(row.kind.into()),
            Value::Text(row.name.clone()),
            Value::Real(row.share),
            Value::Integer(i64::from(row.is_bottleneck)),
        ])?;
    }
    Ok(())
}

fn scale_out(read: &Explained, result: &Bottlenecks, cores: u16) -> String {
    let cores = Some(usize::from(cores)).filter(|&cores| cores > 0);
    match advice(&read.workflow, result, &read.timeline, cores) {
        Some(advice) => text::bottlenecks::advice(&advice),
        None => {
            "\nscale-out: not known: no step limited the run for a tenth of it or more\n".into()
        }
    }
}
