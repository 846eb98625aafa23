//! Decoding of the records of the eBPF programs, and joining of the parts of an exec.

use std::collections::HashMap;
use std::path::PathBuf;

use flowtrace_schema::Text;

use super::super::costs::{Costs, Io};
use super::bpf_snapshot::BpfSnapshot;
use super::bytes::{half, word};
use super::called::Called;
use super::format::{
    ADDRESS, ARGUMENTS, AT, CALL, CALLED, CHILD_PID, CHILD_TID, CLOCK, CLOCK_FLAGS, COSTS, CPU_AT,
    CUT, DIRECTORY, END, ENDED, ENVIRONMENT, EXEC, EXECUTABLE, EXECUTED, EXITING, FORK, FORKED,
    FORMER, GROUP_CODE, GROUP_FLAGS, INNER, LEADER_CODE, LEFT, LEVEL, NUMBER, NUMBERED, PEAK, PID,
    PIPED, REST, SECOND, START, STOPPED, TABLE, TABLE_OF_PARENT, TARGETS, TASK_CLOCK, TID, UMASK,
    WHAT, missing,
};
use super::pending::{Part, Parts, Pending, path};

/// Bytes of a page, the kernel's unit of memory.
const PAGE: u64 = 4096;

/// An event of a process or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Event {
    /// Time on `CLOCK_MONOTONIC`, ns.
    pub(in super::super) at_ns: u64,
    pub(in super::super) what: What,
}

/// Kind of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum What {
    /// Process `by` made process `child`, which another one may have as its child (`CLONE_PARENT`).
    Forked {
        by: u32,
        child: u32,
        /// Pid of the child in its own pid namespace, if that is below the first one.
        inner: Option<u32>,
        /// Snapshot of its maker.
        maker: Option<Box<BpfSnapshot>>,
    },
    /// Process `pid` made a thread.
    ThreadBegan { pid: u32, tid: u32 },
    /// Process `pid` runs a new program.
    Executed(Box<Executed>),
    /// A thread ended.
    Ended(Box<Ended>),
    /// The last thread of a process begins to exit.
    Exiting(Box<BpfSnapshot>),
    /// Job control stopped a thread.
    Stopped { tid: u32 },
    /// A thread that executed a program while its CPU's clock stood still leaves the CPU.
    Left { pid: u32, used: Box<Used> },
    /// A call by which a process may get files and channels has returned.
    Called(Box<Called>),
}

/// A new program. Members that could not be reported are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Executed {
    pub(in super::super) pid: u32,
    /// Id that its thread had before.
    pub(in super::super) former: u32,
    pub(in super::super) exe: Option<Text>,
    pub(in super::super) cwd: Option<Text>,
    /// Strings, each ended by a NUL.
    pub(in super::super) argv: Option<Vec<u8>>,
    pub(in super::super) environ: Option<Vec<u8>>,
    /// Costs of the thread before.
    pub(in super::super) used: Used,
    /// Snapshot at its begin, if that was asked for.
    pub(in super::super) snapshot: Option<Box<BpfSnapshot>>,
}

/// The end of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Ended {
    pub(in super::super) pid: u32,
    pub(in super::super) tid: u32,
    /// Begin of the thread on `CLOCK_MONOTONIC`, ns.
    pub(in super::super) start_ns: u64,
    /// Wait status of its process, if it is the last thread.
    pub(in super::super) wait_status: i32,
    pub(in super::super) used: Used,
}

/// Costs of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Used {
    /// Time on a CPU up to the kernel's last update: up to a tick ago, unless the thread ended. User and
    /// system time as counted by ticks; peak of memory of its process in all its images.
    pub(in super::super) costs: Costs,
    /// Time of that update on the scheduler's clock, ns.
    pub(in super::super) counted_at: u64,
    /// The CPU that it is on.
    pub(in super::super) cpu: u32,
    /// The CPU's clock, and the scheduler's, at their last update, ns; 0: not reported.
    pub(in super::super) clock_at: u64,
    pub(in super::super) task_clock_at: u64,
    /// True if the CPU's clock stands still until the thread leaves its CPU, or was resumed.
    pub(in super::super) is_halted: bool,
}

/// Most bytes written into pipes that are kept for the execs of their readers.
const PIPED_KEPT: usize = 4 << 20;

/// Parts of records that are not complete yet.
#[derive(Debug, Default)]
pub(super) struct Records {
    pending: Pending,
    /// Bytes written into pipes whose writer also had the reading end, by inode.
    piped: HashMap<u64, Vec<u8>>,
    piped_bytes: usize,
}

impl Records {
    /// Takes a record, and returns the event that it completes. `None`: it is a part, or truncated.
    pub(super) fn take(&mut self, record: &[u8]) -> Option<Event> {
        let (pid, tid) = (half(record, PID)?, half(record, TID)?);
        let number = half(record, NUMBER)?;
        let what = match half(record, WHAT)? {
            FORKED if record.len() >= FORK => {
                let (child, made) = (half(record, CHILD_PID)?, half(record, CHILD_TID)?);
                if child == made {
                    let inner = half(record, INNER)?;
                    What::Forked {
                        by: pid,
                        child,
                        inner: (half(record, LEVEL)? > 0).then_some(inner),
                        maker: self.snapshot(tid),
                    }
                } else {
                    let tid = made;
                    What::ThreadBegan { pid: child, tid }
                }
            }
            EXECUTED if record.len() >= EXEC => {
                What::Executed(Box::new(self.executed(pid, tid, record)?))
            }
            ENDED if record.len() >= END => What::Ended(Box::new(ended(pid, record)?)),
            EXITING => What::Exiting(self.snapshot(tid)?),
            STOPPED => What::Stopped { tid },
            LEFT => What::Left {
                pid,
                used: Box::new(used(record)?),
            },
            CALLED if record.len() >= CALL => {
                let parts = self.pending.take(tid);
                let called = Called::new(record, &parts);
                self.pending.give_back(parts);
                What::Called(Box::new(called?))
            }
            PIPED => {
                self.wrote(word(record, AT)?, record.get(REST..)?);
                return None;
            }
            part @ (EXECUTABLE | DIRECTORY | ARGUMENTS | ENVIRONMENT | TARGETS..CALLED) => {
                let from = if matches!(part, SECOND | ADDRESS) {
                    0
                } else {
                    REST
                };
                self.pending.of(tid).add(part, number, record.get(from..)?);
                return None;
            }
            _ => return None,
        };
        let at_ns = word(record, AT)?;
        Some(Event { at_ns, what })
    }

    /// `bytes` were written into the pipe with this inode.
    fn wrote(&mut self, inode: u64, bytes: &[u8]) {
        if self.piped_bytes + bytes.len() > PIPED_KEPT {
            self.piped.clear();
            self.piped_bytes = 0;
        }
        self.piped
            .entry(inode)
            .or_default()
            .extend_from_slice(bytes);
        self.piped_bytes += bytes.len();
    }

    fn executed(&mut self, pid: u32, tid: u32, record: &[u8]) -> Option<Executed> {
        let mut snapshot = self.snapshot(tid);
        if let Some(snapshot) = &mut snapshot {
            // All of it is unread, so that the written bytes are the content.
            let texts = snapshot.unread().filter_map(|(fd, inode, unread)| {
                let piped = self.piped.get(&inode)?;
                let text = std::str::from_utf8(piped).ok()?;
                (piped.len() == unread as usize).then(|| (fd, text.to_owned()))
            });
            snapshot.piped = texts.collect();
        }
        let parts = self.pending.take(tid);
        let executed = executed(pid, record, &parts, snapshot);
        self.pending.give_back(parts);
        executed
    }

    /// The snapshot of its process that thread `tid` has just reported.
    fn snapshot(&mut self, tid: u32) -> Option<Box<BpfSnapshot>> {
        let parts = self.pending.of(tid);
        let part_of =
            |part: Part<'_>| BpfSnapshot::of_table(tid, part.flags & CUT != 0, part.bytes);
        let tables = [TABLE, TABLE_OF_PARENT];
        let [own, of_parent] = tables.map(|part| parts.get(part).and_then(part_of));
        for part in tables {
            parts.forget(part);
        }
        self.pending.forget_empty(tid);
        own.map(|mut own| {
            own.of_parent = of_parent.map(Box::new);
            Box::new(own)
        })
    }
}

fn executed(
    pid: u32,
    record: &[u8],
    parts: &Parts,
    mut snapshot: Option<Box<BpfSnapshot>>,
) -> Option<Executed> {
    let unknown = half(record, NUMBER)?;
    let is_known = |part| unknown & missing(part) == 0;
    let all = |part| is_known(part).then(|| parts.joined(part));
    let way = |part| is_known(part).then(|| path(parts.get(part).unwrap_or_default()));
    let argv = all(ARGUMENTS);
    let (exe, cwd) = (way(EXECUTABLE), way(DIRECTORY));
    if let Some(snapshot) = &mut snapshot {
        snapshot.arguments = argv.clone().unwrap_or_default();
        snapshot.umask = half(record, UMASK);
        snapshot.program = exe.clone().map(PathBuf::from);
        snapshot.directory = cwd.clone().map(PathBuf::from);
        for fd in 0..NUMBERED {
            if let Some(target) = parts.get(TARGETS + fd) {
                snapshot.paths.insert(fd.cast_signed(), path(target));
            }
        }
    }
    Some(Executed {
        pid,
        former: half(record, FORMER)?,
        exe: exe.map(Text::from),
        cwd: cwd.map(Text::from),
        argv,
        environ: all(ENVIRONMENT),
        used: used(record)?,
        snapshot,
    })
}

fn ended(pid: u32, record: &[u8]) -> Option<Ended> {
    /// The process was ended as a whole (`SIGNAL_GROUP_EXIT` of linux/sched/signal.h).
    const GROUP_EXIT: u32 = 4;
    let as_group = half(record, GROUP_FLAGS)? & GROUP_EXIT != 0;
    let code = if as_group { GROUP_CODE } else { LEADER_CODE };
    Some(Ended {
        pid,
        tid: half(record, TID)?,
        start_ns: word(record, START)?,
        wait_status: half(record, code)?.cast_signed(),
        used: used(record)?,
    })
}

fn used(record: &[u8]) -> Option<Used> {
    /// `RQCF_REQ_SKIP` of kernel/sched/sched.h.
    const IS_HALTED: u32 = 1;
    let cost = |index: usize| word(record, COSTS + 8 * index);
    Some(Used {
        costs: Costs {
            on_cpu_ns: cost(0)?,
            user_ns: cost(2)?,
            sys_ns: cost(3)?,
            run_queue_ns: cost(4)?,
            minor_faults: cost(5)?,
            major_faults: cost(6)?,
            voluntary_switches: cost(7)?,
            involuntary_switches: cost(8)?,
            io: Some(Io {
                read_calls: cost(9)?,
                write_calls: cost(10)?,
                read_bytes: cost(11)?,
                write_bytes: cost(12)?,
            }),
            max_rss_bytes: word(record, PEAK)?.saturating_mul(PAGE),
            threads: 1,
        },
        counted_at: cost(1)?,
        cpu: half(record, CPU_AT)?,
        clock_at: word(record, CLOCK)?,
        task_clock_at: word(record, TASK_CLOCK)?,
        is_halted: half(record, CLOCK_FLAGS)? & IS_HALTED != 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_wait_for_their_exec() {
        let record = |what: u32, number: u32, rest: &[u8]| {
            let mut record = vec![0; REST];
            for at in [PID, TID] {
                record[at..at + 4].copy_from_slice(&7u32.to_ne_bytes());
            }
            record[WHAT..WHAT + 4].copy_from_slice(&what.to_ne_bytes());
            record[NUMBER..NUMBER + 4].copy_from_slice(&number.to_ne_bytes());
            record.extend_from_slice(rest);
            record
        };
        let mut parts = Records::default();
        assert_eq!(parts.take(&record(ARGUMENTS, 0, b"a\0b")), None);
        assert_eq!(parts.take(&record(ARGUMENTS, 0, b"c\0")), None);
        assert_eq!(parts.take(&record(EXECUTABLE, 0, b"a\0")), None);
        let rest = vec![0; EXEC - REST];
        let executed = record(EXECUTED, missing(DIRECTORY), &rest);
        let Some(What::Executed(executed)) = parts.take(&executed).map(|event| event.what) else {
            panic!("an exec");
        };
        assert_eq!(executed.argv.as_deref(), Some(&b"a\0bc\0"[..]));
        assert_eq!(executed.exe.unwrap().text(), "/a");
        assert_eq!((executed.cwd, executed.environ), (None, Some(Vec::new())));
        assert!(parts.pending.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(records: Vec<Vec<u8>>) {
            let mut parts = Records::default();
            for record in records {
                let _ = parts.take(&record);
            }
        }
    }
}
