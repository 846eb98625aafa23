//! The standard streams of a command that are files in a traced directory, such as those of `< in > out`: the
//! command gets them opened through the mount (see [`crate::fs::offers`]).
//!
//! Other inherited files are not reopened, and neither are the locks on them: `9> lock` is often there to be
//! locked. They are counted.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use flowtrace_schema::{Loss, Recorder, is_system_path};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::unistd::{Whence, lseek};

use super::apart::Apart;
use super::directory::Directory;
use crate::fs::offers::{Offer, Offers, Position};

/// Flags that describe an open file and can be given to open(2) again.
const SAME: OFlag = OFlag::O_ACCMODE
    .union(OFlag::O_APPEND)
    .union(OFlag::O_DIRECT)
    .union(OFlag::O_DSYNC)
    .union(OFlag::O_SYNC)
    .union(OFlag::O_NOATIME)
    .union(OFlag::O_NONBLOCK);

/// An inherited file below a traced directory.
#[derive(Debug)]
pub(super) struct Stream {
    /// The descriptor, here and in the command.
    pub(super) number: RawFd,
    /// Its path.
    pub(super) path: PathBuf,
    /// Flags with which to open it again.
    pub(super) flags: OFlag,
    /// The descriptor of this process.
    file: OwnedFd,
    inode: (u64, u64),
    position: Arc<Position>,
}

/// Open files that the command inherits.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    pub(super) streams: Vec<Stream>,
    /// Number of files below traced directories that it inherits unchanged.
    unseen: u64,
    /// The streams as the command has them now.
    seen: Option<Apart>,
}

impl Inherited {
    /// Finds the inherited files among the descriptors of this process. Call it before this process opens
    /// files of its own. `everywhere` is true if actions on files are seen wherever the files are.
    pub(super) fn find(directories: &[Directory], everywhere: bool) -> Inherited {
        let mut found = Inherited::default();
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
        let numbers = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for number in numbers.collect::<Vec<RawFd>>() {
            match Stream::of(number, directories) {
                Some(stream) if number <= libc::STDERR_FILENO => found.streams.push(stream),
                Some(_) => found.unseen += 1,
                None if everywhere && number > libc::STDERR_FILENO => {
                    found.unseen += u64::from(is_file(number));
                }
                None => {}
            }
        }
        found
    }

    /// Makes the mounts expect thread `tid` to open the streams.
    pub(super) fn offer(&self, offers: &Offers, tid: u32) {
        for stream in &self.streams {
            if let Ok(file) = stream.file.try_clone() {
                offers.add(Offer {
                    tid,
                    inode: stream.inode,
                    access: (stream.flags & OFlag::O_ACCMODE).bits(),
                    file,
                    position: Arc::clone(&stream.position),
                });
            }
        }
    }

    /// Waits until the command has opened its streams through the mounts.
    pub(super) fn opened(&mut self, seen: Option<Apart>) {
        let came = seen.as_ref().map_or(0, Apart::came);
        self.unseen += (self.streams.len() - came) as u64;
        self.seen = seen;
    }

    /// Counts the files that the trace will not show.
    pub(super) fn count(&self, recorder: &Recorder) {
        recorder.lost(Loss::InheritedFiles, self.unseen);
    }

    /// Sets the positions of the inherited files to those of the command, for processes that read or write
    /// on. Reads and writes of the command have done that already, seeks alone have not.
    pub(super) fn settle(self) {
        let left_at = self.seen.map(Apart::close).unwrap_or_default();
        for (stream, left_at) in self.streams.iter().zip(left_at) {
            if let Some(left_at) = left_at
                && left_at as u64 != stream.position.last()
            {
                let _ = lseek(stream.file.as_fd(), left_at, Whence::SeekSet);
            }
        }
    }
}

/// True if descriptor `number` of this process is a file that does not belong to the system, and will be
/// inherited.
fn is_file(number: RawFd) -> bool {
    let link = format!("/proc/self/fd/{number}");
    let path = fs::read_link(&link).unwrap_or_default();
    let is_regular = fs::metadata(&link).is_ok_and(|metadata| metadata.is_file());
    is_regular && !is_system_path(path.as_os_str().as_bytes()) && !closes_on_exec(number)
}

fn borrowed<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the number was listed as open just now, and nothing here closes it: inherited descriptors have
    // no owner in this process.
    #[expect(unsafe_code)]
    unsafe {
        BorrowedFd::borrow_raw(number)
    }
}

fn closes_on_exec(number: RawFd) -> bool {
    let flags = fcntl(borrowed(number), FcntlArg::F_GETFD).map(FdFlag::from_bits_retain);
    flags.map_or(true, |flags| flags.contains(FdFlag::FD_CLOEXEC))
}

impl Stream {
    /// Stream of descriptor `number` of this process, if that is a file below a traced directory
    /// and will be inherited.
    fn of(number: RawFd, directories: &[Directory]) -> Option<Stream> {
        if closes_on_exec(number) {
            return None;
        }
        let file: File = borrowed(number).try_clone_to_owned().ok()?.into();
        let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let path = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
        if !directories.iter().any(|d| d.relative(&path).is_some()) {
            return None;
        }
        let inode = (metadata.dev(), metadata.ino());
        // It was removed or replaced by another file, so the mount cannot show it.
        let named = fs::symlink_metadata(&path).ok()?;
        if (named.dev(), named.ino()) != inode {
            return None;
        }
        let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL).ok()?) & SAME;
        let at = lseek(&file, 0, Whence::SeekCur).ok()?;
        Some(Stream {
            number,
            path,
            flags,
            file: file.into(),
            inode,
            position: Position::new(at as u64),
        })
    }
}
