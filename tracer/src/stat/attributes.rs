//! Attributes of a file as the real filesystem gives them.

use flowtrace_schema::FileKind;

use super::Inode;

/// A point in time as filesystems store it. Seconds may be negative; nanoseconds always count forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

/// The attributes that `statx` returns for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// Id of the mount through which it was reached; 0 before Linux 5.8.
    pub(crate) mount: u64,
    /// Birth, if the filesystem stores it.
    pub(crate) birth: Option<Time>,
    /// Generation, which distinguishes the inode from others that had its number, if it was reported without
    /// the birth.
    pub(crate) generation: Option<u32>,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Major and minor number of a device file.
    pub(crate) device: (u32, u32),
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) block_size: u32,
    pub(crate) accessed: Time,
    pub(crate) modified: Time,
    pub(crate) changed: Time,
}

impl Attributes {
    /// Attributes that the kernel itself reports of an inode: device and number, mode, and size in bytes.
    pub(crate) fn reported((dev, ino): (u64, u64), mode: u32, size: u64) -> Attributes {
        Attributes {
            dev,
            ino,
            mount: 0,
            birth: None,
            generation: None,
            mode,
            links: 1,
            uid: 0,
            gid: 0,
            device: (0, 0),
            size,
            blocks: 0,
            block_size: 0,
            accessed: Time::default(),
            modified: Time::default(),
            changed: Time::default(),
        }
    }

    /// Its identity as long as the file exists.
    pub(crate) fn inode(&self) -> Inode {
        Inode {
            device: self.dev,
            number: self.ino,
        }
    }

    /// Type of the inode.
    pub(crate) fn kind(&self) -> FileKind {
        kind_of_mode(self.mode)
    }

    /// Returns true if it can have data that is read and written at offsets.
    pub(crate) fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

fn kind_of_mode(mode: u32) -> FileKind {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::Char,
        libc::S_IFBLK => FileKind::Block,
        _ => FileKind::File,
    }
}

/// Type of a directory entry; `None` if the filesystem does not report it (`DT_UNKNOWN`).
pub(crate) fn kind_of_entry(entry: u8) -> Option<FileKind> {
    Some(match entry {
        libc::DT_REG => FileKind::File,
        libc::DT_DIR => FileKind::Directory,
        libc::DT_LNK => FileKind::Symlink,
        libc::DT_FIFO => FileKind::Fifo,
        libc::DT_SOCK => FileKind::Socket,
        libc::DT_CHR => FileKind::Char,
        libc::DT_BLK => FileKind::Block,
        _ => return None,
    })
}
