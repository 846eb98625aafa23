//! The findings as text for people.

use std::fmt::Write;

use flowtrace_render::units::{bytes, counted, duration, plain, shorten};

use super::Findings;
use crate::argv::unquote;

/// Number of lines of one kind that are shown; others are counted.
const SHOWN: usize = 50;

/// Number of rules without files that are named.
const NAMED: usize = 5;

/// The findings as text, the answer first.
pub fn text(findings: &Findings, width: usize) -> String {
    let mut text = String::new();
    let rules = counted(findings.checked as i64, "rule", "rules");
    // Writing to a String cannot fail.
    let _ = match findings.missing.len() {
        0 => writeln!(
            text,
            "flowtrace: nothing is missing: all that was read for {rules} is declared"
        ),
        count => writeln!(
            text,
            "flowtrace: {} missing in {rules} checked",
            match count {
                1 => "1 dependency is".into(),
                count => format!("{count} dependencies are"),
            }
        ),
    };
    for missing in findings.missing.iter().take(SHOWN) {
        let meaning = match missing.is_race {
            true if missing.is_directory => {
                "a directory made in this run: with -j it may not be there yet"
            }
            true => "made in this run: with -j it may be read too early",
            false => "a change to it goes unnoticed",
        };
        let _ = writeln!(
            text,
            "  missing     {}: {}   ({meaning})",
            plain(&missing.target),
            plain(&missing.needs)
        );
        let read = match missing.bytes {
            _ if missing.is_directory => "wrote into it".into(),
            _ if missing.was_absent => "failed without it".into(),
            0 => "opened it".into(),
            n => format!("read {} of it", bytes(n)),
        };
        let upid = missing
            .upid
            .map(|upid| format!(" (upid {upid})"))
            .unwrap_or_default();
        let line = format!(
            "{read} at {}: {}",
            duration(missing.first_ns),
            plain(&shell_line(&missing.command))
        );
        let _ = writeln!(
            text,
            "              {}{upid}",
            shorten(&line, width.saturating_sub(14 + upid.len()))
        );
    }
    more(&mut text, "missing", findings.missing.len());
    for unused in findings.unused.iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "  not read    {}: {}",
            plain(&unused.target),
            plain(&unused.needs)
        );
    }
    more(&mut text, "not read", findings.unused.len());
    for output in findings.undeclared_outputs.iter().take(SHOWN) {
        let line = format!(
            "  undeclared  {}   by {}",
            plain(&output.path),
            plain(&shell_line(&output.command))
        );
        let _ = writeln!(text, "{}", shorten(&line, width));
    }
    more(&mut text, "undeclared", findings.undeclared_outputs.len());
    let _ = writeln!(
        text,
        "  checked     {} of {} by {}",
        rules,
        counted(findings.declared as i64, "declared one", "declared ones"),
        counted(findings.steps as i64, "command", "commands")
    );
    if findings.not_made > 0 {
        let files = match findings.not_made {
            1 => "the file of 1 other was".into(),
            n => format!("the files of {n} others were"),
        };
        let _ = writeln!(
            text,
            "              {files} there before and not made in this run: trace a build from the beginning"
        );
    }
    if let Some(first) = findings.no_files.first() {
        let names: Vec<&str> = findings
            .no_files
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect();
        let rest = match findings.no_files.len() - names.len() {
            0 => String::new(),
            more => format!(" +{more} more"),
        };
        let subject = match findings.no_files.len() {
            1 => format!("{} names no file that was made or is there", plain(first)),
            _ => format!(
                "{}{rest} name no files that were made or are there",
                plain(&names.join(", "))
            ),
        };
        let _ = writeln!(
            text,
            "              {subject}: things to do, or not asked for"
        );
    }
    if findings.nested > 0 {
        let _ = writeln!(
            text,
            "  not checked {} that built by themselves, such as make -C",
            counted(findings.nested as i64, "command", "commands")
        );
    }
    text
}

/// The command line that a shell was given with `-c`; any other command as it is.
fn shell_line(command: &str) -> String {
    let argv = unquote(command);
    let is_shell =
        |name: &str| ["sh", "bash", "dash"].contains(&name.rsplit('/').next().unwrap_or(name));
    match &argv[..] {
        [shell, option, line] if is_shell(shell) && option == "-c" => {
            // Snakemake's own beginning of a command.
            let line = line.trim_start().trim_start_matches("set -euo pipefail;");
            line.trim().to_owned()
        }
        _ => command.to_owned(),
    }
}

fn more(text: &mut String, label: &str, count: usize) {
    if count > SHOWN {
        let _ = writeln!(text, "  {label:<11} +{} more: --format json", count - SHOWN);
    }
}

#[cfg(test)]
mod tests {
    use super::shell_line;

    #[test]
    fn a_line_for_a_shell_is_shown_alone() {
        let of = "/usr/bin/bash -c 'set -euo pipefail;  cat a b > c'";
        assert_eq!(shell_line(of), "cat a b > c");
        assert_eq!(shell_line("bash script -c"), "bash script -c");
        assert_eq!(shell_line("cc -c a.c"), "cc -c a.c");
    }
}
