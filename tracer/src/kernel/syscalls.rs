//! The system calls on open files, by their effect. Numbers are those of the architecture that this is built
//! for; numbers from [`Abi::NUMBERS`] on are those of 32-bit programs, and of others that call as these do.

use std::collections::HashMap;

use crate::proc::sampler::calls::{Abi, Call, Waits};

use flowtrace_schema::Op;

use crate::file_calls::{BY_DESCRIPTOR, ByDescriptor};

/// Effect of a call on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Reads from, or writes to, the descriptor in argument 0.
    Data(Data),
    /// Moves data from one descriptor to another.
    Moves(Moves),
    /// Acts on the file of a descriptor, without moving data.
    Acts(&'static ByDescriptor),
    /// Duplicates the content of a pipe, or moves memory through it: direction and amount are not reported.
    Obscures(Obscures),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) writes: bool,
    pub(super) length: Length,
    pub(super) at: At,
    /// Argument of flags (preadv2, recvmsg).
    pub(super) flags: Option<usize>,
    /// `Some`: only on sockets.
    pub(super) socket: Option<Socket>,
}

/// The amount that a call is asked to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// The value of this argument.
    Argument(usize),
    /// The sum of the lengths at the address in argument 1, whose number is argument 2 (readv).
    Vector,
    /// The sum of the lengths of the message at the address in argument 1 (recvmsg).
    Message,
    /// Unknown, for several messages.
    Unknown,
}

/// A call that receives or sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    /// True if its result is a number of messages.
    pub(super) messages: bool,
}

/// Place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// At the position, which moves on.
    Position,
    /// At the offset of this argument.
    Argument(usize),
    /// At the offset of this argument, or at the position if that is −1.
    ArgumentOrPosition(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moves {
    pub(super) from: usize,
    pub(super) from_offset: Option<usize>,
    pub(super) to: usize,
    pub(super) to_offset: Option<usize>,
    pub(super) length: usize,
    /// The operation on the file that is read, and on the one that is written.
    pub(super) ops: (Op, Op),
    /// True if the kernel counts it as a read and a write.
    pub(super) counted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Obscures {
    /// Argument of the second descriptor; the first one is in argument 0.
    pub(super) second: Option<usize>,
    pub(super) length: Length,
}

const fn data(writes: bool, length: Length, at: At, flags: Option<usize>) -> Does {
    Does::Data(Data {
        writes,
        length,
        at,
        flags,
        socket: None,
    })
}

/// A call on a socket; `messages`: of several messages at once.
const fn socket(writes: bool, length: Length, flags: usize, messages: bool) -> Does {
    Does::Data(Data {
        writes,
        length,
        at: At::Position,
        flags: Some(flags),
        socket: Some(Socket { messages }),
    })
}

/// The calls, by their number.
const CALLS: &[(libc::c_long, Does)] = &[
    (
        libc::SYS_read,
        data(false, Length::Argument(2), At::Position, None),
    ),
    (
        libc::SYS_write,
        data(true, Length::Argument(2), At::Position, None),
    ),
    (
        libc::SYS_pread64,
        data(false, Length::Argument(2), At::Argument(3), None),
    ),
    (
        libc::SYS_pwrite64,
        data(true, Length::Argument(2), At::Argument(3), None),
    ),
    (
        libc::SYS_readv,
        data(false, Length::Vector, At::Position, None),
    ),
    (
        libc::SYS_writev,
        data(true, Length::Vector, At::Position, None),
    ),
    (
        libc::SYS_preadv,
        data(false, Length::Vector, At::Argument(3), None),
    ),
    (
        libc::SYS_pwritev,
        data(true, Length::Vector, At::Argument(3), None),
    ),
    (
        libc::SYS_preadv2,
        data(false, Length::Vector, At::ArgumentOrPosition(3), Some(5)),
    ),
    (
        libc::SYS_pwritev2,
        data(true, Length::Vector, At::ArgumentOrPosition(3), Some(5)),
    ),
    (
        libc::SYS_sendfile,
        Does::Moves(Moves {
            from: 1,
            from_offset: Some(2),
            to: 0,
            to_offset: None,
            length: 3,
            ops: (Op::Read, Op::Write),
            counted: true,
        }),
    ),
    (
        libc::SYS_splice,
        Does::Moves(Moves {
            from: 0,
            from_offset: Some(1),
            to: 2,
            to_offset: Some(3),
            length: 4,
            ops: (Op::Read, Op::Write),
            counted: false,
        }),
    ),
    (
        libc::SYS_copy_file_range,
        Does::Moves(Moves {
            from: 0,
            from_offset: Some(1),
            to: 2,
            to_offset: Some(3),
            length: 4,
            ops: (Op::CopyFrom, Op::CopyTo),
            counted: true,
        }),
    ),
    (
        libc::SYS_sendto,
        socket(true, Length::Argument(2), 3, false),
    ),
    (
        libc::SYS_recvfrom,
        socket(false, Length::Argument(2), 3, false),
    ),
    (libc::SYS_sendmsg, socket(true, Length::Message, 2, false)),
    (libc::SYS_recvmsg, socket(false, Length::Message, 2, false)),
    (libc::SYS_sendmmsg, socket(true, Length::Unknown, 3, true)),
    (libc::SYS_recvmmsg, socket(false, Length::Unknown, 3, true)),
    (
        libc::SYS_tee,
        Does::Obscures(Obscures {
            second: Some(1),
            length: Length::Argument(2),
        }),
    ),
    (
        libc::SYS_vmsplice,
        Does::Obscures(Obscures {
            second: None,
            length: Length::Vector,
        }),
    ),
];

/// Calls by number.
#[derive(Clone, Debug)]
pub(super) struct Numbers(Vec<Option<Does>>);

impl Numbers {
    pub(super) fn new() -> Numbers {
        let acts = |call: &'static ByDescriptor| (call.number, Does::Acts(call));
        let calls: HashMap<_, _> = BY_DESCRIPTOR
            .iter()
            .map(acts)
            .chain(CALLS.iter().copied())
            .collect();
        let does = |number| {
            let (abi, number) = Abi::of_recorded(number);
            let does = calls.get(&abi.native(number)?)?;
            // Offsets and structures of 32-bit programs are others.
            let is_other = abi != Abi::Native;
            let is_same =
                !matches!(does, Does::Acts(call) if is_other && !call.is_same_in_32_bits());
            is_same.then_some(*does)
        };
        Numbers((0..2 * Abi::NUMBERS).map(does).collect())
    }

    #[inline]
    pub(super) fn does(&self, number: u32) -> Option<Does> {
        *self.0.get(number as usize)?
    }

    /// The calls on descriptors, by their number.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, Does)> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(number, does)| Some((number, (*does)?)))
    }
}

/// The call of a recorded number.
pub(super) fn waited_in(number: u32) -> Call {
    let (abi, number) = Abi::of_recorded(number as usize);
    abi.call(number)
}

/// The arguments of a call that have the descriptors it may wait for; the second one is of those that have two.
pub(super) fn waited_for(number: u32) -> [Option<usize>; 2] {
    match waited_in(number).waits {
        Waits::ReadFd | Waits::WriteFd => [Some(0), None],
        Waits::MoveFd(other) => [Some(0), Some(other)],
        Waits::SendFile => [Some(0), Some(1)],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_found_by_its_number() {
        let numbers = Numbers::new();
        for (number, does) in CALLS {
            assert_eq!(numbers.does(*number as u32), Some(*does));
        }
        assert_eq!(numbers.does(libc::SYS_getpid as u32), None);
        assert_eq!(numbers.does(u32::MAX), None);
        assert_eq!(
            numbers.all().filter(|(number, _)| *number < 512).count(),
            CALLS.len() + BY_DESCRIPTOR.len()
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_32_bits_do_the_same() {
        const FOREIGN: u32 = Abi::NUMBERS as u32;
        let numbers = Numbers::new();
        let native = |number: libc::c_long| numbers.does(number as u32);
        assert_eq!(numbers.does(FOREIGN + 3), native(libc::SYS_read));
        assert_eq!(
            numbers.does(FOREIGN + 377),
            native(libc::SYS_copy_file_range)
        );
        assert_eq!(numbers.does(FOREIGN + 20), None, "getpid");
    }
}
