//! The clocks of traces that are about to be merged.

use std::fs::remove_file;

use flowtrace_schema::merge::{KernelClocks, MergeOptions, merge, packets_alone};
use flowtrace_schema::{ClockCorrection, Result, Trace};

use super::relate;

/// The clocks of the traces that `options` merges, from packets. Only traces count whose hosts have
/// kernels of their own and captured the same packets; `None` if there are none. The packets are merged
/// into a file beside the output for this, which is removed again. `progress` gets the current table
/// and the number of rows done so far.
///
/// # Errors
/// As [`merge`].
pub fn of_traces(
    options: &MergeOptions,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<Option<KernelClocks>> {
    let Some(packets) = packets_alone(options)? else {
        return Ok(None);
    };
    let clocks = merge(&packets, progress).and_then(|_| kernels(&Trace::open(&packets.output)?));
    // A file that cannot be removed is replaced by the next merge.
    let _ = remove_file(&packets.output);
    clocks
}

fn kernels(trace: &Trace) -> Result<Option<KernelClocks>> {
    let hosts = trace.hosts()?;
    let kernel_of = |id: i64| {
        let host = hosts.iter().find(|host| host.host_id == id)?;
        Some(host.boot_id.as_ref().unwrap_or(&host.host).clone())
    };
    let captures = trace.captures()?;
    let first = captures.iter().map(|capture| capture.host_id).min();
    let Some(reference) = first.and_then(kernel_of) else {
        return Ok(None);
    };
    let mut others: Vec<(String, ClockCorrection)> = Vec::new();
    for related in relate(trace)?.related {
        let Some(kernel) = kernel_of(related.host.0.into()) else {
            continue;
        };
        let error = |clock: &ClockCorrection| clock.error_ns.unwrap_or(i64::MAX);
        match others.iter_mut().find(|(name, _)| *name == kernel) {
            // Hosts of one kernel share its clock.
            _ if kernel == reference => {}
            Some((_, known)) if error(known) <= error(&related.clock) => {}
            Some((_, known)) => *known = related.clock,
            None => others.push((kernel, related.clock)),
        }
    }
    Ok((!others.is_empty()).then_some(KernelClocks { reference, others }))
}
