//! The generation of an inode, from the file handle of its filesystem (`name_to_handle_at`).

use std::ffi::CStr;
use std::os::fd::AsRawFd;

use nix::fcntl::AT_FDCWD;

/// Bytes of a handle that are read: the handles of all known filesystems are shorter.
const LONGEST: usize = 32;

/// `struct file_handle` of linux/fs.h with space for the handle after it.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; LONGEST],
}

/// The generation of the target of `path`, which must have this inode number. `None` if it has another one by
/// now, or its filesystem reports no generation, or in an unknown form.
pub(crate) fn generation(path: &CStr, inode: u64) -> Option<u32> {
    let handle = handle(path)?;
    let bytes = handle.handle.get(..handle.bytes as usize)?;
    let (found, generation) = take_apart(handle.kind, bytes)?;
    (found == inode).then_some(generation)
}

#[expect(unsafe_code)]
fn handle(path: &CStr) -> Option<Handle> {
    let mut handle = Handle {
        bytes: LONGEST as u32,
        kind: 0,
        handle: [0; LONGEST],
    };
    let mut mount = 0;
    // SAFETY: `path` is NUL-terminated; `handle` begins as the kernel's structure does and has the space
    // after it that it says; `mount` is writable. All outlive the call.
    let result = unsafe {
        libc::name_to_handle_at(
            AT_FDCWD.as_raw_fd(),
            path.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    (result == 0).then_some(handle)
}

/// Inode number and generation in a handle of linux/exportfs.h. The number is compared with that of the file,
/// so that a filesystem that uses the same kind for something else is not misunderstood.
fn take_apart(kind: i32, bytes: &[u8]) -> Option<(u64, u32)> {
    /// ext2 to ext4, XFS with small numbers, F2FS: number, generation; tmpfs: generation, number in two halves.
    const INODE_32: i32 = 1;
    /// XFS: number, generation.
    const INODE_64: i32 = 0x81;
    /// Btrfs: number, subvolume, generation.
    const BTRFS: i32 = 0x4d;
    let half = |at: usize| {
        let bytes = bytes.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_ne_bytes)
    };
    let whole = |at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    };
    match (kind, bytes.len()) {
        (INODE_32, 8) => Some((half(0)?.into(), half(4)?)),
        (INODE_32, 12) => {
            let number = u64::from(half(8)?) << 32 | u64::from(half(4)?);
            Some((number, half(0)?))
        }
        (INODE_64, 12) => Some((whole(0)?, half(8)?)),
        (BTRFS, 20) => Some((whole(0)?, half(16)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn handles_are_taken_apart() {
        let bytes = |words: &[u32]| {
            words
                .iter()
                .flat_map(|w| w.to_ne_bytes())
                .collect::<Vec<_>>()
        };
        assert_eq!(take_apart(1, &bytes(&[7, 9])), Some((7, 9)));
        assert_eq!(take_apart(1, &bytes(&[9, 7, 1])), Some((1 << 32 | 7, 9)));
        let wide = [&7_u64.to_ne_bytes()[..], &9_u32.to_ne_bytes()].concat();
        assert_eq!(take_apart(0x81, &wide), Some((7, 9)));
        let btrfs = [
            &7_u64.to_ne_bytes()[..],
            &5_u64.to_ne_bytes(),
            &9_u32.to_ne_bytes(),
        ]
        .concat();
        assert_eq!(take_apart(0x4d, &btrfs), Some((7, 9)));
        assert_eq!(take_apart(0x4d, &wide), None);
        assert_eq!(take_apart(0xf8, &[0; 20]), None);
    }

    #[test]
    fn the_next_file_of_a_number_has_another_generation() {
        let scratch = tempfile::tempdir().unwrap();
        let mut before: Option<(u64, u32)> = None;
        for n in 0..20 {
            let path = scratch.path().join(n.to_string());
            fs::write(&path, "").unwrap();
            let inode = fs::metadata(&path).unwrap().ino();
            let name = CString::new(path.to_str().unwrap()).unwrap();
            assert_eq!(generation(&name, inode + 1), None, "of another file");
            let Some(found) = generation(&name, inode) else {
                eprintln!("skipped: this filesystem reports no generation");
                return;
            };
            assert_eq!(generation(&name, inode), Some(found));
            fs::remove_file(&path).unwrap();
            assert_ne!(before, Some((inode, found)));
            before = Some((inode, found));
        }
    }
}
