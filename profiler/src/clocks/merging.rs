//! The clocks of traces that are about to become one.

use std::fs::remove_file;

use flowtrace_schema::merge::{KernelClocks, MergeOptions, merge, packets_alone};
use flowtrace_schema::{ClockCorrection, Result, Trace};

use super::relate;

/// What packets say of the clocks of the traces that `options` merges: of those whose hosts have
/// kernels of their own and captured the same packets. `None`: nothing. Their packets are merged beside the
/// output for that, and removed again. `progress` is told the table at hand and the rows done so far.
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
    // Left where it cannot be removed, it is replaced by the next merge.
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
