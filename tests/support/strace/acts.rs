//! Calls on files that move no data, as strace shows them: which file, which operation, which result.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::text::{annotated, arguments, join, parts, path, strings, whole_lines};

/// A call: path below the directory, operation as in the view `calls`, and result: 0, or a negative errno; for calls
/// that return an amount, that.
pub(crate) type Act = (PathBuf, &'static str, i64);

/// How a call names its file.
#[derive(Clone, Copy)]
enum By {
    /// Argument with a descriptor.
    Descriptor(usize),
    /// Argument with a name.
    Name(usize),
    /// Argument with a name, and the one with the directory that it is relative to.
    At(usize, usize),
    /// The descriptor that it returns; if it fails, as the other one.
    Open(usize, Option<usize>),
}

/// The calls with their operations. Opens are all `open`, closes `close`.
fn act(name: &str) -> Option<(&'static str, By)> {
    use By::{At, Descriptor, Name, Open};
    Some(match name {
        "stat" | "lstat" => ("getattr", Name(0)),
        "fstat" => ("getattr", Descriptor(0)),
        "newfstatat" | "statx" => ("getattr", At(1, 0)),
        "access" => ("access", Name(0)),
        "faccessat" | "faccessat2" => ("access", At(1, 0)),
        "chdir" => ("access", Name(0)),
        "readlink" => ("readlink", Name(0)),
        "readlinkat" => ("readlink", At(1, 0)),
        "chmod" => ("chmod", Name(0)),
        "fchmod" => ("chmod", Descriptor(0)),
        "fchmodat" => ("chmod", At(1, 0)),
        "chown" | "lchown" => ("chown", Name(0)),
        "fchown" => ("chown", Descriptor(0)),
        "fchownat" => ("chown", At(1, 0)),
        "utime" | "utimes" => ("utimens", Name(0)),
        "utimensat" | "futimesat" => ("utimens", At(1, 0)),
        "truncate" => ("truncate", Name(0)),
        "ftruncate" => ("truncate", Descriptor(0)),
        "mkdir" => ("mkdir", Name(0)),
        "mkdirat" => ("mkdir", At(1, 0)),
        "mknod" => ("mknod", Name(0)),
        "mknodat" => ("mknod", At(1, 0)),
        "rmdir" => ("rmdir", Name(0)),
        "symlink" => ("symlink", Name(1)),
        "symlinkat" => ("symlink", At(2, 1)),
        "link" => ("link", Name(0)),
        "linkat" => ("link", At(1, 0)),
        "unlink" => ("unlink", Name(0)),
        "unlinkat" => ("unlink", At(1, 0)),
        "rename" => ("rename", Name(0)),
        "renameat" | "renameat2" => ("rename", At(1, 0)),
        "open" | "creat" => ("open", Open(0, None)),
        "openat" | "openat2" => ("open", Open(1, Some(0))),
        "close" => ("close", Descriptor(0)),
        "getdents64" => ("readdir", Descriptor(0)),
        "fsync" | "fdatasync" => ("fsync", Descriptor(0)),
        "flock" => ("flock", Descriptor(0)),
        "fallocate" => ("fallocate", Descriptor(0)),
        "statfs" => ("statfs", Name(0)),
        "fstatfs" => ("statfs", Descriptor(0)),
        "setxattr" | "lsetxattr" => ("setxattr", Name(0)),
        "fsetxattr" => ("setxattr", Descriptor(0)),
        "getxattr" | "lgetxattr" => ("getxattr", Name(0)),
        "fgetxattr" => ("getxattr", Descriptor(0)),
        "listxattr" | "llistxattr" => ("listxattr", Name(0)),
        "flistxattr" => ("listxattr", Descriptor(0)),
        "removexattr" | "lremovexattr" => ("removexattr", Name(0)),
        "fremovexattr" => ("removexattr", Descriptor(0)),
        "mmap" => ("mmap", Descriptor(4)),
        "ioctl" => ("ioctl", Descriptor(0)),
        "fcntl" => ("setlk", Descriptor(0)),
        "lseek" => ("lseek", Descriptor(0)),
        _ => return None,
    })
}

/// The calls on files below `directory` in a log that strace wrote with `-f -y` and long strings.
pub(crate) fn read(log: &Path, directory: &Path) -> BTreeMap<Act, usize> {
    let log = fs::read(log).expect("the log of strace");
    let lines = whole_lines(&String::from_utf8_lossy(&log));
    let mut parents = HashMap::new();
    for (tid, text) in &lines {
        if let Some(("fork" | "vfork" | "clone" | "clone3", _, result)) = parts(text)
            && let Ok(child) = result.parse::<u32>()
        {
            parents.insert(child, *tid);
        }
    }
    let mut working = Working {
        first: directory,
        parents,
        now: HashMap::new(),
    };
    let mut found = BTreeMap::new();
    for (tid, text) in &lines {
        let Some((name, text, result)) = parts(text) else {
            continue;
        };
        let arguments = arguments(text);
        if name == "fchdir" && result == "0" {
            let to = arguments.first().and_then(|fd| annotated(fd));
            working.now.extend(to.map(|to| (*tid, PathBuf::from(to))));
        }
        let Some(((path, op), result)) =
            call(&mut working, *tid, name, &arguments, text).zip(value(name, result))
        else {
            continue;
        };
        if name == "chdir" && result == 0 {
            working.now.insert(*tid, path.clone());
        }
        if path.starts_with(directory) {
            *found.entry((path, op, result)).or_insert(0) += 1;
        }
    }
    found
}

/// Working directories of threads.
struct Working<'a> {
    first: &'a Path,
    parents: HashMap<u32, u32>,
    now: HashMap<u32, PathBuf>,
}

impl Working<'_> {
    fn of(&mut self, tid: u32) -> PathBuf {
        if let Some(known) = self.now.get(&tid) {
            return known.clone();
        }
        let inherited = match self.parents.get(&tid) {
            Some(&parent) => self.of(parent),
            None => self.first.to_owned(),
        };
        self.now.insert(tid, inherited.clone());
        inherited
    }
}

/// File and operation of a call.
fn call(
    working: &mut Working<'_>,
    tid: u32,
    name: &str,
    arguments: &[&str],
    text: &str,
) -> Option<(PathBuf, &'static str)> {
    let (op, by) = act(name)?;
    let is_left_out = match name {
        "fcntl" => !["F_GETLK", "F_SETLK", "F_OFD_GETLK", "F_OFD_SETLK"]
            .iter()
            .any(|command| arguments.get(1).is_some_and(|it| it.starts_with(command))),
        "lseek" => !text.contains("SEEK_DATA") && !text.contains("SEEK_HOLE"),
        // Opened to serve as a name.
        "open" | "openat" => text.contains("O_PATH"),
        _ => false,
    };
    if is_left_out {
        return None;
    }
    let op = match op {
        "setlk" if text.contains("GETLK") => "getlk",
        "unlink" if text.contains("AT_REMOVEDIR") => "rmdir",
        op => op,
    };
    let descriptor = |place: usize| {
        arguments
            .get(place)
            .and_then(|it| annotated(it))
            .map(PathBuf::from)
    };
    let mut named = |place: usize, base: Option<usize>| {
        let base = base.and_then(descriptor);
        let argument = arguments.get(place)?;
        if *argument == "NULL" || *argument == "\"\"" {
            return base;
        }
        let name = path(strings(argument).pop()?);
        let base = base.unwrap_or_else(|| working.of(tid));
        Some(join(&base, &name))
    };
    let path = match by {
        By::Descriptor(place) => descriptor(place),
        By::Name(place) => named(place, None),
        By::At(place, base) | By::Open(place, Some(base)) => named(place, Some(base)),
        By::Open(place, None) => named(place, None),
    };
    Some((path?, op))
}

/// The result: 0 for descriptors, addresses and sizes.
fn value(name: &str, result: &str) -> Option<i64> {
    let first = result.split_whitespace().next()?;
    if let Some(error) = result.strip_prefix("-1 ") {
        let name = error.split_whitespace().next()?;
        let mut all = (1..200).map(Errno::from_raw);
        let found = all.find(|errno| format!("{errno:?}") == name)?;
        return Some(-(found as i64));
    }
    if first == "?" {
        return None;
    }
    let is_amount = matches!(
        name,
        "readlink"
            | "readlinkat"
            | "getdents64"
            | "getxattr"
            | "lgetxattr"
            | "fgetxattr"
            | "listxattr"
            | "llistxattr"
            | "flistxattr"
    );
    match is_amount {
        true => first.parse().ok(),
        false => Some(0),
    }
}
