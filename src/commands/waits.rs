//! `flowtrace waits`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use flowtrace_profiler::analysis::serial::{Serial, serial};
use flowtrace_profiler::analysis::waits::{Waits, waits};
use flowtrace_profiler::export::rows::Csv;
use flowtrace_profiler::text;
use flowtrace_profiler::timeline::Timeline;
use flowtrace_schema::{Table, Value};
use serde_json::json;

use crate::{explained, output};

/// Report which process waited for which, and the causes in the end
///
/// Late writers and readers of pipes and sockets, children, locks, storage; root causes along the
/// chain of waits; steps of scripts that run one after another though nothing connects them; time
/// in which nothing ran.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Text, JSON with everything, or CSV with a row per pair of steps [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The answer and tables
    Text,
    /// One object; times in nanoseconds
    Json,
    /// A row for each waiting step, kind and blocker
    Csv,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let read = explained::read(&args.trace, "waits")?;
    let found = waits(&read.workflow, &read.timeline);
    let path = explained::critical_path(&read.trace, &read.workflow)?;
    let stretches = serial(&read.workflow, &read.timeline, &path);
    output::write_to(&args.output, &args.trace, |out| {
        match format {
            Format::Text => {
                let name = flowtrace_render::units::plain(&explained::typed(&args.trace));
                let text = text::waits::text(&found, &stretches, &read.timeline, &name);
                output::text(out, &text)?;
            }
            Format::Json => {
                let answer = text::waits::answer(&found, &stretches, &read.timeline);
                let object = as_json(&found, &stretches, &read.timeline, &answer);
                output::json(out, &object)?;
            }
            Format::Csv => csv(&found, out)?,
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(
    waits: &Waits,
    serial: &[Serial],
    timeline: &Timeline,
    answer: &str,
) -> serde_json::Value {
    json!({
        "answer": answer,
        "waits": waits.waits.iter().map(|wait| json!({
            "waiter": wait.waiter,
            "kind": wait.kind.name(),
            "culprit": wait.blocker,
            "channel": wait.channel,
            "ns": wait.ns as i64,
            "waits": wait.waits,
            "processes": wait.processes,
            "is_orchestrator": wait.is_orchestrator,
        })).collect::<Vec<_>>(),
        "root_causes": waits.causes.iter().map(|cause| json!({
            "culprit": cause.blocker,
            "it": cause.root.text(),
            "ns": cause.ns as i64,
            "waiters": cause.waiters.iter()
                .map(|(name, ns)| json!({"rule": name, "ns": *ns as i64})).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "serial": serial.iter().map(|one| json!({
            "script": one.name,
            "from_ns": one.from,
            "to_ns": one.to,
            "could_take_ns": one.could_ns,
            "saving_ns": one.saving_ns,
            "cores": one.cores,
            "dependencies": one.dependencies,
            "steps": one.steps.iter()
                .map(|(name, count, ns)| json!({"rule": name, "count": count, "ns": ns}))
                .collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "storage": timeline.storage.iter().map(|row| json!({
            "step": row.step,
            "ns": row.storage_ns,
            "queue_ns": row.queue_ns,
            "device_ns": row.device_ns,
        })).collect::<Vec<_>>(),
        "threads": waits.threads.iter().map(|one| json!({
            "rule": one.name,
            "processes": one.processes,
            "most": one.most,
            "alive": one.alive,
            "at_work": one.at_work,
            "waiting": one.waiting,
            "idle": one.idle,
            "waited_ns": one.waited_ns,
        })).collect::<Vec<_>>(),
        "idle_ns": waits.idle_ns(),
        "idle": waits.idle,
    })
}

fn csv(waits: &Waits, out: &mut dyn Write) -> std::io::Result<()> {
    let mut csv = Csv::new(out);
    let names = [
        "waiter",
        "kind",
        "culprit",
        "channel",
        "ns",
        "waits",
        "processes",
    ];
    csv.columns(&names.map(String::from))?;
    let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::Text);
    for wait in &waits.waits {
        csv.row(vec![
            Value::Text(wait.waiter.clone()),
            Value::Text(wait.kind.name().into()),
            text(&wait.blocker),
            text(&wait.channel),
            Value::Integer(wait.ns as i64),
            Value::Integer(wait.waits as i64),
            Value::Integer(wait.processes as i64),
        ])?;
    }
    Ok(())
}
