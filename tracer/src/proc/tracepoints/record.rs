//! Taking apart what the programs write, and putting the parts of an exec together.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use flowtrace_schema::Text;

use super::super::costs::{Costs, Io};
use super::program::{
    ARGUMENTS, AT, CHILD_PID, CHILD_TID, COSTS, DIRECTORY, END, END_PARENT, ENDED, ENVIRONMENT,
    EXEC, EXECUTABLE, EXECUTED, FORK, FORKED, FORMER, GROUP_CODE, GROUP_FLAGS, INNER, LEADER_CODE,
    LEVEL, NAME, NAME_LENGTH, NUMBER, PARENT, PEAK, PID, PROCESSOR_AT, REST, START, STOPPED, TID,
    UNNAMED, WHAT, missing,
};

/// Bytes of a page, in which the kernel counts memory.
const PAGE: u64 = 4096;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Event {
    /// When, on `CLOCK_MONOTONIC`, ns.
    pub(in super::super) at_ns: u64,
    pub(in super::super) what: What,
}

/// Kinds of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum What {
    /// A process made process `child`, which `parent` has as its child.
    Forked {
        parent: u32,
        child: u32,
        /// The child's number of itself, if it is in a pid namespace below the first one.
        inner: Option<u32>,
    },
    /// Process `pid` made a thread.
    ThreadBegan { pid: u32, tid: u32 },
    /// Process `pid` runs a new program.
    Executed(Box<Executed>),
    /// A thread ended.
    Ended(Box<Ended>),
    /// Job control stopped a thread.
    Stopped { tid: u32 },
}

/// A new program. What is `None` could not be told.
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
    /// What the thread used before.
    pub(in super::super) used: Used,
}

/// The end of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Ended {
    pub(in super::super) pid: u32,
    pub(in super::super) tid: u32,
    /// The process that has its process as a child.
    pub(in super::super) parent: u32,
    /// When the thread began, on `CLOCK_MONOTONIC`, ns.
    pub(in super::super) start_ns: u64,
    /// At most 15 bytes.
    pub(in super::super) name: Vec<u8>,
    /// That of its process, if it is the last thread.
    pub(in super::super) wait_status: i32,
    pub(in super::super) used: Used,
}

/// What a thread used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Used {
    /// The time on a processor up to the last time that the kernel brought it up to date: up to a tick ago, unless the
    /// thread ended. User and system time as the ticks found them; the most memory that its process had, in whatever image.
    pub(in super::super) costs: Costs,
    /// When the kernel did so, on the scheduler's clock, ns.
    pub(in super::super) counted_at: u64,
    /// The processor that it is on.
    pub(in super::super) processor: u32,
}

/// Parts of execs that are not complete yet, by process.
#[derive(Debug, Default)]
pub(super) struct Parts(HashMap<u32, HashMap<u32, Part>>);

#[derive(Debug, Default)]
struct Part {
    bytes: Vec<u8>,
    is_unnamed: bool,
}

impl Parts {
    /// Takes a record; the event that it completes. `None`: it is a part, or cut short.
    pub(super) fn take(&mut self, record: &[u8]) -> Option<Event> {
        let pid = half(record, PID)?;
        let what = match half(record, WHAT)? {
            FORKED if record.len() >= FORK => {
                let (child, tid) = (half(record, CHILD_PID)?, half(record, CHILD_TID)?);
                if child == tid {
                    let inner = half(record, INNER)?;
                    What::Forked {
                        parent: half(record, PARENT)?,
                        child,
                        inner: (half(record, LEVEL)? > 0).then_some(inner),
                    }
                } else {
                    What::ThreadBegan { pid: child, tid }
                }
            }
            EXECUTED if record.len() >= EXEC => {
                What::Executed(Box::new(self.executed(pid, record)?))
            }
            ENDED if record.len() >= END => What::Ended(Box::new(ended(pid, record)?)),
            STOPPED => What::Stopped {
                tid: half(record, TID)?,
            },
            part @ (EXECUTABLE | DIRECTORY | ARGUMENTS | ENVIRONMENT) => {
                let kept = self.0.entry(pid).or_default().entry(part).or_default();
                kept.bytes.extend_from_slice(record.get(REST..)?);
                kept.is_unnamed = half(record, NUMBER)? & UNNAMED != 0;
                return None;
            }
            _ => return None,
        };
        let at_ns = word(record, AT)?;
        Some(Event { at_ns, what })
    }

    fn executed(&mut self, pid: u32, record: &[u8]) -> Option<Executed> {
        let mut parts = self.0.remove(&pid).unwrap_or_default();
        let unknown = half(record, NUMBER)?;
        let mut part = |part| {
            let kept = parts.remove(&part).unwrap_or_default();
            (unknown & missing(part) == 0).then_some(kept)
        };
        Some(Executed {
            pid,
            former: half(record, FORMER)?,
            exe: part(EXECUTABLE).as_ref().map(path),
            cwd: part(DIRECTORY).as_ref().map(path),
            argv: part(ARGUMENTS).map(|part| part.bytes),
            environ: part(ENVIRONMENT).map(|part| part.bytes),
            used: used(record)?,
        })
    }
}

/// A path from its names, the last one first, each ended by a NUL, as the kernel writes it for a link in /proc.
fn path(part: &Part) -> Text {
    let names = part.bytes.strip_suffix(b"\0").unwrap_or(&part.bytes);
    let mut path = Vec::with_capacity(names.len() + 1);
    if !names.is_empty() {
        for name in names.rsplit(|&byte| byte == 0) {
            path.push(b'/');
            path.extend_from_slice(name);
        }
    }
    if path.is_empty() {
        path.push(b'/');
    }
    if part.is_unnamed {
        path.extend_from_slice(b" (deleted)");
    }
    Text::from(OsString::from_vec(path))
}

fn ended(pid: u32, record: &[u8]) -> Option<Ended> {
    /// The process was ended as a whole (`SIGNAL_GROUP_EXIT` of linux/sched/signal.h).
    const GROUP_EXIT: u32 = 4;
    let name = record.get(NAME..NAME + NAME_LENGTH)?;
    let as_group = half(record, GROUP_FLAGS)? & GROUP_EXIT != 0;
    let code = if as_group { GROUP_CODE } else { LEADER_CODE };
    Some(Ended {
        pid,
        tid: half(record, TID)?,
        parent: half(record, END_PARENT)?,
        start_ns: word(record, START)?,
        name: name.split(|&byte| byte == 0).next()?.to_owned(),
        wait_status: half(record, code)?.cast_signed(),
        used: used(record)?,
    })
}

fn used(record: &[u8]) -> Option<Used> {
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
        processor: half(record, PROCESSOR_AT)?,
    })
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    let bytes = record.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

fn half(record: &[u8], at: usize) -> Option<u32> {
    let bytes = record.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(names: &[u8], is_unnamed: bool) -> String {
        let part = Part {
            bytes: names.to_vec(),
            is_unnamed,
        };
        path(&part).text().into_owned()
    }

    #[test]
    fn paths_are_put_together_from_their_names() {
        assert_eq!(of(b"", false), "/");
        assert_eq!(of(b"sh\0bin\0usr\0", false), "/usr/bin/sh");
        assert_eq!(of(b"x\0tmp\0", true), "/tmp/x (deleted)");
    }

    #[test]
    fn parts_wait_for_their_exec() {
        let record = |what: u32, number: u32, rest: &[u8]| {
            let mut record = vec![0; REST];
            record[PID..PID + 4].copy_from_slice(&7u32.to_ne_bytes());
            record[WHAT..WHAT + 4].copy_from_slice(&what.to_ne_bytes());
            record[NUMBER..NUMBER + 4].copy_from_slice(&number.to_ne_bytes());
            record.extend_from_slice(rest);
            record
        };
        let mut parts = Parts::default();
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
        assert!(parts.0.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(records: Vec<Vec<u8>>) {
            let mut parts = Parts::default();
            for record in records {
                let _ = parts.take(&record);
            }
        }
    }
}
