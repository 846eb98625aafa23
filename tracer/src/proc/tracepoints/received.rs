//! Pipes and sockets that come with messages (`SCM_RIGHTS` of unix(7)): of each is told as if it had come by a call of its own.

use std::mem::offset_of;

use super::calls::{RECEIVED, RESULT, SEVERAL_RECEIVED, argument};
use super::format::{CONTEXT, MEMORY, Maps, OPENED, STEP};
use super::layout::Layout;
use super::memory::{FILE, MESSAGES, MOUNT, PIECE, SHAPE, field};
use crate::bpf::code::{
    Code, IF_EQUAL, IF_GREATER, IF_LESS, IF_NOT_EQUAL, JUMP, LOAD_64, R1, R2, R3, READ_USER, STACK,
    STORE_64,
};
use crate::bpf::{messages, registers};

/// A call takes no more messages (`UIO_MAXIOV` of linux/uio.h).
const MOST: i32 = 1024;

impl Code {
    /// Leaves if a message was received by recvmsg(2) that carries nothing but data. The call's number is [`STEP`].
    pub(super) fn unless_received_alone(&mut self) {
        const MESSAGE: usize = 1;
        const LENGTH: i16 = PIECE;
        let other = self.jump(IF_NOT_EQUAL, STEP, 0, libc::SYS_recvmsg as i32);
        self.load(R3, CONTEXT, 0);
        let message = registers::argument(MESSAGE);
        self.load(R3, R3, message);
        self.add(R3, offset_of!(libc::msghdr, msg_controllen) as i32);
        self.set(R1, 0);
        self.put(STORE_64, STACK, R1, LENGTH, 0);
        self.stack(R1, LENGTH);
        self.set(R2, 8);
        self.call(READ_USER);
        self.put(LOAD_64, R1, STACK, LENGTH, 0);
        self.leave_if(IF_LESS, R1, messages::SHORTEST);
        self.land(other);
    }

    /// If messages were received, tells of the pipes and sockets that came with them, and leaves.
    pub(super) fn received(&mut self, layout: &Layout, maps: &Maps<'_>) {
        self.put(LOAD_64, R1, MEMORY, SHAPE, 0);
        self.set(R2, 1);
        let one = self.jump(IF_EQUAL, R1, 0, RECEIVED);
        self.put(LOAD_64, R2, MEMORY, field(RESULT), 0);
        let other = self.jump(IF_NOT_EQUAL, R1, 0, SEVERAL_RECEIVED);
        self.leave_if(IF_GREATER, R2, MOST);
        self.land(one);
        self.put(LOAD_64, R3, MEMORY, argument(1), 0);
        self.carried((MEMORY, MESSAGES), PIECE - 8, |code| {
            code.copy(STEP, R1);
            let gone = code.descriptor(layout, maps);
            let pipe = code.jump(IF_EQUAL, R1, 0, libc::S_IFIFO.cast_signed());
            let other = code.jump(IF_NOT_EQUAL, R1, 0, libc::S_IFSOCK.cast_signed());
            code.no_socket();
            code.socket(layout, maps);
            let socket = code.jump(JUMP, 0, 0, 0);
            code.land(pipe);
            code.no_socket();
            code.put(LOAD_64, R3, MEMORY, FILE, 0);
            code.read(MOUNT, 16, R3, layout.path_of_file);
            code.path(OPENED, layout, maps);
            code.land(socket);
            code.tell_call(maps);
            for jump in gone.into_iter().chain([other]) {
                code.land(jump);
            }
        });
        self.leaves.push(self.all.len());
        self.put(JUMP, 0, 0, 0, 0);
        self.land(other);
    }
}
