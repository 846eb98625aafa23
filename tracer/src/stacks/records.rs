//! Records of sampling events, as the kernel writes them into a ring (`enum perf_event_type`).

use super::perf::{HEADER, REGISTERS};
use crate::merge::Timed;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;

/// Flags in the header of a record.
const COMM_EXEC: u16 = 1 << 13;
const MMAP_BUILD_ID: u16 = 1 << 14;

/// In a call chain, what follows are addresses of the kernel; a chain has such marks from here on.
const CONTEXT_KERNEL: u64 = -128i64 as u64;
const CONTEXT_MAX: u64 = -4095i64 as u64;

/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

/// Bytes behind each record but samples: process, thread, time.
const TRAILER: usize = 16;

/// Number of user registers in a sample.
const REGISTER_COUNT: usize = REGISTERS.count_ones() as usize;

/// A record, with the time of `CLOCK_MONOTONIC` in ns.
#[derive(Debug, PartialEq)]
pub(super) struct Record {
    pub(super) time: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) what: What,
}

impl Timed for Record {
    fn time(&self) -> u64 {
        self.time
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum What {
    /// A thread was on a CPU, or has waited.
    Sample(Box<Sample>),
    /// Executable memory was mapped.
    Mapped(Box<Mapped>),
    /// The process runs a new program.
    Exec { name: Vec<u8> },
    /// A process or, of the same process, a thread was made.
    Fork { parent: u32 },
    /// A thread ended.
    Exit,
    /// Records found no space.
    Lost(u64),
}

/// State of a thread.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    /// Time of waiting for which the sample stands, ns; `None`: it was on a CPU.
    pub(super) blocked_ns: Option<u64>,
    /// Addresses in the kernel, innermost first; all but the first are return addresses.
    pub(super) kernel: Vec<u64>,
    /// Registers in the order of [`REGISTERS`]; `None`: not known, or of a 32-bit program.
    pub(super) registers: Option<[u64; REGISTER_COUNT]>,
    /// Memory from the stack pointer on.
    pub(super) stack: Vec<u8>,
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mapped {
    pub(super) start: u64,
    pub(super) length: u64,
    /// Offset in the file, bytes.
    pub(super) offset: u64,
    pub(super) identity: Identity,
    /// Path as the process sees it, or a name in brackets.
    pub(super) path: Vec<u8>,
}

/// Identity of a mapped file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    /// Build id of the ELF file.
    Build(Vec<u8>),
    /// Major and minor number of the device, and inode.
    Inode(u32, u32, u64),
}

/// Reads values from the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

/// True if a record is a sample.
pub(super) fn is_sample(record: &[u8]) -> bool {
    record
        .first_chunk()
        .is_some_and(|kind| u32::from_ne_bytes(*kind) == SAMPLE)
}

/// Parses a record with its header; `None`: of no interest, or cut.
pub(super) fn parse(record: &[u8]) -> Option<Record> {
    let mut header = Reader(record.get(..HEADER)?);
    let kind = header.u32()?;
    let flags = u16::from_ne_bytes(header.bytes(2)?.try_into().ok()?);
    let body = &record[HEADER..];
    if kind == SAMPLE {
        return sample(&mut Reader(body));
    }
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let mut trailer = Reader(trailer);
    let (pid, tid, time) = (trailer.u32()?, trailer.u32()?, trailer.u64()?);
    let mut body = Reader(body);
    let other = |what| {
        Some(Record {
            time,
            pid,
            tid,
            what,
        })
    };
    match kind {
        MMAP2 => {
            let (pid, tid) = (body.u32()?, body.u32()?);
            Some(Record {
                time,
                pid,
                tid,
                what: What::Mapped(Box::new(mapped(&mut body, flags)?)),
            })
        }
        COMM if flags & COMM_EXEC != 0 => {
            let (pid, tid) = (body.u32()?, body.u32()?);
            Some(Record {
                time,
                pid,
                tid,
                what: What::Exec {
                    name: text(body.0).to_vec(),
                },
            })
        }
        FORK | EXIT => {
            let (pid, parent, tid) = (body.u32()?, body.u32()?, body.u32()?);
            Some(Record {
                time,
                pid,
                tid,
                what: match kind {
                    FORK => What::Fork { parent },
                    _ => What::Exit,
                },
            })
        }
        LOST => {
            body.u64()?;
            other(What::Lost(body.u64()?))
        }
        LOST_SAMPLES => other(What::Lost(body.u64()?)),
        _ => None,
    }
}

fn sample(body: &mut Reader<'_>) -> Option<Record> {
    let (pid, tid, time) = (body.u32()?, body.u32()?, body.u64()?);
    let mut kernel = Vec::new();
    let mut is_kernel = false;
    for _ in 0..body.u64()? {
        match body.u64()? {
            CONTEXT_KERNEL => is_kernel = true,
            CONTEXT_MAX.. => is_kernel = false,
            address if is_kernel => kernel.push(address),
            _ => {}
        }
    }
    // Padded to a multiple of 8 together with its size. The kernel's own samples have nothing here.
    let size = usize::try_from(body.u32()?).ok()?;
    let mut raw = Reader(body.bytes(size)?);
    let blocked_ns = raw.u64();
    let abi = body.u64()?;
    let mut registers = [0; REGISTER_COUNT];
    if abi != 0 {
        for register in &mut registers {
            *register = body.u64()?;
        }
    }
    let size = usize::try_from(body.u64()?).ok()?;
    let stack = match size {
        0 => &[][..],
        _ => {
            let all = body.bytes(size)?;
            let copied = usize::try_from(body.u64()?).ok()?;
            &all[..copied.min(size)]
        }
    };
    Some(Record {
        time,
        pid,
        tid,
        what: What::Sample(Box::new(Sample {
            blocked_ns,
            kernel,
            registers: (abi == ABI_64).then_some(registers),
            stack: stack.to_vec(),
        })),
    })
}

fn mapped(body: &mut Reader<'_>, flags: u16) -> Option<Mapped> {
    let (start, length, offset) = (body.u64()?, body.u64()?, body.u64()?);
    let mut identity = Reader(body.bytes(24)?);
    let identity = match flags & MMAP_BUILD_ID {
        0 => Identity::Inode(identity.u32()?, identity.u32()?, identity.u64()?),
        _ => {
            let size = usize::from(identity.u32()? as u8);
            Identity::Build(identity.0.get(..size)?.to_vec())
        }
    };
    // Protection and flags.
    body.bytes(8)?;
    Some(Mapped {
        start,
        length,
        offset,
        identity,
        path: text(body.0).to_vec(),
    })
}

/// The bytes before the first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Any bytes as a record.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Some(record) = parse(bytes)
        && let What::Sample(sample) = record.what
    {
        assert!(sample.stack.len() <= bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(((HEADER + body.len()) as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn trailer() -> Vec<u8> {
        let mut bytes = [7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat();
        bytes.extend(99u64.to_ne_bytes());
        bytes
    }

    /// A sample with nothing of a program (4 bytes), or with the time of a wait, which is padded.
    fn sample_with(raw: &[u8]) -> Vec<u8> {
        let mut body = [7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat();
        body.extend(99u64.to_ne_bytes());
        for word in [
            3,
            CONTEXT_KERNEL,
            0xffff_ffff_8100_0000,
            0xffff_ffff_8100_0100,
        ] {
            body.extend(word.to_ne_bytes());
        }
        body.extend((raw.len() as u32).to_ne_bytes());
        body.extend(raw);
        body.extend(ABI_64.to_ne_bytes());
        (0..REGISTER_COUNT as u64).for_each(|register| body.extend(register.to_ne_bytes()));
        body.extend(16u64.to_ne_bytes());
        body.extend([5; 16]);
        body.extend(9u64.to_ne_bytes());
        record(SAMPLE, 0, &body)
    }

    #[test]
    fn a_sample_has_its_kernel_part_registers_and_stack() {
        let bytes = sample_with(&[0; 4]);
        let parsed = parse(&bytes).unwrap();
        assert_eq!((parsed.pid, parsed.tid, parsed.time), (7, 8, 99));
        let What::Sample(sample) = parsed.what else {
            panic!("not a sample")
        };
        assert_eq!(sample.kernel.len(), 2);
        assert_eq!(sample.registers.unwrap()[8], 8);
        assert_eq!(sample.stack, [5; 9]);
        assert_eq!(sample.blocked_ns, None);
        // Every cut record is refused.
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_sample_of_a_program_has_the_time_of_a_wait() {
        let raw = [&7_000_000u64.to_ne_bytes()[..], &[0; 4]].concat();
        let What::Sample(sample) = parse(&sample_with(&raw)).unwrap().what else {
            panic!("not a sample")
        };
        assert_eq!(sample.blocked_ns, Some(7_000_000));
        assert_eq!(sample.stack, [5; 9]);
    }

    #[test]
    fn mappings_have_a_build_id_or_an_inode() {
        let body = |identity: &[u8; 24]| {
            let mut body = [7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat();
            for word in [0x1000u64, 0x2000, 0x3000] {
                body.extend(word.to_ne_bytes());
            }
            body.extend(identity);
            body.extend([0; 8]);
            body.extend(b"/bin/true\0\0\0\0\0\0\0");
            body.extend(trailer());
            body
        };
        let mut identity = [0; 24];
        identity[0] = 3;
        identity[4..7].copy_from_slice(&[1, 2, 3]);
        let parsed = parse(&record(MMAP2, MMAP_BUILD_ID, &body(&identity))).unwrap();
        let What::Mapped(mapped) = parsed.what else {
            panic!("no mapping")
        };
        assert_eq!(mapped.path, b"/bin/true");
        assert_eq!(mapped.identity, Identity::Build(vec![1, 2, 3]));
        identity[0] = 25;
        assert_eq!(
            parse(&record(MMAP2, MMAP_BUILD_ID, &body(&identity))),
            None,
            "a longer id than there is space"
        );
        let parsed = parse(&record(MMAP2, 0, &body(&identity))).unwrap();
        let What::Mapped(mapped) = parsed.what else {
            panic!("no mapping")
        };
        assert!(matches!(mapped.identity, Identity::Inode(25, _, 0)));
    }
}
