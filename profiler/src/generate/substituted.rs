//! Process substitutions, `<(…)` and `>(…)`: commands that a shell gave to a program as files.
//!
//! The shell makes a pipe and forks the command with one end as its standard output or input. It passes
//! the other end to the program by the name `/dev/fd/N`, or as one of the program's own descriptors
//! (`> >(…)`). The pair is found by the pipe that program and command both have open.

use std::collections::{HashMap, HashSet};

use super::ast::Given;
use super::source::{Source, Substitutions};
use super::steps::pipes;
use super::unit::Unit;
use crate::argv::unquote;
use crate::model::ProcessId;

const ACCESS: i64 = 3;
const READ_ONLY: i64 = 0;
/// Prefix by which arguments name a descriptor.
const BY_NUMBER: &str = "/dev/fd/";

/// Finds all process substitutions of a run.
pub(super) fn find(source: &Source) -> Substitutions {
    let mut found = Substitutions::default();
    let holders = holders(source);
    for image in source.workflow.images.iter().filter(|image| image.is_exec) {
        let argv = image.command.as_deref().map(unquote).unwrap_or_default();
        let named: HashSet<i64> = argv.iter().flat_map(|word| numbers(word)).collect();
        let first = &source.workflow.images(image.process)[0];
        // There is no `> >(…)` if the subshell started nothing before it became the program.
        let has_inner = first.upid != image.upid && has_children(source, image.process, first.upid);
        if named.is_empty() && !has_inner {
            continue;
        }
        for (fd, pipe, is_read) in pipes_of(source, image.upid) {
            let is_named = named.contains(&fd);
            if !is_named && (fd > 2 || !has_inner) {
                continue;
            }
            let mut fitting: Vec<ProcessId> = Vec::new();
            for &holder in holders.get(&pipe).into_iter().flatten() {
                let Some(unit) = unit_of(source, holder, image.process, is_named) else {
                    continue;
                };
                let (reads, writes) = pipes(source, unit);
                let other = if is_read { writes } else { reads };
                if other.contains(&pipe) && !fitting.contains(&unit.process) {
                    fitting.push(unit.process);
                }
            }
            if let [one] = fitting[..]
                && !found.owner.contains_key(&one)
                && !found.is_above(source, one, image.process)
            {
                found.owner.insert(one, image.process);
                found.of.entry(image.upid).or_default().push(Given {
                    fd,
                    pipe: pipe.clone(),
                    is_read,
                    command: one,
                });
            }
        }
    }
    found
}

/// The pipes that a program had open: descriptor, pipe, true if open for reading.
fn pipes_of(source: &Source, upid: i64) -> Vec<(i64, String, bool)> {
    let rows = source.descriptors.get(&upid).into_iter().flatten();
    let standard = rows
        .filter(|row| row.target.starts_with("pipe:["))
        .map(|row| (row.fd, row.target.clone(), row.flags & ACCESS == READ_ONLY));
    let others = source.other_pipes.get(&upid).into_iter().flatten();
    let others = others.map(|&(fd, inode, is_read)| (fd, format!("pipe:[{inode}]"), is_read));
    standard.chain(others).collect()
}

/// Processes that have each pipe as standard input, output or error.
fn holders(source: &Source) -> HashMap<String, Vec<ProcessId>> {
    let mut holders: HashMap<String, Vec<ProcessId>> = HashMap::new();
    let mut add = |upid: &i64, pipe: String| {
        if let Some(&process) = source.process_of.get(upid) {
            holders.entry(pipe).or_default().push(process);
        }
    };
    for (upid, rows) in &source.descriptors {
        let pipes = rows
            .iter()
            .filter(|row| row.fd <= 2 && row.target.starts_with("pipe:["));
        pipes.for_each(|row| add(upid, row.target.clone()));
    }
    // Subshells that executed no program.
    for sides in [&source.pipe_reads, &source.pipe_writes] {
        for (upid, inodes) in sides {
            inodes
                .iter()
                .for_each(|inode| add(upid, format!("pipe:[{inode}]")));
        }
    }
    for list in holders.values_mut() {
        list.sort_unstable();
        list.dedup();
    }
    holders
}

fn has_children(source: &Source, process: ProcessId, upid: i64) -> bool {
    let children = &source.children[process.0 as usize];
    children
        .iter()
        .any(|&child| parent_image(source, child) == Some(upid))
}

/// The image that forked a process.
fn parent_image(source: &Source, process: ProcessId) -> Option<i64> {
    let first = &source.workflow.images(process)[0];
    source.rows.get(&first.upid)?.parent_upid
}

/// The command of which a process is a part, as the shell saw it: a child of the shell that forked the
/// program. The shell may have forked it in the process that became the program, or, if `beside`,
/// before it forked that process.
fn unit_of(source: &Source, holder: ProcessId, program: ProcessId, beside: bool) -> Option<Unit> {
    let shell = &source.workflow.images(program)[0];
    let around = parent_image(source, program).filter(|_| beside);
    let mut at = holder;
    loop {
        let parent = parent_image(source, at)?;
        if at == program {
            return None;
        }
        if parent == shell.upid || Some(parent) == around {
            return Some(Unit {
                process: at,
                from: source.workflow.process(at).images.start,
            });
        }
        at = source.workflow.process(at).parent?;
    }
}

/// The descriptors that an argument names.
fn numbers(word: &str) -> Vec<i64> {
    let parts = word.split(BY_NUMBER).skip(1);
    let digits = parts.map(|part| {
        &part[..part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len()]
    });
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

/// A word of bash in which the names of descriptors are replaced by the commands behind them. `None` if
/// the command of one is not known. `quote` quotes the text between them.
pub(super) fn with_commands(
    word: &str,
    given: &[Given<String>],
    quote: impl Fn(&str) -> String,
) -> Option<String> {
    if word.contains("/proc/self/fd/") {
        return None;
    }
    let mut parts = word.split(BY_NUMBER);
    let mut text = String::new();
    let first = parts.next().unwrap_or_default();
    let mut is_plain = true;
    if !first.is_empty() {
        text += &quote(first);
    }
    for part in parts {
        is_plain = false;
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let fd: i64 = part[..part.len() - rest.len()].parse().ok()?;
        let one = given.iter().find(|one| one.fd == fd)?;
        text += &written(one);
        if !rest.is_empty() {
            text += &quote(rest);
        }
    }
    Some(if is_plain { quote(word) } else { text })
}

/// `<(…)` or `>(…)`.
pub(super) fn written(given: &Given<String>) -> String {
    let sign = if given.is_read { '<' } else { '>' };
    format!("{sign}({})", given.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_in_words_become_commands() {
        let given = [
            Given {
                fd: 63,
                pipe: "pipe:[1]".into(),
                is_read: true,
                command: "sort a".to_owned(),
            },
            Given {
                fd: 6,
                pipe: "pipe:[2]".into(),
                is_read: false,
                command: "wc > n".to_owned(),
            },
        ];
        let of = |word: &str| with_commands(word, &given, |text| format!("'{text}'"));
        assert_eq!(of("/dev/fd/63").as_deref(), Some("<(sort a)"));
        assert_eq!(of("-f=/dev/fd/6,x").as_deref(), Some("'-f='>(wc > n)',x'"));
        assert_eq!(of("/dev/fd/3"), None);
        assert_eq!(of("/proc/self/fd/63"), None);
        assert_eq!(of("plain").as_deref(), Some("'plain'"));
        assert_eq!(of("").as_deref(), Some("''"));
        assert_eq!(numbers("a/dev/fd/12b/dev/fd/3"), [12, 3]);
    }
}
