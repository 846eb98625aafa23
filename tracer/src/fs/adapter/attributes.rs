//! Requests about attributes of a node.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use flowtrace_schema::Op;
use nix::errno::Errno;
use zerocopy::FromZeros;

use super::convert::{attr_out, changes, statx_out};
use super::{Adapter, Request};
use crate::fs::log::{Event, done, outcome};
use crate::fs::node::Node;
use crate::fs::protocol::Reply;
use crate::fs::protocol::abi::{self, fattr};
use crate::stat::Attributes;
use nix::Result;

/// Largest value or list of extended attributes (`XATTR_SIZE_MAX`).
const XATTR_MAX: usize = 64 * 1024;

impl Adapter {
    pub(super) fn get_attributes(&self, req: &Request, reply: Reply<'_>) {
        let result = self.attributes(req);
        self.answer_attributes(reply, result);
    }

    /// As [`Adapter::get_attributes`] for a caller that requests the time of birth, which does not come with
    /// a lookup. If attributes may be kept, there must be no request for the birth alone: the kernel then
    /// reports no birth.
    pub(super) fn get_statx(&self, req: &Request, _what: abi::StatxIn, reply: Reply<'_>) {
        if !self.ttl.is_zero() {
            return reply.error(Errno::ENOSYS);
        }
        match self.attributes(req) {
            Ok((number, attributes)) => reply.body(&statx_out(number, &attributes, self.ttl)),
            Err(errno) => reply.error(errno),
        }
    }

    fn attributes(&self, req: &Request) -> Result<(u64, Attributes)> {
        let event = |file| Event::new(Op::Getattr, file);
        let get = |node: &Arc<Node>| {
            Ok((
                self.passthrough.number(&node.key),
                self.passthrough.getattr(node)?,
            ))
        };
        self.on_node(req, event, get, done)
    }

    pub(super) fn set_attributes(&self, req: &Request, set: &abi::SetattrIn, reply: Reply<'_>) {
        let changes = changes(set);
        let event = |file| {
            let mut event = Event::new(changes.op(), file);
            if let Some(mode) = changes.mode {
                event = event.flags(mode & 0o7777);
            }
            if let Some(size) = changes.size {
                event = event.length(size);
            }
            event
        };
        // Result of a truncation: the requested size.
        let value = |result: &Result<_>| {
            outcome(result, |_| match changes.op() {
                Op::Truncate => changes.size.map_or(0, |size| size as i64),
                _ => 0,
            })
        };
        let through = (set.valid & fattr::FH != 0).then_some(set.fh);
        let change = |node: &Arc<Node>| {
            let open = through.and_then(|fh| self.passthrough.file(fh).ok());
            let attributes = self
                .passthrough
                .setattr(req.who, node, open.as_deref(), changes)?;
            if changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some() {
                self.walks
                    .permissions_changed(&self.passthrough, node, req.who.tid);
            }
            Ok((self.passthrough.number(&node.key), attributes))
        };
        let result = self.on_node(req, event, change, value);
        self.answer_attributes(reply, result);
    }

    fn answer_attributes(&self, reply: Reply<'_>, result: Result<(u64, Attributes)>) {
        match result {
            Ok((number, attributes)) => reply.body(&attr_out(number, &attributes, self.ttl)),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn figures(&self, req: &Request, reply: Reply<'_>) {
        let event = |file| Event::new(Op::Statfs, file);
        match self.on_node(req, event, |node| self.passthrough.statfs(node), done) {
            Ok(figures) => reply.body(&abi::StatfsOut {
                blocks: figures.blocks(),
                bfree: figures.blocks_free(),
                bavail: figures.blocks_available(),
                files: figures.files(),
                ffree: figures.files_free(),
                bsize: figures.block_size() as u32,
                namelen: figures.name_max() as u32,
                frsize: figures.fragment_size() as u32,
                ..FromZeros::new_zeroed()
            }),
            Err(errno) => reply.error(errno),
        }
    }

    /// Succeeds if the caller may use a node as `mask` says.
    pub(super) fn check_access(&self, req: &Request, check: abi::AccessIn, reply: Reply<'_>) {
        let event = |file| Event::new(Op::Access, file).flags(check.mask);
        let access = |node: &Arc<Node>| {
            let _as_caller = self.passthrough.act_as(req.who)?;
            self.passthrough.access(node, check.mask as i32)
        };
        reply.done(self.on_node(req, event, access, done));
    }

    pub(super) fn set_xattr(
        &self,
        req: &Request,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        reply: Reply<'_>,
    ) {
        let event = |file| Event::new(Op::Setxattr, file).length(value.len() as u64);
        let set = |node: &Arc<Node>| {
            let _as_caller = self.passthrough.act_as(req.who)?;
            self.passthrough.setxattr(node, name, value, flags as i32)
        };
        let result = self.on_node(req, event, set, done);
        self.access_list_changed(req, name);
        reply.done(result);
    }

    pub(super) fn get_xattr(
        &self,
        req: &Request,
        wanted: abi::GetxattrIn,
        name: &OsStr,
        reply: Reply<'_>,
    ) {
        let get = |node: &Node, value: &mut [u8]| {
            let _as_caller = self.passthrough.act_as(req.who)?;
            self.passthrough.getxattr(node, name, value)
        };
        self.answer_xattr(req, Op::Getxattr, wanted.size, get, reply);
    }

    pub(super) fn list_xattrs(&self, req: &Request, wanted: abi::GetxattrIn, reply: Reply<'_>) {
        let list = |node: &Node, names: &mut [u8]| self.passthrough.listxattr(node, names);
        self.answer_xattr(req, Op::Listxattr, wanted.size, list, reply);
    }

    pub(super) fn remove_xattr(&self, req: &Request, name: &OsStr, reply: Reply<'_>) {
        let event = |file| Event::new(Op::Removexattr, file);
        let remove = |node: &Arc<Node>| {
            let _as_caller = self.passthrough.act_as(req.who)?;
            self.passthrough.removexattr(node, name)
        };
        let result = self.on_node(req, event, remove, done);
        self.access_list_changed(req, name);
        reply.done(result);
    }

    /// An extended attribute was changed. Those of the system decide who may search a directory.
    fn access_list_changed(&self, req: &Request, name: &OsStr) {
        if name.as_bytes().starts_with(b"system.")
            && let Ok(node) = self.passthrough.node(req.node)
        {
            self.walks
                .permissions_changed(&self.passthrough, &node, req.who.tid);
        }
    }

    /// Answers a request for a value or a list of extended attributes; with the size if `size` is 0.
    fn answer_xattr(
        &self,
        req: &Request,
        op: Op,
        size: u32,
        get: impl FnOnce(&Node, &mut [u8]) -> Result<usize>,
        mut reply: Reply<'_>,
    ) {
        let event = |file| Event::new(op, file).length(u64::from(size));
        let length = |result: &Result<usize>| outcome(result, |&length| length as i64);
        let wanted = (size as usize).min(XATTR_MAX);
        let space = reply.space(wanted);
        match self.on_node(req, event, |node| get(node, space), length) {
            Ok(length) if size == 0 => reply.body(&abi::GetxattrOut {
                size: length as u32,
                padding: 0,
            }),
            Ok(length) if length <= wanted => reply.filled(length),
            Ok(_) => reply.error(Errno::ERANGE),
            Err(errno) => reply.error(errno),
        }
    }
}
