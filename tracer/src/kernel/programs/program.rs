//! The two programs, in the machine language of the kernel (Documentation/bpf/standardization).

use std::os::fd::BorrowedFd;

use super::layout::Layout;
use crate::bpf::code::{
    ADD, AND_NUMBER, ATOMIC_64, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, IF_NOT_SAME,
    IF_SAME, Instruction, JUMP, LOAD_8, LOAD_32, LOAD_64, LOOK_UP, MAP, MEMORY_OF_MAP, OR,
    OR_NUMBER, PROCESSOR, R0, R1, R2, R3, SHIFT_LEFT, SHIFT_RIGHT, SIGNAL_THREAD, STACK, STORE_32,
    STORE_64, TASK, TIME, WHO,
};
use crate::bpf::followed::Processes;
use crate::bpf::lanes::{Places, Writing};
pub(super) use crate::bpf::registers::ORDER;
use crate::bpf::{followed, registers};

/// What the programs use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps<'a> {
    /// One byte for each number of a call: [`ENTERS`], [`RETURNS`]; first those of this architecture, then
    /// those of the other.
    pub(super) wanted: BorrowedFd<'a>,
    /// The processes that are followed ([`crate::bpf::followed`]).
    pub(super) processes: Processes<'a>,
    /// A line of [`STRIDE`] bytes for each processor: of the last calls there.
    pub(super) last: BorrowedFd<'a>,
    /// How many processors there are.
    pub(super) processors: u32,
    pub(super) lanes: Writing<'a>,
    /// Words at [`LOST_DATA`], [`LOST_RETURNS`] and [`LOST_OTHERS`].
    pub(super) lost: BorrowedFd<'a>,
    /// Where a task has its status. `None`: the kernel does not tell.
    pub(super) status: Option<i32>,
    /// Where the kernel has a caller's open files. `None`: it is not told which of them messages carry.
    pub(super) layout: Option<Layout>,
    /// For each processor [`super::carried::MEMORY`] bytes.
    pub(super) memory: BorrowedFd<'a>,
    /// What is run after each return.
    pub(super) successor: BorrowedFd<'a>,
    /// Records in a ring above which whoever makes a call there is stopped; `None`: nobody is.
    pub(super) hold_above: Option<u32>,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Entries,
    Returns,
}

/// Numbers of calls are below; those of the other architecture are told as so many more.
pub(super) const NUMBERS: usize = 512;
/// Bits of [`Maps::wanted`].
pub(super) const ENTERS: u8 = 1;
pub(super) const RETURNS: u8 = 2;
/// Beside [`ENTERS`]: its first three arguments are all that matters.
pub(super) const SHORT: u8 = 4;
/// Its second argument is the address of lengths, as many as the third says; or of a message with such.
pub(super) const VECTOR: u8 = 8;
pub(super) const MESSAGE: u8 = 16;
/// The second and fourth arguments, or the third, are addresses of offsets.
pub(super) const OFFSETS: u8 = 32;
pub(super) const OFFSET: u8 = 64;
/// It moves data.
pub(super) const DATA: u8 = 128;
/// Bytes between the lines of [`Maps::last`]: no processor writes to the lines of another.
pub(super) const STRIDE: usize = 64;
const STRIDE_BITS: i32 = 6;
/// In them: the followed process that made the last call, and how often any had changed then; thread and number of the last call of which the entry was told, until its
/// return is. What is there of who has gone elsewhere meanwhile does no harm: it is not the same thread, or it is not in the same call.
const PROCESS: i16 = 0;
const THREAD: i16 = 8;
const CALL: i16 = 12;
const CHANGES: i16 = 16;

/// Places in [`Maps::lost`]: of entries of calls that move data, of returns and what messages carry, and of other entries that found no
/// room.
const LOST_DATA: i16 = 0;
pub(super) const LOST_RETURNS: i16 = 8;
const LOST_OTHERS: i16 = 16;

/// A record: time, id of the thread, and either arguments or the result, or what is carried by a message:
/// the descriptor, the address of its open file, and number and mode of the inode; or how many bytes several messages have.
pub(super) const AT: usize = 0;
pub(super) const TID: usize = 8;
pub(super) const REST: usize = 16;
/// What marks it: the number of the call, and in the bits above what it is.
pub(super) const KIND_BITS: u32 = 10;
pub(super) const ENTRY: u16 = 1;
/// The first three arguments alone.
pub(super) const SHORT_ENTRY: u16 = 2;
/// Of a call of the other architecture.
pub(super) const FOREIGN_ENTRY: u16 = 3;
pub(super) const RETURN: u16 = 4;
pub(super) const CARRIED: u16 = 5;
pub(super) const MOVED: u16 = 6;
/// Arguments that a call may have, and of some those that matter.
pub(super) const SIX: usize = 6;
pub(super) const THREE: usize = 3;

/// Registers that calls of helpers keep.
pub(super) const CONTEXT: u8 = 6;
pub(super) const NUMBER_OF_CALL: u8 = 7;
const CALLER: u8 = 8;
/// Until there is a record.
pub(super) const CPU: u8 = 9;
pub(super) const RECORD: u8 = 9;
/// Places on the stack.
const KEY: i16 = -4;
pub(super) const WORD: i16 = -16;
pub(super) const WANTED: i16 = -24;
/// The caller's registers, where some hold addresses of what is told in their place.
pub(super) const COPIES: i16 = FOREIGN - REGISTERS as i16;
/// [`NUMBERS`] if the caller's calls have the numbers of the other architecture, else 0.
const FOREIGN: i16 = WANTED - 8;
/// The number of the processor, where there are no copies or they are of no use any more.
pub(super) const HERE: i16 = COPIES;
/// How often processes had changed when the caller's was looked up: before either.
const CHANGED: i16 = COPIES;
/// While a record is written.
const PLACES: Places = Places {
    index: KEY,
    round: -8,
};
/// Bytes of the registers that hold the arguments.
pub(super) const REGISTERS: usize = 64;

impl Code {
    /// Looks up the 32-bit number at [`KEY`]; what is found is in R0. Leaves if there is nothing.
    fn look_up(&mut self, map: BorrowedFd<'_>) {
        self.map(R1, MAP, map);
        self.stack(R2, KEY);
        self.call(LOOK_UP);
        self.leave_if(IF_EQUAL, R0, 0);
    }

    /// Puts the address of this processor's line in [`Maps::last`] into R1.
    fn last(&mut self, last: BorrowedFd<'_>) {
        self.map(R1, MEMORY_OF_MAP, last);
        self.copy(R2, CPU);
        self.put(SHIFT_LEFT, R2, 0, 0, STRIDE_BITS);
        self.put(ADD, R1, R2, 0, 0);
    }

    /// Finds out who makes the call, and where; puts the address of that processor's line into R1.
    fn caller(&mut self, maps: &Maps<'_>) {
        self.set(R1, 0);
        self.put(STORE_64, STACK, R1, FOREIGN, 0);
        self.call(WHO);
        self.copy(CALLER, R0);
        self.call(PROCESSOR);
        self.copy(CPU, R0);
        self.leave_if(IF_GREATER, CPU, maps.processors.cast_signed() - 1);
        self.last(maps.last);
    }

    /// Leaves unless the [`Code::caller`]'s process is followed. Mostly it is the one that made the last call on
    /// its processor, which takes no look-up; those of the other architecture are always looked up.
    fn only_followed(&mut self, maps: &Maps<'_>) {
        self.copy(R3, CALLER);
        self.put(SHIFT_RIGHT, R3, 0, 0, 32);
        self.put(STORE_32, STACK, R3, KEY, 0);
        self.map(R2, MEMORY_OF_MAP, maps.processes.changes);
        self.load(R2, R2, 0);
        self.put(STORE_64, STACK, R2, CHANGED, 0);
        self.load(R0, R1, CHANGES as usize);
        let changed = self.jump(IF_NOT_SAME, R0, R2, 0);
        self.put(LOAD_32, R2, R1, PROCESS, 0);
        let known = self.jump(IF_SAME, R2, R3, 0);
        self.land(changed);
        self.look_up(maps.processes.all);
        self.put(LOAD_32, R2, R0, 0, 0);
        self.leave_if(IF_EQUAL, R2, followed::OVER as i32);
        let native = self.jump(IF_NOT_EQUAL, R2, 0, followed::FOREIGN as i32);
        self.set(R1, NUMBERS as i32);
        self.put(STORE_64, STACK, R1, FOREIGN, 0);
        let foreign = self.jump(JUMP, 0, 0, 0);
        self.land(native);
        self.last(maps.last);
        self.put(LOAD_32, R3, STACK, KEY, 0);
        self.put(STORE_32, R1, R3, PROCESS, 0);
        self.put(LOAD_64, R2, STACK, CHANGED, 0);
        self.put(STORE_64, R1, R2, CHANGES, 0);
        self.land(known);
        self.land(foreign);
    }

    /// Jumps if a program of this architecture makes a call with the numbers of the other, whose number is told as such from there on. It is told
    /// whatever it is: nothing follows what such calls do.
    fn other_numbers(&mut self, maps: &Maps<'_>) -> Option<usize> {
        let status = maps.status?;
        self.put(LOAD_64, R1, STACK, FOREIGN, 0);
        let foreign = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        // That takes no helper, and is so mostly.
        self.load(R3, CONTEXT, 0);
        self.load(R1, R3, registers::INSTRUCTION);
        self.load(R2, R3, registers::SAME_INSTRUCTION);
        let same = self.jump(IF_SAME, R1, R2, 0);
        self.set(R1, 0);
        self.put(STORE_64, STACK, R1, WANTED, 0);
        self.put(STORE_64, STACK, R1, WORD, 0);
        self.call(TASK);
        self.read_kernel(STACK, WORD, 4, R0, status);
        self.put(LOAD_64, R1, STACK, WORD, 0);
        self.put(AND_NUMBER, R1, 0, 0, registers::COMPATIBLE);
        let native = self.jump(IF_EQUAL, R1, 0, 0);
        self.add(NUMBER_OF_CALL, NUMBERS as i32);
        let told = self.jump(JUMP, 0, 0, 0);
        for jump in [foreign, same, native] {
            self.land(jump);
        }
        Some(told)
    }

    /// The entry of the call is told: its return needs no look-up.
    fn entered(&mut self, maps: &Maps<'_>) {
        self.last(maps.last);
        self.put(STORE_32, R1, CALLER, THREAD, 0);
        self.put(STORE_32, R1, NUMBER_OF_CALL, CALL, 0);
    }

    /// Jumps if the entry of the call that returns was told on this processor, whose line is at R1, and nothing else since.
    fn has_entered(&mut self) -> usize {
        self.put(LOAD_32, R2, R1, THREAD, 0);
        self.copy(R3, CALLER);
        self.put(SHIFT_LEFT, R3, 0, 0, 32);
        self.put(SHIFT_RIGHT, R3, 0, 0, 32);
        let other_thread = self.jump(IF_NOT_SAME, R2, R3, 0);
        self.put(LOAD_32, R2, R1, CALL, 0);
        let other_call = self.jump(IF_NOT_SAME, R2, NUMBER_OF_CALL, 0);
        self.set(R2, 0);
        self.put(STORE_32, R1, R2, THREAD, 0);
        let same = self.jump(JUMP, 0, 0, 0);
        self.land(other_thread);
        self.land(other_call);
        same
    }

    /// Writes a record of this kind to the ring of processor [`CPU`]: `rest`, which finds it in [`RECORD`], adds what is not common
    /// to all. Returns the jumps for those that find no room.
    pub(super) fn record(
        &mut self,
        kind: u16,
        maps: &Maps<'_>,
        rest: impl FnOnce(&mut Code),
    ) -> [usize; 2] {
        self.lane(CPU, maps.lanes);
        let full = self.take_slot(RECORD, CPU, PLACES, maps.lanes);
        self.call(TIME);
        self.put(STORE_64, RECORD, R0, AT as i16, 0);
        self.put(STORE_32, RECORD, CALLER, TID as i16, 0);
        rest(self);
        self.copy(R2, NUMBER_OF_CALL);
        self.put(OR_NUMBER, R2, 0, 0, i32::from(kind) << KIND_BITS);
        self.complete(RECORD, R2, PLACES);
        full
    }

    /// Copies what the caller's registers have at these offsets into the record.
    fn registers(&mut self, offsets: &[usize]) {
        self.load(R3, CONTEXT, 0);
        for (n, offset) in offsets.iter().enumerate() {
            self.load(R1, R3, *offset);
            self.put(STORE_64, RECORD, R1, (REST + 8 * n) as i16, 0);
        }
    }

    /// Stops the caller, whose call is done, if there are more records in the ring than this. Its tracer takes the signal
    /// away again, when there is room: the caller never sees it.
    fn hold(&mut self, above: u32, maps: &Maps<'_>) {
        self.put(LOAD_64, CPU, STACK, HERE, 0);
        self.lane(CPU, maps.lanes);
        self.waiting();
        let room = self.jump(IF_LESS, R3, 0, above.cast_signed());
        self.set(R1, libc::SIGSTOP);
        self.call(SIGNAL_THREAD);
        self.land(room);
    }

    /// Jumps unless the call has one of these bits.
    pub(super) fn unless(&mut self, bits: u8) -> usize {
        self.put(LOAD_64, R2, STACK, WANTED, 0);
        self.put(AND_NUMBER, R2, 0, 0, i32::from(bits));
        self.jump(IF_EQUAL, R2, 0, 0)
    }

    /// Adds one to a counter.
    pub(super) fn count(&mut self, counters: BorrowedFd<'_>, at: i16) {
        self.map(R1, MEMORY_OF_MAP, counters);
        self.set(R2, 1);
        self.put(ATOMIC_64, R1, R2, at, 0);
    }

    /// Leaves unless entries of calls with this number are wanted of either architecture.
    fn only_wanted_of_any(&mut self, maps: &Maps<'_>) {
        self.leave_if(IF_GREATER, NUMBER_OF_CALL, NUMBERS as i32 - 1);
        self.map(R1, MEMORY_OF_MAP, maps.wanted);
        self.put(ADD, R1, NUMBER_OF_CALL, 0, 0);
        self.put(LOAD_8, R0, R1, 0, 0);
        self.put(LOAD_8, R2, R1, NUMBERS as i16, 0);
        self.put(OR, R0, R2, 0, 0);
        self.put(AND_NUMBER, R0, 0, 0, i32::from(ENTERS));
        self.leave_if(IF_EQUAL, R0, 0);
    }

    /// Leaves unless entries of the caller's call are wanted. Its number is told of its architecture from here on.
    fn only_wanted(&mut self, maps: &Maps<'_>) {
        self.leave_if(IF_GREATER, NUMBER_OF_CALL, NUMBERS as i32 - 1);
        self.put(LOAD_64, R1, STACK, FOREIGN, 0);
        self.put(ADD, NUMBER_OF_CALL, R1, 0, 0);
        self.leave_if(IF_GREATER, NUMBER_OF_CALL, 2 * NUMBERS as i32 - 1);
        self.map(R1, MEMORY_OF_MAP, maps.wanted);
        self.put(ADD, R1, NUMBER_OF_CALL, 0, 0);
        self.put(LOAD_8, R0, R1, 0, 0);
        self.put(STORE_64, STACK, R0, WANTED, 0);
        self.put(AND_NUMBER, R0, 0, 0, i32::from(ENTERS));
        self.leave_if(IF_EQUAL, R0, 0);
    }
}

/// Makes one of the programs.
///
/// The context is an array of two words, which are the registers and the number of the call, or the registers and its result.
pub(super) fn assemble(which: Which, maps: &Maps<'_>) -> Vec<Instruction> {
    let mut code = Code::default();
    code.copy(CONTEXT, R1);
    match which {
        Which::Entries => entry(&mut code, maps),
        Which::Returns => returning(&mut code, maps),
    }
    code.all
}

fn entry(code: &mut Code, maps: &Maps<'_>) {
    let all: [usize; SIX] = std::array::from_fn(registers::argument);
    let foreign: [usize; SIX] = std::array::from_fn(registers::foreign_argument);
    code.load(NUMBER_OF_CALL, CONTEXT, 8);
    code.only_wanted_of_any(maps);
    code.caller(maps);
    code.only_followed(maps);
    let by_other_way = code.other_numbers(maps);
    code.only_wanted(maps);
    code.put(LOAD_64, R1, STACK, FOREIGN, 0);
    let is_foreign = code.jump(IF_NOT_EQUAL, R1, 0, 0);
    code.entered(maps);
    let plain = code.unless(VECTOR | MESSAGE | OFFSETS | OFFSET);
    code.copy_told();
    let told = code.record(ENTRY, maps, |code| {
        for (n, register) in ORDER.into_iter().enumerate() {
            code.put(LOAD_64, R1, STACK, COPIES + 8 * register as i16, 0);
            code.put(STORE_64, RECORD, R1, (REST + 8 * n) as i16, 0);
        }
    });
    let sends = code.jump(IF_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_sendmsg as i32);
    code.leave();
    code.land(plain);
    let long = code.unless(SHORT);
    let short = code.record(SHORT_ENTRY, maps, |code| code.registers(&all[..THREE]));
    code.leave();
    code.land(long);
    let long = code.record(ENTRY, maps, |code| code.registers(&all));
    let sends_several = code.jump(IF_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_sendmmsg as i32);
    code.leave();
    code.land(sends);
    code.land(sends_several);
    if let Some(layout) = maps.layout {
        code.sends(layout, maps);
    }
    code.leave();
    code.land(is_foreign);
    by_other_way.into_iter().for_each(|jump| code.land(jump));
    let foreign = code.record(FOREIGN_ENTRY, maps, |code| code.registers(&foreign));
    code.leave();
    // No room: it is counted.
    for jump in [told, short, long, foreign].into_iter().flatten() {
        code.land(jump);
    }
    let others = code.unless(DATA);
    code.count(maps.lost, LOST_DATA);
    code.leave();
    code.land(others);
    code.count(maps.lost, LOST_OTHERS);
    code.leave();
}

/// A call returned: of some that is told, and of all whether the ring is filling up.
fn returning(code: &mut Code, maps: &Maps<'_>) {
    code.load(R3, CONTEXT, 0);
    code.load(NUMBER_OF_CALL, R3, registers::NUMBER);
    code.only_wanted_of_any(maps);
    code.caller(maps);
    let entered = code.has_entered();
    if maps.hold_above.is_some() {
        // Nobody but who is followed is stopped, whoever had the id of its thread before.
        code.land(entered);
        code.only_followed(maps);
    } else {
        code.only_followed(maps);
        code.land(entered);
    }
    code.only_wanted(maps);
    code.put(STORE_64, STACK, CPU, HERE, 0);
    let untold = code.unless(RETURNS);
    if let Some(layout) = maps.layout {
        code.receives(layout, maps);
    }
    code.several(maps);
    code.put(LOAD_64, CPU, STACK, HERE, 0);
    let full = code.record(RETURN, maps, |code| {
        code.load(R1, CONTEXT, 8);
        code.put(STORE_64, RECORD, R1, REST as i16, 0);
    });
    let told = code.jump(JUMP, 0, 0, 0);
    // No room: it is counted.
    full.into_iter().for_each(|full| code.land(full));
    code.count(maps.lost, LOST_RETURNS);
    code.land(told);
    code.land(untold);
    if let Some(above) = maps.hold_above {
        code.hold(above, maps);
    }
    code.leave_to(CONTEXT, maps.successor);
}
