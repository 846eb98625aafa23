//! Agent and collector with sockets and a trace.

mod agent;
mod collect;
mod connections;

pub use agent::{AgentOptions, AgentReport, run as agent};
pub use collect::{
    CollectError, CollectOptions, CollectReport, Control, NodeState, run as collect,
};

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowtrace_schema::HostCounter;
use flowtrace_tracer::host::Sources;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

use crate::wire::Totals;

/// Name of the loopback interface.
const LOOPBACK: &str = "lo";

/// A flag that is set when the user, or the system, asks this process to end. Threads that are started later
/// do not get these signals.
///
/// # Errors
/// If there can be no thread for it.
fn asked_to_end() -> io::Result<Arc<AtomicBool>> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None)?;
    let flag = Arc::<AtomicBool>::default();
    let asked = Arc::clone(&flag);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            while signals.wait().is_ok() {
                asked.store(true, Ordering::Release);
            }
        })?;
    Ok(flag)
}

/// The counters of this machine as one number each: devices are summed, the loopback left out.
fn totals(sources: &mut Sources) -> Totals {
    let mut sums: Vec<Option<u64>> = vec![None; HostCounter::ALL.len()];
    sources.read(&mut |counter, device, value| {
        if device != Some(LOOPBACK) {
            let sum = &mut sums[counter as usize];
            *sum = Some(sum.unwrap_or(0).saturating_add(value));
        }
    });
    let known = sums.into_iter().zip(0u8..);
    known
        .filter_map(|(sum, counter)| Some((counter, sum?)))
        .collect()
}

/// A frame on the reliable channel: length, then a message.
mod frame {
    use std::io::{self, Read, Write};

    use crate::wire::LONGEST;

    pub(super) fn write(out: &mut impl Write, message: &[u8]) -> io::Result<()> {
        let length = u16::try_from(message.len()).map_err(io::Error::other)?;
        let mut frame = length.to_le_bytes().to_vec();
        frame.extend_from_slice(message);
        out.write_all(&frame)
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut length = [0; 2];
        from.read_exact(&mut length)?;
        let length = usize::from(u16::from_le_bytes(length));
        if length > LONGEST {
            return Err(io::Error::other("too long for a message"));
        }
        let mut message = vec![0; length];
        from.read_exact(&mut message)?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests;
