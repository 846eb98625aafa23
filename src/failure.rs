//! Errors as the user sees them: one line with what failed, on what, and why; hints on lines of their own; an
//! exit code.

use std::process::ExitCode;
use std::{fmt, io};

use flowtrace_render::units::plain;

/// Exit code when flowtrace itself failed before a traced command ran, as `env` and `nohup` do.
pub(crate) const OWN_FAILURE: u8 = 125;
/// Exit code of a wrong invocation or unusable input of any other subcommand.
pub(crate) const USAGE: u8 = 2;

/// Result of a subcommand.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// The failure of a subcommand.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    details: Vec<String>,
    code: u8,
    quiet: bool,
    /// The failed write of an output that is not named yet.
    write: Option<io::Error>,
}

/// What helps where a disk is full.
const SPACE: &str = "free space there, or write to another disk";

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Failure {
            message: message.into(),
            details: Vec::new(),
            code,
            quiet: false,
            write: None,
        }
    }

    /// A wrong invocation or unusable input.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::new(USAGE, message)
    }

    /// A failed write to `output`: the name of a file, or "standard output".
    pub(crate) fn unwritten(output: impl fmt::Display, error: &io::Error) -> Self {
        let failure = Failure::usage(format!("cannot write {output}: {error}"));
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => failure.hint(SPACE),
            _ => failure,
        }
    }

    /// Names the output, if the failure is that it could not be written.
    pub(crate) fn of_output(mut self, output: impl fmt::Display) -> Self {
        match self.write.take() {
            Some(error) => Failure::unwritten(output, &error),
            None => self,
        }
    }

    pub(crate) fn hint(self, hint: impl std::fmt::Display) -> Self {
        self.detail(format!("hint: {hint}"))
    }

    /// Adds advice, unless there is some already.
    pub(crate) fn or_hint(self, hint: impl std::fmt::Display) -> Self {
        match self.details.iter().any(|line| line.starts_with("hint: ")) {
            true => self,
            false => self.hint(hint),
        }
    }

    /// A further line below the message.
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.details.push(line.into());
        self
    }

    /// True if the only failure is that the reader of the output is gone.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.quiet
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// The same failure under another exit code.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn report(&self) -> ExitCode {
        if !self.quiet {
            message!("flowtrace: {self}");
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message may contain names that others chose: none of them ends the line.
        f.write_str(&plain(&self.message))?;
        for line in &self.details {
            write!(f, "\n  {}", plain(line))?;
        }
        Ok(())
    }
}

impl From<flowtrace_schema::Error> for Failure {
    fn from(error: flowtrace_schema::Error) -> Self {
        use flowtrace_schema::Error;
        if let Error::Sink(source) = error {
            return source.into();
        }
        let failure = Failure::usage(error.to_string());
        if error.is_for_want_of_space() {
            return failure.hint(format_args!("{SPACE} with -o"));
        }
        // SQLite reports it as any failed write.
        if error.to_string().contains("disk I/O error")
            && let Some(bytes) = largest_file()
        {
            return failure.hint(format!(
                "files may not grow beyond {} kB here (ulimit -f): raise the limit; if that does not help, the disk has an error",
                bytes / 1000
            ));
        }
        match error {
            Error::Create { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                failure.hint("make its directory first, or name another file with -o")
            }
            Error::Create { .. } => failure.hint("name another file with -o"),
            Error::Dangling { .. } => {
                failure.hint("make the file that it leads to, or name another file with -o")
            }
            Error::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => failure.hint(
                "flowtrace run -- COMMAND records trace.db here; a trace elsewhere is named as argument",
            ),
            Error::Exists(_) => {
                failure.hint("name another file with -o, or replace this one with --force")
            }
            Error::Occupied { .. } => {
                failure.hint("move one of the two, or remove the older trace with --force")
            }
            Error::Recording(_) => failure.hint("name another file with -o, or wait for its end"),
            Error::Merge { hint, .. } => failure.hint(hint),
            Error::Newer { .. } => {
                failure.hint("read it with the flowtrace that wrote it, or newer")
            }
            Error::Older { .. } => {
                failure.hint("read it with the flowtrace that wrote it, or record again")
            }
            Error::Truncated { .. } => {
                failure.hint("copy it again, together with the -wal file beside it if there is one")
            }
            Error::Damaged { .. } => failure.hint(salvage()),
            _ if error.to_string().contains("malformed") => {
                failure.hint(format_args!("the file is damaged: {}", salvage()))
            }
            _ => failure,
        }
    }
}

/// Advice on a damaged trace. The command is one that the `sqlite3` of Debian 12 knows, which lacks `.recover`.
/// `.dump` has neither the numbers of the header nor, of a damaged file, the end of its transaction.
fn salvage() -> String {
    let (application, version) = (
        flowtrace_schema::APPLICATION_ID,
        flowtrace_schema::SCHEMA_VERSION,
    );
    format!(
        "copy it again, or save what is left with   \
         (sqlite3 FILE .dump | iconv -c -f utf-8 -t utf-8 | sed 's/^ROLLBACK.*/COMMIT;/'; \
         echo 'PRAGMA application_id = {application}; PRAGMA user_version = {version};') | sqlite3 saved.db"
    )
}

/// The limit of the size of files, bytes, if there is one.
fn largest_file() -> Option<u64> {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    let (now, _) = getrlimit(Resource::RLIMIT_FSIZE).ok()?;
    (now != RLIM_INFINITY).then_some(now)
}

/// An error of the tracer, with the exit code that a shell would give it.
impl From<flowtrace_tracer::session::Error> for Failure {
    fn from(error: flowtrace_tracer::session::Error) -> Self {
        use flowtrace_tracer::session::Error;
        let message = error.to_string();
        match error {
            Error::Store(error) => Failure::from(error).with_code(OWN_FAILURE),
            Error::NotFound(_) => Failure::new(127, message),
            Error::NotExecutable { .. } => Failure::new(126, message),
            Error::NeverRan { signal } => {
                let name = flowtrace_profiler::signals::signal_name(signal.into());
                let message = format!("{name} came before the command ran; nothing is recorded");
                Failure::new((128 + signal) as u8, message)
            }
            Error::TracedTwice { view: None, .. } => Failure::new(OWN_FAILURE, message)
                .hint("trace the outer command alone: it covers all that it starts"),
            Error::TracedTwice {
                view: Some(view), ..
            } => {
                let view = flowtrace_schema::quote_argv([view.as_os_str().as_encoded_bytes()]);
                Failure::new(OWN_FAILURE, message)
                    .hint(format!("flowtrace unmount {} ends that", view.text()))
            }
            Error::ViewInItself { .. } => {
                Failure::new(OWN_FAILURE, message).hint("choose a mount point outside of it")
            }
            Error::TraceUnderView { .. } => {
                Failure::new(OWN_FAILURE, message).hint("name a file elsewhere with -o")
            }
            Error::Directory { .. } => Failure::new(OWN_FAILURE, message)
                .hint("name existing directories with files of the workflow"),
            Error::ForeignProc => Failure::new(OWN_FAILURE, message).hint(
                "mount one for this namespace: mount -t proc proc /proc, or unshare --mount-proc",
            ),
            Error::KernelLayer(_) => Failure::new(OWN_FAILURE, message)
                .hint("flowtrace doctor says what is missing; --layer fuse gives the same rows"),
            Error::Stacks(_) => Failure::new(OWN_FAILURE, message).hint(
                "an ordinary user needs sysctl kernel.perf_event_paranoid=2 or less, root nothing; without --stacks the rest is recorded",
            ),
            Error::Transport(_) => Failure::new(OWN_FAILURE, message)
                .hint("it takes root and Linux 6.14; --transport device gives the same rows"),
            Error::View { .. } | Error::System { .. } => Failure::new(OWN_FAILURE, message)
                .hint("flowtrace doctor says what is missing here"),
        }
    }
}

/// A closed pipe on the reading side (`flowtrace query … | head`) is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure {
                quiet: true,
                ..Failure::new(0, "")
            };
        }
        let failure = Failure::unwritten("the output", &error);
        Failure {
            write: Some(error),
            ..failure
        }
    }
}
