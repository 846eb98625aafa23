//! What /proc tells about a stopped process: its identity at an exec, its costs at its end.
//!
//! Every reading may fail at any time (a SIGKILL takes the process away even from a stop), so
//! each field is optional and nothing here is an error.

use std::fs;
use std::io::Cursor;
use std::ops::{AddAssign, Sub};
use std::os::unix::ffi::OsStringExt;

use flowtrace_schema::Text;
use procfs::FromRead;
use procfs::process::Schedstat;

/// Identity of a process image, as at its exec.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub(crate) exe: Option<Text>,
    /// Arguments, each ended by a NUL.
    pub(crate) argv: Option<Vec<u8>>,
    pub(crate) cwd: Option<Text>,
}

impl Image {
    /// Reads what process `pid` runs now.
    pub(crate) fn of(pid: u32) -> Image {
        Image {
            exe: link(pid, "exe"),
            argv: fs::read(format!("/proc/{pid}/cmdline")).ok(),
            cwd: link(pid, "cwd"),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.exe.is_some() && self.argv.is_some() && self.cwd.is_some()
    }
}

fn link(pid: u32, name: &str) -> Option<Text> {
    let target = fs::read_link(format!("/proc/{pid}/{name}")).ok()?;
    Some(target.into_os_string().into_vec().into())
}

/// What one thread used so far. Process-wide files would miss ended threads (`schedstat`) or
/// include reaped children (`io`), so these are read thread by thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadCost {
    pub(super) on_cpu_ns: u64,
    pub(super) run_queue_ns: u64,
    pub(super) read_calls: u64,
    pub(super) write_calls: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
}

impl ThreadCost {
    /// Reads the costs of thread `tid` of process `pid`, and the peak memory of the process,
    /// which stands in the same file.
    pub(super) fn of(pid: u32, tid: u32) -> Option<(ThreadCost, Option<u64>)> {
        let directory = format!("/proc/{pid}/task/{tid}");
        let schedstat = fs::read(format!("{directory}/schedstat")).ok()?;
        // Not there on kernels without CONFIG_TASK_IO_ACCOUNTING.
        let io = fs::read(format!("{directory}/io")).unwrap_or_default();
        let status = fs::read(format!("{directory}/status")).ok()?;
        Self::parse(&schedstat, &io, &status)
    }

    /// The same from what the files hold.
    pub(crate) fn parse(
        schedstat: &[u8],
        io: &[u8],
        status: &[u8],
    ) -> Option<(ThreadCost, Option<u64>)> {
        let schedstat = Schedstat::from_read(Cursor::new(schedstat)).ok()?;
        let io = String::from_utf8_lossy(io);
        let status = String::from_utf8_lossy(status);
        let cost = ThreadCost {
            on_cpu_ns: schedstat.sum_exec_runtime,
            run_queue_ns: schedstat.run_delay,
            read_calls: field(&io, "syscr:").unwrap_or(0),
            write_calls: field(&io, "syscw:").unwrap_or(0),
            read_bytes: field(&io, "rchar:").unwrap_or(0),
            write_bytes: field(&io, "wchar:").unwrap_or(0),
            voluntary_switches: field(&status, "voluntary_ctxt_switches:").unwrap_or(0),
            involuntary_switches: field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0),
        };
        let peak = field(&status, "VmHWM:").map(|kib| kib.saturating_mul(1024));
        Some((cost, peak))
    }
}

impl AddAssign for ThreadCost {
    fn add_assign(&mut self, other: ThreadCost) {
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(other.on_cpu_ns);
        self.run_queue_ns = self.run_queue_ns.saturating_add(other.run_queue_ns);
        self.read_calls = self.read_calls.saturating_add(other.read_calls);
        self.write_calls = self.write_calls.saturating_add(other.write_calls);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(other.write_bytes);
        self.voluntary_switches = self
            .voluntary_switches
            .saturating_add(other.voluntary_switches);
        self.involuntary_switches = self
            .involuntary_switches
            .saturating_add(other.involuntary_switches);
    }
}

impl Sub for ThreadCost {
    type Output = ThreadCost;

    fn sub(self, earlier: ThreadCost) -> ThreadCost {
        ThreadCost {
            on_cpu_ns: self.on_cpu_ns.saturating_sub(earlier.on_cpu_ns),
            run_queue_ns: self.run_queue_ns.saturating_sub(earlier.run_queue_ns),
            read_calls: self.read_calls.saturating_sub(earlier.read_calls),
            write_calls: self.write_calls.saturating_sub(earlier.write_calls),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            voluntary_switches: self
                .voluntary_switches
                .saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
        }
    }
}

/// What the first thread of a process read and wrote so far, whatever images it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(super) read_calls: u64,
    pub(super) write_calls: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
}

impl Traffic {
    pub(super) fn of(pid: u32) -> Option<Traffic> {
        Self::parse(&fs::read(format!("/proc/{pid}/task/{pid}/io")).ok()?)
    }

    /// The same from what the file holds.
    pub(crate) fn parse(io: &[u8]) -> Option<Traffic> {
        let io = String::from_utf8_lossy(io);
        Some(Traffic {
            read_calls: field(&io, "syscr:")?,
            write_calls: field(&io, "syscw:")?,
            read_bytes: field(&io, "rchar:")?,
            write_bytes: field(&io, "wchar:")?,
        })
    }
}

impl Sub for Traffic {
    type Output = Traffic;

    fn sub(self, earlier: Traffic) -> Traffic {
        Traffic {
            read_calls: self.read_calls.saturating_sub(earlier.read_calls),
            write_calls: self.write_calls.saturating_sub(earlier.write_calls),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
        }
    }
}

/// What a whole process used so far, ended threads included, children not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCost {
    pub(super) user_ns: u64,
    pub(super) sys_ns: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

impl ProcessCost {
    /// Reads `/proc/PID/stat`; CPU times have the granularity of a tick there (10 ms).
    pub(super) fn of(pid: u32) -> Option<ProcessCost> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The same from what the file holds.
    pub(crate) fn parse(stat: &[u8]) -> Option<ProcessCost> {
        Some(ProcessStat::parse(stat)?.cost())
    }
}

impl Sub for ProcessCost {
    type Output = ProcessCost;

    fn sub(self, earlier: ProcessCost) -> ProcessCost {
        ProcessCost {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            sys_ns: self.sys_ns.saturating_sub(earlier.sys_ns),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
        }
    }
}

/// What is used of `/proc/PID/stat`. The parser of procfs 0.18 panics on what is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) parent: u32,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// When it started, since boot.
    pub(crate) start_ticks: u64,
    /// Threads that live.
    pub(crate) threads: u32,
    /// Address of its program, another one after most execs; 0 or 1 where that is not told.
    pub(crate) start_code: u64,
    /// Ended, and not yet waited for.
    pub(crate) is_zombie: bool,
    /// Its wait status as a zombie; 0 where that is not told.
    pub(crate) wait_status: i32,
}

impl ProcessStat {
    /// Reads `/proc/PID/stat`.
    pub(crate) fn of(pid: u32) -> Option<ProcessStat> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    pub(crate) fn parse(stat: &[u8]) -> Option<ProcessStat> {
        // The name of the program may hold anything, also spaces and parentheses; what follows
        // holds none.
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = str::from_utf8(&stat[name_end + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        // By the numbers of proc_pid_stat(5); the first one here is 3, the state.
        let mut at = 3;
        let mut field = |number: usize| {
            let found = fields.nth(number - at)?;
            at = number + 1;
            Some(found)
        };
        let state = field(3)?;
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
            wait_status: field(52)?.parse().ok()?,
        })
    }
}

impl ProcessStat {
    /// What the process used.
    pub(super) fn cost(&self) -> ProcessCost {
        ProcessCost {
            user_ns: self.user_ticks.saturating_mul(tick_ns()),
            sys_ns: self.system_ticks.saturating_mul(tick_ns()),
            minor_faults: self.minor_faults,
            major_faults: self.major_faults,
        }
    }
}

/// What /proc counts CPU times and starts in, ns.
pub(super) fn tick_ns() -> u64 {
    1_000_000_000 / procfs::ticks_per_second()
}

/// Time for which thread `tid` of process `pid` has waited for block devices, in ticks; always 0
/// while the kernel does not count it.
pub(crate) fn block_io_ticks(pid: u32, tid: u32) -> Option<u64> {
    block_io_in(&fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}

/// The same from what the file holds: field 42 of proc_pid_stat(5).
pub(crate) fn block_io_in(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = str::from_utf8(&stat[name_end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(42 - 3)?.parse().ok()
}

/// Thread group of task `tid`.
pub(crate) fn thread_group(tid: u32) -> Option<u32> {
    group_in(&fs::read(format!("/proc/{tid}/status")).ok()?)
}

/// The same from what the file holds.
pub(crate) fn group_in(status: &[u8]) -> Option<u32> {
    field(&String::from_utf8_lossy(status), "Tgid:").and_then(|tgid| u32::try_from(tgid).ok())
}

/// How many seccomp filters process `pid` runs under (Linux 5.9).
pub(super) fn filters_of(pid: u32) -> Option<u64> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    field(&String::from_utf8_lossy(&status), "Seccomp_filters:")
}

/// Process that traces process `pid`, if one does.
pub(crate) fn tracer_of(pid: u32) -> Option<u32> {
    tracer_in(&fs::read(format!("/proc/{pid}/status")).ok()?)
}

/// The same from what the file holds.
pub(crate) fn tracer_in(status: &[u8]) -> Option<u32> {
    match field(&String::from_utf8_lossy(status), "TracerPid:") {
        Some(0) | None => None,
        Some(tracer) => u32::try_from(tracer).ok(),
    }
}

/// The number after `name` at the begin of a line, as in `/proc/PID/status` and `io`.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_names() {
        let status = "Name:\tVmHWM:\nVmHWM:\t    1234 kB\nnonvoluntary_ctxt_switches:\t5\n\
                      voluntary_ctxt_switches:\t7\n";
        assert_eq!(field(status, "VmHWM:"), Some(1234));
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(7));
        assert_eq!(field(status, "VmPeak:"), None);
        assert_eq!(field("rchar: x\n", "rchar:"), None);
    }

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
        let (cost, peak) = ThreadCost::of(pid, pid).unwrap();
        assert!(peak.unwrap() > 4096);
        assert!(cost.on_cpu_ns > 0);
        assert!(ProcessCost::of(pid).unwrap().minor_faults > 0);
        assert_eq!(thread_group(pid), Some(pid));
    }

    #[test]
    fn a_vanished_process_is_no_error() {
        assert_eq!(ThreadCost::of(u32::MAX, u32::MAX), None);
        assert!(!Image::of(u32::MAX).is_complete());
    }
}
