//! Captures that other programs made: flowtrace counts as many packets as `capinfos` and `tcpdump`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{FLOWTRACE, Scratch, need_program, shared, skip};
use crate::{number, rows};

/// The last number that a program prints, if it succeeds.
fn counted(program: &str, arguments: &[&str], file: &Path) -> Option<i64> {
    let mut command = Command::new(program);
    let command = command.args(arguments).arg(file).stderr(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split_whitespace().rev();
    words.flat_map(str::parse).next()
}

/// The files below a directory, in the order of their names.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let below = |path: PathBuf| match path.is_dir() {
        true => files_below(&path),
        false => vec![path],
    };
    paths.into_iter().flat_map(below).collect()
}

/// Imports each capture and compares its number of packets; returns the number of captures compared.
fn have_the_same_counts(captures: &[PathBuf]) -> usize {
    let scratch = Scratch::new();
    let trace = scratch.join("trace.db");
    let (mut read, mut refused, mut differ) = (0, 0, Vec::new());
    for capture in captures {
        // Of a damaged file both programs count the packets before the damage. A link layer or a format may
        // be known to only one of them.
        let known = counted("capinfos", &["-c", "-M", "-T", "-r"], capture)
            .or_else(|| counted("tcpdump", &["--count", "-r"], capture));
        let mut import = Command::new(FLOWTRACE);
        import.args(["import", "-q", "--force", "-o"]).arg(&trace);
        let output = import.arg(capture).output().unwrap();
        let status = output.status.code();
        let ours = (status != Some(2)).then(|| {
            number(
                &trace,
                "SELECT (SELECT COUNT(*) FROM packets) + SUM(ignored) FROM captures",
            )
        });
        let is_same = match known {
            Some(count) => ours == Some(count),
            // No other program reads the file, and flowtrace refuses it as well.
            None => matches!(status, Some(1 | 2)),
        };
        match known {
            Some(_) => read += 1,
            None => refused += 1,
        }
        if !is_same {
            let losses = "SELECT counter, value FROM losses WHERE value > 0";
            let losses = ours.map(|_| rows(&trace, losses));
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            differ.push(format!(
                "{}: {ours:?} instead of {known:?}, status {status:?}, {losses:?} {error}",
                capture.display()
            ));
        }
    }
    eprintln!(
        "{read} captures with equal counts, {refused} that nobody reads, {} that differ",
        differ.len()
    );
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    read
}

#[test]
fn captures_of_tcpdump_have_all_their_packets() {
    let Some(captures) = shared("captures") else {
        return;
    };
    if !need_program("capinfos") || !need_program("tcpdump") {
        return;
    }
    let captures: Vec<PathBuf> = files_below(&captures)
        .into_iter()
        .filter(|path| path.to_string_lossy().contains(".pcap"))
        .collect();
    assert!(have_the_same_counts(&captures) >= 20, "{captures:?}");
}

/// All captures below `FLOWTRACE_CAPTURES`; `tests/long captures` fetches those of the sources of tcpdump,
/// libpcap, nDPI and Wireshark.
#[test]
#[ignore = "many captures: tests/long captures"]
fn captures_of_other_projects_have_all_their_packets() {
    let Some(directory) = std::env::var_os("FLOWTRACE_CAPTURES") else {
        return skip("FLOWTRACE_CAPTURES names no directory of captures");
    };
    if need_program("capinfos") && need_program("tcpdump") {
        assert!(have_the_same_counts(&files_below(Path::new(&directory))) > 0);
    }
}
