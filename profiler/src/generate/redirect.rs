//! The descriptors of a program as redirections of bash.

use super::ast::{Command, Ends, Given};
use super::source::Source;
use super::substituted::written;
use super::words::{quote, quote_rooted, relative};
use super::writer::Writer;
use crate::paths::below;

const ACCESS: i64 = 3;
const READ_ONLY: i64 = 0;
const WRITE_ONLY: i64 = 1;
const APPEND: i64 = 0o2000;

impl Writer<'_> {
    /// The redirections of a program that began in `cwd`, with a blank before each.
    pub(super) fn redirections(
        &self,
        upid: i64,
        name: &str,
        cwd: &str,
        ends: &Ends,
        given: &[Given<String>],
    ) -> Result<String, String> {
        let source = self.source;
        let none = Vec::new();
        let rows = source.descriptors.get(&upid).unwrap_or(&none);
        let outer = source.descriptors.get(&source.first_upid).unwrap_or(&none);
        let outer_of = |fd: i64| {
            outer
                .iter()
                .find(|row| row.fd == fd)
                .map(|row| row.target.as_str())
        };
        let has = |fd: i64| rows.iter().any(|row| row.fd == fd);
        let mut text = String::new();
        // Standard input or output of a stage that is not the pipe of its pipeline.
        if upid != source.first_upid && ends.input.is_some() && !has(0) {
            match outer_of(0) {
                Some("/dev/null") => text += " < /dev/null",
                _ => {
                    return Err(format!(
                        "{name} read the standard input of the run inside a pipeline"
                    ));
                }
            }
        }
        if upid != source.first_upid && ends.output.is_some() && !has(1) {
            match outer_of(1) {
                Some(target) if outer_of(2) == Some(target) => text += " >&2",
                Some("/dev/null") => text += " > /dev/null",
                _ => return Err(format!("{name} wrote past its pipeline")),
            }
        }
        if upid == source.first_upid {
            return Ok(text);
        }
        let mut late = String::new();
        for row in rows {
            let (fd, target) = (row.fd, row.target.as_str());
            let access = row.flags & ACCESS;
            let number = match (fd, access) {
                (0, READ_ONLY) | (1, WRITE_ONLY) => String::new(),
                _ => fd.to_string(),
            };
            if fd == 0 && ends.input.as_deref() == Some(target)
                || fd == 1 && ends.output.as_deref() == Some(target)
            {
                continue;
            }
            if fd == 2 && ends.output.as_deref() == Some(target) {
                // Written before standard output is redirected.
                if !has(1) {
                    return Err(format!(
                        "{name} sent its errors, and not its output, into a pipe"
                    ));
                }
                text.insert_str(0, " 2>&1");
                continue;
            }
            if let Some(one) = given.iter().find(|one| one.fd == fd && fd <= 2) {
                let sign = if one.is_read { '<' } else { '>' };
                text += &format!(" {number}{sign} {}", written(one));
                continue;
            }
            let same = rows.iter().find(|other| {
                other.fd < fd && other.target == row.target && other.flags & ACCESS == access
            });
            if let (Some(same), true) = (same, access != READ_ONLY) {
                late += &format!(" {fd}>&{}", same.fd);
                continue;
            }
            let of_first = outer.iter().find(|first| {
                matches!(first.fd, 1 | 2) && first.target == target && first.fd != fd
            });
            if let (Some(of_first), true) = (of_first, access != READ_ONLY && target != "/dev/null")
                && !has(of_first.fd)
            {
                late += &format!(" {number}>&{}", of_first.fd);
                continue;
            }
            if target.starts_with("pipe:[") {
                let here = source.here_documents.get(&(upid, fd));
                let here = here.filter(|_| source.may_read_pipe(upid, target));
                if let Some(text_of_it) = here.and_then(|text| text.strip_suffix('\n')) {
                    // bash adds a newline at the end.
                    let (word, _) = quote_rooted(text_of_it, &source.root);
                    text += &format!(" {number}<<< {word}");
                    continue;
                }
                let is_unread =
                    fd == 0 && access == READ_ONLY && !source.may_read_pipe(upid, target);
                match (fd, access) {
                    _ if is_unread => text += " < /dev/null",
                    // make gives all but one of its jobs a closed pipe as standard input.
                    (0, _) if !source.is_written(target) => text += " < /dev/null",
                    (0, _) => {
                        return Err(format!(
                            "{name} read what the script itself wrote (a builtin such as echo, or a here-document for several commands), which is not recorded"
                        ));
                    }
                    // The script read the output, as in `$(…)`.
                    (1 | 2, _) => text += &format!(" {number}> /dev/null"),
                    // A pipe of make's jobs, or one that a shell left open.
                    _ => {}
                }
                continue;
            }
            if !target.starts_with('/') {
                if fd <= 2 && !target.starts_with("anon_inode:") {
                    return Err(format!("descriptor {fd} of {name} was a socket ({target})"));
                }
                continue;
            }
            if target.starts_with("/dev/pts/") || target.starts_with("/dev/tty") {
                continue;
            }
            if target.ends_with(" (deleted)") {
                if fd > 2 {
                    continue;
                }
                return Err(format!(
                    "descriptor {fd} of {name} was a file without a name (a long here-document)"
                ));
            }
            let path = match below(target, &source.root) {
                Some(_) => quote(&relative(target, cwd, &source.root)),
                None => quote(target),
            };
            text += &match access {
                READ_ONLY if row.position == 0 => format!(" {number}< {path}"),
                // As in `while read …; do command; done < list`, where the command does not read the
                // list.
                READ_ONLY if !source.may_read(upid, target) => format!(" {number}< /dev/null"),
                READ_ONLY => {
                    return Err(format!(
                        "{name} began in the middle of its input {target}, of which the script had read a part"
                    ));
                }
                WRITE_ONLY if row.flags & APPEND != 0 || row.position > 0 => {
                    format!(" {number}>> {path}")
                }
                WRITE_ONLY => format!(" {number}> {path}"),
                _ => format!(" {number}<> {path}"),
            };
        }
        Ok(text + &late)
    }
}

/// The pipe from each stage of a pipeline to the next.
pub(super) fn pipes_between(source: &Source, stages: &[Command]) -> Result<Vec<String>, String> {
    let of = |command: &Command, fds: &[i64], access: i64| {
        let mut found = std::collections::BTreeSet::new();
        for upid in command.own_programs() {
            for row in source.descriptors.get(&upid).into_iter().flatten() {
                if fds.contains(&row.fd)
                    && row.flags & ACCESS == access
                    && row.target.starts_with("pipe:[")
                {
                    found.insert(row.target.clone());
                }
            }
        }
        found
    };
    let mut pipes = Vec::new();
    for pair in stages.windows(2) {
        let written = of(&pair[0], &[1, 2], WRITE_ONLY);
        let read = of(&pair[1], &[0], READ_ONLY);
        let mut both = written.intersection(&read);
        match (both.next(), both.next()) {
            (Some(pipe), None) => pipes.push(pipe.clone()),
            _ => {
                return Err(
                    "its commands are joined in another way than by a plain pipeline".into(),
                );
            }
        }
    }
    Ok(pipes)
}
