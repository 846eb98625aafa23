//! Identity of the caller: a file that a request makes belongs to the caller of the request from its creation
//! on.

use std::cell::Cell;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{getegid, geteuid};

use super::Permission;
use super::sys::thread::{self, Capabilities};
use nix::Result;

/// Caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    /// User.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Thread; 0 if the kernel does not report it.
    pub(crate) tid: u32,
}

/// `CAP_DAC_OVERRIDE` of include/uapi/linux/capability.h.
const DAC_OVERRIDE: u64 = 1 << 1;
/// `CAP_SYS_RESOURCE`: the right to use space that a filesystem reserves for the administrator, and to exceed
/// quotas.
const SYS_RESOURCE: u64 = 1 << 24;
/// The capabilities that the kernel removes from a thread whose fsuid changes from 0: chown, dac_override,
/// dac_read_search, fowner, fsetid, linux_immutable, mknod, mac_override.
const FILE_CAPABILITIES: u64 = 0x1f | 1 << 9 | 1 << 27 | 1 << 32;

/// Decides if and how threads take on the identity of callers.
#[derive(Debug)]
pub(crate) struct Credentials {
    permission: Permission,
    uid: u32,
    gid: u32,
    groups: Arc<[u32]>,
    capabilities: Capabilities,
}

impl Credentials {
    /// Credentials that act as the caller if it differs from this process, unless all are one user.
    pub(crate) fn new(permission: Permission) -> Credentials {
        Credentials {
            permission,
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups: groups_of("self").unwrap_or_default().into(),
            capabilities: Capabilities::current().unwrap_or_default(),
        }
    }

    /// True if callers may have fewer rights than this process.
    pub(crate) fn exceeds(&self, who: Requester) -> bool {
        self.permission != Permission::Process && who.uid != 0
    }

    /// Makes the calling thread act as `who`, until the guard is dropped, for a call that makes a file.
    pub(crate) fn make_as(&self, who: Requester) -> Result<Assumed> {
        self.limit(who);
        let is_same = who.uid == self.uid && who.gid == self.gid;
        match self.permission {
            _ if is_same => Ok(Assumed::default()),
            Permission::Process => Ok(Assumed::default()),
            Permission::Caller => self.assume(who),
            Permission::Kernel => self.assume_checked(who),
        }
    }

    /// Makes the calling thread act as `who` for any other call, if the kernel has not checked yet that the
    /// caller may make it.
    pub(crate) fn act_as(&self, who: Requester) -> Result<Assumed> {
        self.limit(who);
        match self.permission {
            Permission::Caller if who.uid != self.uid => self.assume(who),
            _ => Ok(Assumed::default()),
        }
    }

    /// Makes the calling thread use space as `who` for a call on an open file: reserved space and quotas
    /// depend on the writer.
    pub(crate) fn spend_as(&self, who: Requester) -> Result<Assumed> {
        self.limit(who);
        if !self.exceeds(who) {
            return Ok(Assumed::default());
        }
        let assumed = Assumed {
            ids: Some((self.uid, self.gid)),
            groups: None,
        };
        set_ids(who)?;
        Ok(assumed)
    }

    /// Acts as the caller, with the caller's own rights, groups included.
    pub(crate) fn assume(&self, who: Requester) -> Result<Assumed> {
        self.limit(who);
        // An unknown caller gets no groups, which means fewer rights.
        let groups = groups_of(&who.tid.to_string()).unwrap_or_default();
        let assumed = Assumed {
            ids: Some((self.uid, self.gid)),
            groups: Some(Arc::clone(&self.groups)),
        };
        thread::set_groups(&groups)?;
        set_ids(who)?;
        Ok(assumed)
    }

    /// Acts as the caller if the kernel has checked its permission already, with groups and access lists that
    /// this process does not know: search and write permission are not checked again.
    fn assume_checked(&self, who: Requester) -> Result<Assumed> {
        let assumed = Assumed {
            ids: Some((self.uid, self.gid)),
            groups: None,
        };
        set_ids(who)?;
        if who.uid != 0 {
            let mut capabilities = self.capabilities;
            capabilities.effective &= !(FILE_CAPABILITIES | SYS_RESOURCE);
            capabilities.effective |= DAC_OVERRIDE & capabilities.permitted;
            capabilities.apply()?;
        }
        Ok(assumed)
    }
}

impl Credentials {
    /// Gives up the calling thread's right to use reserved space, or takes it again. The thread stays so
    /// until a caller comes that needs the opposite, which is rare. The thread has its own ids.
    fn limit(&self, who: Requester) {
        if self.permission == Permission::Process || self.capabilities.effective & SYS_RESOURCE == 0
        {
            return;
        }
        let limited = who.uid != 0;
        if LIMITED.get() == limited {
            return;
        }
        let mut capabilities = self.capabilities;
        if limited {
            capabilities.effective &= !SYS_RESOURCE;
        }
        if capabilities.apply().is_ok() {
            LIMITED.set(limited);
        }
    }
}

/// Takes on the ids of a caller. The group comes first: changing it needs the capability that the change of
/// the user id gives up.
fn set_ids(who: Requester) -> Result<()> {
    if thread::set_fsgid(who.gid) != who.gid || thread::set_fsuid(who.uid) != who.uid {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// Gives the thread its own identity back when dropped.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Assumed {
    ids: Option<(u32, u32)>,
    groups: Option<Arc<[u32]>>,
}

impl Drop for Assumed {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.ids {
            // A return to user 0 also restores the file capabilities.
            thread::set_fsuid(uid);
            thread::set_fsgid(gid);
        }
        if let Some(groups) = &self.groups {
            let _ = thread::set_groups(groups);
        }
    }
}

/// Supplementary groups of a thread, from /proc.
fn groups_of(tid: &str) -> Option<Vec<u32>> {
    groups_in(&std::fs::read(format!("/proc/{tid}/status")).ok()?)
}

/// The supplementary groups in the text of that file; the program name in it may have any bytes.
pub(crate) fn groups_in(status: &[u8]) -> Option<Vec<u32>> {
    let status = String::from_utf8_lossy(status);
    let groups = status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))?;
    groups
        .split_whitespace()
        .map(|group| group.parse().ok())
        .collect()
}

thread_local! {
    /// The file creation mask of this thread, if it has its own.
    static MASK: Cell<Option<u32>> = const { Cell::new(None) };
    /// True if this thread has given up [`SYS_RESOURCE`].
    static LIMITED: Cell<bool> = const { Cell::new(false) };
}

/// Sets the file creation mask of the calling thread alone, so that the real filesystem applies the caller's
/// mask. It does not apply the mask where a directory has a default access list.
///
/// Returns the bits that the caller of this function must clear in the mode itself: all of `mask` if a thread
/// cannot have a mask of its own.
pub(crate) fn set_mask(mask: u32) -> u32 {
    MASK.with(|current| {
        if current.get().is_none() && unshare(CloneFlags::CLONE_FS).is_err() {
            return mask;
        }
        if current.get() != Some(mask) {
            umask(Mode::from_bits_truncate(mask));
            current.set(Some(mask));
        }
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn acts_as_the_caller_and_returns() {
        if !geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(Permission::Kernel);
        let who = Requester {
            uid: 12345,
            gid: 54321,
            tid: 0,
        };
        let effective = || Capabilities::current().unwrap().effective;
        let owner = |name: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, "").map(|()| {
                let metadata = std::fs::metadata(&path).unwrap();
                (metadata.uid(), metadata.gid())
            })
        };
        {
            // The directory belongs to root: only the permission that was checked before counts.
            let _as_caller = credentials.make_as(who).unwrap();
            assert_eq!(owner("checked").unwrap(), (12345, 54321));
        }
        {
            let this_thread = Requester {
                tid: nix::unistd::gettid().as_raw() as u32,
                ..who
            };
            let _as_caller = credentials.assume(this_thread).unwrap();
            owner("own").expect_err("the directory belongs to root");
        }
        assert_eq!(owner("after").unwrap(), (0, getegid().as_raw()));
        let missing = credentials.capabilities.effective & !effective();
        assert_eq!(missing, SYS_RESOURCE & credentials.capabilities.effective);
        {
            let _as_caller = credentials.spend_as(who).unwrap();
            assert_eq!(effective() & (FILE_CAPABILITIES | SYS_RESOURCE), 0);
        }
        let root = Requester { uid: 0, ..who };
        let _as_root = credentials.act_as(root).unwrap();
        assert_eq!(Capabilities::current().unwrap(), credentials.capabilities);
    }

    #[test]
    fn mask_is_the_threads_own() {
        let outside = umask(Mode::from_bits_truncate(0o22));
        std::thread::spawn(|| {
            assert_eq!(set_mask(0o77), 0);
            assert_eq!(umask(Mode::empty()).bits(), 0o77);
        })
        .join()
        .unwrap();
        assert_eq!(umask(outside).bits(), 0o22);
    }
}
