//! Requests about open directories.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use flowtrace_schema::{FileKind, Op};
use zerocopy::{FromZeros, IntoBytes};

use super::convert::no_entry;
use super::{Adapter, Request};
use crate::callers::Effort;
use crate::fs::handle::OpenDirectory;
use crate::fs::log::{Event, done, outcome};
use crate::fs::passthrough::Listed;
use crate::fs::protocol::Reply;
use crate::fs::protocol::abi::{self, Dirent, EntryOut};
use nix::Result;

/// A listing as it grows in the space for the answer.
struct Listing<'a> {
    space: &'a mut [u8],
    used: usize,
    count: i64,
}

impl Listing<'_> {
    /// Adds an entry, after its node in a READDIRPLUS. Returns false if it does not fit.
    fn add(&mut self, entry: Option<&EntryOut>, listed: &Listed<'_>) -> bool {
        let name = listed.name.as_bytes();
        let dirent = Dirent {
            ino: listed.ino,
            off: listed.next,
            namelen: name.len() as u32,
            kind: u32::from(type_of(listed.kind)),
        };
        let entry = entry.map_or(&[][..], IntoBytes::as_bytes);
        let parts = [entry, dirent.as_bytes(), name];
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let padded = length.next_multiple_of(8);
        let Some(mut space) = self.space.get_mut(self.used..self.used + padded) else {
            return false;
        };
        for part in parts {
            let (here, rest) = space.split_at_mut(part.len());
            here.copy_from_slice(part);
            space = rest;
        }
        space.fill(0);
        self.used += padded;
        self.count += 1;
        true
    }
}

/// Type as in a directory entry (`DT_…`).
fn type_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::File | FileKind::Absent => libc::DT_REG,
        FileKind::Directory => libc::DT_DIR,
        FileKind::Symlink => libc::DT_LNK,
        FileKind::Fifo => libc::DT_FIFO,
        FileKind::Socket => libc::DT_SOCK,
        FileKind::Char => libc::DT_CHR,
        FileKind::Block => libc::DT_BLK,
    }
}

impl Adapter {
    pub(super) fn open_directory(&self, req: &Request, arguments: abi::OpenIn, reply: Reply<'_>) {
        let started = self.log.start(req.who.tid, Effort::Fresh);
        let node = self.passthrough.node(req.node);
        let file = node.as_ref().ok().and_then(|node| node.recorded());
        let result =
            node.and_then(|node| self.passthrough.opendir(req.who, started.opener(), node));
        let event = Event::new(Op::Opendir, file).flags(arguments.flags);
        self.log.end(started, event, done(&result));
        match result {
            Ok(fh) => reply.body(&abi::OpenOut {
                fh,
                ..FromZeros::new_zeroed()
            }),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn list(&self, req: &Request, read: &abi::ReadIn, reply: Reply<'_>) {
        self.listing(req, read, reply, |open, listing| {
            self.passthrough
                .readdir(open, read.offset, |listed| listing.add(None, &listed))
        });
    }

    pub(super) fn list_plus(&self, req: &Request, read: &abi::ReadIn, reply: Reply<'_>) {
        self.listing(req, read, reply, |open, listing| {
            self.passthrough.readdirplus(open, read.offset, |found| {
                let entry = match found.entry {
                    Some(known) => self.entry_out(req.node, &known.node, &known.attributes),
                    None => no_entry(),
                };
                listing.add(Some(&entry), &found.listed)
            })
        });
    }

    /// Makes a listing, which `list` fills.
    fn listing(
        &self,
        req: &Request,
        read: &abi::ReadIn,
        mut reply: Reply<'_>,
        list: impl Fn(&OpenDirectory, &mut Listing<'_>) -> Result<()>,
    ) {
        let started = self.log.start(req.who.tid, Effort::Proc);
        let open = self.passthrough.directory(read.fh);
        let file = open.as_ref().ok().and_then(|open| open.node.recorded());
        let mut listing = Listing {
            space: reply.space(read.size as usize),
            used: 0,
            count: 0,
        };
        let result = open.and_then(|open| list(&open, &mut listing));
        let Listing { used, count, .. } = listing;
        let event = Event::new(Op::Readdir, file).offset(read.offset);
        self.log.end(started, event, outcome(&result, |()| count));
        match result {
            Ok(()) => reply.filled(used),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn release_directory(
        &self,
        req: &Request,
        release: &abi::ReleaseIn,
        reply: Reply<'_>,
    ) {
        let started = self.log.start(req.who.tid, Effort::Tables);
        match self.passthrough.releasedir(release.fh) {
            Ok(open) => {
                let event = Event::new(Op::Releasedir, open.node.recorded());
                self.log.end(started.or_opener(open.opener), event, 0);
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn sync_directory(&self, req: &Request, sync: abi::FsyncIn, reply: Reply<'_>) {
        let data_only = sync.fsync_flags & abi::FSYNC_FDATASYNC != 0;
        let event = |file| Event::new(Op::Fsyncdir, file).flags(u32::from(data_only));
        let sync_real = |_: &Arc<_>| {
            let open = self.passthrough.directory(sync.fh)?;
            self.passthrough.fsyncdir(&open, data_only)
        };
        reply.done(self.on_node(req, event, sync_real, done));
    }
}
