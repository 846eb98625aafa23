//! Descriptors that a process came by in a way that no call tells of: sent over a socket, taken from another process,
//! inherited from before the run. They are looked at when they are first used; the process goes on meanwhile.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

use flowtrace_schema::{Call, FileId};

use super::open_file::OpenFile;
use super::table::SharedTable;
use crate::clock::Clock;
use crate::opens::OpenedFile;
use crate::proc::sampler::objects::{Holder, Target};
use crate::proc::{descriptors, links};

/// What a look said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// It is a file of a view.
    File(Met),
    /// It is something else of a view, or a file that nobody opened there.
    Unnamed,
    /// It is a regular file of no view: whoever it came from may be known to have it.
    Outside(Outside),
    /// It is nothing of a view, but this where it is a pipe or socket.
    Elsewhere(Option<Target>),
    /// It was closed by then, or the process is over.
    Gone,
}

/// A file of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Met {
    /// `None`: it is left out of the trace.
    pub(super) file: Option<FileId>,
    pub(super) by_fuse: bool,
    pub(super) appends: bool,
    pub(super) close_on_exec: bool,
}

/// A file of no view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) appends: bool,
    pub(super) close_on_exec: bool,
}

/// Looks at them, and counts those of which nothing can be told.
pub(super) struct Strangers {
    clock: Clock,
    views: Vec<PathBuf>,
    /// Files that were opened in views, by the numbers of their inodes there.
    opened: HashMap<u64, Numbered>,
    /// In the order of time.
    suspects: VecDeque<Suspect>,
    not_followed: u64,
    /// Rows of those of which it turned out that they may have been something else.
    rows_dropped: u64,
}

/// What was opened under a number.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    file: Option<FileId>,
    /// Whether opens of it were served by FUSE, and by the kernel.
    by_fuse: bool,
    by_kernel: bool,
    /// Two views have such a number, or one had it twice.
    is_ambiguous: bool,
}

/// A descriptor that was this at that time. It was looked at some time after it was used, and may have been
/// closed and opened anew in between.
struct Suspect {
    looked_ns: u64,
    table: SharedTable,
    fd: u64,
    /// `None`: a file that cannot be named.
    open: Option<Rc<OpenFile>>,
    /// Who was found to have the same open file.
    by: Option<Holding>,
}

/// A descriptor that is known to stand for an open file; by what is told of calls, which may be behind.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) table: SharedTable,
    pub(super) fd: u64,
    pub(super) open: Rc<OpenFile>,
}

impl Holding {
    /// Whether nothing has become of it.
    fn lasts(&self) -> bool {
        let table = self.table.borrow();
        table
            .get(self.fd)
            .is_some_and(|open| Rc::ptr_eq(open, &self.open))
    }
}

impl Strangers {
    pub(super) fn new(clock: Clock, views: Vec<PathBuf>) -> Strangers {
        Strangers {
            clock,
            views,
            opened: HashMap::new(),
            suspects: VecDeque::new(),
            not_followed: 0,
            rows_dropped: 0,
        }
    }

    /// A file of a view was opened.
    pub(super) fn opened(&mut self, opened: OpenedFile) {
        let Some(number) = opened.number else {
            return;
        };
        let several = self.views.len() > 1;
        let file = opened.file;
        let fresh = Numbered {
            file,
            by_fuse: false,
            by_kernel: false,
            is_ambiguous: false,
        };
        let known = self.opened.entry(number).or_insert(fresh);
        if known.file != file {
            // Of one view the older one is gone, and its number was given again.
            *known = Numbered {
                is_ambiguous: several,
                ..fresh
            };
        }
        known.by_fuse |= opened.by_fuse;
        known.by_kernel |= !opened.by_fuse;
    }

    /// Looks at descriptor `fd` of process `pid`, of which nothing is known: most are pipes and sockets.
    pub(super) fn look(&self, pid: u32, tid: u32, fd: u64) -> Stranger {
        let fd = fd as u32 as i32;
        let Some(link) = links::target(pid, fd) else {
            return Stranger::Gone;
        };
        let holder = Holder { pid, tid };
        let is_in_view = self.views.iter().any(|view| link.starts_with(view));
        if !is_in_view {
            match holder.target(fd) {
                Some(Target::File) => {}
                target => {
                    let channel = target.filter(|t| matches!(t, Target::Channel(_)));
                    return Stranger::Elsewhere(channel);
                }
            }
        }
        let (Some(attributes), Some(flags)) = (descriptors::attributes(pid, fd), holder.flags(fd))
        else {
            return Stranger::Gone;
        };
        if attributes.mode & libc::S_IFMT != libc::S_IFREG {
            return Stranger::Elsewhere(None);
        }
        let appends = flags & libc::O_APPEND != 0;
        let close_on_exec = flags & libc::O_CLOEXEC != 0;
        if !is_in_view {
            return Stranger::Outside(Outside {
                appends,
                close_on_exec,
            });
        }
        match self.opened.get(&attributes.ino) {
            Some(known) if !known.is_ambiguous => {
                // Opened in both ways, by whoever this came from: those that append come to FUSE.
                let by_fuse = known.by_fuse && (!known.by_kernel || appends);
                Stranger::File(Met {
                    file: known.file,
                    by_fuse,
                    appends: appends && !by_fuse,
                    close_on_exec,
                })
            }
            _ => Stranger::Unnamed,
        }
    }

    /// A descriptor was looked at, and its table says what it is.
    pub(super) fn suspect(
        &mut self,
        table: &SharedTable,
        fd: u64,
        open: Option<Rc<OpenFile>>,
        by: Option<Holding>,
    ) {
        self.suspects.push_back(Suspect {
            looked_ns: self.clock.now(),
            table: Rc::clone(table),
            fd,
            open,
            by,
        });
    }

    /// There was no such descriptor when it was used, so that what was found there later says nothing.
    pub(super) fn forget(&mut self, table: &SharedTable, fd: u64) {
        let known = self.suspects.len();
        self.suspects
            .retain(|suspect| !(Rc::ptr_eq(&suspect.table, table) && suspect.fd == fd));
        if self.suspects.len() < known {
            let mut table = table.borrow_mut();
            table.close(fd);
            // Nothing was read or written through it.
            table.mistaken = false;
        }
    }

    /// One of which nothing can be told any more.
    pub(super) fn missed(&mut self) {
        self.not_followed += 1;
    }

    /// All calls until a moment are known: what was looked at before, and not closed until then, was
    /// the same when it was used. Who has the same must have had it all the time, too; else it is looked at again.
    pub(super) fn judge(&mut self, until: u64, emit: &mut impl FnMut(Call)) {
        while let Some(suspect) = self.suspects.pop_front_if(|s| s.looked_ns < until) {
            let table = suspect.table.borrow();
            let Some(open) = suspect.open else {
                self.not_followed += u64::from(table.is_suspect(suspect.fd));
                continue;
            };
            let rows = open.waiting.take().unwrap_or_default();
            let is_same = table
                .get(suspect.fd)
                .is_some_and(|same| Rc::ptr_eq(same, &open));
            let is_known = suspect.by.is_none_or(|by| by.lasts());
            if is_same && is_known {
                rows.into_iter().for_each(&mut *emit);
            } else {
                self.not_followed += 1;
                self.rows_dropped += rows.len() as u64;
                open.seek(None);
                open.is_void.set(!is_known);
            }
        }
    }

    /// How many were not followed.
    pub(super) fn not_followed(&self) -> u64 {
        self.not_followed
    }

    /// Rows of those that were not followed.
    pub(super) fn rows_dropped(&self) -> u64 {
        self.rows_dropped
    }
}

/// Whether descriptors of two processes are one open file; `false` if that cannot be told.
#[expect(unsafe_code)]
pub(super) fn are_one(one: (u32, u64), other: (u32, u64)) -> bool {
    /// `KCMP_FILE` of include/uapi/linux/kcmp.h.
    const FILE: libc::c_int = 0;
    // SAFETY: takes numbers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, FILE, one.1, other.1) };
    order == 0
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;
    use std::cell::RefCell;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_of_views_are_told_from_pipes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let file = fs::File::create(path.join("x")).unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let mut strangers = Strangers::new(Clock::start().0, vec![path]);
        let own = std::process::id();
        let fd = file.as_raw_fd() as u64;
        let pipe = strangers.look(own, own, reader.as_raw_fd() as u64);
        assert!(matches!(
            pipe,
            Stranger::Elsewhere(Some(Target::Channel(_)))
        ));
        assert_eq!(strangers.look(own, own, 1 << 20), Stranger::Gone);
        assert_eq!(strangers.look(own, own, fd), Stranger::Unnamed);
        let opened = OpenedFile {
            file: Some(FileId(7)),
            flags: 0,
            by_fuse: false,
            number: Some(file.metadata().unwrap().ino()),
        };
        strangers.opened(opened);
        let met = Met {
            file: Some(FileId(7)),
            by_fuse: false,
            appends: false,
            close_on_exec: true,
        };
        assert_eq!(strangers.look(own, own, fd), Stranger::File(met));
        strangers.opened(OpenedFile {
            by_fuse: true,
            ..opened
        });
        assert_eq!(strangers.look(own, own, fd), Stranger::File(met));
    }

    #[test]
    fn what_was_closed_before_the_look_is_not_told() {
        let mut strangers = Strangers::new(Clock::start().0, Vec::new());
        let table = SharedTable::new(RefCell::new(Table::default()));
        for fd in [3, 4] {
            table.borrow_mut().suspect(fd);
            strangers.suspect(&table, fd, None, None);
        }
        let mut none = |call| panic!("{call:?}");
        strangers.judge(0, &mut none);
        assert_eq!(
            strangers.not_followed(),
            0,
            "calls up to then are still to come"
        );
        table.borrow_mut().close(3);
        strangers.judge(u64::MAX, &mut none);
        strangers.judge(u64::MAX, &mut none);
        assert_eq!(strangers.not_followed(), 1);
    }

    #[test]
    fn one_open_file_is_told_from_another_of_the_same_file() {
        let file = tempfile::tempfile().unwrap();
        let same = file.try_clone().unwrap();
        let own = std::process::id();
        let fd = |file: &fs::File| (own, file.as_raw_fd() as u64);
        let other = fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert!(are_one(fd(&file), fd(&same)));
        assert!(!are_one(fd(&file), fd(&other)));
    }
}
