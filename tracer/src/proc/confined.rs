//! The part of the machine that a process may use: the CPUs of its affinity mask, and the quota of its
//! control groups.
//!
//! The kernel counts the time for which these limits keep a process from running as waiting for a CPU.

use std::collections::BTreeSet;

use flowtrace_schema::cpu_list;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::environment::OfLast;
use super::reading::contents;
use crate::cgroups::Groups;
use crate::cpus;

/// The part of the machine that a process may use; without any value: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Confined {
    /// CPUs of its affinity mask, as `0-3,8`; `None`: all that are online.
    pub(super) cpus: Option<String>,
    /// CPU time that the least of the quotas of its control groups allows in each second, ns; `None`: there is none.
    pub(super) quota_ns: Option<u64>,
}

/// The least CPU quota of the groups in a text of the format of `/proc/PID/cgroup`, ns in each second.
fn least_quota(groups: &Groups, of_process: &str) -> Option<u64> {
    groups.least("cpu", of_process, |directory, is_v1| {
        let read = |name: &str| {
            let text = contents(directory.join(name).to_str()?).ok()?;
            String::from_utf8(text).ok()
        };
        match is_v1 {
            true => quota_of(&format!(
                "{} {}",
                read("cpu.cfs_quota_us")?.trim(),
                read("cpu.cfs_period_us")?.trim()
            )),
            false => quota_of(&read("cpu.max")?),
        }
    })
}

/// Quota in ns in each second from a text of the format of `cpu.max`: quota and period. `max` and -1 mean no
/// quota.
fn quota_of(text: &str) -> Option<u64> {
    let mut numbers = text.split_ascii_whitespace();
    let quota: u64 = numbers.next()?.parse().ok()?;
    let period: u64 = numbers.next()?.parse().ok()?;
    (quota.saturating_mul(1_000_000_000)).checked_div(period)
}

/// Limits of the processes of this machine. Successive programs are mostly in the same control groups: their
/// quota is read once.
#[derive(Debug)]
pub(super) struct Limits {
    groups: Groups,
    online: Option<usize>,
    quotas: OfLast<Option<u64>>,
}

impl Limits {
    /// Limits in flowtrace's own mount namespace.
    pub(super) fn here() -> Limits {
        Limits {
            groups: Groups::here(),
            online: cpus::online().ok().map(|all| all.len()),
            quotas: OfLast::default(),
        }
    }

    /// Limits of a process; `None`: it is gone.
    pub(super) fn of(&mut self, pid: u32) -> Option<Confined> {
        let mask = sched_getaffinity(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
        let allowed = (0..CpuSet::count()).filter(|&cpu| mask.is_set(cpu).unwrap_or(false));
        let allowed: BTreeSet<u32> = allowed.map(|cpu| cpu as u32).collect();
        let is_all = self.online.is_none_or(|online| allowed.len() >= online);
        let groups_of = contents(&format!("/proc/{pid}/cgroup")).ok();
        Some(Confined {
            cpus: (!is_all).then(|| cpu_list(&allowed)),
            quota_ns: groups_of.and_then(|text| self.quota(&text)),
        })
    }

    fn quota(&mut self, of_process: &[u8]) -> Option<u64> {
        let groups = &self.groups;
        self.quotas.get(of_process, || {
            least_quota(groups, str::from_utf8(of_process).ok()?)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cgroups::Hierarchy;

    #[test]
    fn quotas_are_read() {
        assert_eq!(quota_of("150000 100000\n"), Some(1_500_000_000));
        assert_eq!(quota_of("max 100000\n"), None);
        assert_eq!(quota_of("-1 100000"), None);
        assert_eq!(quota_of("1 0"), None);
        assert_eq!(quota_of(""), None);
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
        let hierarchy = |name: &str, root: &str, is_v1: bool| Hierarchy {
            mounted_at: directory.path().join(name),
            root: root.into(),
            controllers: is_v1.then(|| HashSet::from(["cpu".into()])),
        };
        let both = Groups::of(vec![
            hierarchy("v1", "/", true),
            hierarchy("v2", "/top", false),
        ]);
        let mut limits = Limits {
            groups: both,
            online: None,
            quotas: OfLast::default(),
        };
        let mut of = |groups: &str| limits.quota(groups.as_bytes());
        assert_eq!(
            of("3:cpuacct,cpu:/a\n0::/top/job/step\n"),
            Some(500_000_000)
        );
        assert_eq!(of("3:cpu:/a\n0::/top\n"), None);
        assert_eq!(of("0::/elsewhere/job\n"), None);
        assert_eq!(of("no groups"), None);
        // Read once for programs of the same groups that begin one after the other.
        assert_eq!(of("0::/top/job\n"), Some(500_000_000));
        write("v2/job/cpu.max", "max 100000");
        assert_eq!(of("0::/top/job\n"), Some(500_000_000));
        assert_eq!(of("0::/top/job/step\n"), None);
    }

    #[test]
    fn a_process_that_may_use_all_is_not_confined_by_a_mask() {
        let all = Limits::here().of(std::process::id()).unwrap();
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let count = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap());
        assert_eq!(
            all.cpus.is_none(),
            count.count() == cpus::online().unwrap().len()
        );
        assert_eq!(Limits::here().of(u32::MAX), None);
    }
}
