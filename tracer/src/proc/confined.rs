//! How much of the machine a process may use: the CPUs of its affinity mask, and the quota of its control groups.
//!
//! The kernel counts the time for which these keep a process from running as waiting for a CPU, as if others had them all.

use std::path::PathBuf;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use procfs::FromRead;
use procfs::process::MountInfos;

use super::reading::contents;

/// The part of the machine that a process may use; nothing in it: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Confined {
    /// CPUs of its affinity mask, as `0-3,8`; `None`: all that are online.
    pub(super) cpus: Option<String>,
    /// CPU time that the least of the quotas of its control groups allows in each second, ns; `None`: there is none.
    pub(super) quota_ns: Option<u64>,
}

/// Where the control groups are.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    hierarchies: Vec<Hierarchy>,
}

/// A mounted hierarchy that has the controller `cpu`.
#[derive(Clone, Debug)]
struct Hierarchy {
    mounted_at: PathBuf,
    /// The group that is its top directory here.
    root: String,
    is_v1: bool,
}

impl Groups {
    /// Those of flowtrace's own mount namespace.
    pub(super) fn here() -> Groups {
        let mounts = MountInfos::from_file("/proc/self/mountinfo");
        let hierarchies = mounts.into_iter().flatten().filter_map(|mount| {
            let is_v1 = mount.fs_type == "cgroup";
            let has_cpu = is_v1 && mount.super_options.contains_key("cpu");
            (has_cpu || mount.fs_type == "cgroup2").then_some(Hierarchy {
                mounted_at: mount.mount_point,
                root: mount.root,
                is_v1,
            })
        });
        Groups {
            hierarchies: hierarchies.collect(),
        }
    }

    /// The least quota of the groups in a text such as `/proc/PID/cgroup` has (cgroups(7)), ns in each second.
    fn quota(&self, groups: &str) -> Option<u64> {
        let quotas = self.hierarchies.iter().filter_map(|hierarchy| {
            let group = groups.lines().find_map(|line| {
                let (_, line) = line.split_once(':')?;
                let (controllers, group) = line.split_once(':')?;
                let is_it = match hierarchy.is_v1 {
                    true => controllers.split(',').any(|name| name == "cpu"),
                    false => controllers.is_empty(),
                };
                is_it.then_some(group)
            })?;
            hierarchy.quota(group)
        });
        quotas.min()
    }
}

impl Hierarchy {
    fn quota(&self, group: &str) -> Option<u64> {
        let below = group.strip_prefix(self.root.trim_end_matches('/'))?;
        let below = below.trim_matches('/');
        let mut directory = self.mounted_at.clone();
        let mut least = self.own_quota(&directory);
        for name in below.split('/').filter(|name| !name.is_empty()) {
            directory.push(name);
            let quotas = [least, self.own_quota(&directory)].into_iter().flatten();
            least = quotas.min();
        }
        least
    }

    fn own_quota(&self, directory: &std::path::Path) -> Option<u64> {
        let read = |name: &str| {
            let text = contents(directory.join(name).to_str()?).ok()?;
            String::from_utf8(text).ok()
        };
        match self.is_v1 {
            true => quota_of(&format!(
                "{} {}",
                read("cpu.cfs_quota_us")?.trim(),
                read("cpu.cfs_period_us")?.trim()
            )),
            false => quota_of(&read("cpu.max")?),
        }
    }
}

/// ns in each second by a text such as `cpu.max` has: quota and period. `max` and -1 are none.
fn quota_of(text: &str) -> Option<u64> {
    let mut numbers = text.split_ascii_whitespace();
    let quota: u64 = numbers.next()?.parse().ok()?;
    let period: u64 = numbers.next()?.parse().ok()?;
    (quota.saturating_mul(1_000_000_000)).checked_div(period)
}

impl Confined {
    /// That of a process; `None`: it is gone.
    pub(super) fn of(pid: u32, groups: &Groups) -> Option<Confined> {
        let mask = sched_getaffinity(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
        let allowed: Vec<usize> = (0..CpuSet::count())
            .filter(|&cpu| mask.is_set(cpu).unwrap_or(false))
            .collect();
        let is_all = online().is_none_or(|online| allowed.len() >= online);
        let groups_of = contents(&format!("/proc/{pid}/cgroup")).ok();
        Some(Confined {
            cpus: (!is_all).then(|| ranges(&allowed)),
            quota_ns: groups_of.and_then(|text| groups.quota(str::from_utf8(&text).ok()?)),
        })
    }
}

/// How many CPUs the machine has that are online.
pub(crate) fn online() -> Option<usize> {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    usize::try_from(online.ok()??).ok()
}

/// Numbers in their order as `0-3,8`.
fn ranges(numbers: &[usize]) -> String {
    let ranges = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read() {
        assert_eq!(quota_of("150000 100000\n"), Some(1_500_000_000));
        assert_eq!(quota_of("max 100000\n"), None);
        assert_eq!(quota_of("-1 100000"), None);
        assert_eq!(quota_of("1 0"), None);
        assert_eq!(quota_of(""), None);
    }

    #[test]
    fn numbers_make_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(ranges(&[5]), "5");
        assert_eq!(ranges(&[]), "");
    }

    /// The least quota on the way from the top of the hierarchy counts, of either version.
    #[test]
    fn the_least_quota_above_a_process_counts() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("v2/job/cpu.max", "50000 100000");
        write("v2/job/step/cpu.max", "max 100000");
        write("v1/a/cpu.cfs_quota_us", "-1");
        write("v1/a/cpu.cfs_period_us", "100000");
        let hierarchy = |name: &str, root: &str, is_v1| Hierarchy {
            mounted_at: directory.path().join(name),
            root: root.into(),
            is_v1,
        };
        let both = Groups {
            hierarchies: vec![hierarchy("v1", "/", true), hierarchy("v2", "/top", false)],
        };
        let of = |groups| both.quota(groups);
        assert_eq!(
            of("3:cpuacct,cpu:/a\n0::/top/job/step\n"),
            Some(500_000_000)
        );
        assert_eq!(of("3:cpu:/a\n0::/top\n"), None);
        assert_eq!(of("0::/elsewhere/job\n"), None);
        assert_eq!(of("no groups"), None);
    }

    #[test]
    fn a_process_that_may_use_all_is_not_confined_by_a_mask() {
        let all = Confined::of(std::process::id(), &Groups::here()).unwrap();
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let count = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap());
        assert_eq!(all.cpus.is_none(), count.count() == online().unwrap());
        assert_eq!(Confined::of(u32::MAX, &Groups::here()), None);
    }
}
