//! What a call has in its program's memory, of which its arguments tell addresses alone: lengths of pieces, offsets.
//! It is read when the call begins, if it is in memory then: a program at a tracepoint may not wait for a page.

use super::program::{CONTEXT, COPIES, CPU, MESSAGE, OFFSETS, ORDER, REGISTERS, VECTOR, WORD};
use crate::bpf::code::{
    ADD, AND_NUMBER, Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, JUMP, JUMP_LATE, LOAD_64,
    OR, R0, R1, R2, R3, READ_USER, SHIFT_LEFT, SHIFT_RIGHT, STACK, STORE_64,
};
use crate::bpf::registers;

/// Pieces that a call may have (`UIO_MAXIOV` of include/uapi/linux/uio.h).
const MOST: i32 = 1024;
/// Bytes of a piece (`struct iovec`) as a power of 2, and where its length is.
const PIECE_BITS: i32 = 4;
const PIECE_LENGTH: i16 = 8;
/// Pieces that are read at once: with fewer the kernel takes longer to check the loop, with more there is no room.
const AT_ONCE: i32 = 16;
/// No length has more bits: it would be no address either.
const LENGTH_BITS: i32 = 48;
/// Where a message (`struct msghdr`) has the address of its pieces; their number follows.
const MESSAGE_PIECES: i32 = 16;

/// Places on the stack.
const KEPT: i16 = COPIES - 8;
const PIECES: i16 = KEPT - 8;
const COUNT: i16 = PIECES - 8;
const SUM: i16 = COUNT - 8;
const BITS: i16 = SUM - 8;
const BUFFER: i16 = BITS - ((AT_ONCE as i16) << PIECE_BITS);
/// How often pieces were read; calls of helpers keep it.
const INDEX: u8 = CPU;

impl Code {
    /// Copies the caller's registers to [`COPIES`]. Those with addresses of lengths or offsets have instead one more
    /// than the sum of the lengths, or than the offset: 0 if there was no address, [`u64::MAX`] if it could not be read.
    pub(super) fn copy_told(&mut self) {
        self.put(STORE_64, STACK, CPU, KEPT, 0);
        self.load(R3, CONTEXT, 0);
        self.read_kernel(STACK, COPIES, REGISTERS, R3, registers::ARGUMENTS);
        let no_lengths = self.unless(VECTOR | MESSAGE);
        self.lengths();
        let told = self.jump(JUMP, 0, 0, 0);
        self.land(no_lengths);
        let one = self.unless(OFFSETS);
        self.offset(1);
        self.offset(3);
        let both = self.jump(JUMP, 0, 0, 0);
        self.land(one);
        self.offset(2);
        self.land(both);
        self.land(told);
        self.put(LOAD_64, CPU, STACK, KEPT, 0);
    }

    /// Puts the offset in place of its address, which is this argument.
    fn offset(&mut self, argument: usize) {
        self.put(LOAD_64, R3, STACK, place(argument), 0);
        let none = self.jump(IF_EQUAL, R3, 0, 0);
        self.stack(R1, WORD);
        self.set(R2, 8);
        self.call(READ_USER);
        self.set(R1, -1);
        let unread = self.jump(IF_NOT_EQUAL, R0, 0, 0);
        self.put(LOAD_64, R1, STACK, WORD, 0);
        self.add(R1, 1);
        self.land(unread);
        self.put(STORE_64, STACK, R1, place(argument), 0);
        self.land(none);
    }

    /// Puts the sum of the lengths in place of their address.
    fn lengths(&mut self) {
        let mut unknown = Vec::new();
        self.put(LOAD_64, R3, STACK, place(1), 0);
        self.put(LOAD_64, R1, STACK, place(2), 0);
        let vector = self.unless(MESSAGE);
        self.add(R3, MESSAGE_PIECES);
        self.stack(R1, BUFFER);
        self.set(R2, 16);
        self.call(READ_USER);
        unknown.push(self.jump(IF_NOT_EQUAL, R0, 0, 0));
        self.put(LOAD_64, R3, STACK, BUFFER, 0);
        self.put(LOAD_64, R1, STACK, BUFFER + 8, 0);
        self.land(vector);
        unknown.push(self.jump(IF_GREATER, R1, 0, MOST));
        self.put(STORE_64, STACK, R3, PIECES, 0);
        self.put(STORE_64, STACK, R1, COUNT, 0);
        self.set(INDEX, 0);
        self.put(STORE_64, STACK, INDEX, SUM, 0);
        self.put(STORE_64, STACK, INDEX, BITS, 0);
        let next = self.all.len();
        let late = Code::may_be_late().then(|| self.jump(JUMP_LATE, 0, 0, 0));
        self.put(LOAD_64, R1, STACK, COUNT, 0);
        let few = self.jump(IF_LESS, R1, 0, AT_ONCE);
        self.set(R2, AT_ONCE << PIECE_BITS);
        self.pieces();
        self.sum(AT_ONCE);
        self.put(LOAD_64, R1, STACK, PIECES, 0);
        self.add(R1, AT_ONCE << PIECE_BITS);
        self.put(STORE_64, STACK, R1, PIECES, 0);
        self.put(LOAD_64, R1, STACK, COUNT, 0);
        self.add(R1, -AT_ONCE);
        self.put(STORE_64, STACK, R1, COUNT, 0);
        match late {
            Some(late) => {
                self.jump_back(JUMP, 0, 0, next);
                self.land(late);
            }
            None => {
                self.add(INDEX, 1);
                self.jump_back(IF_LESS, INDEX, MOST / AT_ONCE, next);
            }
        }
        self.land(few);
        self.set(R1, 0);
        for piece in 0..AT_ONCE as i16 {
            let at = BUFFER + (piece << PIECE_BITS);
            self.put(STORE_64, STACK, R1, at, 0);
            self.put(STORE_64, STACK, R1, at + PIECE_LENGTH, 0);
        }
        self.put(LOAD_64, R2, STACK, COUNT, 0);
        self.put(AND_NUMBER, R2, 0, 0, AT_ONCE - 1);
        self.put(SHIFT_LEFT, R2, 0, 0, PIECE_BITS);
        self.pieces();
        self.sum(AT_ONCE - 1);
        self.put(LOAD_64, R1, STACK, BITS, 0);
        self.put(SHIFT_RIGHT, R1, 0, 0, LENGTH_BITS);
        unknown.push(self.jump(IF_NOT_EQUAL, R1, 0, 0));
        self.put(LOAD_64, R1, STACK, SUM, 0);
        self.add(R1, 1);
        let known = self.jump(JUMP, 0, 0, 0);
        for jump in unknown {
            self.land(jump);
        }
        self.set(R1, -1);
        self.land(known);
        self.put(STORE_64, STACK, R1, place(1), 0);
    }

    /// Reads as many bytes of pieces as R2 says.
    fn pieces(&mut self) {
        self.stack(R1, BUFFER);
        self.put(LOAD_64, R3, STACK, PIECES, 0);
        self.call(READ_USER);
    }

    /// Adds the lengths of pieces that were read, and notes the bits that they have; an error has the highest.
    fn sum(&mut self, count: i32) {
        self.put(LOAD_64, R1, STACK, SUM, 0);
        self.put(LOAD_64, R2, STACK, BITS, 0);
        self.put(OR, R2, R0, 0, 0);
        for piece in 0..count as i16 {
            let at = BUFFER + (piece << PIECE_BITS) + PIECE_LENGTH;
            self.put(LOAD_64, R3, STACK, at, 0);
            self.put(ADD, R1, R3, 0, 0);
            self.put(OR, R2, R3, 0, 0);
        }
        self.put(STORE_64, STACK, R1, SUM, 0);
        self.put(STORE_64, STACK, R2, BITS, 0);
    }
}

/// The place of an argument on the stack.
fn place(argument: usize) -> i16 {
    COPIES + 8 * ORDER[argument] as i16
}
