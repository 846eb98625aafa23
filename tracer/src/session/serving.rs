//! Start of the daemons behind the mounts.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flowtrace_schema::{Record, Recorder, Text, TracedDirectory};
use nix::unistd::{getegid, geteuid};

use super::directory::Directory;
use super::launch::Namespace;
use super::mounts::ReadyMount;
use super::recording::{HOST, RUN, Recording};
use super::seeing::Seeing;
use super::{Error, Result};
use crate::callers::{Callers, TaskTable};
use crate::clock::Clock;
use crate::file_table::FileTable;
use crate::fs::{self, Hidden, Offers, Permission, Session};
use crate::mounting;
use crate::rings::Rings;

/// Settings that all mounts of a session share.
pub(super) struct Serving<'a> {
    pub(super) directories: &'a [Directory],
    /// Absolute paths that the mounts must not show.
    pub(super) hidden: Vec<PathBuf>,
    pub(super) seeing: &'a Seeing,
    /// Privileges that made the mounts; `None` for the fusermount3 helper.
    pub(super) namespace: Option<Namespace>,
    /// Open files that the command inherits.
    pub(super) offers: Arc<Offers>,
    /// Processes that use io_uring, if they are reported.
    pub(super) rings: Arc<Rings>,
}

/// Mounts that are being served.
#[derive(Debug)]
pub(super) struct Served {
    mounts: Vec<ServedMount>,
    files: Arc<FileTable>,
}

/// A mount and its daemon.
#[derive(Debug)]
pub(super) struct ServedMount {
    /// Mount point, where the workflow sees it.
    pub(super) at: PathBuf,
    /// The real directory.
    pub(super) source: PathBuf,
    /// Type of the filesystem of the directory.
    pub(super) filesystem: Option<String>,
    pub(super) session: Session,
}

impl Serving<'_> {
    /// Starts a daemon for each mount. With a recording, every call is recorded.
    pub(super) fn serve(
        &self,
        mounts: Vec<ReadyMount>,
        recording: Option<(&Recording, Arc<dyn Callers>)>,
    ) -> Result<Served> {
        let log = recording.is_some();
        let (recorder, clock, callers) = match recording {
            Some((recording, callers)) => (recording.recorder.clone(), recording.clock, callers),
            None => {
                let nobody: Arc<dyn Callers> = Arc::new(TaskTable::new());
                (Recorder::nowhere(), Clock::start().0, nobody)
            }
        };
        let files = Arc::new(FileTable::new(recorder.clone()));
        let mut served = Vec::new();
        for mount in mounts {
            let directory = &self.directories[mount.directory];
            let config =
                self.config(directory, &mount.at, log)
                    .map_err(|error| Error::Directory {
                        path: directory.path.clone(),
                        reason: error.to_string(),
                    })?;
            let session = fs::serve(
                mount.device,
                config,
                Arc::clone(&files),
                recorder.clone(),
                clock,
                Arc::clone(&callers),
            );
            let session = session.map_err(|error| Error::View {
                path: mount.at.clone(),
                reason: error.to_string(),
            })?;
            served.push(ServedMount {
                at: mount.at,
                source: directory.path.clone(),
                filesystem: directory.filesystem.clone(),
                session,
            });
        }
        Ok(Served {
            mounts: served,
            files,
        })
    }

    fn config(&self, directory: &Directory, at: &Path, log: bool) -> std::io::Result<fs::Config> {
        let in_user_namespace = self.namespace == Some(Namespace::User);
        let hidden = self
            .hidden
            .iter()
            .filter_map(|path| directory.relative(path));
        Ok(fs::Config {
            root: directory.file.as_fd().try_clone_to_owned()?,
            seen_path: at.to_owned(),
            host: HOST,
            kernel_passthrough: self.namespace == Some(Namespace::Privileged),
            log,
            cached: self.seeing.cached,
            filter: self.seeing.filter.clone(),
            attribute_ttl: self.seeing.attribute_ttl,
            threads: threads(),
            // A clone must be opened in the user namespace of the mount. If the helper mounts, this process
            // often may not open the device.
            clone_fd: self.namespace == Some(Namespace::Privileged)
                && mounting::open_device().is_ok(),
            io_uring: self.seeing.transport.is_io_uring()
                && self.namespace == Some(Namespace::Privileged),
            permission: match self.namespace {
                Some(Namespace::Privileged) => self.seeing.permission(),
                Some(Namespace::User) | None => Permission::Process,
            },
            owner: in_user_namespace.then(|| (geteuid().as_raw(), getegid().as_raw())),
            hidden: hidden.filter_map(hidden_name).collect(),
            offers: Arc::clone(&self.offers),
            rings: Arc::clone(&self.rings),
        })
    }
}

impl ServedMount {
    /// Records that the directory is traced.
    pub(super) fn record(&self, recorder: &Recorder, attribute_ttl: Duration) {
        let elsewhere = self.source != self.at;
        recorder.record(Record::TracedDirectory(Box::new(TracedDirectory {
            run: RUN,
            path: Text::from(self.at.as_path()),
            source: elsewhere.then(|| Text::from(self.source.as_path())),
            file_layer: self.session.layer(),
            fuse_flags: Some(self.session.granted_flags()),
            attribute_ttl_ns: attribute_ttl.as_nanos() as u64,
            filesystem: self.filesystem.clone(),
        })));
    }
}

impl Served {
    pub(super) fn mounts(&self) -> &[ServedMount] {
        &self.mounts
    }

    /// The files of the run.
    pub(super) fn files(&self) -> Arc<FileTable> {
        Arc::clone(&self.files)
    }

    /// True if the kernel has released every mount.
    pub(super) fn is_finished(&self) -> bool {
        self.mounts.iter().all(|mount| mount.session.is_finished())
    }

    /// Waits until the kernel has released every mount.
    pub(super) fn join(self) {
        for mount in self.mounts {
            // The failure of a mount affects no process: its users are gone.
            let _ = mount.session.join();
        }
    }
}

fn hidden_name(path: &Path) -> Option<Hidden> {
    let directory = path.parent()?.to_owned();
    Some(Hidden {
        directory,
        name: path.file_name()?.to_owned(),
    })
}

/// Number of threads that answer the requests of one mount. Each request wakes one, and the kernel takes them
/// in turn, so more threads than necessary only cool the caches. There is one more than CPUs, so that a slow
/// call of one process does not delay all others.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(4, |n| (n.get() + 1).clamp(3, 17))
}
