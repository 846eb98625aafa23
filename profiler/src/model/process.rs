//! Processes of a workflow and their images.

use std::fmt;
use std::sync::Arc;

use crate::model::{ProcessId, Range};
/// Signals by which a process is ended that did nothing wrong: HUP, INT and TERM, which another process sends to
/// end it, as at the end of a pool of workers; and PIPE: the reader had enough, as `head` in `sort | head` has.
/// These numbers are the same on every Linux.
const OF_OTHERS: [i64; 4] = [1, 2, 13, 15];

/// True for an end by a signal or with another code than 0, but for the signals by which others end a process
/// that did nothing wrong.
pub(crate) fn is_failure(exit_code: Option<i64>, exit_signal: Option<i64>) -> bool {
    exit_signal.map_or_else(
        || exit_code.is_some_and(|code| code != 0),
        |signal| !OF_OTHERS.contains(&signal),
    )
}

/// A process image: the program that a pid ran between two execs.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Id in the database.
    pub upid: i64,
    /// Process that it belongs to.
    pub process: ProcessId,
    /// True if it began by a fork, as a copy of its parent.
    pub is_fork: bool,
    /// True if it began by an exec; if neither is true, it was found running.
    pub is_exec: bool,
    /// Executable.
    pub exe: Option<Arc<str>>,
    /// Arguments, quoted for a shell.
    pub command: Option<Arc<str>>,
    /// Name of the workflow step.
    pub rule: Arc<str>,
    /// Begin, ns.
    pub start_ns: i64,
    /// End by exec or exit, ns; `None`: not seen.
    pub end_ns: Option<i64>,
    /// CPU time of its own threads, ns: time on a CPU, or user and system time.
    pub cpu_ns: Option<i64>,
    /// Time its threads were ready to run and waited for a CPU, ns.
    pub run_queue_ns: Option<i64>,
    /// Time its threads were blocked on storage, ns.
    pub storage_ns: Option<i64>,
    /// Time its threads were blocked on anything else, ns.
    pub wait_ns: Option<i64>,
    /// Peak resident memory, bytes.
    pub max_rss_bytes: Option<i64>,
    /// Threads that lived in it.
    pub threads: Option<i64>,
    /// Working directory when it began.
    pub cwd: Option<Arc<str>>,
    /// Machine that ran it.
    pub host: Option<Arc<str>>,
    /// Time its threads were stopped by the tracer, ns.
    pub tracer_ns: Option<i64>,
    /// True if it moved data or computed before it became another by an exec.
    pub has_worked: bool,
    /// Its calls that read.
    pub reads: Moved,
    /// Its calls that write.
    pub writes: Moved,
    /// Share of its CPU time that it was in the kernel; `None`: not known.
    pub kernel_share: Option<f64>,
}

/// Data moved by calls of one direction, on all files, pipes and sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Calls; 0 also where they were not counted.
    pub calls: i64,
    /// Bytes.
    pub bytes: i64,
}

/// A process: the images of one pid from fork to exit.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Places of its images.
    pub images: Range<usize>,
    /// Process id.
    pub pid: i64,
    /// Process that forked it.
    pub parent: Option<ProcessId>,
    /// Begin of the first image, ns.
    pub start_ns: i64,
    /// End of the last image, ns; `None`: not seen.
    pub end_ns: Option<i64>,
    /// Exit code.
    pub exit_code: Option<i64>,
    /// Signal that ended it.
    pub exit_signal: Option<i64>,
    /// The file that it could not open, shortly before it ended with another exit code than 0.
    pub unopened: Option<Unopened>,
    /// CPU time, ns; `None`: known for none of its images.
    pub cpu_ns: Option<i64>,
    /// Bytes it read from files, pipes and sockets.
    pub read_bytes: Option<i64>,
    /// Bytes it wrote to them.
    pub write_bytes: Option<i64>,
    /// Intervals in which job control had stopped it, as far as was seen; in order, ns.
    pub stops: Vec<(i64, i64)>,
}

/// A file that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unopened {
    /// The file, as seen from the directory in which the run began.
    pub path: Arc<str>,
    /// Error number.
    pub errno: i64,
}

/// Errors of the file itself; these numbers are the same on every Linux.
const ERRORS: [(i64, &str); 4] = [
    (2, "no such file"),
    (13, "permission denied"),
    (20, "not a directory"),
    (21, "is a directory"),
];

impl Unopened {
    /// Returns true for an error that a file of this type may have.
    pub fn is_known(errno: i64) -> bool {
        ERRORS.iter().any(|&(known, _)| known == errno)
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = ERRORS.iter().find(|&&(known, _)| known == self.errno);
        write!(
            f,
            "{}: {}",
            self.path,
            error.map_or("error", |&(_, text)| text)
        )
    }
}

impl Process {
    /// Time within an interval in which job control had stopped it, ns.
    pub fn stopped_within(&self, from_ns: i64, to_ns: i64) -> i64 {
        let within = |&(from, to): &(i64, i64)| (to.min(to_ns) - from.max(from_ns)).max(0);
        self.stops.iter().map(within).sum()
    }

    /// True if it ended by a signal or with another code than 0, but not as [`Process::was_cut_off`] says.
    pub fn has_failed(&self) -> bool {
        is_failure(self.exit_code, self.exit_signal)
    }

    /// Returns true if another process ended it, by a signal that is sent, and that no program gets for its
    /// own actions: HUP, INT, QUIT, KILL, USR1, USR2, TERM.
    pub fn was_killed(&self) -> bool {
        const SENT: [i64; 7] = [1, 2, 3, 9, 10, 12, 15];
        self.exit_signal
            .is_some_and(|signal| SENT.contains(&signal))
    }

    /// Returns true if it ended by HUP, INT or TERM, which others send, or because no process read its pipe any
    /// more (PIPE).
    pub fn was_cut_off(&self) -> bool {
        self.exit_signal
            .is_some_and(|signal| OF_OTHERS.contains(&signal))
    }

    /// Life time, ns; `None` when the end was not seen.
    pub fn duration_ns(&self) -> Option<i64> {
        self.end_ns.map(|end| end.saturating_sub(self.start_ns))
    }
}
