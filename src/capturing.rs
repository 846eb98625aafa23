//! Arguments of `capture` and `run --net`: the packets to capture.

use flowtrace_net::filter::{Filter, MOST_PORTS};
use flowtrace_tracer::net::interfaces::Interface;
use flowtrace_tracer::net::live::LiveOptions;

use crate::failure::Failure;

/// Options for the named interfaces, or for all that are up if none is named.
pub(crate) fn options(
    names: &[String],
    ports: &[u16],
    snap_length: u32,
    code: u8,
) -> Result<LiveOptions, Failure> {
    let interfaces = if names.is_empty() {
        Interface::all().map_err(|error| {
            Failure::new(code, format!("cannot list the network interfaces: {error}"))
        })?
    } else {
        let mut found = Vec::new();
        for name in names {
            let interface = Interface::named(name).map_err(|_| {
                let known = Interface::all().unwrap_or_default();
                let known: Vec<_> = known.into_iter().map(|i| i.name).collect();
                Failure::new(
                    code,
                    format!("cannot capture {name}: there is no such interface"),
                )
                .hint(format!("there are: {}", known.join(", ")))
            })?;
            // One named twice is captured once.
            if !found.contains(&interface) {
                found.push(interface);
            }
        }
        found
    };
    if ports.len() > MOST_PORTS {
        return Err(Failure::new(
            code,
            format!("--port: at most {MOST_PORTS} ports can be picked"),
        ));
    }
    Ok(LiveOptions {
        interfaces,
        snap_length,
        filter: Filter {
            ports: ports.to_vec(),
        },
        owners: false,
    })
}
