//! Small C programs of `tests/programs`, compiled at their first use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use super::{checkout, need_program};

/// Path of `tests/programs/NAME.c`, compiled with `options`; skips the test if there is no compiler.
pub(crate) fn program(name: &str, options: &[&str]) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if !need_program("cc") {
        return None;
    }
    let _guard = ONE_AT_A_TIME.lock();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = place.join(format!("{name}{}", options.concat()));
    let source = checkout(&format!("tests/programs/{name}.c"));
    let changed = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    if changed(&built) > changed(&source) {
        return Some(built);
    }
    // Other test binaries may compile the same program: each writes its own file, and the last rename wins.
    let draft = place.join(format!("{name}.{}", std::process::id()));
    let output = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&draft)
        .arg(&source)
        .args(options)
        .output()
        .expect("cc runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&draft, &built).unwrap();
    Some(built)
}
