//! What of an exec is told in parts of any length: strings in the program's memory, and paths.

use super::format::{
    AT, DETACHED, MEMORY, Maps, NUMBER, NUMBERED, REST, STEP, TARGETS, TID, UNNAMED, WHAT,
};
use super::layout::Layout;
use super::memory::{
    ENTRY, LIMIT, LONGEST_PATH, MISSING, MOUNT, OTHER, OUTER, PART, PIECE, POSITION, field, in_part,
};
use crate::bpf::code::{
    ADD, AND_NUMBER, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, IF_NOT_SAME, IF_SAME,
    IF_SIGNED_LESS, JUMP, LOAD_32, LOAD_64, OR, R0, R1, R2, R3, READ_KERNEL_TEXT, READ_USER,
    SHIFT_LEFT_BY, STACK, STORE_32, STORE_64, SUBTRACT,
};

/// The most records that a part may take: 3 MiB; execve(2) takes 2 with an ordinary stack. The kernel checks each step of the
/// loop by itself when it takes the program.
const RECORDS: i32 = 48;
/// Bytes of a name with its end.
const LONGEST_NAME: i32 = 256;
/// How far up directories and mounts are followed: as many as there can be in a path.
const STEPS: i32 = LONGEST_PATH as i32;
/// The same where the kernel, when it checks the programs, follows each step by itself.
const FEW_STEPS: i32 = 32;

/// The filesystem is asked whether a name is still that of the file (`DCACHE_OP_REVALIDATE` of linux/dcache.h).
const ASKED_AGAIN: i32 = 4;

impl Code {
    /// Begins a part, whose length so far is where records have their time.
    pub(super) fn part(&mut self, part: u32) {
        self.set(R1, part.cast_signed());
        self.numbered_part();
    }

    /// Begins part R1.
    fn numbered_part(&mut self) {
        self.put(STORE_64, MEMORY, R1, in_part(WHAT), 0);
        self.clear(in_part(AT));
        self.put(LOAD_64, R1, MEMORY, field(TID), 0);
        self.put(STORE_64, MEMORY, R1, in_part(TID), 0);
    }

    /// Marks the part as one that could not be told.
    pub(super) fn mark(&mut self) {
        self.put(LOAD_32, R2, MEMORY, in_part(WHAT), 0);
        self.set(R1, 1);
        self.put(SHIFT_LEFT_BY, R1, R2, 0, 0);
        self.put(LOAD_64, R2, MEMORY, MISSING, 0);
        self.put(OR, R1, R2, 0, 0);
        self.put(STORE_64, MEMORY, R1, MISSING, 0);
    }

    /// Begins part `first`, or one behind it: as the step of the loop around says.
    pub(super) fn part_of_step(&mut self, first: u32) {
        self.put(LOAD_64, R1, STACK, OUTER, 0);
        self.add(R1, first.cast_signed());
        self.numbered_part();
    }

    /// Limits what begins at [`POSITION`] to `most` bytes: all of it would fill the ring with four programs.
    pub(super) fn limit(&mut self, most: i32) {
        self.put(LOAD_64, R3, MEMORY, POSITION, 0);
        self.put(LOAD_64, R2, MEMORY, LIMIT, 0);
        self.put(SUBTRACT, R2, R3, 0, 0);
        let few = self.jump(IF_SIGNED_LESS, R2, 0, most);
        self.add(R3, most);
        self.put(STORE_64, MEMORY, R3, LIMIT, 0);
        self.land(few);
    }

    /// Tells what the program has in its memory from [`POSITION`] to [`LIMIT`].
    pub(super) fn memory(&mut self, part: u32, maps: &Maps<'_>) {
        self.part(part);
        let pieces = self.begin_loop(maps);
        self.put(LOAD_64, R3, MEMORY, POSITION, 0);
        self.put(LOAD_64, R2, MEMORY, LIMIT, 0);
        self.put(SUBTRACT, R2, R3, 0, 0);
        let all = self.jump(IF_SIGNED_LESS, R2, 0, 1);
        let few = self.jump(IF_LESS, R2, 0, PART);
        self.set(R2, PART);
        self.land(few);
        let unread = self.piece(maps);
        let full = self.jump(IF_NOT_EQUAL, R0, 0, 0);
        self.put(LOAD_64, R1, MEMORY, POSITION, 0);
        self.put(LOAD_64, R2, STACK, PIECE, 0);
        self.put(ADD, R1, R2, 0, 0);
        self.put(STORE_64, MEMORY, R1, POSITION, 0);
        self.end_loop(pieces, RECORDS);
        // More than is told.
        self.land(unread);
        self.land(full);
        self.mark();
        self.land(all);
    }

    /// Hands over the part with R2 bytes that the program has in its memory at R3; R0 says whether there was room. Returns the jump for when
    /// they cannot be read.
    pub(super) fn piece(&mut self, maps: &Maps<'_>) -> usize {
        self.put(STORE_64, STACK, R2, PIECE, 0);
        self.place(R1, in_part(REST));
        self.call(READ_USER);
        let unread = self.jump(IF_NOT_EQUAL, R0, 0, 0);
        self.place(R2, in_part(AT));
        self.put(LOAD_64, R3, STACK, PIECE, 0);
        self.add(R3, REST as i32);
        self.output(maps);
        unread
    }

    /// Tells the path that [`MOUNT`] and [`ENTRY`] lead to: its names, the last one first, each with its end.
    pub(super) fn path(&mut self, part: u32, layout: &Layout, maps: &Maps<'_>) {
        self.part(part);
        self.names(layout, maps);
    }

    /// Tells the paths of what the task has open as its first descriptors.
    pub(super) fn targets(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let unread = self.find_table(layout);
        let each = self.begin_outer(maps);
        let closed = self.file(STEP);
        self.read(MOUNT, 16, R3, layout.path_of_file);
        self.part_of_step(TARGETS);
        self.names(layout, maps);
        self.land(closed);
        self.end_outer(each, NUMBERED.cast_signed());
        self.land(unread);
    }

    /// Adds the names of a path to the part, and hands it over.
    pub(super) fn names(&mut self, layout: &Layout, maps: &Maps<'_>) {
        self.put(LOAD_64, R3, MEMORY, ENTRY, 0);
        self.follow(R3, layout.hashed);
        let named = self.jump(IF_NOT_EQUAL, R3, 0, 0);
        // The root of a filesystem is in no list of names, either.
        self.put(LOAD_64, R3, MEMORY, ENTRY, 0);
        self.follow(R3, layout.parent_directory);
        self.put(LOAD_64, R1, MEMORY, ENTRY, 0);
        let root = self.jump(IF_SAME, R1, R3, 0);
        // FUSE and others forget an entry when a lookup crosses its creation, though the file has its name.
        self.put(LOAD_64, R3, MEMORY, ENTRY, 0);
        self.read(OTHER, 4, R3, layout.entry_flags);
        self.put(LOAD_32, R1, MEMORY, OTHER, 0);
        self.put(AND_NUMBER, R1, 0, 0, ASKED_AGAIN);
        let certain = self.jump(IF_EQUAL, R1, 0, 0);
        self.put(LOAD_64, R3, MEMORY, ENTRY, 0);
        self.follow(R3, layout.inode_of_entry);
        self.read(OTHER, 4, R3, layout.links);
        self.put(LOAD_32, R1, MEMORY, OTHER, 0);
        let linked = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        self.land(certain);
        self.set(R1, UNNAMED.cast_signed());
        self.put(STORE_32, MEMORY, R1, in_part(NUMBER), 0);
        for jump in [named, root, linked] {
            self.land(jump);
        }
        let up = self.begin_loop(maps);
        self.put(LOAD_64, R3, MEMORY, MOUNT, 0);
        self.read(OTHER, 8, R3, layout.mount_root);
        self.put(LOAD_64, R1, MEMORY, OTHER, 0);
        self.put(LOAD_64, R2, MEMORY, ENTRY, 0);
        let within = self.jump(IF_NOT_SAME, R1, R2, 0);
        let (top, on) = self.above_mount(layout);
        self.land(within);
        self.put(LOAD_64, R3, MEMORY, ENTRY, 0);
        self.read(OTHER, 8, R3, layout.parent_directory);
        self.put(LOAD_64, R1, MEMORY, OTHER, 0);
        self.put(LOAD_64, R2, MEMORY, ENTRY, 0);
        // In no directory, as what has no path at all: a part of memory, an event.
        let detached = self.jump(IF_SAME, R1, R2, 0);
        let unread = self.name(layout);
        self.put(LOAD_64, R1, MEMORY, OTHER, 0);
        self.put(STORE_64, MEMORY, R1, ENTRY, 0);
        self.land(on);
        let steps = if maps.endless { STEPS } else { FEW_STEPS };
        self.end_loop(up, steps);
        let deep = self.jump(JUMP, 0, 0, 0);
        self.land(detached);
        let unreadable = self.name(layout);
        self.set(R1, DETACHED.cast_signed());
        self.put(STORE_32, MEMORY, R1, in_part(NUMBER), 0);
        self.land(top);
        self.put(LOAD_64, R3, MEMORY, in_part(AT), 0);
        self.put(AND_NUMBER, R3, 0, 0, LONGEST_PATH as i32 - 1);
        self.add(R3, REST as i32);
        self.place(R2, in_part(AT));
        self.output(maps);
        let told = self.jump(IF_EQUAL, R0, 0, 0);
        for jump in unread.into_iter().chain(unreadable).chain([deep]) {
            self.land(jump);
        }
        self.mark();
        self.land(told);
    }

    /// From the root of a mount to where that is mounted. Returns the jumps for when it is the uppermost, and to go on.
    fn above_mount(&mut self, layout: &Layout) -> (usize, usize) {
        self.put(LOAD_64, R3, MEMORY, MOUNT, 0);
        self.read(OTHER, 8, R3, layout.parent_mount - layout.mount);
        self.put(LOAD_64, R1, MEMORY, OTHER, 0);
        self.add(R1, layout.mount);
        self.put(LOAD_64, R2, MEMORY, MOUNT, 0);
        let top = self.jump(IF_SAME, R1, R2, 0);
        self.put(LOAD_64, R3, MEMORY, MOUNT, 0);
        self.read(ENTRY, 8, R3, layout.mount_point - layout.mount);
        self.put(LOAD_64, R1, MEMORY, OTHER, 0);
        self.add(R1, layout.mount);
        self.put(STORE_64, MEMORY, R1, MOUNT, 0);
        let on = self.jump(JUMP, 0, 0, 0);
        (top, on)
    }

    /// Adds the name of [`ENTRY`] to the part. Returns the jumps for when it cannot be read, or there is no room for more.
    /// The length is kept in memory: so the kernel, when it checks the loop, takes all steps for alike.
    fn name(&mut self, layout: &Layout) -> [usize; 2] {
        self.put(LOAD_64, R3, MEMORY, ENTRY, 0);
        self.follow(R3, layout.name_of_entry);
        self.put(LOAD_64, R2, MEMORY, in_part(AT), 0);
        self.put(AND_NUMBER, R2, 0, 0, LONGEST_PATH as i32 - 1);
        let long = self.jump(IF_GREATER, R2, 0, LONGEST_PATH as i32 - LONGEST_NAME - 1);
        self.place(R1, in_part(REST));
        self.put(ADD, R1, R2, 0, 0);
        self.set(R2, LONGEST_NAME);
        self.call(READ_KERNEL_TEXT);
        let unread = self.jump(IF_SIGNED_LESS, R0, 0, 1);
        self.put(LOAD_64, R1, MEMORY, in_part(AT), 0);
        self.put(ADD, R1, R0, 0, 0);
        self.put(STORE_64, MEMORY, R1, in_part(AT), 0);
        [long, unread]
    }
}
