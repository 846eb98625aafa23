//! Sampling events of the kernel (perf_event_open(2)), one for each CPU, and the ring in which each writes.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::Mapping;

const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const BPF_OUTPUT: u64 = 10;

/// Parts of a sample, in the order in which they lie in it.
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const CALLCHAIN: u64 = 1 << 5;
const RAW: u64 = 1 << 10;
const REGS_USER: u64 = 1 << 12;
const STACK_USER: u64 = 1 << 13;

/// The registers that unwinding needs: ax to ip, and r8 to r15 (asm/perf_regs.h of x86).
pub(super) const REGISTERS: u64 = 0x1ff | 0xff << 16;

/// All samples have the same parts.
const SAMPLE: u64 = TID | TIME | CALLCHAIN | RAW | REGS_USER | STACK_USER;

/// Flags of an event (bit fields of `struct perf_event_attr`).
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const EXCLUDE_IDLE: u64 = 1 << 7;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_KERNEL_CHAIN: u64 = 1 << 21;
const EXCLUDE_USER_CHAIN: u64 = 1 << 22;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCK: u64 = 1 << 25;
const BUILD_ID: u64 = 1 << 34;

const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_ENABLE`, `PERF_EVENT_IOC_SET_OUTPUT`.
const ENABLE: libc::Ioctl = 0x2400;
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// `struct perf_event_attr` in its size of Linux 5.13.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_interrupt: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved_2: u16,
    aux_sample_size: u32,
    reserved_3: u32,
    signal_data: u64,
}

/// The tasks that are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of the machine, in the kernel, too; the reader selects those of the run. A process is sampled
    /// however short it is, in proportion to its CPU time.
    Machine,
    /// A process from its next exec on and its descendants, outside the kernel.
    Descendants {
        /// The process.
        of: u32,
    },
}

/// Settings of all events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) scope: Scope,
    /// CPU time between samples, ns.
    pub(super) period_ns: u64,
    /// Bytes of the user's stack in each sample; a multiple of 8 less than 64 KiB.
    pub(super) stack_bytes: u32,
    /// Bytes of a ring, a power of 2 of at least a page.
    pub(super) ring_bytes: usize,
}

/// The event of one CPU.
#[derive(Debug)]
pub(super) struct Event {
    cpu: u32,
    fd: OwnedFd,
    ring: Ring,
}

impl Event {
    /// Opens the event of `cpu`, not yet counting, with a ring that may be smaller than requested.
    ///
    /// # Errors
    /// If the kernel refuses (`EACCES`, `EPERM`: `perf_event_paranoid`), or has no memory for a ring.
    pub(super) fn open(settings: Settings, cpu: u32) -> io::Result<Event> {
        let (pid, own) = match settings.scope {
            Scope::Machine => (-1, EXCLUDE_IDLE),
            Scope::Descendants { of } => {
                let own = INHERIT | ENABLE_ON_EXEC | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
                (of as libc::pid_t, own)
            }
        };
        let mut attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: CPU_CLOCK,
            period: settings.period_ns,
            sample_type: SAMPLE,
            flags: own
                | DISABLED
                | MMAP
                | MMAP2
                | COMM
                | COMM_EXEC
                | TASK
                | WATERMARK
                | SAMPLE_ID_ALL
                | EXCLUDE_USER_CHAIN
                | USE_CLOCK
                | BUILD_ID,
            sample_regs_user: REGISTERS,
            sample_stack_user: settings.stack_bytes,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let mut ring_bytes = settings.ring_bytes;
        loop {
            attributes.wakeup = ring_bytes as u32 / 4;
            let fd = open(&attributes, pid, cpu)?;
            match Ring::map(fd.as_fd(), ring_bytes) {
                Ok(ring) => return Ok(Event { cpu, fd, ring }),
                // The locked memory of an ordinary user is limited (perf_event_mlock_kb).
                Err(error)
                    if error.raw_os_error() == Some(libc::EPERM)
                        && ring_bytes / 2 >= 4 * settings.stack_bytes as usize =>
                {
                    ring_bytes /= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The CPU.
    pub(super) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Begins to count, for an event that does not wait for an exec.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn enable(&self) -> io::Result<()> {
        control(self.fd.as_fd(), ENABLE, 0)
    }

    /// Opens an event of the same CPU by which an eBPF program samples the thread that runs it
    /// (`bpf_perf_event_output`), into the same ring.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn open_for_programs(&self, settings: Settings) -> io::Result<OwnedFd> {
        let attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: BPF_OUTPUT,
            period: 1,
            sample_type: SAMPLE,
            flags: SAMPLE_ID_ALL | EXCLUDE_KERNEL_CHAIN | EXCLUDE_USER_CHAIN | USE_CLOCK,
            sample_regs_user: REGISTERS,
            sample_stack_user: settings.stack_bytes,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let fd = open(&attributes, -1, self.cpu)?;
        control(fd.as_fd(), SET_OUTPUT, self.fd.as_raw_fd())?;
        Ok(fd)
    }

    /// Calls `record` with each complete record, header included.
    pub(super) fn drain(&mut self, record: impl FnMut(&[u8])) {
        self.ring.drain(record);
    }
}

/// Readable when a quarter of the ring is full.
impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn control(fd: BorrowedFd<'_>, request: libc::Ioctl, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: these requests take no memory.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn open(attributes: &Attributes, pid: libc::pid_t, cpu: u32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads the attributes, of which `size` has the size.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            pid,
            cpu as libc::c_int,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    match fd {
        0.. => {
            // SAFETY: a new descriptor, which nothing else owns.
            Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of the first page, which has the positions; the records follow.
const PAGE: usize = 4096;
/// Places in the first page: position of the writer, position of the reader.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// Bytes of the header of a record: kind (4), flags (2), size of all (2).
pub(super) const HEADER: usize = 8;

/// The memory that the kernel fills with records.
#[derive(Debug)]
struct Ring {
    mapping: Mapping,
    size: usize,
    /// A record that goes round the end.
    joined: Vec<u8>,
}

impl Ring {
    fn map(of: BorrowedFd<'_>, size: usize) -> io::Result<Ring> {
        Ok(Ring {
            mapping: Mapping::shared(of, 0, PAGE + size)?,
            size,
            joined: Vec::new(),
        })
    }

    fn drain(&mut self, mut record: impl FnMut(&[u8])) {
        let start = self.mapping.start().as_ptr();
        // SAFETY: aligned words of the first page, which both sides access as one.
        let (head, tail) = unsafe {
            (
                &*start.add(HEAD).cast::<AtomicU64>(),
                &*start.add(TAIL).cast::<AtomicU64>(),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        // SAFETY: the data lies behind the first page. The kernel writes only outside of `at..end` until
        // `tail` says that these were read.
        let data = unsafe { std::slice::from_raw_parts(start.add(PAGE), self.size) };
        while end.wrapping_sub(at) >= HEADER as u64 {
            let place = at as usize & (self.size - 1);
            // Records are aligned to 8 bytes, so no header goes round the end.
            let size = usize::from(u16::from_ne_bytes([data[place + 6], data[place + 7]]));
            if size < HEADER || size as u64 > end.wrapping_sub(at) {
                // This kernel does not write such a record: nothing after it can be trusted.
                at = end;
                break;
            }
            match data.get(place..place + size) {
                Some(whole) => record(whole),
                None => {
                    let first = &data[place..];
                    self.joined.clear();
                    self.joined.extend_from_slice(first);
                    self.joined.extend_from_slice(&data[..size - first.len()]);
                    record(&self.joined);
                }
            }
            at = at.wrapping_add(size as u64);
        }
        tail.store(at, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_size_of_the_kernel() {
        assert_eq!(size_of::<Attributes>(), 128);
        assert_eq!(REGISTERS.count_ones(), 17);
    }
}
