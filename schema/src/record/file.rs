//! Files, their names, the calls on them.

use serde::{Deserialize, Serialize};

use crate::{Fidelity, FileId, HostId, Op, Text, Tid, Upid};

/// Type of an inode. The numbers are those of the table `file_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    File = 0,
    /// A name that was looked up and not found.
    Absent = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    /// FIFO.
    Fifo = 4,
    /// UNIX socket.
    Socket = 5,
    /// Character device.
    Char = 6,
    /// Block device.
    Block = 7,
}

impl FileKind {
    /// All kinds in the order of their numbers.
    pub const ALL: &'static [FileKind] = &[
        FileKind::File,
        FileKind::Absent,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::Char,
        FileKind::Block,
    ];

    /// Name shown by the view `files`.
    pub const fn name(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Absent => "absent",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::Char => "char",
            FileKind::Block => "block",
        }
    }
}

/// The least exact way in which a file was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Coverage {
    /// Every call is recorded.
    Exact = Fidelity::Exact as u8,
    /// Calls that the page cache did not answer.
    Cached = Fidelity::Cached as u8,
    /// Only its opens.
    Open = Fidelity::Open as u8,
}

/// A file (table `file`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its id.
    pub id: FileId,
    /// Host on which it was seen.
    pub host: HostId,
    /// `st_dev` and `st_ino`; `None` when absent.
    pub inode: Option<(u64, u64)>,
    /// Type.
    pub kind: FileKind,
    /// Size at first sight.
    pub size_bytes: Option<u64>,
    /// First sight.
    pub first_ns: u64,
    /// Coverage of its calls.
    pub coverage: Coverage,
}

/// A name of a file in a directory (table `file_name`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NameRecord {
    /// The file.
    pub file: FileId,
    /// The directory; `None`: `name` is a full path.
    pub directory: Option<FileId>,
    /// Last component.
    pub name: Text,
    /// Begin of the time for which it has the name.
    pub from_ns: u64,
}

/// A file call (table `call`). Plain data without owned memory: it is written on the path of a
/// waiting application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Arrival of the request.
    pub start_ns: u64,
    /// Time until the reply.
    pub duration_ns: u64,
    /// Process image; `None`: the kernel itself, or not known.
    pub upid: Option<Upid>,
    /// Thread; `None`: the first of the process.
    pub tid: Option<Tid>,
    /// Operation.
    pub op: Op,
    /// File.
    pub file: Option<FileId>,
    /// Position of data calls.
    pub offset: Option<u64>,
    /// Bytes asked for, or the value set.
    pub length: Option<u64>,
    /// Open flags, rename flags or mode.
    pub flags: Option<u32>,
    /// Bytes or value; negative errno on failure.
    pub result: i64,
    /// How exactly the row stands for a call of the application.
    pub fidelity: Fidelity,
}
