//! Calls by which a process comes by descriptors, names and channels: told when they have returned, with what they did, so that
//! nobody is held.

use std::os::fd::BorrowedFd;

use super::format::{
    AT, BASES, CALLED, CONTEXT, MEMORY, Maps, NAMES, NUMBER, OPENED, REST, SECOND, STEP, TASK,
};
use super::layout::Layout;
use super::memory::{
    ADDRESSES, CALL, DIRECTORIES, FILE, MOUNT, OUTER, SHAPE, WORD, field, in_part,
};
use super::program::Whom;
use super::table::{DESCRIPTOR, ENTRY, KIND, Pipes, TRAFFIC, TRAFFIC_OF_COSTS, entry};
use crate::bpf::code::{
    self, ADD, AND_NUMBER, Code, IF_EQUAL, IF_GREATER, IF_NOT_EQUAL, IF_SIGNED_LESS, Instruction,
    JUMP, LOAD_8, LOAD_32, LOAD_64, MEMORY_OF_MAP, OR, R0, R1, R2, R3, READ_USER, READ_USER_TEXT,
    SHIFT_RIGHT, STACK, STORE_32, STORE_64,
};
use crate::bpf::registers;
use crate::proc::topology::{CHANGES, CallKind, IN_PAGE, own_opens};

/// A call, behind an entry of the descriptor that it returned or was given: result, arguments, what its thread has moved so far
/// ([`TRAFFIC`] words), and of a socket what it is.
pub(super) const RESULT: usize = REST + ENTRY;
pub(super) const ARGUMENTS: usize = RESULT + 8;
pub(super) const MOVED: usize = ARGUMENTS + 8 * SIX;
/// Family, type, and state; ports, addresses, and the inode of the other socket.
pub(super) const FAMILY: usize = MOVED + 8 * TRAFFIC;
pub(super) const TYPE: usize = FAMILY + 2;
pub(super) const STATE: usize = FAMILY + 4;
pub(super) const LOCAL_PORT: usize = FAMILY + 8;
pub(super) const PEER_PORT: usize = FAMILY + 10;
pub(super) const LOCAL: usize = FAMILY + 16;
pub(super) const PEER: usize = LOCAL + 16;
pub(super) const OTHER_INODE: usize = PEER + 16;
pub(super) const END: usize = OTHER_INODE + 8;
/// In [`NUMBER`] of an address: it is the socket's own, not its peer's.
pub(super) const OWN_ADDRESS: u32 = 1;
/// Bytes of an address with its family (`struct sockaddr_un`).
pub(super) const LONGEST_ADDRESS: i32 = 110;
/// Bytes of a name with its end (`PATH_MAX`).
const LONGEST: i32 = 4096;

/// A call has so many arguments.
pub(super) const SIX: usize = 6;
/// Numbers of calls are below this; those of 32-bit programs are told with so much more.
pub(super) const NUMBERS: usize = 512;

/// What is told of a call: 0 is nothing.
const RETURNED: i32 = 1;
const GIVEN: i32 = 2;
const PAIR: i32 = 3;
const PAIR_LAST: i32 = 4;
const NAMED: i32 = 5;
const NAMED_AT: i32 = 6;
const NAMED_SECOND: i32 = 7;
const RENAMED: i32 = 8;
const RENAMED_AT: i32 = 9;
const MOVED_TO: i32 = 10;
const ALONE: i32 = 11;
pub(super) const SENT: i32 = 12;
pub(super) const SENT_MESSAGE: i32 = 13;
pub(super) const RECEIVED: i32 = 14;
pub(super) const SEVERAL_RECEIVED: i32 = 15;

/// Bytes of what tells which calls are told.
pub(super) const WANTED: usize = OWN_OPENS + IN_PAGE as usize + 1;
/// Where it has a byte for each place in a page.
const OWN_OPENS: usize = 2 * NUMBERS;

/// For each number of a call what is told of it, those of 32-bit programs behind the others; then for each place in a page, of
/// the next instruction, whether files that are opened there are the C library's own.
pub(super) fn wanted() -> [u8; WANTED] {
    let mut wanted = [0; WANTED];
    for (number, shape) in wanted[..OWN_OPENS].iter_mut().enumerate() {
        let kind = kind_of(number);
        *shape = kind.map_or(0, |kind| shape_of(kind) as u8);
    }
    for place in own_opens() {
        wanted[OWN_OPENS + place as usize] = 1;
    }
    wanted
}

/// The call that is told with this number.
pub(super) fn kind_of(number: usize) -> Option<CallKind> {
    CallKind::numbered((number % NUMBERS) as u32, number >= NUMBERS)
}

fn shape_of(kind: CallKind) -> i32 {
    match kind {
        CallKind::Open
        | CallKind::OpenAt
        | CallKind::OpenAt2
        | CallKind::Creat
        | CallKind::Accept
        | CallKind::Socket => RETURNED,
        CallKind::Bind | CallKind::Connect => GIVEN,
        CallKind::Pipe => PAIR,
        CallKind::SocketPair => PAIR_LAST,
        CallKind::Unlink => NAMED,
        CallKind::UnlinkAt => NAMED_AT,
        CallKind::Rename | CallKind::Link => RENAMED,
        CallKind::RenameAt | CallKind::LinkAt => RENAMED_AT,
        CallKind::Mount => NAMED_SECOND,
        CallKind::MoveMount => MOVED_TO,
        CallKind::Splice | CallKind::ChangeView | CallKind::AsyncIo | CallKind::Ring => ALONE,
        CallKind::SendTo => SENT,
        CallKind::SendMessage => SENT_MESSAGE,
        CallKind::ReceiveMessage => RECEIVED,
        CallKind::ReceiveMessages => SEVERAL_RECEIVED,
        // Told with each exec.
        CallKind::Umask => 0,
    }
}

/// Where argument `n` is in the record.
pub(super) fn argument(n: usize) -> i16 {
    field(ARGUMENTS + 8 * n)
}

/// A call returned (`sys_exit`: registers, result). It is run for every call of the machine, so what is not told costs as little as can be: the
/// registers are read as they are, by the type of the tracepoint.
pub(super) fn returned(
    wanted: BorrowedFd<'_>,
    layout: &Layout,
    maps: &Maps<'_>,
) -> Vec<Instruction> {
    let mut code = Code::default();
    code.copy(CONTEXT, R1);
    code.only_returned(wanted);
    code.unless_own(wanted);
    code.unless_sent_on();
    code.unless_received_alone();
    code.begin(maps, Whom::Alive);
    code.call(code::TASK);
    code.copy(TASK, R0);
    code.arguments(layout);
    code.put(STORE_64, MEMORY, STEP, CALL, 0);
    code.find_wanted(wanted, STEP);
    code.put(LOAD_8, R1, R1, 0, 0);
    code.leave_if(IF_EQUAL, R1, 0);
    code.put(STORE_64, MEMORY, R1, SHAPE, 0);
    code.load(R1, CONTEXT, 8);
    code.put(STORE_64, MEMORY, R1, field(RESULT), 0);
    code.moved(layout);
    code.no_descriptor();
    code.what_it_did(layout, maps);
    code.tell_call(maps);
    code.leave();
    code.all
}

impl Code {
    /// Leaves unless the call may be one to be told, and succeeded, or is a connection that is still being made. Its number is [`STEP`] from
    /// then on.
    fn only_returned(&mut self, wanted: BorrowedFd<'_>) {
        self.load(R3, CONTEXT, 0);
        self.load(STEP, R3, registers::NUMBER);
        self.leave_if(IF_GREATER, STEP, NUMBERS as i32 - 1);
        self.find_wanted(wanted, STEP);
        self.put(LOAD_8, R2, R1, 0, 0);
        self.put(LOAD_8, R1, R1, NUMBERS as i16, 0);
        self.put(OR, R1, R2, 0, 0);
        self.leave_if(IF_EQUAL, R1, 0);
        self.load(R1, CONTEXT, 8);
        let failed = self.jump(IF_SIGNED_LESS, R1, 0, 0);
        let succeeded = self.jump(JUMP, 0, 0, 0);
        self.land(failed);
        self.leave_if(IF_NOT_EQUAL, R1, -libc::EINPROGRESS);
        self.land(succeeded);
    }

    /// Leaves if it is the C library that opens a file for itself, for reading: libraries, locales.
    fn unless_own(&mut self, wanted: BorrowedFd<'_>) {
        let other = self.jump(IF_NOT_EQUAL, STEP, 0, libc::SYS_openat as i32);
        self.load(R3, CONTEXT, 0);
        self.load(R1, R3, registers::argument(2));
        self.put(AND_NUMBER, R1, 0, 0, CHANGES.cast_signed());
        let changes = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        self.load(R2, R3, registers::INSTRUCTION);
        self.put(AND_NUMBER, R2, 0, 0, IN_PAGE.cast_signed());
        self.find_wanted(wanted, R2);
        self.put(LOAD_8, R1, R1, OWN_OPENS as i16, 0);
        self.leave_if(IF_NOT_EQUAL, R1, 0);
        self.land(other);
        self.land(changes);
    }

    /// Points R1 at the place in [`wanted`] that is in a register.
    fn find_wanted(&mut self, wanted: BorrowedFd<'_>, place: u8) {
        self.map(R1, MEMORY_OF_MAP, wanted);
        self.put(ADD, R1, place, 0, 0);
    }

    /// What the call was given. [`STEP`] tells a 32-bit program's calls from others from then on.
    fn arguments(&mut self, layout: &Layout) {
        self.clear(WORD);
        self.read(WORD, 4, TASK, layout.calls.status);
        self.load(R3, CONTEXT, 0);
        self.put(LOAD_64, R1, MEMORY, WORD, 0);
        self.put(AND_NUMBER, R1, 0, 0, registers::COMPATIBLE);
        let foreign = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        for n in 0..SIX {
            self.load(R1, R3, registers::argument(n));
            self.put(STORE_64, MEMORY, R1, argument(n), 0);
        }
        let end = self.jump(JUMP, 0, 0, 0);
        self.land(foreign);
        self.add(STEP, NUMBERS as i32);
        for n in 0..SIX {
            let at = registers::foreign_argument(n) as i16;
            self.put(LOAD_32, R1, R3, at, 0);
            self.put(STORE_64, MEMORY, R1, argument(n), 0);
        }
        self.land(end);
    }

    /// Tells of the call.
    pub(super) fn tell_call(&mut self, maps: &Maps<'_>) {
        self.header(CALLED);
        self.put(LOAD_64, R1, MEMORY, CALL, 0);
        self.put(STORE_32, MEMORY, R1, field(NUMBER), 0);
        self.emit(maps, END);
    }

    /// What the thread has moved so far.
    fn moved(&mut self, layout: &Layout) {
        let costs = layout.costs[TRAFFIC_OF_COSTS..][..TRAFFIC].iter();
        for (index, cost) in costs.enumerate() {
            let to = field(MOVED + 8 * index);
            match cost {
                Some(cost) => self.read(to, 8, TASK, *cost),
                None => self.clear(to),
            }
        }
    }

    /// There is no descriptor, unless one is described after this.
    fn no_descriptor(&mut self) {
        for at in (0..ENTRY).step_by(8) {
            self.clear(entry(at));
        }
        self.no_socket();
        self.set(R1, -1);
        self.put(STORE_64, MEMORY, R1, entry(DESCRIPTOR), 0);
    }

    pub(super) fn no_socket(&mut self) {
        for at in (FAMILY..END).step_by(8) {
            self.clear(field(at));
        }
    }

    fn what_it_did(&mut self, layout: &Layout, maps: &Maps<'_>) {
        for place in ADDRESSES.into_iter().chain(DIRECTORIES) {
            self.clear(place);
        }
        let mut ends = Vec::new();
        self.received(layout, maps);
        let one = [
            (RETURNED, field(RESULT)),
            (GIVEN, argument(0)),
            (SENT, argument(0)),
            (SENT_MESSAGE, argument(0)),
        ];
        let others = self.if_told(one, |code, of| code.put(LOAD_32, STEP, MEMORY, of, 0));
        self.unless_sent_before(layout, maps);
        self.one_descriptor(layout, maps);
        ends.push(self.jump(JUMP, 0, 0, 0));
        self.land(others);
        let two = [(PAIR, argument(0)), (PAIR_LAST, argument(3))];
        let others = self.if_told(two, |code, at| code.put(LOAD_64, R3, MEMORY, at, 0));
        self.two_descriptors(layout, maps);
        ends.push(self.jump(JUMP, 0, 0, 0));
        self.land(others);
        for (shape, names) in [
            (NAMED, &[(None, 0)][..]),
            (NAMED_AT, &[(Some(0), 1)]),
            (NAMED_SECOND, &[(None, 1)]),
            (RENAMED, &[(None, 0), (None, 1)]),
            (RENAMED_AT, &[(Some(0), 1), (Some(2), 3)]),
            (MOVED_TO, &[(Some(2), 3)]),
        ] {
            let other = self.unless_told(shape);
            for (place, &(directory, address)) in names.iter().enumerate() {
                self.put(LOAD_64, R1, MEMORY, argument(address), 0);
                self.put(STORE_64, MEMORY, R1, ADDRESSES[place], 0);
                match directory {
                    Some(directory) => {
                        self.put(LOAD_32, R1, MEMORY, argument(directory), 0);
                    }
                    None => self.set(R1, i32::MIN),
                }
                self.put(STORE_32, MEMORY, R1, DIRECTORIES[place], 0);
            }
            self.land(other);
        }
        self.given_names(layout, maps);
        for end in ends {
            self.land(end);
        }
    }

    /// If one of these is told of the call, does what belongs to it and goes on behind this. Returns the jump for all others. What follows
    /// is there once for all of them: the command waits until the kernel has checked each instruction.
    fn if_told<const N: usize>(
        &mut self,
        shapes: [(i32, i16); N],
        belongs: impl Fn(&mut Code, i16),
    ) -> usize {
        let mut told = Vec::new();
        for (shape, place) in shapes {
            let other = self.unless_told(shape);
            belongs(self, place);
            told.push(self.jump(JUMP, 0, 0, 0));
            self.land(other);
        }
        let others = self.jump(JUMP, 0, 0, 0);
        for jump in told {
            self.land(jump);
        }
        others
    }

    /// Returns the jump for when something else is told of the call.
    pub(super) fn unless_told(&mut self, shape: i32) -> usize {
        self.put(LOAD_64, R1, MEMORY, SHAPE, 0);
        self.jump(IF_NOT_EQUAL, R1, 0, shape)
    }

    /// Describes descriptor [`STEP`], whose file is [`FILE`] and of the kind R1 from then on. Returns the jumps for when there is none.
    pub(super) fn descriptor(&mut self, layout: &Layout, maps: &Maps<'_>) -> [usize; 2] {
        let none = self.find_table(layout);
        let closed = self.file(STEP);
        self.put(STORE_64, MEMORY, R3, FILE, 0);
        self.describe(Pipes::Sizes, layout, maps);
        self.put(LOAD_32, R1, MEMORY, entry(KIND), 0);
        self.put(AND_NUMBER, R1, 0, 0, libc::S_IFMT.cast_signed());
        [none, closed]
    }

    /// Describes descriptor [`STEP`], with its path if it is a file.
    fn one_descriptor(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let gone = self.descriptor(layout, maps);
        let regular = self.jump(IF_EQUAL, R1, 0, libc::S_IFREG.cast_signed());
        let pipe = self.jump(IF_EQUAL, R1, 0, libc::S_IFIFO.cast_signed());
        // Directories and devices are of no interest.
        self.leave_if(IF_NOT_EQUAL, R1, libc::S_IFSOCK.cast_signed());
        self.socket(layout, maps);
        let end = self.jump(JUMP, 0, 0, 0);
        self.land(regular);
        self.land(pipe);
        self.put(LOAD_64, R3, MEMORY, FILE, 0);
        self.read(MOUNT, 16, R3, layout.path_of_file);
        self.path(OPENED, layout, maps);
        for jump in gone.into_iter().chain([end]) {
            self.land(jump);
        }
    }

    /// Describes the two descriptors that are in the caller's memory where R3 says. The first is handed over, the second left in the
    /// record.
    fn two_descriptors(&mut self, layout: &Layout, maps: &Maps<'_>) {
        // Kept where nothing else is while these are described.
        const BOTH: i16 = DIRECTORIES[0];
        self.clear(BOTH);
        self.place(R1, BOTH);
        self.set(R2, 8);
        self.call(READ_USER);
        let each = self.begin_outer(maps);
        self.put(LOAD_32, STEP, MEMORY, BOTH, 0);
        let gone = self.descriptor(layout, maps);
        let pipe = self.jump(IF_NOT_EQUAL, R1, 0, libc::S_IFSOCK.cast_signed());
        self.no_socket();
        self.socket(layout, maps);
        self.land(pipe);
        self.put(LOAD_64, R1, STACK, OUTER, 0);
        let second = self.jump(IF_NOT_EQUAL, R1, 0, 0);
        self.header(SECOND);
        self.emit(maps, END);
        for jump in gone.into_iter().chain([second]) {
            self.land(jump);
        }
        self.put(LOAD_64, R1, MEMORY, BOTH, 0);
        self.put(SHIFT_RIGHT, R1, 0, 0, 32);
        self.put(STORE_64, MEMORY, R1, BOTH, 0);
        self.end_outer(each, 2);
    }

    /// Tells the names that the call was given, and the directories that they are relative to.
    fn given_names(&mut self, layout: &Layout, maps: &Maps<'_>) {
        let each = self.begin_outer(maps);
        self.put(LOAD_64, R3, MEMORY, ADDRESSES[0], 0);
        let none = self.jump(IF_EQUAL, R3, 0, 0);
        self.part_of_step(NAMES[0]);
        self.put(LOAD_64, R3, MEMORY, ADDRESSES[0], 0);
        self.place(R1, in_part(REST));
        self.set(R2, LONGEST);
        self.call(READ_USER_TEXT);
        let unread = self.jump(IF_SIGNED_LESS, R0, 0, 1);
        self.copy(R3, R0);
        self.put(AND_NUMBER, R3, 0, 0, 2 * LONGEST - 1);
        self.add(R3, REST as i32);
        self.place(R2, in_part(AT));
        self.output(maps);
        self.put(LOAD_8, R1, MEMORY, in_part(REST), 0);
        let absolute = self.jump(IF_EQUAL, R1, 0, i32::from(b'/'));
        self.put(LOAD_32, STEP, MEMORY, DIRECTORIES[0], 0);
        // AT_FDCWD is negative.
        let here = self.jump(IF_GREATER, STEP, 0, i32::MAX);
        let gone = self.find_table(layout);
        let closed = self.file(STEP);
        self.read(MOUNT, 16, R3, layout.path_of_file);
        let found = self.jump(JUMP, 0, 0, 0);
        self.land(here);
        self.follow(TASK, layout.filesystem);
        self.read(MOUNT, 16, R3, layout.working_directory);
        self.land(found);
        self.part_of_step(BASES[0]);
        self.names(layout, maps);
        for jump in [none, unread, absolute, gone, closed] {
            self.land(jump);
        }
        for places in [ADDRESSES, DIRECTORIES] {
            self.put(LOAD_64, R1, MEMORY, places[1], 0);
            self.put(STORE_64, MEMORY, R1, places[0], 0);
        }
        self.end_outer(each, ADDRESSES.len() as i32);
    }
}
