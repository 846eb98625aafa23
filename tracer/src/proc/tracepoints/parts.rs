//! What of an exec is told in parts of any length: strings in the program's memory, and paths.

use crate::bpf::code::{
    ADD, AND_NUMBER, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, IF_NOT_SAME, IF_SAME,
    IF_SIGNED_LESS, JUMP, LOAD_64, OR_NUMBER, R0, R1, R2, R3, READ_KERNEL_TEXT, READ_USER, STACK,
    STORE_32, STORE_64, SUBTRACT,
};

use super::layout::Layout;
use super::program::{
    AT, DETACHED, ENTRY, LIMIT, MISSING, MOUNT, Maps, NUMBER, OTHER, PIECE, POSITION, REST,
    SCRATCH_MEMORY, TID, UNNAMED, WHAT, field, missing,
};

/// What a part takes of scratch memory after its header.
pub(super) const PART: i32 = 1 << 16;
/// The most records that a part may take: 3 MiB; execve(2) takes 2 with an ordinary stack. The kernel checks each step of the
/// loop by itself when it takes the program.
const RECORDS: i32 = 48;
/// Bytes of a path with its end (`PATH_MAX`).
const LONGEST_PATH: i32 = 4096;
/// Bytes of a name with its end.
const LONGEST_NAME: i32 = 256;
/// How far up directories and mounts of a program are followed.
pub(super) const STEPS: i32 = 128;
/// The same for what is open: the kernel takes longer for each step more when it checks the programs, and the run waits for that.
pub(super) const FEW_STEPS: i32 = 32;

impl Code {
    /// Begins a part in scratch memory, whose length so far is where records have their time.
    pub(super) fn part(&mut self, part: u32) {
        self.set(R1, 0);
        self.put(STORE_64, SCRATCH_MEMORY, R1, AT as i16, 0);
        self.put(LOAD_64, R1, STACK, field(TID), 0);
        self.put(STORE_64, SCRATCH_MEMORY, R1, TID as i16, 0);
        self.set(R1, part as i32);
        self.put(STORE_64, SCRATCH_MEMORY, R1, WHAT as i16, 0);
    }

    /// Marks a part as one that could not be told.
    pub(super) fn mark(&mut self, part: u32) {
        self.put(LOAD_64, R1, STACK, MISSING, 0);
        self.put(OR_NUMBER, R1, 0, 0, missing(part) as i32);
        self.put(STORE_64, STACK, R1, MISSING, 0);
    }

    /// Tells what the program has in its memory from [`POSITION`] to [`LIMIT`].
    pub(super) fn memory(&mut self, part: u32, maps: &Maps<'_>) {
        self.part(part);
        let pieces = self.begin_loop(maps);
        self.put(LOAD_64, R3, STACK, POSITION, 0);
        self.put(LOAD_64, R2, STACK, LIMIT, 0);
        self.put(SUBTRACT, R2, R3, 0, 0);
        let all = self.jump(IF_SIGNED_LESS, R2, 0, 1);
        let few = self.jump(IF_LESS, R2, 0, PART);
        self.set(R2, PART);
        self.land(few);
        self.put(STORE_64, STACK, R2, PIECE, 0);
        self.copy(R1, SCRATCH_MEMORY);
        self.add(R1, REST as i32);
        self.call(READ_USER);
        let unread = self.jump(IF_NOT_EQUAL, R0, 0, 0);
        self.copy(R2, SCRATCH_MEMORY);
        self.put(LOAD_64, R3, STACK, PIECE, 0);
        self.add(R3, REST as i32);
        self.output(maps);
        let full = self.jump(IF_NOT_EQUAL, R0, 0, 0);
        self.put(LOAD_64, R1, STACK, POSITION, 0);
        self.put(LOAD_64, R2, STACK, PIECE, 0);
        self.put(ADD, R1, R2, 0, 0);
        self.put(STORE_64, STACK, R1, POSITION, 0);
        self.end_loop(pieces, RECORDS);
        // More than is told.
        self.land(unread);
        self.land(full);
        self.mark(part);
        self.land(all);
    }

    /// Tells the path that [`MOUNT`] and [`ENTRY`] lead to, if it takes no more steps: its names, the last one first, each with its end.
    pub(super) fn path(&mut self, part: u32, steps: i32, layout: &Layout, maps: &Maps<'_>) {
        self.part(part);
        self.put(LOAD_64, R3, STACK, ENTRY, 0);
        self.follow(R3, layout.hashed);
        let named = self.jump(IF_NOT_EQUAL, R3, 0, 0);
        // The root of a filesystem is in no list of names, either.
        self.put(LOAD_64, R3, STACK, ENTRY, 0);
        self.follow(R3, layout.parent_directory);
        self.put(LOAD_64, R1, STACK, ENTRY, 0);
        let root = self.jump(IF_SAME, R1, R3, 0);
        self.set(R1, UNNAMED.cast_signed());
        self.put(STORE_32, SCRATCH_MEMORY, R1, NUMBER as i16, 0);
        self.land(named);
        self.land(root);
        let up = self.begin_loop(maps);
        self.put(LOAD_64, R3, STACK, MOUNT, 0);
        self.read(OTHER, 8, R3, layout.mount_root);
        self.put(LOAD_64, R1, STACK, OTHER, 0);
        self.put(LOAD_64, R2, STACK, ENTRY, 0);
        let within = self.jump(IF_NOT_SAME, R1, R2, 0);
        let (top, on) = self.above_mount(layout);
        self.land(within);
        self.put(LOAD_64, R3, STACK, ENTRY, 0);
        self.read(OTHER, 8, R3, layout.parent_directory);
        self.put(LOAD_64, R1, STACK, OTHER, 0);
        self.put(LOAD_64, R2, STACK, ENTRY, 0);
        // In no directory, as what has no path at all: a part of memory, an event.
        let detached = self.jump(IF_SAME, R1, R2, 0);
        let unread = self.name(layout);
        self.put(LOAD_64, R1, STACK, OTHER, 0);
        self.put(STORE_64, STACK, R1, ENTRY, 0);
        self.land(on);
        self.end_loop(up, steps);
        let deep = self.jump(JUMP, 0, 0, 0);
        self.land(detached);
        let unreadable = self.name(layout);
        self.set(R1, DETACHED.cast_signed());
        self.put(STORE_32, SCRATCH_MEMORY, R1, NUMBER as i16, 0);
        self.land(top);
        self.put(LOAD_64, R3, SCRATCH_MEMORY, AT as i16, 0);
        self.put(AND_NUMBER, R3, 0, 0, LONGEST_PATH - 1);
        self.add(R3, REST as i32);
        self.copy(R2, SCRATCH_MEMORY);
        self.output(maps);
        let told = self.jump(IF_EQUAL, R0, 0, 0);
        for jump in unread.into_iter().chain(unreadable).chain([deep]) {
            self.land(jump);
        }
        self.mark(part);
        self.land(told);
    }

    /// From the root of a mount to where that is mounted. Returns the jumps for when it is the uppermost, and to go on.
    fn above_mount(&mut self, layout: &Layout) -> (usize, usize) {
        self.put(LOAD_64, R3, STACK, MOUNT, 0);
        self.read(OTHER, 8, R3, layout.parent_mount - layout.mount);
        self.put(LOAD_64, R1, STACK, OTHER, 0);
        self.add(R1, layout.mount);
        self.put(LOAD_64, R2, STACK, MOUNT, 0);
        let top = self.jump(IF_SAME, R1, R2, 0);
        self.put(LOAD_64, R3, STACK, MOUNT, 0);
        self.read(ENTRY, 8, R3, layout.mount_point - layout.mount);
        self.put(LOAD_64, R1, STACK, OTHER, 0);
        self.add(R1, layout.mount);
        self.put(STORE_64, STACK, R1, MOUNT, 0);
        let on = self.jump(JUMP, 0, 0, 0);
        (top, on)
    }

    /// Adds the name of [`ENTRY`] to the part. Returns the jumps for when it cannot be read, or there is no room for more.
    /// The length is kept in memory: so the kernel, when it checks the loop, takes all steps for alike.
    fn name(&mut self, layout: &Layout) -> [usize; 2] {
        self.put(LOAD_64, R3, STACK, ENTRY, 0);
        self.follow(R3, layout.name_of_entry);
        self.put(LOAD_64, R2, SCRATCH_MEMORY, AT as i16, 0);
        self.put(AND_NUMBER, R2, 0, 0, LONGEST_PATH - 1);
        let long = self.jump(IF_GREATER, R2, 0, LONGEST_PATH - LONGEST_NAME - 1);
        self.copy(R1, SCRATCH_MEMORY);
        self.add(R1, REST as i32);
        self.put(ADD, R1, R2, 0, 0);
        self.set(R2, LONGEST_NAME);
        self.call(READ_KERNEL_TEXT);
        let unread = self.jump(IF_SIGNED_LESS, R0, 0, 1);
        self.put(LOAD_64, R1, SCRATCH_MEMORY, AT as i16, 0);
        self.put(ADD, R1, R0, 0, 0);
        self.put(STORE_64, SCRATCH_MEMORY, R1, AT as i16, 0);
        [long, unread]
    }
}
