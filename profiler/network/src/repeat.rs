//! Iterations from the sequence of messages.
//!
//! A program that iterates sends the same messages again. The ends of its messages therefore repeat in
//! the stream of bytes from one process to another, at a fixed distance: the bytes of one iteration.
//! The distance does not depend on time, so load, start-up and jitter do not change it. Three
//! iterations are enough, where a spectrum needs many. Sizes may differ a little from one iteration to
//! the next (as in an integer sort). A stream of equal messages has no distance of its own; there the
//! order of the receivers repeats (`by_order`).
//!
//! Loops may be nested: 26 rounds, something else, and all of it 15 times. The inner distance explains
//! nearly all messages, the outer one all but chance. The outer distance is the repetition if it
//! explains most of the messages that the inner one leaves. The inner one is then kept too ([`Inner`]).

use std::sync::Arc;

use crate::messages::{self, Message};
use crate::plain;
use crate::run::{Run, Unknown};

mod by_order;
mod by_size;
mod iteration;
mod significance;

use by_size::by_size;
pub(crate) use by_size::repetitions;
pub use iteration::{Inner, Iterations, Repetition};
pub(crate) use iteration::{lengths, mean_length};

/// The iterations of a run.
///
/// # Errors
/// When the interval holds no packet.
pub fn of_run(run: &Run) -> Result<Option<Arc<Iterations>>, Unknown> {
    let found = messages::messages(run)?;
    let look = || {
        let of_order = || by_order::iterations(&found, &*plain::of_run(run).ok()?);
        let found = by_size(&found).or_else(of_order)?;
        Some(Arc::new(found.with_spread()))
    };
    Ok(run.once(look))
}

/// Searches iterations in the messages of a run: by their sizes, or by the order of their receivers if
/// all sizes are alike. `None` if nothing repeats.
pub fn iterations(messages: &[Message]) -> Option<Iterations> {
    let found = by_size(messages);
    let found = found.or_else(|| by_order::iterations(messages, &plain::pairs(messages)))?;
    Some(found.with_spread())
}
