//! `flowtrace generate`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::generate::{self, Options, cwl, dagman, make, pegasus, shell, snakemake};
use flowtrace_schema::Trace;

use crate::failure::Failure;
use crate::{output, progress};

/// Write the traced workflow as a specification that runs again
///
/// Each command that the workflow's script or make started becomes a step, a pipeline one step, with the
/// files that it read and wrote and everything that must come before it. Steps that ran one after the other
/// then run in parallel where the data allow. Exit status 1: a step cannot be written down, and the output
/// says which and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace run -o ../trace.db -- sh script.sh
  flowtrace generate ../trace.db -o ../Makefile
  make -f ../Makefile -j 8")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Format to write [default: by the ending of FILE, else make]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Take the environment of steps as it will be then, even if the trace shows that the script changed it
    #[arg(long)]
    ignore_environment: bool,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Makefile for GNU make 4.3 or newer
    Make,
    /// Script for bash that runs steps at once and waits for their inputs
    Shell,
    /// Snakefile
    Snakemake,
    /// CWL v1.2 workflow in JSON; each step in a directory of its own
    Cwl,
    /// DAG for HTCondor's DAGMan, for a filesystem that all machines share
    Dagman,
    /// Abstract workflow for Pegasus 5 in YAML
    Pegasus,
    /// Abstract workflow for Pegasus 4 in XML (DAX 3.6)
    Dax,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Make)?;
    let options = Options {
        ignore_environment: args.ignore_environment,
    };
    let working = progress::working(format!("reading {}", args.trace.display()));
    let mut plan = generate::plan(&Trace::open(&args.trace)?, options)?.map_err(|unfit| {
        Failure::usage(format!(
            "cannot generate from {}: {}",
            args.trace.display(),
            unfit.reason
        ))
        .hint(unfit.hint)
    })?;
    drop(working);
    if matches!(format, Format::Cwl) {
        cwl::refuse(&mut plan);
    }
    output::write_to(&args.output, &args.trace, |out| {
        let text = match format {
            Format::Make => make::text(&plan),
            Format::Shell => shell::text(&plan),
            Format::Snakemake => snakemake::text(&plan),
            Format::Cwl => cwl::text(&plan),
            Format::Dagman => dagman::text(&plan),
            Format::Pegasus => pegasus::yaml(&plan),
            Format::Dax => pegasus::dax(&plan),
        };
        Ok(out.write_all(text.as_bytes())?)
    })?;
    for note in &plan.notes {
        message!("flowtrace: note: {note}");
    }
    let refused: Vec<_> = plan.refused().collect();
    const SHOWN: usize = 5;
    for (step, reason) in refused.iter().take(SHOWN) {
        message!("flowtrace: {} cannot be generated: {reason}", step.id);
    }
    if refused.len() > SHOWN {
        message!(
            "flowtrace: +{} more: each is named in the output",
            refused.len() - SHOWN
        );
    }
    if refused.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    message!(
        "flowtrace: {} of {} steps are missing in the output, which stops there",
        refused.len(),
        plan.steps.len()
    );
    Ok(ExitCode::from(1))
}
