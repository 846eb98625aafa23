//! Limits set by control groups (cgroups(7)), of version 1 and 2.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use procfs::FromRead;
use procfs::process::MountInfos;

/// The mounted hierarchies of control groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    hierarchies: Vec<Hierarchy>,
}

/// A mounted hierarchy.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    pub(crate) mounted_at: PathBuf,
    /// The group of the top directory of the mount; in a container this is not the machine's top group.
    pub(crate) root: String,
    /// The controllers of a hierarchy of version 1; `None` for version 2, which may have any.
    pub(crate) controllers: Option<HashSet<String>>,
}

impl Groups {
    /// The hierarchies of flowtrace's own mount namespace.
    pub(crate) fn here() -> Groups {
        let mounts = MountInfos::from_file("/proc/self/mountinfo");
        let hierarchies = mounts.into_iter().flatten().filter_map(|mount| {
            let controllers = match mount.fs_type.as_str() {
                "cgroup" => Some(mount.super_options.into_keys().collect()),
                "cgroup2" => None,
                _ => return None,
            };
            Some(Hierarchy {
                mounted_at: mount.mount_point,
                root: mount.root,
                controllers,
            })
        });
        Groups::of(hierarchies.collect())
    }

    /// Groups with these hierarchies.
    pub(crate) fn of(hierarchies: Vec<Hierarchy>) -> Groups {
        Groups { hierarchies }
    }

    /// The smallest limit of a controller over the groups in a text such as that of `/proc/PID/cgroup`, and
    /// over all groups above them. `limit` reads the limit of one group from its directory; its argument is
    /// true for version 1.
    pub(crate) fn least(
        &self,
        controller: &str,
        groups: &str,
        limit: impl Fn(&Path, bool) -> Option<u64>,
    ) -> Option<u64> {
        let least = self.hierarchies.iter().filter_map(|hierarchy| {
            let group = hierarchy.group_of(controller, groups)?;
            let is_v1 = hierarchy.controllers.is_some();
            let directories = hierarchy.directories(group)?;
            directories
                .filter_map(|directory| limit(&directory, is_v1))
                .min()
        });
        least.min()
    }
}

impl Hierarchy {
    /// The group in the text that belongs to a controller of this hierarchy.
    fn group_of<'a>(&self, controller: &str, groups: &'a str) -> Option<&'a str> {
        groups.lines().find_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, group) = line.split_once(':')?;
            let is_it = match &self.controllers {
                Some(own) => {
                    own.contains(controller)
                        && controllers.split(',').any(|name| name == controller)
                }
                None => controllers.is_empty(),
            };
            is_it.then_some(group)
        })
    }

    /// The directories of a group and of all groups above it; `None` if the group is not below the top
    /// directory.
    fn directories(&self, group: &str) -> Option<impl Iterator<Item = PathBuf>> {
        let below = group.strip_prefix(self.root.trim_end_matches('/'))?;
        let below = Path::new(below.trim_matches('/')).to_owned();
        let mounted_at = self.mounted_at.clone();
        let directories: Vec<PathBuf> = below
            .ancestors()
            .map(|path| mounted_at.join(path))
            .collect();
        Some(directories.into_iter())
    }
}
