//! Listing directories.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};

use flowtrace_schema::FileKind;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{fdatasync, fsync};

use super::stream::{Stream, is_dots};
use super::{Entry, Passthrough};
use crate::fs::credentials::Requester;
use crate::fs::handle::{OpenDirectory, Opener};
use crate::fs::node::Node;
use crate::fs::sys::file::Argument;
use crate::stat;
use crate::stat::kind_of_entry;
use nix::Result;

/// An entry of a listing.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Listed<'a> {
    /// Number under which the inode is shown.
    pub(in crate::fs) ino: u64,
    /// Position after this entry.
    pub(in crate::fs) next: u64,
    /// Type.
    pub(in crate::fs) kind: FileKind,
    /// Name.
    pub(in crate::fs) name: &'a OsStr,
}

/// An entry of a listing with its node. The directory itself, its parent, and entries that cannot be looked
/// up have none.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct ListedPlus<'a> {
    /// The entry.
    pub(in crate::fs) listed: Listed<'a>,
    /// Its node; its lookup was counted.
    pub(in crate::fs) entry: Option<&'a Entry>,
}

impl Passthrough {
    /// Opens a directory.
    pub(in crate::fs) fn opendir(
        &self,
        who: Requester,
        opener: Opener,
        node: Arc<Node>,
    ) -> Result<u64> {
        let fd = {
            let _as_caller = self.credentials.act_as(who)?;
            self.reopen(&node, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?
        };
        let fd = Arc::new(fd);
        self.is_opened(&node, &fd);
        let open = OpenDirectory {
            stream: Mutex::new(Stream::new(fd)),
            node,
            opener,
        };
        Ok(self.directories.insert(Arc::new(open)))
    }

    /// Lists names from `position` on until `take` returns `false` because an entry did not fit.
    pub(in crate::fs) fn readdir(
        &self,
        open: &OpenDirectory,
        position: u64,
        mut take: impl FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let mut stream = open.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.read(position, |fd, found| {
            let name = OsStr::from_bytes(found.name.to_bytes());
            if !open.node.shows(name) {
                return Ok(true);
            }
            let kind = match kind_of_entry(found.kind) {
                Some(kind) => kind,
                None => match stat::at(fd.as_fd(), found.name) {
                    Ok(attributes) => attributes.kind(),
                    Err(_) => return Ok(true),
                },
            };
            Ok(take(Listed {
                ino: self.number_in(&open.node, found.ino),
                next: found.offset,
                kind,
                name,
            }))
        })
    }

    /// Lists names with their nodes from `position` on until `take` returns `false` because an entry did not
    /// fit; the lookup counted for that entry is taken back.
    pub(in crate::fs) fn readdirplus(
        &self,
        open: &OpenDirectory,
        position: u64,
        mut take: impl FnMut(ListedPlus<'_>) -> bool,
    ) -> Result<()> {
        let mut taken = 0;
        let mut stream = open.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.read(position, |_, found| {
            let name = OsStr::from_bytes(found.name.to_bytes());
            if !open.node.shows(name) {
                return Ok(true);
            }
            let mut listed = Listed {
                ino: self.number_in(&open.node, found.ino),
                next: found.offset,
                kind: kind_of_entry(found.kind).unwrap_or(FileKind::Directory),
                name,
            };
            if is_dots(found.name) {
                let entry = None;
                return Ok(take(ListedPlus { listed, entry }));
            }
            let names = open.node.read_names();
            let found = self.find_shown(&open.node, name);
            drop(names);
            let entry = match found {
                Ok(entry) => entry,
                // Removed since it was listed.
                Err(Errno::ENOENT) => return Ok(true),
                Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)) => {
                    // The names listed so far are the answer; the error comes with the next one.
                    return if taken > 0 { Ok(false) } else { Err(errno) };
                }
                // A name is listed even if its lookup fails: the application gets that error when it uses the
                // name.
                Err(_) => {
                    let entry = None;
                    return Ok(take(ListedPlus { listed, entry }));
                }
            };
            listed.kind = entry.attributes.kind();
            let fits = take(ListedPlus {
                listed,
                entry: Some(&entry),
            });
            if !fits {
                self.forget(entry.node.id, 1);
            }
            taken += usize::from(fits);
            Ok(fits)
        })
    }

    /// The last descriptor of an open directory was closed.
    pub(in crate::fs) fn releasedir(&self, number: u64) -> Result<Arc<OpenDirectory>> {
        let open = self.directories.remove(number)?;
        let stream = open.stream.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_closing(&open.node, stream.fd());
        drop(stream);
        Ok(open)
    }

    /// Forces a directory to storage.
    pub(in crate::fs) fn fsyncdir(&self, open: &OpenDirectory, data_only: bool) -> Result<()> {
        let stream = open.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if data_only {
            fdatasync(stream.fd().as_fd())
        } else {
            fsync(stream.fd().as_fd())
        }
    }

    /// As [`Passthrough::control`], for a directory.
    pub(in crate::fs) fn control_directory(
        &self,
        who: Requester,
        open: &OpenDirectory,
        command: u32,
        input: &[u8],
    ) -> Result<Argument> {
        let stream = open.stream.lock().unwrap_or_else(PoisonError::into_inner);
        self.control(who, stream.fd().as_fd(), command, input)
    }
}
