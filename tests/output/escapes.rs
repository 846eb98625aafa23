//! Names from outside (files, arguments, columns) never control the terminal of the user who reads them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use flowtrace_render::units::is_hidden;

use super::support::{FLOWTRACE, need_fuse};
use super::{COMMANDS, hostile_names, packets, pipeline};

/// A file name that clears a screen, ends a line, turns the direction of writing, and is not UTF-8.
const NAME: &[u8] = b"\x1b[2J\x1b]0;t\x07\r\n\tx\xc2\x9b31m\xe2\x80\xae\x7f\xff";

fn run(directory: &Path, arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(FLOWTRACE);
    command.args(arguments).current_dir(directory);
    // Names that the caller chose appear in messages, too.
    let variable = OsStr::from_bytes(NAME);
    command
        .env("COLUMNS", "100")
        .env("FLOWTRACE_TEST", variable);
    command.output().unwrap()
}

/// Checks output. Text for people (`is_text`) contains nothing that a terminal acts upon; other formats
/// contain no control character, but keep the letters of a name.
#[track_caller]
fn assert_plain(what: &[&OsStr], bytes: &[u8], is_text: bool) {
    let text = String::from_utf8_lossy(bytes);
    let acts = |c: &char| match is_text {
        true => is_hidden(*c),
        false => c.is_control() && *c != '\r',
    };
    let found = text
        .char_indices()
        .find(|(_, c)| !matches!(c, '\n' | '\t') && acts(c));
    if let Some((at, c)) = found {
        let begin = text.floor_char_boundary(at.saturating_sub(80));
        let around = &text[begin..text.ceil_char_boundary(at + 40)];
        panic!("{what:?} prints {c:?} in {around:?}");
    }
}

/// Runs a command, checks its output, and returns true if it succeeded.
#[track_caller]
fn is_plain(directory: &Path, arguments: &[&OsStr], is_text: bool) -> bool {
    let output = run(directory, arguments);
    assert_plain(arguments, &output.stdout, is_text);
    assert_plain(arguments, &output.stderr, true);
    // A name does not end a line: only the first line of a message, or one that clap writes, begins at the
    // margin.
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let forged = error.lines().any(|line| line.starts_with("\tx"));
    assert!(!forged, "{arguments:?}: {error}");
    assert!(!error.contains("panicked"), "{arguments:?}: {error}");
    output.status.success()
}

fn words(line: &'static [&'static str]) -> Vec<&'static OsStr> {
    line.iter().map(OsStr::new).collect()
}

/// Commands that print text for people, besides those that do so without an option.
const TEXTS: &[&[&str]] = &[
    &["summary", "trace.db"],
    &["tree", "trace.db"],
    &["tree", "trace.db", "--full"],
    &["dag", "trace.db", "--format", "text"],
    &[
        "check",
        "trace.db",
        "--declared",
        "edges.tsv",
        "--kind",
        "edges",
    ],
    &["compare", "trace.db", "packets.db"],
    &["compare", "trace.db", "other.db"],
    &["bottlenecks", "trace.db", "--cores"],
    &["waits", "trace.db"],
    &["resources", "trace.db"],
    &["resources", "trace.db", "other.db"],
    &[
        "ideal",
        "trace.db",
        "--disk-read",
        "100",
        "--disk-write",
        "100",
    ],
    &["critical-path", "trace.db", "--full"],
    &["stats", "trace.db"],
    &["stats", "trace.db", "unread", "--full"],
    &["stats", "trace.db", "rules", "--full"],
    &["network", "hosts.db"],
    &["network", "matrix", "hosts.db"],
    &["network", "flows", "hosts.db"],
    &[
        "query",
        "trace.db",
        "SELECT command, cwd, exe FROM processes",
    ],
    &[
        "query",
        "trace.db",
        "SELECT path AS \"\x1b[31m\u{202e}\" FROM files",
    ],
    &["query", "trace.db", "SELECT path FROM file_names"],
    &["query", "trace.db", "SELECT value FROM environment"],
    &["query", "hosts.db", "SELECT host FROM hosts"],
    &[
        "merge",
        "--force",
        "-o",
        "merged.db",
        "trace.db",
        "other.db",
    ],
    &[
        "import",
        "--force",
        "-o",
        "again.db",
        "--host",
        "\x1b[31m\u{202e}h=a.pcap",
    ],
    &["doctor"],
];

fn hostile_traces() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let names = hostile_names();
    pipeline(directory.path(), "trace.db", &names);
    pipeline(directory.path(), "other.db", &names[3..9]);
    let db = rusqlite::Connection::open(directory.path().join("trace.db")).unwrap();
    let value = "\x1b[31m\u{202e}";
    db.execute(
        "INSERT OR REPLACE INTO environment_variable SELECT MIN(upid), 'X', ?1, NULL FROM process",
        [value],
    )
    .unwrap();
    drop(db);
    packets(directory.path());
    let edges: String = names
        .iter()
        .map(|name| format!("{name}\t{name}.out\n"))
        .collect();
    fs::write(directory.path().join("edges.tsv"), edges).unwrap();
    let import = [
        "import",
        "-q",
        "-o",
        "hosts.db",
        "--host",
        "\x1b[2J\u{202e}h=a.pcap",
    ];
    super::prints(directory.path(), &import);
    directory
}

#[test]
fn texts_of_hostile_names_are_plain() {
    let directory = hostile_traces();
    let mut succeeded = 0;
    for line in TEXTS {
        succeeded += usize::from(is_plain(directory.path(), &words(line), true));
    }
    assert!(
        succeeded >= TEXTS.len() - 8,
        "only {succeeded} had a result"
    );
    // Formats for programs have names as they are, escaped as the format requires.
    for line in COMMANDS {
        is_plain(directory.path(), &words(line), false);
    }
    for format in [
        "make",
        "shell",
        "snakemake",
        "cwl",
        "dagman",
        "pegasus",
        "dax",
    ] {
        let line = ["generate", "trace.db", "--format", format].map(OsStr::new);
        is_plain(directory.path(), &line, false);
    }
}

#[test]
fn hostile_paths_of_traces_are_plain_in_every_message() {
    let directory = hostile_traces();
    let name = OsStr::from_bytes(NAME);
    let there = directory.path();
    fs::copy(there.join("trace.db"), there.join(name)).unwrap();
    let mut letter = name.to_owned();
    letter.push(".txt");
    fs::write(there.join(&letter), "no trace, no capture").unwrap();
    let mut missing = name.to_owned();
    missing.push("/missing");
    for line in COMMANDS.iter().chain(TEXTS) {
        for place in [name, &letter, &missing] {
            // Hostile names for the trace itself, the trace to compare with, and the imported file.
            let put = |word: &&'static str| match word.ends_with(".db") {
                true => place,
                false => OsStr::new(*word),
            };
            is_plain(
                there,
                &line.iter().map(put).collect::<Vec<_>>(),
                line[0] != "generate",
            );
        }
        // Hostile names for the output.
        for place in [name, &letter, &missing] {
            let mut line = words(line);
            line.extend([OsStr::new("-o"), place]);
            is_plain(there, &line, false);
        }
    }
    let import = |file| [OsStr::new("import"), "-o".as_ref(), "i.db".as_ref(), file];
    for place in [name, &letter, &missing] {
        is_plain(there, &import(place), true);
    }
    // The message contains the name with its escapes replaced.
    let said = run(there, &import(&missing)).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("\u{fffd}[2J\u{fffd}]0;t"), "{said}");
}

#[test]
fn wrong_words_of_the_command_line_are_plain_in_every_message() {
    let directory = tempfile::tempdir().unwrap();
    let help = Command::new(FLOWTRACE).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let commands: Vec<&str> = listed.filter(is_name).collect();
    assert!(commands.len() > 25, "{commands:?}");
    let name = OsStr::from_bytes(NAME);
    let mut option = OsStr::new("--").to_owned();
    option.push(name);
    let mut given = OsStr::new("--format=").to_owned();
    given.push(name);
    is_plain(directory.path(), &[name], true);
    is_plain(directory.path(), &[&option], true);
    for command in commands {
        let command = OsStr::new(command);
        for word in [name, &option, &given] {
            // These commands record or listen; with a wrong option they do not start.
            let begins = [
                "run",
                "mount",
                "capture",
                "collect",
                "agent",
                "man",
                "calibrate",
            ];
            if word != name || !begins.iter().any(|begins| command == *begins) {
                is_plain(directory.path(), &[command, word], true);
            }
        }
    }
}

#[test]
fn recording_of_hostile_names_prints_plain_lines() {
    if !need_fuse() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path();
    let name = OsStr::from_bytes(NAME);
    let work = there.join("work");
    fs::create_dir(&work).unwrap();
    let script = OsStr::new(
        "cat \"$1\" > \"$1.out\"; cat \"$1.out\"; sleep 0.2; mkdir \"$1.d\"; echo > \"$1.d/$1\"",
    );
    fs::write(work.join(name), "x\n").unwrap();
    let mut trace = there.join(name).into_os_string();
    trace.push(".db");
    let run = |options: &[&OsStr], command: &[&OsStr]| {
        let begin = [OsStr::new("run"), "-o".as_ref(), &trace, "--force".as_ref()];
        is_plain(
            &work,
            &[&begin, options, &[OsStr::new("--")], command].concat(),
            true,
        )
    };
    let ran = run(&[], &["bash".as_ref(), "-c".as_ref(), script, name, name]);
    assert!(ran, "the command failed");
    run(&[], &[name]);
    run(&["--dir".as_ref(), name], &["true".as_ref()]);
    run(&["--dir".as_ref(), &trace], &["true".as_ref()]);
    let mut missing = name.to_owned();
    missing.push("/missing");
    run(&["--out-dir".as_ref(), &missing], &["true".as_ref()]);
    is_plain(&work, &["mount".as_ref(), name, name], true);
    is_plain(&work, &["unmount".as_ref(), name], true);
    is_plain(&work, &["summary".as_ref(), &trace], true);
}
