//! Output of a report: standard output, or a file that is complete or not there at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use flowtrace_render::units;
use flowtrace_schema::APPLICATION_ID;

use crate::failure::Failure;

pub(crate) mod ending;
mod shown;
mod written;

use shown::Shown;

/// Destination of the result of a command.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Target {
    /// Write to FILE instead of standard output (`-`); its ending gives the format unless --format does
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace FILE even if flowtrace did not write it, or somebody changed it since
    #[arg(long, requires = "output")]
    force: bool,
}

impl Target {
    /// The file `path`, or standard output; `force`: any existing file is replaced.
    pub(crate) fn new(path: Option<PathBuf>, force: bool) -> Target {
        Target {
            output: path,
            force,
        }
    }

    /// The file; `None`: standard output, which `-` stands for.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| !is_stdout(path))
    }

    /// The format to write: the one that was `given`, else the one that the ending of the file names.
    ///
    /// # Errors
    /// An ending of a format that this command cannot write.
    pub(crate) fn format<F: ValueEnum>(&self, given: Option<F>, default: F) -> Result<F, Failure> {
        Ok(self.named(given)?.unwrap_or(default))
    }

    /// As [`Target::format`], without a default.
    pub(crate) fn named<F: ValueEnum>(&self, given: Option<F>) -> Result<Option<F>, Failure> {
        match self.path() {
            // A trace is never overwritten, whatever its name: the write reports that.
            Some(path) if given.is_none() && !is_trace(path) => ending::format(path),
            _ => Ok(given),
        }
    }

    /// True if any existing file is replaced.
    pub(crate) fn force(&self) -> bool {
        self.force
    }
}

/// True for the name of standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Width of a report that goes to a pipe or file.
const PLAIN_WIDTH: usize = 100;

/// Calls `write` with the file of `target`, or with standard output.
/// A file appears under its name only when it is complete. It never replaces `trace`, nor, without `force`, a
/// file that flowtrace did not write.
/// for, what flowtrace did not write.
pub(crate) fn write_to(
    target: &Target,
    trace: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match target.path() {
        None => print(write),
        Some(path) => Part::write(path, target.force, trace, write)?.publish(),
    }
}

/// A file that is written under a temporary name. It stays only if it is published: so several appear
/// together or not at all.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    /// Path of the file; `None` for a device or pipe, and when it is published.
    part: Option<PathBuf>,
}

impl Part {
    /// Calls `write` for the file `path`. It must not be `trace`, nor, without `force`, a file that flowtrace
    /// did not write.
    pub(crate) fn write(
        path: &Path,
        force: bool,
        trace: &Path,
        write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
    ) -> Result<Part, Failure> {
        refuse_traces(path, trace)?;
        let cannot = cannot(path);
        // A device or pipe cannot be replaced by a rename.
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            let mut out = BufWriter::new(File::options().write(true).open(path).map_err(&cannot)?);
            write(&mut out).map_err(|failure| failure.of_output(path.display()))?;
            out.flush().map_err(&cannot)?;
            let path = path.to_owned();
            return Ok(Part { path, part: None });
        }
        if !force {
            refuse_others(path)?;
        }
        // A link stays a link: its target is replaced.
        let named = path.display();
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let part = beside(&path);
        let mut out =
            BufWriter::new(flowtrace_schema::private::create_new(&part).map_err(&cannot)?);
        let part = Some(part);
        let written = Part { path, part };
        write(&mut out).map_err(|failure| failure.of_output(named))?;
        let file = out
            .into_inner()
            .map_err(|error| cannot(error.into_error()))?;
        written::mark(&file).map_err(&cannot)?;
        Ok(written)
    }

    /// Gives the file its name.
    pub(crate) fn publish(mut self) -> Result<(), Failure> {
        let Some(part) = &self.part else {
            return Ok(());
        };
        if let Ok(metadata) = self.path.metadata() {
            // Best effort: the new file is as readable as the one it replaces.
            let _ = fs::set_permissions(part, metadata.permissions());
        }
        fs::rename(part, &self.path).map_err(cannot(&self.path))?;
        self.part = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = fs::remove_file(part);
        }
    }
}

/// Exit status other than 1, which means that there is a finding.
fn cannot(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.to_owned();
    move |error| Failure::unwritten(path.display(), &error)
}

/// Fails if a trace would be replaced.
fn refuse_traces(path: &Path, trace: &Path) -> Result<(), Failure> {
    if is_part_of(path, trace) {
        return Err(Failure::usage(format!(
            "cannot write {}: it is the trace itself",
            path.display()
        ))
        .hint("name another file with -o"));
    }
    if is_trace(path) {
        return Err(
            Failure::usage(format!("cannot write {}: it is a trace", path.display()))
                .hint("name another file with -o; remove the trace first if it is not needed"),
        );
    }
    Ok(())
}

/// Fails if a file would be replaced that flowtrace did not write.
fn refuse_others(path: &Path) -> Result<(), Failure> {
    match written::is_own(path) {
        Ok(true) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(false) => Err(Failure::usage(format!(
            "cannot write {}: it is there, and flowtrace did not write it or it was changed since",
            path.display()
        ))
        .hint("name another file with -o, or replace this one with --force")),
        Err(error) => Err(cannot(path)(error)),
    }
}

/// Prints a message on standard error, in plain lines of which only the first begins at the margin, whatever
/// names are in them. The reader may be gone (`2>&1 | head`): a recording goes on all the same, where
/// `eprintln!` would end it.
pub(crate) fn message(text: std::fmt::Arguments<'_>) {
    let text = units::plain_lines(&text.to_string());
    let mut said = String::with_capacity(text.len() + 1);
    for (number, line) in text.lines().enumerate() {
        if number > 0 && !line.starts_with("  ") && !line.is_empty() {
            said += "  ";
        }
        said += line;
        said.push('\n');
    }
    let _ = io::stderr().write_all(said.as_bytes());
}

/// Writes a text for people, in plain lines whatever names are in them.
pub(crate) fn text(out: &mut (impl Write + ?Sized), text: &str) -> io::Result<()> {
    out.write_all(units::plain_lines(text).as_bytes())
}

/// Calls `write` with standard output.
///
/// A reader that is gone (`| head -1`) ends the output, and nothing else: the command goes on to its exit
/// status, which reports the findings.
pub(crate) fn print(
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stdout = io::stdout();
    let written = match stdout.is_terminal() {
        true => into(Shown::new(stdout.lock()), write),
        false => into(BufWriter::new(stdout.lock()), write),
    };
    match written {
        Err(failure) if failure.is_reader_gone() => Ok(()),
        Err(failure) => Err(failure.of_output("standard output")),
        Ok(()) => Ok(()),
    }
}

fn into(
    mut out: impl Write,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    write(&mut out)?;
    Ok(out.flush()?)
}

/// Writes one JSON value, ended by a newline.
pub(crate) fn json(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// An absolute path without symbolic links as far as it exists: it stays valid when the working directory is
/// changed or removed.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let resolve = || {
        let Some(name) = absolute.file_name() else {
            return absolute.canonicalize().ok();
        };
        Some(absolute.parent()?.canonicalize().ok()?.join(name))
    };
    resolve().unwrap_or(absolute)
}

/// An absolute path for display: relative to the working directory if it lies below that.
pub(crate) fn shown(path: &Path) -> &Path {
    let cwd = std::env::current_dir().ok();
    // Everything lies below the root; there the whole path is clearer.
    let cwd = cwd.filter(|cwd| cwd.parent().is_some());
    cwd.and_then(|cwd| path.strip_prefix(cwd).ok())
        .unwrap_or(path)
}

/// Width for a report on standard output, or in the file `path`.
pub(crate) fn width(path: Option<&Path>) -> usize {
    path.map_or_else(|| width_of(io::stdout()), |_| PLAIN_WIDTH)
}

/// True if colour may be used in a report on standard output, or in the file `path`.
pub(crate) fn wants_colour(path: Option<&Path>) -> bool {
    path.is_none() && takes_colour(&io::stdout())
}

/// Width of the terminal behind `stream`, or a fixed one.
pub(crate) fn width_of(stream: impl AsFd + IsTerminal) -> usize {
    if !stream.is_terminal() {
        return PLAIN_WIDTH;
    }
    terminal_size::terminal_size_of(stream)
        .map_or(PLAIN_WIDTH, |(width, _)| usize::from(width.0).max(40))
}

/// True if `stream` is a terminal whose user has not declined colour.
pub(crate) fn takes_colour(stream: &impl IsTerminal) -> bool {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_off && !is_dumb
}

/// True if a file begins as a database of flowtrace (SQLite file format, section 1.3).
fn is_trace(path: &Path) -> bool {
    let mut begin = [0u8; 72];
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let read = is_file
        && File::open(path)
            .and_then(|mut file| file.read_exact(&mut begin))
            .is_ok();
    read && begin.starts_with(b"SQLite format 3\0") && begin[68..72] == APPLICATION_ID.to_be_bytes()
}

/// True if the path leads to the database of a trace or to a file beside it.
fn is_part_of(path: &Path, trace: &Path) -> bool {
    let inode = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    let mut parts = ["", "-wal", "-shm"].into_iter().map(|suffix| {
        let mut name = trace.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    });
    inode(path).is_some() && parts.any(|part| inode(&part) == inode(path))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    PathBuf::from(name)
}
