//! The programs, in the machine language of the kernel (Documentation/bpf/standardization). The context of each
//! is that of a raw tracepoint: an array of words, which are the arguments that the kernel gives to it.

use flowtrace_schema::MOST_ARGUMENTS;

use super::format::{
    ARGUMENTS, AT, CHILD_PID, CHILD_TID, CLOCK_FLAGS, CONTEXT, DEAD, DIRECTORY, END, ENDED,
    ENVIRONMENT, EXEC, EXECUTABLE, EXECUTED, EXITING, FOREIGN, FORK, FORKED, FORMER, GROUP_CODE,
    GROUP_FLAGS, HALTED, ID_BITS, INNER, IS_HALTED, LEADER_CODE, LEVEL, LEVELS, MEMORY, Maps,
    NUMBER, PID, REST, SHARES, START, STOPPED, TABLE, TASK, TID, UMASK, WHAT,
};
use super::layout::Layout;
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
