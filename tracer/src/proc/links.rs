//! Links of /proc to the open files of a process: their targets, and the distinction of paths from other
//! text.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::fcntl::AT_FDCWD;

use crate::stat;

/// Target of descriptor `fd`: a path, or text like `pipe:[7]`.
pub(crate) fn target(pid: u32, fd: i32) -> Option<PathBuf> {
    led_to(&link(pid, fd))
}

/// Target of a link in /proc. The kernel marks as deleted what its cache of names has lost: FUSE and others
/// lose a name when a lookup crosses its creation. A file of a filesystem without a device that has names is
/// taken to have that name.
pub(crate) fn led_to(link: &str) -> Option<PathBuf> {
    let target = fs::read_link(link).ok()?;
    let Some(name) = target.as_os_str().as_bytes().strip_suffix(DELETED) else {
        return Some(target);
    };
    let known = stat::known(AT_FDCWD, &CString::new(link).ok()?);
    let is_named = known.is_ok_and(|known| libc::major(known.dev) == 0 && known.links > 0);
    Some(match is_named {
        true => PathBuf::from(OsStr::from_bytes(name)),
        false => target,
    })
}

/// Text that the kernel appends to the path of a file that has no name any more.
pub(crate) const DELETED: &[u8] = b" (deleted)";

/// Path of the link in /proc to descriptor `fd` of a process, or of a thread, which may have a table of its
/// own (`/proc/TID` of proc(5)).
pub(crate) fn link(pid: u32, fd: i32) -> String {
    format!("/proc/{pid}/fd/{fd}")
}

/// True if a link is the path of a file that still has this name; text that the kernel made up and names of
/// removed files are not.
pub(crate) fn is_path(target: &OsStr) -> bool {
    let target = target.as_bytes();
    target.starts_with(b"/") && !target.ends_with(DELETED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_differ_from_other_links() {
        assert!(is_path(OsStr::new("/tmp/x")));
        assert!(!is_path(OsStr::new("/tmp/x (deleted)")));
        assert!(!is_path(OsStr::new("anon_inode:[eventfd]")));
    }
}
