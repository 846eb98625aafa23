//! The traced directories, under the names that the workflow uses.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use nix::sys::statfs::{self, FsType, fstatfs};

use crate::mounting;
use crate::stat::{self, Attributes};

/// Filesystems that look up a name without waiting for another machine or program.
const LOCAL: [FsType; 7] = [
    statfs::EXT4_SUPER_MAGIC,
    FsType(0x5846_5342), // XFS: not in every C library
    statfs::BTRFS_SUPER_MAGIC,
    statfs::F2FS_SUPER_MAGIC,
    statfs::TMPFS_MAGIC,
    statfs::OVERLAYFS_SUPER_MAGIC,
    FsType(0x2fc1_2fc1), // ZFS
];

/// A traced directory.
#[derive(Debug)]
struct View {
    /// Path under which the workflow sees it.
    at: PathBuf,
    /// Path of the real directory.
    source: PathBuf,
    /// The real directory; `None`: it cannot be reached.
    directory: Option<OwnedFd>,
    /// True if names are looked up in it without waiting for another machine or program.
    is_local: bool,
}

/// The traced directories of a run.
#[derive(Debug)]
pub(crate) struct Views {
    all: Vec<View>,
    /// Devices of the files in the traced directories; empty as long as they are not known.
    devices: Vec<u64>,
    /// True if the workflow mounts something itself, so that its paths may lead elsewhere than ours.
    is_altered: bool,
}

impl Views {
    /// Takes for each directory the path under which the workflow sees it, and its real path.
    pub(crate) fn new<'paths>(places: impl Iterator<Item = (&'paths Path, &'paths Path)>) -> Views {
        Views {
            all: places.map(|(at, source)| View::new(at, source)).collect(),
            devices: Vec::new(),
            is_altered: false,
        }
    }

    /// Process `pid`, which sees the traced directories, begins.
    pub(crate) fn seen_by(&mut self, pid: u32) {
        let places = self.all.iter().map(|view| &*view.at);
        self.devices = mounting::devices_at(pid, places);
    }

    /// The workflow mounts something.
    pub(crate) fn alter(&mut self) {
        self.is_altered = true;
    }

    /// True if a mount of flowtrace sees the calls on an open file: it does not if something else is mounted
    /// below it.
    pub(crate) fn see(&self, path: &Path, attributes: &Attributes) -> bool {
        match self.devices.is_empty() {
            true => self.cover(path),
            false => self.devices.contains(&attributes.dev),
        }
    }

    /// True if a path is below a traced directory.
    pub(crate) fn cover(&self, path: &Path) -> bool {
        self.all.iter().any(|view| path.starts_with(&view.at))
    }

    /// The real path of `path`, which may be below a traced directory or not. `None`: to find out could take
    /// long, or the result could be another file than the workflow has there.
    pub(crate) fn real(&self, path: PathBuf) -> Option<PathBuf> {
        if self.is_altered {
            return None;
        }
        let view = self.all.iter().find(|view| path.starts_with(&view.at));
        match view.map(|view| (view, path.strip_prefix(&view.at))) {
            Some((view, Ok(below))) => view.is_local.then(|| view.source.join(below)),
            _ => Some(path),
        }
    }

    /// True if an open of `path` is recorded by a mount, whatever its result: the path leads out of the mount
    /// by no link, and to no FIFO. An open may be recorded by a mount even if this is false: false also
    /// stands for names whose lookup could take long or fails.
    pub(crate) fn settle(&self, path: &Path) -> bool {
        !self.is_altered && self.all.iter().any(|view| view.settles(path))
    }
}

impl View {
    fn new(at: &Path, source: &Path) -> View {
        let directory = open(source, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok();
        let kind = directory.as_ref().and_then(|fd| fstatfs(fd).ok());
        View {
            at: at.to_owned(),
            source: source.to_owned(),
            directory,
            is_local: kind.is_some_and(|kind| LOCAL.contains(&kind.filesystem_type())),
        }
    }

    fn settles(&self, path: &Path) -> bool {
        let (Some(directory), Ok(below)) = (&self.directory, path.strip_prefix(&self.at)) else {
            return false;
        };
        if below.as_os_str().is_empty() {
            return true;
        }
        let mut resolve = ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_XDEV;
        if !self.is_local {
            resolve |= ResolveFlag::from_bits_retain(libc::RESOLVE_CACHED);
        }
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(resolve);
        match openat2(directory, below, how) {
            Ok(file) => stat::as_known(file.as_fd())
                .is_ok_and(|found| found.mode & libc::S_IFMT != libc::S_IFIFO),
            Err(error) => error == Errno::ENOENT,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_stays_in_a_view_is_settled() {
        let scratch = tempfile::tempdir().unwrap();
        let source = scratch.path().canonicalize().unwrap();
        fs::create_dir(source.join("d")).unwrap();
        fs::write(source.join("d/file"), "").unwrap();
        symlink("file", source.join("d/link")).unwrap();
        symlink("/nowhere", source.join("away")).unwrap();
        symlink("d", source.join("link")).unwrap();
        nix::unistd::mkfifo(&source.join("fifo"), Mode::S_IRWXU).unwrap();
        let at = Path::new("/view");
        let mut views = Views::new([(at, &*source)].into_iter());
        for (path, is_settled) in [
            ("/view", true),
            ("/view/d/file", true),
            ("/view/./d//file", true),
            ("/view/d/new", true),
            ("/view/none/new", true),
            ("/view/d/link", false),
            ("/view/away", false),
            ("/view/away/x", false),
            ("/view/d/../d/file", true),
            ("/view/../view/d/file", false),
            ("/view/link/../d/file", false),
            ("/view/fifo", false),
            ("/viewer/x", false),
        ] {
            assert_eq!(views.settle(Path::new(path)), is_settled, "{path}");
        }
        assert!(views.cover(Path::new("/view/x")) && !views.cover(Path::new("/viewer")));
        assert_eq!(views.real("/view/x".into()), Some(source.join("x")));
        assert_eq!(views.real("/viewer/x".into()), Some("/viewer/x".into()));
        views.alter();
        assert!(!views.settle(Path::new("/view/d/file")));
    }

    #[test]
    fn nothing_is_settled_where_a_read_could_take_long() {
        let views = Views::new([(Path::new("/view"), Path::new("/proc"))].into_iter());
        assert!(!views.settle(Path::new("/view/not-there")));
        assert_eq!(views.real("/view/self".into()), None);
        let gone = Views::new([(Path::new("/view"), Path::new("/not/there"))].into_iter());
        assert!(!gone.settle(Path::new("/view/x")));
    }
}
