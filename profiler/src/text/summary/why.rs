//! Lines of a summary with the reasons for the duration of the run, and with what could be done.

use flowtrace_render::units;

use super::layout::Layout;
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::findings::Verdict;
use crate::analysis::phrases::percent;
use crate::model::Workflow;

/// Rules of the critical path that are named.
const NAMED: usize = 4;

pub(super) fn why(out: &mut Layout, workflow: &Workflow, verdict: &Verdict) {
    // A finding says it below.
    let is_finding = |line: &&String| verdict.findings.iter().any(|one| one.title == **line);
    let why = verdict.why.iter().filter(|line| !is_finding(line));
    let lines = why.chain(&verdict.bottleneck);
    let mut items: Vec<String> = lines.cloned().collect();
    items.extend(verdict.critical_path.clone());
    items.extend(verdict.hot.clone());
    let length = units::duration(workflow.duration_ns());
    out.line(&format!("why {length}"), &items);
}

/// One line for each finding: its gain, its statement, its confidence, and the place of the details. `trace`
/// is the argument of a command.
pub(super) fn findings(out: &mut Layout, workflow: &Workflow, verdict: &Verdict, trace: &str) {
    let length = workflow.duration_ns().max(1) as f64;
    for (at, finding) in verdict.findings.iter().enumerate() {
        let saving = format!(
            "up to {} ({})",
            units::duration(finding.saving_ns),
            percent(finding.saving_ns as f64 / length)
        );
        let items = [
            format!("{saving}: {}", finding.title),
            finding.evidence.clone(),
            format!("confidence {}", finding.confidence),
            format!("flowtrace {}{trace}", finding.command),
        ];
        out.warning(&format!("finding {}", at + 1), &items);
    }
}

/// The steps of the critical path by the time spent in them.
pub fn critical_path(workflow: &Workflow, path: &CriticalPath) -> Option<String> {
    let mut steps = path.by_rule(workflow);
    steps.retain(|step| step.ns >= path.length_ns() / 50);
    if steps.is_empty() {
        return None;
    }
    let more = steps.len().saturating_sub(NAMED);
    let named: Vec<String> = steps
        .iter()
        .take(NAMED)
        .map(|step| {
            let name = units::shorten(&units::plain(&step.rule), 32);
            let times = match step.processes {
                0 | 1 => String::new(),
                n => format!(" ×{}", units::count(n)),
            };
            format!("{name}{times} {}", units::duration(step.ns))
        })
        .collect();
    let more = if more > 0 {
        format!(", +{more} more")
    } else {
        String::new()
    };
    Some(format!(
        "critical path {}: {}{more}",
        units::duration(path.length_ns()),
        named.join(", ")
    ))
}
