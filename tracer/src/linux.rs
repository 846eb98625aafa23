//! Facts about the running kernel.

use std::io;

/// The kernel's release in the form of `uname -r`, and its first two numbers.
pub(crate) fn release() -> (String, (u32, u32)) {
    let names = nix::sys::utsname::uname().ok();
    let text = names.map_or_else(String::new, |names| {
        names.release().to_string_lossy().into_owned()
    });
    let version = version(&text);
    (text, version)
}

/// Missing numbers count as 0, which is older than every version.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Length of the unit in which /proc counts CPU times and starts, ns.
pub(crate) fn tick_ns() -> u64 {
    1_000_000_000 / procfs::ticks_per_second()
}

/// The pid namespace whose ids the scheduler reports (`PROC_PID_INIT_INO` of linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Fails unless the kernel's own ids of threads are those that this process sees.
pub(crate) fn in_first_pid_namespace() -> io::Result<()> {
    let namespace = std::fs::read_link("/proc/self/ns/pid")?;
    match namespace.as_os_str() == FIRST_PID_NAMESPACE {
        true => Ok(()),
        false => Err(io::Error::other(
            "the scheduler reports process ids of another pid namespace",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(version("6.18.5-amd64"), (6, 18));
        assert_eq!(version("7.0-rc1"), (7, 0));
        assert_eq!(version("x"), (0, 0));
        assert!(release().1 > (2, 6));
    }
}
