//! What a process has open, as the kernel has it: told where nobody is held for us to look.

use crate::bpf::code::{
    ADD, AND, AND_NUMBER, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, IF_SAME, JUMP,
    LOAD_32, LOAD_64, LOOK_UP, MAP, MULTIPLY_NUMBER, OR_NUMBER, R0, R1, R2, R3, SHIFT_LEFT,
    SHIFT_RIGHT, STACK, STORE_32, STORE_64,
};

use super::layout::Layout;
use super::parts::PART;
use super::program::{
    AT, BITS, BUFFERS, BYTES, CUT, FILES, HEAD, HURRY, IN_USE, KEY, LENGTH, MOST, MOUNT, Maps,
    NUMBER, NUMBERED, OTHER, OWN, REST, SCRATCH_MEMORY, SLOTS, STEP, TABLE, TABLE_OF_PARENT, TAIL,
    TARGETS, TASK, WORD, field,
};

/// A table, after the header of its record: how much its thread has read and written ([`TRAFFIC`] words), its process,
/// then for each descriptor an entry.
const TRAFFIC: usize = 4;
pub(super) const PROCESS: usize = 8 * TRAFFIC;
pub(super) const ENTRIES: usize = PROCESS + 8;
/// Which of [`super::layout::COSTS`] these are.
const TRAFFIC_OF_COSTS: usize = 9;

/// Of an entry: the descriptor; mode and flags of the open file; type of its inode and device of its filesystem; the inode's number; position and
/// size, bytes; of a pipe who may write to it, the buffers that it may fill, and what lies in it, bytes.
pub(super) const DESCRIPTOR: usize = 0;
pub(super) const MODE: usize = 8;
pub(super) const FLAGS: usize = 12;
pub(super) const KIND: usize = 16;
pub(super) const DEVICE: usize = 20;
pub(super) const INODE: usize = 24;
pub(super) const FILE_POSITION: usize = 32;
pub(super) const SIZE: usize = 40;
pub(super) const WRITERS: usize = 48;
pub(super) const ROOM: usize = 52;
pub(super) const LEFT: usize = 56;
pub(super) const ENTRY: usize = 64;
/// In [`LEFT`]: nobody knows, or there may come more.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// Descriptors that are told. Whoever has more is looked at.
const DESCRIPTORS: i32 = 256;
/// Of a pipe so many buffers are looked at, as an ordinary one has.
const BUFFERS_SEEN: usize = 16;
const WORD_BITS: i32 = 64;
/// How far up directories are followed.
const STEPS: i32 = 32;

/// Where an entry is made: the record's own fields are made later.
fn entry(at: usize) -> i16 {
    field(REST + at)
}

impl Code {
    /// Tells what the process has open that has this one as a child, if it is one that is told of. Its own task is [`TASK`] again afterwards.
    pub(super) fn table_of_parent(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let Some(processes) = maps.processes else {
            return;
        };
        self.put(STORE_64, STACK, TASK, OWN, 0);
        self.clear(KEY);
        self.follow(TASK, layout.parent);
        self.copy(TASK, R3);
        self.read(KEY, 4, TASK, layout.pid);
        self.map(R1, MAP, processes);
        self.stack(R2, KEY);
        self.call(LOOK_UP);
        let stranger = self.jump(IF_EQUAL, R0, 0, 0);
        self.table(TABLE_OF_PARENT, layout, maps);
        self.land(stranger);
        self.put(LOAD_64, TASK, STACK, OWN, 0);
    }

    /// Tells what the task has open, as this part; of its own what lies in pipes, too.
    pub(super) fn table(&mut self, part: u32, layout: &Layout, maps: &Maps<'_>) {
        self.part(part);
        for (index, cost) in layout.costs[TRAFFIC_OF_COSTS..][..TRAFFIC]
            .iter()
            .enumerate()
        {
            self.clear(WORD);
            if let Some(cost) = cost {
                self.read(WORD, 8, TASK, *cost);
            }
            self.put(LOAD_64, R1, STACK, WORD, 0);
            let to = (REST + 8 * index) as i16;
            self.put(STORE_64, SCRATCH_MEMORY, R1, to, 0);
        }
        self.clear(WORD);
        self.read(WORD, 4, TASK, layout.pid);
        self.put(LOAD_64, R1, STACK, WORD, 0);
        let to = (REST + PROCESS) as i16;
        self.put(STORE_64, SCRATCH_MEMORY, R1, to, 0);
        self.set(R1, ENTRIES as i32);
        self.put(STORE_64, SCRATCH_MEMORY, R1, AT as i16, 0);
        let unread = self.find_table(layout);
        self.set(STEP, 0);
        let next = self.all.len();
        self.copy(R1, STEP);
        self.put(AND_NUMBER, R1, 0, 0, WORD_BITS - 1);
        let within = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        // There is room for whole words of them.
        self.put(LOAD_64, R1, STACK, MOST, 0);
        let all = self.jump(IF_SAME, STEP, R1, 0);
        self.put(LOAD_64, R3, STACK, IN_USE, 0);
        self.copy(R1, STEP);
        self.put(SHIFT_RIGHT, R1, 0, 0, 3);
        self.put(ADD, R3, R1, 0, 0);
        self.read(BITS, 8, R3, 0);
        self.land(within);
        self.put(LOAD_64, R1, STACK, BITS, 0);
        let some = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        self.put(OR_NUMBER, STEP, 0, 0, WORD_BITS - 1);
        self.land(some);
        self.copy(R2, R1);
        self.put(SHIFT_RIGHT, R2, 0, 0, 1);
        self.put(STORE_64, STACK, R2, BITS, 0);
        self.put(AND_NUMBER, R1, 0, 0, 1);
        let unused = self.jump(IF_EQUAL, R1, 0, 0);
        let closed = self.file(STEP);
        self.describe(part == TABLE, layout);
        let full = self.add_entry();
        self.land(unused);
        self.land(closed);
        self.add(STEP, 1);
        self.jump_back(IF_LESS, STEP, DESCRIPTORS, next);
        self.put(LOAD_64, R1, STACK, MOST, 0);
        let no_more = self.jump(IF_LESS, R1, 0, DESCRIPTORS + 1);
        self.land(full);
        self.set(R1, CUT.cast_signed());
        self.put(STORE_32, SCRATCH_MEMORY, R1, NUMBER as i16, 0);
        self.land(all);
        self.land(no_more);
        self.put(LOAD_64, R3, SCRATCH_MEMORY, AT as i16, 0);
        self.put(AND_NUMBER, R3, 0, 0, PART - 1);
        self.add(R3, REST as i32);
        self.copy(R2, SCRATCH_MEMORY);
        self.output(maps);
        let told = self.jump(IF_EQUAL, R0, 0, 0);
        self.land(unread);
        self.mark(part);
        self.land(told);
    }

    /// Tells the paths of what the task has open as its first descriptors.
    pub(super) fn targets(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let unread = self.find_table(layout);
        for descriptor in 0..NUMBERED {
            self.set(STEP, descriptor.cast_signed());
            let closed = self.file(STEP);
            self.put(LOAD_64, R3, STACK, WORD, 0);
            self.read(MOUNT, 16, R3, layout.path_of_file);
            self.path(TARGETS + descriptor, STEPS, layout, maps);
            self.land(closed);
        }
        self.land(unread);
    }

    /// Finds the table of the task. Returns the jump for when it has none any more.
    fn find_table(&mut self, layout: &Layout) -> usize {
        let open = &layout.open;
        self.clear(MOST);
        self.follow(TASK, open.files);
        let none = self.jump(IF_EQUAL, R3, 0, 0);
        self.follow(R3, open.table);
        self.put(STORE_64, STACK, R3, OTHER, 0);
        self.read(MOST, 4, R3, open.most);
        self.put(LOAD_64, R3, STACK, OTHER, 0);
        self.read(FILES, 8, R3, open.all);
        self.put(LOAD_64, R3, STACK, OTHER, 0);
        self.read(IN_USE, 8, R3, open.in_use);
        none
    }

    /// Reads where the file is that is open as descriptor `number`, into R3 and [`WORD`]. Returns the jump for when there is none.
    fn file(&mut self, number: u8) -> usize {
        self.put(LOAD_64, R3, STACK, FILES, 0);
        self.copy(R1, number);
        self.put(SHIFT_LEFT, R1, 0, 0, 3);
        self.put(ADD, R3, R1, 0, 0);
        self.follow(R3, 0);
        self.jump(IF_EQUAL, R3, 0, 0)
    }

    /// Makes the entry of descriptor [`STEP`], whose file is R3.
    fn describe(&mut self, with_pipes: bool, layout: &Layout) {
        let open = &layout.open;
        self.put(STORE_64, STACK, R3, OTHER, 0);
        self.put(STORE_64, STACK, STEP, entry(DESCRIPTOR), 0);
        let mut of_file = |to: i16, size: i32, offset: i32| {
            self.put(LOAD_64, R3, STACK, OTHER, 0);
            self.read(to, size, R3, offset);
        };
        of_file(entry(MODE), 4, open.mode);
        of_file(entry(FLAGS), 4, open.flags);
        of_file(entry(FILE_POSITION), 8, open.position);
        of_file(OTHER, 8, open.inode);
        self.clear(entry(KIND));
        let mut of_inode = |to: i16, size: i32, offset: i32| {
            self.put(LOAD_64, R3, STACK, OTHER, 0);
            self.read(to, size, R3, offset);
        };
        of_inode(entry(KIND), 2, open.kind);
        of_inode(entry(INODE), 8, open.number);
        of_inode(entry(SIZE), 8, open.size);
        self.put(LOAD_64, R3, STACK, OTHER, 0);
        self.follow(R3, open.filesystem);
        self.read(entry(DEVICE), 4, R3, open.device);
        self.clear(entry(WRITERS));
        self.set(R1, -1);
        self.put(STORE_64, STACK, R1, entry(LEFT), 0);
        if with_pipes {
            self.pipe(layout);
        }
    }

    /// Of a pipe who may write to it and what it may hold; of the first descriptors also what lies in it, if nobody can add to it.
    fn pipe(&mut self, layout: &Layout) {
        let open = &layout.open;
        self.put(LOAD_32, R1, STACK, entry(KIND), 0);
        self.put(AND_NUMBER, R1, 0, 0, libc::S_IFMT.cast_signed());
        let other = self.jump(IF_NOT_EQUAL, R1, 0, libc::S_IFIFO.cast_signed());
        self.put(LOAD_64, R3, STACK, OTHER, 0);
        self.follow(R3, open.pipe);
        self.put(STORE_64, STACK, R3, OTHER, 0);
        for (to, size, offset) in [
            (entry(WRITERS), 4, open.writers),
            (entry(ROOM), 4, open.room),
            (TAIL, 4, open.tail),
            (HEAD, 4, open.head),
            (SLOTS, 4, open.slots),
            (BUFFERS, 8, open.buffers),
        ] {
            self.put(LOAD_64, R3, STACK, OTHER, 0);
            self.read(to, size, R3, offset);
        }
        // The kernel follows each step of a loop by itself when it takes a program, and the run waits for that: so this is not done for
        // all.
        let beyond = self.jump(IF_GREATER, STEP, 0, NUMBERED.cast_signed() - 1);
        self.put(LOAD_32, R1, STACK, entry(WRITERS), 0);
        let fed = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        self.clear(BYTES);
        let mut ends = Vec::new();
        for _ in 0..BUFFERS_SEEN {
            ends.push(self.no_more_buffers());
            self.buffer(layout);
        }
        ends.push(self.no_more_buffers());
        let many = self.jump(JUMP, 0, 0, 0);
        for end in ends {
            self.land(end);
        }
        self.put(LOAD_64, R1, STACK, BYTES, 0);
        self.put(STORE_64, STACK, R1, entry(LEFT), 0);
        let nothing = self.jump(IF_EQUAL, R1, 0, 0);
        // It may be read soon by the program that begins.
        self.put(STORE_64, STACK, R1, HURRY, 0);
        for jump in [other, fed, many, nothing, beyond] {
            self.land(jump);
        }
    }

    /// Returns the jump for when all buffers were looked at.
    fn no_more_buffers(&mut self) -> usize {
        self.put(LOAD_32, R1, STACK, TAIL, 0);
        self.put(LOAD_32, R2, STACK, HEAD, 0);
        self.jump(IF_SAME, R1, R2, 0)
    }

    /// Adds the length of buffer R1 to [`BYTES`], and goes on to the next one.
    fn buffer(&mut self, layout: &Layout) {
        let open = &layout.open;
        self.copy(R3, R1);
        self.add(R1, 1);
        self.put(STORE_32, STACK, R1, TAIL, 0);
        self.put(LOAD_32, R2, STACK, SLOTS, 0);
        self.add(R2, -1);
        self.put(AND, R3, R2, 0, 0);
        self.put(MULTIPLY_NUMBER, R3, 0, 0, open.bytes_of_buffer);
        self.put(LOAD_64, R1, STACK, BUFFERS, 0);
        self.put(ADD, R3, R1, 0, 0);
        self.clear(LENGTH);
        self.read(LENGTH, 4, R3, open.length);
        self.put(LOAD_64, R1, STACK, LENGTH, 0);
        self.put(LOAD_64, R2, STACK, BYTES, 0);
        self.put(ADD, R1, R2, 0, 0);
        self.put(STORE_64, STACK, R1, BYTES, 0);
    }

    /// Adds the entry to the table. Returns the jump for when there is no room.
    fn add_entry(&mut self) -> usize {
        self.put(LOAD_64, R1, SCRATCH_MEMORY, AT as i16, 0);
        self.put(AND_NUMBER, R1, 0, 0, PART - 1);
        let full = self.jump(IF_GREATER, R1, 0, PART - 1 - ENTRY as i32);
        self.copy(R2, SCRATCH_MEMORY);
        self.put(ADD, R2, R1, 0, 0);
        for at in (0..ENTRY).step_by(8) {
            self.put(LOAD_64, R3, STACK, entry(at), 0);
            self.put(STORE_64, R2, R3, (REST + at) as i16, 0);
        }
        self.add(R1, ENTRY as i32);
        self.put(STORE_64, SCRATCH_MEMORY, R1, AT as i16, 0);
        full
    }
}
