//! Place of a file by its id.

use crate::model::{File, FileIndex};
pub(super) fn file_index(files: &[File], file_id: i64) -> Option<FileIndex> {
    let at = files
        .binary_search_by_key(&file_id, |file| file.file_id)
        .ok()?;
    Some(FileIndex(at as u32))
}
