//! Lookups of names that do not wait for the workflow.
//!
//! A thread for which the workflow waits (above all the one that traces it by ptrace) must make no system
//! call that may wait for the workflow: a step may serve the files of the next one (FUSE), and its server may
//! be in a stop. Mounts made before the run are served by other programs. Of these, FUSE mounts and
//! automounters are left out all the same: a server that does not answer blocks the caller, and SIGKILL does
//! not help. On all other mounts only names in the kernel's cache are looked up (`RESOLVE_CACHED` of
//! openat2(2)); a name that is not in the cache is unknown.

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use crate::mounting::{self, Mount};
use crate::stat::{self, Attributes};

/// Most links that the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;
/// Tries of a lookup in the cache that is disturbed by other calls.
const TRIES: usize = 3;

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum Found {
    /// The name leads to this file.
    Is(There),
    /// Nothing has this name.
    Nothing,
    /// A lookup might wait, or is not allowed.
    Unknown,
}

/// A file that has a name.
#[derive(Debug)]
pub(crate) struct There {
    /// Opened with `O_PATH`: no server is involved.
    file: OwnedFd,
    /// Attributes as far as the kernel knows them without asking a server.
    pub(crate) attributes: Attributes,
}

impl There {
    /// The path without links and dots.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        fs::read_link(self.link())
            .ok()
            .filter(|path| path.is_absolute())
    }

    /// A name for the file in /proc, which leads to nothing else. `None`: a use of the file may have to wait.
    pub(crate) fn usable(&self) -> Option<PathBuf> {
        MOUNTS
            .are_near(&self.attributes)
            .then(|| self.link().into())
    }

    /// A name for any file in /proc, for calls that use only what the kernel knows.
    pub(crate) fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }
}

/// The file that `path`, which is absolute, leads to; its last link is followed.
pub(crate) fn behind(path: &Path) -> Found {
    find(path, true)
}

/// The file of the name `path`, which is absolute: the link itself if it is one.
pub(crate) fn at(path: &Path) -> Found {
    find(path, false)
}

/// The path with the links of its directory followed.
pub(crate) fn real(path: &Path) -> Option<PathBuf> {
    match behind(path.parent()?) {
        Found::Is(directory) => Some(directory.path()?.join(path.file_name()?)),
        Found::Nothing | Found::Unknown => None,
    }
}

/// The run begins: mounts of now are not of the workflow.
pub(crate) fn begin() {
    LazyLock::force(&MOUNTS);
}

/// The workflow mounts something, in any namespace.
pub(crate) fn workflow_mounts() {
    MOUNTS.altered.store(true, Ordering::Relaxed);
}

/// True if the workflow may serve a filesystem. Then a process of it may wait for another one at any call,
/// and so may a read of its memory or of files of /proc that take the lock of an exec.
pub(crate) fn may_serve() -> bool {
    MOUNTS.altered.load(Ordering::Relaxed) || MOUNTS.now(|now| now.has_late)
}

static MOUNTS: LazyLock<Mounts> = LazyLock::new(Mounts::new);

struct Mounts {
    /// Mounts at the begin of the run; empty if they are not known.
    first: Vec<Mount>,
    /// Becomes readable when mounts have changed.
    table: Option<File>,
    now: Mutex<Now>,
    altered: AtomicBool,
}

#[derive(Default)]
struct Now {
    /// Ids of the mounts in which a lookup does not wait.
    near: HashSet<u64>,
    /// True if there are mounts that were made later, and may be served by the workflow.
    has_late: bool,
}

impl Mounts {
    fn new() -> Mounts {
        let table = File::open("/proc/self/mountinfo").ok();
        let first = mounting::mounts().unwrap_or_default();
        let now = Mutex::new(Now::of(&first, &first));
        Mounts {
            first,
            table,
            now,
            altered: AtomicBool::new(false),
        }
    }

    fn now<T>(&self, ask: impl FnOnce(&Now) -> T) -> T {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.table.as_ref().is_none_or(|table| {
            let mut events = [PollFd::new(table.as_fd(), PollFlags::POLLPRI)];
            poll(&mut events, PollTimeout::ZERO) != Ok(0)
        });
        if changed {
            *now = Now::of(&self.first, &mounting::mounts().unwrap_or_default());
        }
        ask(&now)
    }

    fn are_near(&self, attributes: &Attributes) -> bool {
        self.now(|now| now.near.contains(&attributes.mount))
    }
}

impl Now {
    fn of(first: &[Mount], mounts: &[Mount]) -> Now {
        let is_first = |mount: &Mount| first.contains(mount);
        let near = mounts.iter().filter(|mount| match &*mount.kind {
            "tmpfs" | "ramfs" | "proc" => true,
            kind => !kind.starts_with("fuse") && kind != "autofs" && is_first(mount),
        });
        let near: HashSet<u64> = near.map(|mount| mount.id.into()).collect();
        let mut late = mounts.iter().filter(|mount| !is_first(mount));
        Now {
            has_late: late.any(|mount| !near.contains(&mount.id.into())),
            near,
        }
    }
}

fn find(path: &Path, follows: bool) -> Found {
    match cached(AT_FDCWD, path, follows) {
        // Before Linux 5.12 there is no such lookup.
        Err(Errno::EAGAIN | Errno::EINVAL | Errno::ENOSYS) => walk(path, follows),
        found => found.map_or_else(failed, seen),
    }
}

fn failed(error: Errno) -> Found {
    match error {
        Errno::ENOENT | Errno::ENOTDIR => Found::Nothing,
        _ => Found::Unknown,
    }
}

fn seen(file: OwnedFd) -> Found {
    match stat::as_known(file.as_fd()) {
        Ok(attributes) => Found::Is(There { file, attributes }),
        Err(_) => Found::Unknown,
    }
}

/// A lookup in the kernel's cache alone, on any filesystem.
fn cached(directory: impl AsFd, path: &Path, follows: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    flags.set(OFlag::O_NOFOLLOW, !follows);
    let resolve = ResolveFlag::from_bits_retain(libc::RESOLVE_CACHED);
    let how = OpenHow::new()
        .flags(flags)
        .resolve(resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    for _ in 1..TRIES {
        match openat2(&directory, path, how) {
            Err(Errno::EAGAIN) => {}
            found => return found,
        }
    }
    openat2(directory, path, how)
}

/// A lookup name by name in mounts where it does not wait, and in the cache from the first other mount on.
fn walk(path: &Path, follows: bool) -> Found {
    let open = |directory: &dyn AsFd, name: &OsStr| {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        openat(directory.as_fd(), name, flags, Mode::empty())
    };
    let root = || open(&AT_FDCWD, OsStr::new("/")).map_or_else(failed, seen);
    // Mostly only the last name is new.
    let known = path.parent().zip(path.file_name());
    let known = known.and_then(|(parent, name)| Some((cached(AT_FDCWD, parent, true).ok()?, name)));
    let (mut at, mut names) = match known {
        Some((directory, name)) => (seen(directory), VecDeque::from([name.to_owned()])),
        None => (root(), parts(path).collect()),
    };
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        let Found::Is(there) = &at else {
            return at;
        };
        if there.usable().is_none() {
            let rest: PathBuf = [name].into_iter().chain(names).collect();
            return cached(&there.file, &rest, follows).map_or_else(failed, seen);
        }
        let next = open(&there.file, &name).map_or_else(failed, seen);
        let link = match &next {
            Found::Is(next) if next.attributes.mode & libc::S_IFMT == libc::S_IFLNK => next,
            _ => {
                at = next;
                continue;
            }
        };
        if names.is_empty() && !follows {
            return next;
        }
        links += 1;
        let Some(target) = readlinkat(&link.file, OsStr::new(""))
            .ok()
            .filter(|_| links <= MOST_LINKS)
        else {
            return Found::Unknown;
        };
        if Path::new(&target).is_absolute() {
            at = root();
        }
        for part in parts(Path::new(&target))
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            names.push_front(part);
        }
    }
    at
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mount(id: u32, kind: &str) -> Mount {
        Mount {
            id,
            parent: 1,
            device: u64::from(id),
            point: "/".into(),
            kind: kind.into(),
            source: "none".into(),
        }
    }

    #[test]
    fn names_are_found_as_the_kernel_finds_them() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("d/file"), "text").unwrap();
        symlink("../d/./file", root.join("d/link")).unwrap();
        symlink(root.join("d"), root.join("away")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        symlink("ring", root.join("ring")).unwrap();
        // In the cache, and name by name.
        for find in [find, walk] {
            for name in ["d/file", "d/link", "away/link", "away/e/../file"] {
                let Found::Is(there) = find(&root.join(name), true) else {
                    panic!("{name}");
                };
                assert_eq!(there.attributes.size, 4, "{name}");
                assert_eq!(there.path(), Some(root.join("d/file")), "{name}");
                let usable = there.usable().expect("no filesystem of the workflow");
                assert_eq!(fs::read_to_string(usable).unwrap(), "text");
            }
            for name in ["none", "d/file/x", "none/x", "dangling"] {
                let found = find(&root.join(name), true);
                assert!(matches!(found, Found::Nothing), "{name}: {found:?}");
            }
            let ring = find(&root.join("ring"), true);
            assert!(matches!(ring, Found::Unknown), "{ring:?}");
            let Found::Is(link) = find(&root.join("dangling"), false) else {
                panic!("the link itself");
            };
            assert!(!link.attributes.is_regular());
        }
        assert_eq!(real(&root.join("away/new")), Some(root.join("d/new")));
        assert_eq!(real(&root.join("none/new")), None);
    }

    #[test]
    fn mounts_that_came_later_or_have_a_server_are_far() {
        let first = [
            mount(1, "ext4"),
            mount(2, "fuse.sshfs"),
            mount(3, "autofs"),
            mount(4, "nfs4"),
        ];
        let begin = Now::of(&first, &first);
        assert_eq!(begin.near, HashSet::from([1, 4]));
        assert!(!begin.has_late);
        let of = |mount: Mount| Now::of(&first, &[first[0].clone(), mount]);
        assert!(of(mount(9, "fuse.server")).has_late);
        // Ids of mounts are used again.
        let again = of(mount(4, "fuse.server"));
        assert!(again.has_late && !again.near.contains(&4));
        let memory = of(mount(9, "tmpfs"));
        assert!(!memory.has_late && memory.near.contains(&9));
    }
}
