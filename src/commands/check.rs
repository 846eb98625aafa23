//! `flowtrace check`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::ValueEnum;
use flowtrace_profiler::argv::unquote;
use flowtrace_profiler::check::{self, Declared, Kind, text};
use flowtrace_profiler::generate::files_of_steps;
use flowtrace_schema::{ProcessRow, Trace};

use crate::failure::Failure;
use crate::{output, progress};

/// Compare declared dependencies with the real ones of a traced build
///
/// Says which files were read without being declared (with -j they may be read before they are
/// there, or their changes go unnoticed), which declared ones were not read, and which files
/// were made that no rule declares. Exit status 1: something is missing; 2: nothing could be checked.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  make clean; flowtrace run -o ../trace.db -- make -j4
  flowtrace check ../trace.db                    asks make itself, with make -pn
  ninja -t graph > graph; ninja -t deps >> graph
  flowtrace check ../trace.db --declared graph --kind ninja
  flowtrace check ../trace.db --declared edges.tsv --kind edges")]
pub(crate) struct Args {
    /// Trace to read
    trace: PathBuf,
    /// What is declared, `-` for standard input [default: asks the traced build itself]
    #[arg(long, value_name = "FILE", requires = "kind")]
    declared: Option<PathBuf>,
    /// What FILE is
    #[arg(long, value_enum, requires = "declared")]
    kind: Option<FileKind>,
    /// Text for people, or JSON [default: by the ending of FILE, else text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    output: output::Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FileKind {
    /// Output of make -pn
    Make,
    /// Output of ninja -t graph, and ninja -t deps after it
    Ninja,
    /// Output of snakemake --detailed-summary
    Snakemake,
    /// A line for each dependency: what is needed, a tab or blanks, what is made of it
    Edges,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The findings, the answer first
    Text,
    /// One object
    Json,
}

pub(crate) fn run(args: &Args) -> super::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let same = |a: &Path, b: &Path| output::resolved(a) == output::resolved(b);
    if let (Some(output), Some(declared)) = (args.output.path(), &args.declared)
        && same(output, declared)
    {
        let what = format!("cannot write {}: it is what is declared", output.display());
        return Err(Failure::usage(what).hint("name another file with -o"));
    }
    let trace = Trace::open(&args.trace)?;
    let working = progress::working(format!("checking {}", args.trace.display()));
    let (root, steps) = files_of_steps(&trace)?.map_err(|unfit| {
        let what = args.trace.display();
        Failure::usage(format!("cannot check {what}: {}", unfit.reason)).hint(unfit.hint)
    })?;
    let (kind, declared, name, base) = match (&args.declared, args.kind) {
        (Some(path), Some(kind)) => {
            let name = path.display().to_string();
            (kind.into(), read(path)?, name, root.clone())
        }
        _ => {
            let (command, directory) = builder(&trace, &root)?;
            let (kind, text, name) = ask(&command, Path::new(&directory))?;
            (kind, text, name, base_of(&command, &directory))
        }
    };
    let declared = Declared::read(kind, &declared, &root, &base)
        .map_err(|why| Failure::usage(format!("cannot check against {name}: {why}")))?;
    let findings = check::check(&declared, &steps, |path| {
        Path::new(&root).join(path).exists()
    });
    if findings.checked == 0 {
        let what = format!(
            "nothing was checked: none of the {} declared files was made in the traced run",
            findings.declared
        );
        let made: Vec<&str> = findings
            .undeclared_outputs
            .iter()
            .map(|made| made.path.as_str())
            .collect();
        if let Some(first) = made.first() {
            let more = match made.len() - 1 {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            return Err(Failure::usage(format!("{what}; it made {first}{more}, which no rule declares"))
                .hint("name the files that commands make as targets, and targets that are no files (all) as .PHONY"));
        }
        return Err(Failure::usage(what).hint(
            "trace a build from the beginning, in the directory of the rules: make clean, then flowtrace run -- make",
        ));
    }
    drop(working);
    output::write_to(&args.output, &args.trace, |out| {
        match format {
            Format::Text => {
                let width = output::width(args.output.path());
                output::text(out, &text::text(&findings, width))?;
            }
            Format::Json => {
                output::json(out, &findings)?;
            }
        }
        Ok(())
    })?;
    Ok(match findings.missing.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

impl From<FileKind> for Kind {
    fn from(kind: FileKind) -> Kind {
        match kind {
            FileKind::Make => Kind::Make,
            FileKind::Ninja => Kind::Ninja,
            FileKind::Snakemake => Kind::Snakemake,
            FileKind::Edges => Kind::Edges,
        }
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let done = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    done.map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The command that knows the rules, and its directory: what was run, what that became by an exec
/// (`nice make`), or the only one of its kind below it (`sh -c 'make && …'`).
fn builder(trace: &Trace, root: &str) -> Result<(String, String), Failure> {
    let runs = trace.runs()?;
    let command = runs
        .first()
        .and_then(|run| run.command.clone())
        .unwrap_or_default();
    let rows = trace.processes()?;
    let knows = |command: &str| knowing(&unquote(command)).is_some();
    if knows(&command) {
        return Ok((command, root.into()));
    }
    let is_one =
        |row: &&ProcessRow| row.origin != "fork" && row.command.as_deref().is_some_and(knows);
    let ones: Vec<&ProcessRow> = rows.iter().filter(is_one).collect();
    let below = |row: &ProcessRow| {
        // make begins again in its own place after it has made a file that it includes.
        let before = |row: &ProcessRow| row.prev_upid.or(row.parent_upid);
        let mut above = before(row);
        while let Some(upid) = above {
            if ones.iter().any(|one| one.upid == upid) {
                return true;
            }
            let at = rows.iter().find(|row| row.upid == upid);
            above = at.and_then(before);
        }
        false
    };
    // make calls itself for directories below.
    let mut first = ones.iter().filter(|one| !below(one));
    match (first.next(), first.next()) {
        (Some(one), None) => Ok((
            one.command.clone().unwrap_or_default(),
            one.cwd.clone().unwrap_or_else(|| root.into()),
        )),
        (Some(one), Some(other)) => {
            let shown = |row: &ProcessRow| row.command.clone().unwrap_or_default();
            let (one, other) = (shown(one), shown(other));
            Err(Failure::usage(format!(
                "cannot check {command}: it ran several builds, {one} and {other}"
            ))
            .hint("trace one of them by itself: make clean, then flowtrace run -- make"))
        }
        _ => Ok((command, root.into())),
    }
}

/// The directory that a build goes to before it reads its rules (`-C`), from the one where it was started.
fn base_of(command: &str, directory: &str) -> String {
    let argv = unquote(command);
    let mut words = knowing(&argv).unwrap_or(&argv).iter().skip(1);
    let mut base = PathBuf::from(directory);
    while let Some(word) = words.next() {
        let given = match word
            .strip_prefix("--directory=")
            .or_else(|| word.strip_prefix("-C"))
        {
            Some("") => words.next().map(String::as_str),
            _ if word == "--directory" => words.next().map(String::as_str),
            given => given,
        };
        if let Some(given) = given {
            base.push(given);
        }
    }
    base.to_string_lossy().into_owned()
}

/// The words of a command that knows its rules, without the interpreter that runs it.
fn knowing(argv: &[String]) -> Option<&[String]> {
    let name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    let knows = |words: &[String]| {
        let first = words.first().map(name);
        first.is_some_and(|name| ["make", "gmake", "ninja", "snakemake"].contains(&name.as_str()))
    };
    let is_python = argv.first().map(name)?.starts_with("python");
    let words = if is_python { &argv[1..] } else { argv };
    knows(words).then_some(words)
}

/// Lets the build that was traced tell its rules: the same command, told to print and not to build.
fn ask(command: &str, root: &Path) -> Result<(Kind, String, String), Failure> {
    let argv = unquote(command);
    let argv = knowing(&argv).unwrap_or(&argv);
    let program = argv.first().map_or("", String::as_str);
    let name = program.rsplit('/').next().unwrap_or(program);
    let mut given = argv.iter().skip(1).map(String::as_str).collect::<Vec<_>>();
    let (kind, calls): (Kind, Vec<Vec<&str>>) = match name {
        "make" | "gmake" => {
            given.push("-pn");
            (Kind::Make, vec![given])
        }
        "ninja" => {
            // Of its options only where the rules are.
            let mut kept: Vec<&str> = Vec::new();
            let mut words = given.iter();
            while let Some(&word) = words.next() {
                if word == "-C" || word == "-f" {
                    kept.push(word);
                    kept.extend(words.next());
                } else if word.starts_with("-C") || word.starts_with("-f") {
                    kept.push(word);
                }
            }
            let of = |tool: &'static str| [&kept[..], &["-t", tool]].concat();
            (Kind::Ninja, vec![of("graph"), of("deps")])
        }
        "snakemake" => {
            given.push("--detailed-summary");
            (Kind::Snakemake, vec![given])
        }
        _ => {
            return Err(Failure::usage(format!(
                "cannot ask {} for its rules: only make, ninja and snakemake can be asked",
                if command.is_empty() {
                    "the traced run"
                } else {
                    command
                }
            ))
            .hint("give them with --declared FILE --kind make|ninja|snakemake|edges"));
        }
    };
    let mut text = String::new();
    for arguments in calls {
        let shown = format!("{program} {}", arguments.join(" "));
        let output = Command::new(program)
            .args(&arguments)
            .current_dir(root)
            .env("LC_ALL", "C")
            .env_remove("MAKEFLAGS")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                let place = root.display();
                let failure = Failure::usage(format!("cannot run {shown} in {place}: {error}"));
                match root.is_dir() {
                    true => failure,
                    false => failure.hint("the directory of the build is gone; give what is declared with --declared FILE"),
                }
            })?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = errors.lines().rfind(|line| !line.trim().is_empty());
            return Err(Failure::usage(format!(
                "{shown} failed in {} ({}): {}",
                root.display(),
                output.status,
                last.unwrap_or("it said nothing")
            ))
            .hint("give what is declared with --declared FILE"));
        }
        text += &String::from_utf8_lossy(&output.stdout);
    }
    Ok((kind, text, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_reads_its_rules_where_it_goes_to() {
        for (command, expected) in [
            ("make -j2 all", "/w"),
            ("ninja -C build all", "/w/build"),
            ("make -Ca -C b", "/w/a/b"),
            ("make --directory=/x", "/x"),
        ] {
            assert_eq!(base_of(command, "/w"), expected, "{command}");
        }
    }

    #[test]
    fn what_knows_its_rules_is_found_behind_its_interpreter() {
        for (command, expected) in [
            ("make -j2 all", Some("make")),
            (
                "/usr/bin/python3.11 /v/bin/snakemake --cores 1",
                Some("/v/bin/snakemake"),
            ),
            ("python3 -m snakemake", None),
            ("python3", None),
            ("bash /v/shims/make", None),
            ("", None),
        ] {
            let argv = unquote(command);
            let found = knowing(&argv).map(|words| words[0].as_str());
            assert_eq!(found, expected, "{command}");
        }
    }
}
