//! Requests that open and close files.

use std::ffi::OsStr;
use std::sync::atomic::Ordering;

use flowtrace_schema::{FileId, FileLayer, Op};

use super::{Adapter, Request};
use crate::callers::Effort;
use crate::fs::log::{Event, Started, done};
use crate::fs::passthrough::{Entry, NewFile, Opened};
use crate::fs::protocol::Reply;
use crate::fs::protocol::abi::{self, fopen};
use nix::Result;

impl Adapter {
    pub(super) fn open_file(&self, req: &Request, arguments: abi::OpenIn, reply: Reply<'_>) {
        let flags = arguments.flags;
        let started = self.log.start(req.who.tid, Effort::Fresh);
        let node = self.passthrough.node(req.node);
        let file = node.as_ref().ok().and_then(|node| node.recorded());
        let result = node.and_then(|node| {
            let opened = self
                .passthrough
                .open(req.who, started.opener(), node, flags as i32)?;
            if flags & libc::O_TRUNC as u32 != 0 {
                self.mode_may_differ(req.node);
            }
            Ok(self.open_out(&started, opened, flags))
        });
        let event = Event::new(Op::Open, file).flags(flags);
        self.log.end(started, event, done(&result));
        match result {
            Ok(open) => reply.body(&open),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn create_file(
        &self,
        req: &Request,
        arguments: &abi::CreateIn,
        name: &OsStr,
        reply: Reply<'_>,
    ) {
        self.create(req, arguments, Some(name), reply);
    }

    /// Makes a file without a name (`O_TMPFILE`).
    pub(super) fn create_unnamed(
        &self,
        req: &Request,
        arguments: &abi::CreateIn,
        reply: Reply<'_>,
    ) {
        self.create(req, arguments, None, reply);
    }

    fn create(
        &self,
        req: &Request,
        arguments: &abi::CreateIn,
        name: Option<&OsStr>,
        reply: Reply<'_>,
    ) {
        let abi::CreateIn {
            flags, mode, umask, ..
        } = *arguments;
        let new = NewFile {
            name,
            mode,
            mask: umask,
            flags: flags as i32,
        };
        let started = self.log.start(req.who.tid, Effort::Fresh);
        let (result, file) = self.make_and_open(req, &started, new);
        let result = result.map(|(Entry { node, attributes }, opened)| abi::CreateOut {
            entry: self.entry_out(req.node, &node, &attributes),
            open: self.open_out(&started, opened, flags),
        });
        let event = Event::new(Op::Create, file).flags(flags);
        self.log.end(started, event, done(&result));
        match result {
            Ok(created) => reply.body(&created),
            Err(errno) => reply.error(errno),
        }
    }

    fn make_and_open(
        &self,
        req: &Request,
        started: &Started,
        new: NewFile<'_>,
    ) -> (Result<(Entry, Opened)>, Option<FileId>) {
        match self.passthrough.node(req.node) {
            Ok(parent) => self
                .passthrough
                .create(req.who, started.opener(), &parent, new),
            Err(errno) => (Err(errno), None),
        }
    }

    /// Answer to an open. Without a cache it says that reads and writes come here as the application makes
    /// them, and that writes that do not extend the file may come at the same time (not from a process that
    /// uses io_uring, see [`crate::rings`]). With a cache it says if the cached pages are still valid.
    fn open_out(&self, started: &Started, opened: Opened, flags: u32) -> abi::OpenOut {
        let (fh, open) = opened;
        let node = &*open.node;
        let register = || {
            self.backings
                .acquire(node.id, || self.passthrough.pin(node))
        };
        let backing = self.shared.registers().then(register).flatten();
        // A position that is shared with processes outside is kept here.
        let shares = || open.position.is_some();
        let may_pass = backing.is_some() && !shares();
        let has_ring = started.caller.is_some_and(|who| self.rings.has(who.upid));
        let by_kernel = may_pass && has_ring;
        let is_read = flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32;
        if by_kernel && !is_read {
            open.wrote.store(true, Ordering::Relaxed);
        }
        let data = match self.shared.layer {
            // The page cache does not know a shared position.
            FileLayer::Cached if !shares() => {
                let unchanged = self.passthrough.is_unchanged(fh, node);
                let keep = if unchanged { fopen::KEEP_CACHE } else { 0 };
                // The close of a file that was only read has no effect, so the kernel need not wait for it.
                keep | if is_read { fopen::NOFLUSH } else { 0 }
            }
            // By passthrough or, if that is not available, through the page cache.
            _ if has_ring && !shares() => 0,
            _ => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
        };
        abi::OpenOut {
            fh,
            open_flags: data | backing.map_or(0, |_| fopen::PASSTHROUGH),
            backing_id: backing.unwrap_or_default(),
        }
    }

    pub(super) fn flush_file(&self, req: &Request, flush: abi::FlushIn, reply: Reply<'_>) {
        let started = self.log.start(req.who.tid, Effort::Tables);
        let open = match self.passthrough.file(flush.fh) {
            Ok(open) => open,
            Err(errno) => return reply.error(errno),
        };
        let result = self.passthrough.flush(&open);
        self.close_descriptor(&open, flush.fh, flush.lock_owner);
        self.log.end_pieces_of(&started, &open.split);
        let event = Event::new(Op::Flush, open.node.recorded());
        self.log
            .end(started.or_opener(open.opener), event, done(&result));
        reply.done(result);
    }

    pub(super) fn release_file(&self, req: &Request, release: &abi::ReleaseIn, reply: Reply<'_>) {
        let started = self.log.start(req.who.tid, Effort::Tables);
        let open = match self.passthrough.release(release.fh) {
            Ok(open) => open,
            Err(errno) => return reply.error(errno),
        };
        if self.shared.registers() {
            self.backings.release(open.node.id);
        }
        self.unlock_file(&open, release.fh);
        self.log.end_pieces(&open.split);
        let event = Event::new(Op::Release, open.node.recorded());
        self.log.end(started.or_opener(open.opener), event, 0);
        reply.ok();
    }
}
