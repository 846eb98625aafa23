//! The system calls on files that move no data, with the operation that each is in the trace: those on a
//! descriptor ([`BY_DESCRIPTOR`]) and those on names ([`by_names`]).

use flowtrace_schema::Op;

/// There is no such argument (`NO_ARGUMENT` of tracer/bpf/events.h).
const NONE: u8 = 7;

/// A call on the file of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByDescriptor {
    pub(crate) number: libc::c_long,
    pub(crate) op: Op,
    /// The arguments that have the descriptor, the offset, the length and flags; 7: there is none.
    pub(crate) descriptor: u8,
    pub(crate) offset: u8,
    pub(crate) length: u8,
    pub(crate) flags: u8,
    /// An argument whose lower half is added to the flags as their upper half.
    pub(crate) more_flags: u8,
    /// A bit for each value of that argument with which the call is recorded; 0: with all.
    pub(crate) commands: u64,
    pub(crate) how: How,
}

impl ByDescriptor {
    /// True if an argument, or a structure, has flags.
    pub(crate) fn has_flags(&self) -> bool {
        self.flags != NONE
    }

    /// True if an argument, or a structure, has a length.
    pub(crate) fn has_length(&self) -> bool {
        self.length != NONE
    }

    /// True if 32-bit programs pass the same arguments.
    pub(crate) fn is_same_in_32_bits(&self) -> bool {
        self.how == How::Plain && self.offset == NONE && self.length == NONE
    }
}

/// The file of such a call, and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Plain,
    /// Its descriptor is meant if its name is empty (`AT_EMPTY_PATH` in its flags).
    ByEmptyName,
    /// A lock: a structure in memory has the place.
    Lock,
}

const fn by_descriptor(number: libc::c_long, op: Op) -> ByDescriptor {
    ByDescriptor {
        number,
        op,
        descriptor: 0,
        offset: NONE,
        length: NONE,
        flags: NONE,
        more_flags: NONE,
        commands: 0,
        how: How::Plain,
    }
}

const fn with_flags(number: libc::c_long, op: Op, flags: u8) -> ByDescriptor {
    ByDescriptor {
        flags,
        ..by_descriptor(number, op)
    }
}

const fn with_length(number: libc::c_long, op: Op, length: u8) -> ByDescriptor {
    ByDescriptor {
        length,
        ..by_descriptor(number, op)
    }
}

const fn by_empty_name(number: libc::c_long, flags: u8) -> ByDescriptor {
    ByDescriptor {
        how: How::ByEmptyName,
        ..with_flags(number, Op::Getattr, flags)
    }
}

const fn bits(values: &[i32]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < values.len() {
        bits |= 1 << values[at];
        at += 1;
    }
    bits
}

const LOCKS: u64 = bits(&[
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
]);

/// The calls on descriptors. On a directory `Flush` is `Releasedir`, and `Fsync` is `Fsyncdir`.
pub(crate) const BY_DESCRIPTOR: &[ByDescriptor] = &[
    by_descriptor(libc::SYS_fstat, Op::Getattr),
    by_empty_name(libc::SYS_newfstatat, 3),
    by_empty_name(libc::SYS_statx, 2),
    by_descriptor(libc::SYS_close, Op::Flush),
    by_descriptor(libc::SYS_fsync, Op::Fsync),
    by_descriptor(libc::SYS_fdatasync, Op::Fsync),
    with_length(libc::SYS_ftruncate, Op::Truncate, 1),
    with_flags(libc::SYS_fchmod, Op::Chmod, 1),
    by_descriptor(libc::SYS_fchown, Op::Chown),
    by_descriptor(libc::SYS_getdents64, Op::Readdir),
    with_flags(libc::SYS_flock, Op::Flock, 1),
    ByDescriptor {
        offset: 1,
        more_flags: 2,
        commands: bits(&[libc::SEEK_DATA, libc::SEEK_HOLE]),
        ..by_descriptor(libc::SYS_lseek, Op::Lseek)
    },
    ByDescriptor {
        offset: 3,
        length: 4,
        flags: 2,
        more_flags: 1,
        commands: LOCKS,
        how: How::Lock,
        ..by_descriptor(libc::SYS_fcntl, Op::Setlk)
    },
    ByDescriptor {
        offset: 2,
        length: 3,
        ..with_flags(libc::SYS_fallocate, Op::Fallocate, 1)
    },
    with_length(libc::SYS_fsetxattr, Op::Setxattr, 3),
    with_length(libc::SYS_fgetxattr, Op::Getxattr, 3),
    with_length(libc::SYS_flistxattr, Op::Listxattr, 2),
    by_descriptor(libc::SYS_fremovexattr, Op::Removexattr),
    by_descriptor(libc::SYS_fstatfs, Op::Statfs),
    with_flags(libc::SYS_ioctl, Op::Ioctl, 1),
    ByDescriptor {
        descriptor: 4,
        offset: 5,
        length: 1,
        flags: 2,
        more_flags: 3,
        ..by_descriptor(libc::SYS_mmap, Op::Mmap)
    },
];

/// The result in a row: of a truncation that succeeded, the size that it set.
pub(crate) fn result_of(op: Op, length: Option<u64>, result: i64) -> i64 {
    match (op, length) {
        (Op::Truncate, Some(size)) if result == 0 => size.cast_signed(),
        _ => result,
    }
}

/// A call on names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByName {
    pub(crate) number: libc::c_long,
    pub(crate) op: Op,
    /// The arguments that have a name and the directory that it is relative to, twice; 7: there is none.
    pub(crate) names: [(u8, u8); 2],
    /// The argument with the address of the attributes that it returns, and whether they are a `struct statx`.
    pub(crate) attributes: u8,
    pub(crate) is_statx: bool,
    /// The argument whose flags may say that an empty name means the descriptor of the directory.
    pub(crate) empty_name: u8,
    /// False if it is about a link itself; the argument whose flags may say so.
    pub(crate) follows: bool,
    pub(crate) no_follow: u8,
    /// The arguments that are the length and the flags of the row.
    pub(crate) length: u8,
    pub(crate) flags: u8,
}

const fn by_name(number: libc::c_long, op: Op, name: u8, directory: u8) -> ByName {
    ByName {
        number,
        op,
        names: [(name, directory), (NONE, NONE)],
        attributes: NONE,
        is_statx: false,
        empty_name: NONE,
        follows: !matches!(
            op,
            Op::Readlink
                | Op::Unlink
                | Op::Rmdir
                | Op::Rename
                | Op::Link
                | Op::Symlink
                | Op::Mkdir
                | Op::Mknod
        ),
        no_follow: NONE,
        length: NONE,
        flags: NONE,
    }
}

impl ByName {
    /// True if the directory that a name is relative to is the one named, when the call has returned.
    pub(crate) fn enters(&self) -> bool {
        self.number == libc::SYS_chdir
    }

    /// The value of an argument; `None`: there is no such argument.
    pub(crate) fn argument(&self, place: u8, arguments: &[u64; 6]) -> Option<u64> {
        arguments.get(usize::from(place)).copied()
    }

    /// True if the call is about what a link at the end of its path leads to.
    pub(crate) fn follows(&self, arguments: &[u64; 6]) -> bool {
        let flags = self.argument(self.no_follow, arguments).unwrap_or(0);
        self.follows && flags as i32 & libc::AT_SYMLINK_NOFOLLOW == 0
    }
}

const fn reports_attributes(call: ByName, attributes: u8, empty_name: u8) -> ByName {
    ByName {
        attributes,
        empty_name,
        no_follow: empty_name,
        ..call
    }
}

const fn of_link(call: ByName) -> ByName {
    ByName {
        follows: false,
        ..call
    }
}

const fn no_follow(call: ByName, no_follow: u8) -> ByName {
    ByName { no_follow, ..call }
}

const fn flagged(call: ByName, flags: u8) -> ByName {
    ByName { flags, ..call }
}

const fn sized(call: ByName, length: u8) -> ByName {
    ByName { length, ..call }
}

const fn two_names(call: ByName, other: (u8, u8)) -> ByName {
    let [first, _] = call.names;
    ByName {
        names: [first, other],
        ..call
    }
}

/// The calls on names.
pub(crate) fn by_names() -> impl Iterator<Item = &'static ByName> {
    NAMED_AT.iter().chain(NAMED)
}

const NAMED_AT: &[ByName] = &[
    reports_attributes(by_name(libc::SYS_newfstatat, Op::Getattr, 1, 0), 2, 3),
    ByName {
        is_statx: true,
        ..reports_attributes(by_name(libc::SYS_statx, Op::Getattr, 1, 0), 4, 2)
    },
    flagged(by_name(libc::SYS_faccessat, Op::Access, 1, 0), 2),
    no_follow(
        flagged(by_name(libc::SYS_faccessat2, Op::Access, 1, 0), 2),
        3,
    ),
    by_name(libc::SYS_chdir, Op::Access, 0, NONE),
    by_name(libc::SYS_readlinkat, Op::Readlink, 1, 0),
    flagged(by_name(libc::SYS_fchmodat, Op::Chmod, 1, 0), 2),
    no_follow(by_name(libc::SYS_fchownat, Op::Chown, 1, 0), 4),
    no_follow(by_name(libc::SYS_utimensat, Op::Utimens, 1, 0), 3),
    sized(by_name(libc::SYS_truncate, Op::Truncate, 0, NONE), 1),
    flagged(by_name(libc::SYS_mkdirat, Op::Mkdir, 1, 0), 2),
    flagged(by_name(libc::SYS_mknodat, Op::Mknod, 1, 0), 2),
    by_name(libc::SYS_symlinkat, Op::Symlink, 2, 1),
    by_name(libc::SYS_statfs, Op::Statfs, 0, NONE),
    sized(by_name(libc::SYS_setxattr, Op::Setxattr, 0, NONE), 3),
    of_link(sized(
        by_name(libc::SYS_lsetxattr, Op::Setxattr, 0, NONE),
        3,
    )),
    sized(by_name(libc::SYS_getxattr, Op::Getxattr, 0, NONE), 3),
    of_link(sized(
        by_name(libc::SYS_lgetxattr, Op::Getxattr, 0, NONE),
        3,
    )),
    sized(by_name(libc::SYS_listxattr, Op::Listxattr, 0, NONE), 2),
    of_link(sized(
        by_name(libc::SYS_llistxattr, Op::Listxattr, 0, NONE),
        2,
    )),
    by_name(libc::SYS_removexattr, Op::Removexattr, 0, NONE),
    of_link(by_name(libc::SYS_lremovexattr, Op::Removexattr, 0, NONE)),
    by_name(libc::SYS_unlinkat, Op::Unlink, 1, 0),
    two_names(by_name(libc::SYS_renameat, Op::Rename, 1, 0), (3, 2)),
    flagged(
        two_names(by_name(libc::SYS_renameat2, Op::Rename, 1, 0), (3, 2)),
        4,
    ),
    two_names(by_name(libc::SYS_linkat, Op::Link, 1, 0), (3, 2)),
    flagged(by_name(libc::SYS_openat, Op::Open, 1, 0), 2),
    by_name(libc::SYS_openat2, Op::Open, 1, 0),
];

/// The calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const NAMED: &[ByName] = &[
    reports_attributes(by_name(libc::SYS_stat, Op::Getattr, 0, NONE), 1, NONE),
    of_link(reports_attributes(
        by_name(libc::SYS_lstat, Op::Getattr, 0, NONE),
        1,
        NONE,
    )),
    flagged(by_name(libc::SYS_access, Op::Access, 0, NONE), 1),
    by_name(libc::SYS_readlink, Op::Readlink, 0, NONE),
    flagged(by_name(libc::SYS_chmod, Op::Chmod, 0, NONE), 1),
    by_name(libc::SYS_chown, Op::Chown, 0, NONE),
    of_link(by_name(libc::SYS_lchown, Op::Chown, 0, NONE)),
    by_name(libc::SYS_utime, Op::Utimens, 0, NONE),
    by_name(libc::SYS_utimes, Op::Utimens, 0, NONE),
    by_name(libc::SYS_futimesat, Op::Utimens, 1, 0),
    flagged(by_name(libc::SYS_mkdir, Op::Mkdir, 0, NONE), 1),
    by_name(libc::SYS_rmdir, Op::Rmdir, 0, NONE),
    flagged(by_name(libc::SYS_mknod, Op::Mknod, 0, NONE), 1),
    by_name(libc::SYS_symlink, Op::Symlink, 1, NONE),
    by_name(libc::SYS_unlink, Op::Unlink, 0, NONE),
    two_names(by_name(libc::SYS_rename, Op::Rename, 0, NONE), (1, NONE)),
    two_names(by_name(libc::SYS_link, Op::Link, 0, NONE), (1, NONE)),
    flagged(by_name(libc::SYS_open, Op::Open, 0, NONE), 1),
    by_name(libc::SYS_creat, Op::Open, 0, NONE),
];
#[cfg(not(target_arch = "x86_64"))]
const NAMED: &[ByName] = &[];
