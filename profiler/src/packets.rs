//! Packets of a trace, for network inference: processes have the names of their rules.

use std::collections::HashMap;

use flowtrace_network::load::{By, Connections, Selection};
use flowtrace_network::{Run, Unknown};
use flowtrace_schema::{Result, Trace};

use crate::rules;

/// Loads the packets of the program's TCP connections.
///
/// # Errors
/// When the file cannot be read; the inner error when the requested host does not exist.
pub fn load(trace: &Trace, selection: &Selection) -> Result<std::result::Result<Run, Unknown>> {
    let connections = Connections::read(trace)?;
    let labels = labels(trace, connections.by(selection))?;
    connections.load(trace, selection, &labels)
}

/// Names of process images by upid, where nodes are processes; none otherwise.
///
/// # Errors
/// When the file cannot be read.
pub fn labels(trace: &Trace, by: By) -> Result<HashMap<i64, String>> {
    match by {
        By::Process => rules::labels(trace),
        By::Host | By::Endpoint => Ok(HashMap::new()),
    }
}
