//! A command line as a tree: programs, pipelines, sequences.

/// A command, or several that belong together, as the trace shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A program: the image that a shell began by an exec.
    Program(i64),
    /// A program and the commands that it was given as files: `diff <(sort a) <(sort b)`.
    Given(i64, Vec<Given<Command>>),
    /// Stages joined by pipes.
    Pipeline(Vec<Command>),
    /// Commands that run one after the other.
    Sequence(Vec<Command>),
    /// Commands that run at the same time.
    AtOnce(Vec<Command>),
    /// Work of the script itself, written as a command to be run in the root directory.
    Own(String),
    /// A command that left no trace of its work.
    Nothing,
    /// A command that the trace does not show; the reason.
    Unknown(String),
}

/// The pipes that a stage has as its standard input and output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) input: Option<String>,
    pub(super) output: Option<String>,
}

impl Command {
    /// Upids of the programs of the command, in order. The programs given to one as files follow it.
    pub(super) fn programs(&self) -> Vec<i64> {
        match self {
            Command::Program(upid) => vec![*upid],
            Command::Given(upid, given) => {
                let given = given.iter().flat_map(|one| one.command.programs());
                std::iter::once(*upid).chain(given).collect()
            }
            Command::Pipeline(parts) | Command::Sequence(parts) | Command::AtOnce(parts) => {
                parts.iter().flat_map(Command::programs).collect()
            }
            Command::Own(_) | Command::Nothing | Command::Unknown(_) => Vec::new(),
        }
    }

    /// Like `programs`, but without the programs that were given as files.
    pub(super) fn own_programs(&self) -> Vec<i64> {
        match self {
            Command::Program(upid) | Command::Given(upid, _) => vec![*upid],
            Command::Pipeline(parts) | Command::Sequence(parts) | Command::AtOnce(parts) => {
                parts.iter().flat_map(Command::own_programs).collect()
            }
            Command::Own(_) | Command::Nothing | Command::Unknown(_) => Vec::new(),
        }
    }

    /// The reason why the command cannot be written down, from the first part that has one.
    pub(super) fn unknown(&self) -> Option<&str> {
        match self {
            Command::Unknown(reason) => Some(reason),
            Command::Pipeline(parts) | Command::Sequence(parts) | Command::AtOnce(parts) => {
                parts.iter().find_map(Command::unknown)
            }
            Command::Given(_, given) => given.iter().find_map(|one| one.command.unknown()),
            Command::Program(_) | Command::Own(_) | Command::Nothing => None,
        }
    }
}

/// A command that was given to a program as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given<C> {
    /// Descriptor of the program that leads to the command.
    pub(super) fd: i64,
    /// The pipe between program and command, named as in /proc.
    pub(super) pipe: String,
    /// True if the program reads what the command writes, `<(…)`; false if the command reads, `>(…)`.
    pub(super) is_read: bool,
    pub(super) command: C,
}
