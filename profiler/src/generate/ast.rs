//! A command line as a tree: programs, pipelines, sequences.

/// What ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A program: the image that a shell began by an exec.
    Program(i64),
    /// A program with commands that it was given as files: `diff <(sort a) <(sort b)`.
    Given(i64, Vec<Given<Command>>),
    /// Stages joined by pipes.
    Pipeline(Vec<Command>),
    /// One after the other.
    Sequence(Vec<Command>),
    /// All at once.
    AtOnce(Vec<Command>),
    /// What the script did itself, as a command for the root directory.
    Own(String),
    /// Nothing that could be seen from outside.
    Nothing,
    /// What the trace does not tell.
    Unknown(String),
}

/// The pipes that a stage has as its standard input and output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) input: Option<String>,
    pub(super) output: Option<String>,
}

impl Command {
    /// The programs in it, in order; those that one was given as files come after it.
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

    /// The same without those that were given as files.
    pub(super) fn own_programs(&self) -> Vec<i64> {
        match self {
            Command::Program(upid) | Command::Given(upid, _) => vec![*upid],
            Command::Pipeline(parts) | Command::Sequence(parts) | Command::AtOnce(parts) => {
                parts.iter().flat_map(Command::own_programs).collect()
            }
            Command::Own(_) | Command::Nothing | Command::Unknown(_) => Vec::new(),
        }
    }

    /// Why it cannot be written down, as far as its parts tell.
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

/// A command that a program was given as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given<C> {
    /// Descriptor of the program that leads to it.
    pub(super) fd: i64,
    /// The pipe in between, as in /proc.
    pub(super) pipe: String,
    /// Whether the program reads what the command writes, `<(…)`; else it writes, `>(…)`.
    pub(super) is_read: bool,
    /// The command.
    pub(super) command: C,
}
