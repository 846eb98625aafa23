//! The tree of processes as text: a line per process, or per group of processes alike.

mod branch;
mod dot;
mod fold;
mod json;

use std::collections::HashMap;

use branch::{Branch, DEEPEST, branches, life_ns, longest_chain};
pub use dot::dot;
use flowtrace_render::units;
pub use json::{Row, rows};

use crate::analysis::time::Ending;
use crate::model::{Process, ProcessId, Workflow};

/// Steps of the longest chain that are named below the tree.
const CHAIN: usize = 8;

/// Columns of the numbers before the tree.
const NUMBERS: usize = 48;
/// Columns of a level, and those that the levels leave for the process.
const LEVEL: usize = 3;
const PROCESS: usize = 24;

/// Style of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns to fill; lines are cut there, at `usize::MAX` nowhere.
    pub width: usize,
    /// True to write every process on a line of its own, with all its programs.
    pub is_full: bool,
}

impl Style {
    /// From this level on lines are not indented further, but give their depth.
    fn deepest(self) -> usize {
        let free = self.width.saturating_sub(NUMBERS + PROCESS);
        (free / LEVEL).clamp(1, DEEPEST)
    }
}

/// The tree, ended by a newline.
pub fn text(workflow: &Workflow, style: Style) -> String {
    let chain = longest_chain(workflow);
    let sockets = workflow.socket_bytes();
    let of_sockets = match sockets.is_empty() {
        true => String::new(),
        false => format!(" {:>7} {:>7}", "recv", "sent"),
    };
    let mut text = format!(
        "{:>9} {:>10} {:>9} {:>7} {:>7}{of_sockets}  process\n",
        "start", "life", "cpu", "read", "wrote"
    );
    let begins_ns = workflow.begins_ns();
    for branch in branches(workflow, style.is_full, &chain) {
        text += &line(workflow, &sockets, style, &branch, begins_ns);
    }
    text += &chain_line(workflow, &chain, style.width);
    if let Some(unrecorded) = &workflow.unrecorded {
        text += &format!("Here {unrecorded}.\n");
    } else if workflow.is_live {
        text += "The recording still goes on.\n";
    } else if workflow.is_cut_short() {
        text += "The recording was cut short: what ran on after its last event is not known.\n";
    }
    text
}

/// The longest chain in a line; empty where there is none.
fn chain_line(workflow: &Workflow, chain: &[ProcessId], width: usize) -> String {
    if chain.is_empty() {
        return String::new();
    }
    let steps: Vec<String> = chain
        .iter()
        .take(CHAIN)
        .map(|&id| {
            let rule = units::between_arrows(&units::plain(workflow.rule(id)));
            format!("{rule} {}", units::duration(life_ns(workflow, id)))
        })
        .collect();
    let more = match chain.len() - steps.len() {
        0 => String::new(),
        n => format!(" → +{} more", units::count(n as i64)),
    };
    let line = format!(
        "* always the longest-lived child: {}{more}",
        steps.join(" → ")
    );
    format!("{}\n", units::shorten(&line, width))
}

/// Bytes received and sent through sockets by process, where it had any; `None`: not counted.
type Sockets = HashMap<ProcessId, Option<(i64, i64)>>;

fn line(
    workflow: &Workflow,
    sockets: &Sockets,
    style: Style,
    branch: &Branch,
    begins_ns: i64,
) -> String {
    let members = || branch.members.iter().map(|&id| workflow.process(id));
    let sum =
        |of: fn(&Process) -> Option<i64>| members().filter_map(of).reduce(i64::saturating_add);
    let shown = |n: Option<i64>, unit: fn(i64) -> String| n.map_or_else(|| "?".into(), unit);
    let start = members().map(|p| p.start_ns).min().unwrap_or(0);
    let moved = |n: Option<i64>| match n {
        Some(0) => "-".into(),
        n => shown(n, units::bytes),
    };
    let of_sockets = match sockets.is_empty() {
        true => String::new(),
        false => {
            let of = branch.members.iter().filter_map(|id| sockets.get(id));
            let sum = of.copied().try_fold((0_i64, 0_i64), |sum, own| {
                let own = own?;
                Some((sum.0.saturating_add(own.0), sum.1.saturating_add(own.1)))
            });
            let [received, sent] = [sum.map(|sum| sum.0), sum.map(|sum| sum.1)].map(moved);
            format!(" {received:>7} {sent:>7}")
        }
    };
    let numbers = format!(
        "{:>9} {:>10} {:>9} {:>7} {:>7}{of_sockets}  ",
        units::since_begin(start, begins_ns),
        shown(sum(Process::duration_ns), units::duration),
        shown(sum(|p| p.cpu_ns), units::duration),
        moved(sum(|p| p.read_bytes)),
        moved(sum(|p| p.write_bytes)),
    );
    let deepest = style.deepest();
    let indent: String = branch.indent.chars().take(LEVEL * (deepest - 1)).collect();
    let joint = match (branch.depth, branch.is_last) {
        (0, _) => String::new(),
        (depth, _) if depth >= deepest => format!("(depth {depth}) "),
        (_, true) => "└─ ".into(),
        (_, false) => "├─ ".into(),
    };
    // The label comes first, because the command may be cut off.
    let label = match branch.members.as_slice() {
        [one] => single(workflow, *one, style),
        many => folded(workflow, many),
    };
    let label = match branch.depth {
        // All processes below it ran there, too.
        0 => on_hosts(workflow, &branch.members) + &label,
        _ => label,
    };
    let mark = if branch.is_on_chain { "* " } else { "" };
    let line = format!("{numbers}{indent}{joint}{mark}{label}");
    format!("{}\n", units::shorten(&line, style.width).trim_end())
}

/// The hosts of processes, where there are several machines: `n1, n2: `.
fn on_hosts(workflow: &Workflow, members: &[ProcessId]) -> String {
    let mut all = workflow.images.iter().map(|image| image.host.as_deref());
    let first = all.next().flatten();
    if all.all(|host| host == first) {
        return String::new();
    }
    let mut hosts: Vec<&str> = members
        .iter()
        .filter_map(|&id| workflow.last_image(id).host.as_deref())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    match hosts.len() {
        0 => String::new(),
        1..=4 => units::plain(&format!("{}: ", hosts.join(", "))),
        n => format!("{} hosts: ", units::count(n as i64)),
    }
}

fn single(workflow: &Workflow, id: ProcessId, style: Style) -> String {
    let process = workflow.process(id);
    let failure = notes(workflow, &[id]);
    let last = workflow.last_image(id);
    let command = last.command.as_deref().unwrap_or(&last.rule);
    let chain = before(&chain(workflow, id, style.is_full), style);
    units::plain(&format!("{}{failure} {chain}{command}", process.pid))
}

/// The programs before the last, as far as they leave space for the last one, which names the process.
fn before(chain: &[&str], style: Style) -> String {
    let whole: String = chain.iter().map(|rule| format!("{rule} → ")).collect();
    let free = match style.is_full {
        true => style.width.saturating_sub(NUMBERS + 40),
        false => 24,
    };
    match chain {
        [first, .., _] if whole.chars().count() > free.max(24) => {
            format!("{first} → +{} → ", chain.len() - 1)
        }
        _ => whole,
    }
}

fn folded(workflow: &Workflow, members: &[ProcessId]) -> String {
    let first = workflow.last_image(members[0]);
    let is_one_command = members
        .iter()
        .all(|&id| workflow.last_image(id).command == first.command);
    let name = match &first.command {
        Some(command) if is_one_command => {
            format!("{}{command}", workflow.rules_before(members[0]))
        }
        _ => workflow.rule(members[0]).to_string(),
    };
    let failure = notes(workflow, members);
    let lives: Vec<i64> = members
        .iter()
        .filter_map(|&id| workflow.process(id).duration_ns())
        .collect();
    let mean = match lives.len() as i64 {
        0 => String::new(),
        n => format!(
            " (mean life {})",
            units::duration(lives.iter().sum::<i64>() / n)
        ),
    };
    let count = units::count(members.len() as i64);
    units::plain(&format!("×{count}{failure} {name}{mean}"))
}

/// Notes on a group of equal processes: their end, if it was a failure, and the time for which job control
/// had stopped them.
fn notes(workflow: &Workflow, members: &[ProcessId]) -> String {
    let members: Vec<&Process> = members.iter().map(|&id| workflow.process(id)).collect();
    let stops = members
        .iter()
        .map(|process| process.stopped_within(0, i64::MAX));
    let stopped = Some(stops.sum()).filter(|&ns: &i64| ns >= 1_000_000);
    let stopped = stopped.map(|ns| format!("stopped {}", units::duration(ns)));
    let notes = ending(members[0]).into_iter().chain(stopped);
    notes.map(|note| format!(" [{note}]")).collect()
}

/// The end of a process, if it failed or was not seen.
fn ending(process: &Process) -> Option<String> {
    match (process.exit_signal, process.exit_code) {
        (Some(signal), _) => Some(Ending::Signal(signal).to_string()),
        (None, Some(0)) => None,
        (None, Some(code)) => Some(Ending::Code(code).to_string()),
        (None, None) if process.end_ns.is_none() => Some("no end seen".into()),
        (None, None) => None,
    }
}

/// The rules of the programs that a process was before its last one. The shell that only runs a line for
/// make, and the copy of its parent between fork and exec, are left out.
fn chain(workflow: &Workflow, id: ProcessId, is_full: bool) -> Vec<&str> {
    let images = workflow.images(id);
    let before = &images[..images.len() - 1];
    let mut rules: Vec<&str> = before
        .iter()
        .filter(|image| is_full || (!image.is_fork && !image.rule.ends_with(" -c")))
        .map(|image| image.rule.as_ref())
        .collect();
    if !is_full {
        // `env` is named by the program that it starts.
        rules.dedup();
    }
    rules
}
