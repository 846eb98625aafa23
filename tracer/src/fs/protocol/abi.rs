//! Layout of the messages: `include/uapi/linux/fuse.h`, protocol 7.40 and what later versions
//! added without negotiation. Fields are named and ordered as there; numbers are in the byte
//! order of the machine.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Numbers of the operations.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// `FATTR_…`: the fields of [`SetattrIn`] that count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
}

/// `FOPEN_…`: properties of an opened file.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// The data of a [`WriteIn`] come from the page cache.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// A write clears set-user-id and set-group-id.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// The owner in a [`ReadIn`] counts: an application reads, not the page cache.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// Only data need to be forced to storage.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// A lock of `flock`, not of `fcntl`.
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// The file of an ioctl is a directory.
pub(crate) const IOCTL_DIR: u32 = 1 << 4;

/// Codes in the place of an error in messages that answer no request.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const RETRIEVE: i32 = 5;
    pub(crate) const INC_EPOCH: i32 = 8;
}

/// Precedes every request.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct InHeader {
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) nodeid: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) total_extlen: u16,
    pub(crate) padding: u16,
}

/// Precedes every reply.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct OutHeader {
    pub(crate) len: u32,
    pub(crate) error: i32,
    pub(crate) unique: u64,
}

/// Commands for a ring (`FUSE_IO_URING_CMD_…`).
pub(crate) mod ring {
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// Headers of a message over io_uring (`fuse_uring_req_header`).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct RingHeaders {
    /// [`InHeader`] or [`OutHeader`].
    pub(crate) in_out: [u8; 128],
    /// The first argument.
    pub(crate) op_in: [u8; 128],
    /// From here on `fuse_uring_ent_in_out`.
    pub(crate) flags: u64,
    pub(crate) commit_id: u64,
    pub(crate) payload_sz: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

/// Arguments of a command for a ring (`fuse_uring_cmd_req`).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct RingCommand {
    pub(crate) flags: u64,
    pub(crate) commit_id: u64,
    pub(crate) qid: u16,
    pub(crate) padding: [u8; 6],
}

/// Declares the arguments of requests.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )*};
}

/// Declares the bodies of replies.
macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, FromZeros, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )*};
}

arguments! {
    /// FORGET.
    ForgetIn { nlookup: u64 }
    /// BATCH_FORGET, followed by `count` of [`ForgetOne`].
    BatchForgetIn { count: u32, dummy: u32 }
    /// One node of BATCH_FORGET.
    ForgetOne { nodeid: u64, nlookup: u64 }
    /// SETATTR.
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// MKNOD, followed by the name.
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// MKDIR, followed by the name.
    MkdirIn { mode: u32, umask: u32 }
    /// RENAME, followed by the old and the new name.
    RenameIn { newdir: u64 }
    /// RENAME2, followed by the old and the new name.
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    /// LINK, followed by the new name.
    LinkIn { oldnodeid: u64 }
    /// OPEN and OPENDIR.
    OpenIn { flags: u32, open_flags: u32 }
    /// CREATE and TMPFILE, followed by the name.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// RELEASE and RELEASEDIR.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// FLUSH.
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// READ, READDIR and READDIRPLUS.
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    /// WRITE, followed by the data.
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    /// FSYNC and FSYNCDIR.
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// SETXATTR as long as `FUSE_SETXATTR_EXT` is not negotiated; followed by name and value.
    SetxattrIn { size: u32, flags: u32 }
    /// GETXATTR, followed by the name, and LISTXATTR.
    GetxattrIn { size: u32, padding: u32 }
    /// GETLK, SETLK and SETLKW.
    LkIn { fh: u64, owner: u64, start: u64, end: u64, kind: i32, pid: u32, lk_flags: u32, padding: u32 }
    /// ACCESS.
    AccessIn { mask: u32, padding: u32 }
    /// INTERRUPT.
    InterruptIn { unique: u64 }
    /// IOCTL, followed by the argument.
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    /// FALLOCATE.
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// LSEEK.
    LseekIn { fh: u64, offset: i64, whence: u32, padding: u32 }
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    /// STATX.
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
}

answers! {
    /// Attributes.
    Attr {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32,
    }
    /// A node that the kernel gets.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    /// Answers GETATTR and SETATTR.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    /// A time of [`StatxOut`].
    StatxTime { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    /// Answers STATX: `struct fuse_statx` after the validity.
    StatxOut {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    /// Answers OPEN and OPENDIR.
    OpenOut { fh: u64, open_flags: u32, backing_id: u32 }
    /// Answers CREATE and TMPFILE.
    CreateOut { entry: EntryOut, open: OpenOut }
    /// Answers WRITE and COPY_FILE_RANGE.
    WriteOut { size: u32, padding: u32 }
    /// Answers COPY_FILE_RANGE_64.
    CopyFileRangeOut { bytes_copied: u64 }
    /// Answers STATFS.
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// Answers GETXATTR and LISTXATTR when they ask for the size.
    GetxattrOut { size: u32, padding: u32 }
    /// Answers GETLK.
    LkOut { start: u64, end: u64, kind: i32, pid: u32 }
    /// Answers IOCTL, followed by the result.
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// Answers LSEEK.
    LseekOut { offset: u64 }
    /// Pages that the kernel drops.
    NotifyInvalInode { ino: u64, off: i64, len: i64 }
    /// Pages that the kernel sends, in request `notify_unique`.
    NotifyRetrieve { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32 }
    /// An entry of READDIR, followed by the name and zeros up to a multiple of 8 bytes.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
}
