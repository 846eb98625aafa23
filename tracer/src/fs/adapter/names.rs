//! Requests about names: looking up, making, removing, renaming.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flowtrace_schema::{FileId, Op};
use fuser::{INodeNo, RenameFlags, ReplyData, ReplyEntry, Request};

use super::convert::{GENERATION, decode_device, errno, file_attr};
use super::{Adapter, out_of_descriptors, requester};
use crate::fs::Result;
use crate::fs::inode::Node;
use crate::fs::log::{Event, done, outcome};
use crate::fs::passthrough::{Entry, NewNode};

impl Adapter {
    pub(super) fn lookup_name(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let started = self.log.start(req.pid(), false);
        let (result, file) = match self.view.node(parent.0) {
            Ok(parent) => self.drops.with_room(
                || self.view.lookup(requester(req), &parent, name),
                |(result, _)| out_of_descriptors(result),
            ),
            Err(errno) => (Err(errno), None),
        };
        let event = Event::new(Op::Lookup, file);
        self.log.end(started, event, done(&result));
        self.answer_entry(reply, result);
    }

    pub(super) fn make_node(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, mask, device): (u32, u32, u32),
        reply: ReplyEntry,
    ) {
        let new = NewNode::Special {
            mode,
            mask,
            device: decode_device(device),
        };
        let event = |file| Event::new(Op::Mknod, file).flags(mode);
        self.make(req, parent, name, new, event, reply);
    }

    pub(super) fn make_directory(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, mask): (u32, u32),
        reply: ReplyEntry,
    ) {
        let new = NewNode::Directory { mode, mask };
        let event = |file| Event::new(Op::Mkdir, file).flags(mode);
        self.make(req, parent, name, new, event, reply);
    }

    pub(super) fn make_symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str();
        let event = |file| Event::new(Op::Symlink, file);
        self.make(req, parent, name, NewNode::Symlink { target }, event, reply);
    }

    fn make(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new: NewNode<'_>,
        event: impl FnOnce(Option<FileId>) -> Event,
        reply: ReplyEntry,
    ) {
        let started = self.log.start(req.pid(), true);
        let (result, file) = match self.view.node(parent.0) {
            Ok(parent) => self.view.make(requester(req), &parent, name, new),
            Err(errno) => (Err(errno), None),
        };
        self.log.end(started, event(file), done(&result));
        self.answer_entry(reply, result);
    }

    pub(super) fn make_link(
        &self,
        req: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let started = self.log.start(req.pid(), true);
        let node = self.view.node(ino.0);
        let file = node.as_ref().ok().and_then(|node| node.file);
        let link = |node: &Node| {
            let parent = self.view.node(parent.0)?;
            self.view.link(requester(req), node, &parent, name)
        };
        let result = node.and_then(|node| link(&node));
        let event = Event::new(Op::Link, file);
        self.log.end(started, event, done(&result));
        self.answer_entry(reply, result);
    }

    pub(super) fn remove_name(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        op: Op,
    ) -> Result<()> {
        let started = self.log.start(req.pid(), true);
        let parent = self.view.node(parent.0);
        let file = parent
            .as_ref()
            .ok()
            .and_then(|parent| self.view.known_as(parent, name));
        let result = parent.and_then(|parent| {
            self.view
                .remove(requester(req), &parent, name, op == Op::Rmdir)
        });
        self.log.end(started, Event::new(op, file), done(&result));
        result
    }

    pub(super) fn rename_name(
        &self,
        req: &Request,
        (from_parent, from): (INodeNo, &OsStr),
        (to_parent, to): (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<()> {
        let started = self.log.start(req.pid(), true);
        let parents = self
            .view
            .node(from_parent.0)
            .and_then(|from| Ok((from, self.view.node(to_parent.0)?)));
        let file = parents
            .as_ref()
            .ok()
            .and_then(|parents| self.view.known_as(&parents.0, from));
        let result = parents.and_then(|(from_parent, to_parent)| {
            let (from, to) = ((&*from_parent, from), (&*to_parent, to));
            self.view.rename(requester(req), from, to, flags.bits())
        });
        let event = Event::new(Op::Rename, file).flags(flags.bits());
        self.log.end(started, event, done(&result));
        result
    }

    pub(super) fn read_link(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let event = |file| Event::new(Op::Readlink, file);
        let length =
            |result: &Result<_>| outcome(result, |target: &std::ffi::OsString| target.len() as i64);
        match self.on_node(req, ino, event, |node| self.view.readlink(node), length) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn answer_entry(&self, reply: ReplyEntry, result: Result<Entry>) {
        match result {
            Ok(Entry { node, attributes }) => {
                let attr = file_attr(node.id, &attributes);
                // Once the kernel knows, it may forget: nothing of the node is used after this.
                drop(node);
                reply.entry(&self.ttl, &attr, GENERATION);
                self.told();
            }
            Err(error) => reply.error(errno(error)),
        }
    }
}
