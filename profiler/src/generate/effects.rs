//! The effects of each step on names, on the contents of files, and on the lists of names in
//! directories.
//!
//! Two steps that touch the same thing keep their order if one of them changes it. Two steps that add
//! names to the same directory need no order; one that lists the directory does.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use flowtrace_schema::open_flags::{O_ACCMODE, O_TRUNC};
use flowtrace_schema::{ActionRow, NameRow};

use super::drivers::managers;
use super::source::Source;
use super::step::{Draft, Split};
pub(super) use super::touch::{How, Span, Thing, Touch};
use crate::model::Image;

/// The effects of all steps.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) touches: BTreeMap<Thing, Vec<Touch>>,
    /// Files outside the traced directories that a step wrote: path, and true if the file is gone.
    pub(super) outside: BTreeMap<usize, BTreeMap<String, bool>>,
    /// Files outside the traced directories that a step renamed or removed, likewise.
    pub(super) moved_outside: BTreeMap<usize, BTreeMap<String, bool>>,
    /// Files outside the traced directories that a step read.
    pub(super) read_outside: BTreeMap<usize, BTreeSet<String>>,
    /// Files that a step opened to read, or read.
    pub(super) reads: HashSet<(usize, i64)>,
    /// Files that got new contents from a step.
    pub(super) writes: HashSet<(usize, i64)>,
    /// Directories that a step made. Making one that exists changes nothing, so this needs no order.
    pub(super) made_directories: HashSet<(usize, String)>,
    /// Steps that set the times of a file.
    pub(super) timed: HashSet<(usize, i64)>,
    /// Images of workflow managers. Files of theirs in hidden directories outside (`~/.parallel`) are
    /// their own state.
    managers: HashSet<i64>,
    /// Actions of the driver itself that no redirection explains, in the order of time.
    pub(super) own: Vec<ActionRow>,
}

/// Returns true if an action changes the contents of a file.
pub(super) fn changes(action: &ActionRow) -> bool {
    !action.failed
        && match &*action.class {
            "write" => true,
            "open" => {
                &*action.op == "create"
                    || action
                        .flags
                        .is_some_and(|f| f & O_ACCMODE != 0 || f & O_TRUNC != 0)
            }
            "attribute" => matches!(
                &*action.op,
                "chmod" | "chown" | "utimens" | "setxattr" | "removexattr" | "setattr"
            ),
            _ => false,
        }
}

/// Returns true if an action reads a file, or opens one in a way that may read it.
pub(super) fn may_read(action: &ActionRow) -> bool {
    let is_open = &*action.class == "open" && &*action.op != "create";
    let may = action.flags.is_none_or(|flags| flags & O_ACCMODE != 1);
    !action.failed && (&*action.class == "read" || is_open && may)
}

/// Assigns every action to the step that made it.
pub(super) fn effects(source: &Source, split: &Split) -> Effects {
    let mut effects = Effects {
        managers: managers(source),
        ..Effects::default()
    };
    let mut step_of: HashMap<i64, usize> = HashMap::new();
    for (step, draft) in split.drafts.iter().enumerate() {
        step_of.extend(draft.members.iter().map(|&upid| (upid, step)));
    }
    let claims = claims(source, split);
    let of_driver = |upid: i64| split.drivers.contains(&upid);
    for action in &source.actions {
        let of_file = claims.get(&action.file_id).into_iter().flatten();
        let claimed = of_file
            .filter(|_| of_driver(action.upid))
            .find(|claim| claim.from_ns <= action.first_ns && action.first_ns <= claim.to_ns);
        let step = match (step_of.get(&action.upid), claimed) {
            (Some(&step), _) => step,
            (None, Some(claim)) if matches!(&*action.class, "open" | "attribute") => claim.step,
            _ if of_driver(action.upid) => {
                if &*action.class == "namespace" && !action.failed || changes(action) {
                    effects.own.push(action.clone());
                }
                continue;
            }
            _ => continue,
        };
        effects.add(source, step, action);
    }
    for (step, draft) in split.drafts.iter().enumerate() {
        for upid in draft.command.programs() {
            effects.add_redirections(source, step, upid);
        }
    }
    effects.add_unseen_outside(source, split);
    for (&channel, holders) in &source.fifos {
        for upid in holders {
            if let Some(&step) = step_of.get(upid) {
                let at = split.drafts[step].start_ns;
                effects.touch(Thing::Fifo(channel), step, How::Meet, at, at);
            }
        }
    }
    effects
}

/// An open by the driver that turned out to be a redirection of a step.
struct Claim {
    step: usize,
    from_ns: i64,
    to_ns: i64,
}

/// Finds the driver's opens that are redirections of steps. Some shells open redirections before they
/// fork (dash); others fork first, and the step itself opens them (bash).
fn claims(source: &Source, split: &Split) -> HashMap<i64, Vec<Claim>> {
    let mut opens: HashMap<&str, Vec<&ActionRow>> = HashMap::new();
    for action in &source.actions {
        if &*action.class == "open" && !action.failed && split.drivers.contains(&action.upid) {
            for name in source.names_during(action.file_id, action.first_ns, action.last_ns) {
                opens.entry(name.path.as_str()).or_default().push(action);
            }
        }
    }
    let mut claims: HashMap<i64, Vec<Claim>> = HashMap::new();
    for (step, draft) in split.drafts.iter().enumerate() {
        for upid in draft.command.programs() {
            let start = source
                .rows
                .get(&upid)
                .map_or(draft.start_ns, |row| row.start_ns);
            for row in source.descriptors.get(&upid).into_iter().flatten() {
                let of_path = opens.get(row.target.as_str()).into_iter().flatten();
                let before = of_path.filter(|open| open.first_ns <= start);
                let access = row.flags & O_ACCMODE;
                let last = before
                    .filter(|open| open.flags.is_none_or(|flags| flags & O_ACCMODE == access))
                    .max_by_key(|open| open.first_ns);
                if let Some(open) = last {
                    claims.entry(open.file_id).or_default().push(Claim {
                        step,
                        from_ns: open.first_ns,
                        to_ns: open.last_ns.max(start),
                    });
                }
            }
        }
    }
    claims
}

impl Effects {
    pub(super) fn touch(
        &mut self,
        thing: Thing,
        step: usize,
        how: How,
        first_ns: i64,
        last_ns: i64,
    ) {
        let touches = self.touches.entry(thing).or_default();
        let touch = Touch::new(step, how, Span { first_ns, last_ns });
        match touches.iter_mut().rev().find(|other| other.step == step) {
            Some(earlier) => earlier.add(touch),
            None => touches.push(touch),
        }
    }

    pub(super) fn add(&mut self, source: &Source, step: usize, action: &ActionRow) {
        // A copy of the shell closes the descriptors that it inherited, without having used them.
        if &*action.class == "close" {
            return;
        }
        let (first, last) = (action.first_ns, action.last_ns);
        let names: Vec<&NameRow> = source.names_during(action.file_id, first, last).collect();
        let changed = |instant: i64| first <= instant && instant <= last;
        if names.iter().all(|name| !source.is_traced(&name.path)) {
            self.add_outside(source, step, action, &names);
            return;
        }
        for name in &names {
            // The directories on the way to the file.
            let mut directory = name.path.as_str();
            while let Some((parent, _)) = directory.rsplit_once('/') {
                if parent.is_empty() || !source.is_traced(parent) {
                    break;
                }
                self.touch(Thing::Name(parent.into()), step, How::Read, first, last);
                directory = parent;
            }
        }
        let is_of_names = &*action.class == "namespace" || &*action.op == "create";
        for name in names {
            let is_made = changed(name.from_ns);
            let is_gone = name.to_ns.is_some_and(changed);
            if is_of_names && !action.failed && (is_made || is_gone) {
                self.touch(
                    Thing::Name(name.path.clone()),
                    step,
                    How::Write,
                    first,
                    last,
                );
                if &*action.op == "mkdir" && is_made {
                    self.made_directories.insert((step, name.path.clone()));
                }
                if let Some((parent, _)) = name.path.rsplit_once('/') {
                    self.touch(Thing::List(parent.into()), step, How::Vary, first, last);
                }
            } else {
                self.touch(Thing::Name(name.path.clone()), step, How::Read, first, last);
            }
            if &*action.op == "readdir" {
                self.touch(Thing::List(name.path.clone()), step, How::Read, first, last);
            }
            if &*action.op == "rmdir" && !action.failed {
                self.touch(
                    Thing::List(name.path.clone()),
                    step,
                    How::Write,
                    first,
                    last,
                );
            }
        }
        if action.failed {
            return;
        }
        if &*action.op == "utimens" {
            self.timed.insert((step, action.file_id));
        }
        self.add_use(step, action);
        let content = Thing::Content(action.file_id);
        if changes(action) {
            self.touch(content, step, How::Write, first, last);
        } else if matches!(&*action.class, "open" | "read")
            || matches!(
                &*action.op,
                "getattr" | "getxattr" | "listxattr" | "link" | "rename" | "lseek"
            )
        {
            self.touch(content, step, How::Read, first, last);
        }
    }

    /// Adds a file to those that a step read, or to those that got new contents from it.
    fn add_use(&mut self, step: usize, action: &ActionRow) {
        if may_read(action) {
            self.reads.insert((step, action.file_id));
        }
        let is_open = &*action.class == "open";
        if &*action.class == "write"
            || &*action.op == "create"
            || is_open && action.flags.is_some_and(|flags| flags & O_TRUNC != 0)
        {
            self.writes.insert((step, action.file_id));
        }
    }

    /// Removes the effects of a step that is dropped.
    pub(super) fn forget(&mut self, step: usize) {
        self.touches.retain(|_, touches| {
            touches.retain(|touch| touch.step != step);
            !touches.is_empty()
        });
        for paths in [&mut self.outside, &mut self.moved_outside] {
            paths.remove(&step);
        }
        self.read_outside.remove(&step);
        for files in [&mut self.reads, &mut self.writes, &mut self.timed] {
            files.retain(|(of, _)| *of != step);
        }
        self.made_directories.retain(|(of, _)| *of != step);
    }

    /// A file that a step wrote outside the traced directories and that is still there, or that another
    /// step used: nothing is known of its later contents.
    pub(super) fn written_outside(&self, step: usize) -> Option<&String> {
        self.not_alone(step, &self.outside)
    }

    /// A file that a step renamed or removed outside the traced directories, likewise.
    pub(super) fn moved_outside(&self, step: usize) -> Option<&String> {
        self.not_alone(step, &self.moved_outside)
    }

    fn not_alone<'a>(
        &self,
        step: usize,
        paths: &'a BTreeMap<usize, BTreeMap<String, bool>>,
    ) -> Option<&'a String> {
        let mut paths = paths.get(&step)?.iter();
        let found = paths.find(|(path, is_gone)| !**is_gone || self.is_of_other(step, path));
        found.map(|(path, _)| path)
    }

    /// Returns true if another step used a file that this step wrote outside the traced directories.
    pub(super) fn is_of_several(&self, step: usize) -> bool {
        let mut paths = self.outside.get(&step).into_iter().flatten();
        paths.any(|(path, _)| self.is_of_other(step, path))
    }

    /// Returns true if another step used this file outside the traced directories.
    fn is_of_other(&self, step: usize, path: &String) -> bool {
        let mut written = self.outside.iter().filter(|(other, _)| **other != step);
        let mut read = self
            .read_outside
            .iter()
            .filter(|(other, _)| **other != step);
        written.any(|(_, paths)| paths.contains_key(path))
            || read.any(|(_, paths)| paths.contains(path))
    }

    fn add_outside(
        &mut self,
        source: &Source,
        step: usize,
        action: &ActionRow,
        names: &[&NameRow],
    ) {
        let is_use = matches!(&*action.class, "open" | "read" | "write");
        if action.failed || !is_use || source.is_of_machine(action.file_id) {
            return;
        }
        let is_managers = self.managers.contains(&action.upid);
        if is_managers && names.iter().all(|name| name.path.contains("/.")) {
            return;
        }
        let how = match &*action.class == "write" || changes(action) {
            true => How::Write,
            false => How::Read,
        };
        self.add_use(step, action);
        for name in names {
            let (first, last) = (action.first_ns, action.last_ns);
            self.touch(Thing::Outside(name.path.clone()), step, how, first, last);
        }
        // The output of the whole run went to such files; the output of the generated workflow will
        // not.
        let of_run = source.descriptors.get(&source.first_upid);
        let is_of_run = |path: &str| of_run.into_iter().flatten().any(|d| d.target == path);
        for name in names {
            if &*action.class != "open" && is_of_run(&name.path) {
                continue;
            }
            let path = name.path.clone();
            if &*action.class == "write" || changes(action) {
                let written = self.outside.entry(step).or_default();
                written.insert(path, name.to_ns.is_some());
            } else {
                self.read_outside.entry(step).or_default().insert(path);
            }
        }
    }

    /// Adds the files outside that a step may have removed, renamed or changed. No call shows this; the
    /// step's arguments do, or the instant at which a name appeared or vanished.
    fn add_unseen_outside(&mut self, source: &Source, split: &Split) {
        let names = &source.workflow.names;
        let places = source.workflow.image_places();
        let given_to = |draft: &Draft| {
            let images = draft.members.iter().filter_map(|upid| places.get(upid));
            let images = images.map(|&at| &source.workflow.images[at]);
            let given = images.flat_map(|image| {
                names
                    .given(image)
                    .into_iter()
                    .map(move |path| (image, path))
            });
            given.collect::<Vec<_>>()
        };
        let given: Vec<Vec<(&Image, &Arc<str>)>> = split.drafts.iter().map(given_to).collect();
        let spans = split
            .drafts
            .iter()
            .map(|draft| (draft.start_ns, draft.end_ns));
        let changed = names.changed_by(&spans.collect::<Vec<_>>(), |step, path| {
            given[step].iter().any(|(_, given)| ***given == *path) || self.has_opened(step, path)
        });
        let changes = self.touches.values().flatten();
        let changes = changes.filter(|touch| touch.how > How::Read);
        let has_changed: HashSet<usize> = changes.map(|touch| touch.step).collect();
        for (step, given) in given.into_iter().enumerate() {
            for (image, path) in given {
                let is_changed = changed[step].iter().any(|(_, changed)| **changed == **path);
                if is_changed {
                    let is_gone = source.file_at(path, i64::MAX).is_none();
                    let moved = self.moved_outside.entry(step).or_default();
                    moved.insert(path.to_string(), is_gone);
                }
                if !self.has_opened(step, path) {
                    // A step that changed something else probably only read this file.
                    let how = match is_changed || !has_changed.contains(&step) {
                        true => How::Write,
                        false => How::Read,
                    };
                    let end = image.end_ns.unwrap_or(split.drafts[step].end_ns);
                    let thing = Thing::Outside(path.to_string());
                    self.touch(thing, step, how, image.start_ns, end);
                }
            }
            for &(at, path) in &changed[step] {
                self.touch(Thing::Outside(path.to_string()), step, How::Write, at, at);
            }
        }
    }

    /// Returns true if a step opened this file outside the traced directories.
    fn has_opened(&self, step: usize, path: &str) -> bool {
        let touches = self.touches.get(&Thing::Outside(path.to_string()));
        touches.is_some_and(|touches| touches.iter().any(|touch| touch.step == step))
    }

    /// Adds the files that a program had open when it began, for it may use them without any recorded
    /// call.
    fn add_redirections(&mut self, source: &Source, step: usize, upid: i64) {
        let Some(row) = source.rows.get(&upid) else {
            return;
        };
        let at = row.start_ns;
        for descriptor in source.descriptors.get(&upid).into_iter().flatten() {
            if upid == source.first_upid || !source.is_traced(&descriptor.target) {
                continue;
            }
            let path = &descriptor.target;
            let file = source.file_at(path, at);
            self.touch(Thing::Name(path.clone()), step, How::Read, at, at);
            if let Some(file) = file {
                let how = match descriptor.flags & O_ACCMODE {
                    0 => How::Read,
                    _ => How::Write,
                };
                if how == How::Read {
                    self.reads.insert((step, file));
                }
                self.touch(Thing::Content(file), step, how, at, at);
            }
        }
    }
}
