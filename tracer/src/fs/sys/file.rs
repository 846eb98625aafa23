//! Control calls on open files.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use nix::Result;

/// Inode flags as `chattr` sets them: `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`.
pub(crate) const GET_FLAGS: u32 = 0x8008_6601;
pub(crate) const SET_FLAGS: u32 = 0x4008_6602;
/// The same with project ids: `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`.
pub(crate) const GET_XFLAGS: u32 = 0x801c_581f;
pub(crate) const SET_XFLAGS: u32 = 0x401c_5820;

/// Size of `struct fsxattr`, the largest argument of the calls above.
const LARGEST: usize = 28;

/// Argument through which such a call returns a value.
pub(crate) type Argument = [u8; LARGEST];

/// Makes one of the calls above, with its argument. Any other number is refused, because the kernel would
/// read and write memory as that call defines it.
#[expect(unsafe_code)]
pub(crate) fn control(fd: BorrowedFd<'_>, command: u32, input: &[u8]) -> Result<Argument> {
    if ![GET_FLAGS, SET_FLAGS, GET_XFLAGS, SET_XFLAGS].contains(&command) {
        return Err(Errno::ENOTTY);
    }
    let mut argument = [0; LARGEST];
    let given = input.len().min(LARGEST);
    argument[..given].copy_from_slice(&input[..given]);
    // SAFETY: each of the four commands reads or writes at most `LARGEST` bytes at the pointer.
    let result = unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            command as libc::Ioctl,
            argument.as_mut_ptr(),
        )
    };
    Errno::result(result).map(|_| argument)
}
