//! Records of managers about their jobs, kept beside a run. The files are the user's, of any size and
//! kind.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::managers::shell_line;

/// Most records of one directory that are read.
const MOST: usize = 50_000;
/// Most bytes of a record that are read.
const LONGEST: u64 = 1 << 20;
/// Text that Snakemake puts before the command of a rule.
const STRICT: &str = "set -euo pipefail;";

/// The managers' records, each read on first use.
#[derive(Debug, Default)]
pub struct Records {
    /// The rule of each command, by the directory of a run of Snakemake.
    snakemake: HashMap<PathBuf, HashMap<String, String>>,
}

/// The parts of Snakemake's record of an output that name its rule.
#[derive(Deserialize)]
struct Metadata {
    rule: Option<String>,
    shellcmd: Option<String>,
}

impl Records {
    /// The name of the job that a process with these arguments in that directory begins.
    pub(super) fn name(&mut self, cwd: Option<&str>, argv: &[String]) -> Option<String> {
        let cwd = Path::new(cwd?);
        if let Some(script) = argv
            .iter()
            .skip(1)
            .find(|word| word.ends_with(".command.run"))
        {
            return nextflow(&cwd.join(script));
        }
        let line = shell_line(argv)?.trim();
        let command = line.strip_prefix(STRICT)?.trim();
        let rules = self
            .snakemake
            .entry(cwd.into())
            .or_insert_with(|| snakemake(cwd));
        rules.get(command).cloned()
    }
}

/// The rules by command that Snakemake noted below a directory.
fn snakemake(directory: &Path) -> HashMap<String, String> {
    let mut rules: HashMap<String, Option<String>> = HashMap::new();
    let entries = std::fs::read_dir(directory.join(".snakemake/metadata"));
    for entry in entries.into_iter().flatten().flatten().take(MOST) {
        let Some(text) = read(&entry.path()) else {
            continue;
        };
        let Ok(Metadata {
            rule: Some(rule),
            shellcmd: Some(command),
        }) = serde_json::from_slice(&text)
        else {
            continue;
        };
        // A command of two rules names neither.
        let known = rules
            .entry(command.trim().to_owned())
            .or_insert_with(|| Some(rule.clone()));
        if known.as_ref() != Some(&rule) {
            *known = None;
        }
    }
    let sure = rules
        .into_iter()
        .filter_map(|(command, rule)| Some((command, rule?)));
    sure.collect()
}

/// The name of the process that a Nextflow task belongs to, without the task's tag.
fn nextflow(script: &Path) -> Option<String> {
    let text = read(script)?;
    let text = String::from_utf8_lossy(&text);
    let name = text.lines().take(50).find_map(|line| {
        let yaml = line
            .strip_prefix("### name:")
            .map(|name| name.trim().trim_matches('\''));
        yaml.or_else(|| line.strip_prefix("# NEXTFLOW TASK:").map(str::trim))
    })?;
    let process = name.split(" (").next().unwrap_or(name).trim();
    (!process.is_empty() && !process.contains(char::is_control)).then(|| process.to_owned())
}

/// The contents of a regular file of reasonable size. A FIFO could never be read to its end.
fn read(path: &Path) -> Option<Vec<u8>> {
    let is_fit = path
        .symlink_metadata()
        .is_ok_and(|m| m.is_file() && m.len() <= LONGEST);
    let mut text = Vec::new();
    let file = is_fit.then(|| File::open(path).ok())??;
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    Some(text)
}
