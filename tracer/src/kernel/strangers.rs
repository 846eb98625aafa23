//! Descriptors that a process came by in a way that is not followed: sent over a socket, taken from
//! another process. If one is a file of a view, what is done with it is missing from the trace.

use std::fs;
use std::path::{Path, PathBuf};

/// Counts them.
#[derive(Debug)]
pub(super) struct Strangers {
    views: Vec<PathBuf>,
    seen: u64,
}

impl Strangers {
    pub(super) fn new(views: Vec<PathBuf>) -> Strangers {
        Strangers { views, seen: 0 }
    }

    /// Looks at descriptor `fd` of process `pid`, of which nothing is known: most are pipes and
    /// sockets. The process goes on meanwhile, so that it may be another one by now.
    pub(super) fn look(&mut self, pid: u32, fd: u64) {
        let link = format!("/proc/{pid}/fd/{}", fd as u32);
        if let Ok(target) = fs::read_link(link) {
            self.seen += u64::from(self.is_in_view(&target));
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
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn files_of_views_are_told_from_pipes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let file = fs::File::create(path.join("x")).unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let mut strangers = Strangers::new(vec![path]);
        let own = std::process::id();
        strangers.look(own, reader.as_raw_fd() as u64);
        strangers.look(own, 1 << 20);
        assert_eq!(strangers.seen(), 0);
        strangers.look(own, file.as_raw_fd() as u64);
        assert_eq!(strangers.seen(), 1);
    }
}
