//! The critical path as text and as facts.

use flowtrace_render::units;
use serde::Serialize;

use crate::analysis::critical_path::{CriticalPath, MOST_EQUAL, StepKind};
use crate::model::{ProcessId, Programs, Workflow};

/// Steps and rules shown unless all are asked for.
const SHOWN: usize = 15;
/// Greatest number of links shown of the chain.
const LINKS: usize = 16;
/// Shares of the path below this are left out of the chain, in parts of a thousand.
const TINY: i64 = 5;

/// Style of the text.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns to fill; lines are cut there, at `usize::MAX` nowhere.
    pub width: usize,
    /// True to write every step.
    pub is_full: bool,
}

/// A change to try: the rule and what its time is multiplied by.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// Name of the rule.
    pub rule: String,
    /// Factor for the work of its processes.
    pub factor: f64,
}

/// The path for programs. Times are nanoseconds since the start of the recording.
#[derive(Clone, Debug, Serialize)]
pub struct Facts<'a> {
    /// Length of the path: that of the run, from its first process to its end.
    pub length_ns: i64,
    /// Begin of the path.
    pub start_ns: i64,
    /// End of the path.
    pub end_ns: i64,
    /// Lower bound of the duration of the run, with data dependencies only.
    pub by_data_alone_ns: i64,
    /// Different paths that take equally long, counted up to a million.
    pub equal_paths: u64,
    /// Upids of processes that are on the other ones only.
    pub on_equal_paths: Vec<i64>,
    /// True if the trace ends before the run did.
    pub is_cut_short: bool,
    /// Waits seen by samples, of all processes.
    pub waits_sampled_ns: i64,
    /// Waits that follow from exact totals, of all processes.
    pub waits_inferred_ns: i64,
    /// The requested changes, and the length of the path under them.
    pub what_if: Vec<WhatIf>,
    /// Length of the path under `what_if`; null: no change was requested.
    pub what_if_ns: Option<i64>,
    /// The rules on the path, the largest contribution first.
    pub rules: Vec<RuleFacts<'a>>,
    /// The path in the order of time.
    pub steps: Vec<StepFacts<'a>>,
    /// Every process with its slack.
    pub slack: Vec<SlackFacts<'a>>,
}

/// A rule on the path.
#[derive(Clone, Debug, Serialize)]
pub struct RuleFacts<'a> {
    /// The rule.
    pub rule: &'a str,
    /// Its processes on the path.
    pub processes: i64,
    /// Time of the path spent in them.
    pub ns: i64,
    /// Length of the path if the rule took half its time.
    pub if_halved_ns: i64,
}

/// A step of the path.
#[derive(Clone, Debug, Serialize)]
pub struct StepFacts<'a> {
    /// Upid of the program's image, or of an image on the way to it.
    pub upid: i64,
    /// Rule of the program that ran then.
    pub rule: &'a str,
    /// Its arguments.
    pub command: Option<&'a str>,
    /// Begin.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// Its contribution.
    pub ns: i64,
    /// `work`, `late` (woke late, or the cause is not known) or `not begun`.
    pub kind: &'static str,
}

/// The slack of a process.
#[derive(Clone, Debug, Serialize)]
pub struct SlackFacts<'a> {
    /// Upid of its first image.
    pub upid: i64,
    /// Rule of the program that it ran longest.
    pub rule: &'a str,
    /// Time that it worked, waits for children and channels left out.
    pub own_ns: i64,
    /// Delay of its end that would not delay the run; null: no process waited for it.
    pub slack_ns: Option<i64>,
}

const fn kind_name(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Work => "work",
        StepKind::Late => "late",
        StepKind::Stopped => "stopped",
        StepKind::NotBegun => "not begun",
    }
}

/// The facts on a path.
pub fn facts<'a>(
    workflow: &'a Workflow,
    path: &CriticalPath,
    by_data_alone_ns: i64,
    what_if: &[WhatIf],
) -> Facts<'a> {
    let upid = |id: ProcessId| workflow.images(id)[0].upid;
    let programs = Programs::of(workflow);
    let rule = |id: ProcessId| {
        let longest = programs.longest(workflow, id);
        workflow.program(&programs.stints[longest]).rule.as_ref()
    };
    let rule_of = |name: &str| workflow.images.iter().find(|i| *i.rule == *name);
    Facts {
        length_ns: path.length_ns(),
        start_ns: path.start_ns,
        end_ns: path.end_ns,
        by_data_alone_ns,
        equal_paths: path.equal_paths,
        on_equal_paths: path.on_equal_paths.iter().map(|&id| upid(id)).collect(),
        is_cut_short: workflow.is_cut_short(),
        waits_sampled_ns: path.evidence.sampled_ns,
        waits_inferred_ns: path.evidence.inferred_ns,
        what_if: what_if.to_vec(),
        what_if_ns: (!what_if.is_empty()).then(|| changed(workflow, path, what_if)),
        rules: path
            .by_rule(workflow)
            .into_iter()
            .map(|c| RuleFacts {
                rule: rule_of(&c.rule).map_or("?", |image| image.rule.as_ref()),
                processes: c.processes,
                ns: c.ns,
                if_halved_ns: c.halved_ns,
            })
            .collect(),
        steps: path
            .steps
            .iter()
            .map(|step| StepFacts {
                upid: workflow.images[step.program.first].upid,
                rule: workflow.program(&step.program).rule.as_ref(),
                command: workflow.program(&step.program).command.as_deref(),
                from_ns: step.from_ns,
                to_ns: step.to_ns,
                ns: step.to_ns - step.from_ns,
                kind: kind_name(step.kind),
            })
            .collect(),
        slack: workflow
            .process_ids()
            .map(|id| SlackFacts {
                upid: upid(id),
                rule: rule(id),
                own_ns: path.own_ns[id.0 as usize],
                slack_ns: path.slack_ns[id.0 as usize],
            })
            .collect(),
    }
}

/// The length of the path with the work of some rules scaled, ns.
pub fn changed(workflow: &Workflow, path: &CriticalPath, what_if: &[WhatIf]) -> i64 {
    path.what_if_programs(|program| {
        let rule = path.rule(workflow, program).as_ref();
        let fitting = what_if
            .iter()
            .filter(|change| crate::paths::glob(&change.rule, rule));
        fitting.map(|change| change.factor).product()
    })
}

/// The path in words.
pub fn text(workflow: &Workflow, facts: &Facts<'_>, style: Style) -> String {
    if facts.steps.is_empty() {
        return "No process was recorded, so there is no path.\n".into();
    }
    let mut text = head(workflow, facts, style);
    text += &rules(facts, style);
    text += &steps(facts, style, workflow.begins_ns());
    text += &tail(facts);
    text
}

fn head(workflow: &Workflow, facts: &Facts<'_>, style: Style) -> String {
    let first = &facts.rules[0];
    let mut text = format!(
        "critical path {} · {} {}\n",
        units::duration(facts.length_ns),
        units::plain(first.rule),
        match facts.rules.len() {
            1 => "alone decided it".into(),
            _ => format!("decided {} of it", percent(first.ns, facts.length_ns)),
        }
    );
    text += &format!(
        "  chain        {}\n",
        units::shorten(&chain(facts), style.width.saturating_sub(15).max(20))
    );
    if facts.what_if.is_empty() {
        let bound = facts.by_data_alone_ns.min(facts.length_ns);
        text += &format!(
            "  lower bound  {} (unlimited cores, data dependencies only)\n",
            units::duration(bound)
        );
    }
    if let Some(new) = facts.what_if_ns {
        let changes: Vec<String> = facts
            .what_if
            .iter()
            .map(|c| format!("{} × {}", units::plain(&c.rule), c.factor))
            .collect();
        let change = match new - facts.length_ns {
            0 => "no change: it is not on the path, or others take as long".into(),
            d => format!(
                "{}{}",
                if d > 0 { "+" } else { "−" },
                units::duration(d.abs())
            ),
        };
        text += &format!(
            "  what if      {}: {} → {} ({change})\n",
            changes.join(", "),
            units::duration(facts.length_ns),
            units::duration(new),
        );
    }
    if facts.equal_paths > 1 {
        let others = facts.on_equal_paths.len() as i64;
        text += &format!(
            "  equal        {} paths take as long; this is one of them{}\n",
            match facts.equal_paths {
                MOST_EQUAL => "a million or more".into(),
                n => units::count(n as i64),
            },
            match others {
                0 => String::new(),
                n => format!(
                    ", {} on the others only",
                    units::counted(n, "process is", "processes are")
                ),
            }
        );
    }
    if facts.is_cut_short {
        let why = workflow.unrecorded.as_deref();
        let why = why.unwrap_or("the recording has no end");
        text += &format!("  cut short    {why}: this is the path to its last event\n");
    }
    if workflow.processes.iter().all(|p| p.cpu_ns.is_none()) {
        text += "  uncertain    no CPU times were recorded: a process with children is assumed to have waited for them\n";
    }
    text
}

/// The rules along the path, tiny contributions left out.
fn chain(facts: &Facts<'_>) -> String {
    let mut links: Vec<(&str, Vec<i64>)> = Vec::new();
    for step in &facts.steps {
        if step.ns < facts.length_ns / 1000 * TINY {
            // One process may be short, as one of many of a rule that is long in all.
            match links.last_mut() {
                Some((rule, upids)) if *rule == step.rule => upids.push(step.upid),
                _ => {}
            }
            continue;
        }
        match links.last_mut() {
            Some((rule, upids)) if *rule == step.rule => upids.push(step.upid),
            _ => links.push((step.rule, vec![step.upid])),
        }
    }
    if links.is_empty() {
        return format!(
            "{} of less than {} each",
            units::counted(facts.steps.len() as i64, "step", "steps"),
            "0.5 %"
        );
    }
    let mut shown: Vec<String> = links
        .into_iter()
        .map(|(rule, mut upids)| {
            upids.sort_unstable();
            upids.dedup();
            match upids.len() {
                1 => units::plain(rule),
                n => format!("{} ×{}", units::plain(rule), units::count(n as i64)),
            }
        })
        .collect();
    if shown.len() > LINKS {
        let cut = shown.len() - LINKS;
        shown.splice(LINKS / 2..LINKS / 2 + cut, [format!("… {cut} more …")]);
    }
    shown.join(" → ")
}

fn rules(facts: &Facts<'_>, style: Style) -> String {
    let most = if style.is_full { usize::MAX } else { SHOWN };
    let mut text = format!(
        "\n{:>9} {:>7} {:>6}  {:<28} if it took half its time\n",
        "on path", "share", "steps", "rule"
    );
    for rule in facts.rules.iter().take(most) {
        let gain = facts.length_ns - rule.if_halved_ns;
        let halved = match gain >= facts.length_ns / 1000 {
            true => format!(
                "{} (−{})",
                units::duration(rule.if_halved_ns),
                percent(gain, facts.length_ns)
            ),
            false => "no change".into(),
        };
        text += &format!(
            "{:>9} {:>7} {:>6}  {:<28} {halved}\n",
            units::duration(rule.ns),
            percent(rule.ns, facts.length_ns),
            format!("×{}", units::count(rule.processes)),
            units::shorten(&units::plain(rule.rule), 28),
        );
    }
    text += &more(facts.rules.len(), most, "rule", "rules", "");
    text
}

fn steps(facts: &Facts<'_>, style: Style, begins_ns: i64) -> String {
    let mut order: Vec<usize> = (0..facts.steps.len()).collect();
    if !style.is_full && order.len() > SHOWN {
        order.sort_by_key(|&i| (std::cmp::Reverse(facts.steps[i].ns), i));
        order.truncate(SHOWN);
        order.sort_unstable();
    }
    let mut text = format!("\n{:>9} {:>9} {:>7}  step\n", "at", "took", "share");
    for &i in &order {
        let step = &facts.steps[i];
        let note = match step.kind {
            "work" => String::new(),
            "late" => " [waited, cause not seen]".into(),
            "stopped" => " [stopped by a signal]".into(),
            _ => " [not begun]".into(),
        };
        let command = step.command.unwrap_or(step.rule);
        let line = format!(
            "{:>9} {:>9} {:>7}  {}{note}",
            units::since_begin(step.from_ns, begins_ns),
            units::duration(step.ns),
            percent(step.ns, facts.length_ns),
            units::plain(command),
        );
        text += &format!("{}\n", units::shorten(&line, style.width).trim_end());
    }
    let left: i64 = facts.steps.iter().map(|s| s.ns).sum::<i64>()
        - order.iter().map(|&i| facts.steps[i].ns).sum::<i64>();
    let rest = format!(
        " of {} together; all of them: --full",
        units::duration(left)
    );
    text += &more(facts.steps.len(), order.len(), "step", "steps", &rest);
    text
}

fn more(all: usize, shown: usize, one: &str, many: &str, rest: &str) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        n => format!(
            "{:>9} more {}{rest}\n",
            format!("+{n}"),
            if n == 1 { one } else { many }
        ),
    }
}

fn tail(facts: &Facts<'_>) -> String {
    let slack = |s: &&SlackFacts<'_>| s.slack_ns.is_some_and(|ns| ns <= facts.length_ns / 100);
    let near = facts.slack.iter().filter(slack).count() as i64;
    let unneeded = facts.slack.iter().filter(|s| s.slack_ns.is_none()).count() as i64;
    let waits = facts.waits_sampled_ns + facts.waits_inferred_ns;
    let mut text = format!(
        "\n  slack        {} without any to speak of (under 1 % of the path)",
        units::counted(near, "process", "processes")
    );
    if unneeded > 0 {
        text += &format!("; no process waited for {}", units::count(unneeded));
    }
    text += &match (waits, facts.waits_inferred_ns) {
        (0, _) => "\n  evidence     no process waited for a child or a channel".into(),
        (_, 0) => "\n  evidence     all waits for a child or a channel were seen".into(),
        _ => format!(
            "\n  evidence     {} of the waits for children and channels were seen, the rest follows from exact totals",
            percent(facts.waits_sampled_ns, waits)
        ),
    };
    let late: i64 = facts
        .steps
        .iter()
        .filter(|step| step.kind == "late")
        .map(|step| step.ns)
        .sum();
    if late > 0 {
        text += &format!(
            "\n               for {} of the path ({}) the cause of a wait was not seen",
            units::duration(late),
            percent(late, facts.length_ns)
        );
    }
    text + "\n"
}

/// A part of a whole in percent.
fn percent(part: i64, whole: i64) -> String {
    match whole {
        ..=0 => "?".into(),
        whole => units::share(part as f64 / whole as f64),
    }
}
