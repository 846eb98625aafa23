//! What a run records where the system allows less than everything, and what would make it record more.

use flowtrace_schema::ProcessLayer;

use super::notice::{Coverage, Notice};
use super::setup::{Run, Started};
use crate::remedies::{Missing, remedy};

impl Run<'_> {
    /// Reports what is recorded, unless that is all, or as the options ask. `refused` has the reason why ptrace cannot
    /// be used, if it was to be. Call it before the mounts are served.
    pub(super) fn report_coverage(
        &self,
        started: &mut Started<'_>,
        processes: ProcessLayer,
        opens: bool,
        refused: Option<String>,
    ) {
        let mut missing = Vec::new();
        missing.extend(refused.as_ref().map(|_| Missing::Ptrace));
        let refused_mount = started.mounts.refused.clone();
        if refused_mount.is_some() && !self.directories.is_empty() {
            missing.extend(Missing::for_mounts());
        }
        if missing.is_empty() && self.lacks_ebpf {
            missing.push(Missing::Ebpf);
        }
        let is_every_process = matches!(processes, ProcessLayer::Ebpf | ProcessLayer::Ptrace);
        if missing.is_empty() && is_every_process && refused_mount.is_none() {
            return;
        }
        let mounted = started.mounts.mounted.iter();
        let directories = mounted.map(|mount| self.directories[mount.directory].path.clone());
        (started.job.notify)(Notice::Coverage(Coverage {
            processes,
            directories: directories.collect(),
            opens,
            refused: refused_mount.into_iter().chain(refused).collect(),
            remedy: (!missing.is_empty()).then(|| remedy(&missing)),
        }));
    }
}
