//! The work of the script itself, without a command: `: > f`, `echo x > f`, text that subshells wrote
//! into pipes, and files that make removes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use flowtrace_schema::ActionRow;

use super::ast::Command;
use super::effects::{Effects, How, Thing, changes};
use super::source::Source;
use super::step::{Draft, Split};
use super::words::{quote, relative};

/// Size of the largest file whose text is written into a specification, bytes.
const LARGEST: u64 = 64 << 10;
/// Inverse of the largest part by which the wall clock, which dates the files, may run faster than the
/// clock of the trace. The kernel slews the wall clock by at most 500 parts per million.
const SLEWING: i64 = 2_000;

/// Adds a step for each effect of the driver itself that matters.
pub(super) fn add(
    source: &Source,
    split: &mut Split,
    effects: &mut Effects,
    own: Vec<ActionRow>,
    notes: &mut Vec<String>,
) {
    let mut by_file: BTreeMap<i64, Vec<ActionRow>> = BTreeMap::new();
    let mut outside: BTreeMap<i64, Vec<ActionRow>> = BTreeMap::new();
    for action in own {
        let names: Vec<_> = source
            .names_during(action.file_id, action.first_ns, action.last_ns)
            .collect();
        if names.iter().any(|name| source.is_traced(&name.path)) {
            by_file.entry(action.file_id).or_default().push(action);
        } else if changes(&action) && !source.is_of_machine(action.file_id) {
            outside.entry(action.file_id).or_default().push(action);
        }
    }
    for (_, actions) in outside {
        let step = split.drafts.len();
        for action in &actions {
            effects.add(source, step, action);
        }
        // A file that only the manager used, and that is gone, need not be made again.
        let is_managers = split.is_manager && !effects.is_of_several(step);
        let Some(path) = effects.written_outside(step).filter(|_| !is_managers) else {
            effects.forget(step);
            continue;
        };
        let command = Command::Unknown(format!("the script itself wrote {path}"));
        split
            .drafts
            .push(draft(command, &actions.iter().collect::<Vec<_>>()));
    }
    for (file, actions) in by_file {
        if split.is_manager && !is_used(effects, file) {
            continue;
        }
        let is_written = actions
            .iter()
            .any(|action| &*action.class == "write" && action.bytes > 0);
        let parts: Vec<(Command, Vec<&ActionRow>)> = if is_written {
            vec![(
                contents(source, effects, file, &actions, notes),
                actions.iter().collect(),
            )]
        } else {
            let alone = actions
                .iter()
                .filter_map(|action| Some((alone(source, action)?, vec![action])));
            alone.collect()
        };
        for (command, actions) in parts {
            let step = split.drafts.len();
            split.drafts.push(draft(command, &actions));
            for action in actions {
                effects.add(source, step, action);
            }
        }
    }
}

/// A step of the script itself.
fn draft(command: Command, actions: &[&ActionRow]) -> Draft {
    let begins = actions.iter().map(|action| action.first_ns);
    let start_ns = begins.min().unwrap_or(0);
    let ends = actions.iter().map(|action| action.last_ns);
    Draft {
        command,
        members: HashSet::new(),
        rule: "script".into(),
        start_ns,
        end_ns: ends.max().unwrap_or(start_ns),
        answers_script: false,
    }
}

/// Makes the names that `mktemp` made in the traced run again. A real `mktemp` would give another name
/// each time, but the steps after it have the old name in their arguments. Names outside the traced
/// directories are refused elsewhere.
pub(super) fn keep_random_names(
    source: &Source,
    split: &mut Split,
    effects: &Effects,
    notes: &mut Vec<String>,
) {
    for (step, draft) in split.drafts.iter_mut().enumerate() {
        if !matches!(draft.command, Command::Program(_)) || &*draft.rule != "mktemp" {
            continue;
        }
        let mut made = effects.touches.iter().filter_map(|(thing, touches)| {
            let Thing::Name(path) = thing else {
                return None;
            };
            let is_made = touches
                .iter()
                .any(|touch| touch.step == step && touch.how == How::Write);
            is_made.then_some(path)
        });
        let (Some(path), None) = (made.next(), made.next()) else {
            continue;
        };
        let shown = relative(path, &source.root, &source.root);
        let name = quote(&shown);
        draft.command = Command::Own(match source.is_directory_at(path, draft.end_ns) {
            true => format!("mkdir -p -m 700 -- {name}"),
            false => format!("(umask 077; : > {name})"),
        });
        notes.push(format!(
            "{shown} had its name from mktemp: it has that of the traced run each time"
        ));
    }
}

/// Returns true if a step read a file, or went through it as a directory.
fn is_used(effects: &Effects, file: i64) -> bool {
    let touches = effects.touches.get(&Thing::Content(file));
    touches
        .into_iter()
        .flatten()
        .any(|touch| touch.how == How::Read)
}

/// One action of the script that changes no contents, as a command.
fn alone(source: &Source, action: &ActionRow) -> Option<Command> {
    let names = || source.names_during(action.file_id, action.first_ns, action.last_ns);
    let within = |instant: i64| action.first_ns <= instant && instant <= action.last_ns;
    let path = |path: &str| quote(&relative(path, &source.root, &source.root));
    let any = names().next().map(|name| path(&name.path))?;
    let made = names()
        .find(|name| within(name.from_ns))
        .map(|name| path(&name.path));
    let gone = names()
        .find(|name| name.to_ns.is_some_and(within))
        .map(|name| path(&name.path));
    let unknown = |what: &str| Command::Unknown(format!("the script itself {what} {any}"));
    Some(match &*action.op {
        "create" => Command::Own(format!(": > {any}")),
        "open" if action.flags.is_some_and(|flags| flags & 0o1000 != 0) => {
            Command::Own(format!(": > {any}"))
        }
        "truncate" if action.length == Some(0) => Command::Own(format!(": > {any}")),
        // Opened for writing, but not written.
        "open" => return None,
        "unlink" => Command::Own(format!("rm -f -- {}", gone.unwrap_or(any))),
        "rmdir" => Command::Own(format!("rmdir -- {}", gone.unwrap_or(any))),
        "mkdir" => Command::Own(format!("mkdir -p -- {}", made.unwrap_or(any))),
        "rename" => match (gone, made) {
            (Some(from), Some(to)) => Command::Own(format!("mv -T -- {from} {to}")),
            _ => unknown("renamed"),
        },
        "chmod" => match action.flags.or(action.length) {
            Some(mode) => Command::Own(format!("chmod {:o} -- {any}", mode & 0o7777)),
            None => unknown("changed the mode of"),
        },
        "utimens" => Command::Own(format!("touch -- {any}")),
        op => unknown(&format!("did {op} on")),
    })
}

/// A file that the script wrote itself. The trace does not have the text; the disk still has it if the
/// file has not changed since.
fn contents(
    source: &Source,
    effects: &Effects,
    file: i64,
    actions: &[ActionRow],
    notes: &mut Vec<String>,
) -> Command {
    let names = source.names.get(&file);
    let name = names
        .into_iter()
        .flatten()
        .rfind(|name| source.is_traced(&name.path));
    let Some(name) = name else {
        return Command::Unknown("the script itself wrote a file without a name".into());
    };
    let unknown = |why: &str| {
        Command::Unknown(format!(
            "the script itself wrote {} (a builtin such as echo), which is not recorded, and {why}",
            name.path
        ))
    };
    if name.to_ns.is_some() {
        return unknown("the file is gone");
    }
    let last = actions
        .iter()
        .filter(|action| changes(action))
        .map(|action| action.last_ns)
        .max();
    let Some(last) = last else {
        return unknown("when is not known");
    };
    let touches = effects.touches.get(&Thing::Content(file));
    // A change of the mode leaves the contents alone.
    let is_rewritten = |step: usize| effects.writes.contains(&(step, file));
    let touches = || touches.into_iter().flatten();
    if touches().any(|touch| is_rewritten(touch.step)) {
        return unknown("a command changed the file");
    }
    if touches().any(|touch| touch.span.first_ns < last) {
        return unknown("a command used the file before the script was done with it");
    }
    if names.is_some_and(|names| {
        names
            .iter()
            .filter(|name| source.is_traced(&name.path))
            .count()
            > 1
    }) {
        return unknown("the file got another name");
    }
    let started = source.workflow.runs[0].started_unix_ns;
    let slewed = last / SLEWING;
    let changed_until = started.map(|started| started.saturating_add(last + slewed));
    match unchanged(&name.path, changed_until) {
        Ok((text, mode)) => {
            let shown = relative(&name.path, &source.root, &source.root);
            notes.push(format!(
                "{shown} was written by the script itself: it is made with its text from the traced run, whatever that came from"
            ));
            let umask = umask_by_mode(source, actions, mode);
            let umask = umask.map(|mask| format!("umask {mask:04o} && "));
            Command::Own(format!(
                "{}printf %s {} > {}",
                umask.unwrap_or_default(),
                quote(&text),
                quote(&shown)
            ))
        }
        Err(why) => unknown(&why),
    }
}

/// The umask by which the script gave a file that it made its mode, if the umask of the first program
/// would give another mode. A script may change its umask, which no call shows.
fn umask_by_mode(source: &Source, actions: &[ActionRow], mode: u32) -> Option<u32> {
    /// Mode with which shells make files, before the umask.
    const PLAIN: u32 = 0o666;
    let usual = PLAIN & !u32::try_from(source.first_umask()?).ok()?;
    let is_made = actions.iter().any(|action| &*action.op == "create");
    (is_made && mode & !PLAIN == 0 && mode != usual).then_some(PLAIN & !mode)
}

/// The text and mode of a file, if it has not changed since `until_unix_ns`.
fn unchanged(path: &str, until_unix_ns: Option<i64>) -> Result<(String, u32), String> {
    let mut file =
        fs::File::open(path).map_err(|error| format!("it cannot be read now: {error}"))?;
    let data = file.metadata().map_err(|error| error.to_string())?;
    let changed = data
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(data.mtime_nsec());
    if until_unix_ns.is_none_or(|until| changed > until) {
        return Err("the file has changed since".into());
    }
    if !data.is_file() || data.len() > LARGEST {
        return Err("the file is large".into());
    }
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|_| "it is not text".to_owned())?;
    Ok((text, data.mode() & 0o7777))
}

/// Returns `command`, unless the subshell that started it also did work without a program.
pub(super) fn by_itself(source: &Source, upid: i64, command: Command) -> Command {
    let row = source.rows.get(&upid);
    // Bytes that the subshell wrote into pipes for these programs to read.
    let here: i64 = command
        .programs()
        .iter()
        .filter_map(|program| source.descriptors.get(program))
        .flatten()
        .filter(|row| source.may_write_pipe(upid, &row.target))
        .filter_map(|row| source.here_documents.get(&(row.upid, row.fd)))
        .map(|content| content.len() as i64)
        .sum();
    match row.and_then(|row| row.write_bytes) {
        Some(bytes) if bytes == 0 || bytes == here || is_answer(source, upid) => {}
        Some(bytes) => {
            return Command::Unknown(format!(
                "the shell itself wrote {bytes} bytes there (a builtin such as echo or printf), which are not recorded"
            ));
        }
        None => return Command::Unknown("what the shell itself wrote there is not known".into()),
    }
    let mut redirected: HashSet<&str> = HashSet::new();
    for program in command.programs() {
        let rows = source.descriptors.get(&program).into_iter().flatten();
        redirected.extend(rows.map(|row| row.target.as_str()));
    }
    for &at in source.changes.get(&upid).into_iter().flatten() {
        let action = &source.actions[at];
        let names = || source.names_during(action.file_id, action.first_ns, action.last_ns);
        // The same file may have other names.
        if names().any(|name| redirected.contains(name.path.as_str())) {
            continue;
        }
        if let Some(name) = names().next() {
            return Command::Unknown(format!(
                "the shell itself made or emptied {} there (a redirection without a program)",
                name.path
            ));
        }
    }
    command
}

/// Returns true if an image wrote only into pipes that the shell that started it reads, as in
/// `$(echo x)`: the result is then in arguments and here-documents. The image inherits other pipes from
/// that shell, which itself writes into them.
fn is_answer(source: &Source, upid: i64) -> bool {
    let parent = source.rows.get(&upid).and_then(|row| row.parent_upid);
    let of_parent = |sides: &HashMap<i64, HashSet<i64>>, pipe: &i64| {
        let pipes = parent.and_then(|parent| sides.get(&parent));
        pipes.is_some_and(|pipes| pipes.contains(pipe))
    };
    let mut written = source.pipe_writes.get(&upid).into_iter().flatten();
    let mut is_read = false;
    written.all(|pipe| {
        let is_for_it = of_parent(&source.pipe_reads, pipe);
        is_read |= is_for_it;
        is_for_it || of_parent(&source.pipe_writes, pipe)
    }) && is_read
}
