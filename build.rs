//! Finds the commit and the features that `flowtrace --version` names.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    let features = std::env::var("CARGO_CFG_FEATURE").unwrap_or_default();
    let features = match features.as_str() {
        "" => "none",
        features => features,
    };
    println!("cargo::rustc-env=FLOWTRACE_BUILD=commit {commit}, features: {features}");
}

/// The commit that is checked out here. `None` without git, and for sources inside the checkout of something else.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--show-prefix", "--git-path", "logs/HEAD"]);
    git.args(["--short=12", "HEAD"]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    let lines = String::from_utf8(output.stdout).ok()?;
    let ["", log, commit] = lines.lines().collect::<Vec<_>>()[..] else {
        return None;
    };
    // It grows with each commit and checkout. For a file that is missing cargo would run this at each build.
    if Path::new(log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    Some(commit.to_owned())
}
