//! Requests about names: lookup, creation, removal, renaming.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use flowtrace_schema::{FileId, Op};
use nix::errno::Errno;

use super::convert::{absent, decode_device, entry_out};
use super::{Adapter, Request};
use crate::callers::Effort;
use crate::fs::log::{Event, done, outcome};
use crate::fs::node::Node;
use crate::fs::passthrough::{Entry, NewNode};
use crate::fs::protocol::{Reply, abi};
use crate::stat::Attributes;
use nix::Result;

impl Adapter {
    pub(super) fn lookup(&self, req: &Request, name: &OsStr, reply: Reply<'_>) {
        let started = self.log.start(req.who.tid, Effort::Proc);
        let (result, file) = match self.passthrough.node(req.node) {
            Ok(parent) => self.passthrough.lookup(req.who, &parent, name),
            Err(errno) => (Err(errno), None),
        };
        let event = Event::new(Op::Lookup, file);
        self.log.end(started, event, done(&result));
        match result {
            Err(Errno::ENOENT) if !self.ttl.is_zero() => reply.body(&absent(self.ttl)),
            result => self.answer_entry(req, reply, result),
        }
    }

    pub(super) fn make_node(
        &self,
        req: &Request,
        arguments: abi::MknodIn,
        name: &OsStr,
        reply: Reply<'_>,
    ) {
        let abi::MknodIn {
            mode, rdev, umask, ..
        } = arguments;
        let new = NewNode::Special {
            mode,
            mask: umask,
            device: decode_device(rdev),
        };
        let event = |file| Event::new(Op::Mknod, file).flags(mode);
        self.make(req, name, new, event, reply);
    }

    pub(super) fn make_directory(
        &self,
        req: &Request,
        abi::MkdirIn { mode, umask }: abi::MkdirIn,
        name: &OsStr,
        reply: Reply<'_>,
    ) {
        let new = NewNode::Directory { mode, mask: umask };
        let event = |file| Event::new(Op::Mkdir, file).flags(mode);
        self.make(req, name, new, event, reply);
    }

    pub(super) fn make_symlink(
        &self,
        req: &Request,
        name: &OsStr,
        target: &OsStr,
        reply: Reply<'_>,
    ) {
        let event = |file| Event::new(Op::Symlink, file);
        self.make(req, name, NewNode::Symlink { target }, event, reply);
    }

    fn make(
        &self,
        req: &Request,
        name: &OsStr,
        new: NewNode<'_>,
        event: impl FnOnce(Option<FileId>) -> Event,
        reply: Reply<'_>,
    ) {
        let started = self.log.start(req.who.tid, Effort::Fresh);
        let (result, file) = match self.passthrough.node(req.node) {
            Ok(parent) => self.passthrough.make(req.who, &parent, name, new),
            Err(errno) => (Err(errno), None),
        };
        self.log.end(started, event(file), done(&result));
        self.answer_entry(req, reply, result);
    }

    pub(super) fn make_link(
        &self,
        req: &Request,
        abi::LinkIn { oldnodeid }: abi::LinkIn,
        name: &OsStr,
        reply: Reply<'_>,
    ) {
        let started = self.log.start(req.who.tid, Effort::Fresh);
        let node = self.passthrough.node(oldnodeid);
        let file = node.as_ref().ok().and_then(|node| node.recorded());
        let link = |node: &Node| {
            let parent = self.passthrough.node(req.node)?;
            self.passthrough.link(req.who, node, &parent, name)
        };
        let result = node.and_then(|node| link(&node));
        let event = Event::new(Op::Link, file);
        self.log.end(started, event, done(&result));
        self.answer_entry(req, reply, result);
    }

    pub(super) fn remove_name(&self, req: &Request, name: &OsStr, op: Op, reply: Reply<'_>) {
        let started = self.log.start(req.who.tid, Effort::Fresh);
        let parent = self.passthrough.node(req.node);
        let file = parent
            .as_ref()
            .ok()
            .and_then(|parent| self.passthrough.known_as(parent, name));
        let result = parent.and_then(|parent| {
            self.passthrough
                .remove(req.who, &parent, name, op == Op::Rmdir)
        });
        self.log.end(started, Event::new(op, file), done(&result));
        reply.done(result);
    }

    pub(super) fn rename_name(
        &self,
        req: &Request,
        from: &OsStr,
        (to_parent, to): (u64, &OsStr),
        flags: u32,
        reply: Reply<'_>,
    ) {
        let started = self.log.start(req.who.tid, Effort::Fresh);
        let parents = self
            .passthrough
            .node(req.node)
            .and_then(|from| Ok((from, self.passthrough.node(to_parent)?)));
        let file = parents
            .as_ref()
            .ok()
            .and_then(|parents| self.passthrough.known_as(&parents.0, from));
        let result = parents.and_then(|(from_parent, to_parent)| {
            let (from, to) = ((&*from_parent, from), (&*to_parent, to));
            let [moved, replaced] = self.passthrough.rename(req.who, from, to, flags)?;
            let (from, to, tid) = (from.0, to.0, req.who.tid);
            if let Some(node) = moved {
                self.walks.moved(&self.passthrough, &node, from, to, tid);
            }
            if let Some(node) = replaced {
                self.walks.moved(&self.passthrough, &node, to, from, tid);
            }
            Ok(())
        });
        let event = Event::new(Op::Rename, file).flags(flags);
        self.log.end(started, event, done(&result));
        reply.done(result);
    }

    pub(super) fn read_link(&self, req: &Request, reply: Reply<'_>) {
        let event = |file| Event::new(Op::Readlink, file);
        let length =
            |result: &Result<_>| outcome(result, |target: &std::ffi::OsString| target.len() as i64);
        match self.on_node(req, event, |node| self.passthrough.readlink(node), length) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn answer_entry(&self, req: &Request, reply: Reply<'_>, result: Result<Entry>) {
        match result {
            Ok(Entry { node, attributes }) => {
                let entry = self.entry_out(req.node, &node, &attributes);
                // Once the kernel has the answer, it may forget the node: the node is not used after this.
                drop(node);
                reply.body(&entry);
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// The kernel's entry for a node in the directory `parent`.
    pub(super) fn entry_out(
        &self,
        parent: u64,
        node: &Node,
        attributes: &Attributes,
    ) -> abi::EntryOut {
        let name_ttl = self
            .ttl
            .max(self.walks.entry_ttl(&self.passthrough, parent, node));
        let number = self.passthrough.number(&node.key);
        entry_out(node.id, number, attributes, name_ttl, self.ttl)
    }
}
