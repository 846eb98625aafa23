//! Memory that this process may use, where that is less than the memory of the machine.

use std::fs;
use std::path::Path;

use crate::cgroups::Groups;

/// The smallest limit of the memory cgroups of this process, bytes; `u64::MAX` without a limit.
pub(crate) fn limit() -> u64 {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&own, &Groups::here(), |file| fs::read_to_string(file).ok())
}

/// The same for a process with this `/proc/PID/cgroup`.
fn limit_of(own: &str, groups: &Groups, read: impl Fn(&Path) -> Option<String>) -> u64 {
    let limit = |directory: &Path, is_v1| {
        let name = match is_v1 {
            true => "memory.limit_in_bytes",
            false => "memory.max",
        };
        read(&directory.join(name))?.trim().parse().ok()
    };
    groups.least("memory", own, limit).unwrap_or(u64::MAX)
}

/// Where this process says how readily it is to be ended when memory runs out (proc_pid_oom_score_adj(5)).
const SCORE: &str = "/proc/self/oom_score_adj";

/// Makes the kernel choose this process first when memory runs out. Any process may do that for itself.
pub(crate) fn be_given_up_first() {
    let _ = fs::write(SCORE, "1000");
}

/// While this value lives, the kernel spares this process, and those that it forks, when memory runs out. If
/// that is not allowed (`CAP_SYS_RESOURCE`), nothing changes.
#[derive(Debug)]
pub(crate) struct Spared {
    before: Option<String>,
}

impl Spared {
    pub(crate) fn begin() -> Spared {
        const SPARED: &str = "-500";
        let before = fs::read_to_string(SCORE).ok();
        let before = before.filter(|_| fs::write(SCORE, SPARED).is_ok());
        Spared { before }
    }
}

impl Drop for Spared {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = fs::write(SCORE, before.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroups::Hierarchy;

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let hierarchy = |mounted_at: &str, controllers: Option<&[&str]>| Hierarchy {
            mounted_at: mounted_at.into(),
            root: "/".into(),
            controllers: controllers.map(|names| names.iter().map(ToString::to_string).collect()),
        };
        let groups = Groups::of(vec![
            hierarchy("/sys/fs/cgroup", None),
            hierarchy("/sys/fs/cgroup/memory", Some(&["rw", "memory"])),
        ]);
        let read = |file: &Path| {
            let text = match file.to_str()? {
                "/sys/fs/cgroup/memory.max" | "/sys/fs/cgroup/a/b/memory.max" => "max\n",
                "/sys/fs/cgroup/a/memory.max" => "5000\n",
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" => "4000\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes" => "9223372036854771712\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let limit_of = |own| limit_of(own, &groups, read);
        assert_eq!(limit_of("0::/a/b\n"), 5000);
        assert_eq!(limit_of("0::/elsewhere\n"), u64::MAX);
        assert_eq!(limit_of("4:memory:/x/y\n1:cpu:/x\n0::/\n"), 4000);
        assert_eq!(limit_of("4:cpu,memory:/z\n"), 9_223_372_036_854_771_712);
        assert_eq!(limit_of("nonsense\n"), u64::MAX);
        assert!(limit() > 0);
    }
}
