//! What is sent to an address: who sends datagrams need not be connected. The first address of each socket is told.

use super::calls::{LONGEST_ADDRESS, SENT, SENT_MESSAGE, argument};
use super::format::{CONTEXT, MEMORY, Maps, NAMES, STEP};
use super::layout::Layout;
use super::memory::{ADDRESSES, KEY, SHAPE};
use crate::bpf::code::{
    Code, IF_EQUAL, IF_LESS, IF_NOT_EQUAL, LOAD_32, LOAD_64, LOOK_UP, MAP, R0, R1, R2, R3, R4,
    READ_USER, STORE_64, UPDATE,
};
use crate::bpf::registers;

/// Sockets of which the kernel remembers that they were told. When it has more all that these send is told.
pub(super) const SOCKETS: u32 = 1 << 16;

impl Code {
    /// Leaves if something is sent by sendto(2) to no address: to whom its socket is connected, which is told. Its number is [`STEP`].
    pub(super) fn unless_sent_on(&mut self) {
        const ADDRESS: usize = 4;
        let other = self.jump(IF_NOT_EQUAL, STEP, 0, libc::SYS_sendto as i32);
        self.load(R3, CONTEXT, 0);
        self.load(R1, R3, registers::argument(ADDRESS));
        self.leave_if(IF_EQUAL, R1, 0);
        self.land(other);
    }

    /// Of what is sent tells the address, or leaves: if there is none, or the socket, descriptor [`STEP`], was told before.
    pub(super) fn unless_sent_before(&mut self, layout: &Layout, maps: &Maps<'_>) {
        self.put(LOAD_64, R1, MEMORY, SHAPE, 0);
        let other = self.jump(IF_LESS, R1, 0, SENT);
        for (place, argument) in ADDRESSES.into_iter().zip([argument(4), argument(5)]) {
            self.put(LOAD_64, R1, MEMORY, argument, 0);
            self.put(STORE_64, MEMORY, R1, place, 0);
        }
        let direct = self.unless_told(SENT_MESSAGE);
        // A message (`struct msghdr`) begins with the place of the address, and its length.
        self.place(R1, ADDRESSES[0]);
        self.set(R2, 16);
        self.put(LOAD_64, R3, MEMORY, argument(1), 0);
        self.call(READ_USER);
        self.land(direct);
        self.put(LOAD_64, R1, MEMORY, ADDRESSES[0], 0);
        self.leave_if(IF_EQUAL, R1, 0);
        let gone = self.find_table(layout);
        let closed = self.file(STEP);
        self.follow(R3, layout.open.inode);
        self.clear(KEY);
        self.read(KEY, 4, R3, layout.open.number);
        self.map(R1, MAP, maps.sent);
        self.place(R2, KEY);
        self.call(LOOK_UP);
        self.leave_if(IF_NOT_EQUAL, R0, 0);
        self.map(R1, MAP, maps.sent);
        self.place(R2, KEY);
        self.place(R3, KEY);
        self.set(R4, 0);
        self.call(UPDATE);
        self.part(NAMES[0]);
        self.put(LOAD_32, R2, MEMORY, ADDRESSES[1], 0);
        let short = self.jump(IF_LESS, R2, 0, LONGEST_ADDRESS + 1);
        self.set(R2, LONGEST_ADDRESS);
        self.land(short);
        self.put(LOAD_64, R3, MEMORY, ADDRESSES[0], 0);
        let unread = self.piece(maps);
        for jump in [other, gone, closed, unread] {
            self.land(jump);
        }
    }
}
