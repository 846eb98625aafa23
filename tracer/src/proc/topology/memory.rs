//! What the arguments of a stopped call point to.
#![expect(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Longest path that the kernel takes, with its NUL.
const LONGEST: usize = 4096;
/// Most paths fit in here; the rest is read when one does not.
const FIRST: usize = 256;
/// A read must not go on into a page that is not there.
const PAGE: u64 = 4096;

/// Reads `buffer.len()` bytes at `address` of task `tid`, or less. `None`: nothing is there.
fn read(tid: u32, address: u64, buffer: &mut [u8]) -> Option<usize> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    // SAFETY: writes at most `iov_len` bytes to `buffer`; the remote address is only looked at
    // in the other process.
    let read =
        unsafe { libc::process_vm_readv(tid as i32, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).ok().filter(|&read| read > 0)
}

/// The bytes at `address`; fewer than `N` are none.
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
