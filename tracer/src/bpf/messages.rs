//! Descriptors that messages carry from process to process (`SCM_RIGHTS` of unix(7)), as whoever sends or has received them has them in its
//! memory (cmsg(3)).

use std::mem::offset_of;

use super::code::{
    ADD, ADD_NUMBER, AND_NUMBER, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, IF_SIGNED_LESS,
    JUMP, JUMP_LATE, LOAD_32, LOAD_64, R0, R1, R2, R3, READ_USER, STACK, STORE_64, SUBTRACT,
};

/// Bytes that are kept meanwhile.
pub(crate) const KEPT: i16 = 64;
/// Places in them. Of the block of descriptors: the next one, and its end.
const NEXT: i16 = 0;
const LIMIT: i16 = 8;
/// Of the message: its next block, and the end of all.
const BLOCK: i16 = 16;
const END: i16 = 24;
/// The next message, and how many there are still to come.
const MESSAGE: i16 = 32;
const LEFT: i16 = 40;
/// What was read last, 16 bytes.
const READ: i16 = 48;
/// So many steps where the kernel follows each of them when it checks the program: two messages or blocks, and the rest are descriptors.
const FEW_STEPS: i32 = 6;

/// Bytes of the head of a block (`struct cmsghdr`), and of the shortest one with a descriptor.
const HEAD: i32 = 16;
pub(crate) const SHORTEST: i32 = HEAD + 4;
/// No message carries more (`optmem_max` of socket(7) is far below).
const LONGEST: i32 = 1 << 20;

impl Code {
    /// Does `each` for every descriptor that is carried by messages at the address in R3, as many as R2 says (`struct mmsghdr`, or a
    /// single `struct msghdr`): its number is in R1 then.
    ///
    /// [`KEPT`] bytes of a map's memory are in use meanwhile, from `at` behind `base` on, a register that `each` keeps: of what is there the
    /// kernel takes nothing for granted when it checks the loop, and so soon knows one step to be like another. Where it does not, it is to
    /// know how many steps there are, which is at `steps` on the stack.
    pub(crate) fn carried(
        &mut self,
        (base, at): (u8, i16),
        steps: i16,
        each: impl FnOnce(&mut Code),
    ) {
        self.put(STORE_64, base, R3, at + MESSAGE, 0);
        self.put(STORE_64, base, R2, at + LEFT, 0);
        self.set(R1, 0);
        for place in [NEXT, LIMIT, BLOCK, END, READ, READ + 8] {
            self.put(STORE_64, base, R1, at + place, 0);
        }
        self.set(R1, FEW_STEPS);
        self.put(STORE_64, STACK, R1, steps, 0);
        let step = self.all.len();
        let mut over = Vec::new();
        if Code::may_be_late() {
            over.push(self.jump(JUMP_LATE, 0, 0, 0));
        } else {
            self.put(LOAD_64, R1, STACK, steps, 0);
            over.push(self.jump(IF_EQUAL, R1, 0, 0));
            self.add(R1, -1);
            self.put(STORE_64, STACK, R1, steps, 0);
        }
        let all_told = self.unless_left((base, at), (NEXT, LIMIT), size_of::<i32>() as i32);
        over.push(self.read_memory((base, at), size_of::<i32>() as i32));
        self.move_on(base, at + NEXT, size_of::<i32>() as i32);
        self.put(LOAD_32, R1, base, at + READ, 0);
        each(self);
        self.jump_back(JUMP, 0, 0, step);
        self.land(all_told);
        let no_block = self.unless_left((base, at), (BLOCK, END), SHORTEST);
        over.push(self.read_memory((base, at), HEAD));
        over.extend(self.block((base, at)));
        self.jump_back(JUMP, 0, 0, step);
        self.land(no_block);
        self.put(LOAD_64, R1, base, at + LEFT, 0);
        over.push(self.jump(IF_EQUAL, R1, 0, 0));
        self.move_on(base, at + LEFT, -1);
        self.put(LOAD_64, R3, base, at + MESSAGE, 0);
        self.add(R3, offset_of!(libc::msghdr, msg_control) as i32);
        over.push(self.read_memory((base, at), 16));
        self.message((base, at));
        self.jump_back(JUMP, 0, 0, step);
        for jump in over {
            self.land(jump);
        }
    }

    /// Returns the jump for when there are less than `bytes` from the one place to the other, and else puts the former into R3.
    fn unless_left(&mut self, (base, at): (u8, i16), (from, to): (i16, i16), bytes: i32) -> usize {
        self.put(LOAD_64, R2, base, at + to, 0);
        self.put(LOAD_64, R3, base, at + from, 0);
        self.put(SUBTRACT, R2, R3, 0, 0);
        self.jump(IF_SIGNED_LESS, R2, 0, bytes)
    }

    /// Reads what is at R3. Returns the jump for when that cannot be read.
    fn read_memory(&mut self, (base, at): (u8, i16), bytes: i32) -> usize {
        self.copy(R1, base);
        self.add(R1, i32::from(at + READ));
        self.set(R2, bytes);
        self.call(READ_USER);
        self.jump(IF_NOT_EQUAL, R0, 0, 0)
    }

    fn move_on(&mut self, base: u8, place: i16, by: i32) {
        self.put(LOAD_64, R1, base, place, 0);
        self.put(ADD_NUMBER, R1, 0, 0, by);
        self.put(STORE_64, base, R1, place, 0);
    }

    /// A block begins, whose head was read. Returns the jumps for when it has no length that a block may have.
    fn block(&mut self, (base, at): (u8, i16)) -> [usize; 2] {
        self.put(LOAD_64, R2, base, at + READ, 0);
        let short = self.jump(IF_LESS, R2, 0, HEAD);
        let long = self.jump(IF_GREATER, R2, 0, LONGEST);
        self.put(LOAD_64, R3, base, at + BLOCK, 0);
        // Without descriptors it ends where it begins.
        self.put(STORE_64, base, R3, at + NEXT, 0);
        self.put(STORE_64, base, R3, at + LIMIT, 0);
        self.put(LOAD_32, R1, base, at + READ + 8, 0);
        let other_level = self.jump(IF_NOT_EQUAL, R1, 0, libc::SOL_SOCKET);
        self.put(LOAD_32, R1, base, at + READ + 12, 0);
        let other_kind = self.jump(IF_NOT_EQUAL, R1, 0, libc::SCM_RIGHTS);
        self.copy(R1, R3);
        self.put(ADD, R1, R2, 0, 0);
        self.put(STORE_64, base, R1, at + LIMIT, 0);
        self.copy(R1, R3);
        self.add(R1, HEAD);
        self.put(STORE_64, base, R1, at + NEXT, 0);
        self.land(other_level);
        self.land(other_kind);
        self.add(R2, 7);
        self.put(AND_NUMBER, R2, 0, 0, -8);
        self.put(ADD, R3, R2, 0, 0);
        self.put(STORE_64, base, R3, at + BLOCK, 0);
        [short, long]
    }

    /// A message begins, of which was read where its blocks are and how long they are together.
    fn message(&mut self, (base, at): (u8, i16)) {
        self.move_on(base, at + MESSAGE, size_of::<libc::mmsghdr>() as i32);
        self.put(LOAD_64, R3, base, at + READ, 0);
        self.put(LOAD_64, R2, base, at + READ + 8, 0);
        let usual = self.jump(IF_LESS, R2, 0, LONGEST);
        self.set(R2, 0);
        self.land(usual);
        self.put(STORE_64, base, R3, at + BLOCK, 0);
        self.put(ADD, R3, R2, 0, 0);
        self.put(STORE_64, base, R3, at + END, 0);
    }
}
