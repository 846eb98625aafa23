//! Requests about open directories.

use std::sync::Arc;
use std::time::Duration;

use flowtrace_schema::Op;
use fuser::{
    FileHandle, FopenFlags, INodeNo, OpenFlags, ReplyDirectory, ReplyDirectoryPlus, ReplyOpen,
    Request,
};

use super::convert::{GENERATION, bare_attr, errno, file_attr, file_type};
use super::{Adapter, out_of_descriptors, requester};
use crate::fs::Result;
use crate::fs::handle::OpenDirectory;
use crate::fs::log::{Event, done, outcome};
use crate::fs::passthrough::{Listed, ListedPlus};

impl Adapter {
    pub(super) fn open_directory(
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
                self.view
                    .opendir(requester(req), started.caller, Arc::clone(&node))
            };
            self.drops.with_room(open, out_of_descriptors)
        });
        let event = Event::new(Op::Opendir, file).flags(flags.0 as u32);
        self.log.end(started, event, done(&result));
        match result {
            Ok(fh) => reply.opened(FileHandle(fh), FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn list(
        &self,
        req: &Request,
        fh: FileHandle,
        position: u64,
        mut reply: ReplyDirectory,
    ) {
        let result = self.listing(req, fh, position, |open| {
            let mut listed = 0;
            self.view.readdir(open, position, |entry| {
                let Listed {
                    ino,
                    next,
                    kind,
                    name,
                } = entry;
                let full = reply.add(INodeNo(ino), next, file_type(kind), name);
                listed += i64::from(!full);
                !full
            })?;
            Ok(listed)
        });
        match result {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn list_plus(
        &self,
        req: &Request,
        fh: FileHandle,
        position: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let result = self.listing(req, fh, position, |open| {
            let mut listed = 0;
            self.view.readdirplus(open, position, |found| {
                let ListedPlus {
                    listed: entry,
                    entry: known,
                } = found;
                let (attr, ttl) = match known {
                    Some(known) => (file_attr(known.node.id, &known.attributes), self.ttl),
                    None => (bare_attr(entry.ino, entry.kind), Duration::ZERO),
                };
                let full = reply.add(attr.ino, entry.next, entry.name, &ttl, &attr, GENERATION);
                listed += i64::from(!full);
                !full
            })?;
            Ok(listed)
        });
        match result {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
        self.told();
    }

    /// A listing: `list` returns how many entries there were.
    fn listing(
        &self,
        req: &Request,
        fh: FileHandle,
        position: u64,
        mut list: impl FnMut(&OpenDirectory) -> Result<i64>,
    ) -> Result<i64> {
        let started = self.log.start(req.pid(), false);
        let open = self.view.directory(fh.0);
        let file = open.as_ref().ok().and_then(|open| open.node.file);
        // Without a descriptor there is an error only if nothing was listed yet.
        let result = open.and_then(|open| self.drops.with_room(|| list(&open), out_of_descriptors));
        let event = Event::new(Op::Readdir, file).offset(position);
        self.log
            .end(started, event, outcome(&result, |&listed| listed));
        result
    }

    pub(super) fn release_directory(&self, req: &Request, fh: FileHandle) -> Result<()> {
        let started = self.log.start(req.pid(), false);
        let open = self.view.releasedir(fh.0)?;
        let event = Event::new(Op::Releasedir, open.node.file);
        self.log.end(started.or_opener(open.opener), event, 0);
        Ok(())
    }
}
