//! Finds what FUSE or the tracer said of a call.

use super::super::by_id::ById;
use crate::opens::{Note, Noted, OpenedFile};

/// Takes out what was noted for thread `tid` between two moments, and what was before.
pub(super) fn take_note(notes: &mut ById<Vec<Note>>, tid: u32, from: u64, to: u64) -> Option<Note> {
    let own = notes.get_mut(&tid)?;
    let during = |note: &&Note| (from..=to).contains(&note.at);
    let found = own.iter().rfind(during).copied();
    own.retain(|note| note.at > to);
    found
}

/// Takes out what was told of the open that a thread is about to make: nothing else of its came since.
pub(super) fn take_announced(
    notes: &mut ById<Vec<Note>>,
    tid: u32,
    until: u64,
) -> Option<OpenedFile> {
    let own = notes.get_mut(&tid)?;
    let last = own.iter().rfind(|note| note.at <= until).copied();
    own.retain(|note| note.at > until);
    match last?.what {
        Noted::Opens(opened) => Some(opened),
        Noted::Opened(_) | Noted::Copied => None,
    }
}
