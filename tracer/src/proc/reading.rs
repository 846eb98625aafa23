//! State of a stopped process in /proc: its identity at an exec, its costs at its end.
//!
//! Every reading may fail at any time (a SIGKILL takes the process away even from a stop), so
//! each field is optional and nothing here is an error.

use std::fs;
use std::os::unix::ffi::OsStringExt;

use flowtrace_schema::{MOST_ARGUMENTS, Text};

use super::environment::{Variables, Wanted};
use super::links;
use crate::linux::tick_ns;

mod cost;
mod startup;
mod text;

pub(crate) use cost::{Account, CostFiles, ProcessCost, Status, ThreadCost, Traffic};
use startup::Strings;
#[cfg(any(test, fuzzing))]
pub(crate) use startup::parse_stack;
pub(super) use text::contents;
use text::{field, first};

/// Identity of a process image, as at its exec.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) exe: Option<Text>,
    /// Arguments, each ended by a NUL.
    pub(crate) argv: Option<Vec<u8>>,
    pub(crate) cwd: Option<Text>,
    /// The variables that are recorded, and no other.
    pub(crate) environment: Variables,
}

impl Image {
    /// Reads the present image of process `pid`.
    pub(crate) fn of(pid: u32) -> Image {
        Image {
            exe: link(pid, "exe"),
            argv: arguments(pid),
            cwd: link(pid, "cwd"),
            environment: Variables::default(),
        }
    }

    /// Reads the image of process `pid` while it is stopped at its exec, with the variables that `wanted`
    /// names. Arguments and environment are fetched out of its memory by one call, at a tenth of the price of
    /// two files. Also returns the whole environment, of which nothing else may be kept.
    pub(super) fn at_exec(pid: u32, wanted: &Wanted) -> (Image, Option<Vec<u8>>) {
        let elsewhere = || ProcessStat::of(pid)?.arguments?.fetch(pid);
        let files = || {
            let environ = contents(&format!("/proc/{pid}/environ"));
            (arguments(pid), environ.ok())
        };
        let (argv, environ) = startup::on_stack(pid)
            .or_else(elsewhere)
            .map_or_else(files, |(argv, environ)| (Some(argv), Some(environ)));
        let image = Image {
            exe: link(pid, "exe"),
            argv,
            cwd: link(pid, "cwd"),
            environment: wanted.of(environ.as_deref().unwrap_or_default()),
        };
        (image, environ)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.exe.is_some() && self.argv.is_some() && self.cwd.is_some()
    }
}

/// Arguments of process `pid`, each ended by a NUL, as far as they are stored.
pub(super) fn arguments(pid: u32) -> Option<Vec<u8>> {
    first(&format!("/proc/{pid}/cmdline"), MOST_ARGUMENTS + 1).ok()
}

fn link(pid: u32, name: &str) -> Option<Text> {
    let target = links::led_to(&format!("/proc/{pid}/{name}"))?;
    Some(target.into_os_string().into_vec().into())
}

/// The fields of `/proc/PID/stat` that are used. The parser of procfs 0.18 panics on truncated input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) parent: u32,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// Start time since boot.
    pub(crate) start_ticks: u64,
    /// Number of living threads.
    pub(crate) threads: u32,
    /// Address of its program, which changes in most execs; 0 or 1 where it is not reported.
    pub(crate) start_code: u64,
    /// True if it ended, and was not yet waited for.
    pub(crate) is_zombie: bool,
    /// Wait status of a zombie; 0 where it is not reported.
    pub(crate) wait_status: i32,
    /// Addresses of its arguments and environment, if reported.
    pub(crate) arguments: Option<Strings>,
}

impl ProcessStat {
    /// Costs of the process; CPU times have the granularity of a tick there (10 ms).
    pub(crate) fn cost(&self) -> ProcessCost {
        ProcessCost {
            user_ns: self.user_ticks.saturating_mul(tick_ns()),
            sys_ns: self.system_ticks.saturating_mul(tick_ns()),
            minor_faults: self.minor_faults,
            major_faults: self.major_faults,
        }
    }

    /// Reads `/proc/PID/stat`.
    pub(crate) fn of(pid: u32) -> Option<ProcessStat> {
        Self::parse(&contents(&format!("/proc/{pid}/stat")).ok()?)
    }

    pub(crate) fn parse(stat: &[u8]) -> Option<ProcessStat> {
        let mut fields = fields(stat)?;
        let mut at = FIRST_FIELD;
        let mut field = |number: usize| {
            let found = fields.nth(number - at)?;
            at = number + 1;
            Some(found)
        };
        let state = field(FIRST_FIELD)?;
        Some(ProcessStat {
            parent: field(4)?.parse().ok()?,
            minor_faults: field(10)?.parse().ok()?,
            major_faults: field(12)?.parse().ok()?,
            user_ticks: field(14)?.parse().ok()?,
            system_ticks: field(15)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
            start_code: field(26)?.parse().ok()?,
            is_zombie: matches!(state, "Z" | "X"),
            arguments: field(48).and_then(|start| {
                let mut address = |number| field(number)?.parse().ok();
                Strings::new(
                    start.parse().ok()?,
                    address(49)?,
                    address(50)?,
                    address(51)?,
                )
            }),
            wait_status: field(52)?.parse().ok()?,
        })
    }
}

/// Time for which thread `tid` of process `pid` has waited for block devices, in ticks; always 0
/// while the kernel does not count it.
pub(crate) fn block_io_ticks(pid: u32, tid: u32) -> Option<u64> {
    block_io_in(&contents(&format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}

/// Time of waits for block devices, in ticks, from the content of the file: field 42 of proc_pid_stat(5).
pub(crate) fn block_io_in(stat: &[u8]) -> Option<u64> {
    fields(stat)?.nth(42 - FIRST_FIELD)?.parse().ok()
}

/// The number that proc_pid_stat(5) gives the first of [`fields`], the state.
const FIRST_FIELD: usize = 3;

/// The fields of `/proc/PID/stat` after the name of the program. The name may contain anything, also spaces
/// and parentheses; the other fields contain none.
fn fields(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = str::from_utf8(&stat[name_end + 1..]).ok()?;
    Some(rest.split_ascii_whitespace())
}

/// True if a process waits in vfork(2), or a clone of this kind, for a child that has neither executed
/// anything nor ended: it cannot be stopped then.
pub(super) fn is_in_vfork(pid: u32) -> bool {
    let is_in_disk_sleep = |stat: Vec<u8>| fields(&stat)?.next().map(|state| state == "D");
    let is_fork = |call: String| {
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        #[cfg(target_arch = "x86_64")]
        if number == Some(libc::SYS_vfork) {
            return true;
        }
        matches!(number, Some(libc::SYS_clone | libc::SYS_clone3))
    };
    let stat = contents(&format!("/proc/{pid}/stat"));
    stat.ok().and_then(is_in_disk_sleep) == Some(true)
        && fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(is_fork)
}

/// True if the ptrace rules of the kernel let this process trace set-user-id programs, so that they keep
/// their privilege (`CAP_SYS_PTRACE`, see execve(2)).
pub(super) fn may_trace_privileged() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & CAP_SYS_PTRACE != 0)
}

/// True if `/proc` numbers processes as this process does, and not as another pid namespace.
pub(crate) fn numbers_agree() -> bool {
    let own = std::process::id().to_string();
    fs::read_link("/proc/self").is_ok_and(|pid| pid.as_os_str() == own.as_str())
}

/// Thread group and parent of task `tid`.
pub(super) fn group_and_parent(tid: u32) -> Option<(u32, u32)> {
    let status = contents(&format!("/proc/{tid}/status")).ok()?;
    let parent = field(&String::from_utf8_lossy(&status), "PPid:")?;
    Some((group_in(&status)?, u32::try_from(parent).ok()?))
}

/// Children of thread `tid` of process `pid`, where the kernel reports them (`CONFIG_PROC_CHILDREN`).
pub(super) fn children(pid: u32, tid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_ascii_whitespace();
    children.filter_map(|pid| pid.parse().ok()).collect()
}

/// Thread group of task `tid`.
pub(crate) fn thread_group(tid: u32) -> Option<u32> {
    group_in(&contents(&format!("/proc/{tid}/status")).ok()?)
}

/// The thread group from the content of the file.
pub(crate) fn group_in(status: &[u8]) -> Option<u32> {
    field(&String::from_utf8_lossy(status), "Tgid:").and_then(|tgid| u32::try_from(tgid).ok())
}

/// Number of seccomp filters of process `pid` (Linux 5.9).
pub(super) fn filters_of(pid: u32) -> Option<u64> {
    let status = contents(&format!("/proc/{pid}/status")).ok()?;
    field(&String::from_utf8_lossy(&status), "Seccomp_filters:")
}

/// Process that traces process `pid`, if one does.
pub(crate) fn tracer_of(pid: u32) -> Option<u32> {
    tracer_in(&contents(&format!("/proc/{pid}/status")).ok()?)
}

/// The tracer from the content of the file.
pub(crate) fn tracer_in(status: &[u8]) -> Option<u32> {
    match field(&String::from_utf8_lossy(status), "TracerPid:") {
        Some(0) | None => None,
        Some(tracer) => u32::try_from(tracer).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest() {
        let stat = b"7 (a) R 1 (\xff) S 42 7 7 0 -1 0 10 11 12 13 14 15 16 17 18 19 20 0 22 23 24 \
                     25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 \
                     50 51 52\n";
        let found = ProcessStat {
            parent: 42,
            minor_faults: 10,
            major_faults: 12,
            user_ticks: 14,
            system_ticks: 15,
            start_ticks: 22,
            threads: 20,
            start_code: 26,
            is_zombie: false,
            wait_status: 52,
            arguments: None,
        };
        assert_eq!(ProcessStat::parse(stat), Some(found));
        assert_eq!(ProcessStat::parse(&stat[..40]), None);
    }

    #[test]
    fn waits_for_block_devices_are_field_42() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("7 (a b) {}", fields.join(" "));
        assert_eq!(block_io_in(stat.as_bytes()), Some(42));
        assert_eq!(block_io_in(b"7 (a b) 3 4 5"), None);
        let pid = std::process::id();
        assert!(block_io_ticks(pid, pid).is_some());
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        let image = Image::of(pid);
        assert!(image.is_complete());
        assert_eq!(
            image.exe.unwrap().as_os_str(),
            std::env::current_exe().unwrap()
        );
        let (cost, status) = ThreadCost::of(pid, pid).unwrap();
        assert!(status.max_rss_bytes.unwrap() > 4096);
        assert!(cost.on_cpu_ns > 0);
        let account = Account {
            voluntary_switches: 7,
            ..Account::default()
        };
        let files = CostFiles::open(pid).unwrap();
        let lone = files.cost(&account).unwrap();
        assert!(lone.on_cpu_ns > 0 && lone.read_bytes > 0 && lone.voluntary_switches == 7);
        // The same files give the same result later.
        fs::read("/proc/self/cmdline").unwrap();
        let later = files.cost(&account).unwrap();
        assert!(later.read_bytes > lone.read_bytes && later.on_cpu_ns >= lone.on_cpu_ns);
        assert!(CostFiles::open(u32::MAX).is_none());
        assert!(Status::of(pid).unwrap().max_rss_bytes.unwrap() > 4096);
        let stat = ProcessStat::of(pid).unwrap();
        assert!(stat.cost().minor_faults > 0);
        let group = group_and_parent(pid).unwrap();
        assert_eq!(group, (pid, std::os::unix::process::parent_id()));
        assert_eq!(thread_group(pid), Some(pid));
    }

    #[test]
    fn memory_agrees_with_the_files() {
        let pid = std::process::id();
        let stat = ProcessStat::of(pid).unwrap();
        let (argv, environ) = stat.arguments.unwrap().fetch(pid).unwrap();
        assert_eq!(argv, fs::read("/proc/self/cmdline").unwrap());
        assert_eq!(environ, fs::read("/proc/self/environ").unwrap());
    }

    #[test]
    fn only_a_process_of_a_nested_namespace_has_an_inner_pid() {
        let inner = |line: &str| Status::parse(line.as_bytes()).inner_pid;
        assert_eq!(inner("NStgid:\t4711\n"), None);
        assert_eq!(inner("Name:\tx\nNStgid:\t4711\t12\t1\n"), Some(1));
        assert_eq!(inner("Name:\tNStgid:\n"), None);
    }

    #[test]
    fn a_vanished_process_is_no_error() {
        assert_eq!(ThreadCost::of(u32::MAX, u32::MAX), None);
        assert!(!Image::of(u32::MAX).is_complete());
    }
}
