//! System calls that the standard library does not offer.

use std::ffi::CString;
use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as system calls take it.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// A shared mapping of a whole file.
pub(crate) struct Mapping {
    start: *mut u8,
    length: usize,
}

#[expect(unsafe_code)]
impl Mapping {
    pub(crate) fn shared(file: &File, length: usize) -> Mapping {
        Mapping::try_shared(file, length).unwrap()
    }

    pub(crate) fn try_shared(file: &File, length: usize) -> std::io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Mapping {
            start: start.cast(),
            length,
        })
    }

    pub(crate) fn store(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length);
        // SAFETY: within the mapping, checked above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) }
    }

    pub(crate) fn load(&self, at: usize, length: usize) -> Vec<u8> {
        assert!(at + length <= self.length);
        // SAFETY: within the mapping, checked above.
        unsafe { std::slice::from_raw_parts(self.start.add(at), length).to_vec() }
    }

    pub(crate) fn sync(&mut self) {
        // SAFETY: the mapping exists.
        let result = unsafe { libc::msync(self.start.cast(), self.length, libc::MS_SYNC) };
        assert_eq!(result, 0, "msync: {}", Error::last_os_error());
    }
}

#[expect(unsafe_code)]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping exists and is not used any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

#[expect(unsafe_code)]
pub(crate) fn sendfile(to: &File, from: &File, mut at: i64, length: usize) {
    // SAFETY: `at` outlives the call.
    let sent = unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &raw mut at, length) };
    assert_eq!(
        sent,
        length as isize,
        "sendfile: {}",
        Error::last_os_error()
    );
}

pub(crate) fn copy_range(from: &File, mut at: i64, to: &File, length: usize) {
    let copied = nix::fcntl::copy_file_range(from, Some(&mut at), to, Some(&mut 0), length);
    assert_eq!(copied, Ok(length));
}

/// Drops all privilege of this process for good.
#[expect(unsafe_code)]
pub(crate) fn become_user(uid: u32, gid: u32) {
    nix::unistd::setgroups(&[]).unwrap();
    nix::unistd::setgid(gid.into()).unwrap();
    nix::unistd::setuid(uid.into()).unwrap();
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o027));
    // The process gets its own /proc files back, as if the user had started it.
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
}

pub(crate) fn make_fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
}

pub(crate) fn truncate(path: &Path, length: i64) {
    nix::unistd::truncate(path, length).unwrap();
}

/// Reads in one call into a buffer that begins `skew` bytes into a page.
pub(crate) fn read_skewed(file: &File, length: usize, at: u64, skew: usize) -> usize {
    use std::os::unix::fs::FileExt;
    let mut memory = vec![0u8; length + 2 * 4096];
    let begin = memory.as_ptr().align_offset(4096) + skew;
    file.read_at(&mut memory[begin..begin + length], at)
        .unwrap()
}

#[expect(unsafe_code)]
pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) -> std::io::Result<()> {
    let (path, name) = (c_path(path), CString::new(name).unwrap());
    // SAFETY: both strings end in NUL; `value.len()` bytes are read.
    let result = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

pub(crate) fn get_xattr(path: &Path, name: &str) -> std::io::Result<Vec<u8>> {
    let mut value = vec![0; 256];
    let size = xattr_into(path, name, &mut value)?;
    value.truncate(size);
    Ok(value)
}

/// Reads an attribute into a buffer; returns its size if the buffer is empty.
#[expect(unsafe_code)]
pub(crate) fn xattr_into(path: &Path, name: &str, value: &mut [u8]) -> std::io::Result<usize> {
    let (path, name) = (c_path(path), CString::new(name).unwrap());
    // SAFETY: both strings end in NUL; at most `value.len()` bytes are written.
    let size = unsafe {
        libc::lgetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    usize::try_from(size).map_err(|_| Error::last_os_error())
}

#[expect(unsafe_code)]
pub(crate) fn list_xattrs(path: &Path) -> std::io::Result<usize> {
    let path = c_path(path);
    let mut list = vec![0 as libc::c_char; 1 << 16];
    // SAFETY: the string ends in NUL; at most `list.len()` bytes are written.
    let size = unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr(), list.len()) };
    usize::try_from(size).map_err(|_| Error::last_os_error())
}

#[expect(unsafe_code)]
pub(crate) fn remove_xattr(path: &Path, name: &str) -> std::io::Result<()> {
    let (path, name) = (c_path(path), CString::new(name).unwrap());
    // SAFETY: both strings end in NUL.
    let result = unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// The next entries of a directory, as many as fit into `size` bytes: each with its name and the position
/// after it.
#[expect(unsafe_code)]
pub(crate) fn entries(directory: &File, size: usize) -> Vec<(Vec<u8>, u64)> {
    let mut buffer = vec![0u8; size];
    // SAFETY: the kernel writes at most `size` bytes.
    let filled = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            directory.as_raw_fd(),
            buffer.as_mut_ptr(),
            size,
        )
    };
    assert!(filled >= 0, "getdents64: {}", Error::last_os_error());
    let mut rest = &buffer[..filled as usize];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let position = u64::from_ne_bytes(rest[8..16].try_into().unwrap());
        let length = usize::from(u16::from_ne_bytes(rest[16..18].try_into().unwrap()));
        let name = rest[19..length].split(|byte| *byte == 0).next().unwrap();
        found.push((name.to_vec(), position));
        rest = &rest[length..];
    }
    found
}
