//! Rings of tracepoint records, one for each CPU (perf_event_open(2)).
//!
//! Wakings, and requests to devices, of the whole machine. Those of one CPU share a ring. Records without space
//! are dropped by the kernel, which counts them.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::sample::Sample;
use super::tracefs::TraceFs;
use super::{block, ring_size, sched};
use crate::cpus;
use crate::mapping::Mapping;

/// Filter that leaves out records of the idle task of a CPU.
const NOT_BY_IDLE: &std::ffi::CStr = c"common_pid != 0";
const TYPE_TRACEPOINT: u32 = 2;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const OPEN_CLOEXEC: libc::c_ulong = 8;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const HEADER: usize = 8;

/// `struct perf_event_attr` as of its sixth version (`PERF_ATTR_SIZE_VER5`); members that are not named here
/// are 0.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// The rings of all CPUs.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(super) rings: Vec<Ring>,
    decoder: sched::Decoder,
    /// `None`: the kernel has no such tracepoints.
    requests: Option<Box<block::Decoder>>,
    /// The events, which live as long as these are open, except the first one of each ring, which is in the
    /// ring.
    events: Vec<OwnedFd>,
}

/// One ring.
#[derive(Debug)]
pub(super) struct Ring {
    // Unmapped before the event that it belongs to is closed.
    memory: Mapping,
    descriptor: OwnedFd,
    /// Offset of its data, and their size: a power of 2.
    data: usize,
    size: usize,
    /// A record that wraps around the end, joined.
    joined: Vec<u8>,
}

impl Rings {
    /// Begins to record the wakeups of threads, and, where the kernel can, the stages of requests to devices,
    /// other than those of idle tasks, which eBPF programs record ([`super::programs`]).
    ///
    /// # Errors
    /// When the kernel has no such tracepoints, or this process may not use them; and in a pid namespace, whose
    /// ids are not those of the scheduler.
    pub(super) fn open() -> io::Result<Rings> {
        crate::linux::in_first_pid_namespace()?;
        let tracefs = TraceFs::open().map_err(|e| named(&e, "tracefs"))?;
        let waking = tracefs.format("sched/sched_waking");
        let waking = waking.map_err(|e| named(&e, "tracepoint sched_waking"))?;
        let requests = block::Decoder::open(&tracefs).ok().map(Box::new);
        let mut events: Vec<(u64, bool)> = vec![(waking.id, true)];
        if let Some(requests) = &requests {
            let [queued, issued, done] = requests.ids();
            events.extend([(queued, false), (issued, false), (done, true)]);
        }
        let size = ring_size::of_scheduler()?;
        let decoder = sched::Decoder::new(&waking)?;
        Self::joined(decoder, requests, size, |cpu| {
            let event = |&(id, without_idle): &(u64, bool)| {
                let event = event(id, cpu, size)?;
                if without_idle {
                    set_filter(&event, NOT_BY_IDLE)?;
                }
                Ok(event)
            };
            events.iter().map(event).collect()
        })
    }

    /// Several events of each CPU in one ring.
    fn joined(
        decoder: sched::Decoder,
        requests: Option<Box<block::Decoder>>,
        size: usize,
        open: impl Fn(u32) -> io::Result<Vec<OwnedFd>>,
    ) -> io::Result<Rings> {
        let mut events = Vec::new();
        let mut rings = Vec::new();
        for cpu in cpus::online()? {
            let mut opened = open(cpu)?.into_iter();
            let first = opened.next().ok_or_else(|| io::Error::other("no event"))?;
            let ring = Ring::map(first, size)?;
            for other in opened {
                // SAFETY: both are events of this process; no memory is involved.
                let joined = unsafe {
                    libc::ioctl(
                        other.as_raw_fd(),
                        IOC_SET_OUTPUT,
                        ring.descriptor.as_raw_fd(),
                    )
                };
                check(joined)?;
                events.push(other);
            }
            rings.push(ring);
        }
        Ok(Rings {
            rings,
            decoder,
            requests,
            events,
        })
    }
}

impl Rings {
    /// True if requests to devices are recorded, too.
    pub(super) fn reports_requests(&self) -> bool {
        self.requests.is_some()
    }

    /// Calls `take` with the waiting records, and adds the number of dropped ones in between to `lost`.
    pub(super) fn drain(&mut self, mut take: impl FnMut(Sample), lost: &mut u64) {
        for ring in &mut self.rings {
            let (decoder, requests) = (&self.decoder, &self.requests);
            let sample = |body: &[u8]| {
                let request = || requests.as_ref()?.decode(body);
                let sample = decoder.decode(body).or_else(request);
                sample.into_iter().for_each(&mut take);
            };
            ring.drain(sample, lost);
        }
    }

    /// All descriptors that keep the events open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let first = self.rings.iter().map(|ring| ring.descriptor.as_fd());
        first.chain(self.events.iter().map(AsFd::as_fd))
    }
}

impl Ring {
    fn map(descriptor: OwnedFd, size: usize) -> io::Result<Ring> {
        let page = 4096;
        let memory = Mapping::shared(descriptor.as_fd(), 0, size + page);
        let memory = memory.map_err(|error| named(&error, "memory of a perf ring"))?;
        Ok(Ring {
            memory,
            descriptor,
            data: page,
            size,
            joined: Vec::new(),
        })
    }

    /// Descriptor that is ready in poll(2) when much waits.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Calls `sample` with the waiting records, and adds the number of dropped ones in between to `lost`.
    pub(super) fn drain(&mut self, mut sample: impl FnMut(&[u8]), lost: &mut u64) {
        // Offsets of `data_head` and `data_tail` in `struct perf_event_mmap_page`.
        let (head_at, tail_at) = (1024, 1032);
        let head = self.word(head_at).load(Ordering::Acquire);
        let mut tail = self.word(tail_at).load(Ordering::Relaxed);
        while tail < head {
            let header = self.header(tail);
            let (kind, length) = header;
            if length < HEADER || length > self.size {
                // This kernel does not write such a record: nothing after it can be trusted.
                tail = head;
                break;
            }
            let mut joined = std::mem::take(&mut self.joined);
            let body = self.bytes(tail + HEADER as u64, length - HEADER, &mut joined);
            match kind {
                RECORD_SAMPLE => sample(body),
                RECORD_LOST => *lost += lost_in(body).unwrap_or(1),
                _ => {}
            }
            self.joined = joined;
            tail += length as u64;
        }
        // All reads are done before the kernel may write there again.
        fence(Ordering::Release);
        self.word(tail_at).store(tail, Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is one of two aligned places in the first page, which is mapped as long as
        // `self` lives and is only accessed so by both sides.
        unsafe { &*self.memory.start().as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Type and length of the record at `position`; records begin at multiples of 8.
    fn header(&self, position: u64) -> (u32, usize) {
        let at = self.data + (position as usize & (self.size - 1));
        // SAFETY: within the mapping, because `at` is at most `size - 8` behind the first page.
        let header = unsafe {
            self.memory
                .start()
                .as_ptr()
                .add(at)
                .cast::<u64>()
                .read_unaligned()
        };
        let bytes = header.to_ne_bytes();
        let kind = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        (kind, usize::from(u16::from_ne_bytes([bytes[6], bytes[7]])))
    }

    /// `length` bytes from `position` on, which the kernel has marked as written.
    fn bytes<'ring>(
        &'ring self,
        position: u64,
        length: usize,
        joined: &'ring mut Vec<u8>,
    ) -> &'ring [u8] {
        let at = position as usize & (self.size - 1);
        // SAFETY: both ranges are within the data of the mapping, and the kernel does not write
        // there until the tail has moved past them.
        let piece = |at: usize, length: usize| unsafe {
            std::slice::from_raw_parts(self.memory.start().as_ptr().add(self.data + at), length)
        };
        if at + length <= self.size {
            return piece(at, length);
        }
        let first = self.size - at;
        joined.clear();
        joined.extend_from_slice(piece(at, first));
        joined.extend_from_slice(piece(0, length - first));
        joined
    }
}

fn lost_in(body: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(body.get(8..16)?.try_into().ok()?))
}

/// An event of all processes.
fn event(tracepoint: u64, cpu: u32, ring: usize) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_TRACEPOINT,
        size: size_of::<Attributes>() as u32,
        config: tracepoint,
        sample_period: 1,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW,
        flags: FLAG_WATERMARK | FLAG_USE_CLOCKID,
        wakeup: (ring / 4) as u32,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads `attributes` up to the size in it, and it outlives the call.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            -1,
            cpu as libc::c_int,
            -1,
            OPEN_CLOEXEC,
        )
    };
    if descriptor < 0 {
        return Err(named(&io::Error::last_os_error(), "perf_event_open"));
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

fn set_filter(event: &OwnedFd, filter: &std::ffi::CStr) -> io::Result<()> {
    // SAFETY: the kernel copies the string, which outlives the call.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_FILTER, filter.as_ptr()) };
    check(result).map_err(|e| named(&e, "filter of a tracepoint"))
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn named(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_size_of_their_version() {
        assert_eq!(size_of::<Attributes>(), 112);
    }
}
