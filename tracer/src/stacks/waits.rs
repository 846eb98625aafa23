//! Samples of threads that waited, by eBPF programs at switches between threads and at returns of calls
//! (tracer/bpf/stacks.bpf.c). They go into the rings of the other samples.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::perf::{Event, Settings};
use crate::bpf::object::Use;
use crate::bpf::objects::{self, Source};
use crate::bpf::traced_pids::TracedPids;
use crate::bpf::{Kind, Map, attach};

/// Most samples of a CPU in a tenth of a second: of a thousand threads that wait, not each one is sampled each time.
/// What was not sampled counts for the thread's next sample.
const MOST: u64 = 40;

/// The programs run as long as this lives.
#[derive(Debug)]
pub(super) struct Waits {
    /// The kernel takes the events out of the map when this descriptor is closed.
    _map: Map,
    _owned: [Vec<OwnedFd>; 3],
}

impl Waits {
    /// Begins to sample the threads of `traced` that were blocked for a period, into the rings of `events`.
    ///
    /// # Errors
    /// When the kernel refuses such programs or events.
    pub(super) fn sample(
        events: &[Event],
        settings: Settings,
        traced: &TracedPids,
    ) -> io::Result<Waits> {
        let map = Map::new(Kind::Events, 4, crate::cpus::array_length()?)?;
        let mut outputs = Vec::with_capacity(events.len());
        for event in events {
            let output = event.open_for_programs(settings)?;
            map.put(event.cpu(), &(output.as_raw_fd() as u32))?;
            outputs.push(output);
        }
        let config = [settings.period_ns.to_ne_bytes(), MOST.to_ne_bytes()].concat();
        let mut uses = vec![
            ("events", Use::Shared(map.as_fd())),
            (".rodata", Use::Value(&config)),
        ];
        uses.extend(traced.uses());
        let loaded = objects::open(Source::Stacks)?.load(&["switched", "returned"], &uses)?;
        let links = loaded.programs.iter().map(attach);
        let links = links.collect::<io::Result<_>>()?;
        Ok(Waits {
            _map: map,
            _owned: [links, loaded.programs, outputs],
        })
    }
}
