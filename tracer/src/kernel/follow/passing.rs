//! Descriptors on their way from process to process, in messages (`SCM_RIGHTS` of unix(7)).

use std::collections::HashMap;

use super::super::sample::OpenId;
use super::super::table::Sent;

/// So many are remembered: whoever sends more, and receives none, has them looked at when they are used.
const MOST: usize = 1 << 16;

/// What is under way, as its sender knew it. That it was received is no end: somebody may have looked at the message alone
/// (`MSG_PEEK`), or sent it to others as well.
#[derive(Debug, Default)]
pub(super) struct Passing(HashMap<OpenId, Sent>);

impl Passing {
    /// This open file is sent. `None`: its sender does not know what it is.
    pub(super) fn send(&mut self, open: OpenId, sent: Option<Sent>) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        match sent {
            Some(sent) => self.0.insert(open, sent),
            None => self.0.remove(&open),
        };
    }

    /// What its sender knew of this open file.
    pub(super) fn get(&self, open: &OpenId) -> Option<&Sent> {
        self.0.get(open)
    }
}
