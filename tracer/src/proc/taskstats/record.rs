//! Decoding of the records of ended threads (include/uapi/linux/taskstats.h).

use super::super::costs::Costs;
use super::super::netlink::{attributes, messages, u16_at, u32_at, u64_at};

/// A thread that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ThreadRecord {
    /// Its process.
    pub(in super::super) pid: u32,
    /// The process that it is a child of now.
    pub(in super::super) parent: u32,
    /// True if the process ended with it.
    pub(in super::super) last: bool,
    /// Wait status; only in the record of the first thread of a process.
    pub(in super::super) wait_status: Option<i32>,
    /// Life of the process so far, µs.
    pub(in super::super) lived_us: u64,
    /// Its name, at most 15 bytes.
    pub(in super::super) name: Vec<u8>,
    pub(in super::super) costs: Costs,
}

const AGGREGATE_OF_THREAD: u16 = 4;
const STATS: u16 = 3;
/// `struct genlmsghdr`.
const HEADER: usize = 4;
/// The first version whose records name the process.
const VERSION: u16 = 12;
/// `AGROUP` of include/uapi/linux/acct.h.
const LAST_OF_PROCESS: u8 = 0x20;

/// The records of a datagram; those that are truncated, or of an old kernel, are left out. The aggregate of a
/// process is not used: it has sums of few fields.
pub(in super::super) fn records(datagram: &[u8]) -> impl Iterator<Item = ThreadRecord> + '_ {
    messages(datagram)
        .flat_map(|message| attributes(message.body.get(HEADER..).unwrap_or_default()))
        .filter(|(kind, _)| *kind == AGGREGATE_OF_THREAD)
        .flat_map(|(_, aggregate)| attributes(aggregate))
        .filter(|(kind, _)| *kind == STATS)
        .filter_map(|(_, stats)| parse(stats))
}

/// Decodes a record. Offsets are those of `struct taskstats`, which only ever grows at its end.
fn parse(stats: &[u8]) -> Option<ThreadRecord> {
    if u16_at(stats, 0)? < VERSION {
        return None;
    }
    let word = |offset| u64_at(stats, offset);
    let us = |offset| Some(word(offset)?.saturating_mul(1000));
    let name = stats.get(80..112)?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let (pid, tid) = (u32_at(stats, 368)?, u32_at(stats, 128)?);
    let wait_status = u32_at(stats, 4)?.cast_signed();
    Some(ThreadRecord {
        pid,
        wait_status: (tid == pid).then_some(wait_status),
        parent: u32_at(stats, 132)?,
        last: stats.get(8)? & LAST_OF_PROCESS != 0,
        lived_us: word(376)?,
        name: name.to_vec(),
        costs: Costs {
            user_ns: us(152)?,
            sys_ns: us(160)?,
            on_cpu_ns: word(72)?,
            run_queue_ns: word(24)?,
            minor_faults: word(168)?,
            major_faults: word(176)?,
            voluntary_switches: word(272)?,
            involuntary_switches: word(280)?,
            io: None,
            max_rss_bytes: word(200)?.saturating_mul(1024),
            threads: 1,
        },
    })
}
