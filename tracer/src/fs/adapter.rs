//! The FUSE side: decodes a request, calls the passthrough, records, replies.
//!
//! `fuser` is named in this module and its submodules only.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use flowtrace_schema::Op;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use nix::errno::Errno;

use super::inode::Node;
use super::log::{Event, Log, done};
use super::passthrough::View;
use super::{Result, credentials::Requester};

mod attributes;
mod backing;
mod convert;
mod data;
mod invalidate;
mod listing;
mod names;
mod start;

use backing::Backings;
use convert::errno;
use data::{ReadRequest, WriteRequest};
use invalidate::Drops;
pub(super) use start::{Served, Shared, Wanted};

/// The filesystem as fuser sees it.
pub(super) struct Adapter {
    view: Arc<View>,
    log: Arc<Log>,
    shared: Arc<Shared>,
    backings: Backings,
    drops: Drops,
    ttl: Duration,
}

fn requester(req: &Request) -> Requester {
    Requester {
        uid: req.uid(),
        gid: req.gid(),
        tid: req.pid(),
    }
}

impl Adapter {
    /// A call on a node: finds the node, acts, records. `event` needs no file yet.
    fn on_node<T>(
        &self,
        req: &Request,
        ino: INodeNo,
        event: impl FnOnce(Option<flowtrace_schema::FileId>) -> Event,
        act: impl FnOnce(&Arc<Node>) -> Result<T>,
        value: impl FnOnce(&Result<T>) -> i64,
    ) -> Result<T> {
        let started = self.log.start(req.pid(), false);
        let node = self.view.node(ino.0);
        let file = node.as_ref().ok().and_then(|node| node.file);
        let result = node.and_then(|node| act(&node));
        self.log.end(started, event(file), value(&result));
        result
    }
}

/// Whether descriptors ran out.
fn out_of_descriptors<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Errno::EMFILE | Errno::ENFILE))
}

impl Adapter {
    /// The kernel has been told of more nodes.
    fn told(&self) {
        if self.view.is_crowded() {
            self.drops.names();
            if self.view.is_pressed() {
                self.drops.pause();
            }
        }
    }
}

/// Answers with nothing, or with the errno.
fn answer(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.negotiate(config);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.lookup_name(req, parent, name, reply);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, lookups: u64) {
        self.view.forget(ino.0, lookups);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let event = |file| Event::new(Op::Getattr, file);
        let result = self.on_node(req, ino, event, |node| self.view.getattr(node), done);
        self.answer_attributes(reply, ino, result);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        fh: Option<FileHandle>,
        _created: Option<SystemTime>,
        _checked: Option<SystemTime>,
        _saved: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = convert::changes(mode, uid, gid, size, accessed, modified);
        self.set_attributes(req, ino, fh, changes, reply);
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.read_link(req, ino, reply);
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.make_node(req, parent, name, (mode, umask, rdev), reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.make_directory(req, parent, name, (mode, umask), reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.remove_name(req, parent, name, Op::Unlink));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.remove_name(req, parent, name, Op::Rmdir));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.make_symlink(req, parent, link_name, target, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let result = self.rename_name(req, (parent, name), (newparent, newname), flags);
        answer(reply, result);
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        self.make_link(req, ino, newparent, newname, reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_file(req, ino, flags, reply);
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let request = ReadRequest {
            ino: ino.0,
            fh: fh.0,
            offset,
            size,
            by_application: lock_owner.is_some(),
        };
        self.read_file(req, request, reply);
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _open_flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let request = WriteRequest {
            fh: fh.0,
            offset,
            data,
            flags,
        };
        self.write_file(req, request, reply);
    }

    fn flush(&self, req: &Request, _: INodeNo, fh: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        answer(reply, self.flush_file(req, fh));
    }

    fn release(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.release_file(req, fh));
    }

    fn fsync(&self, req: &Request, _: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let event = |file| Event::new(Op::Fsync, file).flags(u32::from(datasync));
        let result = self.on_file(req, fh, event, |open| self.view.fsync(open, datasync), done);
        answer(reply, result);
    }

    fn opendir(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_directory(req, ino, flags, reply);
    }

    fn readdir(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.list(req, fh, offset, reply);
    }

    fn readdirplus(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.list_plus(req, fh, offset, reply);
    }

    fn releasedir(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.release_directory(req, fh));
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let event = |file| Event::new(Op::Fsyncdir, file).flags(u32::from(datasync));
        let sync = |_: &Arc<Node>| {
            let open = self.view.directory(fh.0)?;
            self.view.fsyncdir(&open, datasync)
        };
        answer(reply, self.on_node(req, ino, event, sync, done));
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.figures(req, ino, reply);
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.set_xattr(req, ino, name, value, flags));
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.get_xattr(req, ino, name, size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.list_xattrs(req, ino, size, reply);
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.remove_xattr(req, ino, name));
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        answer(reply, self.check_access(req, ino, mask.bits()));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.create_file(req, parent, name, (mode, umask, flags), reply);
    }

    // Locks are not negotiated: the kernel keeps them among the users of the mount.
    fn getlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn setlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _blocksize: u32, _block: u64, reply: ReplyBmap) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.control_file(req, fh, flags, (cmd, in_data, out_size), reply);
    }

    // Only regular files are opened here, and those are always ready: the kernel's own answer.
    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.allocate(req, fh, (offset, length), mode));
    }

    fn lseek(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.seek(req, fh, offset, whence, reply);
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.copy(req, (fh_in, offset_in), (fh_out, offset_out), len, reply);
    }
}
