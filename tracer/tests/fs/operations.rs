//! Each operation once on a directory, with its result.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, FallocateFlags, RenameFlags, copy_file_range, fallocate, renameat2};
use nix::sys::stat::{Mode, UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{AccessFlags, Whence, access, close, fdatasync, fsync, lseek, mkfifo, truncate};

use crate::backing::failing::{DIRECTORY, FILE, LINK, WRITABLE_FROM};
use crate::calls;

/// Operations and results, in order. The directory has the entries of [`failing`](crate::backing::failing).
pub(crate) fn all(top: &Path) -> Vec<(&'static str, String)> {
    let mut found = by_name(top);
    let open = |write| File::options().read(true).write(write).open(top.join(FILE));
    match open(true).or_else(|_| open(false)) {
        Ok(file) => by_descriptor(file, &mut found),
        Err(error) => found.push(("open", shown(Err(error)))),
    }
    found
}

fn shown(result: Result<String>) -> String {
    result.unwrap_or_else(|error| format!("{:?}", error.raw_os_error()))
}

fn done<T, E: Into<Error>>(result: std::result::Result<T, E>) -> String {
    shown(result.map(|_| "done".to_owned()).map_err(Into::into))
}

fn by_name(top: &Path) -> Vec<(&'static str, String)> {
    let (file, directory, link) = (top.join(FILE), top.join(DIRECTORY), top.join(LINK));
    let new = top.join("new");
    let omit = TimeSpec::UTIME_OMIT;
    let (now, follow) = (TimeSpec::UTIME_NOW, UtimensatFlags::FollowSymlink);
    let exchange = RenameFlags::RENAME_EXCHANGE;
    vec![
        ("stat", done(fs::metadata(&file))),
        ("absent", done(fs::metadata(top.join("absent")))),
        ("create", done(File::create_new(&new))),
        ("mkdir", done(fs::create_dir(&new))),
        ("mkfifo", done(mkfifo(&new, Mode::S_IRUSR))),
        ("symlink", done(symlink("target", &new))),
        ("hard link", done(fs::hard_link(&file, &new))),
        ("rename", done(fs::rename(&file, &new))),
        (
            "exchange",
            done(renameat2(AT_FDCWD, &file, AT_FDCWD, &directory, exchange)),
        ),
        ("unlink", done(fs::remove_file(&file))),
        ("rmdir", done(fs::remove_dir(&directory))),
        ("readlink", done(fs::read_link(&link))),
        (
            "chmod",
            done(fs::set_permissions(&file, Permissions::from_mode(0o600))),
        ),
        (
            "chown",
            done(std::os::unix::fs::chown(&file, Some(1), None)),
        ),
        ("truncate", done(truncate(&file, 1))),
        (
            "utimens",
            done(utimensat(AT_FDCWD, &file, &omit, &now, follow)),
        ),
        ("setxattr", done(calls::set_xattr(&file, "user.a", b"1"))),
        ("getxattr", done(calls::get_xattr(&file, "user.a"))),
        ("listxattr", done(calls::list_xattrs(&file))),
        ("removexattr", done(calls::remove_xattr(&file, "user.a"))),
        ("access", done(access(&file, AccessFlags::W_OK))),
        ("list", shown(list(&directory))),
        ("list top", shown(list(top))),
        ("statfs", done(nix::sys::statvfs::statvfs(&directory))),
        ("open to truncate", done(File::create(&file))),
    ]
}

fn by_descriptor(file: File, found: &mut Vec<(&'static str, String)>) {
    let mut byte = [0];
    let punch = FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
    found.extend([
        ("read", done(file.read_at(&mut byte, 0))),
        ("write", done(file.write_at(&byte, 0))),
        ("fsync", done(fsync(&file))),
        ("fdatasync", done(fdatasync(&file))),
        ("ftruncate", done(file.set_len(1))),
        (
            "fallocate",
            done(fallocate(&file, FallocateFlags::empty(), 0, 8192)),
        ),
        ("punch", done(fallocate(&file, punch, 0, 4096))),
        ("seek hole", done(lseek(&file, 0, Whence::SeekHole))),
        ("seek data", done(lseek(&file, 0, Whence::SeekData))),
        (
            "copy range",
            done(copy_file_range(
                &file,
                Some(&mut 0),
                &file,
                Some(&mut 4096),
                10,
            )),
        ),
        ("write far", done(file.write_at(&byte, WRITABLE_FROM))),
        ("close", done(close(OwnedFd::from(file)))),
    ]);
}

fn list(directory: &Path) -> Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name());
    }
    names.sort();
    Ok(names.join(OsStr::new(" ")).display().to_string())
}
