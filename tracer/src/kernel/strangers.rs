//! Descriptors that a process came by in a way that is not followed: sent over a socket, taken from
//! another process. If one is a file of a view, what is done with it is missing from the trace.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::follow::SharedTable;
use crate::clock::Clock;
use crate::proc::sampler::objects::{Holder, Target};

/// Counts them.
pub(super) struct Strangers {
    clock: Clock,
    views: Vec<PathBuf>,
    /// In the order of time.
    suspects: VecDeque<Suspect>,
    seen: u64,
}

/// A descriptor that was a file of a view at that time. It was looked at some time after it was
/// used, and may have been closed and opened anew in between.
struct Suspect {
    looked_ns: u64,
    table: SharedTable,
    fd: u64,
}

impl Strangers {
    pub(super) fn new(clock: Clock, views: Vec<PathBuf>) -> Strangers {
        Strangers {
            clock,
            views,
            suspects: VecDeque::new(),
            seen: 0,
        }
    }

    /// Looks at descriptor `fd` of process `pid`, of which nothing is known: most are pipes and
    /// sockets. Whether it is a file of a view now; the process goes on meanwhile.
    pub(super) fn look(&self, pid: u32, fd: u64) -> bool {
        let link = format!("/proc/{pid}/fd/{}", fd as u32);
        fs::read_link(link).is_ok_and(|target| self.is_in_view(&target))
    }

    /// The pipe or socket that it is instead.
    pub(super) fn channel(&self, pid: u32, tid: u32, fd: u64) -> Option<Target> {
        let target = Holder { pid, tid }.target(fd as u32 as i32)?;
        matches!(target, Target::Channel(_)).then_some(target)
    }

    /// It is, and its table says so.
    pub(super) fn suspect(&mut self, table: &SharedTable, fd: u64) {
        self.suspects.push_back(Suspect {
            looked_ns: self.clock.now(),
            table: Rc::clone(table),
            fd,
        });
    }

    /// All calls until a moment are known: what was looked at before, and not closed until then, was
    /// the same when it was used.
    pub(super) fn judge(&mut self, until: u64) {
        while let Some(suspect) = self.suspects.pop_front_if(|s| s.looked_ns < until) {
            let table = suspect.table.borrow();
            self.seen += u64::from(table.is_suspect(suspect.fd));
        }
    }

    fn is_in_view(&self, target: &Path) -> bool {
        self.views.iter().any(|view| target.starts_with(view))
    }

    /// How many were files of a view.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;
    use std::cell::RefCell;
    use std::os::fd::AsRawFd;

    #[test]
    fn files_of_views_are_told_from_pipes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let file = fs::File::create(path.join("x")).unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let strangers = Strangers::new(Clock::start().0, vec![path]);
        let own = std::process::id();
        assert!(!strangers.look(own, reader.as_raw_fd() as u64));
        assert!(!strangers.look(own, 1 << 20));
        assert!(strangers.look(own, file.as_raw_fd() as u64));
    }

    #[test]
    fn what_was_closed_before_the_look_is_none() {
        let mut strangers = Strangers::new(Clock::start().0, Vec::new());
        let table = SharedTable::new(RefCell::new(Table::default()));
        for fd in [3, 4] {
            table.borrow_mut().suspect(fd);
            strangers.suspect(&table, fd);
        }
        strangers.judge(0);
        assert_eq!(strangers.seen(), 0, "calls up to then are still to come");
        table.borrow_mut().close(3);
        strangers.judge(u64::MAX);
        strangers.judge(u64::MAX);
        assert_eq!(strangers.seen(), 1);
    }
}
