//! The operations, and their execution in one of the two directories.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Result, Write};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{
    AT_FDCWD, FallocateFlags, PosixFadviseAdvice, RenameFlags, copy_file_range, fallocate,
    posix_fadvise, renameat2,
};
use nix::unistd::{Whence, lseek};

use crate::calls::{self, Mapping};
use crate::random::Random;

const NAMES: [&str; 10] = [
    "a", "b", "c", "d", "a/x", "a/y", "b/x", "b/y/z", "b/y", "c/x",
];
const HANDLES: usize = 4;

/// One of the two directories and the files open in it.
pub(super) struct Side<'a> {
    top: &'a Path,
    /// The directory in which the filesystem keeps the content of `top`.
    kept: &'a Path,
    open: [Option<File>; HANDLES],
}

/// The result of an operation in a comparable form: a value, or an errno.
fn outcome<T>(result: Result<T>, show: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => show(value),
        Err(error) => format!("errno {:?}", error.raw_os_error()),
    }
}

fn unit(result: Result<()>) -> String {
    outcome(result, |()| "done".into())
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Open(usize, &'static str, i32, u32),
    Close(usize),
    Read(usize, u64, usize),
    Write(usize, u64, usize, u8),
    SetLength(usize, u64),
    Allocate(usize, u64, i32),
    MakeDirectory(&'static str, u32),
    Symlink(&'static str, &'static str),
    Link(&'static str, &'static str),
    Remove(&'static str),
    RemoveDirectory(&'static str),
    Rename(&'static str, &'static str, u32),
    Mode(&'static str, u32),
    Truncate(&'static str, u64),
    List(&'static str),
    Stat(&'static str),
    ReadLink(&'static str),
    SetXattr(&'static str, usize),
    GetXattr(&'static str),
    Times(&'static str, i64, u32),
    RemoveXattr(&'static str),
    ListXattrs(&'static str),
    Append(usize, usize, u8),
    Copy(usize, usize, u64, u64, usize),
    Seek(usize, u64, Whence),
    Map(usize, u64, usize, u8, bool),
    MakeAll(&'static str, usize),
    ListAgain(&'static str),
}

/// One of the operations.
pub(super) fn step(random: &mut Random) -> Step {
    let handle = random.below(HANDLES as u64) as usize;
    let (name, other) = (random.one_of(&NAMES), random.one_of(&NAMES));
    let offset = random.below(20_000);
    let length = random.below(9000) as usize;
    let mode = random.below(0o1000) as u32 | 0o600;
    let access = [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR][random.below(3) as usize];
    let extra = [
        0,
        libc::O_CREAT,
        libc::O_CREAT | libc::O_EXCL,
        libc::O_CREAT | libc::O_TRUNC,
        libc::O_APPEND,
        libc::O_TRUNC,
        libc::O_NOFOLLOW,
        libc::O_DIRECTORY,
    ][random.below(8) as usize];
    match random.below(34) {
        0..=4 => Step::Open(handle, name, access | extra, mode),
        5 => Step::Close(handle),
        6..=8 => Step::Read(handle, offset, length),
        9..=11 => Step::Write(handle, offset, length, random.below(256) as u8),
        12 => Step::SetLength(handle, offset),
        13 => Step::Allocate(handle, offset, random.below(4) as i32),
        14 | 15 => Step::MakeDirectory(name, mode | 0o100),
        16 => Step::Symlink(name, other),
        17 => Step::Link(name, other),
        18 => Step::Remove(name),
        19 => Step::RemoveDirectory(name),
        20 => Step::Rename(name, other, random.below(3) as u32),
        21 => Step::Mode(name, mode | 0o100),
        22 => match random.below(3) {
            0 => Step::Truncate(name, offset),
            1 => Step::ReadLink(name),
            _ => Step::Times(
                name,
                offset as i64 - 10_000,
                random.below(1_000_000_000) as u32,
            ),
        },
        23 => Step::List(name),
        24 => Step::Stat(name),
        25 => match random.below(4) {
            0 | 1 => Step::SetXattr(name, length % 100),
            2 => Step::GetXattr(name),
            _ => Step::ListXattrs(name),
        },
        26 => Step::RemoveXattr(name),
        27 | 28 => Step::Append(handle, length, random.below(256) as u8),
        29 => {
            let to = random.below(HANDLES as u64) as usize;
            Step::Copy(handle, to, offset, random.below(20_000), length)
        }
        30 => {
            let whence = random.one_of(&[Whence::SeekData, Whence::SeekHole]);
            Step::Seek(handle, offset, whence)
        }
        31 | 32 => {
            let (byte, sync) = (random.below(256) as u8, random.below(2) == 0);
            Step::Map(handle, offset, length, byte, sync)
        }
        _ => match random.below(2) {
            0 => Step::MakeAll(name, length % 9),
            _ => Step::ListAgain(name),
        },
    }
}

impl<'a> Side<'a> {
    pub(super) fn new(top: &'a Path, kept: &'a Path) -> Self {
        Side {
            top,
            kept,
            open: [const { None }; HANDLES],
        }
    }

    pub(super) fn top(&self) -> &'a Path {
        self.top
    }

    pub(super) fn run(&mut self, step: &Step) -> String {
        let path = |name: &str| self.top.join(name);
        let errno = |result: nix::Result<()>| result.map_err(std::io::Error::from);
        match *step {
            Step::Open(handle, name, flags, mode) => {
                let mut options = OpenOptions::new();
                // The standard library refuses combinations that it considers senseless; here the kernel
                // decides.
                options
                    .read(flags & libc::O_ACCMODE != libc::O_WRONLY)
                    .write(flags & libc::O_ACCMODE != libc::O_RDONLY)
                    .custom_flags(flags & !libc::O_ACCMODE)
                    .mode(mode);
                let result = options.open(path(name));
                let shown = outcome(result.as_ref().map(|_| ()).map_err(copy), |()| {
                    "open".into()
                });
                self.open[handle] = result.ok();
                shown
            }
            Step::Close(handle) => format!("{}", self.open[handle].take().is_some()),
            Step::Read(handle, offset, length) => {
                let mut buffer = vec![0; length];
                let result = match &self.open[handle] {
                    Some(file) => file.read_at(&mut buffer, offset),
                    None => Err(bad()),
                };
                outcome(result, |read| runs(&buffer[..read]))
            }
            Step::Write(handle, offset, length, byte) => {
                let result = match &self.open[handle] {
                    Some(file) => file.write_at(&vec![byte; length], offset),
                    None => Err(bad()),
                };
                outcome(result, |written| written.to_string())
            }
            Step::SetLength(handle, length) => unit(match &self.open[handle] {
                Some(file) => file.set_len(length),
                None => Err(bad()),
            }),
            Step::Allocate(handle, offset, kind) => unit(match &self.open[handle] {
                Some(file) => {
                    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
                    let flags = match kind {
                        0 => FallocateFlags::empty(),
                        1 => keep,
                        2 => keep | FallocateFlags::FALLOC_FL_PUNCH_HOLE,
                        _ => FallocateFlags::FALLOC_FL_ZERO_RANGE,
                    };
                    errno(fallocate(file, flags, offset as i64, 5000))
                }
                None => Err(bad()),
            }),
            Step::MakeDirectory(name, mode) => unit(
                fs::create_dir(path(name))
                    .and_then(|()| fs::set_permissions(path(name), Permissions::from_mode(mode))),
            ),
            Step::Symlink(name, target) => unit(std::os::unix::fs::symlink(target, path(name))),
            Step::Link(from, to) => unit(fs::hard_link(path(from), path(to))),
            Step::Remove(name) => unit(fs::remove_file(path(name))),
            Step::RemoveDirectory(name) => unit(fs::remove_dir(path(name))),
            Step::Rename(from, to, flags) => {
                let flags = RenameFlags::from_bits_truncate(flags);
                let result = renameat2(AT_FDCWD, &path(from), AT_FDCWD, &path(to), flags);
                unit(errno(result))
            }
            Step::Mode(name, mode) => unit(fs::set_permissions(
                path(name),
                Permissions::from_mode(mode),
            )),
            Step::Truncate(name, length) => {
                unit(errno(nix::unistd::truncate(&path(name), length as i64)))
            }
            Step::List(name) => outcome(list(&path(name)), |names| names.join(" ")),
            Step::Stat(name) => outcome(describe(&path(name)), |text| text),
            Step::ReadLink(name) => {
                outcome(fs::read_link(path(name)), |target| format!("{target:?}"))
            }
            Step::SetXattr(name, length) => {
                let value = vec![b'v'; length];
                unit(calls::set_xattr(&path(name), "user.model", &value))
            }
            Step::GetXattr(name) => {
                let value = calls::get_xattr(&path(name), "user.model");
                outcome(value, |value| value.len().to_string())
            }
            Step::RemoveXattr(name) => unit(calls::remove_xattr(&path(name), "user.model")),
            Step::ListXattrs(name) => {
                outcome(calls::list_xattrs(&path(name)), |size| size.to_string())
            }
            Step::Append(handle, length, byte) => {
                let result = match &mut self.open[handle] {
                    Some(file) => file.write(&vec![byte; length]),
                    None => Err(bad()),
                };
                outcome(result, |written| written.to_string())
            }
            Step::Copy(from, to, from_offset, to_offset, length) => {
                let result = match (&self.open[from], &self.open[to]) {
                    (Some(from), Some(to)) => {
                        let mut offsets = (from_offset as i64, to_offset as i64);
                        let (a, b) = (Some(&mut offsets.0), Some(&mut offsets.1));
                        copy_file_range(from, a, to, b, length).map_err(std::io::Error::from)
                    }
                    _ => Err(bad()),
                };
                outcome(result, |copied| copied.to_string())
            }
            Step::Seek(handle, offset, whence) => {
                let result = match &self.open[handle] {
                    // Directories are left out: their data ranges are not defined.
                    Some(file) if file.metadata().is_ok_and(|m| m.is_dir()) => Err(bad()),
                    Some(file) => self
                        .drop_pages(file)
                        .and_then(|()| Ok(lseek(file, offset as i64, whence)?)),
                    None => Err(bad()),
                };
                outcome(result, |position| position.to_string())
            }
            Step::Map(handle, offset, length, byte, sync) => {
                let Some(file) = &self.open[handle] else {
                    return "nothing".into();
                };
                outcome(store(file, offset as usize, length, byte, sync), |stored| {
                    stored
                })
            }
            Step::MakeAll(name, depth) => {
                let below = (0..depth).map(|level| format!("p{level}"));
                unit(fs::create_dir_all(
                    below.fold(path(name), |path, name| path.join(name)),
                ))
            }
            Step::ListAgain(name) => outcome(list_again(&path(name)), |names| names.join(" ")),
            Step::Times(name, seconds, nanoseconds) => {
                let time = nix::sys::time::TimeSpec::new(seconds, i64::from(nanoseconds));
                let flags = nix::sys::stat::UtimensatFlags::NoFollowSymlink;
                let result = nix::sys::stat::utimensat(AT_FDCWD, &path(name), &time, &time, flags);
                unit(errno(result))
            }
        }
    }

    /// Writes the pages of a file back and forgets them. In space that was allocated and not written,
    /// filesystems report cached pages as data, whichever process read them.
    ///
    /// # Errors
    /// If the file has no name any more by which its pages could be reached.
    fn drop_pages(&self, file: &File) -> Result<()> {
        let number = file.metadata()?.ino();
        let kept = File::open(find(self.kept, number)?.ok_or_else(bad)?)?;
        kept.sync_all()?;
        let all = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        Ok(posix_fadvise(&kept, 0, 0, all)?)
    }
}

/// A name below `directory` of the file with inode number `number`.
fn find(directory: &Path, number: u64) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = match entry.file_type()?.is_dir() {
            true => find(&entry.path(), number)?,
            false => (entry.ino() == number).then(|| entry.path()),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn bad() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::EBADF)
}

fn copy(error: &std::io::Error) -> std::io::Error {
    std::io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))
}

fn list(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        names.push(format!("{:?} {:?}", entry.file_name(), entry.file_type()?));
    }
    names.sort();
    Ok(names)
}

pub(super) fn describe(path: &Path) -> Result<String> {
    let m = fs::symlink_metadata(path)?;
    let size = if m.is_dir() { 0 } else { m.len() };
    Ok(format!(
        "{:o} {} {size} {} {} {}",
        m.mode(),
        m.nlink(),
        m.uid(),
        m.gid(),
        m.blksize()
    ))
}

/// Stores through a shared mapping of the existing part of a file, and returns the content of that part.
fn store(file: &File, offset: usize, length: usize, byte: u8, sync: bool) -> Result<String> {
    let size = file.metadata()?.len() as usize;
    let end = size.min(offset + length);
    if offset >= end {
        return Ok("beyond the end".into());
    }
    let mut mapping = Mapping::try_shared(file, size)?;
    let before = mapping.load(offset, end - offset);
    mapping.store(offset, &vec![byte; end - offset]);
    if sync {
        mapping.sync();
    }
    Ok(runs(&before))
}

/// A listing that seeks back to the middle returns the second half again.
fn list_again(directory: &Path) -> Result<Vec<String>> {
    let stream = File::open(directory)?;
    if !stream.metadata()?.is_dir() {
        return Ok(Vec::new());
    }
    let all = |stream| {
        let pieces = std::iter::repeat_with(|| calls::entries(stream, 300));
        let pieces = pieces.take_while(|piece| !piece.is_empty());
        pieces.flatten().collect::<Vec<_>>()
    };
    let listed = all(&stream);
    let middle = listed.len() / 2;
    lseek(&stream, listed[middle].1 as i64, Whence::SeekSet)?;
    assert_eq!(all(&stream), listed[middle + 1..]);
    lseek(&stream, 0, Whence::SeekSet)?;
    assert_eq!(all(&stream), listed);
    let names = listed
        .iter()
        .map(|(name, _)| name.escape_ascii().to_string());
    let mut names: Vec<_> = names.collect();
    names.sort();
    Ok(names)
}

/// Bytes as runs: each byte with its number of repetitions.
pub(super) fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, next| one == next);
    let shown = runs.map(|run| format!("{}\u{d7}{}", run.len(), run[0]));
    shown.collect::<Vec<_>>().join(" ")
}
