//! The files that each step read and wrote, also of steps that cannot be written down.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use flowtrace_schema::{Result, Trace};

use super::effects::{How, Thing, Touch, effects};
use super::free::Free;
use super::source::{Source, Unfit};
use super::steps::{splits, started_by_all};
use super::words::Place;
use crate::load::load;

/// The files and directories that a step used.
#[derive(Clone, Debug)]
pub struct StepFiles {
    /// Name of the step's rule.
    pub rule: Arc<str>,
    /// Command of the step, if it is one program.
    pub command: Arc<str>,
    /// Image of the step's first program.
    pub upid: Option<i64>,
    /// Start of the step, ns.
    pub start_ns: i64,
    /// Files that the step read or had open for reading, and did not write: those of the traced directories,
    /// and others that are not part of the system.
    pub reads: BTreeMap<Place, Reading>,
    /// Names of files that the step wrote or made; true for those that existed at the end of the run.
    pub writes: BTreeMap<Place, bool>,
    /// Directories that the step made. Empty for a command in `$(…)`, for which its script waits.
    pub directories: BTreeSet<Place>,
    /// Directories that the step checked (`stat`). It may make them where they are missing.
    pub checked: BTreeSet<Place>,
    /// Symbolic links that the step followed or read.
    pub links: BTreeSet<Place>,
    /// Names that the step looked for in vain, with the time of the first attempt, ns. Empty for a step
    /// that did not fail.
    pub missed: BTreeMap<Place, i64>,
}

/// The reading of one file by a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Time of the first read, ns.
    pub first_ns: i64,
    /// Bytes read by calls; 0 if the file was mapped.
    pub bytes: i64,
    /// True if no rule need declare the file: it belongs to an installed program, to the user's settings, or
    /// to the rules themselves.
    pub is_free: bool,
}

/// The files of every step, in the order of steps, and the directory in which the run was started. The
/// steps are the commands that the images `starters` started; with `None` those of the innermost
/// command that only starts others. `base` is the directory in which the build reads its rules.
///
/// # Errors
/// The outer error means that the file cannot be read; the inner one, that the trace lacks what is
/// needed.
pub fn files_of_steps(
    trace: &Trace,
    starters: Option<&[i64]>,
    base: &str,
) -> Result<std::result::Result<(String, Vec<StepFiles>), Unfit>> {
    let source = match Source::read(trace, load(trace)?)? {
        Ok(source) => source,
        Err(unfit) => return Ok(Err(unfit)),
    };
    let split = match starters {
        Some(upids) => Some(started_by_all(&source, upids)),
        None => splits(&source).into_iter().next(),
    };
    let Some(split) = split else {
        return Ok(Ok((source.root.clone(), Vec::new())));
    };
    let effects = effects(&source, &split);
    let mut step_of: HashMap<i64, usize> = HashMap::new();
    for (step, draft) in split.drafts.iter().enumerate() {
        step_of.extend(draft.members.iter().map(|&upid| (upid, step)));
    }
    let mut bytes: HashMap<(usize, i64), i64> = HashMap::new();
    for action in source
        .actions
        .iter()
        .filter(|action| &*action.class == "read")
    {
        if let Some(&step) = step_of.get(&action.upid) {
            *bytes.entry((step, action.file_id)).or_default() += action.bytes;
        }
    }
    let mut found: Vec<StepFiles> = split
        .drafts
        .iter()
        .map(|draft| {
            let upid = draft.command.programs().first().copied();
            let row = upid.and_then(|upid| source.rows.get(&upid));
            StepFiles {
                rule: Arc::clone(&draft.rule),
                command: row.and_then(|row| row.command.clone()).unwrap_or_default(),
                upid,
                start_ns: draft.start_ns,
                reads: BTreeMap::new(),
                writes: BTreeMap::new(),
                directories: BTreeSet::new(),
                checked: BTreeSet::new(),
                links: BTreeSet::new(),
                missed: BTreeMap::new(),
            }
        })
        .collect();
    for (step, path) in &effects.made_directories {
        if !split.drafts[*step].answers_script {
            let place = Place::of(path, &source.root);
            found[*step].directories.insert(place);
        }
    }
    for action in source
        .actions
        .iter()
        .filter(|action| matches!(&*action.op, "getattr" | "readlink"))
    {
        let Some(&step) = step_of.get(&action.upid) else {
            continue;
        };
        for name in source.names_during(action.file_id, action.first_ns, action.last_ns) {
            let place = Place::of(&name.path, &source.root);
            if &*action.op == "readlink" {
                found[step].links.insert(place);
            } else if source.is_directory_at(&name.path, action.first_ns) {
                found[step].checked.insert(place);
            }
        }
    }
    let has_failed = |upid: &i64| {
        let process = source.process_of.get(upid);
        process.is_some_and(|&id| source.workflow.process(id).has_failed())
    };
    let drafts = split.drafts.iter();
    let failed: Vec<bool> = drafts
        .map(|draft| draft.members.iter().any(has_failed))
        .collect();
    for (thing, touches) in &effects.touches {
        let Thing::Name(path) = thing else {
            continue;
        };
        for touch in touches {
            let first_ns = touch.span.first_ns;
            let is_missed = failed[touch.step] && touch.how == How::Read;
            let is_there =
                source.file_at(path, first_ns).is_some() || source.is_directory_at(path, first_ns);
            if is_missed && !is_there {
                let place = Place::of(path, &source.root);
                found[touch.step].missed.insert(place, first_ns);
            }
        }
    }
    // The file that a step used the contents of, be it in the traced directories or elsewhere.
    let used = |thing: &Thing, touch: &Touch| {
        let file = match thing {
            Thing::Content(file) => Some(*file),
            Thing::Outside(path) => {
                source.first_file(path, touch.span.first_ns, touch.span.last_ns)
            }
            _ => None,
        };
        file.filter(|&file| source.is_regular(file))
    };
    let mut own: HashSet<(usize, i64)> = HashSet::new();
    for (thing, touches) in &effects.touches {
        for touch in touches.iter().filter(|touch| touch.how == How::Write) {
            let step = &mut found[touch.step];
            let end = split.drafts[touch.step].end_ns;
            if let Some(file) = used(thing, touch) {
                let key = (touch.step, file);
                if effects.writes.contains(&key) {
                    own.insert(key);
                    for name in source.names_during(file, touch.span.first_ns, end) {
                        let place = Place::of(&name.path, &source.root);
                        step.writes.insert(place, name.to_ns.is_none());
                    }
                }
            } else if let Thing::Name(path) = thing
                && let Some(file) = source.file_at(path, end)
            {
                own.insert((touch.step, file));
                let lasts = source.file_at(path, i64::MAX).is_some();
                step.writes.insert(Place::of(path, &source.root), lasts);
                if !effects.writes.contains(&(touch.step, file)) {
                    // The file was renamed or linked: its contents come from the writer of the old name.
                    let start = split.drafts[touch.step].start_ns;
                    for name in source.names_during(file, start, start) {
                        let place = Place::of(&name.path, &source.root);
                        let reading = Reading {
                            first_ns: touch.span.first_ns,
                            ..Reading::default()
                        };
                        step.reads.entry(place).or_insert(reading);
                    }
                }
            }
        }
    }
    let free = Free::of(&source, &split, base);
    for (thing, touches) in &effects.touches {
        for touch in touches {
            let Some(file) = used(thing, touch) else {
                continue;
            };
            let key = (touch.step, file);
            if own.contains(&key) || !effects.reads.contains(&key) {
                continue;
            }
            let is_of_rules = free.is_of_rules(&split.drafts[touch.step], file);
            for name in source.names_during(file, touch.span.first_ns, touch.span.last_ns) {
                let reading = Reading {
                    first_ns: touch.span.first_ns,
                    bytes: bytes.get(&key).copied().unwrap_or(0),
                    is_free: is_of_rules || free.is_elsewhere(&name.path),
                };
                let place = Place::of(&name.path, &source.root);
                found[touch.step].reads.insert(place, reading);
            }
        }
    }
    Ok(Ok((source.root.clone(), found)))
}
