//! Memory that the arguments of a stopped call point to.
#![expect(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

/// Longest path that the kernel takes, with its NUL.
const LONGEST: usize = 4096;
/// Length of the first read, enough for most paths; the rest is read for longer ones.
const FIRST: usize = 256;
/// A read must not go on into a page that is not mapped.
const PAGE: u64 = 4096;

/// Reads `buffer.len()` bytes at `address` of task `tid`, or less. `None`: nothing is mapped there.
fn read(tid: u32, address: u64, buffer: &mut [u8]) -> Option<usize> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    // SAFETY: writes at most `iov_len` bytes to `buffer`; the remote address is only read in the other
    // process.
    let read =
        unsafe { libc::process_vm_readv(tid as i32, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).ok().filter(|&read| read > 0)
}

/// The bytes at `address`; `None` if fewer than `N` can be read.
pub(crate) fn bytes_at<const N: usize>(tid: u32, address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (read(tid, address, &mut bytes)? == N).then_some(bytes)
}

/// The bytes at `address`, at most `most`.
pub(crate) fn some_at(tid: u32, address: u64, most: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; most];
    let read = read(tid, address, &mut bytes)?;
    bytes.truncate(read);
    Some(bytes)
}

/// True if the path, or the smaller object, at `address` can be read without waiting for a filesystem: its
/// pages are in memory, or swapped out. Other pages are of files, and a read may have to wait for their
/// server. Arguments that the kernel read for a system call are in memory when it returns.
pub(crate) fn is_resident(tid: u32, address: u64) -> bool {
    let Ok(pages) = File::open(format!("/proc/{tid}/pagemap")) else {
        return false;
    };
    // pagemap(5), 8 bytes a page: present, swapped.
    let is_there = |page: u64| {
        let mut entry = [0; 8];
        let at = page.checked_mul(8);
        at.is_some_and(|at| pages.read_exact_at(&mut entry, at).is_ok())
            && u64::from_ne_bytes(entry) >> 62 != 0
    };
    let page = address / PAGE;
    let mut first = vec![0; (PAGE - address % PAGE) as usize];
    is_there(page)
        && (read(tid, address, &mut first).is_some() && first.contains(&0) || is_there(page + 1))
}

/// The path at `address`.
pub(crate) fn path_at(tid: u32, address: u64) -> Option<OsString> {
    let mut path = Vec::new();
    let mut chunk = [0; FIRST];
    while path.len() < LONGEST {
        let at = address.checked_add(path.len() as u64)?;
        let to_page_end = (PAGE - at % PAGE) as usize;
        let size = to_page_end.min(FIRST);
        let read = read(tid, at, &mut chunk[..size])?;
        let part = &chunk[..read];
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            path.extend_from_slice(&part[..end]);
            return Some(OsString::from_vec(path));
        }
        path.extend_from_slice(part);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_nobody_has_used_is_not_resident() {
        let own = std::process::id();
        let used = vec![b'x'; 3 * PAGE as usize];
        assert!(is_resident(own, used.as_ptr() as u64 + 5));
        assert!(!is_resident(own, 8) && !is_resident(u32::MAX, 8));
        let file = File::open("/proc/self/exe").unwrap();
        // SAFETY: a new mapping, which nothing else knows.
        let mapped = unsafe {
            let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
            let file = std::os::fd::AsRawFd::as_raw_fd(&file);
            libc::mmap(std::ptr::null_mut(), 4096, protection, flags, file, 0)
        };
        assert!(!is_resident(own, mapped as u64));
        assert_eq!(bytes_at(own, mapped as u64), Some(*b"\x7fELF"));
        assert!(is_resident(own, mapped as u64));
    }

    #[test]
    fn own_memory_is_read_across_pages() {
        let own = std::process::id();
        let mut text = vec![b'x'; 9000];
        text[5000] = 0;
        let long = path_at(own, text.as_ptr() as u64);
        assert_eq!(long, None, "longer than any path");
        let short = &text[5000 - 4000..];
        let path = path_at(own, short.as_ptr() as u64).unwrap();
        assert_eq!(path.len(), 4000);
        assert_eq!(bytes_at(own, text.as_ptr() as u64), Some([b'x'; 8]));
        assert_eq!(bytes_at::<8>(own, 8), None);
        assert_eq!(path_at(own, 8), None);
    }
}
