//! Decoding of the messages of the proc connector.

use super::super::netlink::{messages, u32_at, u64_at};

/// One announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Event {
    /// Time on `CLOCK_MONOTONIC`, ns.
    pub(in super::super) at_ns: u64,
    /// CPU on which it was made.
    pub(in super::super) cpu: u32,
    /// Number of the event among those of its CPU.
    pub(in super::super) sequence: u32,
    pub(in super::super) what: What,
}

/// Kind of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum What {
    /// Process `parent` made process `child`.
    Forked { parent: u32, child: u32 },
    /// Process `pid` made a thread.
    ThreadBegan { pid: u32, tid: u32 },
    /// Process `pid` runs a new program, in one thread.
    Executed { pid: u32 },
    /// Thread `tid` of process `pid` ended; a wait status, the thread's own.
    Exited { pid: u32, tid: u32, status: i32 },
    /// A thread got a name.
    Renamed { tid: u32, pid: u32 },
    /// Anything else: users, sessions, tracers, core dumps.
    Other,
}

/// `CN_IDX_PROC` as a set of groups, and as the address of the module.
pub(super) const GROUP: u32 = 1;
const FORK: u32 = 0x1;
const EXEC: u32 = 0x2;
const COMM: u32 = 0x200;
const EXIT: u32 = 0x8000_0000;
/// An answer to an order of ours, which has no number and no CPU.
const NONE: u32 = 0;

/// `struct cn_msg` before its data, and `struct proc_event` before its own.
const MESSAGE: usize = 20;
const EVENT: usize = 16;

/// The events of a datagram; one that is cut short is left out.
pub(in super::super) fn events(datagram: &[u8]) -> impl Iterator<Item = Event> + '_ {
    messages(datagram).filter_map(|message| parse(message.body))
}

fn parse(body: &[u8]) -> Option<Event> {
    if (u32_at(body, 0)?, u32_at(body, 4)?) != (GROUP, GROUP) {
        return None;
    }
    let event = body.get(MESSAGE..)?;
    let data = event.get(EVENT..)?;
    let word = |index: usize| u32_at(data, 4 * index);
    let what = match u32_at(event, 0)? {
        NONE => return None,
        FORK => {
            let (parent, tid, pid) = (word(1)?, word(2)?, word(3)?);
            if tid == pid {
                What::Forked { parent, child: pid }
            } else {
                What::ThreadBegan { pid, tid }
            }
        }
        EXEC => What::Executed { pid: word(1)? },
        EXIT => What::Exited {
            tid: word(0)?,
            pid: word(1)?,
            status: word(2)?.cast_signed(),
        },
        COMM => What::Renamed {
            tid: word(0)?,
            pid: word(1)?,
        },
        _ => What::Other,
    };
    Some(Event {
        at_ns: u64_at(event, 8)?,
        cpu: u32_at(event, 4)?,
        sequence: u32_at(body, 8)?,
        what,
    })
}
