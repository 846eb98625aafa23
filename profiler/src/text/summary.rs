//! The summary of a run: printed when it ends, and by `flowtrace summary`.

mod facts;
mod head;
mod layout;
mod style;
mod why;

use std::path::Path;

pub use facts::{Facts, Judged, facts};
use flowtrace_render::units;
pub(crate) use head::headline;
pub use head::not_recorded;
use head::{incomplete, processes};
use layout::Layout;
pub use style::Style;
pub use why::critical_path;

use crate::analysis::findings::Verdict;
use crate::analysis::habits::{Habit, HabitOf};
use crate::analysis::time::RuleTime;
use crate::model::Workflow;
use crate::text::names;

/// Items named in a line; more are counted.
const NAMED: usize = 4;
/// Least number of calls on a file that are worth a word.
const MANY_CALLS: i64 = 1000;

/// The summary as text, ended by a newline. `trace` is the file that was loaded.
pub fn text(workflow: &Workflow, trace: &Path, style: Style) -> String {
    with_verdict(workflow, trace, style, &Verdict::default())
}

/// The summary, with the verdict why the run took so long, and at its end the findings that could make it
/// shorter.
pub fn with_verdict(workflow: &Workflow, trace: &Path, style: Style, verdict: &Verdict) -> String {
    let facts = facts(workflow);
    let quoted = flowtrace_schema::quote_argv([trace.as_os_str().as_encoded_bytes()]);
    let name = units::plain(&quoted.text());
    // Commands find the trace by themselves if it has its usual name.
    let argument = match name == flowtrace_schema::DEFAULT_TRACE {
        true => String::new(),
        false => format!(" {name}"),
    };
    let mut out = Layout::new(style);
    match &verdict.action {
        Some(action) => {
            out.headline(action);
            out.line("run", &[headline(&facts)]);
        }
        None => out.headline(&headline(&facts)),
    }
    if facts.is_incomplete {
        out.warning("incomplete", &incomplete(&facts));
    }
    if !facts.failures.is_empty() {
        let item = |f: &facts::Failure| match f.count {
            1 => format!("{} {}", f.rule, f.ending),
            n => format!("{} {} ×{}", f.rule, f.ending, units::count(n)),
        };
        let total = facts.failures.iter().map(|f| f.count).sum::<i64>();
        let more = facts
            .failures
            .iter()
            .skip(NAMED)
            .map(|f| f.count)
            .sum::<i64>();
        let mut items = vec![format!("{} of {}", units::count(total), processes(&facts))];
        items.extend(facts.failures.iter().take(NAMED).map(item));
        items.extend(more_items(more));
        out.warning("failed", &items);
    }
    why::why(&mut out, workflow, verdict);
    out.line("most time", &most_time(&facts.rules));
    out.line("waiting", &waiting(&facts.rules, workflow.last_ns));
    data_lines(&mut out, workflow, &facts);
    if let Some(network) = &facts.network {
        let mut items = captured(network);
        items.push(format!("flowtrace network{argument}"));
        out.line("network", &items);
    }
    coverage(&mut out, &facts);
    why::findings(&mut out, workflow, verdict, &argument);
    let size = trace
        .metadata()
        .map(|m| format!(" {}", units::bytes(m.len() as i64)));
    out.line(
        "trace",
        &[
            format!("{name}{}{}", size.unwrap_or_default(), beside(trace)),
            match workflow.lacks_processes() {
                true => format!("next: flowtrace network flows {name}"),
                false => format!("next: flowtrace report{argument}"),
            },
        ],
    );
    out.finish()
}

/// What was recorded, and what was lost: in one line if that is nothing.
fn coverage(out: &mut Layout, facts: &Facts) {
    let (chosen, losses): (Vec<_>, Vec<_>) = facts
        .losses
        .iter()
        .partition(|loss| loss.severity == "info");
    let counted = |loss: &facts::Loss| format!("{} × {}", units::count(loss.value), loss.meaning);
    let mut covered = seen(facts);
    covered.extend(chosen.into_iter().map(counted));
    let unstored = match (facts.is_live, facts.is_cut_short) {
        (true, _) => Some("what came in the last quarter of a second is not stored yet"),
        (false, true) => {
            Some("what came in the last quarter of a second before the cut is missing")
        }
        (false, false) => None,
    };
    let unstored = unstored.map(str::to_owned);
    let lost: Vec<String> = facts
        .unrecorded
        .clone()
        .into_iter()
        .chain(unstored)
        .chain(losses.into_iter().map(counted))
        .collect();
    if lost.is_empty() && !facts.is_incomplete {
        covered[0].insert_str(0, "complete: ");
    }
    out.line("coverage", &covered);
    out.warning("lost", &lost);
}

/// Suffix of the size of a trace: the write-ahead log that SQLite could not move into it.
fn beside(trace: &Path) -> String {
    match flowtrace_schema::log_bytes(trace) as i64 {
        0 => String::new(),
        size => format!(
            " and {} in the -wal file beside it, which belongs to it",
            units::bytes(size)
        ),
    }
}

/// The captured traffic, and the rules between which it went.
fn captured(network: &facts::Network) -> Vec<String> {
    let mut items = vec![format!(
        "{} in {}, {}",
        units::bytes(network.bytes),
        units::counted(network.flows, "flow", "flows"),
        units::counted(network.packets, "packet", "packets"),
    )];
    let name = |rule: &str| units::shorten(&units::plain(rule), 40);
    items.extend(network.between.iter().take(NAMED).map(|pair| {
        let (from, to) = (name(&pair.from), name(&pair.to));
        match (pair.forth_bytes, pair.back_bytes) {
            (bytes, 0) => format!("{from} → {to} {}", units::bytes(bytes)),
            (0, bytes) => format!("{to} → {from} {}", units::bytes(bytes)),
            (forth, back) => format!(
                "{from} ↔ {to} {} → · ← {}",
                units::bytes(forth),
                units::bytes(back)
            ),
        }
    }));
    items.extend(more_items(
        network.between.len().saturating_sub(NAMED) as i64
    ));
    items
}

fn named(rule: &RuleTime) -> String {
    let name = units::shorten(&units::plain(&rule.rule), 40);
    match rule.processes {
        0 | 1 => name,
        n => format!("{name} ×{}", units::count(n)),
    }
}

fn more_items(more: i64) -> Option<String> {
    (more > 0).then(|| format!("+{} more", units::count(more)))
}

fn most_time(rules: &[RuleTime]) -> Vec<String> {
    // A rule below a hundredth of the whole is not worth a line.
    let total: i64 = rules.iter().map(|rule| rule.cpu_ns).sum();
    let heavy: Vec<&RuleTime> = rules
        .iter()
        .filter(|rule| rule.cpu_ns > 0 && rule.cpu_ns >= total / 100)
        .collect();
    let item = |rule: &&RuleTime| format!("{} {} cpu", named(rule), units::duration(rule.cpu_ns));
    let mut items: Vec<String> = heavy.iter().take(NAMED).map(item).collect();
    let shown: i64 = heavy.iter().take(NAMED).map(|rule| rule.cpu_ns).sum();
    let others = rules
        .iter()
        .filter(|rule| rule.cpu_ns > 0)
        .count()
        .saturating_sub(items.len());
    if others > 0 {
        items.push(format!(
            "+{others} more {} cpu",
            units::duration(total - shown)
        ));
    }
    items
}

/// Rules worth a word: they were blocked for a twentieth of the run or longer.
fn waiting(rules: &[RuleTime], run_ns: i64) -> Vec<String> {
    let long: Vec<&RuleTime> = crate::analysis::time::waiting(rules)
        .into_iter()
        .filter(|rule| rule.blocked_ns() >= (run_ns / 20).max(1))
        .collect();
    let item = |rule: &&RuleTime| {
        let (blocked, life) = (
            units::duration(rule.blocked_ns()),
            units::duration(rule.leaf_ns),
        );
        format!("{} blocked {blocked} of {life}", named(rule))
    };
    let mut items: Vec<String> = long.iter().take(NAMED).map(item).collect();
    items.extend(more_items(long.len().saturating_sub(NAMED) as i64));
    items
}

fn data_lines(out: &mut Layout, workflow: &Workflow, facts: &Facts) {
    let t = &facts.data;
    if facts.file_calls == 0 {
        return out.line("data", &no_file_call(facts));
    }
    let calls = |n| units::short_count(n);
    // If only opens were recorded, bytes were not, except those that went through the standard input and output
    // of a child.
    let by_open_alone = facts.file_layer == "none"
        && workflow.runs.len() == 1
        && !facts.directories.iter().any(is_traced);
    let is_moved = t.reads + t.writes > 0 || facts.directories.iter().any(is_traced);
    let moved = match is_moved {
        true if by_open_alone => format!(
            "how much was read and written was not seen, but for {} read and {} written by redirection",
            units::bytes(t.read_bytes),
            units::bytes(t.write_bytes)
        ),
        true => format!(
            "read {} in {} {}, wrote {} in {}",
            units::bytes(t.read_bytes),
            calls(t.reads),
            if t.reads == 1 { "call" } else { "calls" },
            units::bytes(t.write_bytes),
            calls(t.writes)
        ),
        false => "how much was read and written was not seen".into(),
    };
    out.line(
        "data",
        &[
            moved,
            format!(
                "{} read, {} written, {} created",
                units::counted(t.files_read, "file", "files"),
                units::count(t.files_written),
                units::count(t.files_created)
            ),
        ],
    );
    if let Some((directory, bytes)) = outside(workflow, facts) {
        out.line(
            "outside",
            &[format!(
                "{} in {} outside the traced directories, contents not traced: flowtrace run --dir {} shows them",
                units::bytes(bytes),
                units::counted(t.files_by_open, "file", "files"),
                units::plain(&directory)
            )],
        );
    }
    if facts.never_read_bytes > 0 {
        let mut items = vec![format!(
            "{} in {} written and never read",
            units::bytes(facts.never_read_bytes),
            units::counted(facts.never_read_files, "file", "files")
        )];
        let item = |kind: &facts::FileKind| {
            let path = units::plain(&in_run(workflow, &kind.pattern));
            let name = units::shorten_path(&path, 48);
            let files = crate::paths::counted(&name, kind.files as usize);
            format!("{files} {}", units::bytes(kind.bytes))
        };
        items.extend(facts.never_read.iter().take(3).map(item));
        items.extend(more_items(facts.never_read.len().saturating_sub(3) as i64));
        out.line("unread", &items);
    }
    for (habit, label) in [
        (Habit::ReadAgain, "read again"),
        (Habit::Synced, "fsync"),
        (Habit::Polled, "polling"),
        (Habit::Mapped, "mapped"),
    ] {
        let of: Vec<&HabitOf> = facts
            .habits
            .iter()
            .filter(|one| one.habit == habit)
            .collect();
        out.line(label, &habits(workflow, &of));
    }
    out.line("hottest", &hottest(workflow, facts));
}

/// Files that were used in a way that costs more than it needs to.
fn habits(workflow: &Workflow, of: &[&HabitOf]) -> Vec<String> {
    let item = |one: &&HabitOf| {
        let path = units::plain(&in_run(workflow, &one.pattern));
        let name = units::shorten_path(&path, 48);
        let files = crate::paths::counted(&name, one.files as usize);
        let times = |n: i64| units::counted(n, "time", "times");
        match one.habit {
            Habit::ReadAgain => format!(
                "{files} {}: once would save {}",
                match one.files {
                    1 => times(one.times),
                    files => format!("{} each", times(one.times / files)),
                },
                units::bytes(one.bytes)
            ),
            Habit::Synced => format!("{files} {}, {}", times(one.times), units::duration(one.ns)),
            Habit::Polled => format!("{files} looked up {}", times(one.times)),
            Habit::Mapped => format!("{files} {}, not counted as read", units::bytes(one.bytes)),
        }
    };
    let mut items: Vec<String> = of.iter().take(3).map(item).collect();
    items.extend(more_items(of.len().saturating_sub(3) as i64));
    items
}

/// The directory with most of the data of which only opens were recorded, and the size of all such data,
/// where it is more than half of the bytes moved by calls.
fn outside(workflow: &Workflow, facts: &Facts) -> Option<(String, i64)> {
    let moved = facts.data.read_bytes.saturating_add(facts.data.write_bytes);
    let is_mounted = facts.directories.iter().any(is_traced);
    crate::analysis::data::by_open_alone(workflow)
        .filter(|&(_, bytes)| is_mounted && bytes > moved / 2)
        .map(|(directory, bytes)| {
            let quoted = flowtrace_schema::quote_argv([directory.as_bytes()]);
            (quoted.text().into_owned(), bytes)
        })
}

fn hottest(workflow: &Workflow, facts: &Facts) -> Vec<String> {
    let most_moved = facts.hottest_by_bytes.iter().take(3);
    let most_called = facts
        .hottest_by_calls
        .first()
        .filter(|file| file.calls >= MANY_CALLS);
    let shown = most_moved.clone().chain(most_called);
    let paths: Vec<(i64, String)> = shown
        .map(|file| (file.file_id, in_run(workflow, &file.path)))
        .collect();
    let names = names::of_files(paths.iter().map(|(id, path)| (*id, path.as_str())), 40);
    let moved =
        most_moved.map(|f| format!("{} {}", names[&f.file_id], units::bytes(f.moved_bytes)));
    let called = most_called.map(|f| {
        let calls = units::short_count(f.calls);
        format!("most calls: {} {calls}", names[&f.file_id])
    });
    moved.chain(called).collect()
}

/// The reason why nothing can be said about files, as far as known.
fn no_file_call(facts: &Facts) -> Vec<String> {
    if facts.is_incomplete {
        return vec!["no file call was stored".into()];
    }
    match facts.excluded_calls() {
        0 => vec!["no file call was seen".into()],
        left_out => vec![
            format!(
                "no file call was recorded: --include and --exclude left out all {}",
                units::count(left_out)
            ),
            "patterns are names ('*.fits'), paths below the traced directory ('raw/**') or whole \
             paths ('/data/raw')"
                .into(),
        ],
    }
}

/// A path as seen from the directory of the run.
fn in_run(workflow: &Workflow, path: &str) -> String {
    let cwd = workflow.runs.first().map_or("", |run| run.cwd.as_str());
    crate::paths::relative(path, cwd).into()
}

/// Returns true if the calls on files of the directory were recorded.
fn is_traced(directory: &facts::Directory) -> bool {
    directory.file_layer != "none"
}

/// The coverage of the run: what was recorded, and what was not.
pub(crate) fn seen(facts: &Facts) -> Vec<String> {
    let traced: Vec<_> = facts.directories.iter().filter(|d| is_traced(d)).collect();
    let is_cached = |d: &&facts::Directory| d.file_layer == "cached";
    let is_part = facts.is_incomplete || facts.excluded_calls() > 0;
    let calls = if is_part || traced.first().is_some_and(is_cached) {
        "file calls"
    } else {
        "every file call"
    };
    let directories = match traced.as_slice() {
        [] => "no file calls".into(),
        [one, ..] if one.file_layer == "kernel" => calls.into(),
        [one] => format!(
            "{calls} under {} ({})",
            units::plain(&one.path),
            one.file_layer
        ),
        [one, two] => format!(
            "{calls} under {} and {} ({})",
            units::plain(&one.path),
            units::plain(&two.path),
            one.file_layer
        ),
        [one, more @ ..] => format!(
            "{calls} under {} and {} more ({})",
            units::plain(&one.path),
            units::counted(more.len() as i64, "directory", "directories"),
            one.file_layer
        ),
    };
    let processes = match facts.process_layer.as_str() {
        "ptrace" if facts.is_incomplete => "processes (ptrace)",
        "ptrace" => "every process (ptrace)",
        "ebpf" if facts.is_incomplete => "processes, recorded by eBPF",
        "ebpf" => "every process, recorded by eBPF",
        "tracepoints" if facts.is_incomplete => "processes (tracepoints)",
        "tracepoints" => "every process, reported by the kernel (tracepoints)",
        "connector" => "every process announced by the kernel (proc connector)",
        "scan" => "processes that lived long enough to be found in /proc",
        "requests" => "only processes that made a file call",
        _ if facts.processes > 0 => "of processes only those found at the ends of connections",
        _ => "no processes",
    };
    let mut items = vec![format!("{directories}, {processes}")];
    if traced.iter().copied().any(|d| is_cached(&d)) {
        items.push("reads that the page cache answered are not seen".into());
    }
    if traced.iter().any(|d| d.attribute_ttl_ns > 0) {
        items.push("repeated stat calls and lookups are not seen".into());
    }
    let sees_no_descriptors = ["tracepoints", "connector", "scan", "requests"];
    if sees_no_descriptors.contains(&&*facts.process_layer) {
        items.push("pipes, sockets and files elsewhere are not seen".into());
    }
    if facts.data.files_by_open > 0 {
        let files = units::counted(facts.data.files_by_open, "file", "files");
        items.push(format!(
            "{files} opened outside the traced directories; contents not traced"
        ));
    }
    let sees_mappings = traced.iter().all(|d| d.file_layer == "kernel");
    let rest = |files: i64, mapped: i64| match mapped {
        _ if !sees_mappings => "mapped into memory, or not used".into(),
        0 => "not used".into(),
        _ if mapped == files => "mapped into memory".into(),
        _ => format!(
            "{} mapped into memory, others not used",
            units::count(mapped)
        ),
    };
    // Reads that the cache answered explain this already.
    if facts.data.files_not_moved > 0 && !traced.iter().copied().any(|d| is_cached(&d)) {
        items.push(format!(
            "{} of {} opened, but read and written by no call: {}",
            units::counted(facts.data.files_not_moved, "file", "files"),
            units::bytes(facts.data.not_moved_bytes),
            rest(
                facts.data.files_not_moved,
                facts.data.files_not_moved_mapped
            )
        ));
    }
    if facts.data.files_read_in_part > 0 && !traced.iter().copied().any(|d| is_cached(&d)) {
        let files = facts.data.files_read_in_part;
        items.push(format!(
            "{} of {} read by calls only in part; the other {}: {}",
            units::count(files),
            units::counted(facts.data.files_read, "file", "files"),
            units::bytes(facts.data.unread_part_bytes),
            rest(files, facts.data.files_in_part_mapped)
        ));
    }
    items
}

#[cfg(test)]
mod tests {
    use flowtrace_schema::TracedDirectoryRow;

    use super::*;

    fn seen_in(paths: &[&str]) -> String {
        let directory = |path: &&str| TracedDirectoryRow {
            path: (*path).into(),
            source: None,
            file_layer: "passthrough".into(),
            attribute_ttl_ns: 0,
            filesystem: None,
        };
        let workflow = Workflow {
            directories: paths.iter().map(directory).collect(),
            ..Workflow::default()
        };
        seen(&facts(&workflow)).remove(0)
    }

    #[test]
    fn two_directories_are_named_and_of_more_their_number() {
        let begins = |paths: &[&str], with: &str| {
            let seen = seen_in(paths);
            assert!(seen.starts_with(with), "{seen}");
        };
        begins(&["/a"], "every file call under /a (passthrough)");
        begins(
            &["/a", "/b"],
            "every file call under /a and /b (passthrough)",
        );
        begins(
            &["/a", "/b", "/c"],
            "every file call under /a and 2 directories more (passthrough)",
        );
    }
}
