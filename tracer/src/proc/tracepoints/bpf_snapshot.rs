//! State of a process at one instant, as an eBPF program reported it.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::fcntl::AT_FDCWD;

use super::super::descriptors::{self, Descriptor};
use super::super::exec_reads::{ExecReads, Programs};
use super::super::links;
use super::super::near;
use super::super::pipe_content::{Found, Left};
use super::super::reading::Traffic;
use super::super::snapshot::{ProcessSnapshot, first};
use super::bytes::{half, word};
use super::format::{
    CAPACITY, DESCRIPTOR, DEVICE, ENTRIES, ENTRY, FILE_POSITION, FLAGS, GENERATION, INODE, KIND,
    MODE, PROCESS, SIZE, UNKNOWN, UNREAD, WRITERS,
};
use crate::stat::{self, Attributes, Inode};

/// Bits of the mode of an open file (include/linux/fs.h).
const READS: u32 = 1;
const WRITES: u32 = 2;
/// Bytes of a buffer of a pipe.
const PAGE: u64 = 4096;

/// The open files of a process at its fork, exec, or exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BpfSnapshot {
    /// The process, and the thread that made the call.
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// True if there may be more descriptors than reported.
    is_cut: bool,
    /// Open files by descriptor, in ascending order.
    open: Vec<(i32, Open)>,
    /// At an exec and an open: the paths of the first descriptors.
    pub(crate) paths: BTreeMap<i32, OsString>,
    traffic: Traffic,
    pub(super) arguments: Vec<u8>,
    pub(super) program: Option<PathBuf>,
    pub(super) directory: Option<PathBuf>,
    /// At an exec: the file mode creation mask.
    pub(crate) umask: Option<u32>,
    /// Content of its pipes without a writer, as far as known from writes that were seen.
    pub(super) piped: BTreeMap<i32, String>,
    contents: OnceLock<BTreeMap<i32, String>>,
    /// The snapshot of the process that is its parent.
    pub(super) of_parent: Option<Box<BpfSnapshot>>,
}

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    mode: u32,
    flags: u32,
    kind: u32,
    inode: Inode,
    /// Generation of the inode; `None`: the filesystem has none.
    generation: Option<u32>,
    position: u64,
    size: u64,
    /// Size of a pipe's buffer, and its unread bytes if nobody can add to them.
    capacity: u64,
    left: Option<u32>,
}

impl BpfSnapshot {
    /// Decodes the record of a table. `None`: it is truncated.
    pub(super) fn of_table(tid: u32, is_cut: bool, table: &[u8]) -> Option<BpfSnapshot> {
        let entries = table.get(ENTRIES..)?.chunks_exact(ENTRY);
        let open = entries.filter_map(Open::read).collect();
        BpfSnapshot::new((half(table, PROCESS)?, tid), is_cut, table, open)
    }

    /// A snapshot of a process and one of its threads. `None`: `traffic` is truncated.
    pub(super) fn new(
        (pid, tid): (u32, u32),
        is_cut: bool,
        traffic: &[u8],
        mut open: Vec<(i32, Open)>,
    ) -> Option<BpfSnapshot> {
        let traffic = |index: usize| word(traffic, 8 * index);
        // If a descriptor was reported twice, the last report holds.
        open.reverse();
        open.sort_by_key(|(fd, _)| *fd);
        open.dedup_by_key(|(fd, _)| *fd);
        Some(BpfSnapshot {
            pid,
            tid,
            is_cut,
            open,
            paths: BTreeMap::new(),
            traffic: Traffic {
                read_calls: traffic(0)?,
                write_calls: traffic(1)?,
                read_bytes: traffic(2)?,
                write_bytes: traffic(3)?,
            },
            arguments: Vec::new(),
            program: None,
            directory: None,
            umask: None,
            piped: BTreeMap::new(),
            contents: OnceLock::new(),
            of_parent: None,
        })
    }

    /// Bytes in the pipes without a writer, by descriptor, with the pipe's inode.
    pub(super) fn unread(&self) -> impl Iterator<Item = (i32, u64, u32)> {
        let open = self.open.iter();
        open.filter_map(|&(fd, ref open)| {
            Some((fd, open.inode.number, open.left.filter(|&left| left > 0)?))
        })
    }

    /// Reads the content of pipes without a writer: as it was written, or as it is there now. May wait for
    /// the process, if that is in an exec.
    pub(crate) fn keep_contents(&self) {
        let contents = self.unread().filter_map(|(fd, ..)| {
            let piped = self.piped.get(&fd).cloned();
            Some((fd, piped.or_else(|| self.left(fd)?.content())?))
        });
        let _ = self.contents.set(contents.collect());
    }

    /// True if a call that made one descriptor has opened a named pipe, or a pipe that is open already.
    pub(crate) fn is_fifo(&self) -> bool {
        let mut open = self.open.iter();
        open.any(|(_, open)| open.kind & libc::S_IFMT == libc::S_IFIFO)
    }

    /// True if the call that returned descriptor `fd` made the file.
    pub(crate) fn is_created(&self, fd: i32) -> bool {
        /// `FMODE_CREATED` of include/linux/fs.h.
        const CREATED: u32 = 0x10_0000;
        self.open(fd).is_some_and(|open| open.mode & CREATED != 0)
    }

    fn open(&self, fd: i32) -> Option<&Open> {
        let place = self.open.binary_search_by_key(&fd, |(fd, _)| *fd).ok()?;
        Some(&self.open[place].1)
    }

    /// Attributes of a file, directory or link, as the kernel reported them.
    pub(crate) fn opened(&self, fd: i32) -> Option<Attributes> {
        let open = self.open(fd)?;
        let types = [libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK];
        let is_file = types.contains(&(open.kind & libc::S_IFMT));
        is_file.then(|| open.attributes())
    }

    fn regular(&self, fd: i32) -> Option<&Open> {
        let open = self.open(fd);
        open.filter(|open| open.kind & libc::S_IFMT == libc::S_IFREG)
    }
}

impl Open {
    /// True if the program has filled in the file.
    pub(super) fn is_known(&self) -> bool {
        self.kind != 0
    }

    pub(super) fn attributes(&self) -> Attributes {
        let inode = (self.inode.device, self.inode.number);
        Attributes {
            generation: self.generation,
            ..Attributes::reported(inode, self.kind, self.size)
        }
    }

    /// Decodes an entry of a table, with its descriptor. `None`: it is truncated.
    pub(super) fn read(entry: &[u8]) -> Option<(i32, Open)> {
        let left = word(entry, UNREAD)?;
        let open = Open {
            mode: half(entry, MODE)?,
            flags: half(entry, FLAGS)?,
            kind: half(entry, KIND)?,
            inode: Inode::reported(half(entry, DEVICE)?, word(entry, INODE)?),
            generation: Some(half(entry, GENERATION)?).filter(|&generation| generation != 0),
            position: word(entry, FILE_POSITION)?,
            size: word(entry, SIZE)?,
            capacity: u64::from(half(entry, CAPACITY)?) * PAGE,
            left: (left != UNKNOWN && half(entry, WRITERS)? == 0)
                .then(|| u32::try_from(left).ok())
                .flatten(),
        };
        Some((half(entry, DESCRIPTOR)?.cast_signed(), open))
    }

    /// True if an inode of the same number is this one, as far as generations are known.
    fn is_of_generation(&self, found: Option<u32>) -> bool {
        let both = self.generation.zip(found);
        both.is_none_or(|(own, found)| own == found)
    }

    fn channel(&self, fd: i32) -> Option<Descriptor> {
        let mut channel = descriptors::channel(
            fd,
            self.kind,
            (self.inode.device, self.inode.number),
            || Some((self.mode & READS != 0, self.mode & WRITES != 0)),
        )?;
        channel.capacity = (self.capacity > 0).then_some(self.capacity);
        Some(channel)
    }
}

impl ProcessSnapshot for BpfSnapshot {
    fn targets(&self) -> BTreeMap<i32, OsString> {
        first(|fd| {
            let open = self.open(fd)?;
            let channel = open.channel(fd).and_then(|channel| channel.text());
            let path = || self.paths.get(&fd).cloned();
            let link = || Some(links::target(self.pid, fd)?.into_os_string());
            channel
                .or_else(path)
                .or_else(link)
                .or(Some(OsString::new()))
        })
    }

    fn state(&self, fd: i32) -> Option<(u32, u64)> {
        let kept = (libc::O_ACCMODE | libc::O_APPEND) as u32;
        let open = self.open(fd)?;
        Some((open.flags & kept, open.position))
    }

    fn extent(&self, fd: i32) -> Option<((u64, u64), u64)> {
        let open = self.open(fd)?;
        Some(((open.inode.device, open.inode.number), open.size))
    }

    /// The kernel's own numbers are not the attributes that each filesystem reports. So the file is read
    /// under its name, and by its descriptor where another device has that name, or makes up its number. The
    /// name comes first: reading the descriptor of a process that has ended meanwhile makes the kernel drop
    /// all its cached /proc entries.
    fn attributes(&self, fd: i32) -> Option<Attributes> {
        let open = self.regular(fd)?;
        // Since the report the file may be gone, and its number another file's. So its identity is checked
        // after its attributes were read: a file that was made in between is not mistaken for it.
        let it_is = |name: &CStr| {
            let found = stat::known(AT_FDCWD, name).ok()?;
            let is_it = found.ino == open.inode.number
                && found.is_regular()
                && open.is_of_generation(stat::generation(name, open.inode.number));
            is_it.then_some(found)
        };
        let path = self.paths.get(&fd).map(OsString::as_os_str);
        let path = path.filter(|path| links::is_path(path));
        let by_descriptor = || it_is(&CString::new(links::link(self.pid, fd)).ok()?);
        let by_name = |path: &OsStr| match near::at(Path::new(path)) {
            near::Found::Is(there) => it_is(&CString::new(there.link()).ok()?),
            near::Found::Nothing | near::Found::Unknown => None,
        };
        let found = match path.and_then(by_name) {
            Some(found) if found.dev == open.inode.device => found,
            other => by_descriptor().or(other)?,
        };
        Some(Attributes {
            size: open.size,
            ..found
        })
    }

    fn as_reported(&self, fd: i32) -> Option<Attributes> {
        Some(self.regular(fd)?.attributes())
    }

    fn channels(&self) -> Option<Vec<Descriptor>> {
        let open = self.open.iter();
        let mut all: Vec<_> = open.filter_map(|(fd, open)| open.channel(*fd)).collect();
        if self.is_cut {
            // Nothing more is known of a process that has ended meanwhile.
            let last = self.open.last().map_or(-1, |(fd, _)| *fd);
            let mut others = descriptors::of(self.pid).unwrap_or_default();
            others.retain(|other| other.fd > last);
            all.append(&mut others);
        }
        Some(all)
    }

    fn lacks_channels(&self) -> bool {
        self.is_cut && descriptors::numbers_of(self.pid).is_empty()
    }

    fn left(&self, fd: i32) -> Option<Found> {
        let open = self.open(fd)?;
        let left = Left::new(open.inode.number, open.left?);
        let content = self.contents.get().and_then(|all| all.get(&fd));
        Some(Found::new(self.pid, fd, left, content.cloned()))
    }

    fn numbers(&self) -> Vec<i32> {
        self.open.iter().map(|(fd, _)| *fd).collect()
    }

    fn of_parent(&self, pid: u32) -> Option<&dyn ProcessSnapshot> {
        let parent = self.of_parent.as_deref().filter(|it| it.pid == pid)?;
        Some(parent)
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.traffic)
    }

    fn arguments(&self) -> Vec<u8> {
        self.arguments.clone()
    }

    fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    fn read_by_exec(&self, programs: &mut Programs) -> Option<ExecReads> {
        let (program, directory) = (self.program.as_ref()?, self.directory.as_ref()?);
        programs.exec(program, &self.arguments, directory)
    }
}
