//! Costs of threads and processes so far.

use std::fs::File;
use std::ops::{AddAssign, Sub};
use std::os::unix::fs::FileExt;

use super::text::{contents, fields_after, line_after};

/// Costs of one thread so far. Process-wide files would miss ended threads (`schedstat`) or include reaped
/// children (`io`), so these are read thread by thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadCost {
    pub(crate) on_cpu_ns: u64,
    pub(crate) run_queue_ns: u64,
    pub(crate) read_calls: u64,
    pub(crate) write_calls: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
}

impl ThreadCost {
    /// Reads the costs of thread `tid` of process `pid`, and the other values of the same file.
    pub(crate) fn of(pid: u32, tid: u32) -> Option<(ThreadCost, Status)> {
        let directory = format!("/proc/{pid}/task/{tid}");
        // Files with values of one thread are the same for the first one here, and for each name that is
        // looked up in /proc the kernel makes an inode.
        let short = match tid == pid {
            true => format!("/proc/{pid}"),
            false => directory.clone(),
        };
        let schedstat = contents(&format!("{short}/schedstat")).ok()?;
        // Not there on kernels without CONFIG_TASK_IO_ACCOUNTING.
        let io = contents(&format!("{directory}/io")).unwrap_or_default();
        let status = contents(&format!("{short}/status")).ok()?;
        Self::parse(&schedstat, &io, &status)
    }

    /// The result of [`ThreadCost::of`] from the contents of the files.
    pub(crate) fn parse(
        schedstat: &[u8],
        io: &[u8],
        status: &[u8],
    ) -> Option<(ThreadCost, Status)> {
        let mut cost = ThreadCost::default();
        cost.take_schedstat(schedstat)?;
        cost.take_io(io);
        let [voluntary, involuntary] = fields_after(
            status,
            [b"voluntary_ctxt_switches:", b"nonvoluntary_ctxt_switches:"],
        );
        cost.voluntary_switches = voluntary.unwrap_or(0);
        cost.involuntary_switches = involuntary.unwrap_or(0);
        Some((cost, Status::parse(status)))
    }

    fn take_schedstat(&mut self, schedstat: &[u8]) -> Option<()> {
        let mut numbers = str::from_utf8(schedstat).ok()?.split_ascii_whitespace();
        self.on_cpu_ns = numbers.next()?.parse().ok()?;
        self.run_queue_ns = numbers.next()?.parse().ok()?;
        Some(())
    }

    fn take_io(&mut self, io: &[u8]) {
        let [read, written, reads, writes] =
            fields_after(io, [b"rchar:", b"wchar:", b"syscr:", b"syscw:"]);
        self.read_bytes = read.unwrap_or(0);
        self.write_bytes = written.unwrap_or(0);
        self.read_calls = reads.unwrap_or(0);
        self.write_calls = writes.unwrap_or(0);
    }
}

/// The kernel's account of a process in each report of ptrace (`RUSAGE_BOTH` of kernel/sys.c): its costs so
/// far in all its images, with all its threads, and with the children that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// CPU times in µs.
    pub(crate) cost: ProcessCost,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// Most resident memory of any image.
    pub(crate) max_rss_bytes: u64,
}

/// Values of `/proc/PID/status` about the process of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Peak resident memory of the image.
    pub(crate) max_rss_bytes: Option<u64>,
    /// Process id in the innermost pid namespace that the process lives in, when it is not the
    /// outermost one that this /proc shows.
    pub(crate) inner_pid: Option<u32>,
}

impl Status {
    /// Reads the values of process `pid`.
    pub(crate) fn of(pid: u32) -> Option<Status> {
        Some(Self::parse(&contents(&format!("/proc/{pid}/status")).ok()?))
    }

    /// These values, and those of `earlier` where one is missing: a zombie has no memory.
    pub(crate) fn or(self, earlier: Status) -> Status {
        Status {
            max_rss_bytes: self.max_rss_bytes.or(earlier.max_rss_bytes),
            inner_pid: self.inner_pid.or(earlier.inner_pid),
        }
    }

    pub(super) fn parse(status: &[u8]) -> Status {
        let inner = |pids: &[u8]| {
            let mut pids = str::from_utf8(pids).ok()?.split_ascii_whitespace();
            pids.next()?;
            pids.next_back()?.parse().ok()
        };
        let [max_rss] = fields_after(status, [b"VmHWM:"]);
        Status {
            max_rss_bytes: max_rss.map(|kib| kib.saturating_mul(1024)),
            inner_pid: line_after(status, b"NStgid:").and_then(inner),
        }
    }
}

/// The files with the costs of a process that never had more than one thread and no child. They may stay open
/// over execs: an open costs as much as three reads.
#[derive(Debug)]
pub(crate) struct CostFiles {
    schedstat: File,
    /// Not there on kernels without `CONFIG_TASK_IO_ACCOUNTING`.
    io: Option<File>,
}

impl CostFiles {
    pub(crate) fn open(pid: u32) -> Option<CostFiles> {
        Some(CostFiles {
            schedstat: File::open(format!("/proc/{pid}/schedstat")).ok()?,
            io: File::open(format!("/proc/{pid}/io")).ok(),
        })
    }

    /// The costs so far; the kernel has just reported `account`.
    pub(crate) fn cost(&self, account: &Account) -> Option<ThreadCost> {
        // Seven numbers of at most 20 digits with their names.
        let mut text = [0; 512];
        let mut cost = ThreadCost::default();
        let length = self.schedstat.read_at(&mut text, 0).ok()?;
        cost.take_schedstat(&text[..length])?;
        let io = self.io.as_ref().map(|io| io.read_at(&mut text, 0));
        let length = io.and_then(Result::ok).unwrap_or(0);
        cost.take_io(&text[..length]);
        cost.voluntary_switches = account.voluntary_switches;
        cost.involuntary_switches = account.involuntary_switches;
        Some(cost)
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

/// Bytes that the first thread of a process read and wrote so far, in all its images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) read_calls: u64,
    pub(crate) write_calls: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
}

impl Traffic {
    pub(crate) fn of(pid: u32) -> Option<Traffic> {
        Self::parse(&contents(&format!("/proc/{pid}/task/{pid}/io")).ok()?)
    }

    /// The traffic from the content of the file.
    pub(crate) fn parse(io: &[u8]) -> Option<Traffic> {
        let [read, written, reads, writes] =
            fields_after(io, [b"rchar:", b"wchar:", b"syscr:", b"syscw:"]);
        Some(Traffic {
            read_calls: reads?,
            write_calls: writes?,
            read_bytes: read?,
            write_bytes: written?,
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

/// Costs of a whole process so far, ended threads included, children not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCost {
    pub(crate) user_ns: u64,
    pub(crate) sys_ns: u64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
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
