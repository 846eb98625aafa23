//! What a socket is: its domain, its state, and the addresses of both of its sides.

use super::calls::{
    FAMILY, LOCAL, LOCAL_PORT, LONGEST_ADDRESS, OTHER_INODE, OWN_ADDRESS, PEER, PEER_PORT, STATE,
    TYPE,
};
use super::format::{ADDRESS, AT, MEMORY, Maps, NUMBER, REST};
use super::layout::Layout;
use super::memory::{FILE, MOUNT, OTHER, WORD, field, in_part};
use crate::bpf::code::{
    AND_NUMBER, Code, IF_EQUAL, IF_NOT_EQUAL, JUMP, LOAD_32, LOAD_64, R1, R2, R3, READ_KERNEL,
    STORE_32, STORE_64,
};

impl Code {
    /// Tells what socket [`FILE`] is.
    pub(super) fn socket(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let calls = &layout.calls;
        self.put(LOAD_64, R3, MEMORY, FILE, 0);
        self.follow(R3, calls.of_file);
        self.put(STORE_64, MEMORY, R3, OTHER, 0);
        self.read(field(TYPE), 2, R3, calls.kind);
        self.put(LOAD_64, R3, MEMORY, OTHER, 0);
        self.read(FILE, 8, R3, calls.of_network);
        let read = |code: &mut Code, to: usize, size: usize, offset: i32| {
            code.put(LOAD_64, R3, MEMORY, FILE, 0);
            code.read(field(to), size, R3, offset);
        };
        read(self, FAMILY, 2, calls.family);
        read(self, STATE, 1, calls.state);
        read(self, LOCAL_PORT, 2, calls.local_port);
        read(self, PEER_PORT, 2, calls.peer_port);
        self.put(LOAD_32, R1, MEMORY, field(FAMILY), 0);
        self.put(AND_NUMBER, R1, 0, 0, 0xffff);
        let unix = self.jump(IF_EQUAL, R1, 0, libc::AF_UNIX);
        let sixth = self.jump(IF_EQUAL, R1, 0, libc::AF_INET6);
        let other = self.jump(IF_NOT_EQUAL, R1, 0, libc::AF_INET);
        read(self, LOCAL, 4, calls.local.0);
        read(self, PEER, 4, calls.peer.0);
        let fourth = self.jump(JUMP, 0, 0, 0);
        self.land(sixth);
        read(self, LOCAL, 16, calls.local.1);
        read(self, PEER, 16, calls.peer.1);
        let told = self.jump(JUMP, 0, 0, 0);
        self.land(unix);
        self.put(LOAD_64, R3, MEMORY, FILE, 0);
        self.read(MOUNT, 8, R3, calls.other);
        self.put(LOAD_64, R3, MEMORY, MOUNT, 0);
        let alone = self.jump(IF_EQUAL, R3, 0, 0);
        self.follow(R3, calls.socket);
        let unaccepted = self.jump(IF_EQUAL, R3, 0, 0);
        self.read(field(OTHER_INODE), 8, R3, calls.inode + layout.open.number);
        self.land(alone);
        self.land(unaccepted);
        self.address(layout, maps);
        for jump in [other, fourth, told] {
            self.land(jump);
        }
    }

    /// Tells the address of socket [`FILE`] of the domain UNIX, or that of its peer, at [`MOUNT`].
    fn address(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let calls = &layout.calls;
        self.part(ADDRESS);
        self.put(LOAD_64, R3, MEMORY, FILE, 0);
        self.follow(R3, calls.address);
        let unnamed = self.jump(IF_EQUAL, R3, 0, 0);
        self.set(R1, OWN_ADDRESS.cast_signed());
        self.put(STORE_32, MEMORY, R1, in_part(NUMBER), 0);
        let own = self.jump(JUMP, 0, 0, 0);
        self.land(unnamed);
        self.put(LOAD_64, R3, MEMORY, MOUNT, 0);
        let alone = self.jump(IF_EQUAL, R3, 0, 0);
        self.follow(R3, calls.address);
        let nowhere = self.jump(IF_EQUAL, R3, 0, 0);
        self.land(own);
        self.put(STORE_64, MEMORY, R3, OTHER, 0);
        self.clear(WORD);
        self.read(WORD, 4, R3, calls.length);
        self.put(LOAD_64, R1, MEMORY, WORD, 0);
        // The length of the address is where its time would be.
        self.put(STORE_64, MEMORY, R1, in_part(AT), 0);
        self.place(R1, in_part(REST));
        self.set(R2, LONGEST_ADDRESS);
        self.put(LOAD_64, R3, MEMORY, OTHER, 0);
        self.add(R3, calls.name);
        self.call(READ_KERNEL);
        self.place(R2, in_part(AT));
        self.set(R3, REST as i32 + LONGEST_ADDRESS);
        self.output(maps);
        self.land(alone);
        self.land(nowhere);
    }
}
