//! When the limit of a run is searched.

use std::time::{Duration, Instant};

use flowtrace_schema::Result;

use super::follower::Follower;
use super::limit::Limiting;

/// What limits a run, searched anew from time to time.
#[derive(Debug)]
pub struct Search {
    every: Duration,
    due: Instant,
    found: Limiting,
}

impl Search {
    /// Searches after a time for the first time.
    pub fn new(first: Duration, every: Duration) -> Search {
        Search {
            every,
            due: Instant::now() + first,
            found: Limiting::default(),
        }
    }

    /// What limits the run, as it was found last. Searches if it is time, and all that is there was read.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn limiting(&mut self, follower: &Follower) -> Result<&Limiting> {
        if !follower.is_behind && Instant::now() >= self.due {
            self.found = follower.limiting()?;
            self.due = Instant::now() + self.every;
        }
        Ok(&self.found)
    }
}
