//! The programs that a process ran over time: an exec ends one and begins the next.
//!
//! The work of a process before an exec is that of the program that it ran then, whatever it became. A short
//! image on the way to a program is part of that program: a shell's copy that opens a redirection, a `sh -c`
//! that replaces itself at once, unless it moved data itself.

use std::ops::Range;

use super::{Image, ProcessId, Workflow};

/// An image that an exec ended within this time only began the next program, ns: its own time counts, without
/// that in which it waited for a CPU, for storage or for the tracer. A copy that used no more CPU time than
/// this waited to become its program, however long that took.
const BRIEF_NS: i64 = 10_000_000;

/// A stretch of the life of a process that belongs to one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stint {
    /// The process.
    pub process: ProcessId,
    /// Place of its first image in [`Workflow::images`]: those from there on led to its program.
    pub first: usize,
    /// Place of the image of the program.
    pub image: usize,
    /// Begin, ns; the first stint of a process begins before all its calls.
    pub from_ns: i64,
    /// End, ns; the last stint of a process ends after all its calls.
    pub to_ns: i64,
}

/// The programs of all processes.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The stints of each process follow each other, in the order of execution.
    pub stints: Vec<Stint>,
    of: Vec<Range<usize>>,
}

impl Programs {
    /// The programs of all processes of a trace.
    pub fn of(workflow: &Workflow) -> Programs {
        let have_forked = workflow.have_forked();
        let mut programs = Programs::default();
        for id in workflow.process_ids() {
            let places = workflow.process(id).images.clone();
            let begin = programs.stints.len();
            let mut first = places.start;
            let mut from_ns = i64::MIN;
            for place in places.clone() {
                let image = &workflow.images[place];
                let is_last = place + 1 == places.end;
                if !is_last && is_brief(image, &workflow.images[place + 1], have_forked[place]) {
                    continue;
                }
                let to_ns = if is_last {
                    i64::MAX
                } else {
                    workflow.images[place + 1].start_ns.max(from_ns)
                };
                programs.stints.push(Stint {
                    process: id,
                    first,
                    image: place,
                    from_ns,
                    to_ns,
                });
                first = place + 1;
                from_ns = to_ns;
            }
            programs.of.push(begin..programs.stints.len());
        }
        programs
    }

    /// Every process as if it had run its last program alone.
    pub fn undivided(workflow: &Workflow) -> Programs {
        let whole = |id| {
            let images = &workflow.process(id).images;
            Stint {
                process: id,
                first: images.start,
                image: images.end - 1,
                from_ns: i64::MIN,
                to_ns: i64::MAX,
            }
        };
        Programs {
            stints: workflow.process_ids().map(whole).collect(),
            of: (0..workflow.processes.len()).map(|at| at..at + 1).collect(),
        }
    }

    /// Places in [`Programs::stints`] of those of a process.
    pub fn of_process(&self, id: ProcessId) -> Range<usize> {
        self.of[id.0 as usize].clone()
    }

    /// The program that a process ran at a time: place in [`Programs::stints`].
    pub fn at(&self, id: ProcessId, ns: i64) -> usize {
        let range = self.of_process(id);
        let before = self.stints[range.clone()].partition_point(|stint| stint.to_ns <= ns);
        (range.start + before).min(range.end - 1)
    }

    /// The parts of an interval by the program that the process ran: places, begins and ends.
    pub fn within(
        &self,
        id: ProcessId,
        from_ns: i64,
        to_ns: i64,
    ) -> impl DoubleEndedIterator<Item = (usize, i64, i64)> + '_ {
        let last = self.at(id, to_ns.saturating_sub(1).max(from_ns));
        (self.at(id, from_ns)..=last).map(move |place| {
            let stint = &self.stints[place];
            (place, stint.from_ns.max(from_ns), stint.to_ns.min(to_ns))
        })
    }

    /// The program that a process ran longest: place in [`Programs::stints`].
    pub fn longest(&self, workflow: &Workflow, id: ProcessId) -> usize {
        let process = workflow.process(id);
        let end = process.end_ns.unwrap_or(workflow.last_ns);
        let length = |&place: &usize| {
            let stint = &self.stints[place];
            stint.to_ns.min(end) - stint.from_ns.max(process.start_ns)
        };
        let range = self.of_process(id);
        let last = range.end - 1;
        range.max_by_key(length).unwrap_or(last)
    }
}

impl Workflow {
    /// The image of a program.
    pub fn program(&self, stint: &Stint) -> &Image {
        &self.images[stint.image]
    }
}

fn is_brief(image: &Image, next: &Image, has_forked: bool) -> bool {
    if image.has_worked {
        return false;
    }
    let is_idle_copy =
        image.is_fork && !has_forked && image.cpu_ns.is_none_or(|cpu_ns| cpu_ns < BRIEF_NS);
    let delays = [image.run_queue_ns, image.storage_ns, image.tracer_ns];
    let delays_ns: i64 = delays.into_iter().flatten().sum();
    is_idle_copy || next.start_ns - image.start_ns - delays_ns < BRIEF_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Process;

    const MS: i64 = 1_000_000;

    /// Processes, each the child of the one before, from their images: (fork, begin in ms, CPU in ms).
    fn workflow(processes: &[&[(bool, i64, i64)]]) -> Workflow {
        let mut workflow = Workflow::default();
        for (at, images) in processes.iter().enumerate() {
            let begin = workflow.images.len();
            for &(is_fork, start, cpu) in *images {
                workflow.images.push(Image {
                    upid: workflow.images.len() as i64,
                    process: ProcessId(at as u32),
                    is_fork,
                    is_exec: !is_fork,
                    start_ns: start * MS,
                    cpu_ns: Some(cpu * MS),
                    ..Image::default()
                });
            }
            workflow.processes.push(Process {
                images: begin..workflow.images.len(),
                parent: at.checked_sub(1).map(|parent| ProcessId(parent as u32)),
                start_ns: images[0].1 * MS,
                end_ns: Some(1000 * MS),
                ..Process::default()
            });
        }
        workflow
    }

    fn images(workflow: &Workflow) -> Vec<(usize, usize)> {
        let programs = Programs::of(workflow);
        let stints = programs.stints.iter();
        stints.map(|stint| (stint.first, stint.image)).collect()
    }

    #[test]
    fn a_short_time_before_an_exec_is_part_of_the_program() {
        let fork_exec = [(true, 0, 0), (false, 1, 100)];
        assert_eq!(images(&workflow(&[&fork_exec])), [(0, 1)]);
        // It waited for a CPU, or for the process that opens the other end of its redirection.
        let late = [(true, 0, 0), (false, 300, 100)];
        assert_eq!(images(&workflow(&[&late])), [(0, 1)]);
        let wrapped = [(true, 0, 0), (false, 1, 1), (false, 3, 1), (false, 5, 50)];
        assert_eq!(images(&workflow(&[&wrapped])), [(0, 3)]);
    }

    #[test]
    fn a_busy_machine_makes_no_programs_of_short_images() {
        let shell = [(true, 0, 0), (false, 1, 1), (false, 40, 50)];
        let mut queued = workflow(&[&shell]);
        assert_eq!(images(&queued), [(0, 1), (2, 2)]);
        queued.images[1].run_queue_ns = Some(33 * MS);
        assert_eq!(images(&queued), [(0, 2)]);
    }

    #[test]
    fn work_before_an_exec_is_that_of_the_program_before() {
        let script = [(true, 0, 0), (false, 1, 256), (false, 300, 1)];
        let workflow_of = workflow(&[&script]);
        assert_eq!(images(&workflow_of), [(0, 1), (2, 2)]);
        let copy = [(true, 0, 50), (false, 300, 1)];
        assert_eq!(images(&workflow(&[&copy])), [(0, 0), (1, 1)]);
        // It waited for a child of its own.
        let subshell = [(true, 0, 0), (false, 300, 1)];
        let both = workflow(&[&subshell, &[(true, 5, 0)]]);
        assert_eq!(images(&both), [(0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn the_parts_of_a_stretch_are_the_whole_of_it() {
        let script = [(false, 0, 90), (false, 100, 90), (false, 200, 700)];
        let workflow = workflow(&[&script]);
        let programs = Programs::of(&workflow);
        let id = ProcessId(0);
        let parts = |from, to| programs.within(id, from * MS, to * MS).collect::<Vec<_>>();
        assert_eq!(
            parts(50, 250),
            [
                (0, 50 * MS, 100 * MS),
                (1, 100 * MS, 200 * MS),
                (2, 200 * MS, 250 * MS)
            ]
        );
        assert_eq!(parts(0, 100), [(0, 0, 100 * MS)]);
        assert_eq!(parts(100, 100), [(1, 100 * MS, 100 * MS)]);
        assert_eq!(programs.longest(&workflow, id), 2);
    }
}
