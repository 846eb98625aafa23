//! Makes the plan of a run from its steps, the work of the script itself, their order and their files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

use flowtrace_render::units::counted;
use flowtrace_schema::{Result, Trace};

use super::ast::Command;
use super::command::ending;
use super::effects::{Effects, How, Thing, effects};
use super::order::{Edges, edges, keep_time, reduced, rings};
use super::source::{Source, Unfit};
use super::step::{Draft, Split};
use super::steps::splits;
use super::touched::{Files, links};
use super::words::relative;
use super::writer::Writer;
use super::{After, Options, Output, Plan, Step, own};
use crate::load::load;

/// The steps of a traced run.
///
/// # Errors
/// The outer error means that the file cannot be read; the inner one, that the trace lacks what is
/// needed.
pub fn plan(trace: &Trace, options: Options) -> Result<std::result::Result<Plan, Unfit>> {
    let source = match Source::read(trace, load(trace)?)? {
        Ok(source) => source,
        Err(unfit) => return Ok(Err(unfit)),
    };
    let mut plans = splits(&source)
        .into_iter()
        .map(|split| of_split(&source, split, options));
    let innermost = plans.next().unwrap_or_default();
    if innermost.refused().next().is_none() {
        return Ok(Ok(innermost));
    }
    // A command as a whole may be written down even if its parts cannot.
    let coarser = plans.find(|plan| plan.refused().next().is_none());
    Ok(Ok(coarser.unwrap_or(innermost)))
}

fn of_split(source: &Source, mut split: Split, options: Options) -> Plan {
    let mut effects = effects(source, &split);
    let mut notes = Vec::new();
    let own = std::mem::take(&mut effects.own);
    own::add(source, &mut split, &mut effects, own, &mut notes);
    own::keep_random_names(source, &mut split, &effects, &mut notes);
    let writer = Writer { source, options };
    let builder = Builder {
        failing: failing(&writer, &split.drafts),
        is_manager: split.is_manager,
        writer,
        source,
        effects: &effects,
    };
    builder.build(&split.drafts, notes)
}

struct Builder<'a> {
    /// The step with which a failed run ended.
    failing: Option<usize>,
    is_manager: bool,
    writer: Writer<'a>,
    source: &'a Source,
    effects: &'a Effects,
}

impl Builder<'_> {
    fn build(&self, drafts: &[Draft], mut notes: Vec<String>) -> Plan {
        let mut edges = edges(self.effects);
        if !self.source.workflow.sees_outside() {
            let spans = drafts.iter().map(|draft| (draft.start_ns, draft.end_ns));
            keep_time(&spans.collect::<Vec<_>>(), &mut edges);
        }
        let rings = rings(drafts.len(), &edges);
        // Each draft is part of one merged step.
        let mut merged: Vec<Vec<usize>> = Vec::new();
        let mut in_ring = HashSet::new();
        for ring in rings {
            in_ring.extend(ring.iter().copied());
            merged.push(ring);
        }
        merged.extend(
            (0..drafts.len())
                .filter(|at| !in_ring.contains(at))
                .map(|at| vec![at]),
        );
        let is_left_out =
            |group: &Vec<usize>| group.len() == 1 && self.is_idle(&drafts[group[0]], group[0]);
        let (idle, mut merged): (Vec<_>, Vec<_>) = merged.into_iter().partition(is_left_out);
        merged.sort_by_key(|group| drafts[group[0]].start_ns);
        let edges = between(&merged, &edges);
        let order = in_order(merged.len(), &edges);
        let place: HashMap<usize, usize> = order
            .iter()
            .enumerate()
            .map(|(new, &old)| (old, new))
            .collect();
        let edges: Edges = edges
            .into_iter()
            .map(|((from, to), data)| ((place[&from], place[&to]), data))
            .collect();
        let merged: Vec<Vec<usize>> = order.iter().map(|&old| merged[old].clone()).collect();
        let edges = reduced(merged.len(), &edges);

        let mut of_draft = HashMap::new();
        for (step, group) in merged.iter().enumerate() {
            of_draft.extend(group.iter().map(|&draft| (draft, step)));
        }
        let files = Files::of(self.source, self.effects, &of_draft);
        let mut serial: HashMap<String, usize> = HashMap::new();
        let steps = merged.iter().enumerate().map(|(at, group)| {
            let first = &drafts[group[0]];
            let name = identifier(&first.rule);
            let number = serial.entry(name.clone()).or_default();
            *number += 1;
            let parts: Vec<&Draft> = group.iter().map(|&draft| &drafts[draft]).collect();
            let (outputs, needs_mark) = files.outputs(at, &parts);
            let members = parts.iter().flat_map(|draft| &draft.members);
            let rows: Vec<_> = members
                .filter_map(|upid| self.source.rows.get(upid))
                .collect();
            let cpu = |row: &&flowtrace_schema::ProcessRow| {
                let both = row.user_ns.zip(row.sys_ns).map(|(user, sys)| user + sys);
                row.on_cpu_ns.or(both).unwrap_or(0)
            };
            let start = parts.iter().map(|draft| draft.start_ns).min().unwrap_or(0);
            let end = parts.iter().map(|draft| draft.end_ns).max().unwrap_or(0);
            Step {
                id: format!("{name}_{number}"),
                rule: first.rule.clone(),
                script: self.script(&parts, group, &outputs),
                inputs: files.inputs(at),
                takes: files.takes(at, &parts),
                directories: files.directories(at, &parts, &outputs),
                links: files.links(at, &parts),
                made_links: files.made_links(at, &parts),
                leaves: files.leaves(at, &parts),
                makes_directories_only: files.makes_directories_only(at),
                moves_directory: files.moves_directory(at, &parts),
                outputs,
                needs_mark,
                after: edges
                    .iter()
                    .filter(|((_, to), _)| *to == at)
                    .map(|((from, _), &is_data)| After {
                        step: *from,
                        is_data,
                    })
                    .collect(),
                duration_ns: end - start,
                cpu_ns: rows.iter().map(cpu).sum(),
                max_rss_bytes: rows.iter().filter_map(|row| row.max_rss_bytes).max(),
            }
        });
        let steps: Vec<Step> = steps.collect();
        self.add_notes(&steps, &merged, drafts, &idle, &mut notes);
        let run = &self.source.workflow.runs[0];
        Plan {
            root: self.source.root.clone(),
            command: run.command.clone().unwrap_or_default(),
            last_directories: files.last_directories(),
            unreadable: files.unreadable().clone(),
            last_links: links::last(self.source, &steps),
            steps,
            notes,
        }
    }

    /// Returns true if a step can be left out without changing any file: nothing of it was seen, or
    /// only its answer to the script counted.
    fn is_idle(&self, draft: &Draft, at: usize) -> bool {
        let touches = self.effects.touches.values().flatten();
        let mut changes = touches.filter(|touch| touch.step == at && touch.how > How::Read);
        let is_without = draft.answers_script
            || draft.command == Command::Nothing
            || draft.command.unknown().is_some();
        is_without && changes.next().is_none() && !self.effects.outside.contains_key(&at)
    }

    fn script(
        &self,
        parts: &[&Draft],
        group: &[usize],
        outputs: &[Output],
    ) -> std::result::Result<String, String> {
        // Run in a copy of the directory, the step would change the files of the original.
        if let Some(output) = outputs.iter().find(|output| !output.place.is_below()) {
            return Err(format!(
                "it leaves {}, outside the directory where the run began ({}): let it write below that, or begin the run in a directory that holds both",
                output.place.path(),
                self.source.root
            ));
        }
        for at in group {
            let written = self.effects.written_outside(*at);
            let moved = || self.effects.moved_outside(*at);
            let changed = written.map(|path| ("wrote", path));
            if let Some((did, path)) = changed.or_else(|| Some(("renamed or removed", moved()?))) {
                return Err(format!(
                    "it {did} {path}, outside the directory where the run began ({}): let it write below that, or begin the run in a directory that holds both",
                    self.source.root
                ));
            }
        }
        let command = match parts {
            [one] => one.command.clone(),
            several => {
                if several
                    .iter()
                    .any(|draft| matches!(draft.command, Command::Own(_)))
                {
                    return Err("the script itself wrote a file while a command used it".into());
                }
                Command::AtOnce(several.iter().map(|draft| draft.command.clone()).collect())
            }
        };
        if let Some(reason) = command.unknown() {
            return Err(reason.into());
        }
        self.writer
            .line(&command, self.failing.is_some_and(|at| group.contains(&at)))
    }

    /// Files below the root that one step made and a later one removed or renamed, in the order of
    /// names.
    fn passing(&self) -> Vec<String> {
        let gone: BTreeSet<&str> = self
            .source
            .names
            .values()
            .flatten()
            .filter(|name| name.to_ns.is_some() && self.source.is_traced(&name.path))
            .map(|name| &*name.path)
            .collect();
        let is_passed_on = |path: &&str| {
            let touches = self.effects.touches.get(&Thing::Name((*path).into()));
            let changes = touches.into_iter().flatten();
            changes.filter(|touch| touch.how == How::Write).count() > 1
        };
        let is_there = |path: &&str| self.source.file_at(path, i64::MAX).is_some();
        gone.into_iter()
            .filter(is_passed_on)
            .filter(|path| !is_there(path))
            .map(|path| relative(path, &self.source.root, &self.source.root))
            .collect()
    }

    /// Returns true if a step reads text that the script wrote for it after a command had answered the
    /// script (`$(…)`).
    fn has_computed_text(&self, drafts: &[Draft], at: usize) -> bool {
        let draft = &drafts[at];
        let programs = draft.command.programs();
        let mut texts = self.source.here_documents.keys();
        texts.any(|(upid, _)| programs.contains(upid))
            && drafts
                .iter()
                .any(|other| other.answers_script && other.end_ns <= draft.start_ns)
    }

    fn add_notes(
        &self,
        steps: &[Step],
        merged: &[Vec<usize>],
        drafts: &[Draft],
        idle: &[Vec<usize>],
        notes: &mut Vec<String>,
    ) {
        let run = &self.source.workflow.runs[0];
        if self.is_manager {
            notes.push(
                "a workflow manager ran this: what it started for itself is here beside its jobs, in the \
                 environments that it made for them; its own specification runs again more surely"
                    .into(),
            );
        }
        if !self.source.workflow.sees_outside() {
            notes.push(
                "files outside the traced directories, and what goes through short-lived pipes, were not seen in this run: \
                 steps keep the order in which they ran, and none is refused for what it changed there; \
                 flowtrace run without --no-topology and --detach sees it"
                    .into(),
            );
        }
        if run.exit_code != Some(0) {
            notes.push(format!(
                "the run itself failed ({}): steps that had not begun are missing here",
                ending(
                    run.exit_signal
                        .map_or(run.exit_code.unwrap_or(0), |signal| 128 + signal)
                )
            ));
        }
        for (step, group) in steps.iter().zip(merged) {
            if group.len() > 1 && step.script.is_ok() {
                notes.push(format!(
                    "{} is {} that used the same files at the same time",
                    step.id,
                    counted(group.len() as i64, "command", "commands")
                ));
            }
            if group.iter().any(|&at| self.has_computed_text(drafts, at)) {
                notes.push(format!(
                    "{} has a here-document or here-string: it gets the text of the traced run, whatever that came from",
                    step.id
                ));
            }
            for &draft in group {
                let status = self.writer.status(&drafts[draft].command);
                if self.failing == Some(draft) {
                    notes.push(format!(
                        "{} ended with {}, and with it the run: it fails here too",
                        step.id,
                        ending(status)
                    ));
                } else if status != 0 {
                    notes.push(format!(
                        "{} ended with {} and the script went on: that counts as success here",
                        step.id,
                        ending(status)
                    ));
                }
            }
        }
        let silent = idle
            .iter()
            .flatten()
            .filter(|&&at| drafts[at].command != Command::Nothing);
        let mut silent: Vec<&str> = silent.map(|&at| &*drafts[at].rule).collect();
        silent.sort_unstable();
        silent.dedup();
        if !silent.is_empty() {
            notes.push(format!(
                "left out, because they changed no file and only printed, or answered the script: {}",
                silent.join(", ")
            ));
        }
        let passing = self.passing();
        if let Some(first) = passing.first() {
            let more = passing.len() - 1;
            notes.push(format!(
                "{first}{} removed or renamed on the way: with inputs that changed, what needs {} is only made again from the \
                 beginning (of a Makefile: make forget; make)",
                match more {
                    0 => " was".into(),
                    _ => format!(" and {} were", counted(more as i64, "other file", "other files")),
                },
                if more == 0 { "it" } else { "them" }
            ));
        }
        let lists_root = Thing::List(self.source.root.clone());
        if let Some(touch) = self
            .effects
            .touches
            .get(&lists_root)
            .into_iter()
            .flatten()
            .find(|touch| touch.how.may_list())
        {
            notes.push(format!(
                "{} lists the working directory: keep this file, and what marks steps as done, out of it",
                drafts[touch.step].rule
            ));
        }
        let temporary: HashSet<&String> = self
            .effects
            .outside
            .values()
            .flat_map(|paths| paths.keys())
            .collect();
        let outside = self.effects.read_outside.values().flatten();
        let outside: BTreeSet<&String> = outside.filter(|path| !temporary.contains(path)).collect();
        if !outside.is_empty() {
            let shown: Vec<&str> = outside.iter().take(3).map(|path| path.as_str()).collect();
            let more = outside.len() - shown.len();
            let more = if more > 0 {
                format!(" +{more} more")
            } else {
                String::new()
            };
            notes.push(format!("reads files elsewhere: {}{more}", shown.join(", ")));
        }
    }
}

/// The last command of a failed run, if it ended with the status of the run and the script did not go
/// on.
fn failing(writer: &Writer<'_>, drafts: &[Draft]) -> Option<usize> {
    let run = writer.source.workflow.runs.first()?;
    let status = match run.exit_signal {
        Some(signal) => 128 + signal,
        None => run.exit_code?,
    };
    let is_last = |&(_, draft): &(usize, &Draft)| draft.command.unknown().is_none();
    let last = drafts
        .iter()
        .enumerate()
        .filter(is_last)
        .max_by_key(|(_, draft)| draft.end_ns);
    let (at, draft) = last?;
    (status != 0 && writer.status(&draft.command) == status).then_some(at)
}

/// The edges between merged steps.
fn between(merged: &[Vec<usize>], edges: &Edges) -> Edges {
    let mut of = HashMap::new();
    for (step, group) in merged.iter().enumerate() {
        of.extend(group.iter().map(|&draft| (draft, step)));
    }
    let mut found = Edges::new();
    for ((from, to), &is_data) in edges {
        if let (Some(&from), Some(&to)) = (of.get(from), of.get(to))
            && from != to
        {
            *found.entry((from, to)).or_default() |= is_data;
        }
    }
    found
}

/// An order in which each step comes after those it depends on, otherwise as numbered.
fn in_order(count: usize, edges: &Edges) -> Vec<usize> {
    let mut waits = vec![0usize; count];
    let mut after: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &(from, to) in edges.keys() {
        waits[to] += 1;
        after.entry(from).or_default().push(to);
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..count)
        .filter(|&at| waits[at] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for &next in after.get(&at).into_iter().flatten() {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(Reverse(next));
            }
        }
    }
    order
}

/// A name of letters, digits and `_`, a letter first.
fn identifier(rule: &str) -> String {
    let mut name: String = rule
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert(0, 's');
    }
    name
}
