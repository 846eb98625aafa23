//! The note beside a trace whose writer ended before the run did: it was killed, for example for want of memory.
//! The run went on, and nothing more of it was recorded.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::beside::{NOTE, beside};
use crate::private;

/// Longest note that is read, bytes.
const LONGEST: u64 = 4096;

/// Time from which on nothing of a run was recorded, though it went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unrecorded {
    /// End of the writer, ns since 1970.
    pub from_unix_ns: i64,
    /// Signal that killed the writer; `None`: it ended by itself, which is a bug.
    pub by_signal: Option<i32>,
    /// End of the run; `None`: the run goes on, or flowtrace was killed, too.
    pub end: Option<UnrecordedEnd>,
}

/// End of a run that was not recorded any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnrecordedEnd {
    /// Time, ns since 1970.
    pub unix_ns: i64,
    /// Exit code of the command.
    pub exit_code: Option<i32>,
    /// Signal that ended the command.
    pub exit_signal: Option<i32>,
}

impl Unrecorded {
    pub(crate) fn now() -> Unrecorded {
        Unrecorded {
            from_unix_ns: unix_ns(),
            by_signal: None,
            end: None,
        }
    }

    pub(crate) fn because(self, by_signal: Option<i32>) -> Unrecorded {
        Unrecorded { by_signal, ..self }
    }

    /// The run ends now.
    pub(crate) fn ended(self, exit_code: Option<i32>, exit_signal: Option<i32>) -> Unrecorded {
        let end = Some(UnrecordedEnd {
            unix_ns: unix_ns(),
            exit_code,
            exit_signal,
        });
        Unrecorded { end, ..self }
    }

    /// Writes the note beside a trace, in place of an earlier one.
    pub(crate) fn write(&self, trace: &Path) -> io::Result<()> {
        let path = beside(trace, NOTE);
        let _ = std::fs::remove_file(&path);
        Ok(serde_json::to_writer(private::create_new(&path)?, self)?)
    }

    /// The note beside a trace; `None`: there is none.
    pub fn of(trace: &Path) -> Option<Unrecorded> {
        let file = File::open(beside(trace, NOTE)).ok()?;
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }
}

fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i64)
}
