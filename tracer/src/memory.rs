//! How much memory this process may use, where that is less than what the machine has.

use std::fs;
use std::path::{Path, PathBuf};

/// Where memory cgroups are, by the word that `/proc/self/cgroup` has for them: those of version 2, and of version 1.
const HIERARCHIES: [(&str, &str, &str); 2] = [
    ("", "/sys/fs/cgroup", "memory.max"),
    ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];

/// The least limit of the memory cgroups that this process is in, bytes; `u64::MAX` where there is none.
pub(crate) fn limit() -> u64 {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&own, |file| fs::read_to_string(file).ok())
}

/// The same of a process with this `/proc/PID/cgroup`.
fn limit_of(own: &str, read: impl Fn(&Path) -> Option<String>) -> u64 {
    let groups = own.lines().filter_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, words.next()?);
        let is_meant = |(name, ..): &&(&str, _, _)| controllers.split(',').any(|c| c == *name);
        let (_, top, file) = HIERARCHIES.iter().find(is_meant)?;
        let group = PathBuf::from(format!("{top}{path}"));
        // In a container the group itself may be what is seen as the top.
        let groups = group.ancestors().take_while(|group| group.starts_with(top));
        let limits = groups.filter_map(|group| read(&group.join(file))?.trim().parse().ok());
        limits.min()
    });
    groups.min().unwrap_or(u64::MAX)
}

/// Has the kernel choose this process first where memory runs out, which anybody may for itself.
pub(crate) fn be_given_up_first() {
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
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
        assert_eq!(limit_of("0::/a/b\n", read), 5000);
        assert_eq!(limit_of("0::/elsewhere\n", read), u64::MAX);
        assert_eq!(limit_of("4:memory:/x/y\n1:cpu:/x\n0::/\n", read), 4000);
        assert_eq!(
            limit_of("4:cpu,memory:/z\n", read),
            9_223_372_036_854_771_712
        );
        assert_eq!(limit_of("nonsense\n", read), u64::MAX);
        assert!(limit() > 0);
    }
}
