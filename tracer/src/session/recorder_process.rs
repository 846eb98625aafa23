//! The process that writes the trace, so that its end (by a bug, or for want of memory) does not end the
//! workflow: this process goes on serving mounts and answering ptrace, without a record.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use flowtrace_schema::{Recorder, RecordingEnd, Writer, pair};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::{Error, Result, limits};
use crate::helper_process::{Group, HelperProcess};
use crate::memory;
use crate::priority::Ahead;

/// A process that waits for the trace that it is to write.
#[derive(Debug)]
pub(crate) struct RecorderProcess {
    end: RecordingEnd,
    process: HelperProcess,
}

impl RecorderProcess {
    /// Starts the process. Call it while this one has one thread, and neither the device of a mount nor a child
    /// that is to be traced.
    ///
    /// # Errors
    /// If the system allows no further process.
    pub(crate) fn start() -> Result<RecorderProcess> {
        let fail = Error::system("start the process that writes the trace");
        let begin = || {
            let (end, writing) = pair()?;
            let kept = [0, 1, 2, writing.descriptor().as_raw_fd()];
            // Threads that record wait for the writer, so it must not wait behind a storm of processes.
            let _ahead = Ahead::of_the_command();
            let mut writing = Some(writing);
            let write = || {
                leave_streams();
                memory::be_given_up_first();
                // Those of the command must not end the recording.
                let _ = limits::lift();
                if let Some(writing) = writing.take() {
                    // A panic must not get to the frames of the other process.
                    let _ = catch_unwind(AssertUnwindSafe(|| writing.serve()));
                }
            };
            // SAFETY: this process has one thread, as the doc comment requires, so that its copy may do whatever
            // it may; `write` uses no other descriptors.
            #[expect(unsafe_code)]
            let process =
                unsafe { HelperProcess::begin(c"flowtrace-rec", Group::Own, &kept, write) }?;
            Ok(RecorderProcess { end, process })
        };
        begin().map_err(fail)
    }

    /// Makes the process write a trace at `output`; see [`Writer::create`].
    ///
    /// # Errors
    /// If the trace cannot be made.
    pub(super) fn create(self, output: &Path, replace: bool) -> Result<(Writer, Recorder)> {
        let process = self.process;
        let made = self.end.begin(output, replace, || process.end());
        Ok(made?)
    }
}

/// Nobody is to wait for the end of a standard stream because this process has it open.
fn leave_streams() {
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    let all = [
        dup2_stdin(null.as_fd()),
        dup2_stdout(null.as_fd()),
        dup2_stderr(null.as_fd()),
    ];
    debug_assert!(all.iter().all(std::result::Result::is_ok), "{all:?}");
}
