//! Marks of files that flowtrace wrote: these may be replaced, any other file may be somebody's work.
//!
//! A written file is marked by an extended attribute with its size and time of change, so that a file edited
//! since counts as somebody's. Pages of a report are recognised by their head as well.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{XattrFlags, fsetxattr, getxattr};

const MARK: &str = "user.flowtrace.written";

/// Marks a complete file. If the filesystem has no extended attributes, the file stays as it is.
pub(super) fn mark(file: &File) -> io::Result<()> {
    let state = state(&file.metadata()?);
    let _ = fsetxattr(file, MARK, state.as_bytes(), XattrFlags::empty());
    Ok(())
}

/// True if a file may be replaced: it is as flowtrace wrote it, or empty.
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

/// True if the file is a page of `flowtrace report`.
fn is_page(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(500).read_to_end(&mut begin)?;
    Ok(String::from_utf8_lossy(&begin).contains("content=\"flowtrace\""))
}
