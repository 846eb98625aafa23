//! The order of a recording: prepare, mount, start, follow, flush. There is one file per kind of session and
//! one per concern of starting a command.

mod apart;
mod attach;
mod capture;
mod daemon;
mod detach;
mod directory;
mod ending;
mod error;
mod front;
mod halt;
mod inherited;
mod launch;
mod limits;
mod mounts;
mod nested;
mod origin;
mod pending_signals;
mod program;
mod recorder_process;
mod recording;
mod run;
mod seeing;
mod serving;
mod signal_group_probe;
mod signals;
mod timers;
mod trace_files;
pub(crate) mod transport;

pub use crate::proc::environment::Wanted;
pub use crate::proc::lifetimes::{End, LeftBehind};
pub use attach::{Attach, AttachOptions, AttachReport};
pub use capture::{CaptureOptions, CaptureReport, capture};
pub use daemon::{Fork, fork_daemon};
pub use detach::{DetachError, Detached, Holder, detach};
pub use ending::end_by;
pub use error::{Error, Result};
pub use front::{Front, Side, fork_behind};
pub use origin::small_stack;
pub use recording::{HOST, RUN, Recording, this_host};
pub use run::{Background, Coverage, Following, Notice, RunOptions, RunReport, run};
pub use seeing::{Layer, Seeing};
pub use transport::Transport;
