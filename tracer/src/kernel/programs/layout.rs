//! Where the running kernel has the open files of a task.

use crate::bpf::btf::Types;

/// Offsets on the way from a task to its open files, in their structures, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Of a task.
    pub(super) files: i32,
    /// Of that.
    pub(super) table: i32,
    // Of the table.
    pub(super) most: i32,
    pub(super) all: i32,
    /// Of an open file.
    pub(super) inode: i32,
    // Of an inode.
    pub(super) kind: i32,
    pub(super) number: i32,
}

impl Layout {
    /// That of the running kernel. `None`: it does not tell.
    pub(super) fn of_kernel() -> Option<Layout> {
        let types = Types::of_kernel().ok()?;
        let offset = |structure, member| types.displacement(structure, member);
        Some(Layout {
            files: offset("task_struct", "files")?,
            table: offset("files_struct", "fdt")?,
            most: offset("fdtable", "max_fds")?,
            all: offset("fdtable", "fd")?,
            inode: offset("file", "f_inode")?,
            kind: offset("inode", "i_mode")?,
            number: offset("inode", "i_ino")?,
        })
    }
}
