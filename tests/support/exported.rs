//! A hand-made trace, its exports, and validators for them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::montage;
use crate::support::{self, flowtrace, shared};

/// The trace of a small Montage, with its rules.
pub(crate) fn sample() -> tempfile::TempDir {
    let (directory, path) = montage::montage_file(4, false);
    support::store_rules(&path);
    directory
}

/// The output of `flowtrace export` for that trace.
pub(crate) fn export(directory: &Path, format: &str, more: &[&str]) -> Vec<u8> {
    let output = flowtrace(directory, &[&["export", "trace.db", format], more].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{format}: {said}");
    output.stdout
}

/// The same, for formats in JSON.
pub(crate) fn json(directory: &Path, format: &str) -> serde_json::Value {
    serde_json::from_slice(&export(directory, format, &[])).unwrap()
}

/// Runs a validator of `../shared` on files. If a program or package that it needs is missing, it is skipped
/// with a message.
pub(crate) fn validate(script: &str, options: &[&str], files: &[PathBuf]) {
    let Some(script) = shared(&format!("validators/{script}")) else {
        return;
    };
    let output = Command::new("/usr/bin/python3")
        .arg(&script)
        .args(options)
        .args(files)
        .output();
    let Ok(output) = output else {
        return support::skip("no /usr/bin/python3");
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => {}
        Some(2) => support::skip(&format!("{}: {said}", script.display())),
        _ => panic!(
            "{}: {said}{}",
            script.display(),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
