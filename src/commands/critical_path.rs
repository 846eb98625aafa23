//! `flowtrace critical-path`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::analysis::critical_path::CriticalPath;
use flowtrace_profiler::analysis::hot;
use flowtrace_profiler::export::rows::Csv;
use flowtrace_profiler::export::stacks::{Group, folded};
use flowtrace_profiler::graph;
use flowtrace_profiler::model::{Programs, Workflow};
use flowtrace_profiler::paths::glob;
use flowtrace_profiler::stacks::Samples;
use flowtrace_profiler::text::critical_path::{self, Facts, Style, WhatIf};
use flowtrace_schema::{Table, Value};

use crate::failure::Failure;
use crate::{explained, output};

/// Show the chain of steps that decided how long the run took
///
/// Each process on the chain worked while everything after it waited. For each rule it reports the gain if
/// that took half its time, for each process how much later it could have ended (slack, in JSON).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  flowtrace critical-path trace.db
  flowtrace critical-path trace.db --stacks | flamegraph.pl > path.svg
  flowtrace critical-path trace.db --what-if mProject=0.5 --what-if mAdd=2")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Predict the run with the work of all processes of RULE (may have * and ?) multiplied by FACTOR
    #[arg(long, value_name = "RULE=FACTOR", value_parser = what_if)]
    what_if: Vec<WhatIf>,
    /// Every step and rule
    #[arg(long)]
    full: bool,
    /// Write the call stacks that were sampled along the path, folded, for flamegraph.pl and the like
    ///
    /// A line is the rule, the functions from the outermost to the innermost, and the number of samples.
    #[arg(long, conflicts_with_all = ["what_if", "full", "format"])]
    stacks: bool,
    /// Text for people, or exact numbers [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A few lines and two tables
    Text,
    /// One object: steps, rules, slack of every process
    Json,
    /// The steps
    Csv,
}

fn what_if(text: &str) -> Result<WhatIf, String> {
    let (rule, factor) = text
        .rsplit_once('=')
        .ok_or("expected RULE=FACTOR, such as cc1=0.5")?;
    let factor: f64 = factor
        .parse()
        .map_err(|_| format!("{factor:?} is no number"))?;
    if !(0.0..=1000.0).contains(&factor) {
        return Err("the factor must lie between 0 and 1000".into());
    }
    Ok(WhatIf {
        rule: rule.into(),
        factor,
    })
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let (trace, workflow) = explained::open_with_processes(&args.trace, "the critical path")?;
    for (at, change) in args.what_if.iter().enumerate() {
        known_rule(&workflow, &change.rule)?;
        if args.what_if[..at]
            .iter()
            .any(|other| other.rule == change.rule)
        {
            return Err(Failure::usage(format!(
                "--what-if: {} is given twice",
                change.rule
            )));
        }
    }
    if !args.what_if.is_empty() && matches!(format, Format::Csv) {
        return Err(Failure::usage("--what-if has no steps for --format csv")
            .hint("--format json has the prediction as what_if_ns"));
    }
    let path = explained::critical_path(&trace, &workflow)?;
    if args.stacks {
        let samples = explained::stacks(&trace, &workflow)?;
        let groups = along_path(&samples, &workflow, &path);
        output::write_to(&args.output, &args.trace, |mut out| {
            Ok(folded::write(&samples, &groups, &mut out)?)
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let by_data_alone = path.by_data_alone_ns(&workflow, &graph::lineage(&workflow));
    let facts = critical_path::facts(&workflow, &path, by_data_alone, &args.what_if);
    let target = args.output.path();
    output::write_to(&args.output, &args.trace, |out| {
        match format {
            Format::Text => {
                let style = Style {
                    width: match args.full {
                        true => usize::MAX,
                        false => output::width(target),
                    },
                    is_full: args.full,
                };
                let text = critical_path::text(&workflow, &facts, style);
                output::text(out, &text)?;
            }
            Format::Json => {
                output::json(out, &facts)?;
            }
            Format::Csv => csv(&facts, &mut Csv::new(out))?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The samples on the path by rule, the rule with most samples first.
fn along_path<'a>(
    samples: &'a Samples,
    workflow: &'a Workflow,
    path: &CriticalPath,
) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (sample, rule) in hot::on_path(samples, workflow, path) {
        match groups.iter_mut().find(|group| group.name == *rule) {
            Some(group) => group.samples.push(sample),
            None => groups.push(Group {
                name: std::sync::Arc::clone(rule),
                samples: vec![sample],
            }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.samples.len()));
    groups
}

fn known_rule(workflow: &Workflow, rule: &str) -> Result<(), Failure> {
    let programs = Programs::of(workflow);
    let stints = programs.stints.iter();
    let mut rules: Vec<&str> = stints
        .map(|stint| workflow.program(stint).rule.as_ref())
        .collect();
    if rules.iter().any(|name| glob(rule, name)) {
        return Ok(());
    }
    rules.sort_unstable();
    rules.dedup();
    rules.truncate(20);
    Err(
        Failure::usage(format!("--what-if: no process has the rule {rule:?}"))
            .hint(format!("rules of this trace: {}", rules.join(", "))),
    )
}

fn csv(facts: &Facts<'_>, csv: &mut impl Table) -> std::io::Result<()> {
    let names = ["from_ns", "to_ns", "ns", "upid", "rule", "kind", "command"];
    csv.columns(&names.map(String::from))?;
    for step in &facts.steps {
        csv.row(vec![
            Value::Integer(step.from_ns),
            Value::Integer(step.to_ns),
            Value::Integer(step.ns),
            Value::Integer(step.upid),
            Value::Text(step.rule.into()),
            Value::Text(step.kind.into()),
            step.command
                .map_or(Value::Null, |text| Value::Text(text.into())),
        ])?;
    }
    Ok(())
}
