//! The programs, in the machine language of the kernel (Documentation/bpf/standardization). The context of each
//! is that of a raw tracepoint: an array of words, which are the arguments that the kernel gives to it.

use std::os::fd::BorrowedFd;

use flowtrace_schema::MOST_ARGUMENTS;

use super::layout::{self, Layout};
use super::memory::{
    HALTED_THREAD, HOW_MUCH, IDS, KEY, LIMIT, LYING, MISSING, MOUNT, OTHER, POSITION, PROCESS,
    RECORD, SPACE, WHERE, WORD, field,
};
use crate::bpf::code::{
    ADD, AND_NUMBER, ATOMIC_64, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, IF_NOT_SAME,
    Instruction, LOAD_32, LOAD_64, LOOK_UP, MAP, MEMORY_OF_MAP, NO_WAKEUP, OR, OUTPUT, QUERY, R0,
    R1, R2, R3, R4, SHIFT_LEFT, SHIFT_RIGHT, STACK, STORE_32, STORE_64, TIME, UPDATE, WAKEUP, WHO,
};
use crate::bpf::followed::{NATIVE, OVER, Processes};
use crate::bpf::pages::Pages;

/// What the programs use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps<'a> {
    /// The processes that are told of ([`crate::bpf::followed`]); `None`: all are.
    pub(super) processes: Option<Processes<'a>>,
    pub(super) ring: BorrowedFd<'a>,
    /// Bytes of the ring.
    pub(super) size: u32,
    /// A word: how many records found no room.
    pub(super) lost: BorrowedFd<'a>,
    /// [`super::memory::SCRATCH`] bytes for each processor.
    pub(super) scratch: BorrowedFd<'a>,
    /// How many processors there are.
    pub(super) processors: u32,
    /// A ring of its own by which whoever reads is woken.
    pub(super) bell: BorrowedFd<'a>,
    /// Another one, with what lies in pipes ([`super::contents`]).
    pub(super) contents: BorrowedFd<'a>,
    /// The sockets that were told for what they sent, by their inodes ([`super::sent`]).
    pub(super) sent: BorrowedFd<'a>,
    /// Where what lies in pipes is.
    pub(super) pages: Option<Pages>,
    /// Loops need no bound ([`Code::may_be_late`]).
    pub(super) endless: bool,
    /// Whether is told what processes have open when they fork, execute a program and end.
    pub(super) with_tables: bool,
}

/// What a record tells.
pub(super) const FORKED: u32 = 1;
pub(super) const EXECUTED: u32 = 2;
pub(super) const ENDED: u32 = 3;
/// Parts of an exec, which come before it. Each may come in several records.
pub(super) const EXECUTABLE: u32 = 4;
pub(super) const DIRECTORY: u32 = 5;
pub(super) const ARGUMENTS: u32 = 6;
pub(super) const ENVIRONMENT: u32 = 7;
/// Job control stops a thread.
pub(super) const STOPPED: u32 = 8;
/// The last thread of a process begins to end it: what is open is still there.
pub(super) const EXITING: u32 = 9;
/// Parts of an exec: the path of what is open as descriptor 0, and so on.
pub(super) const TARGETS: u32 = 10;
/// Descriptors that a shell can redirect by one digit.
pub(super) const NUMBERED: u32 = 10;
/// A part of a fork, an exec, and the begin of an end: all that is open.
pub(super) const TABLE: u32 = TARGETS + NUMBERED;
/// A part of an exec and the begin of an end: the same of the process that has it as a child.
pub(super) const TABLE_OF_PARENT: u32 = TABLE + 1;
/// Parts of a call, which come before it: the other one of two descriptors; the path of what it opened; the address of a socket; names
/// that it was given, and the directories that they are relative to.
pub(super) const SECOND: u32 = TABLE_OF_PARENT + 1;
pub(super) const OPENED: u32 = SECOND + 1;
pub(super) const ADDRESS: u32 = OPENED + 1;
pub(super) const NAMES: [u32; 2] = [ADDRESS + 1, ADDRESS + 2];
pub(super) const BASES: [u32; 2] = [ADDRESS + 3, ADDRESS + 4];
/// A call has returned.
pub(super) const CALLED: u32 = BASES[1] + 1;
/// A thread that executed a program while its processor's clock stood still leaves that.
pub(super) const LEFT: u32 = CALLED + 1;

/// A record: time, thread, process, what it is, and a number; then what is not common to all.
pub(super) const AT: usize = 0;
pub(super) const TID: usize = 8;
pub(super) const PID: usize = 12;
pub(super) const WHAT: usize = 16;
pub(super) const NUMBER: usize = 20;
pub(super) const REST: usize = 24;

/// Of a fork: ids of the new thread and its process, how many pid namespaces it is in below the first one, and its id in the
/// innermost.
pub(super) const CHILD_TID: usize = REST;
pub(super) const CHILD_PID: usize = REST + 4;
pub(super) const LEVEL: usize = REST + 8;
pub(super) const INNER: usize = REST + 16;
pub(super) const FORK: usize = REST + 24;
/// Bytes of an id in a namespace (`struct upid`), as a power of 2.
const ID_BITS: i32 = 4;
/// More namespaces within each other than there may be (`MAX_PID_NS_LEVEL`).
const LEVELS: i32 = 32;
/// Of an exec and an end: what the thread used, and the most memory of its process, pages.
pub(super) const COSTS: usize = REST;
pub(super) const PEAK: usize = COSTS + 8 * layout::COSTS.len();
/// The processor that it is on.
pub(super) const PROCESSOR_AT: usize = PEAK + 8;
/// The clock of that, the one that goes on only while tasks have it, and bits that say what is about them.
pub(super) const CLOCK: usize = PROCESSOR_AT + 8;
pub(super) const TASK_CLOCK: usize = CLOCK + 8;
pub(super) const CLOCK_FLAGS: usize = TASK_CLOCK + 8;
/// Of an exec also the id that the thread had before, and the file mode creation mask.
pub(super) const FORMER: usize = CLOCK_FLAGS + 8;
pub(super) const UMASK: usize = FORMER + 4;
pub(super) const EXEC: usize = FORMER + 8;
/// Of an end when it was made, and the wait status as the process's and its own.
pub(super) const START: usize = CLOCK_FLAGS + 8;
pub(super) const LEADER_CODE: usize = START + 8;
pub(super) const GROUP_CODE: usize = LEADER_CODE + 4;
pub(super) const GROUP_FLAGS: usize = GROUP_CODE + 4;
pub(super) const END: usize = GROUP_FLAGS + 8;
/// In [`NUMBER`] of a path: the file has no name any more.
pub(super) const UNNAMED: u32 = 1;
/// It never had one: all there is of a path is what the kernel calls it.
pub(super) const DETACHED: u32 = 2;
/// Of a table: there may be more.
pub(super) const CUT: u32 = 4;
/// In [`NUMBER`] of a fork: the new process shares the table of descriptors with its maker.
pub(super) const SHARES: u32 = 1;
/// In [`NUMBER`] of an exec: the program's calls have the numbers of another architecture.
pub(super) const FOREIGN: u32 = 1 << 31;
/// The same, one bit for each part that could not be told.
pub(super) fn missing(part: u32) -> u32 {
    1 << part
}

/// The clock of a processor stands still until whoever has that leaves it, for another thread was woken that is to have it: who has it is charged
/// with the time from then on as waiting for a processor (`RQCF_REQ_SKIP` of kernel/sched/sched.h).
const IS_HALTED: i32 = 1;

/// Bits of a thread's state (linux/sched.h): it is over, and stopped by job control.
const DEAD: i32 = 0x80;
const HALTED: i32 = 0x04;

// Registers that calls of helpers keep.
pub(super) const CONTEXT: u8 = 6;
pub(super) const TASK: u8 = 7;
pub(super) const STEP: u8 = 8;
/// Where [`super::memory`] is.
pub(super) const MEMORY: u8 = 9;

/// A thread made another one (`sched_process_fork`: its maker, and itself).
pub(super) fn forked(layout: &Layout, maps: &Maps<'_>) -> Vec<Instruction> {
    let mut code = begin(maps);
    if maps.with_tables {
        code.load(TASK, CONTEXT, 8);
        code.read(OTHER, 4, TASK, layout.tid);
        code.read(WORD, 4, TASK, layout.pid);
        code.put(LOAD_32, R1, MEMORY, OTHER, 0);
        code.put(LOAD_32, R2, MEMORY, WORD, 0);
        let thread = code.jump(IF_NOT_SAME, R1, R2, 0);
        code.load(TASK, CONTEXT, 0);
        code.table(TABLE, layout, maps);
        code.land(thread);
    }
    code.load(TASK, CONTEXT, 8);
    code.header(FORKED);
    code.read(field(CHILD_TID), 4, TASK, layout.tid);
    code.read(field(CHILD_PID), 4, TASK, layout.pid);
    code.inner_id(layout);
    if let Some(processes) = maps.processes {
        code.put(LOAD_32, R1, MEMORY, field(CHILD_TID), 0);
        code.put(LOAD_32, R2, MEMORY, field(CHILD_PID), 0);
        let thread = code.jump(IF_NOT_SAME, R1, R2, 0);
        code.put(STORE_32, MEMORY, R1, KEY, 0);
        code.architecture(layout);
        code.tell_of(processes);
        code.land(thread);
    }
    if maps.with_tables {
        code.follow(TASK, layout.open.files);
        code.put(STORE_64, MEMORY, R3, OTHER, 0);
        code.load(R3, CONTEXT, 0);
        code.follow(R3, layout.open.files);
        code.put(LOAD_64, R1, MEMORY, OTHER, 0);
        let own = code.jump(IF_NOT_SAME, R1, R3, 0);
        code.set(R1, SHARES as i32);
        code.put(STORE_32, MEMORY, R1, field(NUMBER), 0);
        code.land(own);
    }
    code.emit(maps, FORK);
    code.leave();
    code.all
}

/// A process runs a new program (`sched_process_exec`: its only thread, and the id that this had before).
pub(super) fn executed(layout: &Layout, maps: &Maps<'_>) -> Vec<Instruction> {
    let mut code = begin(maps);
    code.load(TASK, CONTEXT, 0);
    code.read(SPACE, 8, TASK, layout.memory);
    for (part, (from, to)) in [
        (ARGUMENTS, layout.arguments),
        (ENVIRONMENT, layout.environment),
    ] {
        code.put(LOAD_64, R3, MEMORY, SPACE, 0);
        code.read(POSITION, 8, R3, from);
        code.put(LOAD_64, R3, MEMORY, SPACE, 0);
        code.read(LIMIT, 8, R3, to);
        if part == ARGUMENTS {
            code.limit(MOST_ARGUMENTS as i32 + 1);
        }
        code.memory(part, maps);
    }
    code.put(LOAD_64, R3, MEMORY, SPACE, 0);
    code.read(WORD, 8, R3, layout.executable);
    code.put(LOAD_64, R3, MEMORY, WORD, 0);
    code.read(MOUNT, 16, R3, layout.path_of_file);
    code.path(EXECUTABLE, layout, maps);
    code.follow(TASK, layout.filesystem);
    code.read(MOUNT, 16, R3, layout.working_directory);
    code.path(DIRECTORY, layout, maps);
    if maps.with_tables {
        code.targets(layout, maps);
        code.table(TABLE, layout, maps);
        code.contents(layout, maps);
        code.table_of_parent(layout, maps);
    }
    code.header(EXECUTED);
    code.architecture(layout);
    code.put(LOAD_64, R1, MEMORY, WORD, 0);
    code.put(SHIFT_LEFT, R1, 0, 0, FOREIGN.trailing_zeros() as i32);
    code.put(LOAD_64, R2, MEMORY, MISSING, 0);
    code.put(OR, R1, R2, 0, 0);
    code.put(STORE_32, MEMORY, R1, field(NUMBER), 0);
    if let Some(processes) = maps.processes {
        code.put(LOAD_32, R1, MEMORY, field(PID), 0);
        code.put(STORE_32, MEMORY, R1, KEY, 0);
        code.tell_of(processes);
    }
    code.costs(layout);
    code.put(LOAD_64, R1, MEMORY, field(CLOCK_FLAGS), 0);
    code.put(AND_NUMBER, R1, 0, 0, IS_HALTED);
    let goes_on = code.jump(IF_EQUAL, R1, 0, 0);
    code.put(LOAD_32, R1, MEMORY, field(TID), 0);
    code.put(STORE_64, MEMORY, R1, HALTED_THREAD, 0);
    code.land(goes_on);
    code.load(R1, CONTEXT, 8);
    code.put(STORE_64, MEMORY, R1, field(FORMER), 0);
    code.follow(TASK, layout.filesystem);
    code.read(field(UMASK), 4, R3, layout.umask);
    code.emit(maps, EXEC);
    code.leave();
    code.all
}

/// A thread begins to end (`sched_process_exit`: the thread). Told is that of the last one. From here on the process is over.
pub(super) fn exiting(layout: &Layout, maps: &Maps<'_>) -> Vec<Instruction> {
    let mut code = begin(maps);
    code.load(TASK, CONTEXT, 0);
    code.clear(OTHER);
    code.follow(TASK, layout.signal);
    code.read(OTHER, 4, R3, layout.live_threads);
    code.put(LOAD_64, R1, MEMORY, OTHER, 0);
    code.leave_if(IF_NOT_EQUAL, R1, 0);
    code.table(TABLE, layout, maps);
    code.table_of_parent(layout, maps);
    if let Some(processes) = maps.processes {
        code.put(LOAD_32, R1, STACK, PROCESS, 0);
        code.put(STORE_32, MEMORY, R1, KEY, 0);
        code.set(R1, OVER as i32);
        code.put(STORE_64, MEMORY, R1, WORD, 0);
        code.tell_of(processes);
    }
    code.header(EXITING);
    code.emit(maps, REST);
    code.leave();
    code.all
}

/// A thread leaves its processor for the last time, when whatever it used is counted, or is stopped, or has executed a program while that's clock
/// stood still (`sched_switch`: whether another one took its processor, the thread, the next one, its state).
pub(super) fn ended(layout: &Layout, maps: &Maps<'_>) -> Vec<Instruction> {
    let mut code = Code::default();
    code.copy(CONTEXT, R1);
    code.load(R2, CONTEXT, 24);
    let waits = code.jump(IF_NOT_EQUAL, R2, 0, 0);
    code.has_left(layout, maps);
    code.land(waits);
    code.put(AND_NUMBER, R2, 0, 0, DEAD | HALTED);
    code.leave_if(IF_EQUAL, R2, 0);
    code.begin(maps, Whom::All);
    code.load(R2, CONTEXT, 24);
    code.put(AND_NUMBER, R2, 0, 0, DEAD);
    let over = code.jump(IF_NOT_EQUAL, R2, 0, 0);
    code.header(STOPPED);
    code.emit(maps, REST);
    code.leave();
    code.land(over);
    code.load(TASK, CONTEXT, 8);
    code.clear(field(GROUP_FLAGS));
    code.costs(layout);
    // After the clocks: by that they are compared, and whoever is late must be so at one place alone.
    code.header(ENDED);
    code.read(field(START), 8, TASK, layout.start);
    code.follow(TASK, layout.leader);
    code.read(field(LEADER_CODE), 4, R3, layout.exit_code);
    code.follow(TASK, layout.signal);
    code.read(field(GROUP_CODE), 4, R3, layout.group_exit_code);
    code.follow(TASK, layout.signal);
    code.read(field(GROUP_FLAGS), 4, R3, layout.group_flags);
    code.emit(maps, END);
    code.leave();
    code.all
}

fn begin(maps: &Maps<'_>) -> Code {
    let mut code = Code::default();
    code.copy(CONTEXT, R1);
    code.begin(maps, Whom::Alive);
    code
}

/// Whose doings are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    All,
    /// Those that are not [`OVER`].
    Alive,
}

impl Code {
    /// Leaves unless the thread's process is told of, else prepares the memory. The ids are in the record from here on.
    pub(super) fn begin(&mut self, maps: &Maps<'_>, whom: Whom) {
        self.call(WHO);
        self.put(STORE_64, STACK, R0, IDS, 0);
        if let Some(processes) = maps.processes {
            self.put(SHIFT_RIGHT, R0, 0, 0, 32);
            self.put(STORE_32, STACK, R0, PROCESS, 0);
            self.map(R1, MAP, processes.all);
            self.stack(R2, PROCESS);
            self.call(LOOK_UP);
            self.leave_if(IF_EQUAL, R0, 0);
            if whom == Whom::Alive {
                self.put(LOAD_64, R1, R0, 0, 0);
                self.leave_if(IF_EQUAL, R1, OVER as i32);
            }
        }
        self.scratch(maps);
        self.put(LOAD_64, R1, STACK, IDS, 0);
        self.put(STORE_64, MEMORY, R1, field(TID), 0);
        self.clear(MISSING);
        self.clear(LYING);
    }

    /// Puts the rest of what is common to all into the record.
    pub(super) fn header(&mut self, what: u32) {
        self.call(TIME);
        self.put(STORE_64, MEMORY, R0, field(AT), 0);
        self.set(R1, what as i32);
        self.put(STORE_64, MEMORY, R1, field(WHAT), 0);
    }

    /// Reads `size` bytes at an offset from an address in the kernel; zeros where there is nothing.
    pub(super) fn read(&mut self, to: i16, size: usize, address: u8, offset: i32) {
        self.read_kernel(MEMORY, to, size, address, offset);
    }

    /// Reads an address there into R3.
    pub(super) fn follow(&mut self, address: u8, offset: i32) {
        self.read(WORD, 8, address, offset);
        self.put(LOAD_64, R3, MEMORY, WORD, 0);
    }

    pub(super) fn clear(&mut self, at: i16) {
        self.set(R1, 0);
        self.put(STORE_64, MEMORY, R1, at, 0);
    }

    /// Hands over the record.
    pub(super) fn emit(&mut self, maps: &Maps<'_>, size: usize) {
        self.place(R2, RECORD);
        self.set(R3, size as i32);
        self.output(maps);
    }

    /// Hands over R3 bytes from R2 on; whoever waits is woken when a quarter of the ring is full. R0 is 0 unless
    /// there was no room, which is counted.
    pub(super) fn output(&mut self, maps: &Maps<'_>) {
        const AVAILABLE: i32 = 0;
        self.put(STORE_64, STACK, R2, WHERE, 0);
        self.put(STORE_64, STACK, R3, HOW_MUCH, 0);
        self.map(R1, MAP, maps.ring);
        self.set(R2, AVAILABLE);
        self.call(QUERY);
        let few = self.jump(IF_LESS, R0, 0, (maps.size / 4) as i32);
        self.ring_bell(maps);
        self.land(few);
        self.put(LOAD_64, R2, STACK, WHERE, 0);
        self.put(LOAD_64, R3, STACK, HOW_MUCH, 0);
        self.map(R1, MAP, maps.ring);
        self.set(R4, NO_WAKEUP);
        self.call(OUTPUT);
        let told = self.jump(IF_EQUAL, R0, 0, 0);
        self.map(R1, MEMORY_OF_MAP, maps.lost);
        self.set(R2, 1);
        self.put(ATOMIC_64, R1, R2, 0, 0);
        self.land(told);
    }

    /// Wakes whoever reads: by any 8 bytes, for which there may be no room if he was woken already.
    fn ring_bell(&mut self, maps: &Maps<'_>) {
        self.map(R1, MAP, maps.bell);
        self.place(R2, LYING);
        self.set(R3, size_of::<u64>() as i32);
        self.set(R4, WAKEUP);
        self.call(OUTPUT);
    }

    /// The id that the task has in the innermost namespace that it is in.
    fn inner_id(&mut self, layout: &Layout) {
        self.clear(field(LEVEL));
        self.clear(field(INNER));
        self.follow(TASK, layout.number);
        self.put(STORE_64, MEMORY, R3, OTHER, 0);
        self.read(field(LEVEL), 4, R3, layout.level);
        self.put(LOAD_64, R1, MEMORY, field(LEVEL), 0);
        let deep = self.jump(IF_GREATER, R1, 0, LEVELS);
        self.put(SHIFT_LEFT, R1, 0, 0, ID_BITS);
        self.put(LOAD_64, R3, MEMORY, OTHER, 0);
        self.put(ADD, R3, R1, 0, 0);
        self.read(field(INNER), 4, R3, layout.numbers);
        self.land(deep);
    }

    /// Puts 1 into [`WORD`] if the task's program has calls with the numbers of another architecture, else 0.
    fn architecture(&mut self, layout: &Layout) {
        /// `MM_CONTEXT_UPROBE_IA32` of arch/x86/include/asm/mmu.h.
        const OTHER_NUMBERS: i32 = 1;
        let Some(personality) = layout.personality else {
            return self.clear(WORD);
        };
        self.follow(TASK, layout.memory);
        self.clear(WORD);
        self.read(WORD, 2, R3, personality);
        self.put(LOAD_64, R1, MEMORY, WORD, 0);
        self.put(AND_NUMBER, R1, 0, 0, OTHER_NUMBERS);
        self.put(STORE_64, MEMORY, R1, WORD, 0);
    }

    /// Has the process of id [`KEY`] told of, with [`WORD`].
    fn tell_of(&mut self, processes: Processes<'_>) {
        self.map(R1, MAP, processes.all);
        self.place(R2, KEY);
        self.place(R3, WORD);
        self.set(R4, 0);
        self.call(UPDATE);
        self.put(LOAD_64, R1, MEMORY, WORD, 0);
        let native = self.jump(IF_EQUAL, R1, 0, NATIVE as i32);
        self.changed(processes);
        self.land(native);
    }
}
