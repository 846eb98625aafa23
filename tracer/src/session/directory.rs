//! A directory to trace: checked, and opened before anything is mounted over it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flowtrace_schema::{FileLayer, Record, Recorder, Text, TracedDirectory};

use super::recording::RUN;
use super::{Error, Result, nested};
use crate::fs::Permission;
use crate::mounting::{self, Mount, NewMount};

/// Filesystems without files of a workflow, on which a mount could not work.
const KERNEL_FILESYSTEMS: &[&str] = &[
    "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "bpf",
];

const ROOT: &str = "/";
/// Directory with the sockets of services. A socket that was bound outside of a mount cannot be reached
/// through it, and no file in here outlives the machine.
const RUNTIME: &str = "/run";

/// An existing directory and a descriptor of it.
#[derive(Debug)]
pub(super) struct Directory {
    /// Absolute path without symbolic links.
    pub(super) path: PathBuf,
    /// The directory itself, whatever is mounted over its path later.
    pub(super) file: File,
    /// Type of its filesystem, if known.
    pub(super) filesystem: Option<String>,
    mode: u32,
}

impl Directory {
    /// Opens `path` and checks that it can be traced.
    pub(super) fn open(path: &Path) -> Result<Directory> {
        let fail = |reason: String| Error::Directory {
            path: path.to_owned(),
            reason,
        };
        let absolute = path.canonicalize().map_err(|e| fail(e.to_string()))?;
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(&absolute)
            .map_err(|e| fail(e.to_string()))?;
        if absolute == Path::new(ROOT) {
            return Err(fail(
                "nothing can be mounted over the root directory itself".into(),
            ));
        }
        let mount = mounting::mount_of(&absolute).map_err(|e| fail(e.to_string()))?;
        if let Some(mount) = &mount {
            if mount.kind == mounting::FILESYSTEM_TYPE {
                let is_in_a_run = nested::may_be_of_own_run(mount);
                return Err(Error::TracedTwice {
                    path: absolute,
                    view: (!is_in_a_run).then(|| mount.point.clone()),
                });
            }
            if let Some(reason) = no_files(mount) {
                return Err(fail(reason));
            }
        }
        let mode = file.metadata().map_err(|e| fail(e.to_string()))?.mode();
        Ok(Directory {
            path: absolute,
            file,
            filesystem: mount.map(|mount| mount.kind),
            mode,
        })
    }

    /// Properties of a mount of this directory at `at` for all users.
    pub(super) fn new_mount(&self, at: &Path, permission: Permission) -> io::Result<NewMount> {
        Ok(NewMount {
            at: at.to_owned(),
            root_mode: self.mode & libc::S_IFMT,
            flags: mounting::kept_flags(&self.file)?,
            default_permissions: permission == Permission::Kernel,
        })
    }

    /// The path of `file` below this directory, if it is there.
    pub(super) fn relative<'a>(&self, file: &'a Path) -> Option<&'a Path> {
        file.strip_prefix(&self.path).ok()
    }
}

/// A traced directory that nothing is mounted over.
#[derive(Debug)]
pub(super) struct TracedPath {
    /// Absolute path without symbolic links.
    path: PathBuf,
    /// Type of its filesystem, if known.
    filesystem: Option<String>,
}

impl TracedPath {
    /// Checks that `path` can be traced.
    pub(super) fn of(path: &Path) -> Result<TracedPath> {
        let fail = |reason: String| Error::Directory {
            path: path.to_owned(),
            reason,
        };
        let absolute = path.canonicalize().map_err(|e| fail(e.to_string()))?;
        if !absolute.is_dir() {
            return Err(fail("it is no directory".into()));
        }
        let mount = mounting::mount_of(&absolute).ok().flatten();
        if let Some(mount) = &mount
            && let Some(reason) = no_files(mount)
        {
            return Err(fail(reason));
        }
        Ok(TracedPath {
            path: absolute,
            filesystem: mount.map(|mount| mount.kind),
        })
    }

    /// Records that the directory is traced.
    pub(super) fn record(&self, recorder: &Recorder) {
        recorder.record(Record::TracedDirectory(Box::new(TracedDirectory {
            run: RUN,
            path: Text::from(self.path.as_path()),
            source: None,
            file_layer: FileLayer::Kernel,
            fuse_flags: None,
            attribute_ttl_ns: 0,
            filesystem: self.filesystem.clone(),
        })));
    }
}

/// The reason why a mount has no files of a workflow, if it has none.
fn no_files(mount: &Mount) -> Option<String> {
    let kind = &mount.kind;
    let is_kernels = KERNEL_FILESYSTEMS.contains(&kind.as_str());
    is_kernels.then(|| format!("it is on {kind}, which has no files of a workflow"))
}

/// Opens directories; `/` stands for all directories below it. One mount covers directories inside of another
/// one. Directories in a mount of another flowtrace are left out, and are the second value.
pub(super) fn open_all(paths: &[PathBuf]) -> Result<(Vec<Directory>, Vec<PathBuf>)> {
    let mut asked = Vec::new();
    for path in paths {
        if path
            .canonicalize()
            .is_ok_and(|path| path == Path::new(ROOT))
        {
            asked.extend(below_root()?);
        } else {
            asked.push(path.clone());
        }
    }
    let (mut directories, mut in_mounts) = (Vec::new(), Vec::new());
    for path in asked {
        match Directory::open(&path) {
            Ok(directory) => directories.push(directory),
            Err(Error::TracedTwice { path, .. }) => in_mounts.push(path),
            Err(error) => return Err(error),
        }
    }
    Ok((outermost(directories), in_mounts))
}

/// The directories in the root directory that have files. Symbolic links lead to one of them.
fn below_root() -> Result<Vec<PathBuf>> {
    let fail = |reason: String| Error::Directory {
        path: ROOT.into(),
        reason,
    };
    if !nix::unistd::geteuid().is_root() {
        return Err(fail(
            "only root can trace everything; name the directories that matter (--dir)".into(),
        ));
    }
    let mut directories = Vec::new();
    for entry in std::fs::read_dir(ROOT).map_err(|e| fail(e.to_string()))? {
        let entry = entry.map_err(|e| fail(e.to_string()))?;
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_directory || path == Path::new(RUNTIME) {
            continue;
        }
        let mount = mounting::mount_of(&path).map_err(|e| fail(e.to_string()))?;
        if !mount.is_some_and(|mount| KERNEL_FILESYSTEMS.contains(&mount.kind.as_str())) {
            directories.push(path);
        }
    }
    Ok(directories)
}

/// The directories without those inside of another one of them: one mount covers both.
fn outermost(mut directories: Vec<Directory>) -> Vec<Directory> {
    directories.sort_by(|a, b| a.path.cmp(&b.path));
    let mut kept: Vec<Directory> = Vec::new();
    for directory in directories {
        if !kept
            .iter()
            .any(|outer| directory.path.starts_with(&outer.path))
        {
            kept.push(directory);
        }
    }
    kept
}
