//! Identity and capabilities of the calling thread alone. The C library applies such calls to
//! the whole process; the bare system calls change one thread.

use nix::errno::Errno;

use nix::Result;

/// Sets the user id used for file access and returns the one in force afterwards.
#[expect(unsafe_code)]
pub(crate) fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: takes and returns integers. An id of -1 is invalid and only reads the current one.
    unsafe {
        libc::syscall(libc::SYS_setfsuid, uid);
        libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32
    }
}

/// Sets the group id used for file access and returns the one in force afterwards.
#[expect(unsafe_code)]
pub(crate) fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: as for the user id.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32
    }
}

/// Replaces the supplementary groups of this thread.
#[expect(unsafe_code)]
pub(crate) fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the kernel reads `groups.len()` ids from the slice.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Capability sets of a thread, 64 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) effective: u64,
    pub(crate) permitted: u64,
    pub(crate) inheritable: u64,
}

/// `_LINUX_CAPABILITY_VERSION_3` of include/uapi/linux/capability.h.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

impl Capabilities {
    /// Capability sets of the calling thread.
    #[expect(unsafe_code)]
    pub(crate) fn current() -> Result<Capabilities> {
        let mut header = Header {
            version: VERSION,
            pid: 0,
        };
        let mut halves = [Half::default(); 2];
        // SAFETY: version 3 writes the version into the header and two halves behind the second
        // pointer.
        let result =
            unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) };
        Errno::result(result)?;
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [low, high] = halves;
        Ok(Capabilities {
            effective: join(low.effective, high.effective),
            permitted: join(low.permitted, high.permitted),
            inheritable: join(low.inheritable, high.inheritable),
        })
    }

    /// Sets the capability sets of the calling thread.
    #[expect(unsafe_code)]
    pub(crate) fn apply(self) -> Result<()> {
        let mut header = Header {
            version: VERSION,
            pid: 0,
        };
        let half = |shift: u32| Half {
            effective: (self.effective >> shift) as u32,
            permitted: (self.permitted >> shift) as u32,
            inheritable: (self.inheritable >> shift) as u32,
        };
        let halves = [half(0), half(32)];
        // SAFETY: version 3 reads the header and two halves behind the second pointer.
        let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) };
        Errno::result(result).map(drop)
    }
}
