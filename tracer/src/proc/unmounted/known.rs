//! The unmounted files that the run has used, by name and by inode.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use flowtrace_schema::{FileId, FileKind};

use crate::stat::{Attributes, Inode};

/// Files by name and by inode.
#[derive(Debug, Default)]
pub(super) struct Known {
    names: HashMap<PathBuf, FileId>,
    /// The file that each inode is now, and its generation where the kernel has reported it.
    inodes: HashMap<Inode, (Option<u32>, FileId)>,
    files: HashMap<FileId, File>,
}

/// A file.
#[derive(Clone, Copy, Debug)]
struct File {
    kind: FileKind,
    inode: Inode,
    size: u64,
    /// Number of its names.
    names: u32,
}

impl Known {
    /// The file of this name.
    pub(super) fn named(&self, path: &Path) -> Option<FileId> {
        self.names.get(path).copied()
    }

    /// The file that the inode of these attributes is now. An inode of another generation is another file.
    pub(super) fn of(&self, attributes: &Attributes) -> Option<FileId> {
        let (generation, file) = *self.inodes.get(&attributes.inode())?;
        let both = generation.zip(attributes.generation);
        both.is_none_or(|(known, now)| known == now).then_some(file)
    }

    /// The kind of a file.
    pub(super) fn kind(&self, file: FileId) -> Option<FileKind> {
        Some(self.files.get(&file)?.kind)
    }

    /// The inode and the size of a file when it was last seen.
    pub(super) fn last_seen(&self, file: FileId) -> Option<(Inode, u64)> {
        self.files.get(&file).map(|file| (file.inode, file.size))
    }

    /// A file was seen with these attributes. Returns true if it had others before.
    pub(super) fn seen(&mut self, file: FileId, attributes: &Attributes) -> bool {
        let (inode, size) = (attributes.inode(), attributes.size);
        let mut has_changed = false;
        self.files
            .entry(file)
            .and_modify(|known| {
                has_changed = (known.inode, known.size) != (inode, size);
                (known.inode, known.size) = (inode, size);
            })
            .or_insert(File {
                kind: attributes.kind(),
                inode,
                size,
                names: 0,
            });
        has_changed
    }

    /// From now on the inode of these attributes is this file.
    pub(super) fn is(&mut self, attributes: &Attributes, file: FileId) {
        let generation = attributes.generation;
        self.inodes
            .entry(attributes.inode())
            .and_modify(|known| {
                let generation = generation.or(known.0.filter(|_| known.1 == file));
                *known = (generation, file);
            })
            .or_insert((generation, file));
    }

    /// The inode is a new file's from now on.
    pub(super) fn forget(&mut self, inode: Inode) {
        self.inodes.remove(&inode);
    }

    /// A file gets a name, which may have been another one's.
    pub(super) fn name(&mut self, path: PathBuf, file: FileId) {
        if self.named(&path) == Some(file) {
            return;
        }
        self.unname(&path);
        self.names.insert(path, file);
        if let Some(known) = self.files.get_mut(&file) {
            known.names += 1;
        }
    }

    /// A name is gone. Returns its file, which is gone if it had no other name.
    pub(super) fn unname(&mut self, path: &Path) -> Option<FileId> {
        let file = self.take_name(path)?;
        if let Some(known) = self.files.get(&file).filter(|known| known.names == 0)
            && self
                .inodes
                .get(&known.inode)
                .is_some_and(|(_, now)| *now == file)
        {
            self.inodes.remove(&known.inode);
        }
        Some(file)
    }

    /// A name is taken away, to be given again.
    pub(super) fn take_name(&mut self, path: &Path) -> Option<FileId> {
        let file = self.names.remove(path)?;
        if let Some(known) = self.files.get_mut(&file) {
            known.names = known.names.saturating_sub(1);
        }
        Some(file)
    }

    /// The names below a directory.
    pub(super) fn below(&self, directory: &Path) -> Vec<PathBuf> {
        let is_below = |path: &&PathBuf| path.starts_with(directory) && **path != directory;
        self.names.keys().filter(is_below).cloned().collect()
    }

    /// The files that have no name any more.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = FileId> {
        let unnamed = self.files.iter().filter(|(_, known)| known.names == 0);
        unnamed.map(|(file, _)| *file)
    }

    /// All names with their files.
    pub(super) fn names(&self) -> impl Iterator<Item = (&Path, FileId)> {
        self.names.iter().map(|(path, file)| (&**path, *file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(generation: Option<u32>) -> Attributes {
        Attributes {
            generation,
            ..Attributes::reported((1, 7), libc::S_IFREG, 0)
        }
    }

    #[test]
    fn an_inode_of_another_generation_is_another_file() {
        let mut known = Known::default();
        known.seen(FileId(1), &attributes(None));
        known.is(&attributes(None), FileId(1));
        assert_eq!(known.of(&attributes(Some(3))), Some(FileId(1)));
        known.is(&attributes(Some(3)), FileId(1));
        assert_eq!(known.of(&attributes(Some(4))), None);
        assert_eq!(known.of(&attributes(None)), Some(FileId(1)));
    }

    #[test]
    fn a_file_without_a_name_is_gone() {
        let mut known = Known::default();
        known.seen(FileId(1), &attributes(None));
        known.is(&attributes(None), FileId(1));
        known.name("/a".into(), FileId(1));
        known.name("/b".into(), FileId(1));
        assert_eq!(known.unname(Path::new("/a")), Some(FileId(1)));
        assert_eq!(known.of(&attributes(None)), Some(FileId(1)));
        known.unname(Path::new("/b"));
        assert_eq!(known.of(&attributes(None)), None);
    }
}
