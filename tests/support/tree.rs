//! Directory trees compared by content.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The properties of an entry that tracing must not change.
#[derive(PartialEq, Eq)]
enum Entry {
    Directory(u32),
    Symlink(PathBuf),
    File(u32, Vec<u8>),
}

fn read(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut entries = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            let mode = data.permissions().mode();
            let entry = if data.is_dir() {
                todo.push(path.clone());
                Entry::Directory(mode)
            } else if data.is_symlink() {
                Entry::Symlink(fs::read_link(&path).unwrap())
            } else {
                Entry::File(mode, fs::read(&path).unwrap())
            };
            entries.insert(path.strip_prefix(root).unwrap().to_owned(), entry);
        }
    }
    entries
}

/// Panics unless both trees have the same names, types, modes and bytes; returns the number of files.
#[track_caller]
pub(crate) fn assert_same(a: &Path, b: &Path) -> usize {
    let (left, right) = (read(a), read(b));
    let names = left.keys().chain(right.keys());
    let mut different: Vec<_> = names.filter(|n| left.get(*n) != right.get(*n)).collect();
    different.sort_unstable();
    different.dedup();
    assert!(
        different.is_empty(),
        "{} and {} differ in {} entries: {:?}",
        a.display(),
        b.display(),
        different.len(),
        &different[..different.len().min(10)]
    );
    left.values()
        .filter(|e| matches!(e, Entry::File(..)))
        .count()
}

/// Copies a tree of directories, files and their modes.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
