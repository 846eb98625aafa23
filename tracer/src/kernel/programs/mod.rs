//! Records of calls by two small programs in the kernel, at the tracepoints `sys_enter` and
//! `sys_exit`: what [`super::perf`] tells, at less than half of its cost for the caller (a record costs it
//! some 0.35 µs instead of 0.95). They pick calls by their number and callers by their process,
//! whose ids we tell them, and end with the descriptors that are held here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::dropped::Dropped;
use super::sample::{Carried, OpenId, Sample, What, bytes};
use crate::bpf::btf::Types;
use crate::bpf::followed::Followed;
use crate::bpf::lanes::{Lanes, SLOT};
use crate::bpf::successor::Successor;
use crate::bpf::{Kind, Map, attach_typed, load_typed};
use crate::side_by_side::both;

mod blocked;
mod carried;
mod layout;
mod memory;
mod program;
mod several;
mod switches;
mod wanted;

use program::{Maps, NUMBERS, Which};
pub(super) use switches::Switches;

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
    lanes: Lanes,
    /// Who is to be told of processes; `None`: others name them.
    processes: Option<Followed>,
    wanted: Map,
    tells_messages: bool,
    lost: Map,
    /// How much of the fullest ring was in use at the last look.
    used: f64,
    /// What was lost up to the last look: entries of calls that move data, returns, other entries.
    known: [u64; 3],
    successor: Successor,
    /// Held open: the programs and what they use live as long.
    held: (Vec<OwnedFd>, [Map; 2]),
}

impl Programs {
    /// Begins to tell of the calls of processes that are or will be `followed`, as `wishes` say.
    ///
    /// # Errors
    /// When the kernel refuses such programs, or counts processes otherwise than we do.
    pub(super) fn open(followed: Followed, wishes: Wishes) -> io::Result<Programs> {
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
        crate::linux::in_first_pid_namespace()?;
        let wanted = Map::new(Kind::Array, 2 * NUMBERS, 1)?;
        wanted.put(0, &wanted::numbers(blocking))?;
        let lost = Map::new(Kind::Array, size_of::<[u64; 3]>(), 1)?;
        let count = crate::cpus::array_length()?;
        let last = Map::new(Kind::Array, count as usize * program::STRIDE, 1)?;
        let types = Types::of_kernel()?;
        let layout = layout::Layout::of_kernel();
        let memory = Map::new(Kind::Array, count as usize * carried::MEMORY, 1)?;
        let lanes = Lanes::new(count, size)?;
        let successor = Successor::new()?;
        let maps = Maps {
            wanted: wanted.as_fd(),
            processes: followed.for_programs(),
            last: last.as_fd(),
            processors: count,
            lanes: lanes.writing(),
            lost: lost.as_fd(),
            status: types.displacement("task_struct", "thread_info.status"),
            layout,
            memory: memory.as_fd(),
            successor: successor.as_fd(),
            hold_above: holds.then_some((size / SLOT) as u32 / 2),
        };
        let load = |which, function| {
            let missing = || io::Error::other(format!("this kernel has no {function}"));
            let function = types.typedef(function).ok_or_else(missing)?;
            load_typed(&program::assemble(which, &maps), function)
        };
        let (entries, returns) = both(
            || load(Which::Entries, "btf_trace_sys_enter"),
            || load(Which::Returns, "btf_trace_sys_exit"),
        );
        let (entries, returns) = (entries?, returns?);
        let programs = vec![
            attach_typed(&entries)?,
            attach_typed(&returns)?,
            entries,
            returns,
        ];
        Ok(Programs {
            lanes,
            processes: (!are_named).then_some(followed),
            wanted,
            tells_messages: layout.is_some(),
            lost,
            used: 0.0,
            known: [0; 3],
            successor,
            held: (programs, [memory, last]),
        })
    }

    /// Whether it tells what messages carry.
    pub(super) fn tells_messages(&self) -> bool {
        self.tells_messages
    }

    /// What is run after each return.
    pub(super) fn successor(&self) -> &Successor {
        &self.successor
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

    pub(super) fn processes(&self) -> Option<Followed> {
        self.processes.clone()
    }

    /// Hands over the records that wait. Returns how many found no room since the last time, or a little
    /// earlier than the last that is handed over.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        self.used = self.lanes.drain(|mark, record| {
            if let Some(sample) = decode(mark, record) {
                take(sample);
            }
        });
        // Read after the rings, so that nothing is taken for complete that comes after a loss.
        let Ok(now) = self.lost.get(0) else {
            return 0;
        };
        let before = std::mem::replace(&mut self.known, now);
        now.iter().sum::<u64>() - before.iter().sum::<u64>()
    }

    /// How much of the fullest ring was in use at the last look, from 0 to 1.
    pub(super) fn used(&self) -> f64 {
        self.used
    }

    /// How many entries of calls found no room so far, as of the last look: of those that move data, and of others.
    pub(super) fn lost_entries(&self) -> Dropped {
        let [data, _, others] = self.known;
        Dropped { data, others }
    }
}

/// What a program wrote. `None`: nothing that is known.
fn decode(mark: u16, record: &[u8; SLOT]) -> Option<Sample> {
    let word = |at: usize| bytes(record, at).map(u64::from_ne_bytes);
    let of_rest = |n: usize| word(program::REST + 8 * n);
    let number = u32::from(mark) & ((1 << program::KIND_BITS) - 1);
    let what = match mark >> program::KIND_BITS {
        kind @ (program::ENTRY | program::SHORT_ENTRY | program::FOREIGN_ENTRY) => {
            // Behind those that were told is what the slot had before.
            let told = match kind {
                program::SHORT_ENTRY => program::THREE,
                _ => program::SIX,
            };
            let mut arguments = [0; program::SIX];
            for (n, argument) in arguments[..told].iter_mut().enumerate() {
                *argument = of_rest(n)?;
                if kind == program::FOREIGN_ENTRY {
                    // Registers of 32 bits.
                    *argument &= u64::from(u32::MAX);
                }
            }
            What::Enters(arguments)
        }
        program::RETURN => What::Returns(of_rest(0)?.cast_signed()),
        program::MOVED => What::Moved(of_rest(0)?),
        program::CARRIED => What::Carries(Carried {
            fd: of_rest(0)?,
            open: OpenId {
                address: of_rest(1)?,
                inode: of_rest(2)?,
            },
            mode: of_rest(3)? as u32,
        }),
        _ => return None,
    };
    Some(Sample {
        at: word(program::AT)?,
        tid: bytes(record, program::TID).map(u32::from_ne_bytes)?,
        number,
        what,
    })
}

#[cfg(test)]
mod tests;
