//! Answers that a run without recorded file calls cannot give.

use crate::model::FileCalls;
use crate::timeline::Timeline;

/// A line that names the answers for which file calls would be needed; empty if they are recorded.
pub(crate) fn unseen(timeline: &Timeline) -> &'static str {
    match timeline.file_calls {
        FileCalls::None => {
            "  no file calls: which steps could run side by side, and whose file or lock was asked for again and again, is not known\n"
        }
        FileCalls::All => "",
    }
}
