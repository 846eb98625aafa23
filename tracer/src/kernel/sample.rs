//! Samples from tracepoints, and decoding of the records of `raw_syscalls:sys_enter` and `sys_exit`.

use std::io;

use super::syscalls::Numbers;
use super::tracefs::{Field, Format};

/// The entry or the return of a system call, or a decision of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// `CLOCK_MONOTONIC`, ns.
    pub(super) at: u64,
    pub(super) tid: u32,
    /// Number of the call; 0 for the scheduler.
    pub(super) number: u32,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// With its arguments; for addresses of lengths and offsets see
    /// [`reported_value`](super::syscalls::reported_value).
    Enters([u64; 6]),
    /// A value, or a negative errno.
    Returns(i64),
    /// A message that the thread's call is to send, or has received, carries a descriptor.
    Carries(Carried),
    /// The call, of several messages, has moved this many bytes: recorded before it returns.
    Moved(u64),
    /// The thread is in this call, or in none, and is about to leave its CPU to wait. Only for calls without
    /// records of their own.
    In([u64; 6]),
    InNoCall,
    /// The thread leaves its CPU in this state (`prev_state` of `sched_switch`) to thread `next`. `ran_ns`:
    /// its CPU time so far, if reported.
    Leaves {
        state: u16,
        next: u32,
        ran_ns: Option<u64>,
    },
    /// The thread is woken by another one; in an interrupt `by` is the interrupted thread.
    Woken {
        by: u32,
        in_interrupt: bool,
    },
    /// The request to a device that begins at this sector reached a stage.
    Request {
        stage: Stage,
        device: u32,
        sector: u64,
    },
}

/// Stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits in a queue of the kernel.
    Queued,
    /// The device has it.
    Issued,
    /// The device has answered.
    Done,
}

/// A descriptor that a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// Its number in the process that makes the call.
    pub(super) fd: u64,
    pub(super) open: OpenId,
    /// Mode of its inode (`st_mode` of inode(7)).
    pub(super) mode: u32,
}

/// Identity of an open file as long as the message is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpenId {
    /// Address in the kernel's memory.
    pub(super) address: u64,
    /// Number of its inode in the kernel, which for files is not always that of stat(2).
    pub(super) inode: u64,
}

/// Offsets of the fields.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    enter: u64,
    exit: u64,
    kind: Field,
    enter_number: Field,
    arguments: Field,
    exit_number: Field,
    result: Field,
    numbers: Numbers,
}

/// Offsets of process and thread, time, and the length of the rest.
const TID: usize = 4;
pub(super) const TIME: usize = 8;
const LENGTH: usize = 16;
const RAW: usize = 20;

/// The record of the tracepoint itself, in the part after the header of a sample.
pub(super) fn raw(body: &[u8]) -> Option<&[u8]> {
    let length = u32::from_ne_bytes(bytes(body, LENGTH)?) as usize;
    body.get(RAW..)?.get(..length)
}

impl Decoder {
    /// For tracepoints of these formats.
    ///
    /// # Errors
    /// When a field is missing, or has another size than in all kernels so far.
    pub(super) fn new(enter: &Format, exit: &Format) -> io::Result<Decoder> {
        Ok(Decoder {
            enter: enter.id,
            exit: exit.id,
            kind: enter.field("common_type", 2)?,
            enter_number: enter.field("id", 8)?,
            arguments: enter.field("args", 48)?,
            exit_number: exit.field("id", 8)?,
            result: exit.field("ret", 8)?,
            numbers: Numbers::new(),
        })
    }

    /// Decodes the part after the header of a sample. `None`: another event, or truncated.
    pub(super) fn decode(&self, body: &[u8]) -> Option<Sample> {
        let raw = raw(body)?;
        let kind = u64::from(u16::from_ne_bytes(bytes(raw, self.kind.offset)?));
        let word = |at: usize| bytes(raw, at).map(u64::from_ne_bytes);
        let (number, what) = if kind == self.enter {
            let mut arguments = [0; 6];
            for (index, argument) in arguments.iter_mut().enumerate() {
                *argument = word(self.arguments.offset + 8 * index)?;
            }
            let number = word(self.enter_number.offset)?;
            self.numbers
                .forget_addresses(u32::try_from(number).ok()?, &mut arguments);
            (number, What::Enters(arguments))
        } else if kind == self.exit {
            let result = word(self.result.offset)?.cast_signed();
            (word(self.exit_number.offset)?, What::Returns(result))
        } else {
            return None;
        };
        Some(Sample {
            at: u64::from_ne_bytes(bytes(body, TIME)?),
            tid: u32::from_ne_bytes(bytes(body, TID)?),
            number: u32::try_from(number).ok()?,
            what,
        })
    }
}

pub(super) fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.get(..N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> Decoder {
        let format = |id: u32, fields: &str| {
            let text = format!(
                "ID: {id}\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n{fields}"
            );
            Format::parse(&text).unwrap()
        };
        let enter = format(
            7,
            "\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n",
        );
        let exit = format(9, "\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n");
        Decoder::new(&enter, &exit).unwrap()
    }

    fn body(kind: u16, words: &[u64]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(40u32.to_ne_bytes());
        body.extend(41u32.to_ne_bytes());
        body.extend(1_000u64.to_ne_bytes());
        body.extend((8 + 8 * words.len() as u32).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend([0; 6]);
        body.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        body
    }

    #[test]
    fn entries_and_returns_are_distinguished() {
        let decoder = decoder();
        let enter = decoder.decode(&body(7, &[17, 3, 4, 5, 6, 7, 8])).unwrap();
        assert_eq!((enter.at, enter.tid, enter.number), (1_000, 41, 17));
        assert_eq!(enter.what, What::Enters([3, 4, 5, 6, 7, 8]));
        let exit = decoder
            .decode(&body(9, &[17, (-9i64).cast_unsigned()]))
            .unwrap();
        assert_eq!(exit.what, What::Returns(-9));
        assert_eq!(decoder.decode(&body(8, &[17, 3])), None);
    }

    #[test]
    fn whatever_is_cut_short_is_none() {
        let whole = body(7, &[17, 3, 4, 5, 6, 7, 8]);
        for length in 0..whole.len() {
            assert_eq!(decoder().decode(&whole[..length]), None, "{length}");
        }
    }
}
