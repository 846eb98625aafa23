//! What a program keeps while it runs: in this processor's scratch memory, and little on the stack. The kernel, when it checks a
//! program, takes what is in such memory for any number, and so knows soon that one step of a loop is like the one before.

use super::format::{MEMORY, Maps, REST};
use crate::bpf::code::{ADD, Code, IF_GREATER, MEMORY_OF_MAP, PROCESSOR, R0, SHIFT_LEFT};
use crate::bpf::messages;

/// What a part takes of scratch memory after its header.
pub(super) const PART: i32 = 1 << 16;

/// Bytes of a path with its end (`PATH_MAX`).
pub(super) const LONGEST_PATH: usize = 4096;

/// Bytes of scratch memory, as a power of 2.
const SCRATCH_BITS: i32 = 17;
pub(super) const SCRATCH: usize = 1 << SCRATCH_BITS;

/// Places in [`MEMORY`]: the record, and what is kept while one is made.
pub(super) const RECORD: i16 = 0;
const RECORD_BYTES: i16 = 256;
pub(super) const KEY: i16 = RECORD + RECORD_BYTES;
pub(super) const WORD: i16 = KEY + 8;
pub(super) const OTHER: i16 = WORD + 8;
/// A path as the kernel has it (`struct path`): a mount, and an entry in it.
pub(super) const MOUNT: i16 = OTHER + 8;
pub(super) const ENTRY: i16 = MOUNT + 8;
pub(super) const MISSING: i16 = ENTRY + 8;
pub(super) const SPACE: i16 = MISSING + 8;
pub(super) const POSITION: i16 = SPACE + 8;
pub(super) const LIMIT: i16 = POSITION + 8;
/// Not 0: something lies in a pipe to which nobody can add.
pub(super) const LYING: i16 = LIMIT + 8;
/// Of the table of descriptors: where the files are, where the bits of those in use, how many there may be, and what is left of 64 bits.
pub(super) const FILES: i16 = LYING + 8;
pub(super) const IN_USE: i16 = FILES + 8;
pub(super) const MOST: i16 = IN_USE + 8;
pub(super) const BITS: i16 = MOST + 8;
/// Of a pipe: where its buffers are, the next one to be read and the next one to be filled, how many there are, and the length of one.
pub(super) const BUFFERS: i16 = BITS + 8;
pub(super) const TAIL: i16 = BUFFERS + 8;
pub(super) const HEAD: i16 = TAIL + 8;
pub(super) const SLOTS: i16 = HEAD + 8;
pub(super) const LENGTH: i16 = SLOTS + 8;
/// What lies in all that were looked at.
pub(super) const BYTES: i16 = LENGTH + 8;
/// Of a buffer: where it is, its page, and where in the page it begins.
pub(super) const BUFFER: i16 = BYTES + 8;
pub(super) const PAGE: i16 = BUFFER + 8;
pub(super) const PLACE: i16 = PAGE + 8;
/// The inode of the pipe of which this processor last told what lies in it: kept when the program is over.
pub(super) const LAST_PIPE: i16 = PLACE + 8;
/// The thread that executed a program while this processor's clock stood still, if it has not left since: likewise.
pub(super) const HALTED_THREAD: i16 = LAST_PIPE + 8;
/// The task that the program is about, while it looks at another one.
pub(super) const OWN: i16 = HALTED_THREAD + 8;
/// Of a call: what is told of it, its number, and the file that it made or named.
pub(super) const SHAPE: i16 = OWN + 8;
pub(super) const CALL: i16 = SHAPE + 8;
pub(super) const FILE: i16 = CALL + 8;
/// Where its names are, and numbers of the directories that they are relative to.
pub(super) const ADDRESSES: [i16; 2] = [FILE + 8, FILE + 16];
pub(super) const DIRECTORIES: [i16; 2] = [FILE + 24, FILE + 32];
/// Of messages: see [`messages`].
pub(super) const MESSAGES: i16 = DIRECTORIES[1] + 8;
/// A part in the making, as long as it may get.
const PART_AT: i16 = 1024;
const _: () = assert!(MESSAGES + messages::KEPT <= PART_AT);
const _: () = assert!(PART_AT as usize + REST + PART as usize + LONGEST_PATH <= SCRATCH);

pub(super) fn field(at: usize) -> i16 {
    RECORD + at as i16
}

/// The same of a part.
pub(super) fn in_part(at: usize) -> i16 {
    PART_AT + at as i16
}

/// Places on the stack: ids of thread and process, the latter alone, the step of a loop around another one, what is handed over, and how
/// much of memory that is.
pub(super) const IDS: i16 = -8;
pub(super) const PROCESS: i16 = -16;
pub(super) const OUTER: i16 = -24;
pub(super) const WHERE: i16 = -32;
pub(super) const HOW_MUCH: i16 = -40;
pub(super) const PIECE: i16 = -48;

impl Code {
    /// The address of a place in [`MEMORY`].
    pub(super) fn place(&mut self, to: u8, at: i16) {
        self.copy(to, MEMORY);
        self.add(to, at.into());
    }

    /// Points [`MEMORY`] at this processor's.
    pub(super) fn scratch(&mut self, maps: &Maps<'_>) {
        self.call(PROCESSOR);
        self.leave_if(IF_GREATER, R0, maps.processors.cast_signed() - 1);
        self.put(SHIFT_LEFT, R0, 0, 0, SCRATCH_BITS);
        self.map(MEMORY, MEMORY_OF_MAP, maps.scratch);
        self.put(ADD, MEMORY, R0, 0, 0);
    }
}
