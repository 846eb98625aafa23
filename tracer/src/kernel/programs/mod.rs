//! Records of calls by two small programs in the kernel, at the tracepoints `sys_enter` and
//! `sys_exit`: what [`super::perf`] tells, at less than half of its cost for the caller (a record costs it
//! some 0.35 µs instead of 0.95). They pick calls by their number and callers by their process,
//! whose ids we tell them, and end with the descriptors that are held here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::dropped::Dropped;
use super::sample::{Carried, OpenId, Sample, What, bytes};
use super::sched;
use crate::bpf::followed::Followed;
use crate::bpf::ring::Ring;
use crate::bpf::{Kind, Map, attach, load};
use crate::side_by_side::{both, side_by_side};

mod blocked;
mod carried;
mod memory;
mod program;
mod switches;
mod wanted;

use program::{Maps, NUMBERS, Rings, Which};
pub(super) use switches::Switches;

/// Rings that the programs name one by one; with more processors they are in an array.
const NAMED: usize = 16;

/// The processes whose calls are told.
#[derive(Debug)]
pub(super) struct Processes {
    all: Followed,
    /// Which of them made the last call on each processor.
    recent: Map,
    processors: u32,
}

impl Processes {
    /// Tells of the calls of process `pid`, which does not run now, from now on; `foreign`: they have the
    /// numbers of another architecture. What finds no room is not seen, which the books of its image will show.
    pub(super) fn follow(&self, pid: u32, foreign: bool) {
        self.all.follow(pid, foreign);
    }

    /// Process `pid`, which does not run now, runs another program.
    pub(super) fn executed(&self, pid: u32, foreign: bool) {
        self.follow(pid, foreign);
        self.look_up_again();
    }

    /// Process `pid` is over.
    pub(super) fn forget(&self, pid: u32) {
        self.all.forget(pid);
        // Its id may be given to somebody else.
        self.look_up_again();
    }

    /// Whoever comes next on each processor is looked up.
    fn look_up_again(&self) {
        let none = vec![0u8; self.processors as usize * program::STRIDE];
        let _ = self.recent.put(0, none.as_slice());
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
    /// Other programs name the processes, as soon as they are forked, and what they run.
    pub(super) are_named: bool,
}

/// The programs at work.
#[derive(Debug)]
pub(crate) struct Programs {
    rings: Vec<Ring>,
    /// Who is to be told of processes; `None`: others name them.
    processes: Option<Arc<Processes>>,
    wanted: Map,
    tells_messages: bool,
    lost: Map,
    /// What was lost up to the last look: entries of calls that move data, returns, other entries.
    known: [u64; 3],
    /// Held open: the programs and what they use live as long.
    held: (Vec<OwnedFd>, Vec<Map>),
}

impl Programs {
    /// Begins to tell of the calls of processes that are or will be `followed`, as `wishes` say.
    ///
    /// # Errors
    /// When the kernel refuses such programs, or counts processes otherwise than we do.
    pub(super) fn open(followed: Followed, wishes: Wishes) -> io::Result<Programs> {
        Self::open_with(followed, wishes, NAMED)
    }

    /// Up to `named` rings are named one by one.
    fn open_with(followed: Followed, wishes: Wishes, named: usize) -> io::Result<Programs> {
        let Wishes {
            size,
            blocking,
            holds,
            are_named,
        } = wishes;
        // Elsewhere nobody has seen yet that they read the right registers; perf's rings do.
        if !crate::bpf::registers::ARE_KNOWN {
            return Err(io::Error::other("no programs for this processor"));
        }
        sched::in_first_pid_namespace()?;
        let wanted = Map::new(Kind::Array, 2 * NUMBERS, 1)?;
        wanted.put(0, &wanted::numbers(blocking))?;
        let lost = Map::new(Kind::Array, size_of::<[u64; 3]>(), 1)?;
        let count = super::processors()?;
        let recent = || Map::new(Kind::Array, count as usize * program::STRIDE, 1);
        let recent = (!are_named).then(recent).transpose()?;
        let layout = carried::Layout::of_kernel();
        let memory = Map::new(Kind::Array, count as usize * carried::MEMORY, 1)?;
        let (all, array) = rings(count, size, named)?;
        let each: Vec<_> = all.iter().map(AsFd::as_fd).collect();
        let maps = Maps {
            wanted: wanted.as_fd(),
            processes: followed.as_fd(),
            recent: recent.as_ref().map(AsFd::as_fd),
            processors: count,
            rings: match &array {
                Some(array) => Rings::Array(array.as_fd()),
                None => Rings::Each(&each),
            },
            lost: lost.as_fd(),
            layout,
            memory: memory.as_fd(),
            hold_above: holds.then_some(size as u32 / 2),
        };
        let load = |which| load(&program::assemble(which, &maps));
        let (entries, returns) = both(|| load(Which::Entries), || load(Which::Returns));
        let (entries, returns) = (entries?, returns?);
        let processes = recent.map(|recent| {
            Arc::new(Processes {
                all: followed,
                recent,
                processors: count,
            })
        });
        let programs = vec![
            attach(c"sys_enter", &entries)?,
            attach(c"sys_exit", &returns)?,
            entries,
            returns,
        ];
        let mut maps = vec![memory];
        maps.extend(array);
        let all = all.into_iter().map(|map| Ring::map(map, size));
        Ok(Programs {
            rings: all.collect::<io::Result<_>>()?,
            processes,
            wanted,
            tells_messages: layout.is_some(),
            lost,
            known: [0; 3],
            held: (programs, maps),
        })
    }

    /// Whether it tells what messages carry.
    pub(super) fn tells_messages(&self) -> bool {
        self.tells_messages
    }

    /// From now on tells no more of calls that do nothing but perhaps block.
    pub(super) fn leave_out_blocking(&self) {
        // If that fails, what is told is more than is needed.
        let _ = self.wanted.put(0, &wanted::numbers(false));
    }

    /// All that holds the programs at their tracepoints.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held.0.iter().map(AsFd::as_fd)
    }

    pub(super) fn processes(&self) -> Option<Arc<Processes>> {
        self.processes.clone()
    }

    /// Hands over the records that wait. Returns how many found no room since the last time, or a little
    /// earlier than the last that is handed over.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        for ring in &mut self.rings {
            let _ = ring.drain(|record| {
                if let Some(sample) = decode(record) {
                    take(sample);
                }
            });
        }
        // Read after the rings, so that nothing is taken for complete that comes after a loss.
        let Ok(now) = self.lost.get(0) else {
            return 0;
        };
        let before = std::mem::replace(&mut self.known, now);
        now.iter().sum::<u64>() - before.iter().sum::<u64>()
    }

    /// How many entries of calls found no room so far, as of the last look: of those that move data, and of others.
    pub(super) fn lost_entries(&self) -> Dropped {
        let [data, _, others] = self.known;
        Dropped { data, others }
    }
}

/// A ring of `size` bytes for each processor, and where there are more than `named` an array of them.
fn rings(processors: u32, size: usize, named: usize) -> io::Result<(Vec<Map>, Option<Map>)> {
    // The kernel clears them, and the command begins after that.
    let rings = (0..processors).map(|_| || Map::new(Kind::Ring, 0, size as u32));
    let all: Vec<Map> = side_by_side(rings).into_iter().collect::<io::Result<_>>()?;
    let array = (all.len() > named).then(|| Map::array_of(&all));
    Ok((all, array.transpose()?))
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
        program::CARRIED => {
            let of_carried = |n: usize| word(program::REST + 8 * n);
            What::Carries(Carried {
                fd: of_carried(0)?,
                open: OpenId {
                    address: of_carried(1)?,
                    inode: of_carried(2)?,
                },
                mode: of_carried(3)? as u32,
            })
        }
        _ => return None,
    };
    Some(Sample {
        at: word(program::AT)?,
        tid: half(program::TID)?,
        number: half(program::NUMBER)?,
        what,
    })
}

#[cfg(test)]
mod tests;
