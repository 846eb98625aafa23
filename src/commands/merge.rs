//! `flowtrace merge`: many traces become one.

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use flowtrace_profiler::{clocks, rules};
use flowtrace_render::units;
use flowtrace_schema::Trace;
use flowtrace_schema::merge::{self, ClockMethod, MergeOptions, MergeReport};

use crate::failure::Failure;
use crate::output;

/// Merge traces of many ranks, machines or runs into one, in which every analysis works
///
/// Ids are numbered anew, times put on one scale, machines of one name and boot made one. Files,
/// pipes, connections and flows that several traces saw become one. An interrupted merge goes on
/// where it stopped when it is started again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mpirun -n 8 flowtrace run --out-dir /scratch/traces -- ./app
  flowtrace merge -o all.db /scratch/traces/trace.*.db
  flowtrace merge -o all.db --shared /lustre/project a/trace.n1.0.db b/trace.n2.1.db

Exit status: 0 merged; 2 the traces do not belong together, or one cannot be read.")]
pub(crate) struct Args {
    /// Trace file to write
    #[arg(short, long, value_name = "FILE", value_parser = output::ending::only(output::ending::TRACE))]
    output: PathBuf,
    /// Traces to merge
    #[arg(required = true, value_name = "TRACE")]
    inputs: Vec<PathBuf>,
    /// Directory that all machines share: a path below it is the same file everywhere
    ///
    /// Within one machine files are matched by device and inode.
    #[arg(long, value_name = "PREFIX")]
    shared: Vec<PathBuf>,
    /// Replace an older trace
    #[arg(long)]
    force: bool,
    /// Take traces that were not closed, as of a killed recording, as far as they go
    #[arg(long)]
    unfinished: bool,
    /// Merge recordings of different jobs
    #[arg(long)]
    mixed_jobs: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: Args) -> crate::failure::Outcome {
    if let Some(relative) = args.shared.iter().find(|prefix| prefix.is_relative()) {
        let said = format!("--shared {}: not an absolute path", relative.display());
        return Err(Failure::usage(said).hint(
            "name the directory as the traced programs saw it, as --shared /lustre/project",
        ));
    }
    let mut options = MergeOptions {
        inputs: args.inputs,
        output: output::resolved(&args.output),
        replace: args.force,
        shared: args.shared,
        unfinished: args.unfinished,
        mixed_jobs: args.mixed_jobs,
        ..MergeOptions::default()
    };
    let shows_progress = !args.quiet && std::io::stderr().is_terminal();
    let mut progress = |table: &str, rows| {
        if shows_progress {
            // The reader of standard error may be gone: the merge goes on all the same.
            let _ = write!(
                std::io::stderr(),
                "\r\x1b[Kflowtrace: merging {table}: {} rows",
                units::count(rows as i64)
            );
        }
    };
    options.clocks = clocks::of_traces(&options, &mut progress)?;
    let report = merge::merge(&options, &mut progress);
    if shows_progress {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let report = report?;
    // A step has one name over all files.
    let merged = Trace::open_to_store(&options.output)?;
    merged.store_rules(rules::infer(&merged)?)?;
    if !args.quiet {
        message!("{}", text(&options, &report));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(options: &MergeOptions, report: &MergeReport) -> String {
    let shown = output::shown(&options.output).display();
    let mut text = format!(
        "flowtrace: merged {} with {} on {} into {shown}: {}\n",
        units::counted(options.inputs.len() as i64, "trace", "traces"),
        units::counted(report.runs as i64, "run", "runs"),
        units::counted(report.hosts.len() as i64, "host", "hosts"),
        units::counted(report.calls as i64, "file call", "file calls"),
    );
    let joined = [
        (report.joined_files, "file", "files"),
        (report.joined_channels, "channel", "channels"),
        (report.joined_flows, "flow", "flows"),
    ];
    let joined = joined.into_iter().filter(|(count, ..)| *count > 0);
    let joined: Vec<String> = joined
        .map(|(n, one, many)| units::counted(n as i64, one, many))
        .collect();
    if !joined.is_empty() {
        text.push_str(&format!(
            "  joined  {} seen by several\n",
            joined.join(", ")
        ));
    }
    let related = [
        (ClockMethod::Packets, "packets that both captured"),
        (ClockMethod::Exchange, "exchanged times"),
        (ClockMethod::WallClock, "wall clocks"),
    ];
    let related = related
        .into_iter()
        .filter_map(|(method, by)| related_by(report, method, by));
    let clocks: Vec<String> = related.collect();
    text.push_str("  clocks  ");
    text.push_str(&match clocks.is_empty() {
        true => "all of one boot: exact".to_owned(),
        false => clocks.join("; "),
    });
    text.push('\n');
    for prefix in &report.unmatched {
        text.push_str(&format!(
            "  warning --shared {}: no trace has a file below it, so that it joined nothing; name the directory as \
             the traced programs saw it\n",
            prefix.display()
        ));
    }
    if report.is_resumed {
        text.push_str("  an interrupted merge was continued where it stopped\n");
    }
    text.push_str(&format!("  next: flowtrace summary {shown}"));
    text
}

/// Number of hosts that were related in one way, with their largest error.
fn related_by(report: &MergeReport, method: ClockMethod, by: &str) -> Option<String> {
    let hosts = report
        .hosts
        .iter()
        .filter(|host| host.method == method.name());
    let errors: Vec<Option<i64>> = hosts.map(|host| host.error_ns).collect();
    let count = units::counted(errors.len() as i64, "host", "hosts");
    let worst = errors.iter().max()?;
    Some(match errors.contains(&None) {
        true => format!("{count} by {by} whose error is not known: times across hosts may be off"),
        false => format!(
            "{count} by {by}, off by at most {}",
            units::duration(worst.unwrap_or(0))
        ),
    })
}
