//! Getting the traced views mounted: over their own paths in a private namespace if the system
//! allows it, at another path through fusermount3 if not, not at all as a last resort.

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

/// How often a view that lives on is looked at for whether anybody uses it.
const UNUSED: Duration = Duration::from_secs(1);

/// A mounted view that waits for its daemon.
#[derive(Debug)]
pub(super) struct MountedView {
    /// Index of the directory it shows.
    pub(super) directory: usize,
    /// Where the command sees it.
    pub(super) at: PathBuf,
    pub(super) device: OwnedFd,
}

/// The child that will run the command, and the views it will see.
#[derive(Debug)]
pub(super) struct Views {
    pub(super) child: Child,
    pub(super) mounted: Vec<MountedView>,
    /// Kind of namespace that has the mounts; `None` when they were mounted by fusermount3, or there are none.
    pub(super) namespace: Option<Namespace>,
    elsewhere: Option<Elsewhere>,
    /// Keeps the namespace with the views. Without, its last process takes them apart at its end, and waits: where the answer to its
    /// last request is still on its way over io_uring for 50 ms (`FUSE_URING_TEARDOWN_INTERVAL`).
    keeper: Option<OwnedFd>,
}

impl Views {
    /// Forks the child and mounts a view of each directory, in the best way that works.
    ///
    /// # Errors
    /// When no process can be started; a view that cannot be mounted is a notice.
    pub(super) fn mount(
        plan: &Plan,
        directories: &[Directory],
        transport: Transport,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<Views> {
        let mut child = Child::fork(plan)?;
        if plan.views.is_empty() {
            return Ok(Views {
                child,
                mounted: Vec::new(),
                namespace: None,
                elsewhere: None,
                keeper: None,
            });
        }
        let on = match transport.prepare() {
            Ok(on) => on,
            Err(error) => {
                child.abandon();
                return Err(error);
            }
        };
        let answer = child.make_views(plan.views.len());
        drop(on);
        let reason = match answer.map_err(Error::system("set up the command"))? {
            Ok(made) => {
                let mounted = made.devices.into_iter().enumerate();
                let mounted = mounted.map(|(directory, device)| MountedView {
                    directory,
                    at: directories[directory].path.clone(),
                    device,
                });
                return Ok(Views {
                    child,
                    mounted: mounted.collect(),
                    namespace: Some(made.namespace),
                    elsewhere: None,
                    keeper: made.keeper,
                });
            }
            Err(reason) => reason,
        };
        // It may be left in half a namespace; the command shall run in a whole one.
        child.abandon();
        let child = Child::fork(plan)?;
        let mut elsewhere = Elsewhere::default();
        let mut mounted = Vec::new();
        for (index, directory) in directories.iter().enumerate() {
            match elsewhere.mount(&directory.path) {
                Ok((at, device)) => {
                    notify(Notice::OtherPath {
                        directory: directory.path.clone(),
                        view: at.clone(),
                        reason: reason.clone(),
                    });
                    mounted.push(MountedView {
                        directory: index,
                        at,
                        device,
                    });
                }
                Err(error) => {
                    notify(Notice::NoFiles {
                        reason: format!("{reason}; {error}"),
                    });
                }
            }
        }
        Ok(Views {
            child,
            mounted,
            namespace: None,
            elsewhere: Some(elsewhere),
            keeper: None,
        })
    }

    /// Where the command finds `path` in a view, if there is one of it.
    fn seen_at(&self, path: &Path, directories: &[Directory]) -> PathBuf {
        let view = self.mounted.iter().find_map(|view| {
            let below = directories[view.directory].relative(path)?;
            Some(if below.as_os_str().is_empty() {
                view.at.clone()
            } else {
                view.at.join(below)
            })
        });
        view.unwrap_or_else(|| path.to_owned())
    }

    /// Steps of the child to run the command in `cwd` with the streams that it inherits.
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

    /// Takes away what does not vanish with the last process, once nobody has a file or its
    /// working directory there.
    pub(super) fn unmount_when_unused(&mut self) {
        self.keeper = None;
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

    /// Takes away what does not vanish with the last process, and lets go of the rest.
    pub(super) fn unmount(&mut self) {
        self.keeper = None;
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
            // Not mounted when the helper failed; then there is only the directory to remove.
            let _ = mounting::unmount(point);
            let _ = fs::remove_dir(point);
        }
        if let Some(base) = &self.base {
            let _ = fs::remove_dir(base);
        }
    }
}
