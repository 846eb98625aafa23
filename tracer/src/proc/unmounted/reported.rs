//! Opens that the kernel reports. The program does not wait, so the file may be gone when it is read.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flowtrace_schema::{Op, is_system_path};

use super::super::near::{self, Found};
use super::super::snapshot::ProcessSnapshot;
use super::super::topology::UNNAMED;
use super::super::tracepoints::Called;
use super::paths::without_dots;
use super::{Open, Tracee, UnmountedFiles};
use crate::stat::Attributes;

impl UnmountedFiles {
    /// The kernel reported an open with these flags.
    pub(crate) fn reported(&mut self, tracee: Tracee, called: &Called, flags: u32, now: u64) {
        let fd = called.result as i32;
        let Some(made) = called.made.as_deref() else {
            return;
        };
        let Some(reported) = made.opened(fd) else {
            return;
        };
        // The path may be too long for the report.
        let path = made.paths.get(&fd).cloned().unwrap_or_default();
        let creates = made.is_created(fd) || flags & UNNAMED != 0;
        if !creates && self.is_settled(tracee, &path, flags, Some(reported.inode()), now) {
            return;
        }
        let path = Path::new(&path);
        if self.views.see(path, &reported) {
            return;
        }
        if creates {
            self.known.forget(reported.inode());
            self.files.forget_inode(&reported);
        }
        let open = Open {
            flags,
            creates: Some(creates),
            start_ns: called.began_ns.unwrap_or(now),
        };
        let attributes = match self.records_all() {
            // Whatever names the file, the kernel does.
            true => self.as_known(&reported),
            false => self.attributes(made, fd).unwrap_or(reported),
        };
        let file = self.record_open(tracee, &open, path, &attributes, now);
        if let Some(file) = file {
            self.known.is(&reported, file);
            self.report(reported.inode(), file, now);
            if let Some(named) = &called.names[0] {
                self.follow_links(tracee, &without_dots(named), path, now);
            }
        }
    }

    /// The caller executed a program, which the kernel opened for it.
    pub(crate) fn executed(&mut self, caller: Tracee, program: &Path, now: u64) {
        /// `__FMODE_EXEC` of include/linux/fs.h, as a mount gets it.
        const FOR_EXEC: u32 = 0x20;
        if !self.records_all() || is_system_path(program.as_os_str().as_bytes()) {
            return;
        }
        let file = self.known.named(program).or_else(|| {
            let Found::Is(there) = near::behind(program) else {
                return None;
            };
            Some(self.enter(&there.attributes, program, now))
        });
        if let Some(file) = file {
            self.record(caller, Op::Open, file, FOR_EXEC, (now, now));
        }
    }

    /// Attributes of the file that is open as descriptor `fd` in `snapshot`: for a file that was seen before,
    /// or is gone, those that the kernel reported.
    pub(super) fn attributes(&self, snapshot: &dyn ProcessSnapshot, fd: i32) -> Option<Attributes> {
        let Some(reported) = snapshot.as_reported(fd) else {
            return snapshot.attributes(fd);
        };
        if self.known.of(&reported).is_some() || self.records_all() {
            return Some(self.as_known(&reported));
        }
        Some(snapshot.attributes(fd).unwrap_or(reported))
    }

    /// Attributes that the kernel reported, which are those of a file that is known already if its inode is.
    fn as_known(&self, reported: &Attributes) -> Attributes {
        if let Some(file) = self.known.of(reported) {
            self.files.is_also(reported, file);
        }
        *reported
    }
}
