//! Requests about the data of open files.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use flowtrace_schema::{Fidelity, FileId, FileLayer, Op};
use nix::errno::Errno;
use zerocopy::FromZeros;

use super::{Adapter, Request};
use crate::callers::Effort;
use crate::fs::handle::OpenFile;
use crate::fs::in_flight;
use crate::fs::log::{Event, Started, done, outcome};
use crate::fs::passthrough::Write;
use crate::fs::protocol::Reply;
use crate::fs::protocol::abi::{self, READ_LOCKOWNER, WRITE_CACHE, WRITE_KILL_SUIDGID};
use crate::fs::split::Cutting;
use nix::Result;

/// Largest length that the answer to a COPY_FILE_RANGE can express, in whole pages.
const SHORT_COPY: u64 = u32::MAX as u64 & !0xfff;

impl Adapter {
    /// Makes a call on an open file: finds it, acts, records.
    fn on_file<T>(
        &self,
        req: &Request,
        fh: u64,
        event: impl FnOnce(Option<FileId>) -> Event,
        act: impl FnOnce(&OpenFile) -> Result<T>,
        value: impl FnOnce(&Result<T>) -> i64,
    ) -> Result<T> {
        let started = self.log.start(req.who.tid, Effort::Proc);
        let open = self.passthrough.file(fh);
        let file = open.as_ref().ok().and_then(|open| open.node.recorded());
        let result = open.and_then(|open| act(&open));
        self.log.end(started, event(file), value(&result));
        result
    }

    pub(super) fn read_file(&self, req: &Request, read: &abi::ReadIn, mut reply: Reply<'_>) {
        let by_application = read.read_flags & READ_LOCKOWNER != 0;
        let started = self.log.start(req.who.tid, Effort::Proc);
        let open = match self.passthrough.file(read.fh) {
            Ok(open) => open,
            Err(errno) => return reply.error(errno),
        };
        let space = reply.space(read.size as usize);
        let result = self.passthrough.read(&open, read.offset, space);
        let fidelity = if by_application && !open.is_program {
            Fidelity::Exact
        } else {
            Fidelity::Cached
        };
        let size = u64::from(read.size);
        let is_dropped = !by_application && self.shared.registers();
        let is_kept = open.node.writable_maps.load(Ordering::Acquire) == 0;
        let known = if is_dropped {
            let from = in_flight::begin_of_splice(started.tid);
            let now = Instant::now();
            open.again.known(read.offset, size, now, from)
        } else {
            0
        };
        let event = Event::new(Op::Read, open.node.recorded())
            .offset(read.offset.saturating_add(known))
            .length(size - known)
            .fidelity(fidelity);
        let value = outcome(&result, |&count| {
            (count as u64).saturating_sub(known) as i64
        });
        if known < size || size == 0 {
            self.end_piece(started, event, value, &open);
        }
        match result {
            Ok(count) if is_dropped => {
                let drops = Arc::clone(&self.drops);
                let pages = (req.node, read.offset, size);
                reply.filled_then(count, move || drops.pages(pages, is_kept));
            }
            Ok(count) => reply.filled(count),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn write_file(
        &self,
        req: &Request,
        write: &abi::WriteIn,
        data: &[u8],
        reply: Reply<'_>,
    ) {
        let by_cache = write.write_flags & WRITE_CACHE != 0;
        let effort = if by_cache {
            Effort::Tables
        } else {
            Effort::Proc
        };
        let mut started = self.log.start(req.who.tid, effort);
        let open = match self.passthrough.file(write.fh) {
            Ok(open) => open,
            Err(errno) => return reply.error(errno),
        };
        let real = Write {
            offset: write.offset,
            data,
            by_cache,
            appends: write.flags & libc::O_APPEND as u32 != 0,
            strip_privilege: write.write_flags & WRITE_KILL_SUIDGID != 0,
        };
        if open.node.writable_maps.load(Ordering::Acquire) > 0 {
            open.again.forget();
        }
        let strips_privilege = real.strip_privilege;
        let result = self.passthrough.write(req.who, &open, real);
        if strips_privilege {
            self.mode_may_differ(open.node.id);
        }
        let mut event = Event::new(Op::Write, open.node.recorded())
            .offset(write.offset)
            .length(data.len() as u64);
        if by_cache {
            // Thread, user and handle of such a request are not the writer's.
            started = started.by_kernel();
            event = event.fidelity(Fidelity::Writeback);
            if result.is_err() {
                self.log.refused_writeback();
            }
        }
        let value = outcome(&result, |&written| written as i64);
        self.end_piece(started, event, value, &open);
        self.answer_count(reply, result);
    }

    /// The data of a node changed, so its mode may have lost set-user-id and set-group-id.
    pub(super) fn mode_may_differ(&self, node: u64) {
        if !self.ttl.is_zero() {
            self.drops.mode(node);
        }
    }

    /// A read or write, or one of several pieces of it, is about to be answered.
    fn end_piece(&self, started: Started, event: Event, value: i64, open: &OpenFile) {
        let cutting = Cutting {
            largest: u64::from(self.shared.largest_request),
            writes_anywhere: self.shared.layer == FileLayer::Cached,
        };
        self.log
            .end_piece(started, event, value, &open.split, cutting);
    }

    fn answer_count(&self, reply: Reply<'_>, result: Result<usize>) {
        match result {
            Ok(count) => reply.body(&abi::WriteOut {
                size: count as u32,
                padding: 0,
            }),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn sync_file(&self, req: &Request, sync: abi::FsyncIn, reply: Reply<'_>) {
        let data_only = sync.fsync_flags & abi::FSYNC_FDATASYNC != 0;
        let event = |file| Event::new(Op::Fsync, file).flags(u32::from(data_only));
        let sync_real = |open: &OpenFile| self.passthrough.fsync(open, data_only);
        reply.done(self.on_file(req, sync.fh, event, sync_real, done));
    }

    pub(super) fn allocate(&self, req: &Request, wanted: &abi::FallocateIn, reply: Reply<'_>) {
        let abi::FallocateIn {
            fh,
            offset,
            length,
            mode,
            ..
        } = *wanted;
        let event = |file| {
            Event::new(Op::Fallocate, file)
                .offset(offset)
                .length(length)
                .flags(mode)
        };
        let allocate = |open: &OpenFile| {
            let done = self
                .passthrough
                .allocate(req.who, open, mode as i32, offset, length);
            self.mode_may_differ(open.node.id);
            done
        };
        let value = |result: &Result<()>| outcome(result, |()| length as i64);
        reply.done(self.on_file(req, fh, event, allocate, value));
    }

    pub(super) fn seek(&self, req: &Request, seek: abi::LseekIn, reply: Reply<'_>) {
        let event = |file| {
            let event = Event::new(Op::Lseek, file).flags(seek.whence);
            match u64::try_from(seek.offset) {
                Ok(offset) => event.offset(offset),
                Err(_) => event,
            }
        };
        let seek_real =
            |open: &OpenFile| self.passthrough.seek(open, seek.offset, seek.whence as i32);
        let value = |result: &Result<i64>| outcome(result, |&position| position);
        match self.on_file(req, seek.fh, event, seek_real, value) {
            Ok(position) => reply.body(&abi::LseekOut {
                offset: position as u64,
            }),
            Err(errno) => reply.error(errno),
        }
    }

    /// Serves a copy whose answer has 32 bits for the length.
    pub(super) fn copy_short(&self, req: &Request, copy: &abi::CopyFileRangeIn, reply: Reply<'_>) {
        let result = self.copy(req, copy, copy.len.min(SHORT_COPY));
        self.answer_count(reply, result);
    }

    /// Serves a copy of any length.
    pub(super) fn copy_long(&self, req: &Request, copy: &abi::CopyFileRangeIn, reply: Reply<'_>) {
        match self.copy(req, copy, copy.len) {
            Ok(copied) => reply.body(&abi::CopyFileRangeOut {
                bytes_copied: copied as u64,
            }),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy(&self, req: &Request, copy: &abi::CopyFileRangeIn, length: u64) -> Result<usize> {
        let started = self.log.start(req.who.tid, Effort::Proc);
        let files = self
            .passthrough
            .file(copy.fh_in)
            .and_then(|from| Ok((from, self.passthrough.file(copy.fh_out)?)));
        let ids = files.as_ref().ok();
        let ids = ids.map(|(from, to)| (from.node.recorded(), to.node.recorded()));
        let (from_id, to_id) = ids.unwrap_or_default();
        let result = files.and_then(|(from, to)| {
            let ends = ((&*from, copy.off_in), (&*to, copy.off_out));
            let copied = self.passthrough.copy(req.who, ends.0, ends.1, length);
            self.mode_may_differ(to.node.id);
            copied
        });
        if let Err(Errno::EXDEV | Errno::EOPNOTSUPP) = result {
            // The kernel then moves the data by itself, and the application sees no error.
            return result;
        }
        let value = outcome(&result, |&copied| copied as i64);
        let event = |op, file, offset| Event::new(op, file).offset(offset).length(copy.len);
        self.log
            .end(started, event(Op::CopyFrom, from_id, copy.off_in), value);
        self.log
            .end(started, event(Op::CopyTo, to_id, copy.off_out), value);
        result
    }

    pub(super) fn control(
        &self,
        req: &Request,
        call: &abi::IoctlIn,
        input: &[u8],
        reply: Reply<'_>,
    ) {
        let started = self.log.start(req.who.tid, Effort::Proc);
        let (file, result) = if call.flags & abi::IOCTL_DIR != 0 {
            match self.passthrough.directory(call.fh) {
                Ok(open) => (
                    open.node.recorded(),
                    self.passthrough
                        .control_directory(req.who, &open, call.cmd, input),
                ),
                Err(errno) => (None, Err(errno)),
            }
        } else {
            match self.passthrough.file(call.fh) {
                Ok(open) => (
                    open.node.recorded(),
                    self.passthrough
                        .control(req.who, open.fd.as_fd(), call.cmd, input),
                ),
                Err(errno) => (None, Err(errno)),
            }
        };
        let event = Event::new(Op::Ioctl, file).flags(call.cmd);
        self.log.end(started, event, done(&result));
        match result {
            Ok(argument) => {
                let length = argument.len().min(call.out_size as usize);
                reply.two(&abi::IoctlOut::new_zeroed(), &argument[..length]);
            }
            Err(errno) => reply.error(errno),
        }
    }
}
