//! Packets of a run, and the settings of every analysis: nodes, interval, options.

mod accounting;
mod answer;
mod build;
mod coverage;
mod data;
mod interval;
mod memo;
mod nearest;
mod packet;
mod settings;

pub use accounting::TimeAccounting;
pub use answer::{Answer, Known, Unknown};
pub use build::{CaptureInput, PacketInput};
pub use coverage::{Coverage, OtherFlows};
pub use data::Capture;
pub(crate) use data::{Data, RoundTrips};
pub use interval::Run;
pub use packet::{ACK, FIN, Node, PSH, Packet, RST, SYN};
pub use settings::{Averaging, Mode, Settings, Unit};
