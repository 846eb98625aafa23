//! The traced mounts of a run: over their own directories in a private namespace if the system allows it, at
//! another path through fusermount3 if not, and none as a last resort.

use std::env;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::directory::Directory;
use super::inherited::Stream;
use super::launch::{Child, Namespace, Plan, Reopen, Start};
use super::run::Notice;
use super::transport::Transport;
use super::{Error, Result};
use crate::mounting;

/// Interval of the checks if a mount that lives on is still used.
const UNUSED: Duration = Duration::from_secs(1);

/// A mount that waits for its daemon.
#[derive(Debug)]
pub(super) struct ReadyMount {
    /// Index of the mounted directory.
    pub(super) directory: usize,
    /// Mount point, where the command sees it.
    pub(super) at: PathBuf,
    pub(super) device: OwnedFd,
}

/// The child that will run the command, and the mounts that it will see.
#[derive(Debug)]
pub(super) struct Mounts {
    pub(super) child: Child,
    pub(super) mounted: Vec<ReadyMount>,
    /// Kind of namespace that has the mounts; `None` if they were mounted by fusermount3, or there are none.
    pub(super) namespace: Option<Namespace>,
    /// Reason why no mount could be made over its directory.
    pub(super) refused: Option<String>,
    elsewhere: Option<Elsewhere>,
    /// A descriptor that keeps the namespace with the mounts. Without it, the last process of the namespace
    /// unmounts them at its end, and waits while the answer to its last request is still on its way over
    /// io_uring, for 50 ms (`FUSE_URING_TEARDOWN_INTERVAL`).
    namespace_fd: Option<OwnedFd>,
}

impl Mounts {
    /// Forks the child and mounts each directory, in the best way that works.
    ///
    /// # Errors
    /// If no process can be started; a mount that cannot be made is a notice.
    pub(super) fn make(
        plan: &Plan,
        directories: &[Directory],
        transport: Transport,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<Mounts> {
        let mut child = Child::fork(plan)?;
        if plan.mounts.is_empty() {
            return Ok(Mounts {
                child,
                mounted: Vec::new(),
                namespace: None,
                refused: None,
                elsewhere: None,
                namespace_fd: None,
            });
        }
        let on = match transport.prepare() {
            Ok(on) => on,
            Err(error) => {
                child.abandon();
                return Err(error);
            }
        };
        let answer = child.make_mounts(plan.mounts.len());
        drop(on);
        let reason = match answer.map_err(Error::system("set up the command"))? {
            Ok(made) => {
                let mounted = made.devices.into_iter().enumerate();
                let mounted = mounted.map(|(directory, device)| ReadyMount {
                    directory,
                    at: directories[directory].path.clone(),
                    device,
                });
                return Ok(Mounts {
                    child,
                    mounted: mounted.collect(),
                    namespace: Some(made.namespace),
                    refused: None,
                    elsewhere: None,
                    namespace_fd: made.namespace_fd,
                });
            }
            Err(reason) => reason,
        };
        // The child may be in an incomplete namespace; the command must run in a complete one.
        child.abandon();
        let child = Child::fork(plan)?;
        let mut elsewhere = Elsewhere::default();
        let mut mounted = Vec::new();
        for (index, directory) in directories.iter().enumerate() {
            // The reason of the first failure says more than that of the second.
            if let Ok((at, device)) = elsewhere.mount(&directory.path) {
                notify(Notice::OtherPath {
                    directory: directory.path.clone(),
                    view: at.clone(),
                });
                mounted.push(ReadyMount {
                    directory: index,
                    at,
                    device,
                });
            }
        }
        Ok(Mounts {
            child,
            mounted,
            namespace: None,
            refused: Some(reason),
            elsewhere: Some(elsewhere),
            namespace_fd: None,
        })
    }

    /// Path at which the command finds `path`: in a mount, if one contains it.
    fn seen_at(&self, path: &Path, directories: &[Directory]) -> PathBuf {
        let mount = self.mounted.iter().find_map(|mount| {
            let below = directories[mount.directory].relative(path)?;
            Some(if below.as_os_str().is_empty() {
                mount.at.clone()
            } else {
                mount.at.join(below)
            })
        });
        mount.unwrap_or_else(|| path.to_owned())
    }

    /// Steps of the child to run the command in `cwd` with its inherited streams.
    pub(super) fn start(&self, cwd: &Path, streams: &[Stream], directories: &[Directory]) -> Start {
        let streams = streams.iter().map(|stream| Reopen {
            number: stream.number,
            flags: stream.flags,
            path: self.seen_at(&stream.path, directories),
        });
        Start {
            directory: self.seen_at(cwd, directories),
            streams: streams.collect(),
        }
    }

    /// Unmounts the mounts that do not vanish with the last process, once no process has a file or its
    /// working directory there.
    pub(super) fn unmount_when_unused(&mut self) {
        self.namespace_fd = None;
        if let Some(elsewhere) = &self.elsewhere {
            for point in &elsewhere.points {
                while mounting::unmount(point).is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
                {
                    std::thread::sleep(UNUSED);
                }
            }
        }
        self.unmount();
    }

    /// Unmounts the mounts that do not vanish with the last process, and releases the rest.
    pub(super) fn unmount(&mut self) {
        self.namespace_fd = None;
        self.elsewhere = None;
    }
}

/// Mount points of our own, removed when dropped.
#[derive(Debug, Default)]
struct Elsewhere {
    base: Option<PathBuf>,
    points: Vec<PathBuf>,
}

impl Elsewhere {
    fn mount(&mut self, directory: &Path) -> std::io::Result<(PathBuf, OwnedFd)> {
        let base = match &self.base {
            Some(base) => base.clone(),
            None => {
                let parent = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
                let parent = parent.filter(|p| p.is_dir()).unwrap_or_else(env::temp_dir);
                let base = nix::unistd::mkdtemp(&parent.join("flowtrace-XXXXXX"))?;
                self.base.insert(base).clone()
            }
        };
        let name = directory.file_name().unwrap_or(directory.as_os_str());
        let mut point = base.join(name);
        if self.points.contains(&point) {
            point = base.join(format!("{}-{}", name.to_string_lossy(), self.points.len()));
        }
        fs::create_dir(&point)?;
        self.points.push(point.clone());
        let device = mounting::mount_by_helper(&point)?;
        Ok((point, device))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        for point in &self.points {
            // If the helper failed, nothing is mounted, and there is only the directory to remove.
            let _ = mounting::unmount(point);
            let _ = fs::remove_dir(point);
        }
        if let Some(base) = &self.base {
            let _ = fs::remove_dir(base);
        }
    }
}
