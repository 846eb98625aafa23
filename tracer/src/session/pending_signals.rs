//! Signals that this process has got and not taken.

use nix::sys::signal::SigSet;

/// The signals that are blocked and that this process still has to take.
#[expect(unsafe_code)]
pub(super) fn pending() -> SigSet {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` outlives the call, which fills it; all zero is a valid set in any case.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        SigSet::from_sigset_t_unchecked(set.assume_init())
    }
}
