//! The FUSE side: parses a request, calls the passthrough, records, replies.

use std::sync::Arc;
use std::time::Duration;

use flowtrace_schema::{FileId, Op};
use nix::errno::Errno;

use super::credentials::Requester;
use super::locks::Locks;
use super::log::{Event, Log, done};
use super::node::Node;
use super::passthrough::Passthrough;
use super::protocol::abi::{self, opcode};
use super::protocol::{Body, InHeader, Malformed, Reply, Serve};
use crate::callers::Effort;
use crate::rings::Rings;
use nix::Result;

mod attributes;
mod backing;
mod convert;
mod data;
mod handshake;
mod invalidate;
mod listing;
mod locking;
mod names;
mod opening;
mod retries;
mod signals;
mod start;
mod waiting;
mod walks;

use backing::Backings;
pub(super) use handshake::{Shared, Wanted};
use invalidate::Drops;
use retries::Retries;
pub(super) use start::Served;
use waiting::Waiting;
use walks::Walks;

/// Answers the requests of one mount.
pub(super) struct Adapter {
    passthrough: Arc<Passthrough>,
    log: Arc<Log>,
    shared: Arc<Shared>,
    backings: Backings,
    locks: Locks<Waiting>,
    retries: Retries,
    drops: Arc<Drops>,
    walks: Walks,
    ttl: Duration,
    rings: Arc<Rings>,
}

/// A request: its number, its node, and its caller.
#[derive(Clone, Copy, Debug)]
struct Request {
    node: u64,
    who: Requester,
}

impl Serve for Adapter {
    fn serve(&self, header: &InHeader, body: Body<'_>, reply: Reply<'_>) {
        let req = Request {
            node: header.nodeid,
            who: Requester {
                uid: header.uid,
                gid: header.gid,
                tid: header.pid,
            },
        };
        // A malformed request has dropped its reply, which answers EIO.
        let _ = self.dispatch(header.opcode, &req, body, reply);
    }
}

impl Adapter {
    /// Handles each operation of the protocol.
    fn dispatch(
        &self,
        operation: u32,
        req: &Request,
        mut body: Body<'_>,
        reply: Reply<'_>,
    ) -> std::result::Result<(), Malformed> {
        match operation {
            opcode::LOOKUP => self.lookup(req, body.name()?, reply),
            opcode::GETATTR => self.get_attributes(req, reply),
            opcode::STATX => self.get_statx(req, body.take()?, reply),
            opcode::SETATTR => self.set_attributes(req, &body.take()?, reply),
            opcode::READLINK => self.read_link(req, reply),
            opcode::ACCESS => self.check_access(req, body.take()?, reply),
            opcode::STATFS => self.figures(req, reply),
            opcode::SYNCFS => self.sync_filesystem(req, reply),

            opcode::MKNOD => self.make_node(req, body.take()?, body.name()?, reply),
            opcode::MKDIR => self.make_directory(req, body.take()?, body.name()?, reply),
            opcode::SYMLINK => self.make_symlink(req, body.name()?, body.text()?, reply),
            opcode::LINK => self.make_link(req, body.take()?, body.name()?, reply),
            opcode::UNLINK => self.remove_name(req, body.name()?, Op::Unlink, reply),
            opcode::RMDIR => self.remove_name(req, body.name()?, Op::Rmdir, reply),
            opcode::RENAME => {
                let abi::RenameIn { newdir } = body.take()?;
                self.rename_name(req, body.name()?, (newdir, body.name()?), 0, reply);
            }
            opcode::RENAME2 => {
                let abi::Rename2In { newdir, flags, .. } = body.take()?;
                self.rename_name(req, body.name()?, (newdir, body.name()?), flags, reply);
            }

            opcode::OPEN => self.open_file(req, body.take()?, reply),
            opcode::CREATE => self.create_file(req, &body.take()?, body.name()?, reply),
            opcode::TMPFILE => self.create_unnamed(req, &body.take()?, reply),
            opcode::FLUSH => self.flush_file(req, body.take()?, reply),
            opcode::RELEASE => self.release_file(req, &body.take()?, reply),

            opcode::READ => self.read_file(req, &body.take()?, reply),
            opcode::WRITE => {
                let write: abi::WriteIn = body.take()?;
                self.write_file(req, &write, body.bytes(write.size)?, reply);
            }
            opcode::FSYNC => self.sync_file(req, body.take()?, reply),
            opcode::FALLOCATE => self.allocate(req, &body.take()?, reply),
            opcode::LSEEK => self.seek(req, body.take()?, reply),
            opcode::COPY_FILE_RANGE => self.copy_short(req, &body.take()?, reply),
            opcode::COPY_FILE_RANGE_64 => self.copy_long(req, &body.take()?, reply),
            opcode::IOCTL => {
                let call: abi::IoctlIn = body.take()?;
                self.control(req, &call, body.bytes(call.in_size)?, reply);
            }

            opcode::GETLK => self.test_lock(req, &body.take()?, reply),
            opcode::SETLK => self.set_lock(req, &body.take()?, false, reply),
            opcode::SETLKW => self.set_lock(req, &body.take()?, true, reply),
            opcode::INTERRUPT => self.interrupt(body.take()?, reply),

            opcode::OPENDIR => self.open_directory(req, body.take()?, reply),
            opcode::READDIR => self.list(req, &body.take()?, reply),
            opcode::READDIRPLUS => self.list_plus(req, &body.take()?, reply),
            opcode::RELEASEDIR => self.release_directory(req, &body.take()?, reply),
            opcode::FSYNCDIR => self.sync_directory(req, body.take()?, reply),

            opcode::SETXATTR => {
                let abi::SetxattrIn { size, flags } = body.take()?;
                let name = body.text()?;
                self.set_xattr(req, name, body.bytes(size)?, flags, reply);
            }
            opcode::GETXATTR => self.get_xattr(req, body.take()?, body.text()?, reply),
            opcode::LISTXATTR => self.list_xattrs(req, body.take()?, reply),
            opcode::REMOVEXATTR => self.remove_xattr(req, body.text()?, reply),

            opcode::FORGET => {
                let abi::ForgetIn { nlookup } = body.take()?;
                self.passthrough.forget(req.node, nlookup);
                reply.none();
            }
            opcode::BATCH_FORGET => {
                reply.none();
                let abi::BatchForgetIn { count, .. } = body.take()?;
                for _ in 0..count {
                    let abi::ForgetOne { nodeid, nlookup } = body.take()?;
                    self.passthrough.forget(nodeid, nlookup);
                }
            }
            // Rings cause these requests, see `protocol::uring`.
            opcode::NOTIFY_REPLY => reply.none(),
            // The mount is gone; the device reports that next.
            opcode::DESTROY => reply.ok(),
            // For example POLL and BMAP, for which the kernel has its own answers on regular files.
            _ => reply.error(Errno::ENOSYS),
        }
        Ok(())
    }

    /// Makes a call on a node: finds the node, acts, records. `event` is also used without a file.
    fn on_node<T>(
        &self,
        req: &Request,
        event: impl FnOnce(Option<FileId>) -> Event,
        act: impl FnOnce(&Arc<Node>) -> Result<T>,
        value: impl FnOnce(&Result<T>) -> i64,
    ) -> Result<T> {
        let started = self.log.start(req.who.tid, Effort::Proc);
        let node = self.passthrough.node(req.node);
        let file = node.as_ref().ok().and_then(|node| node.recorded());
        let result = node.and_then(|node| act(&node));
        self.log.end(started, event(file), value(&result));
        result
    }

    fn sync_filesystem(&self, req: &Request, reply: Reply<'_>) {
        let event = |file| Event::new(Op::Fsync, file);
        reply.done(self.on_node(req, event, |node| self.passthrough.syncfs(node), done));
    }
}

#[cfg(test)]
mod tests;
