//! The process images of a run, living and ended.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use flowtrace_schema::{BeganRow, EndedRow, GrowingSampleRow, ProgramRow};

use super::steps::Steps;
use super::threads::Threads;
use crate::model::is_failure;
use crate::{jobs, rules};

/// The process images.
#[derive(Debug, Default)]
pub(super) struct Images {
    all: Vec<Image>,
    of: HashMap<i64, usize>,
    living: BTreeSet<usize>,
    /// Last image of each pid.
    of_pid: HashMap<i64, usize>,
    /// Processes that ended with an error.
    pub(super) failed: usize,
    pub(super) failures: HashMap<Failing, Failure>,
    /// Processes that have ended.
    pub(super) ended: usize,
    /// Programs that were executed.
    pub(super) programs: usize,
}

/// A step, and the signal or exit code with which its processes failed.
pub(super) type Failing = (usize, Option<i64>, Option<i64>);

/// Processes that failed so.
#[derive(Debug, Default)]
pub(super) struct Failure {
    pub(super) count: usize,
    /// Place of the latest.
    pub(super) latest: usize,
    /// Number of processes that had failed when the latest did.
    pub(super) number: usize,
}

/// A process image.
#[derive(Debug)]
pub(super) struct Image {
    /// What it runs, with the name of its step.
    pub(super) program: ProgramRow,
    pub(super) pid: i64,
    pub(super) step: usize,
    pub(super) start_ns: i64,
    pub(super) end: Option<EndedRow>,
    pub(super) threads: Box<Threads>,
}

impl Image {
    /// True for the last image of a process that has ended.
    fn ended_process(&self) -> bool {
        let end = self.end.as_ref();
        end.is_some_and(|end| end.exit_code.is_some() || end.exit_signal.is_some())
    }

    fn has_failed(&self) -> bool {
        let end = self.end.as_ref();
        end.is_some_and(|end| is_failure(end.exit_code, end.exit_signal))
    }
}

impl Images {
    /// Adds images in the order of their ids, and gives each its step, which never changes: a program has the
    /// name of its file or script, or that of its manager's job.
    pub(super) fn add(&mut self, rows: Vec<BeganRow>, steps: &mut Steps) {
        if rows.is_empty() {
            return;
        }
        // The rows that the names depend on: all ancestors.
        let mut known: BTreeSet<usize> = BTreeSet::new();
        for row in &rows {
            let mut next = self.places([row.parent_upid, row.prev_upid]);
            while let Some(place) = next.pop() {
                if known.insert(place) {
                    next.extend(self.before(place));
                }
            }
        }
        let mut programs: Vec<ProgramRow> = known
            .iter()
            .map(|&place| self.all[place].program.clone())
            .collect();
        let old = programs.len();
        programs.extend(rows.iter().map(program));
        let mut names = rules::of_rows(&programs, &mut rules::Unseen);
        for (name, program) in names.iter_mut().zip(&programs) {
            if let Some(stored) = &program.rule {
                *name = stored.to_string();
            }
        }
        jobs::name_jobs(&programs, &mut names, None);
        let new = programs.drain(old..).zip(names.drain(old..));
        for (row, (mut program, name)) in rows.into_iter().zip(new) {
            let step = steps.named(&name, program.exe.as_deref());
            program.rule = Some(Arc::clone(&steps.rows[step].name));
            let place = self.all.len();
            self.programs += usize::from(&*program.origin != "fork");
            steps.begin(step);
            self.of.insert(row.upid, place);
            self.of_pid.insert(row.pid, place);
            self.living.insert(place);
            self.all.push(Image {
                program,
                pid: row.pid,
                step,
                start_ns: row.start_ns,
                end: None,
                threads: Box::default(),
            });
            if let Some(end_ns) = row.end_ns {
                let end = EndedRow {
                    end_ns,
                    exit_code: row.exit_code,
                    exit_signal: row.exit_signal,
                    cpu_ns: row.cpu_ns,
                };
                self.end(place, end, steps);
            }
        }
    }

    /// The image that forked an image, and the one before its exec.
    fn before(&self, place: usize) -> Vec<usize> {
        let program = &self.all[place].program;
        self.places([program.parent_upid, program.prev_upid])
    }

    fn places(&self, upids: [Option<i64>; 2]) -> Vec<usize> {
        let upids = upids.into_iter().flatten();
        upids.filter_map(|upid| self.place(upid)).collect()
    }

    /// Ends an image.
    pub(super) fn end(&mut self, place: usize, end: EndedRow, steps: &mut Steps) {
        self.living.remove(&place);
        let image = &mut self.all[place];
        let counted = std::mem::take(&mut image.threads.cpu_ns);
        *image.threads = Threads::default();
        image.threads.cpu_ns = end.cpu_ns.unwrap_or(counted);
        let ending = (image.step, end.exit_signal, end.exit_code);
        image.end = Some(end);
        let (is_process, has_failed) = (image.ended_process(), image.has_failed());
        steps.end(image.step, is_process, has_failed, image.threads.cpu_ns);
        self.ended += usize::from(is_process);
        if has_failed {
            self.failed += 1;
            let failure = self.failures.entry(ending).or_default();
            failure.count += 1;
            (failure.latest, failure.number) = (place, self.failed);
        }
    }

    /// Takes a sample of a thread.
    pub(super) fn sampled(&mut self, row: &GrowingSampleRow) {
        let place = self
            .place(row.upid)
            .filter(|place| self.living.contains(place));
        if let Some(place) = place {
            self.all[place].threads.add(row);
        }
    }

    /// The samples that may grow.
    pub(super) fn open_samples(&self) -> Vec<i64> {
        let living = self.living.iter();
        living
            .flat_map(|&place| self.all[place].threads.samples())
            .collect()
    }

    /// The images that have not ended.
    pub(super) fn living(&self) -> Vec<usize> {
        self.living.iter().copied().collect()
    }

    /// Number of images that have not ended.
    pub(super) fn running(&self) -> usize {
        self.living.len()
    }

    pub(super) fn get(&self, place: usize) -> &Image {
        &self.all[place]
    }

    pub(super) fn upid(&self, place: usize) -> i64 {
        self.all[place].program.upid
    }

    pub(super) fn place(&self, upid: i64) -> Option<usize> {
        self.of.get(&upid).copied()
    }

    /// The living image of a pid.
    pub(super) fn of_pid(&self, pid: i64) -> Option<&Image> {
        let place = self.of_pid.get(&pid)?;
        self.living.contains(place).then(|| &self.all[*place])
    }

    /// True if one image was forked by the process of another.
    pub(super) fn is_child(&self, child: &Image, of: &Image) -> bool {
        let parent = child.program.parent_upid.and_then(|upid| self.place(upid));
        parent.is_some_and(|place| self.all[place].pid == of.pid)
    }

    /// Processes that have ended whose parent is a step of that name, and that are none themselves.
    pub(super) fn children_done(&self, name: &str, steps: &Steps) -> i64 {
        let is_named = |image: &Image| &*steps.rows[image.step].name == name;
        let done = self.all.iter().filter(|image| {
            let parent = image.program.parent_upid.and_then(|upid| self.place(upid));
            image.ended_process()
                && !is_named(image)
                && parent.is_some_and(|place| is_named(&self.all[place]))
        });
        done.count() as i64
    }

    /// The begin of the first image, ns: zero of the times that people see.
    pub(super) fn begins_ns(&self) -> i64 {
        self.all.first().map_or(0, |image| image.start_ns)
    }

    /// The step of an image, if it does work of its own.
    pub(super) fn step_that_works(&self, upid: i64, steps: &Steps) -> Option<usize> {
        let image = &self.all[self.place(upid)?];
        (!steps.rows[image.step].is_runner).then_some(image.step)
    }

    /// The images that lived after a time and all that they come from, at most some, in the order of ids.
    pub(super) fn since(&self, from_ns: i64, most: usize) -> Vec<usize> {
        let mut wanted: HashSet<usize> = HashSet::new();
        let lived = |place: &usize| {
            let end = self.all[*place].end.as_ref();
            end.is_none_or(|end| end.end_ns > from_ns)
        };
        // Ids grow with time: an image that ended since then is, as a rule, among the last ones.
        let last = self.all.len().saturating_sub(most * 4)..self.all.len();
        let recent = self
            .living
            .iter()
            .copied()
            .chain(last.rev().filter(lived))
            .take(most);
        let mut next: Vec<usize> = recent.collect();
        while let Some(place) = next.pop() {
            if wanted.insert(place) {
                next.extend(self.before(place));
            }
        }
        let mut wanted: Vec<usize> = wanted.into_iter().collect();
        wanted.sort_unstable();
        wanted
    }
}

fn program(row: &BeganRow) -> ProgramRow {
    ProgramRow {
        upid: row.upid,
        parent_upid: row.parent_upid,
        prev_upid: row.prev_upid,
        origin: Arc::clone(&row.origin),
        exe: row.exe.clone(),
        command: row.command.clone(),
        cwd: row.cwd.clone(),
        rule: row.rule.clone(),
    }
}
