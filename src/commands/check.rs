//! `flowtrace check`.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use clap::ValueEnum;
use flowtrace_profiler::argv::{base, unquote};
use flowtrace_profiler::check::{self, Declared, Kind, text};
use flowtrace_profiler::generate::files_of_steps;
use flowtrace_schema::{ProcessRow, Trace};

use crate::failure::Failure;
use crate::{conclude, output, progress};

/// Compare declared dependencies with the real ones of a traced build
///
/// Lists files that were read without being declared (with -j they may be read before they are there, or
/// their changes go unnoticed), declared files that were not read, and files that were made though no rule
/// declares them. Exit status 1: something is missing; 2: nothing could be checked.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  make clean; flowtrace run -o ../trace.db -- make -j4
  flowtrace check ../trace.db                    asks make itself, with make -pn
  ninja -t graph > graph; ninja -t deps >> graph
  flowtrace check ../trace.db --declared graph --kind ninja
  flowtrace check ../trace.db --declared edges.tsv --kind edges")]
pub(crate) struct Args {
    /// Trace to read
    #[arg(default_value = flowtrace_schema::DEFAULT_TRACE)]
    trace: PathBuf,
    /// Declared dependencies, `-` for standard input [default: asks the traced build itself]
    #[arg(long, value_name = "FILE", requires = "kind")]
    declared: Option<PathBuf>,
    /// Kind of FILE
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
    /// A line for each dependency: the needed file, a tab or blanks, the file made from it
    Edges,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The findings, the answer first
    Text,
    /// One object
    Json,
}

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    let format = args.output.format(args.format, Format::Text)?;
    let same = |a: &Path, b: &Path| output::resolved(a) == output::resolved(b);
    if let (Some(output), Some(declared)) = (args.output.path(), &args.declared)
        && same(output, declared)
    {
        let what = format!(
            "cannot write {}: it has the declared dependencies",
            output.display()
        );
        return Err(Failure::usage(what).hint("name another file with -o"));
    }
    let trace = Trace::open(&args.trace)?;
    conclude::say_unrecorded(&args.trace);
    let working = progress::working(format!("checking {}", args.trace.display()));
    let run = trace.runs()?.into_iter().next();
    let (command, cwd) = run.map_or_else(Default::default, |run| (run.command, run.cwd));
    let build = match &args.declared {
        Some(_) => None,
        None => builder(&trace, &cwd)?,
    };
    let upids = build.as_ref().map(|build| &build.upids[..]);
    let real = |path: &str| Some(std::fs::canonicalize(path).ok()?.to_str()?.to_owned());
    let base = build.as_ref().map_or_else(
        || cwd.to_string(),
        |build| base_of(&build.command, &build.directory),
    );
    let base_found = real(&base).unwrap_or_else(|| base.clone());
    let (root, steps) = files_of_steps(&trace, upids, &base_found)?.map_err(|unfit| {
        let what = args.trace.display();
        Failure::usage(format!("cannot check {what}: {}", unfit.reason)).hint(unfit.hint)
    })?;
    let (kind, declared, name) = match (&args.declared, args.kind, build) {
        (Some(path), Some(kind), _) => {
            let name = path.display().to_string();
            (kind.into(), read(path)?, name)
        }
        (
            ..,
            Some(Build {
                command, directory, ..
            }),
        ) => {
            must_be_ours(&args.trace)?;
            ask(&command, Path::new(&*directory))?
        }
        _ => {
            let what = command.unwrap_or_else(|| "the traced run".into());
            return Err(Failure::usage(format!(
                "cannot ask {what} for its rules: only make, ninja and snakemake can be asked"
            ))
            .hint("give them with --declared FILE --kind make|ninja|snakemake|edges"));
        }
    };
    let mut declared = Declared::read(kind, &declared, &root, &base)
        .map_err(|why| Failure::usage(format!("cannot check against {name}: {why}")))?;
    declared.follow_links(&root, real);
    let findings = check::check(&declared, &steps, |path| {
        Path::new(&root).join(path).exists()
    });
    if findings.checked == 0 && findings.missing.is_empty() {
        let what = format!(
            "nothing was checked: none of the {} declared files was made in the traced run",
            findings.declared
        );
        if findings.nested > 0 {
            let what = format!(
                "nothing was checked: {} in the run built by itself, with rules that are not read",
                match findings.nested {
                    1 => "1 command".into(),
                    n => format!("each of {n} commands"),
                }
            );
            return Err(Failure::usage(what).hint(
                "rules of a make that another make calls are not read: trace such a call by itself; cmake -G Ninja makes rules without them",
            ));
        }
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

/// Fails if another user has written the trace: asking a build for its rules runs what the trace names.
fn must_be_ours(trace: &Path) -> Result<(), Failure> {
    let found = std::fs::metadata(trace);
    let owner = found
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", trace.display())))?
        .uid();
    let own = nix::unistd::geteuid().as_raw();
    // A user who is root for a moment by sudo has the traces of both.
    let by_sudo = std::env::var("SUDO_UID").ok().filter(|_| own == 0);
    if owner == own || owner == 0 || by_sudo.is_some_and(|uid| uid.parse() == Ok(owner)) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "cannot ask the build of {} for its rules: that runs the command which the trace names, and the trace belongs to another user (uid {owner})",
        trace.display()
    ))
    .hint("give the rules with --declared FILE --kind make|ninja|snakemake|edges; or read the commands with flowtrace tree, and copy the trace"))
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

/// The build of a run that can be asked for its rules.
struct Build {
    /// The command to ask.
    command: Arc<str>,
    /// The directory in which it was started.
    directory: Arc<str>,
    /// Its process images: several if the run began it several times (`make clean && make`).
    upids: Vec<i64>,
}

/// The build that a run consists of, whether a script, a wrapper or cmake starts it; `None`: there is none.
///
/// # Errors
/// If the run has builds of different rules.
fn builder(trace: &Trace, root: &str) -> Result<Option<Build>, Failure> {
    let rows = trace.processes()?;
    let of: HashMap<i64, &ProcessRow> = rows.iter().map(|row| (row.upid, row)).collect();
    let is_build = |row: &&ProcessRow| {
        let command = row.command.as_deref().filter(|_| &*row.origin != "fork");
        command
            .is_some_and(|command| knowing(&unquote(command)).is_some_and(|words| !is_query(words)))
    };
    let builds: HashSet<i64> = rows.iter().filter(is_build).map(|row| row.upid).collect();
    // make calls itself for directories below, and execs itself again after it has made a file that it
    // includes.
    let is_first = |row: &&ProcessRow| {
        // The image before has a smaller id in every valid trace.
        let before = |row: &ProcessRow| {
            let before = of.get(&row.prev_upid.or(row.parent_upid)?).copied();
            before.filter(|before| before.upid < row.upid)
        };
        let mut above = std::iter::successors(before(row), |row| before(row));
        builds.contains(&row.upid) && !above.any(|row| builds.contains(&row.upid))
    };
    let mut builds: Vec<Build> = Vec::new();
    for row in rows.iter().filter(is_first) {
        builds.push(Build {
            command: row.command.clone().unwrap_or_default(),
            directory: row.cwd.clone().unwrap_or_else(|| root.into()),
            upids: vec![row.upid],
        });
    }
    // The files that cmake builds to try the compiler are gone when the run ends.
    if builds
        .iter()
        .any(|build| Path::new(&*build.directory).is_dir())
    {
        builds.retain(|build| Path::new(&*build.directory).is_dir());
    }
    let Some(mut last) = builds.pop() else {
        return Ok(None);
    };
    for other in &builds {
        if rules_of(other) != rules_of(&last) {
            let what = format!("{} and {}", other.command, last.command);
            return Err(Failure::usage(format!(
                "cannot check this run: it ran several builds, {what}"
            ))
            .hint("trace one of them by itself: make clean, then flowtrace run -- make"));
        }
    }
    last.upids
        .extend(builds.iter().flat_map(|build| &build.upids));
    Ok(Some(last))
}

/// The source of the rules of a build: its program, the directory, and the options that name a file of rules
/// or set a variable.
fn rules_of(build: &Build) -> (String, String, Vec<String>) {
    let argv = unquote(&build.command);
    let words = knowing(&argv).unwrap_or(&argv);
    let mut others: Vec<String> = Vec::new();
    let mut is_file = false;
    for word in words.iter().skip(1) {
        if is_file || word.starts_with("-f") || word.contains('=') {
            others.push(word.clone());
        }
        is_file = word == "-f";
    }
    let program = words.first().map_or("", |word| base(word));
    (
        program.into(),
        base_of(&build.command, &build.directory),
        others,
    )
}

/// True if a build only answers a query and builds nothing.
fn is_query(words: &[String]) -> bool {
    let is_ninja = words.first().is_some_and(|word| base(word) == "ninja");
    let is_tool = |word: &String| is_ninja && word.starts_with("-t");
    words
        .iter()
        .any(|word| word == "--version" || is_tool(word))
}

/// The directory to which a build changes before it reads its rules (`-C`), relative to the one where it was
/// started.
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

/// The words of a command that has rules, without the interpreter that runs it.
fn knowing(argv: &[String]) -> Option<&[String]> {
    let knows = |words: &[String]| {
        let first = words.first().map(|word| base(word));
        first.is_some_and(|name| ["make", "gmake", "ninja", "snakemake"].contains(&name))
    };
    let is_python = base(argv.first()?).starts_with("python");
    let words = if is_python { &argv[1..] } else { argv };
    knows(words).then_some(words)
}

/// Bytes of the names of targets that are given to ninja at most: the kernel takes 2 MiB of arguments.
const MOST_TARGETS: usize = 1 << 20;

/// Asks the traced build for its rules: the same command, with options to print and not to build.
fn ask(command: &str, root: &Path) -> Result<(Kind, String, String), Failure> {
    let argv = unquote(command);
    let argv = knowing(&argv).unwrap_or(&argv);
    let program = argv.first().map_or("", String::as_str);
    let name = base(program);
    let mut given = argv.iter().skip(1).map(String::as_str).collect::<Vec<_>>();
    let all: Vec<String>;
    let (kind, calls): (Kind, Vec<Vec<&str>>) = match name {
        "make" | "gmake" => {
            given.push("-pn");
            (Kind::Make, vec![given])
        }
        "ninja" => {
            // Only its options for the place of the rules.
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
            let of = |tool: &[&'static str]| [&kept[..], &["-t"], tool].concat();
            // By default the graph is of the default targets alone.
            let targets = printed(program, &of(&["targets", "all"]), root)?;
            let targets = targets.lines().filter_map(|line| line.rsplit_once(": "));
            let targets = targets.filter(|(_, rule)| *rule != "phony");
            all = targets.map(|(target, _)| target.to_owned()).collect();
            let mut graph = of(&["graph"]);
            if all.iter().map(String::len).sum::<usize>() < MOST_TARGETS {
                graph.extend(all.iter().map(String::as_str));
            }
            (Kind::Ninja, vec![graph, of(&["deps"])])
        }
        _ => {
            given.push("--detailed-summary");
            (Kind::Snakemake, vec![given])
        }
    };
    let mut text = String::new();
    for arguments in calls {
        text += &printed(program, &arguments, root)?;
    }
    Ok((kind, text, name.to_owned()))
}

/// The standard output of a build that is asked for its rules.
fn printed(program: &str, arguments: &[&str], root: &Path) -> Result<String, Failure> {
    let shown = || {
        let shown = format!("{program} {}", arguments.join(" "));
        flowtrace_render::units::shorten(&shown, 200)
    };
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .env("LC_ALL", "C")
        .env_remove("MAKEFLAGS")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            let place = root.display();
            let failure = Failure::usage(format!("cannot run {} in {place}: {error}", shown()));
            match root.is_dir() {
                true => failure,
                false => failure.hint("the directory of the build is gone; give the declared dependencies with --declared FILE"),
            }
        })?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        return Err(Failure::usage(format!(
            "{} failed in {} ({}): {}",
            shown(),
            root.display(),
            output.status,
            last.unwrap_or("it said nothing")
        ))
        .hint("give the declared dependencies with --declared FILE"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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
