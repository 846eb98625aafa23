//! Which open files messages carry from process to process: told when one is to be sent, and when one was received, just before that
//! call's return is. The kernel's address of an open file is the same on both sides, and nobody else's while it is under way.

use super::layout::Layout;
use super::program::{
    CARRIED, CONTEXT, CPU, HERE, LOST_RETURNS, Maps, NUMBER_OF_CALL, RECORD, REST,
};
use crate::bpf::code::{
    ADD, Code, IF_EQUAL, IF_GREATER, IF_NOT_EQUAL, IF_SIGNED_LESS, JUMP, LOAD_32, LOAD_64,
    MEMORY_OF_MAP, PROCESSOR, R0, R1, R2, R3, SHIFT_LEFT, STACK, STORE_64, SUBTRACT, TASK,
};
use crate::bpf::{messages, registers};

/// Bytes of memory that each processor has for this and what else goes step by step, as a power of 2.
const MEMORY_BITS: i32 = 7;
pub(super) const MEMORY: usize = 1 << MEMORY_BITS;
/// What points at it meanwhile, in place of the context.
pub(super) const BASE: u8 = CONTEXT;
/// Places in it.
const FD: i16 = messages::KEPT;
const FILE: i16 = FD + 8;
const INODE: i16 = FILE + 8;
const KIND: i16 = INODE + 8;
const MOST: i16 = KIND + 8;
const _: () = assert!(MOST as usize + 8 <= MEMORY);
/// Places on the stack: the context, what a call was given, and how many steps are left.
const KEPT: i16 = HERE + 8;
const COUNT: i16 = HERE + 16;
const ADDRESS: i16 = HERE + 24;
const STEPS: i16 = HERE + 32;

impl Code {
    /// Tells of what messages carry that are to be sent.
    pub(super) fn sends(&mut self, layout: Layout, maps: &Maps<'_>) {
        self.call(PROCESSOR);
        self.leave_if(IF_GREATER, R0, maps.processors.cast_signed() - 1);
        self.put(STORE_64, STACK, R0, HERE, 0);
        self.set(R2, 1);
        let one = self.jump(IF_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_sendmsg as i32);
        self.argument(COUNT, 2);
        self.put(LOAD_32, R2, STACK, COUNT, 0);
        self.land(one);
        self.tell_carried(layout, maps);
    }

    /// Tells of what messages carry that were received.
    pub(super) fn receives(&mut self, layout: Layout, maps: &Maps<'_>) {
        self.load(R2, CONTEXT, 8);
        let several = self.jump(IF_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_recvmmsg as i32);
        let other = self.jump(IF_NOT_EQUAL, NUMBER_OF_CALL, 0, libc::SYS_recvmsg as i32);
        let failed = self.jump(IF_SIGNED_LESS, R2, 0, 0);
        self.set(R2, 1);
        self.land(several);
        self.tell_carried(layout, maps);
        self.land(other);
        self.land(failed);
    }

    /// Tells of the descriptors that are carried by messages, as many as R2 says, of which the caller has told the address.
    fn tell_carried(&mut self, layout: Layout, maps: &Maps<'_>) {
        self.put(STORE_64, STACK, R2, COUNT, 0);
        let none = self.jump(IF_SIGNED_LESS, R2, 0, 1);
        self.argument(ADDRESS, 1);
        self.begin_steps(maps);
        self.put(LOAD_64, R2, STACK, COUNT, 0);
        self.put(LOAD_64, R3, STACK, ADDRESS, 0);
        self.carried((BASE, 0), STEPS, |code| {
            let gone = code.open_file(layout);
            code.put(LOAD_64, CPU, STACK, HERE, 0);
            let full = code.record(CARRIED, maps, |code| {
                let places = [FD, FILE, INODE, KIND].into_iter();
                for (from, to) in places.zip((REST..).step_by(8)) {
                    code.put(LOAD_64, R1, BASE, from, 0);
                    code.put(STORE_64, RECORD, R1, to as i16, 0);
                }
            });
            let told = code.jump(JUMP, 0, 0, 0);
            full.into_iter().for_each(|full| code.land(full));
            code.count(maps.lost, LOST_RETURNS);
            code.land(told);
            for jump in gone {
                code.land(jump);
            }
        });
        self.end_steps();
        self.land(none);
    }

    /// Points [`BASE`] at the memory of processor [`HERE`], up to [`Code::end_steps`].
    pub(super) fn begin_steps(&mut self, maps: &Maps<'_>) {
        self.put(STORE_64, STACK, CONTEXT, KEPT, 0);
        self.map(BASE, MEMORY_OF_MAP, maps.memory);
        self.put(LOAD_64, R1, STACK, HERE, 0);
        self.put(SHIFT_LEFT, R1, 0, 0, MEMORY_BITS);
        self.put(ADD, BASE, R1, 0, 0);
    }

    pub(super) fn end_steps(&mut self) {
        self.put(LOAD_64, CONTEXT, STACK, KEPT, 0);
    }

    /// Reads what register of the caller holds this argument of its call.
    pub(super) fn argument(&mut self, to: i16, argument: usize) {
        self.load(R3, CONTEXT, 0);
        self.load(R3, R3, registers::argument(argument));
        self.put(STORE_64, STACK, R3, to, 0);
    }

    /// What descriptor R1 of the caller is. Returns the jumps for when there is none.
    fn open_file(&mut self, layout: Layout) -> [usize; 2] {
        self.put(STORE_64, BASE, R1, FD, 0);
        self.set(R1, 0);
        for place in [MOST, KIND] {
            self.put(STORE_64, BASE, R1, place, 0);
        }
        self.call(TASK);
        self.read_kernel(BASE, FILE, 8, R0, layout.files);
        self.on_from(FILE, layout.table);
        self.put(LOAD_64, R3, BASE, FILE, 0);
        self.read_kernel(BASE, MOST, 4, R3, layout.most);
        self.put(LOAD_64, R2, BASE, MOST, 0);
        self.put(LOAD_64, R1, BASE, FD, 0);
        self.put(SUBTRACT, R2, R1, 0, 0);
        let beyond = self.jump(IF_SIGNED_LESS, R2, 0, 1);
        self.on_from(FILE, layout.all);
        self.put(LOAD_64, R3, BASE, FILE, 0);
        self.put(LOAD_64, R1, BASE, FD, 0);
        self.put(SHIFT_LEFT, R1, 0, 0, 3);
        self.put(ADD, R3, R1, 0, 0);
        self.read_kernel(BASE, FILE, 8, R3, 0);
        self.put(LOAD_64, R3, BASE, FILE, 0);
        let closed = self.jump(IF_EQUAL, R3, 0, 0);
        self.read_kernel(BASE, INODE, 8, R3, layout.inode);
        self.put(LOAD_64, R3, BASE, INODE, 0);
        self.read_kernel(BASE, KIND, 2, R3, layout.kind);
        self.on_from(INODE, layout.number);
        [beyond, closed]
    }

    /// Puts the word that is behind the address at a place in its place.
    fn on_from(&mut self, place: i16, offset: i32) {
        self.put(LOAD_64, R3, BASE, place, 0);
        self.read_kernel(BASE, place, 8, R3, offset);
    }
}
