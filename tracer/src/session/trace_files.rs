//! The files of a trace that is being written.

use std::path::{Path, PathBuf};

/// The names under which SQLite keeps the trace. A mount of their directory must not show them, or the
/// workflow would find files that do not exist without tracing.
pub(super) fn own_files(output: &Path) -> Vec<PathBuf> {
    let Some(name) = output.file_name() else {
        return Vec::new();
    };
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Ok(directory) = parent.canonicalize() else {
        return Vec::new();
    };
    flowtrace_schema::own_files(&directory.join(name)).collect()
}
