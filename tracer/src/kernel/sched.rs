//! Decoding of the records of `sched:sched_switch` and `sched_waking`.

use std::io;

use super::sample::{Sample, TIME, What, bytes, raw};
use super::tracefs::{Field, Format};

/// Flags of a record that was made in an interrupt (`TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ`).
const IN_INTERRUPT: u8 = 0x08 | 0x10;

/// Bits of `prev_state` with the reason why a thread left its CPU; none: it was preempted.
pub(super) mod state {
    /// Blocked, but not by a signal.
    pub(in super::super) const UNINTERRUPTIBLE: u16 = 0x02;
    /// Stopped by job control.
    pub(in super::super) const STOPPED: u16 = 0x04;
    /// Stopped for its tracer.
    pub(in super::super) const TRACED: u16 = 0x08;
    /// Over.
    pub(in super::super) const DEAD: u16 = 0x10 | 0x20;
    /// All reasons.
    pub(in super::super) const BLOCKED: u16 = 0xff;

    /// The value that the tracepoint reports for a thread in these states (`__trace_sched_switch_state` of
    /// trace/events/sched.h).
    pub(in super::super) fn reported(state: u32, exit_state: u32) -> u16 {
        const REPORTED: u32 = 0x7f;
        const IDLE: u32 = 0x402;
        const IDLE_IS_REPORTED_AS: u16 = 0x80;
        const WAITS_FOR_LOCK: u32 = 0x1000;
        const FROZEN: u32 = 0x8000;
        match (state | exit_state) & REPORTED {
            _ if state & IDLE == IDLE => IDLE_IS_REPORTED_AS,
            0 if state & (WAITS_FOR_LOCK | FROZEN) != 0 => UNINTERRUPTIBLE,
            bits => bits as u16,
        }
    }
}

/// Offsets of the fields.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    waking: u64,
    kind: Field,
    flags: Field,
    by: Field,
    woken: Field,
}

impl Decoder {
    /// For a tracepoint of this format.
    ///
    /// # Errors
    /// When a field is missing, or has another size than in all kernels so far.
    pub(super) fn new(waking: &Format) -> io::Result<Decoder> {
        Ok(Decoder {
            waking: waking.id,
            kind: waking.field("common_type", 2)?,
            flags: waking.field("common_flags", 1)?,
            by: waking.field("common_pid", 4)?,
            woken: waking.field("pid", 4)?,
        })
    }

    /// Decodes the part after the header of a sample. `None`: another event, or truncated.
    pub(super) fn decode(&self, body: &[u8]) -> Option<Sample> {
        let at = u64::from_ne_bytes(bytes(body, TIME)?);
        let raw = raw(body)?;
        let kind = u64::from(u16::from_ne_bytes(bytes(raw, self.kind.offset)?));
        let id = |field: Field| bytes(raw, field.offset).map(u32::from_ne_bytes);
        if kind != self.waking {
            return None;
        }
        let [flags] = bytes(raw, self.flags.offset)?;
        let what = What::Woken {
            by: id(self.by)?,
            in_interrupt: flags & IN_INTERRUPT != 0,
        };
        Some(Sample {
            at,
            tid: id(self.woken)?,
            number: 0,
            what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

    fn decoder() -> Decoder {
        let waking = format!("ID: 9\n{COMMON}\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n");
        Decoder::new(&Format::parse(&waking).unwrap()).unwrap()
    }

    fn body(kind: u16, flags: u8, by: u32, rest: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend([1u32, 2].map(u32::to_ne_bytes).concat());
        body.extend(1_000u64.to_ne_bytes());
        body.extend((8 + rest.len() as u32).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend([flags, 0]);
        body.extend(by.to_ne_bytes());
        body.extend(rest);
        body
    }

    #[test]
    fn wakings_are_decoded() {
        let whole = body(9, 0, 5, &6u32.to_ne_bytes());
        for length in 0..whole.len() {
            assert_eq!(decoder().decode(&whole[..length]), None, "{length}");
        }
        for (flags, in_interrupt) in [(0x01, false), (0x10, true), (0x08, true)] {
            let waking = body(9, flags, 5, &6u32.to_ne_bytes());
            let waking = decoder().decode(&waking).unwrap();
            let by = 5;
            assert_eq!(
                (waking.tid, waking.what),
                (6, What::Woken { by, in_interrupt })
            );
        }
        assert_eq!(decoder().decode(&body(8, 0, 5, &[0; 32])), None);
    }
}
