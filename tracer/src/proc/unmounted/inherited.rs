//! Bytes that programs move through unmounted files that they inherited open.
//!
//! The process that opens a file is often not the one that uses it: a shell opens `{ sort in; } > out`,
//! Python opens the file of `subprocess.run(…, stdout=file)`. Position and size of the file at the begin and
//! at the end of the program show whether something was moved meanwhile. The counters of the process, which
//! exclude its children, show whether it can have done so; the bytes that its children moved are subtracted.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flowtrace_schema::{Call as CallRow, Fidelity, FileId, Op, Usage};

use super::super::snapshot::ProcessSnapshot;
use super::inherited_files::Moved;
use super::paths::is_kernels;
use super::{Tracee, UnmountedFiles};
use crate::stat::Attributes;

impl UnmountedFiles {
    /// A process was forked.
    pub(crate) fn forked(&mut self, parent: Tracee, child: Tracee) {
        if let Some(inherited) = &mut self.inherited {
            inherited.forked(parent.pid, child.pid);
        }
    }

    /// A program begins with the descriptors of `snapshot`.
    pub(crate) fn began_with(&mut self, tracee: Tracee, snapshot: &dyn ProcessSnapshot, now: u64) {
        if !std::mem::replace(&mut self.has_begun, true) && self.records_all() {
            self.opened_before(snapshot, now);
        }
        if self.inherited.is_none() {
            return;
        }
        for (fd, target) in snapshot.targets() {
            let path = Path::new(&target);
            if let Some((file, attributes)) = self.opened_as(path, fd, snapshot, now)
                && let Some(inherited) = &mut self.inherited
                && let Some(state) = snapshot.state(fd)
                && let Some((reported, _)) = snapshot.extent(fd)
            {
                let found = (file, path, &attributes, reported);
                inherited.begins((tracee.pid, fd), state, found, now);
            }
        }
    }

    /// The first program of the run begins. No call reported its open files; those of later programs are reported
    /// by calls.
    fn opened_before(&mut self, snapshot: &dyn ProcessSnapshot, now: u64) {
        for (fd, target) in snapshot.targets() {
            if let Some((file, attributes)) = self.opened_as(Path::new(&target), fd, snapshot, now)
            {
                let reported = snapshot.as_reported(fd);
                self.report(reported.unwrap_or(attributes).inode(), file, now);
            }
        }
    }

    /// The unmounted file that is open as descriptor `fd`.
    fn opened_as(
        &mut self,
        path: &Path,
        fd: i32,
        snapshot: &dyn ProcessSnapshot,
        now: u64,
    ) -> Option<(FileId, Attributes)> {
        let name = path.as_os_str().as_bytes();
        if !path.is_absolute() || self.views.cover(path) || is_kernels(name) {
            return None;
        }
        let attributes = self.attributes(snapshot, fd)?;
        let file = self.found(path, &attributes, libc::O_RDONLY as u32, now)?;
        if let Some(reported) = snapshot.as_reported(fd) {
            self.known.is(&reported, file);
        }
        Some((file, attributes))
    }

    /// A process is about to end.
    pub(crate) fn exiting(&mut self, tracee: Tracee, snapshot: &dyn ProcessSnapshot) {
        if let Some(inherited) = &mut self.inherited {
            inherited.check(tracee.pid, snapshot);
        }
    }

    /// A program is over and used `usage`. Its writes count as at its end, behind all that it read, its reads
    /// as at its begin. `exec`: the snapshot at the exec that ended it, if one did.
    pub(crate) fn image_over(
        &mut self,
        tracee: Tracee,
        usage: &Usage,
        exec: Option<&dyn ProcessSnapshot>,
        now: u64,
    ) {
        let Some(inherited) = &mut self.inherited else {
            return;
        };
        for moved in inherited.over(tracee, usage, exec, now) {
            self.record_moved(tracee, moved, now);
        }
    }

    /// A file has a new name: checks it again if it was not found under its former one.
    pub(super) fn check_again(&mut self, file: FileId, path: &Path) {
        let Some(inherited) = &mut self.inherited else {
            return;
        };
        let mut found = Vec::new();
        inherited.late.retain_mut(|late| {
            if late.file.file != file {
                return true;
            }
            path.clone_into(&mut late.file.path);
            late.file.now = late.file.seen_by_name();
            found.extend(late.file.moved(&late.usage).map(|moved| {
                let of = (late.tracee, late.file.inode, late.end_ns);
                (of, moved)
            }));
            late.file.now.is_none()
        });
        for ((tracee, inode, end_ns), moved) in found {
            if let Some(inherited) = &mut self.inherited {
                inherited.moved_below(tracee.pid, inode, moved.bytes);
            }
            self.record_moved(tracee, moved, end_ns);
        }
    }

    fn record_moved(&mut self, tracee: Tracee, moved: Moved, now: u64) {
        if moved.op == Op::Write {
            self.files.size(moved.file, moved.size);
        }
        self.recorder.call(&CallRow {
            start_ns: match moved.op {
                Op::Write => now,
                _ => moved.since_ns,
            },
            duration_ns: 0,
            upid: Some(tracee.upid),
            tid: None,
            op: moved.op,
            file: Some(moved.file),
            offset: Some(moved.offset),
            length: Some(moved.bytes),
            flags: None,
            result: moved.bytes as i64,
            fidelity: Fidelity::Open,
        });
    }

    /// A process is over.
    pub(crate) fn ended(&mut self, tracee: Tracee) {
        if let Some(inherited) = &mut self.inherited {
            inherited.ended(tracee.pid);
        }
    }
}
