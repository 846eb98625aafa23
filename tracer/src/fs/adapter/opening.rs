//! Requests that open and close files.

use std::ffi::OsStr;

use flowtrace_schema::{FileId, FileLayer, Op};

use super::{Adapter, Request};
use crate::callers::Effort;
use crate::fs::Result;
use crate::fs::inode::Node;
use crate::fs::log::{Event, Started, done};
use crate::fs::passthrough::{Entry, NewFile, Opened};
use crate::fs::protocol::Reply;
use crate::fs::protocol::abi::{self, fopen};

impl Adapter {
    pub(super) fn open_file(&self, req: &Request, arguments: abi::OpenIn, reply: Reply<'_>) {
        let flags = arguments.flags;
        let started = self.log.start(req.who.tid, Effort::Fresh);
        let node = self.view.node(req.node);
        let file = node.as_ref().ok().and_then(|node| node.recorded());
        let result = node.and_then(|node| {
            let opened = self
                .view
                .open(req.who, started.caller, node, flags as i32)?;
            Ok(self.open_out(opened.0, &opened.1.node, flags))
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
        let result = result.map(|(Entry { node, attributes }, (fh, _))| abi::CreateOut {
            entry: self.entry_out(req.node, &node, &attributes),
            open: self.open_out(fh, &node, flags),
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
        match self.view.node(req.node) {
            Ok(parent) => self.view.create(req.who, started.caller, &parent, new),
            Err(errno) => (Err(errno), None),
        }
    }

    /// What the kernel is told of an open file: that reads and writes come here as the application
    /// makes them, and that writes that do not extend the file may come at the same time; or
    /// whether the pages that the cache has of it are still right.
    fn open_out(&self, fh: u64, node: &Node, flags: u32) -> abi::OpenOut {
        let passes = self.shared.layer == FileLayer::DirectPassthrough;
        let register = || self.backings.acquire(node.id, || self.view.pin(node));
        let backing = passes.then(register).flatten();
        let shares = || self.view.file(fh).is_ok_and(|open| open.position.is_some());
        let data = match self.shared.layer {
            // Of a shared position the page cache knows nothing.
            FileLayer::Cached if !shares() => {
                let unchanged = self.view.is_unchanged(fh, node);
                let keep = if unchanged { fopen::KEEP_CACHE } else { 0 };
                // Closing what was only read tells nothing, and nobody waits for it.
                let is_read = flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32;
                keep | if is_read { fopen::NOFLUSH } else { 0 }
            }
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
        let open = match self.view.file(flush.fh) {
            Ok(open) => open,
            Err(errno) => return reply.error(errno),
        };
        let result = self.view.flush(&open);
        self.unlock_owner(&open, flush.lock_owner);
        self.log.end_pieces_of(&started, &open.split);
        let event = Event::new(Op::Flush, open.node.recorded());
        self.log
            .end(started.or_opener(open.opener), event, done(&result));
        reply.done(result);
    }

    pub(super) fn release_file(&self, req: &Request, release: &abi::ReleaseIn, reply: Reply<'_>) {
        let started = self.log.start(req.who.tid, Effort::Tables);
        let open = match self.view.release(release.fh) {
            Ok(open) => open,
            Err(errno) => return reply.error(errno),
        };
        if self.shared.layer == FileLayer::DirectPassthrough {
            self.backings.release(open.node.id);
        }
        self.unlock_file(&open, release.fh);
        self.log.end_pieces(&open.split);
        let event = Event::new(Op::Release, open.node.recorded());
        self.log.end(started.or_opener(open.opener), event, 0);
        reply.ok();
    }
}
