//! Which files flowtrace wrote: these may be replaced, any other is somebody's work.
//!
//! What is written is marked by an extended attribute with the size and time of change that it then has, so that
//! what was edited since counts as somebody's. Pages of a report are known by their head as well.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{XattrFlags, fsetxattr, getxattr};

const MARK: &str = "user.flowtrace.written";

/// Marks a file that is complete. Where the filesystem has no such attributes it stays as it is.
pub(super) fn mark(file: &File) -> io::Result<()> {
    let state = state(&file.metadata()?);
    let _ = fsetxattr(file, MARK, state.as_bytes(), XattrFlags::empty());
    Ok(())
}

/// Whether a file may be replaced: it is as flowtrace wrote it, or empty.
pub(super) fn is_own(path: &Path) -> io::Result<bool> {
    let metadata = path.metadata()?;
    if metadata.len() == 0 {
        return Ok(true);
    }
    let mut mark = [0u8; 64];
    match getxattr(path, MARK, &mut mark[..]) {
        Ok(length) => Ok(mark.get(..length) == Some(state(&metadata).as_bytes())),
        Err(_) => is_page(path),
    }
}

fn state(metadata: &std::fs::Metadata) -> String {
    format!(
        "{} {}.{:09}",
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec()
    )
}

/// Whether it is a page of `flowtrace report`.
fn is_page(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(500).read_to_end(&mut begin)?;
    Ok(String::from_utf8_lossy(&begin).contains("content=\"flowtrace\""))
}
