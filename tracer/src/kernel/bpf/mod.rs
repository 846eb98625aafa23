//! Records of calls by two small programs in the kernel, at the tracepoints `sys_enter` and
//! `sys_exit`: what [`super::perf`] tells, at less than half of its cost for the caller (a record costs it
//! some 0.35 µs instead of 0.95). They pick calls by their number and callers by their process,
//! whose ids we tell them, and end with the descriptors that are held here.
#![expect(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use super::dropped::Dropped;
use super::perf;
use super::sample::{Sample, What, bytes};
use super::sched;

mod code;
mod memory;
mod program;
mod ring;
mod wanted;

use code::Instruction;
use program::{Maps, NUMBERS, Rings, Which};
use ring::Ring;

/// Rings that the programs name one by one; with more processors they are in an array.
const NAMED: usize = 16;
/// Processes that may be followed at a time.
const PROCESSES: u32 = 1 << 16;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOK_UP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROGRAM_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;

const MAP_HASH: u32 = 1;
const MAP_ARRAY: u32 = 2;
const MAP_ARRAY_OF_MAPS: u32 = 12;
const MAP_RING: u32 = 27;
const NO_PREALLOCATION: u32 = 1;
const PROGRAM_RAW_TRACEPOINT: u32 = 17;

/// Members of `union bpf_attr` up to those that are used; the kernel takes the rest as 0.
#[repr(C)]
#[derive(Default)]
struct NewMap {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: u32,
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct NewProgram {
    kind: u32,
    length: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

#[repr(C)]
#[derive(Default)]
struct Attach {
    name: u64,
    program: u32,
    padding: u32,
}

/// The processes whose calls are told.
#[derive(Debug)]
pub(super) struct Processes {
    all: OwnedFd,
    /// Which of them made the last call on each processor.
    recent: OwnedFd,
    processors: u32,
}

impl Processes {
    /// Tells of the calls of process `pid`, which does not run now, from now on; `foreign`: they have the
    /// numbers of another architecture. What finds no room is not seen, which the books of its image will show.
    pub(super) fn follow(&self, pid: u32, foreign: bool) {
        let _ = element(MAP_UPDATE, &self.all, &pid, &mut u32::from(foreign));
    }

    /// Process `pid`, which does not run now, runs another program.
    pub(super) fn executed(&self, pid: u32, foreign: bool) {
        self.follow(pid, foreign);
        self.look_up_again();
    }

    /// Process `pid` is over.
    pub(super) fn forget(&self, pid: u32) {
        let attributes = Element {
            map: self.all.as_raw_fd() as u32,
            key: std::ptr::from_ref(&pid) as u64,
            ..Element::default()
        };
        let _ = bpf(MAP_DELETE, &attributes);
        // Its id may be given to somebody else.
        self.look_up_again();
    }

    /// Whoever comes next on each processor is looked up.
    fn look_up_again(&self) {
        let none = vec![0u8; self.processors as usize * program::STRIDE];
        let attributes = Element {
            map: self.recent.as_raw_fd() as u32,
            key: std::ptr::from_ref(&0u32) as u64,
            value: none.as_ptr() as u64,
            ..Element::default()
        };
        let _ = bpf(MAP_UPDATE, &attributes);
    }
}

/// What the programs are to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    /// Bytes of each ring, a power of 2 of pages.
    pub(super) size: usize,
    /// Tell also of entries of calls that may block.
    pub(super) blocking: bool,
    /// Stop threads that make calls while a ring is half full, by a SIGSTOP of the kernel: their tracer is to take it
    /// away when there is room again.
    pub(super) holds: bool,
}

/// The programs at work.
#[derive(Debug)]
pub(super) struct Programs {
    rings: Vec<Ring>,
    processes: Arc<Processes>,
    lost: OwnedFd,
    /// What was lost up to the last look: entries of calls that move data, returns, other entries.
    known: [u64; 3],
    /// Held open: the programs and what they use live as long.
    _held: Vec<OwnedFd>,
}

impl Programs {
    /// Begins to tell of the calls of process `pid`, and of those that will be named, as `wishes` say.
    ///
    /// # Errors
    /// When the kernel refuses such programs, or counts processes otherwise than we do.
    pub(super) fn open(pid: u32, wishes: Wishes) -> io::Result<Programs> {
        Self::open_with(pid, wishes, NAMED)
    }

    /// Up to `named` rings are named one by one.
    fn open_with(pid: u32, wishes: Wishes, named: usize) -> io::Result<Programs> {
        let Wishes {
            size,
            blocking,
            holds,
        } = wishes;
        // Elsewhere nobody has seen yet that they read the right registers; perf's rings do.
        if !cfg!(target_arch = "x86_64") {
            return Err(io::Error::other("no programs for this processor"));
        }
        sched::in_first_pid_namespace()?;
        let wanted = map(MAP_ARRAY, 2 * NUMBERS, 1, 0, None)?;
        let mut numbers = wanted::numbers(blocking);
        element(MAP_UPDATE, &wanted, &0u32, &mut numbers)?;
        let processes = map(MAP_HASH, 4, PROCESSES, NO_PREALLOCATION, None)?;
        let lost = map(MAP_ARRAY, size_of::<[u64; 3]>(), 1, 0, None)?;
        let count = perf::processors()?.last().map_or(1, |last| last + 1);
        let recent = map(MAP_ARRAY, count as usize * program::STRIDE, 1, 0, None)?;
        let ring = || map(MAP_RING, 0, size as u32, 0, None);
        let all = (0..count).map(|_| ring()).collect::<io::Result<Vec<_>>>()?;
        let array = match all.len() > named {
            true => Some(array_of(&all)?),
            false => None,
        };
        let each: Vec<_> = all.iter().map(AsFd::as_fd).collect();
        let maps = Maps {
            wanted: wanted.as_fd(),
            processes: processes.as_fd(),
            recent: recent.as_fd(),
            processors: count,
            rings: match &array {
                Some(array) => Rings::Array(array.as_fd()),
                None => Rings::Each(&each),
            },
            lost: lost.as_fd(),
            hold_above: holds.then_some(size as u32 / 2),
        };
        let entries = load(&program::assemble(Which::Entries, &maps))?;
        let returns = load(&program::assemble(Which::Returns, &maps))?;
        let processes = Arc::new(Processes {
            all: processes,
            recent,
            processors: count,
        });
        processes.follow(pid, false);
        let mut held = vec![
            attach(c"sys_enter", &entries)?,
            attach(c"sys_exit", &returns)?,
            wanted,
            entries,
            returns,
        ];
        held.extend(array);
        let all = all.into_iter().map(|map| Ring::map(map, size));
        Ok(Programs {
            rings: all.collect::<io::Result<_>>()?,
            processes,
            lost,
            known: [0; 3],
            _held: held,
        })
    }

    pub(super) fn processes(&self) -> Arc<Processes> {
        Arc::clone(&self.processes)
    }

    /// Hands over the records that wait. Returns how many found no room since the last time, or a little
    /// earlier than the last that is handed over.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        for ring in &mut self.rings {
            ring.drain(|record| {
                if let Some(sample) = decode(record) {
                    take(sample);
                }
            });
        }
        // Read after the rings, so that nothing is taken for complete that comes after a loss.
        let mut now = self.known;
        let read = element(MAP_LOOK_UP, &self.lost, &0u32, &mut now);
        let before = std::mem::replace(&mut self.known, now);
        match read {
            Ok(()) => now.iter().sum::<u64>() - before.iter().sum::<u64>(),
            Err(_) => 0,
        }
    }

    /// How many entries of calls found no room so far, as of the last look: of those that move data, and of others.
    pub(super) fn lost_entries(&self) -> Dropped {
        let [data, _, others] = self.known;
        Dropped { data, others }
    }
}

/// What a program wrote. `None`: cut short.
fn decode(record: &[u8]) -> Option<Sample> {
    let word = |at: usize| bytes(record, at).map(u64::from_ne_bytes);
    let half = |at: usize| bytes(record, at).map(u32::from_ne_bytes);
    let what = match record.len() {
        program::ENTRY => {
            let mut arguments = [0; 6];
            for (argument, place) in arguments.iter_mut().zip(program::ORDER) {
                *argument = word(program::REST + 8 * place)?;
            }
            What::Enters(arguments)
        }
        program::SHORT_ENTRY => {
            let mut arguments = [0; 6];
            for (argument, place) in arguments.iter_mut().zip(&program::ORDER[..3]) {
                *argument = word(program::REST + 8 * (place - program::FEW))?;
            }
            What::Enters(arguments)
        }
        program::FOREIGN_ENTRY => {
            let mut arguments = [0; 6];
            for (argument, place) in arguments.iter_mut().zip(program::FOREIGN_ORDER) {
                // Registers of 32 bits.
                *argument = word(program::REST + 8 * place)? & u64::from(u32::MAX);
            }
            What::Enters(arguments)
        }
        program::RETURN => What::Returns(word(program::REST)?.cast_signed()),
        _ => return None,
    };
    Some(Sample {
        at: word(program::AT)?,
        tid: half(program::TID)?,
        number: half(program::NUMBER)?,
        what,
    })
}

/// Makes an array of these rings.
fn array_of(rings: &[OwnedFd]) -> io::Result<OwnedFd> {
    let first = rings.first();
    let first = first.ok_or_else(|| io::Error::other("no processor"))?;
    let array = map(MAP_ARRAY_OF_MAPS, 4, rings.len() as u32, 0, Some(first))?;
    for (cpu, ring) in (0..).zip(rings) {
        let mut ring = ring.as_raw_fd() as u32;
        element(MAP_UPDATE, &array, &cpu, &mut ring)?;
    }
    Ok(array)
}

/// Makes a map whose keys, if it has any, are 32-bit numbers.
fn map(
    kind: u32,
    value: usize,
    entries: u32,
    flags: u32,
    inner: Option<&OwnedFd>,
) -> io::Result<OwnedFd> {
    let has_keys = kind != MAP_RING;
    let attributes = NewMap {
        kind,
        key: if has_keys { 4 } else { 0 },
        value: value as u32,
        entries,
        flags,
        inner: inner.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    descriptor(MAP_CREATE, &attributes)
}

/// Reads or writes an element of a map whose values have the size of `value`.
fn element<T: Copy>(
    command: libc::c_int,
    map: &OwnedFd,
    key: &u32,
    value: &mut T,
) -> io::Result<()> {
    let attributes = Element {
        map: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(key) as u64,
        value: std::ptr::from_mut(value) as u64,
        ..Element::default()
    };
    bpf(command, &attributes).map(drop)
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    // What the kernel's helpers ask of whoever uses them; these lines of ours are under both.
    const LICENSE: &CStr = c"Dual MIT/GPL";
    let attributes = NewProgram {
        kind: PROGRAM_RAW_TRACEPOINT,
        length: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        ..NewProgram::default()
    };
    descriptor(PROGRAM_LOAD, &attributes)
}

fn attach(tracepoint: &CStr, program: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = Attach {
        name: tracepoint.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        padding: 0,
    };
    descriptor(RAW_TRACEPOINT_OPEN, &attributes)
}

fn descriptor<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let made = bpf(command, attributes)?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads the attributes for as long as told, and what they point at outlives the
    // call; it writes to the value of a look-up alone, which `element` borrows for writing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match result {
        0.. => Ok(result as libc::c_int),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
