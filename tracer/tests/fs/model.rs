//! The same random operations on the mount and on a plain directory: the same results, the same
//! errors, the same tree in the end.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Result;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, FallocateFlags, RenameFlags, fallocate, renameat2};

use crate::long;
use crate::mounted::{Mounted, Options};
use crate::random::Random;

/// Sequences, unless FLOWTRACE_MODEL_SEQUENCES says otherwise.
const SEQUENCES: u64 = 200;
const STEPS: usize = 60;
const NAMES: [&str; 10] = [
    "a", "b", "c", "d", "a/x", "a/y", "b/x", "b/y/z", "b/y", "c/x",
];
const HANDLES: usize = 4;

/// One of the two directories and what is open in it.
struct Side<'a> {
    top: &'a Path,
    open: [Option<File>; HANDLES],
}

/// What an operation returned, comparable: a value, or an errno.
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
enum Step {
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
}

fn step(random: &mut Random) -> Step {
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
    match random.below(26) {
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
        _ if length.is_multiple_of(2) => Step::SetXattr(name, length % 100),
        _ => Step::GetXattr(name),
    }
}

impl Side<'_> {
    fn run(&mut self, step: &Step) -> String {
        let path = |name: &str| self.top.join(name);
        let errno = |result: nix::Result<()>| result.map_err(std::io::Error::from);
        match *step {
            Step::Open(handle, name, flags, mode) => {
                let mut options = OpenOptions::new();
                // The standard library refuses what it thinks makes no sense; the kernel decides.
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
                outcome(result, |read| format!("{:?}", &buffer[..read]))
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
                unit(crate::calls::set_xattr(&path(name), "user.model", &value))
            }
            Step::GetXattr(name) => {
                let value = crate::calls::get_xattr(&path(name), "user.model");
                outcome(value, |value| value.len().to_string())
            }
            Step::Times(name, seconds, nanoseconds) => {
                let time = nix::sys::time::TimeSpec::new(seconds, i64::from(nanoseconds));
                let flags = nix::sys::stat::UtimensatFlags::NoFollowSymlink;
                let result = nix::sys::stat::utimensat(AT_FDCWD, &path(name), &time, &time, flags);
                unit(errno(result))
            }
        }
    }
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

fn describe(path: &Path) -> Result<String> {
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

/// Everything below a directory: attributes and content.
fn tree(directory: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}/{}", path.file_name().unwrap().to_string_lossy());
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() {
            format!("{:?}", fs::read(&path).unwrap())
        } else {
            String::new()
        };
        found.insert(name.clone(), describe(&path).unwrap() + &content);
        if metadata.is_dir() {
            tree(&path, &name, found);
        }
    }
}

#[test]
fn the_mount_behaves_as_a_plain_directory() {
    let sequences = long::number("FLOWTRACE_MODEL_SEQUENCES", SEQUENCES);
    for passthrough in [true, false] {
        let Some(mounted) = Mounted::new(Options {
            passthrough,
            ..Options::default()
        }) else {
            return;
        };
        let plain = mounted.trace.with_file_name("plain");
        fs::create_dir(&plain).unwrap();
        for sequence in 0..sequences {
            let seen = mounted.path(sequence.to_string());
            let plain = plain.join(sequence.to_string());
            fs::create_dir(&seen).unwrap();
            fs::create_dir(&plain).unwrap();
            compare(sequence, &seen, &plain);
        }
    }
}

fn compare(sequence: u64, seen: &Path, plain: &Path) {
    let mut random = Random(sequence);
    let side = |top| Side {
        top,
        open: [const { None }; HANDLES],
    };
    let (mut ours, mut theirs) = (side(seen), side(plain));
    let mut history = Vec::new();
    for _ in 0..STEPS {
        let step = step(&mut random);
        history.push(step.clone());
        let (ours, theirs) = (ours.run(&step), theirs.run(&step));
        assert_eq!(ours, theirs, "sequence {sequence} after {history:#?}");
    }
    let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
    tree(seen, "", &mut ours);
    tree(plain, "", &mut theirs);
    assert_eq!(ours, theirs, "sequence {sequence}: {history:#?}");
}
