//! `flowtrace replay`.

use std::fs;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use clap::ValueEnum;
use flowtrace_profiler::replay::{NotPlayed, Totals, plan, play};
use flowtrace_render::units::{bytes, counted, duration, short_count};
use flowtrace_schema::Trace;

use crate::failure::Failure;
use crate::output;

/// Play the recorded file calls and computing times as a workload, in a new directory
///
/// Same sizes, offsets, order and parallelism, other data: a benchmark of a filesystem or machine.
/// The original is not touched. Exit status 1: calls failed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace replay trace.db --into /mnt/fast/replay
  flowtrace replay trace.db --into replay --trace replay.db     traced, too")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// New directory to play in
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Record the replay into this new trace
    #[arg(long = "trace", value_name = "FILE")]
    record: Option<PathBuf>,
    /// Play the workload on standard input, which was made of the trace (for --trace)
    #[arg(long, hide = true)]
    planned: bool,
    /// Text for people, or JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A few lines
    Text,
    /// One object; times in nanoseconds, sizes in bytes
    Json,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    if let Some(record) = &args.record {
        return recorded(args, record);
    }
    let workload = match args.planned {
        true => serde_json::from_reader(BufReader::new(io::stdin().lock()))
            .map_err(|error| Failure::new(1, format!("cannot read the workload: {error}")))?,
        false => plan(&Trace::open(&args.trace)?)?,
    };
    for warning in &workload.warnings {
        message!("flowtrace: warning: {}: {warning}", args.trace.display());
    }
    if workload.recorded.calls == 0 {
        return Err(Failure::usage(format!(
            "nothing to play: {} has no file calls",
            args.trace.display()
        ))
        .hint("record it with flowtrace run"));
    }
    fs::create_dir(&args.into).map_err(|error| {
        let failure = Failure::usage(format!("cannot make {}: {error}", args.into.display()));
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                failure.hint("name a directory that is not there yet with --into")
            }
            _ => failure,
        }
    })?;
    let (recorded, recorded_ns) = (workload.recorded, workload.recorded_ns);
    let (left_out, delays) = (workload.left_out, workload.not_played);
    let warnings = workload.warnings.clone();
    let root = output::resolved(&args.into);
    let (taken, played, failed, used) = play(workload, &root).map_err(|error| {
        Failure::new(
            1,
            format!("cannot play in {}: {error}", args.into.display()),
        )
    })?;
    let taken_ns = i64::try_from(taken.as_nanos()).unwrap_or(i64::MAX);
    // The exit status reports failed calls even if nobody reads the rest.
    output::print(|out| {
        match args.format {
            Format::Text => {
                let mut text = Vec::new();
                let share = (taken_ns as f64 / recorded_ns.max(1) as f64 - 1.0) * 100.0;
                writeln!(
                    text,
                    "flowtrace: played in {}, recorded {} ({share:+.0} %)",
                    duration(taken_ns),
                    duration(recorded_ns)
                )?;
                writeln!(text, "  played      {}", sums(&played))?;
                writeln!(text, "  recorded    {}", sums(&recorded))?;
                writeln!(
                    text,
                    "  CPUs        computed {}, recorded {}; waited for one {}, recorded {}",
                    time(used.cpu_ns),
                    duration(delays.cpu_ns),
                    time(used.run_queue_ns),
                    duration(delays.run_queue_ns)
                )?;
                if delays.run_queue_ns.max(delays.tracer_ns) > 0 {
                    writeln!(text, "  not played  {}", not_played(&delays))?;
                }
                if left_out > 0 {
                    writeln!(
                        text,
                        "  left out    {} that move no data: names looked up, attributes, locks; and on files that cannot be placed",
                        counted(left_out as i64, "call", "calls")
                    )?;
                }
                if failed.impatient > 0 {
                    writeln!(
                        text,
                        "  order       {} did not wait any longer for an earlier call, which did not come",
                        counted(failed.impatient as i64, "call", "calls")
                    )?;
                }
                if let Some(first) = &failed.first {
                    writeln!(
                        text,
                        "  failed      {}; the first: {first}",
                        counted(failed.calls as i64, "call", "calls")
                    )?;
                }
                output::text(out, &String::from_utf8_lossy(&text))?;
            }
            Format::Json => {
                let report = serde_json::json!({
                    "played_ns": taken_ns, "recorded_ns": recorded_ns, "played": played, "recorded": recorded,
                    "left_out": left_out, "recorded_held": delays, "played_held": used, "warnings": warnings,
                    "failed": failed.calls, "first_failure": failed.first, "out_of_order": failed.impatient,
                });
                writeln!(out, "{report:#}")?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::from(u8::from(failed.calls > 0)))
}

fn time(ns: u64) -> String {
    duration(i64::try_from(ns).unwrap_or(i64::MAX))
}

/// Reason why a replay takes less time than its recording where CPUs were busy.
fn not_played(delays: &NotPlayed) -> String {
    let times = [delays.cpu_ns, delays.run_queue_ns, delays.tracer_ns];
    let of = times.map(|ns| ns as f64).iter().sum::<f64>().max(1.0);
    let share = |ns: i64| format!("{:.0} %", ns as f64 / of * 100.0);
    format!(
        "recorded processes waited {} for a CPU ({} of the time that they wanted one) and were stopped {} by the tracer ({})",
        duration(delays.run_queue_ns),
        share(delays.run_queue_ns),
        duration(delays.tracer_ns),
        share(delays.tracer_ns)
    )
}

fn sums(totals: &Totals) -> String {
    format!(
        "{} calls · read {} · wrote {}",
        short_count(totals.calls as i64),
        bytes(totals.read_bytes as i64),
        bytes(totals.write_bytes as i64)
    )
}

/// Plays under `flowtrace run`, over the directory in which the new one is made. The player gets the workload from
/// this process: its reads of the trace would be recorded, too.
fn recorded(args: &Args, record: &Path) -> crate::failure::Outcome {
    if record.exists() {
        return Err(Failure::usage(format!(
            "cannot record into {}: it is there already",
            record.display()
        ))
        .hint(
            "--trace names the new trace of the replay; the trace to play is the first argument",
        ));
    }
    let workload = plan(&Trace::open(&args.trace)?)?;
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(1, format!("cannot find flowtrace itself: {error}")))?;
    let into = output::resolved(&args.into);
    let above = into.parent().unwrap_or(Path::new("/"));
    let mut command = std::process::Command::new(&own);
    command
        .args(["run", "--quiet", "--no-summary", "--dir"])
        .arg(above)
        .arg("-o")
        .arg(output::resolved(record));
    command
        .arg("--")
        .arg(&own)
        .arg("replay")
        .arg(output::resolved(&args.trace))
        .arg("--planned")
        .arg("--into")
        .arg(&into)
        .stdin(Stdio::piped());
    if matches!(args.format, Format::Json) {
        command.args(["--format", "json"]);
    }
    let failed = |error| Failure::new(1, format!("cannot run flowtrace: {error}"));
    let mut player = command.spawn().map_err(failed)?;
    if let Some(stdin) = player.stdin.take() {
        // A player that reads no more has reported why.
        let _ = serde_json::to_writer(BufWriter::new(stdin), &workload);
    }
    drop(workload);
    let status = player.wait().map_err(failed)?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    ))
}
