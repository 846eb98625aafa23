//! How a run ended, and what of it goes on.

use flowtrace_schema::Summary;

use super::super::serving::Served;
use super::super::views::Views;
use crate::proc::lifetimes::End;

/// How a run ended.
#[derive(Debug)]
pub struct RunReport {
    /// How the command ended.
    pub end: End,
    /// What became of the trace; `None` without recording.
    pub trace: Option<Summary>,
    /// Views that processes which were let go still use.
    pub background: Option<Background>,
}

/// The views of a run that is over, for the processes that live on in them.
#[derive(Debug)]
pub struct Background {
    pub(super) views: Views,
    pub(super) served: Served,
}

impl Background {
    /// Serves the views until nobody can reach them any more.
    pub fn serve(mut self) {
        self.views.unmount_when_unused();
        self.served.join();
    }
}
