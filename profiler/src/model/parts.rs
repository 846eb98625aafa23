//! Accesses of a process to files, and of each program where several ran in one process.

use super::{Access, Part, ProcessId, Programs, Workflow};

impl Workflow {
    /// The accesses of a process, by file.
    pub fn accesses_of(&self, id: ProcessId) -> &[Access] {
        let first = self.accesses.partition_point(|access| access.process < id);
        let last = self.accesses.partition_point(|access| access.process <= id);
        &self.accesses[first..last]
    }

    /// The accesses by the programs that made them, which are places in [`Programs::stints`]; ordered by
    /// process, then file. Counts, bytes and times in calls are those of the program; first and last times
    /// are those of the process.
    pub fn accesses_by_program<'a>(
        &'a self,
        programs: &'a Programs,
    ) -> impl Iterator<Item = (usize, Access)> + 'a {
        self.accesses.iter().flat_map(move |access| {
            let range = programs.of_process(access.process);
            let last = range.end - 1;
            let mut rest = *access;
            let mut found = Vec::new();
            for part in self.parts_of(access) {
                let stint = range
                    .clone()
                    .find(|&at| part.image <= programs.stints[at].image);
                let part = rest.take(&part.access);
                found.push((stint.unwrap_or(last), part));
            }
            if found.is_empty() || rest.calls > 0 {
                found.push((last, rest));
            }
            found
        })
    }

    /// Parts of an access, in the order of programs.
    fn parts_of(&self, access: &Access) -> &[Part] {
        let key = |part: &Part| (part.access.process, part.access.file);
        let of = (access.process, access.file);
        let begin = self.parts.partition_point(|part| key(part) < of);
        let end = begin + self.parts[begin..].partition_point(|part| key(part) == of);
        &self.parts[begin..end]
    }
}

impl Access {
    /// Adds the calls of another image of the same program on the same file.
    pub(crate) fn join(&mut self, other: &Access) {
        let mut other = *other;
        for (sum, value) in self.sums().into_iter().zip(other.sums()) {
            *sum = sum.saturating_add(*value);
        }
    }

    /// Takes a part out of an access. Data that a redirection has given to another process is not in it any
    /// more.
    fn take(&mut self, part: &Access) -> Access {
        let (mut taken, mut part) = (*self, *part);
        taken.blind_opens = 0;
        let both = taken.sums().into_iter().zip(part.sums());
        for (all, (taken, part)) in self.sums().into_iter().zip(both) {
            *taken = (*part).min(*all);
            *all -= *taken;
        }
        taken
    }

    /// All values that are summed up over calls, except those about unseen changes.
    fn sums(&mut self) -> [&mut i64; 18] {
        [
            &mut self.calls,
            &mut self.creates,
            &mut self.reads,
            &mut self.read_bytes,
            &mut self.read_time_ns,
            &mut self.writes,
            &mut self.write_bytes,
            &mut self.write_time_ns,
            &mut self.changes,
            &mut self.truncates,
            &mut self.alterations,
            &mut self.read_opens,
            &mut self.plain_read_opens,
            &mut self.write_opens,
            &mut self.syncs,
            &mut self.sync_time_ns,
            &mut self.checks,
            &mut self.mapped_bytes,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FileIndex, Image, Process, ProcessId};

    #[test]
    fn the_parts_of_an_access_are_the_whole_of_it() {
        let image = |at: i64, has_worked| Image {
            process: ProcessId(0),
            is_exec: true,
            start_ns: at,
            has_worked,
            ..Image::default()
        };
        let access = |reads, read_bytes, write_bytes| Access {
            process: ProcessId(0),
            file: FileIndex(0),
            calls: reads,
            reads,
            read_bytes,
            write_bytes,
            ..Access::default()
        };
        let workflow = Workflow {
            images: vec![image(0, true), image(5, false), image(9, false)],
            processes: vec![Process {
                images: 0..3,
                ..Process::default()
            }],
            accesses: vec![access(5, 50, 7)],
            parts: vec![Part {
                image: 0,
                access: access(2, 30, 8),
            }],
            ..Workflow::default()
        };
        let programs = Programs::of(&workflow);
        let parts: Vec<(usize, i64, i64, i64)> = workflow
            .accesses_by_program(&programs)
            .map(|(stint, a)| {
                (
                    programs.stints[stint].image,
                    a.reads,
                    a.read_bytes,
                    a.write_bytes,
                )
            })
            .collect();
        // Seven of the bytes written are known of the whole, so the part has no more.
        assert_eq!(parts, [(0, 2, 30, 7), (2, 3, 20, 0)]);
    }
}
