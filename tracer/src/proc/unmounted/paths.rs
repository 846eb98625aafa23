//! Paths of the files that calls name, and paths that need no check.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use flowtrace_schema::is_system_path;

use super::super::links;
use super::Tracee;

/// The absolute path that a call names, links not followed.
pub(super) fn full_path(tracee: Tracee, directory: Option<i32>, path: &OsStr) -> Option<PathBuf> {
    named(tracee, directory, path).map(|path| without_dots(&path).into_owned())
}

/// The absolute path with the dots that the call has in it.
pub(super) fn named(tracee: Tracee, directory: Option<i32>, path: &OsStr) -> Option<PathBuf> {
    let path = Path::new(path);
    if path.is_absolute() {
        return Some(path.to_owned());
    }
    let directory = match directory {
        None | Some(libc::AT_FDCWD) => {
            links::led_to(&format!("/proc/{}/task/{}/cwd", tracee.pid, tracee.tid))?
        }
        Some(fd) => links::target(tracee.tid, fd)?,
    };
    directory.is_absolute().then(|| directory.join(path))
}

pub(super) fn without_dots(path: &Path) -> Cow<'_, Path> {
    let bytes = path.as_os_str().as_bytes();
    if !has_dots(bytes) && !bytes.ends_with(b"/") {
        return Cow::Borrowed(path);
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in bytes.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut plain = vec![b'/'];
    plain.extend(parts.join(&b'/'));
    Cow::Owned(PathBuf::from(OsString::from_vec(plain)))
}

pub(super) fn is_plain_read(flags: u32) -> bool {
    let changes = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
    flags & changes as u32 == 0
}

pub(super) fn has_dots(path: &[u8]) -> bool {
    path.windows(2).any(|part| part == b"/." || part == b"//")
}

/// True for paths of files that the kernel makes up.
pub(super) fn is_kernels(path: &[u8]) -> bool {
    [&b"/proc/"[..], b"/sys/", b"/dev/"]
        .iter()
        .any(|directory| path.starts_with(directory))
        && is_system_path(path)
}

/// True for `/dev/fd/3`, `/dev/stdin`, `/proc/self/fd/3`.
pub(super) fn stands_for_descriptor(path: &[u8]) -> bool {
    path.starts_with(b"/dev/fd/")
        || path.starts_with(b"/dev/std")
        || path.starts_with(b"/proc/") && path.windows(4).any(|part| part == b"/fd/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_taken_out_of_paths() {
        for (path, plain) in [
            ("/a/./b//c", "/a/b/c"),
            ("/a/../../b/", "/b"),
            ("/", "/"),
            ("/a/b/..", "/a"),
        ] {
            assert_eq!(without_dots(Path::new(path)), Path::new(plain));
        }
        assert!(has_dots(b"/usr/../x") && has_dots(b"/usr//x") && !has_dots(b"/usr/x.c"));
    }

    #[test]
    fn names_of_descriptors() {
        for path in [
            "/dev/fd/63",
            "/dev/stdin",
            "/proc/self/fd/4",
            "/proc/7/task/8/fd/4",
        ] {
            assert!(stands_for_descriptor(path.as_bytes()), "{path}");
        }
        for path in ["/dev/null", "/proc/self/maps", "/tmp/fd/3"] {
            assert!(!stands_for_descriptor(path.as_bytes()), "{path}");
        }
        assert!(is_kernels(b"/dev/tty") && !is_kernels(b"/dev/shm/x"));
    }
}
