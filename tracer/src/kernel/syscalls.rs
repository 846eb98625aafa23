//! The system calls that move data or descriptors, by their effect. Numbers are those of the architecture
//! that this is built for; files of programs of another one are served by FUSE ([`super::opens`]), and only
//! the calls in which they wait are recorded, by numbers from [`FOREIGN`] on.

use crate::proc::sampler::calls::{Abi, Call, Waits};

use flowtrace_schema::Op;

/// Numbers of calls are below; those of programs of another architecture are recorded with this offset.
const FOREIGN: u32 = 512;

/// Effect of a call on descriptors and file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Reads from, or writes to, descriptor 0.
    Data(Data),
    /// Duplicates the content of a pipe, or moves memory through it: direction and amount are not reported.
    /// Arguments of the descriptors.
    Obscures(&'static [usize]),
    /// Makes a descriptor of an object that is no file, and of which nothing is known yet.
    Makes,
    /// Makes a descriptor of an object that may be a file, of which only a read of the descriptor shows the
    /// kind.
    Takes,
    /// Moves data from descriptor `from` to `to`; each has an argument with the address of an
    /// offset, and 0 there means its position.
    Moves(Moves),
    /// Sets the position of descriptor 0.
    Seeks,
    /// Opens a file; argument of the flags.
    Opens(Option<usize>),
    Closes,
    ClosesRange,
    /// Makes the result another name of descriptor 0; argument of flags.
    Duplicates(Option<usize>),
    /// fcntl: some commands duplicate or set flags.
    Controls,
    /// ioctl: two requests set flags.
    Requests,
    /// unshare: may give the thread a table of its own.
    Unshares,
    /// Makes a process or a thread, which may get a copy of the table.
    Forks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) writes: bool,
    pub(super) length: Length,
    pub(super) at: At,
    /// Argument of flags (preadv2).
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

impl Data {
    /// True if descriptors may come with the data (`SCM_RIGHTS`).
    pub(super) fn receives_descriptors(self) -> bool {
        let in_message = matches!(self.length, Length::Message | Length::Unknown);
        !self.writes && in_message && self.socket.is_some()
    }

    /// The amount that a call with these arguments was asked to move, if known.
    pub(super) fn length(self, arguments: &[u64; 6]) -> Option<u64> {
        match self.length {
            Length::Argument(at) => Some(arguments[at]),
            Length::Vector | Length::Message => reported_value(arguments[1]),
            Length::Unknown => None,
        }
    }

    /// True if it names more pieces than any call may have, so that nothing is moved.
    pub(super) fn is_refused(self, arguments: &[u64; 6]) -> bool {
        self.length == Length::Vector && arguments[2] > PIECES
    }
}

/// `UIO_MAXIOV` of include/uapi/linux/uio.h.
const PIECES: u64 = 1024;
/// In place of an address: the value there is not known.
const UNKNOWN: u64 = u64::MAX;

/// The value that a sample has for a number in the program's memory, in place of the address
/// ([`Does::addresses`]): the number plus 1, [`UNKNOWN`], or 0 if there was no address.
pub(super) fn reported_value(argument: u64) -> Option<u64> {
    match argument {
        0 | UNKNOWN => None,
        more => Some(more - 1),
    }
}

/// A call that receives or sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    /// Argument of its flags.
    pub(super) flags: usize,
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
        flags: None,
        socket: Some(Socket { flags, messages }),
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
    (libc::SYS_tee, Does::Obscures(&[0, 1])),
    (libc::SYS_vmsplice, Does::Obscures(&[0])),
    (libc::SYS_socket, Does::Makes),
    (libc::SYS_accept, Does::Makes),
    (libc::SYS_accept4, Does::Makes),
    (libc::SYS_epoll_create1, Does::Makes),
    (libc::SYS_eventfd2, Does::Makes),
    (libc::SYS_timerfd_create, Does::Makes),
    (libc::SYS_signalfd4, Does::Makes),
    (libc::SYS_memfd_create, Does::Makes),
    (libc::SYS_inotify_init1, Does::Makes),
    (libc::SYS_pidfd_open, Does::Makes),
    (libc::SYS_pidfd_getfd, Does::Takes),
    (libc::SYS_open_by_handle_at, Does::Takes),
    (libc::SYS_lseek, Does::Seeks),
    (libc::SYS_openat, Does::Opens(Some(2))),
    // Its flags are in memory; the file system gets them.
    (libc::SYS_openat2, Does::Opens(None)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Does::Opens(Some(1))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, Does::Opens(None)),
    (libc::SYS_close, Does::Closes),
    (libc::SYS_close_range, Does::ClosesRange),
    (libc::SYS_dup, Does::Duplicates(None)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_dup2, Does::Duplicates(None)),
    (libc::SYS_dup3, Does::Duplicates(Some(2))),
    (libc::SYS_fcntl, Does::Controls),
    (libc::SYS_ioctl, Does::Requests),
    (libc::SYS_unshare, Does::Unshares),
    (libc::SYS_clone, Does::Forks),
    (libc::SYS_clone3, Does::Forks),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_fork, Does::Forks),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, Does::Forks),
];

/// Calls in which threads wait for each other for the memory that they share.
const ON_MEMORY: &[libc::c_long] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
];

/// The most frequent ones of the calls above that have no more than three arguments.
const OF_THREE_ARGUMENTS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
];

/// Calls by number.
#[derive(Clone, Debug)]
pub(super) struct Numbers(Vec<Option<Does>>);

impl Numbers {
    pub(super) fn new() -> Numbers {
        let largest = CALLS.iter().map(|(number, _)| *number).max().unwrap_or(0);
        let mut table = vec![None; largest as usize + 1];
        for (number, does) in CALLS {
            table[*number as usize] = Some(*does);
        }
        Numbers(table)
    }

    #[inline]
    pub(super) fn does(&self, number: u32) -> Option<Does> {
        *self.0.get(number as usize)?
    }
}

/// The calls that move data or descriptors, by their number.
pub(super) fn all() -> impl Iterator<Item = (libc::c_long, Does)> {
    CALLS.iter().copied()
}

/// Numbers of the calls whose entries are recorded: all of them, and with `blocking` the others that a thread
/// may be blocked in.
pub(super) fn entries(blocking: bool) -> impl Iterator<Item = libc::c_long> {
    let others = 0..libc::c_long::from(FOREIGN) * libc::c_long::from(blocking);
    let others = others.filter(|&number| Abi::Native.call(number).waits != Waits::Unknown);
    CALLS.iter().map(|(number, _)| *number).chain(others)
}

/// Numbers of the calls of the other architecture that a thread may be blocked in.
pub(super) fn foreign() -> impl Iterator<Item = libc::c_long> {
    let all = 0..libc::c_long::from(FOREIGN);
    all.filter(|&number| Abi::OTHER.call(number).waits != Waits::Unknown)
}

/// True if a recorded number is one of the other architecture.
pub(super) fn is_foreign(number: u32) -> bool {
    number >= FOREIGN
}

/// The call of a recorded number.
pub(super) fn waited_in(number: u32) -> Call {
    match number.checked_sub(FOREIGN) {
        Some(number) => Abi::OTHER.call(number.into()),
        None => Abi::Native.call(number.into()),
    }
}

/// Numbers of the calls whose returns are recorded: those whose result matters, and with `blocking` those
/// after which a thread may be blocked outside of the call, for example by a page.
pub(super) fn returns(blocking: bool) -> impl Iterator<Item = libc::c_long> {
    let wanted = CALLS.iter();
    let wanted =
        wanted.filter(|(_, does)| !matches!(does, Does::Closes | Does::ClosesRange | Does::Forks));
    let others = if blocking { ON_MEMORY } else { &[] };
    wanted
        .map(|(number, _)| *number)
        .chain(others.iter().copied())
}

/// Numbers of calls whose first three arguments have all that matters.
pub(super) fn of_three_arguments() -> impl Iterator<Item = libc::c_long> {
    OF_THREE_ARGUMENTS.iter().copied()
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
    }
}
