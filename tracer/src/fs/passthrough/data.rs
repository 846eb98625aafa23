//! Data of open files.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, copy_file_range, fallocate, fcntl};
use nix::sys::uio::{pread, pwrite};
use nix::unistd::{Whence, fdatasync, fsync, lseek};

use super::Passthrough;
use crate::fs::credentials::Requester;
use crate::fs::handle::OpenFile;
use crate::fs::sys::file::{self, Argument};
use nix::Result;

/// A write, as the kernel describes it.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Write<'a> {
    /// Offset in the file.
    pub(in crate::fs) offset: u64,
    /// Bytes to write.
    pub(in crate::fs) data: &'a [u8],
    /// True if the page cache of the mount writes, not an application.
    pub(in crate::fs) by_cache: bool,
    /// True if the application has the file open with `O_APPEND` at this instant.
    pub(in crate::fs) appends: bool,
    /// True if the caller lacks the right to keep set-user-id and set-group-id.
    pub(in crate::fs) strip_privilege: bool,
}

impl Passthrough {
    /// Reads into `buffer` as much as one system call gives.
    pub(in crate::fs) fn read(
        &self,
        open: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let offset = signed(offset)?;
        match &open.position {
            Some(position) => position.read(&open.fd, offset, buffer),
            None => pread(open.fd.as_fd(), buffer, offset),
        }
    }

    /// Writes as much as one system call takes. A write of the page cache is written whole, or fails.
    pub(in crate::fs) fn write(
        &self,
        who: Requester,
        open: &OpenFile,
        write: Write<'_>,
    ) -> Result<usize> {
        let offset = signed(write.offset)?;
        let written = {
            let _as_caller = self.credentials.spend_as(who)?;
            if !write.by_cache {
                follow_append(open, write.appends)?;
            }
            if write.by_cache && !open.takes_pages() {
                let cached = self.reopen(&open.node, OFlag::O_WRONLY)?;
                write_whole(cached.as_fd(), write.data, offset)?
            } else if write.by_cache {
                write_whole(open.fd.as_fd(), write.data, offset)?
            } else if let Some(position) = &open.position {
                position.write(&open.fd, offset, write.data)?
            } else {
                pwrite(open.fd.as_fd(), write.data, offset)?
            }
        };
        open.wrote.store(true, Ordering::Relaxed);
        if write.strip_privilege {
            self.strip_privilege(who, &open.node)?;
        }
        Ok(written)
    }

    /// Forces data to storage, with the attributes unless `data_only`.
    pub(in crate::fs) fn fsync(&self, open: &OpenFile, data_only: bool) -> Result<()> {
        if data_only {
            fdatasync(open.fd.as_fd())
        } else {
            fsync(open.fd.as_fd())
        }
    }

    /// Finds data or a hole.
    pub(in crate::fs) fn seek(&self, open: &OpenFile, offset: i64, whence: i32) -> Result<i64> {
        let whence = match whence {
            libc::SEEK_DATA => Whence::SeekData,
            libc::SEEK_HOLE => Whence::SeekHole,
            libc::SEEK_SET => Whence::SeekSet,
            libc::SEEK_END => Whence::SeekEnd,
            _ => return Err(Errno::EINVAL),
        };
        lseek(open.fd.as_fd(), offset, whence)
    }

    /// Allocates, frees or moves space in a file.
    pub(in crate::fs) fn allocate(
        &self,
        who: Requester,
        open: &OpenFile,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let flags = FallocateFlags::from_bits(mode).ok_or(Errno::EOPNOTSUPP)?;
        {
            let _as_caller = self.credentials.spend_as(who)?;
            fallocate(open.fd.as_fd(), flags, signed(offset)?, signed(length)?)?;
        }
        open.wrote.store(true, Ordering::Relaxed);
        self.strip_privilege(who, &open.node)
    }

    /// Copies between two files within the kernel.
    pub(in crate::fs) fn copy(
        &self,
        who: Requester,
        (from, from_offset): (&OpenFile, u64),
        (to, to_offset): (&OpenFile, u64),
        length: u64,
    ) -> Result<usize> {
        let (mut from_offset, mut to_offset) = (signed(from_offset)?, signed(to_offset)?);
        let copied = {
            let _as_caller = self.credentials.spend_as(who)?;
            copy_file_range(
                from.fd.as_fd(),
                Some(&mut from_offset),
                to.fd.as_fd(),
                Some(&mut to_offset),
                usize::try_from(length).unwrap_or(usize::MAX),
            )?
        };
        to.wrote.store(true, Ordering::Relaxed);
        self.strip_privilege(who, &to.node)?;
        Ok(copied)
    }

    /// Makes a control call that is safe to pass on: inode flags, as `chattr` and `lsattr` use them.
    pub(in crate::fs) fn control(
        &self,
        who: Requester,
        open: BorrowedFd<'_>,
        command: u32,
        input: &[u8],
    ) -> Result<Argument> {
        let changes = [file::SET_FLAGS, file::SET_XFLAGS].contains(&command);
        if changes && self.credentials.exceeds(who) {
            return Err(Errno::EPERM);
        }
        file::control(open, command, input)
    }
}

/// Sets `O_APPEND` of the real open file to its present value in the application's one. Most applications
/// never change it.
fn follow_append(open: &OpenFile, appends: bool) -> Result<()> {
    if open.appends.load(Ordering::Relaxed) == appends {
        return Ok(());
    }
    let flags = OFlag::from_bits_retain(fcntl(open.fd.as_fd(), FcntlArg::F_GETFL)?);
    let wanted = match appends {
        true => flags | OFlag::O_APPEND,
        false => flags - OFlag::O_APPEND,
    };
    fcntl(open.fd.as_fd(), FcntlArg::F_SETFL(wanted))?;
    open.appends.store(appends, Ordering::Relaxed);
    Ok(())
}

/// An offset in the type of system calls.
pub(super) fn signed(offset: u64) -> Result<i64> {
    i64::try_from(offset).map_err(|_| Errno::EINVAL)
}

/// Writes all of `data`, or returns the error. The kernel does not check how much of its changed pages was
/// written, so a partial write would count as a whole one.
fn write_whole(fd: BorrowedFd<'_>, data: &[u8], offset: i64) -> Result<usize> {
    let mut written = 0;
    while written < data.len() {
        written += match pwrite(fd, &data[written..], offset + written as i64)? {
            0 => return Err(Errno::EIO),
            count => count,
        };
    }
    Ok(written)
}
