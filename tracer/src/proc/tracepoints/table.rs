//! What a process has open, as the kernel has it: told where nobody is held for us to look.

use super::format::{
    AT, CUT, MEMORY, Maps, NUMBER, NUMBERED, REST, STEP, TABLE, TABLE_OF_PARENT, TASK,
};
use super::layout::Layout;
use super::memory::PART;
use super::memory::{
    BITS, BUFFERS, BYTES, FILES, HEAD, IN_USE, KEY, LENGTH, LYING, MOST, OTHER, OWN, SLOTS, TAIL,
    field, in_part,
};
use crate::bpf::code::{
    ADD, AND, AND_NUMBER, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, IF_SAME, JUMP,
    JUMP_LATE, LOAD_32, LOAD_64, LOOK_UP, MAP, MULTIPLY_NUMBER, OR_NUMBER, R0, R1, R2, R3,
    SHIFT_LEFT, SHIFT_RIGHT, SHIFT_RIGHT_BY, STORE_32, STORE_64,
};

/// A table, after the header of its record: how much its thread has read and written ([`TRAFFIC`] words), its process,
/// then for each descriptor an entry.
pub(super) const TRAFFIC: usize = 4;
pub(super) const PROCESS: usize = 8 * TRAFFIC;
pub(super) const ENTRIES: usize = PROCESS + 8;
/// Which of [`super::layout::COSTS`] these are.
pub(super) const TRAFFIC_OF_COSTS: usize = 9;

/// Of an entry: the descriptor; the inode's generation, which tells it from others that had its number; mode and flags of the open file; type of its inode and device of its filesystem; the inode's number; position and
/// size, bytes; of a pipe who may write to it, the buffers that it may fill, and what lies in it, bytes.
pub(super) const DESCRIPTOR: usize = 0;
pub(super) const GENERATION: usize = 4;
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

/// Numbers of descriptors up to which the table is told, as far as there is room in a part: more than anybody has who was not allowed more
/// than usual (`fs.nr_open`).
const NUMBERS: i32 = 1 << 20;
/// The same where the kernel, when it checks the programs, follows each step by itself. Whoever has more is looked at.
const FEW_NUMBERS: i32 = 256;
/// Of a pipe so many buffers are looked at, as an ordinary one has.
pub(super) const BUFFERS_SEEN: usize = 16;
const WORD_BITS: i32 = 64;

/// What is told of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipes {
    Unseen,
    /// Who may write to it, and what it may hold.
    Sizes,
    /// Also what lies in it.
    Contents,
}

/// Where an entry is made: the record's own fields are made later.
pub(super) fn entry(at: usize) -> i16 {
    field(REST + at)
}

impl Code {
    /// Tells what the process has open that has this one as a child, if it is one that is told of. Its own task is [`TASK`] again afterwards.
    pub(super) fn table_of_parent(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let Some(processes) = maps.processes else {
            return;
        };
        self.put(STORE_64, MEMORY, TASK, OWN, 0);
        self.clear(KEY);
        self.follow(TASK, layout.parent);
        self.copy(TASK, R3);
        self.read(KEY, 4, TASK, layout.pid);
        self.map(R1, MAP, processes.all);
        self.place(R2, KEY);
        self.call(LOOK_UP);
        let stranger = self.jump(IF_EQUAL, R0, 0, 0);
        self.table(TABLE_OF_PARENT, layout, maps);
        self.land(stranger);
        self.put(LOAD_64, TASK, MEMORY, OWN, 0);
    }

    /// Tells what the task has open, as this part; of its own what lies in pipes, too.
    pub(super) fn table(&mut self, part: u32, layout: &Layout, maps: &Maps<'_>) {
        self.part(part);
        for (index, cost) in layout.costs[TRAFFIC_OF_COSTS..][..TRAFFIC]
            .iter()
            .enumerate()
        {
            let to = in_part(REST + 8 * index);
            match cost {
                Some(cost) => self.read(to, 8, TASK, *cost),
                None => self.clear(to),
            }
        }
        self.clear(in_part(REST + PROCESS));
        self.read(in_part(REST + PROCESS), 4, TASK, layout.pid);
        self.set(R1, ENTRIES as i32);
        self.put(STORE_64, MEMORY, R1, in_part(AT), 0);
        let unread = self.find_table(layout);
        let each = self.begin_loop(maps);
        // There is room for whole words of them.
        self.put(LOAD_64, R1, MEMORY, MOST, 0);
        let all = self.jump(IF_SAME, STEP, R1, 0);
        self.put(LOAD_64, R3, MEMORY, IN_USE, 0);
        self.copy(R1, STEP);
        self.put(SHIFT_RIGHT, R1, 0, 0, WORD_BITS.trailing_zeros() as i32);
        self.put(SHIFT_LEFT, R1, 0, 0, 3);
        self.put(ADD, R3, R1, 0, 0);
        self.read(BITS, 8, R3, 0);
        self.put(LOAD_64, R1, MEMORY, BITS, 0);
        self.copy(R2, STEP);
        self.put(AND_NUMBER, R2, 0, 0, WORD_BITS - 1);
        self.put(SHIFT_RIGHT_BY, R1, R2, 0, 0);
        let some = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        self.put(OR_NUMBER, STEP, 0, 0, WORD_BITS - 1);
        self.land(some);
        self.put(AND_NUMBER, R1, 0, 0, 1);
        let unused = self.jump(IF_EQUAL, R1, 0, 0);
        let closed = self.file(STEP);
        let pipes = match part {
            TABLE => Pipes::Contents,
            _ => Pipes::Unseen,
        };
        self.describe(pipes, layout, maps);
        let full = self.add_entry();
        self.land(unused);
        self.land(closed);
        let numbers = if maps.endless { NUMBERS } else { FEW_NUMBERS };
        self.end_loop(each, numbers);
        self.put(LOAD_64, R1, MEMORY, MOST, 0);
        let no_more = self.jump(IF_LESS, R1, 0, numbers + 1);
        self.land(full);
        self.set(R1, CUT.cast_signed());
        self.put(STORE_32, MEMORY, R1, in_part(NUMBER), 0);
        self.land(all);
        self.land(no_more);
        self.put(LOAD_64, R3, MEMORY, in_part(AT), 0);
        self.put(AND_NUMBER, R3, 0, 0, PART - 1);
        self.add(R3, REST as i32);
        self.place(R2, in_part(AT));
        self.output(maps);
        let told = self.jump(IF_EQUAL, R0, 0, 0);
        self.land(unread);
        self.mark();
        self.land(told);
    }

    /// Finds the table of the task. Returns the jump for when it has none any more.
    pub(super) fn find_table(&mut self, layout: &Layout) -> usize {
        let open = &layout.open;
        self.clear(MOST);
        self.follow(TASK, open.files);
        let none = self.jump(IF_EQUAL, R3, 0, 0);
        self.follow(R3, open.table);
        self.put(STORE_64, MEMORY, R3, OTHER, 0);
        self.read(MOST, 4, R3, open.most);
        self.put(LOAD_64, R3, MEMORY, OTHER, 0);
        self.read(FILES, 8, R3, open.all);
        self.put(LOAD_64, R3, MEMORY, OTHER, 0);
        self.read(IN_USE, 8, R3, open.in_use);
        none
    }

    /// Reads where the file is that is open as descriptor `number`, into R3 and [`super::memory::WORD`]. Returns the jump for when there is none.
    pub(super) fn file(&mut self, number: u8) -> usize {
        self.put(LOAD_64, R3, MEMORY, FILES, 0);
        self.copy(R1, number);
        self.put(SHIFT_LEFT, R1, 0, 0, 3);
        self.put(ADD, R3, R1, 0, 0);
        self.follow(R3, 0);
        self.jump(IF_EQUAL, R3, 0, 0)
    }

    /// Makes the entry of descriptor [`STEP`], whose file is R3.
    pub(super) fn describe(&mut self, pipes: Pipes, layout: &Layout, maps: &Maps<'_>) {
        let open = &layout.open;
        self.put(STORE_64, MEMORY, R3, OTHER, 0);
        self.put(STORE_64, MEMORY, STEP, entry(DESCRIPTOR), 0);
        let mut of_file = |to: i16, size: usize, offset: i32| {
            self.put(LOAD_64, R3, MEMORY, OTHER, 0);
            self.read(to, size, R3, offset);
        };
        of_file(entry(MODE), 4, open.mode);
        of_file(entry(FLAGS), 4, open.flags);
        of_file(entry(FILE_POSITION), 8, open.position);
        of_file(OTHER, 8, open.inode);
        self.clear(entry(KIND));
        let mut of_inode = |to: i16, size: usize, offset: i32| {
            self.put(LOAD_64, R3, MEMORY, OTHER, 0);
            self.read(to, size, R3, offset);
        };
        of_inode(entry(KIND), 2, open.kind);
        of_inode(entry(INODE), 8, open.number);
        of_inode(entry(GENERATION), 4, open.generation);
        of_inode(entry(SIZE), 8, open.size);
        self.put(LOAD_64, R3, MEMORY, OTHER, 0);
        self.follow(R3, open.filesystem);
        self.read(entry(DEVICE), 4, R3, open.device);
        self.clear(entry(WRITERS));
        self.clear(entry(LEFT));
        self.put(LOAD_64, R1, MEMORY, entry(LEFT), 0);
        self.add(R1, -1);
        self.put(STORE_64, MEMORY, R1, entry(LEFT), 0);
        if pipes != Pipes::Unseen {
            self.pipe(pipes, layout, maps);
        }
    }

    /// Of a pipe who may write to it and what it may hold; of the first descriptors also what lies in it, if nobody can add to it.
    fn pipe(&mut self, pipes: Pipes, layout: &Layout, maps: &Maps<'_>) {
        let open = &layout.open;
        self.put(LOAD_32, R1, MEMORY, entry(KIND), 0);
        self.put(AND_NUMBER, R1, 0, 0, libc::S_IFMT.cast_signed());
        let other = self.jump(IF_NOT_EQUAL, R1, 0, libc::S_IFIFO.cast_signed());
        self.put(LOAD_64, R3, MEMORY, OTHER, 0);
        self.follow(R3, open.pipe);
        self.put(STORE_64, MEMORY, R3, OTHER, 0);
        for (to, size, offset) in [
            (entry(WRITERS), 4, open.writers),
            (entry(ROOM), 4, open.room),
            (TAIL, 4, open.tail),
            (HEAD, 4, open.head),
            (SLOTS, 4, open.slots),
            (BUFFERS, 8, open.buffers),
        ] {
            self.put(LOAD_64, R3, MEMORY, OTHER, 0);
            self.read(to, size, R3, offset);
        }
        if pipes != Pipes::Contents {
            self.land(other);
            return;
        }
        // What is read at once, and not for each: where loops need a bound, the kernel follows each step of this by itself.
        let beyond = self.jump(IF_GREATER, STEP, 0, NUMBERED.cast_signed() - 1);
        self.put(LOAD_32, R1, MEMORY, entry(WRITERS), 0);
        let fed = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        self.clear(BYTES);
        let many = self.buffers(layout, maps);
        self.put(LOAD_64, R1, MEMORY, BYTES, 0);
        self.put(STORE_64, MEMORY, R1, entry(LEFT), 0);
        let nothing = self.jump(IF_EQUAL, R1, 0, 0);
        self.put(STORE_64, MEMORY, R1, LYING, 0);
        for jump in [other, fed, many, nothing, beyond] {
            self.land(jump);
        }
    }

    /// Adds up what lies in the buffers. Returns the jump for when there are too many.
    fn buffers(&mut self, layout: &Layout, maps: &Maps<'_>) -> usize {
        let mut ends = Vec::new();
        let many = if maps.endless {
            let next = self.all.len();
            let late = self.jump(JUMP_LATE, 0, 0, 0);
            ends.push(self.no_more_buffers());
            self.buffer(layout);
            self.jump_back(JUMP, 0, 0, next);
            self.land(late);
            self.jump(JUMP, 0, 0, 0)
        } else {
            for _ in 0..BUFFERS_SEEN {
                ends.push(self.no_more_buffers());
                self.buffer(layout);
            }
            ends.push(self.no_more_buffers());
            self.jump(JUMP, 0, 0, 0)
        };
        for end in ends {
            self.land(end);
        }
        many
    }

    /// Returns the jump for when all buffers were looked at.
    pub(super) fn no_more_buffers(&mut self) -> usize {
        self.put(LOAD_32, R1, MEMORY, TAIL, 0);
        self.put(LOAD_32, R2, MEMORY, HEAD, 0);
        self.jump(IF_SAME, R1, R2, 0)
    }

    /// Puts the address of buffer R1 into R3, and goes on to the next one.
    pub(super) fn next_buffer(&mut self, layout: &Layout) {
        self.copy(R3, R1);
        self.add(R1, 1);
        self.put(STORE_32, MEMORY, R1, TAIL, 0);
        self.put(LOAD_32, R2, MEMORY, SLOTS, 0);
        self.add(R2, -1);
        self.put(AND, R3, R2, 0, 0);
        self.put(MULTIPLY_NUMBER, R3, 0, 0, layout.open.bytes_of_buffer);
        self.put(LOAD_64, R1, MEMORY, BUFFERS, 0);
        self.put(ADD, R3, R1, 0, 0);
    }

    /// Adds the length of buffer R1 to [`BYTES`], and goes on to the next one.
    fn buffer(&mut self, layout: &Layout) {
        self.next_buffer(layout);
        self.clear(LENGTH);
        self.read(LENGTH, 4, R3, layout.open.length);
        self.put(LOAD_64, R1, MEMORY, LENGTH, 0);
        self.put(LOAD_64, R2, MEMORY, BYTES, 0);
        self.put(ADD, R1, R2, 0, 0);
        self.put(STORE_64, MEMORY, R1, BYTES, 0);
    }

    /// Adds the entry to the table. Returns the jump for when there is no room.
    fn add_entry(&mut self) -> usize {
        self.put(LOAD_64, R1, MEMORY, in_part(AT), 0);
        self.put(AND_NUMBER, R1, 0, 0, PART - 1);
        let full = self.jump(IF_GREATER, R1, 0, PART - 1 - ENTRY as i32);
        self.copy(R2, MEMORY);
        self.put(ADD, R2, R1, 0, 0);
        for at in (0..ENTRY).step_by(8) {
            self.put(LOAD_64, R3, MEMORY, entry(at), 0);
            self.put(STORE_64, R2, R3, in_part(REST + at), 0);
        }
        self.add(R1, ENTRY as i32);
        self.put(STORE_64, MEMORY, R1, in_part(AT), 0);
        full
    }
}
