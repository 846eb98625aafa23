//! Loads the packets of a program from a trace.

mod chosen;
mod connections;
mod flows;
mod growing;
mod other_flows;
mod packets;
mod selection;

pub use connections::Connections;
pub use growing::Growing;
pub use selection::{By, Selection};
