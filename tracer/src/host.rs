//! Counters of the machine, read a few times a second, so that "the disk was busy" can be distinguished from
//! "the step was slow".
//!
//! Totals are recorded as the kernel reports them, and only those that have changed: about 30 rows of 15
//! bytes for each sample of a busy machine.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowtrace_schema::{CounterRecord, HostCounter, HostId, HostSample, Record, Recorder};
use nix::time::{ClockId, clock_gettime};

use crate::clock::Clock;

pub(crate) mod files;

use files::Parser;
pub use files::Values;

/// Sampler that writes counters of the machine into a trace.
pub(crate) struct HostSampler {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// Settings of a sampler of the machine.
pub(crate) struct Setup {
    pub(crate) hertz: u32,
    pub(crate) host: HostId,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    /// CPU time that the sampling of threads has taken so far, ns.
    pub(crate) sampler_ns: Option<Arc<AtomicU64>>,
}

impl HostSampler {
    /// Takes a first sample soon, others at the configured rate, and a last one when the value is dropped.
    /// Returns `None` if no thread can be started for it; the run then goes on without samples.
    pub(crate) fn start(setup: Setup) -> Option<HostSampler> {
        if setup.hertz == 0 {
            return None;
        }
        let stop = Arc::<(Mutex<bool>, Condvar)>::default();
        let work = {
            let stop = Arc::clone(&stop);
            move || run(setup, &stop)
        };
        let thread = std::thread::Builder::new().name("host-sampler".into());
        let thread = Some(thread.spawn(work).ok()?);
        Some(HostSampler { stop, thread })
    }
}

impl Drop for HostSampler {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(setup: Setup, stop: &(Mutex<bool>, Condvar)) {
    let period = Duration::from_secs(1) / setup.hertz;
    let mut sources = Sources::open();
    let mut counters = Counters::new(setup);
    let mut next = Instant::now();
    loop {
        counters.sample(&mut sources);
        // A missed round is left out.
        next = (next + period).max(Instant::now());
        let stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = next.saturating_duration_since(Instant::now());
        let waited = stop
            .1
            .wait_timeout_while(stopped, left, |stopped| !*stopped);
        let (stopped, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *stopped {
            break;
        }
    }
    counters.sample(&mut sources);
}

/// The files of /proc that have counters of the machine, kept open. Files that the kernel does not have are
/// left out.
#[derive(Debug)]
pub struct Sources {
    files: Vec<(File, Parser)>,
    buffer: Vec<u8>,
}

impl Sources {
    /// Opens each file once.
    pub fn open() -> Sources {
        let files = files::ALL
            .iter()
            .filter_map(|&(path, parser)| Some((File::open(path).ok()?, parser)));
        Sources {
            files: files.collect(),
            buffer: vec![0; 16 * 1024],
        }
    }

    /// Calls `values` for every counter, and for counters of devices once for each device.
    pub fn read(&mut self, values: &mut Values<'_>) {
        for (file, parser) in &self.files {
            let mut length = 0;
            loop {
                if length == self.buffer.len() {
                    self.buffer.resize(2 * length, 0);
                }
                match file.read_at(&mut self.buffer[length..], length as u64) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => length += read,
                }
            }
            parser(&String::from_utf8_lossy(&self.buffer[..length]), values);
        }
    }
}

/// A counter that has been recorded, or is 0.
struct Known {
    id: Option<u32>,
    value: u64,
}

/// Counters with their last recorded values.
struct Counters {
    setup: Setup,
    known: HashMap<HostCounter, HashMap<Box<str>, Known>>,
    ids: u32,
}

impl Counters {
    fn new(setup: Setup) -> Counters {
        Counters {
            setup,
            known: HashMap::new(),
            ids: 0,
        }
    }

    fn sample(&mut self, sources: &mut Sources) {
        let t_ns = self.setup.clock.now();
        sources.read(&mut |counter, device, value| self.set(t_ns, counter, device, value));
        let own = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let own = own.map_or(0, |time| Duration::from(time).as_nanos() as u64);
        self.set(t_ns, HostCounter::FlowtraceCpu, None, own);
        if let Some(used) = &self.setup.sampler_ns {
            let used = used.load(Ordering::Relaxed);
            self.set(t_ns, HostCounter::FlowtraceSamplerCpu, None, used);
        }
    }

    fn set(&mut self, t_ns: u64, counter: HostCounter, device: Option<&str>, value: u64) {
        let devices = self.known.entry(counter).or_default();
        let key = device.unwrap_or_default();
        let known = match devices.get_mut(key) {
            Some(known) if known.value == value => return,
            Some(known) => known,
            None => devices
                .entry(key.into())
                .or_insert(Known { id: None, value }),
        };
        known.value = value;
        let id = match known.id {
            Some(id) => id,
            None if value == 0 => return,
            None => {
                self.ids += 1;
                known.id = Some(self.ids);
                let (_, unit, meaning) = counter.describe();
                self.setup
                    .recorder
                    .record(Record::Counter(Box::new(CounterRecord {
                        id: self.ids,
                        name: counter.name(device),
                        unit,
                        meaning,
                    })));
                self.ids
            }
        };
        self.setup.recorder.record(Record::HostSample(HostSample {
            t_ns,
            host: self.setup.host,
            counter: id,
            value,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_kept() {
        let (clock, _) = Clock::start();
        let mut counters = Counters::new(Setup {
            hertz: 1,
            host: HostId(1),
            clock,
            recorder: Recorder::nowhere(),
            sampler_ns: None,
        });
        let id = |counters: &Counters| counters.known[&HostCounter::SwapIn][""].id;
        counters.set(0, HostCounter::SwapIn, None, 0);
        assert_eq!(id(&counters), None);
        counters.set(1, HostCounter::SwapIn, None, 4096);
        assert_eq!(id(&counters), Some(1));
        counters.set(2, HostCounter::DiskReads, Some("sda"), 1);
        counters.set(3, HostCounter::SwapIn, None, 0);
        assert_eq!(counters.ids, 2);
    }

    /// Every kind of file that this kernel has yields its counters.
    #[test]
    fn this_machine_can_be_read() {
        let mut found = Vec::new();
        Sources::open().read(&mut |counter, _, value| found.push((counter, value)));
        let value = |counter| found.iter().find(|(c, _)| *c == counter).map(|(_, v)| *v);
        assert!(value(HostCounter::CpuIdle).is_some_and(|ns| ns > 0));
        assert!(value(HostCounter::Switches).is_some_and(|count| count > 0));
        assert!(value(HostCounter::Running).is_some_and(|count| count > 0));
        assert!(value(HostCounter::MemoryAvailable).is_some_and(|bytes| bytes > 1 << 20));
        assert!(value(HostCounter::MajorFaults).is_some());
        assert!(value(HostCounter::NetReceiveBytes).is_some(), "at least lo");
        if std::path::Path::new("/proc/pressure/io").exists() {
            assert!(value(HostCounter::PressureIoFull).is_some());
        }
    }
}
