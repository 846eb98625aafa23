//! How many bytes calls have moved that send or receive several messages at a time (sendmmsg(2), recvmmsg(2)): their result is a number of
//! messages, and the kernel says of each in the program's memory how long it was. Told just before the call's return is.

use std::mem::offset_of;

use super::carried::BASE;
use super::program::{CONTEXT, CPU, HERE, LOST_RETURNS, MOVED, Maps, NUMBER_OF_CALL, RECORD, REST};
use crate::bpf::code::{
    ADD, Code, IF_EQUAL, IF_NOT_EQUAL, IF_SIGNED_LESS, JUMP, JUMP_LATE, LOAD_32, LOAD_64, R0, R1,
    R2, R3, READ_USER, STACK, STORE_64,
};
use crate::bpf::registers;

/// Places behind [`BASE`]: where the next message is, how many there are still to come, their bytes so far, and what was read.
const NEXT: i16 = 0;
const LEFT: i16 = 8;
const SUM: i16 = 16;
const LENGTH: i16 = 24;

impl Code {
    /// Tells it, if the call that returns on processor [`HERE`] is such a one and has moved something.
    pub(super) fn several(&mut self, maps: &Maps<'_>) {
        if !Code::may_be_late() {
            // Of so many messages the kernel would check each by itself.
            return;
        }
        let sends = self.jump(IF_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_sendmmsg as i32);
        let other = self.jump(IF_NOT_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_recvmmsg as i32);
        self.land(sends);
        self.load(R2, CONTEXT, 8);
        let none = self.jump(IF_SIGNED_LESS, R2, 0, 1);
        self.load(R3, CONTEXT, 0);
        self.load(R3, R3, registers::argument(1));
        self.begin_steps(maps);
        self.put(STORE_64, BASE, R3, NEXT, 0);
        self.put(STORE_64, BASE, R2, LEFT, 0);
        self.set(R1, 0);
        self.put(STORE_64, BASE, R1, SUM, 0);

        let step = self.all.len();
        let late = self.jump(JUMP_LATE, 0, 0, 0);
        self.copy(R1, BASE);
        self.add(R1, LENGTH.into());
        self.set(R2, 4);
        self.put(LOAD_64, R3, BASE, NEXT, 0);
        self.add(R3, offset_of!(libc::mmsghdr, msg_len) as i32);
        self.call(READ_USER);
        let unread = self.jump(IF_NOT_EQUAL, R0, 0, 0);
        self.put(LOAD_64, R1, BASE, SUM, 0);
        self.put(LOAD_32, R2, BASE, LENGTH, 0);
        self.put(ADD, R1, R2, 0, 0);
        self.put(STORE_64, BASE, R1, SUM, 0);
        self.put(LOAD_64, R1, BASE, NEXT, 0);
        self.add(R1, size_of::<libc::mmsghdr>() as i32);
        self.put(STORE_64, BASE, R1, NEXT, 0);
        self.put(LOAD_64, R1, BASE, LEFT, 0);
        self.add(R1, -1);
        self.put(STORE_64, BASE, R1, LEFT, 0);
        self.jump_back(IF_NOT_EQUAL, R1, 0, step);

        self.put(LOAD_64, CPU, STACK, HERE, 0);
        let full = self.record(MOVED, maps, |code| {
            code.put(LOAD_64, R1, BASE, SUM, 0);
            code.put(STORE_64, RECORD, R1, REST as i16, 0);
        });
        let told = self.jump(JUMP, 0, 0, 0);
        full.into_iter().for_each(|full| self.land(full));
        self.count(maps.lost, LOST_RETURNS);
        for jump in [told, late, unread] {
            self.land(jump);
        }
        self.end_steps();
        self.land(none);
        self.land(other);
    }
}
