//! Who leaves a processor to whom, and what interrupts of an idle processor do: whom they wake, and which requests
//! to devices they complete. By programs at the tracepoints `sched_switch`, `sched_waking` and `block_rq_complete`.
//!
//! In some virtual machines perf's rings and those of tracefs have nothing of what the idle task of a processor does,
//! while programs are called there, too: who was woken on such a processor seemed to wait on until it left it again.
//! Of what others wake and complete perf's rings tell, which know whether that was in an interrupt
//! ([`crate::kernel::sched`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::blocked::{self, told_anyway};
use super::program::{CPU, NUMBERS};
use crate::bpf::btf::Types;
use crate::bpf::code::{
    ATOMIC_64, Code, IF_EQUAL, IF_GREATER, IF_NOT_EQUAL, Instruction, JUMP, LOAD_32, LOOK_UP, MAP,
    MEMORY_OF_MAP, NO_WAKEUP, OR, PROCESSOR, R0, R1, R2, R3, RESERVE, SHIFT_LEFT, STACK, STORE_32,
    STORE_64, SUBMIT, TIME, WHO,
};
use crate::bpf::ring::Ring;
use crate::bpf::{Kind, Map, attach_typed, load_typed};
use crate::kernel::sample::Stage;
use crate::kernel::sample::{Sample, What, bytes};
use crate::kernel::sched;
use crate::side_by_side::{both, side_by_side};

/// A record: time, the thread that leaves or is woken, the one that comes, the states of the thread that leaves, and for how
/// long it was on processors. Of a request the numbers of its device and its sector stand for who comes and for how long.
const AT: usize = 0;
const TID: usize = 8;
const NEXT: usize = 12;
const STATE: usize = 16;
const EXIT_STATE: usize = 20;
const RAN: usize = 24;
const RECORD: usize = 32;
/// In the place of [`EXIT_STATE`]: it is a waking, or the end of a request.
const IS_WAKING: u32 = u32::MAX;
const IS_DONE: u32 = u32::MAX - 1;

/// Registers that calls of helpers keep.
const CONTEXT: u8 = 6;
const FIRST: u8 = 7;
const SECOND: u8 = 8;
/// Who runs where nobody else does.
const IDLE: i32 = 0;
/// Places on the stack.
const KEY: i16 = -4;
const LEFT_IN: i16 = -16;
const HAS_RUN: i16 = -24;

/// Rings that the programs name one by one; with more processors they are in an array.
const NAMED: usize = 16;

/// A ring for each processor.
#[derive(Clone, Copy, Debug)]
enum Rings<'a> {
    /// Each by itself, of which a program may name but a few: no look-up for a record, and no wait for
    /// all processors when they are made known, some 10 ms for each.
    Each(&'a [BorrowedFd<'a>]),
    /// In an array of maps.
    Array(BorrowedFd<'a>),
}

/// Where this kernel has what the programs read.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Types of the functions at the tracepoints.
    switch: u32,
    waking: u32,
    /// Of a task.
    tid: usize,
    exit_state: usize,
    ran: usize,
    /// `None`: this kernel has them otherwise.
    requests: Option<Requests>,
    calls: Option<blocked::Layout>,
}

/// Of requests to devices.
#[derive(Clone, Copy, Debug)]
struct Requests {
    complete: u32,
    // Of a request.
    queue: usize,
    sector: usize,
    /// Of a queue.
    disk: usize,
    // Of a disk.
    major: usize,
    minor: usize,
}

impl Requests {
    fn of(types: &Types) -> Option<Requests> {
        Some(Requests {
            complete: types.typedef("btf_trace_block_rq_complete")?,
            queue: types.offset("request", "q")?,
            sector: types.offset("request", "__sector")?,
            disk: types.offset("request_queue", "disk")?,
            major: types.offset("gendisk", "major")?,
            minor: types.offset("gendisk", "first_minor")?,
        })
    }
}

impl Layout {
    fn of_kernel() -> io::Result<Layout> {
        let types = Types::of_kernel()?;
        let missing = |what: &str| io::Error::other(format!("this kernel has no {what}"));
        if !types.tell_states_of_switches() {
            return Err(missing("state among the arguments of sched_switch"));
        }
        let function = |name: &str| types.typedef(name).ok_or_else(|| missing(name));
        let task = |member: &str| {
            let found = types.offset("task_struct", member);
            found.ok_or_else(|| missing(member))
        };
        Ok(Layout {
            switch: function("btf_trace_sched_switch")?,
            waking: function("btf_trace_sched_waking")?,
            tid: task("pid")?,
            exit_state: task("exit_state")?,
            ran: task("se.sum_exec_runtime")?,
            requests: Requests::of(types),
            calls: blocked::Layout::of(types),
        })
    }
}

/// The programs at work.
#[derive(Debug)]
pub(in crate::kernel) struct Switches {
    rings: Vec<Ring>,
    lost: Map,
    /// What was lost up to the last look.
    known: u64,
    /// Whether requests are told, too, and in which calls threads wait.
    tells_requests: bool,
    tells_calls: bool,
    /// Held open: the programs and what they use live as long.
    held: (Vec<OwnedFd>, Option<Map>, Map),
}

impl Switches {
    /// Begins to tell of all threads of the machine, by a ring of `size` bytes for each processor.
    ///
    /// # Errors
    /// When the kernel refuses such programs, counts processes otherwise than we do, or does not tell of its types.
    pub(in crate::kernel) fn open(size: usize) -> io::Result<Switches> {
        Self::open_with(size, NAMED)
    }

    /// Up to `named` rings are named one by one.
    fn open_with(size: usize, named: usize) -> io::Result<Switches> {
        crate::linux::in_first_pid_namespace()?;
        let layout = Layout::of_kernel()?;
        let lost = Map::new(Kind::Array, 8, 1)?;
        let told = Map::new(Kind::Array, NUMBERS, 1)?;
        told.put(0, &told_anyway())?;
        let processors = crate::cpus::array_length()?;
        let (all, array) = rings(processors, size, named)?;
        let each: Vec<_> = all.iter().map(AsFd::as_fd).collect();
        let rings = match &array {
            Some(array) => Rings::Array(array.as_fd()),
            None => Rings::Each(&each),
        };
        let maps = Maps {
            rings,
            processors,
            lost: lost.as_fd(),
            told: told.as_fd(),
        };
        // Older kernels do not tell of a task's registers.
        let with_calls = |calls| load_typed(&leaves(&layout, calls, &maps), layout.switch);
        let best = || match layout.calls.map(|calls| with_calls(Some(calls))) {
            Some(Ok(program)) => Ok((program, true)),
            _ => with_calls(None).map(|program| (program, false)),
        };
        let (switch, waking) = both(best, || load_typed(&woken(&layout, &maps), layout.waking));
        let ((switch, tells_calls), waking) = (switch?, waking?);
        let mut held = vec![
            attach_typed(&waking)?,
            attach_typed(&switch)?,
            switch,
            waking,
        ];
        let completed = layout
            .requests
            .and_then(|requests| load_typed(&completed(&requests, &maps), requests.complete).ok());
        let tells_requests = completed.is_some();
        if let Some(completed) = completed {
            held.extend([attach_typed(&completed)?, completed]);
        }
        let all = all.into_iter().map(|map| Ring::map(map, size));
        Ok(Switches {
            rings: all.collect::<io::Result<_>>()?,
            lost,
            known: 0,
            tells_requests,
            tells_calls,
            held: (held, array, told),
        })
    }

    /// Whether it tells which requests the idle task completes.
    pub(in crate::kernel) fn tells_requests(&self) -> bool {
        self.tells_requests
    }

    /// Whether it tells which calls threads wait in that are not told anyway.
    pub(in crate::kernel) fn tells_calls(&self) -> bool {
        self.tells_calls
    }

    /// All that holds the programs at their tracepoints.
    pub(in crate::kernel) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held.0.iter().map(AsFd::as_fd)
    }

    /// Hands over the records that wait. Returns how many found no room since the last time, or a little earlier.
    pub(in crate::kernel) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        for ring in &mut self.rings {
            // One that is still being written would keep those behind it for the next time, when they are too late.
            ring.drain_all(|record| {
                let call = record.get(RECORD..).and_then(blocked::decode);
                if let Some(sample) = decode(record) {
                    if let Some((number, what)) = call {
                        take(Sample {
                            number,
                            what,
                            ..sample
                        });
                    }
                    take(sample);
                }
            });
        }
        let Ok([now]) = self.lost.get(0) else {
            return 0;
        };
        now - std::mem::replace(&mut self.known, now)
    }
}

/// What the programs use.
#[derive(Clone, Copy, Debug)]
struct Maps<'a> {
    rings: Rings<'a>,
    processors: u32,
    lost: BorrowedFd<'a>,
    /// See [`told_anyway`].
    told: BorrowedFd<'a>,
}

/// A thread leaves its processor (`sched_switch`: whether it would have gone on, it, the one that comes, and its state).
fn leaves(layout: &Layout, calls: Option<blocked::Layout>, maps: &Maps<'_>) -> Vec<Instruction> {
    let mut code = Code::default();
    code.copy(CONTEXT, R1);
    code.load(R1, CONTEXT, 8);
    code.load(R2, CONTEXT, 16);
    code.put(LOAD_32, FIRST, R1, layout.tid as i16, 0);
    code.put(LOAD_32, SECOND, R2, layout.tid as i16, 0);
    code.load(R3, R1, layout.ran);
    code.put(STORE_64, STACK, R3, HAS_RUN, 0);
    // Whoever would have gone on has whatever state it is about to take.
    code.set(R3, 0);
    code.put(STORE_64, STACK, R3, LEFT_IN, 0);
    code.load(R2, CONTEXT, 0);
    let goes_on = code.jump(IF_NOT_EQUAL, R2, 0, 0);
    code.load(R3, CONTEXT, 24);
    code.put(STORE_32, STACK, R3, LEFT_IN, 0);
    code.put(LOAD_32, R3, R1, layout.exit_state as i16, 0);
    code.put(STORE_32, STACK, R3, LEFT_IN + 4, 0);
    code.land(goes_on);
    if let Some(calls) = calls {
        code.load(R1, STACK, LEFT_IN as usize);
        let is_ready = code.jump(IF_EQUAL, R1, 0, 0);
        code.load(R1, CONTEXT, 8);
        let untold = code.call_of(calls, maps.told);
        record(&mut code, RECORD + blocked::BYTES, maps, |code| {
            code.tell_call_of(CPU, RECORD);
        });
        for jump in untold.into_iter().chain([is_ready]) {
            code.land(jump);
        }
    }
    record(&mut code, RECORD, maps, |_| {});
    code.all
}

/// A thread is woken (`sched_waking`: it).
fn woken(layout: &Layout, maps: &Maps<'_>) -> Vec<Instruction> {
    let mut code = Code::default();
    code.load(R1, R1, 0);
    code.put(LOAD_32, FIRST, R1, layout.tid as i16, 0);
    code.call(WHO);
    code.leave_if(IF_NOT_EQUAL, R0, IDLE);
    code.set(SECOND, IDLE);
    code.set(R1, 0);
    code.put(STORE_64, STACK, R1, HAS_RUN, 0);
    marked(code, IS_WAKING, maps)
}

/// The request to a device is over (`block_rq_complete`: it).
fn completed(requests: &Requests, maps: &Maps<'_>) -> Vec<Instruction> {
    /// Bits of the minor number of a device (`MINORBITS` of linux/kdev_t.h).
    const MINOR: i32 = 20;
    let mut code = Code::default();
    code.load(CONTEXT, R1, 0);
    code.call(WHO);
    code.leave_if(IF_NOT_EQUAL, R0, IDLE);
    code.set(FIRST, IDLE);
    code.load(R1, CONTEXT, requests.sector);
    code.put(STORE_64, STACK, R1, HAS_RUN, 0);
    code.load(R1, CONTEXT, requests.queue);
    code.load(R1, R1, requests.disk);
    code.leave_if(IF_EQUAL, R1, 0);
    code.put(LOAD_32, SECOND, R1, requests.major as i16, 0);
    code.put(SHIFT_LEFT, SECOND, 0, 0, MINOR);
    code.put(LOAD_32, R1, R1, requests.minor as i16, 0);
    code.put(OR, SECOND, R1, 0, 0);
    marked(code, IS_DONE, maps)
}

/// Writes a record that is none of a switch.
fn marked(mut code: Code, mark: u32, maps: &Maps<'_>) -> Vec<Instruction> {
    code.set(R1, 0);
    code.put(STORE_32, STACK, R1, LEFT_IN, 0);
    code.set(R1, mark.cast_signed());
    code.put(STORE_32, STACK, R1, LEFT_IN + 4, 0);
    record(&mut code, RECORD, maps, |_| {});
    code.all
}

/// Writes the record of two threads and what is on the stack, and leaves. `rest` adds what there is more; [`CPU`] points at the record.
fn record(code: &mut Code, bytes: usize, maps: &Maps<'_>, rest: impl FnOnce(&mut Code)) {
    code.call(PROCESSOR);
    code.copy(CPU, R0);
    code.leave_if(IF_GREATER, CPU, maps.processors.cast_signed() - 1);
    code.ring(maps.rings);
    code.set(R2, bytes as i32);
    code.set(R3, 0);
    code.call(RESERVE);
    let full = code.jump(IF_EQUAL, R0, 0, 0);
    // The number of the processor is of no use any more.
    code.copy(CPU, R0);
    code.call(TIME);
    code.put(STORE_64, CPU, R0, AT as i16, 0);
    code.put(STORE_32, CPU, FIRST, TID as i16, 0);
    code.put(STORE_32, CPU, SECOND, NEXT as i16, 0);
    code.load(R1, STACK, LEFT_IN as usize);
    code.put(STORE_64, CPU, R1, STATE as i16, 0);
    code.load(R1, STACK, HAS_RUN as usize);
    code.put(STORE_64, CPU, R1, RAN as i16, 0);
    rest(code);
    code.copy(R1, CPU);
    code.set(R2, NO_WAKEUP);
    code.call(SUBMIT);
    code.leave();
    code.land(full);
    code.map(R1, MEMORY_OF_MAP, maps.lost);
    code.set(R2, 1);
    code.put(ATOMIC_64, R1, R2, 0, 0);
    code.leave();
}

/// A ring of `size` bytes for each processor, and where there are more than `named` an array of them.
fn rings(processors: u32, size: usize, named: usize) -> io::Result<(Vec<Map>, Option<Map>)> {
    // The kernel clears them, and the command begins after that.
    let rings = (0..processors).map(|_| || Map::new(Kind::Ring, 0, size as u32));
    let all: Vec<Map> = side_by_side(rings).into_iter().collect::<io::Result<_>>()?;
    let array = (all.len() > named).then(|| Map::array_of(&all));
    Ok((all, array.transpose()?))
}

impl Code {
    /// Puts this processor's ring into R1.
    fn ring(&mut self, rings: Rings<'_>) {
        match rings {
            Rings::Each(rings) => {
                let mut found = Vec::new();
                for (cpu, ring) in (0..).zip(rings) {
                    self.map(R1, MAP, *ring);
                    found.push(self.jump(IF_EQUAL, CPU, 0, cpu));
                }
                self.leaves.push(self.all.len());
                self.put(JUMP, 0, 0, 0, 0);
                for jump in found {
                    self.land(jump);
                }
            }
            Rings::Array(rings) => {
                self.put(STORE_32, STACK, CPU, KEY, 0);
                self.map(R1, MAP, rings);
                self.stack(R2, KEY);
                self.call(LOOK_UP);
                self.leave_if(IF_EQUAL, R0, 0);
                self.copy(R1, R0);
            }
        }
    }
}

/// What a program wrote. `None`: cut short.
fn decode(record: &[u8]) -> Option<Sample> {
    let half = |at: usize| bytes(record, at).map(u32::from_ne_bytes);
    let what = match half(EXIT_STATE)? {
        // It is woken by nothing but an interrupt.
        IS_WAKING => What::Woken {
            by: IDLE.cast_unsigned(),
            in_interrupt: true,
        },
        IS_DONE => What::Request {
            stage: Stage::Done,
            device: half(NEXT)?,
            sector: bytes(record, RAN).map(u64::from_ne_bytes)?,
        },
        exit_state => What::Leaves {
            state: sched::state::reported(half(STATE)?, exit_state),
            next: half(NEXT)?,
            ran_ns: Some(bytes(record, RAN).map(u64::from_ne_bytes)?),
        },
    };
    Some(Sample {
        at: bytes(record, AT).map(u64::from_ne_bytes)?,
        tid: half(TID)?,
        number: 0,
        what,
    })
}

#[cfg(test)]
mod tests;
