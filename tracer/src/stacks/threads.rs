//! The threads of the run: which process image each one is of, and what it has mapped.

use std::collections::HashMap;
use std::sync::Arc;

use flowtrace_schema::{Loss, Record as Row, Recorder, StackRecord};
use globset::GlobMatcher;

use super::interned::Interned;
use super::modules::{KERNEL, Modules};
use super::records::{Record, Sample, What};
use super::symbols;
use super::unwind::{self, Image, Maps, Place};
use crate::clock::Clock;

/// A process of the run.
struct Process {
    /// Number of its image, counted from 0.
    image: u32,
    /// Begin of the image, ns since the start of the run.
    start_ns: u64,
    /// Execs of the process since its fork.
    execs: u32,
    is_wanted: bool,
    maps: Arc<Maps>,
    unwinding: Option<Box<Image>>,
    /// Numbers of its threads that were sampled, by thread id.
    sampled: HashMap<u32, u32>,
    threads: u32,
}

/// All processes of the run.
pub(super) struct Threads {
    command: u32,
    clock: Clock,
    recorder: Recorder,
    program: Option<GlobMatcher>,
    processes: HashMap<u32, Process>,
    modules: Modules,
    interned: Interned,
    images: u32,
    threads: u32,
    incomplete: u64,
}

impl Threads {
    /// No process yet: the first is `command`, when it runs a program.
    pub(super) fn new(
        command: u32,
        clock: Clock,
        recorder: Recorder,
        program: Option<GlobMatcher>,
    ) -> Threads {
        Threads {
            command,
            clock,
            interned: Interned::new(recorder.clone()),
            recorder,
            program,
            processes: HashMap::new(),
            modules: Modules::new(command),
            images: 0,
            threads: 0,
            incomplete: 0,
        }
    }

    /// Takes the next record in the order of time. Those of processes that are not of the run have no effect.
    pub(super) fn take(&mut self, record: Record) {
        let Record {
            time,
            pid,
            tid,
            what,
        } = record;
        match what {
            What::Sample(sample) => self.sample((pid, tid), time, &sample),
            What::Mapped(mapped) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    unwind::map(Arc::make_mut(&mut process.maps), *mapped);
                }
            }
            What::Exec { name } => self.executed(pid, time, &name),
            What::Fork { parent } if parent != pid => self.forked(parent, pid, time),
            What::Fork { .. } => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.threads += 1;
                }
            }
            What::Exit => self.ended(pid, tid),
            What::Lost(_) => {}
        }
    }

    fn executed(&mut self, pid: u32, time: u64, name: &[u8]) {
        let execs = match self.processes.get(&pid) {
            Some(process) => process.execs + 1,
            None if pid == self.command => 1,
            None => return,
        };
        let name = String::from_utf8_lossy(name);
        let process = Process {
            image: self.next_image(),
            start_ns: self.clock.at(time),
            execs,
            is_wanted: self
                .program
                .as_ref()
                .is_none_or(|pattern| is_named(pattern, &name)),
            maps: Arc::default(),
            unwinding: None,
            sampled: HashMap::new(),
            threads: 1,
        };
        self.processes.insert(pid, process);
    }

    fn forked(&mut self, parent: u32, pid: u32, time: u64) {
        let Some(parent) = self.processes.get(&parent) else {
            // The pid may have been one of the run before.
            self.processes.remove(&pid);
            return;
        };
        let (maps, is_wanted) = (Arc::clone(&parent.maps), parent.is_wanted);
        let process = Process {
            image: self.next_image(),
            start_ns: self.clock.at(time),
            execs: 0,
            is_wanted,
            maps,
            unwinding: None,
            sampled: HashMap::new(),
            threads: 1,
        };
        self.processes.insert(pid, process);
    }

    fn next_image(&mut self) -> u32 {
        self.images += 1;
        self.images - 1
    }

    fn ended(&mut self, pid: u32, tid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.sampled.remove(&tid);
            process.threads = process.threads.saturating_sub(1);
            if process.threads == 0 {
                self.processes.remove(&pid);
            }
        }
    }

    fn sample(&mut self, (pid, tid): (u32, u32), time: u64, sample: &Sample) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if !process.is_wanted {
            return;
        }
        let thread = match process.sampled.get(&tid) {
            Some(&thread) => thread,
            None => {
                self.threads += 1;
                let id = self.threads;
                process.sampled.insert(tid, id);
                let start_ns = process.start_ns;
                let execs = process.execs;
                self.recorder
                    .record(Row::Stack(Box::new(StackRecord::Thread {
                        id,
                        pid,
                        tid,
                        start_ns,
                        execs,
                    })));
                id
            }
        };
        let maps = &process.maps;
        if !matches!(&process.unwinding, Some(image) if image.is_of(maps)) {
            process.unwinding = None;
        }
        let unwinding = process
            .unwinding
            .get_or_insert_with(|| Box::new(Image::new(pid, process.image, Arc::clone(maps))));
        let (user, complete) = unwinding.frames(&mut self.modules, sample);
        let mut frames: Vec<Place> = Vec::with_capacity(sample.kernel.len() + user.len());
        let kernel = sample.kernel.iter().enumerate();
        frames.extend(kernel.map(|(at, &address)| Place {
            module: KERNEL,
            // All but the first are return addresses.
            address: address - u64::from(at > 0 && address > 0),
        }));
        frames.extend(user);
        self.incomplete += u64::from(!complete);
        let stack = self.interned.stack(&self.modules, &frames, complete);
        self.recorder
            .record(Row::Stack(Box::new(StackRecord::Sample {
                t_ns: self.clock.at(time),
                thread,
                stack,
                blocked_ns: sample.blocked_ns,
            })));
    }

    /// Records the names of functions.
    pub(super) fn finish(self) {
        self.recorder.lost(Loss::StacksIncomplete, self.incomplete);
        symbols::record(&self.modules, &self.interned, &self.recorder);
    }
}

/// The kernel's names of programs have at most so many bytes.
const MOST_NAME: usize = 15;

/// True if a program is meant whose name the kernel may have cut.
fn is_named(pattern: &GlobMatcher, name: &str) -> bool {
    let glob = pattern.glob().glob();
    pattern.is_match(name) || name.len() == MOST_NAME && glob.starts_with(name)
}

#[cfg(test)]
mod tests {
    use globset::Glob;

    use super::*;

    #[test]
    fn a_long_name_is_known_by_its_begin() {
        let pattern = |text| Glob::new(text).unwrap().compile_matcher();
        assert!(is_named(&pattern("gcc*"), "gcc-12"));
        assert!(is_named(
            &pattern("a-program-with-a-long-name"),
            "a-program-with-"
        ));
        assert!(!is_named(&pattern("a-program"), "a-prog"));
    }
}
