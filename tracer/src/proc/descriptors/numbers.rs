//! Numbers of the descriptors of a process at the cost of reading a directory: a library's reader of
//! directories asks for its attributes first.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Bytes of one reading.
const SIZE: usize = 16 << 10;
/// Offsets in `struct linux_dirent64` (getdents64(2)) of its length and its name.
const LENGTH: usize = 16;
const NAME: usize = 19;

/// A buffer for entries, with their alignment.
#[repr(align(8))]
struct Entries([u8; SIZE]);

/// Descriptors of process `pid`, with the directory of them. `None`: they cannot be read.
pub(super) fn numbers(pid: u32) -> Option<(File, Vec<i32>)> {
    let directory = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(format!("/proc/{pid}/fd"))
        .ok()?;
    let mut entries = Entries([0; SIZE]);
    let mut found = Vec::new();
    loop {
        // SAFETY: the kernel writes at most `SIZE` bytes to `entries`, which outlives the call.
        let read = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                entries.0.as_mut_ptr(),
                SIZE,
            )
        };
        let Ok(read) = usize::try_from(read) else {
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => continue,
                _ => return None,
            }
        };
        // Fewer entries than fit need not be all: a signal for this thread ends a reading, too (`filldir64`
        // of fs/readdir.c).
        if read == 0 {
            return Some((directory, found));
        }
        found.extend(entries_in(&entries.0[..read.min(SIZE)]));
    }
}

/// The numbers among the names of entries.
pub(crate) fn entries_in(mut entries: &[u8]) -> impl Iterator<Item = i32> {
    std::iter::from_fn(move || {
        let length = entries.get(LENGTH..LENGTH + 2)?;
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let (entry, rest) = entries.split_at_checked(length.max(NAME))?;
        entries = rest;
        Some(entry.get(NAME..)?.split(|&byte| byte == 0).next())
    })
    .filter_map(|name| str::from_utf8(name?).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_descriptors_than_fit_into_one_reading() {
        let files: Vec<File> = (0..900)
            .map_while(|_| File::open("/dev/null").ok())
            .collect();
        let (_, found) = numbers(std::process::id()).unwrap();
        assert!(files.iter().all(|file| found.contains(&file.as_raw_fd())));
        assert!(numbers(u32::MAX).is_none());
    }

    #[test]
    fn what_is_cut_short_ends_there() {
        let mut entry = [0u8; 24];
        entry[LENGTH..LENGTH + 2].copy_from_slice(&24u16.to_ne_bytes());
        entry[NAME..NAME + 2].copy_from_slice(b"17");
        let mut two = entry.repeat(2);
        two[24 + NAME] = b'.';
        assert_eq!(entries_in(&two).collect::<Vec<_>>(), [17]);
        for length in 0..24 {
            assert_eq!(entries_in(&entry[..length]).count(), 0, "{length}");
        }
        assert_eq!(entries_in(&[0; 64]).count(), 0);
    }
}
