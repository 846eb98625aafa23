//! Requests about open files.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use flowtrace_schema::{Fidelity, FileId, FileLayer, Op};
use fuser::{
    BackingId, FileHandle, FopenFlags, INodeNo, IoctlFlags, OpenFlags, ReplyCreate, ReplyData,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use super::convert::{GENERATION, errno, file_attr};
use super::{Adapter, out_of_descriptors, requester, start};
use crate::fs::Result;
use crate::fs::handle::OpenFile;
use crate::fs::inode::Node;
use crate::fs::log::{Event, Started, done, outcome};
use crate::fs::passthrough::{Entry, Write};

/// Every open file: reads and writes come here as the application makes them, and writes that do
/// not extend the file may come at the same time.
const OPEN: FopenFlags =
    FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// A READ request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRequest {
    pub(super) ino: u64,
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    /// Not by the page cache.
    pub(super) by_application: bool,
}

/// A WRITE request.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteRequest<'a> {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
    pub(super) flags: WriteFlags,
}

thread_local! {
    /// Data on its way to the kernel. Grows to the largest request once.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    /// A call on an open file: finds it, acts, records.
    pub(super) fn on_file<T>(
        &self,
        req: &Request,
        fh: FileHandle,
        event: impl FnOnce(Option<FileId>) -> Event,
        act: impl FnOnce(&OpenFile) -> Result<T>,
        value: impl FnOnce(&Result<T>) -> i64,
    ) -> Result<T> {
        let started = self.log.start(req.pid(), false);
        let open = self.view.file(fh.0);
        let file = open.as_ref().ok().and_then(|open| open.node.file);
        let result = open.and_then(|open| act(&open));
        self.log.end(started, event(file), value(&result));
        result
    }

    pub(super) fn open_file(
        &self,
        req: &Request,
        ino: INodeNo,
        flags: OpenFlags,
        reply: ReplyOpen,
    ) {
        let started = self.log.start(req.pid(), true);
        let node = self.view.node(ino.0);
        let file = node.as_ref().ok().and_then(|node| node.file);
        let result = node.and_then(|node| {
            let open = || {
                let node = Arc::clone(&node);
                self.view
                    .open(requester(req), started.caller, node, flags.0)
            };
            let opened = self.drops.with_room(open, out_of_descriptors)?;
            let backing = self.backing(&opened.1.node, |fd| reply.open_backing(fd));
            Ok((opened.0, backing))
        });
        let event = Event::new(Op::Open, file).flags(flags.0 as u32);
        self.log.end(started, event, done(&result));
        match result {
            Ok((fh, Some(id))) => reply.opened_passthrough(FileHandle(fh), OPEN, &id),
            Ok((fh, None)) => reply.opened(FileHandle(fh), OPEN),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn create_file(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, mask, flags): (u32, u32, i32),
        reply: ReplyCreate,
    ) {
        let started = self.log.start(req.pid(), true);
        let who = requester(req);
        let (result, file) = match self.view.node(parent.0) {
            Ok(parent) => {
                let opener = started.caller;
                self.view
                    .create(who, opener, &parent, name, mode, mask, flags)
            }
            Err(errno) => (Err(errno), None),
        };
        let result = result.map(|(Entry { node, attributes }, (fh, _))| {
            let backing = self.backing(&node, |fd| reply.open_backing(fd));
            (file_attr(node.id, &attributes), FileHandle(fh), backing)
        });
        let event = Event::new(Op::Create, file).flags(flags as u32);
        self.log.end(started, event, done(&result));
        match result {
            Ok((attr, fh, Some(id))) => {
                reply.created_passthrough(&self.ttl, &attr, GENERATION, fh, OPEN, &id);
            }
            Ok((attr, fh, None)) => reply.created(&self.ttl, &attr, GENERATION, fh, OPEN),
            Err(error) => reply.error(errno(error)),
        }
        self.told();
    }

    /// The registration for passthrough of a node that was just opened.
    fn backing(
        &self,
        node: &Node,
        register: impl Fn(&std::os::fd::OwnedFd) -> std::io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        if self.shared.layer() != FileLayer::DirectPassthrough {
            return None;
        }
        // Never a writable descriptor: the file could not be executed while it is registered.
        let register = || {
            register(&node.fd).or_else(|error| match error.raw_os_error() {
                // Kernels before 6.16 take no O_PATH descriptor.
                Some(libc::EBADF) => register(&start::readable(&node.fd)?),
                _ => Err(error),
            })
        };
        self.backings.acquire(node.id, || register().ok())
    }

    pub(super) fn flush_file(&self, req: &Request, fh: FileHandle) -> Result<()> {
        let started = self.log.start(req.pid(), false);
        let open = self.view.file(fh.0)?;
        let result = self.view.flush(&open);
        self.log.end_pieces_of(&started, &open.split);
        let event = Event::new(Op::Flush, open.node.file);
        self.log
            .end(started.or_opener(open.opener), event, done(&result));
        result
    }

    pub(super) fn release_file(&self, req: &Request, fh: FileHandle) -> Result<()> {
        let started = self.log.start(req.pid(), false);
        let open = self.view.release(fh.0)?;
        if self.shared.layer() == FileLayer::DirectPassthrough {
            self.backings.release(open.node.id);
        }
        self.log.end_pieces(&open.split);
        let event = Event::new(Op::Release, open.node.file);
        self.log.end(started.or_opener(open.opener), event, 0);
        Ok(())
    }

    pub(super) fn read_file(&self, req: &Request, request: ReadRequest, reply: ReplyData) {
        let fidelity = if request.by_application {
            Fidelity::Exact
        } else {
            Fidelity::Cached
        };
        let event = |file| {
            Event::new(Op::Read, file)
                .offset(request.offset)
                .length(u64::from(request.size))
                .fidelity(fidelity)
        };
        let started = self.log.start(req.pid(), false);
        let open = match self.view.file(request.fh) {
            Ok(open) => open,
            Err(error) => return reply.error(errno(error)),
        };
        BUFFER.with_borrow_mut(|buffer| {
            let size = request.size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let result = self.view.read(&open, request.offset, &mut buffer[..size]);
            let value = outcome(&result, |&read| read as i64);
            self.end_piece(started, event(open.node.file), value, &open);
            match result {
                Ok(read) => reply.data(&buffer[..read]),
                Err(error) => reply.error(errno(error)),
            }
        });
        if !request.by_application && self.shared.layer() == FileLayer::DirectPassthrough {
            let length = u64::from(request.size);
            self.drops.pages(request.ino, request.offset, length);
        }
    }

    pub(super) fn write_file(&self, req: &Request, request: WriteRequest<'_>, reply: ReplyWrite) {
        let mut started = self.log.start(req.pid(), false);
        let open = match self.view.file(request.fh) {
            Ok(open) => open,
            Err(error) => return reply.error(errno(error)),
        };
        let write = Write {
            offset: request.offset,
            data: request.data,
            from_cache: request.flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            strip_privilege: request.flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let result = self.view.write(requester(req), &open, write);
        let mut event = Event::new(Op::Write, open.node.file)
            .offset(request.offset)
            .length(request.data.len() as u64);
        if request.flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            // Thread, user and handle of such a request are not the writer's.
            started = started.by_kernel();
            event = event.fidelity(Fidelity::Writeback);
        }
        let value = outcome(&result, |&written| written as i64);
        self.end_piece(started, event, value, &open);
        match result {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// A read or write, maybe one of several pieces, is about to be answered.
    fn end_piece(&self, started: Started, event: Event, value: i64, open: &OpenFile) {
        let largest = self.shared.largest_request();
        self.log
            .end_piece(started, event, value, &open.split, largest);
    }

    pub(super) fn allocate(
        &self,
        req: &Request,
        fh: FileHandle,
        (offset, length): (u64, u64),
        mode: i32,
    ) -> Result<()> {
        let event = |file| {
            Event::new(Op::Fallocate, file)
                .offset(offset)
                .length(length)
                .flags(mode as u32)
        };
        let who = requester(req);
        let allocate = |open: &OpenFile| self.view.allocate(who, open, mode, offset, length);
        self.on_file(req, fh, event, allocate, |result| {
            outcome(result, |()| length as i64)
        })
    }

    pub(super) fn seek(
        &self,
        req: &Request,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let event = |file| {
            let event = Event::new(Op::Lseek, file).flags(whence as u32);
            match u64::try_from(offset) {
                Ok(offset) => event.offset(offset),
                Err(_) => event,
            }
        };
        let seek = |open: &OpenFile| self.view.seek(open, offset, whence);
        let result = self.on_file(req, fh, event, seek, |result| {
            outcome(result, |&position| position)
        });
        match result {
            Ok(position) => reply.offset(position),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn copy(
        &self,
        req: &Request,
        (from, from_offset): (FileHandle, u64),
        (to, to_offset): (FileHandle, u64),
        length: u64,
        reply: ReplyWrite,
    ) {
        let started = self.log.start(req.pid(), false);
        let files = self
            .view
            .file(from.0)
            .and_then(|from| Ok((from, self.view.file(to.0)?)));
        let ids = files.as_ref().ok();
        let ids = ids.map(|(from, to)| (from.node.file, to.node.file));
        let (from_id, to_id) = ids.unwrap_or_default();
        let result = files.and_then(|(from, to)| {
            let (from, to) = ((&*from, from_offset), (&*to, to_offset));
            self.view.copy(requester(req), from, to, length)
        });
        let value = outcome(&result, |&copied| copied as i64);
        let event = |op, file, offset| Event::new(op, file).offset(offset).length(length);
        self.log
            .end(started, event(Op::CopyFrom, from_id, from_offset), value);
        self.log
            .end(started, event(Op::CopyTo, to_id, to_offset), value);
        match result {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn control_file(
        &self,
        req: &Request,
        fh: FileHandle,
        flags: IoctlFlags,
        (command, input, output): (u32, &[u8], u32),
        reply: ReplyIoctl,
    ) {
        let started = self.log.start(req.pid(), false);
        let who = requester(req);
        let (file, result) = if flags.contains(IoctlFlags::FUSE_IOCTL_DIR) {
            match self.view.directory(fh.0) {
                Ok(open) => (
                    open.node.file,
                    self.view.control_directory(who, &open, command, input),
                ),
                Err(errno) => (None, Err(errno)),
            }
        } else {
            match self.view.file(fh.0) {
                Ok(open) => (
                    open.node.file,
                    self.view.control(who, open.fd.as_fd(), command, input),
                ),
                Err(errno) => (None, Err(errno)),
            }
        };
        let event = Event::new(Op::Ioctl, file).flags(command);
        self.log.end(started, event, done(&result));
        match result {
            Ok(argument) => {
                let length = argument.len().min(output as usize);
                reply.ioctl(0, &argument[..length]);
            }
            Err(error) => reply.error(errno(error)),
        }
    }
}
