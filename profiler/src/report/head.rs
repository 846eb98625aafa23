//! The head of the page: how the run ended, and how much of it was recorded.

use flowtrace_render::units;
use flowtrace_schema::{Result, Trace};
use serde::Serialize;

use crate::model::Workflow;
use crate::text::summary::{self, Facts};

#[derive(Debug, Serialize)]
pub(super) struct Head {
    /// Version of flowtrace that made the report.
    made_by: &'static str,
    /// Name of the trace, without its directory.
    trace: String,
    /// The first line of the summary.
    headline: String,
    /// Lines about coverage and losses.
    seen: Vec<String>,
    facts: Facts,
    host: Option<String>,
    cwd: String,
    recorded_by: Option<String>,
    started_unix_ns: Option<i64>,
    hosts: Vec<Host>,
}

#[derive(Debug, Serialize)]
struct Host {
    name: String,
    system: String,
    cpus: Option<i64>,
    memory_bytes: Option<i64>,
}

impl Head {
    /// Title of the page: the action, if there is one, and the command.
    pub(super) fn title(&self, action: Option<&str>) -> String {
        let what = self.facts.command.as_deref().unwrap_or(&self.trace);
        let what = units::shorten(what, 80);
        match action {
            Some(action) => format!("{action} — {what} — flowtrace"),
            None => format!("{what} — flowtrace"),
        }
    }
}

pub(super) fn of(workflow: &Workflow, trace: &Trace) -> Result<Head> {
    let facts = clean(summary::facts(workflow));
    let run = workflow.runs.first();
    let name = trace.path().file_name().unwrap_or_default();
    Ok(Head {
        made_by: env!("CARGO_PKG_VERSION"),
        trace: units::plain(&name.to_string_lossy()),
        headline: summary::headline(&facts),
        seen: summary::seen(&facts),
        host: run.and_then(|run| run.host.as_deref()).map(units::plain),
        cwd: run.map_or_else(String::new, |run| units::plain(&run.cwd)),
        recorded_by: run.map(|run| run.version.clone()),
        started_unix_ns: run.and_then(|run| run.started_unix_ns),
        hosts: trace
            .machines()?
            .into_iter()
            .map(|host| Host {
                name: units::plain(&host.host),
                system: units::plain(&host.system),
                cpus: host.cpus,
                memory_bytes: host.memory_bytes,
            })
            .collect(),
        facts,
    })
}

/// The facts, with every name made safe to show.
fn clean(mut facts: Facts) -> Facts {
    facts.command = facts.command.as_deref().map(units::plain);
    for kind in &mut facts.never_read {
        kind.pattern = units::plain(&kind.pattern);
    }
    for habit in &mut facts.habits {
        habit.pattern = units::plain(&habit.pattern);
    }
    for file in facts
        .hottest_by_bytes
        .iter_mut()
        .chain(&mut facts.hottest_by_calls)
    {
        file.path = units::plain(&file.path);
    }
    for directory in &mut facts.directories {
        directory.path = units::plain(&directory.path);
    }
    facts
}
