//! Facts about the running kernel.

use std::io;

/// Its release as `uname -r` says it, and the first two numbers of that.
pub(crate) fn release() -> (String, (u32, u32)) {
    let names = nix::sys::utsname::uname().ok();
    let text = names.map_or_else(String::new, |names| {
        names.release().to_string_lossy().into_owned()
    });
    let version = version(&text);
    (text, version)
}

/// 0 stands for numbers that are not there, which is older than everything.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// What /proc counts CPU times and starts in, ns.
pub(crate) fn tick_ns() -> u64 {
    1_000_000_000 / procfs::ticks_per_second()
}

/// The pid namespace whose ids the scheduler reports (`PROC_PID_INIT_INO` of linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// An error unless the kernel's own ids of threads are those that we see.
pub(crate) fn in_first_pid_namespace() -> io::Result<()> {
    let namespace = std::fs::read_link("/proc/self/ns/pid")?;
    match namespace.as_os_str() == FIRST_PID_NAMESPACE {
        true => Ok(()),
        false => Err(io::Error::other(
            "the scheduler counts processes otherwise here",
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
