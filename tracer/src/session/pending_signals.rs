//! Signals that are pending in this process.

use nix::sys::signal::SigSet;

/// The blocked signals that are pending in this process.
#[expect(unsafe_code)]
pub(super) fn pending() -> SigSet {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` outlives the call, which fills it; all zero is a valid set in any case.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        SigSet::from_sigset_t_unchecked(set.assume_init())
    }
}
