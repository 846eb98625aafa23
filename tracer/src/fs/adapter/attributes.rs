//! Requests about attributes of a node.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::sync::Arc;

use flowtrace_schema::Op;
use fuser::{FileHandle, INodeNo, ReplyAttr, ReplyStatfs, ReplyXattr, Request};
use nix::errno::Errno;

use super::convert::{errno, file_attr};
use super::{Adapter, requester};
use crate::fs::Result;
use crate::fs::attributes::Attributes;
use crate::fs::inode::{Node, ROOT};
use crate::fs::log::{Event, done, outcome};
use crate::fs::passthrough::Changes;

/// Largest value or list of extended attributes (`XATTR_SIZE_MAX`).
const XATTR_MAX: usize = 64 * 1024;

thread_local! {
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    pub(super) fn set_attributes(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: Option<FileHandle>,
        changes: Changes,
        reply: ReplyAttr,
    ) {
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
        // A truncation that got what it asked for.
        let value = |result: &Result<_>| {
            outcome(result, |_| match changes.op() {
                Op::Truncate => changes.size.map_or(0, |size| size as i64),
                _ => 0,
            })
        };
        let result = self.on_node(
            req,
            ino,
            event,
            |node| {
                let open = fh.and_then(|fh| self.view.file(fh.0).ok());
                self.view
                    .setattr(requester(req), node, open.as_deref(), changes)
            },
            value,
        );
        self.answer_attributes(reply, ino, result);
    }

    pub(super) fn answer_attributes(
        &self,
        reply: ReplyAttr,
        ino: INodeNo,
        result: Result<Attributes>,
    ) {
        match result {
            Ok(attributes) => {
                // The root is known to the kernel as 1, but shows its real number.
                let number = if ino.0 == ROOT { attributes.ino } else { ino.0 };
                reply.attr(&self.ttl, &file_attr(number, &attributes));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn figures(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let event = |file| Event::new(Op::Statfs, file);
        match self.on_node(req, ino, event, |node| self.view.statfs(node), done) {
            Ok(figures) => reply.statfs(
                figures.blocks(),
                figures.blocks_free(),
                figures.blocks_available(),
                figures.files(),
                figures.files_free(),
                figures.block_size() as u32,
                figures.name_max() as u32,
                figures.fragment_size() as u32,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Whether the caller may use a node as `mask` asks.
    pub(super) fn check_access(&self, req: &Request, ino: INodeNo, mask: i32) -> Result<()> {
        let event = |file| Event::new(Op::Access, file).flags(mask as u32);
        let access = |node: &Arc<Node>| {
            let _as_caller = self.view.act_as(requester(req))?;
            self.view.access(node, mask)
        };
        self.on_node(req, ino, event, access, done)
    }

    pub(super) fn set_xattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        let event = |file| Event::new(Op::Setxattr, file).length(value.len() as u64);
        let set = |node: &Arc<Node>| {
            let _as_caller = self.view.act_as(requester(req))?;
            self.view.setxattr(node, name, value, flags)
        };
        self.on_node(req, ino, event, set, done)
    }

    pub(super) fn get_xattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let get = |node: &Node, value: &mut [u8]| {
            let _as_caller = self.view.act_as(requester(req))?;
            self.view.getxattr(node, name, value)
        };
        self.answer_xattr(req, ino, Op::Getxattr, size, get, reply);
    }

    pub(super) fn list_xattrs(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let list = |node: &Node, names: &mut [u8]| self.view.listxattr(node, names);
        self.answer_xattr(req, ino, Op::Listxattr, size, list, reply);
    }

    pub(super) fn remove_xattr(&self, req: &Request, ino: INodeNo, name: &OsStr) -> Result<()> {
        let event = |file| Event::new(Op::Removexattr, file);
        let remove = |node: &Arc<Node>| {
            let _as_caller = self.view.act_as(requester(req))?;
            self.view.removexattr(node, name)
        };
        self.on_node(req, ino, event, remove, done)
    }

    /// Answers a request for a value or a list of extended attributes: with its size when
    /// `size` is 0.
    fn answer_xattr(
        &self,
        req: &Request,
        ino: INodeNo,
        op: Op,
        size: u32,
        get: impl FnOnce(&Node, &mut [u8]) -> Result<usize>,
        reply: ReplyXattr,
    ) {
        let event = |file| Event::new(op, file).length(u64::from(size));
        let length = |result: &Result<usize>| outcome(result, |&length| length as i64);
        let wanted = (size as usize).min(XATTR_MAX);
        VALUE.with_borrow_mut(|value| {
            value.resize(wanted, 0);
            match self.on_node(req, ino, event, |node| get(node, value), length) {
                Ok(length) if size == 0 => reply.size(length as u32),
                Ok(length) => match value.get(..length) {
                    Some(value) => reply.data(value),
                    None => reply.error(errno(Errno::ERANGE)),
                },
                Err(error) => reply.error(errno(error)),
            }
        });
    }
}
