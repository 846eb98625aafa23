//! Finds the steps of a run: the commands started by the script or make that drove the run. A pipeline
//! is one step, and so is a subshell; processes that a step starts belong to it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::ast::{Command, Given};
use super::drivers::{DRIVERS, MAKES, is_one_of};
use super::own::by_itself;
use super::source::Source;
use super::step::{Draft, Split};
use super::unit::{Unit, started_by};

mod shim;

/// The ways to divide a run into steps: the commands started by the innermost command that only starts
/// others, then by the command around that, and so on.
pub(super) fn splits(source: &Source) -> Vec<Split> {
    let mut split = Split::default();
    let Some(root) = source.workflow.root() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut units = vec![Unit {
        process: root,
        from: source.workflow.process(root).images.start,
    }];
    // While a command that only starts others is the only one, the steps are among those that it
    // starts.
    while let [unit] = units[..] {
        let found_inside = match shim::builder(source, unit) {
            Some((builder, before)) => Some((before, vec![builder])),
            None => inside(source, unit),
        };
        let Some((own, inner)) = found_inside else {
            break;
        };
        if inner.is_empty() {
            break;
        }
        split.add_drivers(source, &own);
        units = inner;
        found.push(Split {
            drafts: drafts(source, &units),
            ..split.clone()
        });
    }
    if found.is_empty() {
        split.drafts = drafts(source, &units);
        found.push(split);
    }
    found.reverse();
    found
}

/// The steps that these images of drivers started.
pub(super) fn started_by_all(source: &Source, upids: &[i64]) -> Split {
    let mut split = Split::default();
    let mut units = Vec::new();
    for (from, image) in source.workflow.images.iter().enumerate() {
        let process = image.process;
        if upids.contains(&image.upid)
            && let Some((own, inner)) = inside(source, Unit { process, from })
        {
            split.add_drivers(source, &own);
            units.extend(inner);
        }
    }
    split.drafts = drafts(source, &units);
    split
}

fn drafts(source: &Source, units: &[Unit]) -> Vec<Draft> {
    let groups = groups(source, units);
    let mut drafts: Vec<Draft> = groups.iter().map(|group| draft(source, group)).collect();
    drafts.sort_by_key(|draft| draft.start_ns);
    drafts
}

/// The images of a driver that only start commands, and the commands that they started; `None` if the
/// process is no driver.
fn inside(source: &Source, unit: Unit) -> Option<(Vec<usize>, Vec<Unit>)> {
    let places = unit.from..source.workflow.process(unit.process).images.end;
    let mut own = Vec::new();
    let mut units = Vec::new();
    for place in places {
        let image = &source.workflow.images[place];
        // make executes itself again after it has made a file that it includes.
        let is_again = own.last().is_some_and(|&before: &usize| {
            let before = &source.workflow.images[before];
            is_one_of(image, MAKES) && before.command == image.command
        });
        if !is_again && (!units.is_empty() || !is_one_of(image, DRIVERS) && !image.is_fork) {
            if own.is_empty() {
                return None;
            }
            // The shell executed its last command in its own process.
            units.push(Unit {
                process: unit.process,
                from: place,
            });
            break;
        }
        own.push(place);
        units.extend(started_by(source, image.upid, unit.process));
    }
    // A shell that was only given a command line to execute.
    let is_driver = own.iter().any(|&place| {
        let image = &source.workflow.images[place];
        is_one_of(image, DRIVERS)
    });
    is_driver.then_some((own, units))
}

fn span(source: &Source, unit: Unit) -> (i64, i64) {
    let start = source.workflow.images[unit.from].start_ns;
    let end = source.workflow.process(unit.process).end_ns;
    (start, end.unwrap_or(source.workflow.last_ns))
}

/// Units joined by pipes. Each group is in the order of its pipeline, the groups in the order of time.
fn groups(source: &Source, units: &[Unit]) -> Vec<Vec<Unit>> {
    let ends: Vec<_> = units.iter().map(|&unit| pipes(source, unit)).collect();
    let mut writers: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
    for (at, (_, writes)) in ends.iter().enumerate() {
        for pipe in writes {
            writers.entry(pipe).or_default().push(at);
        }
    }
    // For each stage, the stages before it.
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); units.len()];
    for (at, (reads, _)) in ends.iter().enumerate() {
        for writer in reads.iter().filter_map(|pipe| writers.get(pipe)).flatten() {
            if *writer != at {
                before[at].insert(*writer);
            }
        }
    }
    let mut group_of: Vec<usize> = (0..units.len()).collect();
    for at in 0..units.len() {
        for &writer in &before[at] {
            let (one, other) = (group_of[at], group_of[writer]);
            let (low, high) = (one.min(other), one.max(other));
            for group in &mut group_of {
                if *group == high {
                    *group = low;
                }
            }
        }
    }
    let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, &group) in group_of.iter().enumerate() {
        found.entry(group).or_default().push(at);
    }
    let mut groups: Vec<Vec<Unit>> = Vec::new();
    for members in found.into_values() {
        let mut ordered = Vec::new();
        let mut left = members.clone();
        while !left.is_empty() {
            // The first stage whose writers are all placed; in a ring of pipes there is none.
            let next = left
                .iter()
                .position(|at| before[*at].iter().all(|writer| ordered.contains(writer)));
            ordered.push(left.remove(next.unwrap_or(0)));
        }
        groups.push(ordered.into_iter().map(|at| units[at]).collect());
    }
    groups.sort_by_key(|group| group.iter().map(|&unit| span(source, unit)).min());
    groups
}

/// The command line that would make a shell run this unit.
fn command_of(source: &Source, unit: Unit) -> Command {
    let images =
        &source.workflow.images[unit.from..source.workflow.process(unit.process).images.end];
    let Some(first) = images.first() else {
        return Command::Nothing;
    };
    if first.is_exec {
        return program(source, first.upid);
    }
    if !first.is_fork {
        return Command::Unknown("a process was found running: its begin was not seen".into());
    }
    let inner = started_by(source, first.upid, unit.process);
    let next = images.get(1);
    if inner.is_empty() {
        let command = next.map_or(Command::Nothing, |next| program(source, next.upid));
        return by_itself(source, first.upid, command);
    }
    let mut parts = parts(source, &inner);
    if let Some(next) = next {
        parts.push(program(source, next.upid));
    }
    let command = match parts.len() {
        1 => parts.remove(0),
        _ => Command::Sequence(parts),
    };
    by_itself(source, first.upid, command)
}

/// A program with the commands that it was given as files.
fn program(source: &Source, upid: i64) -> Command {
    let Some(given) = source.substitutions.of.get(&upid) else {
        return Command::Program(upid);
    };
    let given = given.iter().map(|one| Given {
        fd: one.fd,
        pipe: one.pipe.clone(),
        is_read: one.is_read,
        command: command_of(
            source,
            Unit {
                process: one.command,
                from: source.workflow.process(one.command).images.start,
            },
        ),
    });
    Command::Given(upid, given.collect())
}

/// Commands one after the other; those that overlap run at the same time.
fn parts(source: &Source, units: &[Unit]) -> Vec<Command> {
    let mut parts: Vec<Command> = Vec::new();
    let mut at_once: Vec<Command> = Vec::new();
    let mut until = i64::MIN;
    for group in groups(source, units) {
        let start = group.iter().map(|&unit| span(source, unit).0).min();
        let end = group.iter().map(|&unit| span(source, unit).1).max();
        if start.is_some_and(|start| start >= until) {
            close(&mut parts, &mut at_once);
        }
        until = until.max(end.unwrap_or(until));
        at_once.push(joined(source, &group));
    }
    close(&mut parts, &mut at_once);
    parts
}

fn close(parts: &mut Vec<Command>, at_once: &mut Vec<Command>) {
    at_once.retain(|command| *command != Command::Nothing);
    match at_once.len() {
        0 => {}
        1 => parts.append(at_once),
        _ => parts.push(Command::AtOnce(std::mem::take(at_once))),
    }
}

/// The stages of a pipeline, or a single command.
fn joined(source: &Source, group: &[Unit]) -> Command {
    let mut stages: Vec<Command> = group.iter().map(|&unit| command_of(source, unit)).collect();
    match stages.len() {
        1 => stages.remove(0),
        _ => Command::Pipeline(stages),
    }
}

fn draft(source: &Source, group: &[Unit]) -> Draft {
    let mut members = HashSet::new();
    let (mut start_ns, mut end_ns) = (i64::MAX, i64::MIN);
    for &unit in group {
        let (start, end) = span(source, unit);
        start_ns = start_ns.min(start);
        end_ns = end_ns.max(end);
        add_members(source, unit, &mut members);
    }
    let command = joined(source, group);
    for process in command
        .programs()
        .iter()
        .filter_map(|upid| source.process_of.get(upid))
    {
        // The command of `>(…)` ends after the program.
        if source.substitutions.owner.contains_key(process) {
            end_ns = end_ns.max(source.workflow.process(*process).end_ns.unwrap_or(end_ns));
        }
    }
    let rule = command.programs().first().map_or_else(
        || Arc::clone(&source.workflow.last_image(group[0].process).rule),
        |&upid| rule_of(source, upid),
    );
    let (_, writes) = group
        .last()
        .map(|&unit| pipes(source, unit))
        .unwrap_or_default();
    Draft {
        command,
        members,
        rule,
        start_ns,
        end_ns,
        answers_script: !writes.is_empty(),
    }
}

/// The rule of the process that an image belongs to: that of its last image.
fn rule_of(source: &Source, upid: i64) -> Arc<str> {
    match source.process_of.get(&upid) {
        Some(&process) => Arc::clone(&source.workflow.last_image(process).rule),
        None => "step".into(),
    }
}

fn add_members(source: &Source, unit: Unit, members: &mut HashSet<i64>) {
    let mut stack = vec![unit];
    while let Some(unit) = stack.pop() {
        let end = source.workflow.process(unit.process).images.end;
        for image in &source.workflow.images[unit.from..end] {
            members.insert(image.upid);
            stack.extend(started_by(source, image.upid, unit.process));
            let given = source.substitutions.of.get(&image.upid);
            stack.extend(given.into_iter().flatten().map(|one| Unit {
                process: one.command,
                from: source.workflow.process(one.command).images.start,
            }));
        }
    }
}

/// The pipes that a command has as its standard input, and those that it has as standard output or
/// error.
pub(super) fn pipes(source: &Source, unit: Unit) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
    let command = command_of(source, unit);
    let outer = source.descriptors.get(&source.first_upid);
    let is_outer = |target: &String| {
        outer.is_some_and(|rows| rows.iter().any(|row| row.fd <= 2 && row.target == *target))
    };
    for upid in command.own_programs() {
        for row in source.descriptors.get(&upid).into_iter().flatten() {
            if !row.target.starts_with("pipe:[") || is_outer(&row.target) {
                continue;
            }
            match (row.fd, row.flags & 3) {
                (0, 0) => reads.insert(row.target.clone()),
                (1 | 2, 1) => writes.insert(row.target.clone()),
                _ => false,
            };
        }
    }
    // A subshell that executed no program has no recorded descriptors.
    let own = &source.workflow.images[unit.from];
    if own.is_fork {
        let name = |inode: &i64| format!("pipe:[{inode}]");
        let is_new = |target: &String| !is_outer(target);
        let of = |sides: &std::collections::HashMap<i64, HashSet<i64>>| -> Vec<String> {
            let inodes = sides.get(&own.upid).into_iter().flatten();
            inodes.map(name).filter(is_new).collect()
        };
        if command.programs().is_empty() {
            reads.extend(of(&source.pipe_reads));
            writes.extend(of(&source.pipe_writes));
        }
    }
    // Pipes between parts of the unit.
    let inner: Vec<String> = reads.intersection(&writes).cloned().collect();
    for pipe in inner {
        reads.remove(&pipe);
        writes.remove(&pipe);
    }
    (reads, writes)
}
